r"""Explicit features :math:`Z` with :math:`K = Z Z^\top` (eq. 71), read off the structure of a kernel.

================================  =====================================================================
kernel                            features
================================  =====================================================================
``FeatureKernel(φ)``              φ(x); with a base kernel κ that has features itself, those of κ at φ(x)
``LinearKernel``                  √v · x
``RFFKernel``                     the cosines and sines it is made of
``PolynomialKernel``              all monomials: √(q! / (a₀! a!) · c^a₀) · x^a with a₀ + Σa = q
``ConstantKernel``                √c
``ScaleKernel``                   √σ² times those of its base
``AdditiveKernel``                those of its parts, side by side
``ProductKernel``                 products of one feature of each part
================================  =====================================================================

Other kernels have none that are finite, and neither has a sum with one of them.
"""

from __future__ import annotations

import itertools
import math

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    Kernel,
    LinearKernel,
    PolynomialKernel,
    ProductKernel,
    RFFKernel,
    ScaleKernel,
)
from torch import Tensor

from ..classes.feature import FeatureKernel
from ..gram import check_columns

MAX_WIDTH = 4096
"""Polynomial and product features beyond this many are not formed unless asked for."""


def explicit_features(kernel: Kernel, x: Tensor, limit: int = MAX_WIDTH) -> Tensor | None:
    """Z of shape ``(*batch, n, p)`` with K = ZZᵀ, or ``None`` where ``kernel`` has no explicit features.

    Args:
        kernel: any GPyTorch kernel.
        x: points of shape ``(n, d)``.
        limit: polynomial and product features are formed only up to this many.

    Example:
        >>> from gpytorch.kernels import PolynomialKernel, RBFKernel
        >>> x = torch.randn(10, 2)
        >>> Z = explicit_features(PolynomialKernel(power=2), x)
        >>> Z.shape, bool(torch.allclose(Z @ Z.T, PolynomialKernel(power=2)(x).to_dense(), atol=1e-5))
        (torch.Size([10, 6]), True)
        >>> explicit_features(RBFKernel(), x) is None
        True
    """
    if not has_explicit_features(kernel):
        return None
    check_columns(kernel, x.shape[-1])
    return _features(kernel, x, limit)


def has_explicit_features(kernel: Kernel) -> bool:
    """Whether the structure of ``kernel`` allows :func:`explicit_features`; nothing is evaluated."""
    # Subclasses may compute something else, so only the classes themselves are recognised.
    if type(kernel) in (LinearKernel, RFFKernel, ConstantKernel):
        return True
    if type(kernel) is PolynomialKernel:
        return float(kernel.power).is_integer() and kernel.power >= 1
    if type(kernel) is FeatureKernel:
        return kernel.base_kernel is None or has_explicit_features(kernel.base_kernel)
    if type(kernel) is ScaleKernel:
        return has_explicit_features(kernel.base_kernel)
    if type(kernel) in (AdditiveKernel, ProductKernel):
        return all(has_explicit_features(part) for part in kernel.kernels)
    return False


def _features(kernel: Kernel, x: Tensor, limit: int) -> Tensor | None:
    if kernel.active_dims is not None:
        x = x.index_select(-1, kernel.active_dims)
    return _of_active(kernel, x, limit)


def _of_active(kernel: Kernel, x: Tensor, limit: int) -> Tensor | None:
    """What ``kernel.forward`` would use: the active dimensions are chosen already."""
    if isinstance(kernel, FeatureKernel):
        z = kernel.features(x)
        Z = z if kernel.base_kernel is None else _features(kernel.base_kernel, z, limit)
        return None if Z is None else Z.expand(*torch.broadcast_shapes(kernel.batch_shape, Z.shape[:-2]), *Z.shape[-2:])
    if isinstance(kernel, LinearKernel):
        linear: Tensor = x * kernel.variance.sqrt()
        return linear
    if isinstance(kernel, RFFKernel):
        return _fourier(kernel, x)
    if isinstance(kernel, PolynomialKernel):
        return _polynomial(kernel, x, limit)
    if isinstance(kernel, ConstantKernel):
        constant: Tensor = kernel.constant.to(x).sqrt().unsqueeze(-1)
        return constant.expand(*kernel.batch_shape, x.shape[-2], 1)
    if isinstance(kernel, ScaleKernel):
        base = _of_active(kernel.base_kernel, x, limit)
        sigma: Tensor = kernel.outputscale.sqrt()[..., None, None]
        return None if base is None else sigma * base
    parts = [_features(part, x, limit) for part in kernel.kernels]
    known = [Z for Z in parts if Z is not None]
    if len(known) < len(parts):
        return None
    return _side_by_side(known) if isinstance(kernel, AdditiveKernel) else _products(known, limit)


def _fourier(kernel: RFFKernel, x: Tensor) -> Tensor:
    if not hasattr(kernel, "randn_weights"):
        kernel._init_weights(x.shape[-1], kernel.num_samples)
    if kernel.randn_weights.dtype != x.dtype:
        raise TypeError(
            f"Expected the parameters of RFFKernel in the dtype of x, {x.dtype}, got {kernel.randn_weights.dtype}. "
            "Convert the embedding with embedding.to(x.dtype), or let kernel_embed.fit do so."
        )
    features: Tensor = kernel._featurize(x, normalize=True)
    return features


def _polynomial(kernel: PolynomialKernel, x: Tensor, limit: int) -> Tensor | None:
    """(xᵀx' + c)^q = Σ q! / (a₀! a!) · c^a₀ · x^a x'^a over all exponents with a₀ + Σa = q."""
    q, d = int(kernel.power), x.shape[-1]
    if math.comb(d + q, q) > limit:
        return None
    if kernel.offset.dtype != x.dtype:
        raise TypeError(
            f"Expected the parameters of PolynomialKernel in the dtype of x, {x.dtype}, got {kernel.offset.dtype}. "
            "Convert the embedding with embedding.to(x.dtype), or let kernel_embed.fit do so."
        )
    c: Tensor = kernel.offset.unsqueeze(-1)
    columns = []
    for degree in range(q + 1):
        rest = math.factorial(q) / math.factorial(q - degree)
        # c^(a₀/2), and exactly 1 for a₀ = 0 also where c = 0
        root = c ** (0.5 * (q - degree)) if degree < q else torch.ones_like(c)
        for chosen in itertools.combinations_with_replacement(range(d), degree):
            ways = rest / math.prod(math.factorial(chosen.count(j)) for j in set(chosen))
            monomial = x[..., list(chosen)].prod(dim=-1, keepdim=True)
            columns.append(math.sqrt(ways) * root * monomial)
    return torch.cat(columns, dim=-1)


def _side_by_side(parts: list[Tensor]) -> Tensor:
    """K₁ + K₂ = [Z₁ Z₂][Z₁ Z₂]ᵀ."""
    batch = torch.broadcast_shapes(*(Z.shape[:-2] for Z in parts))
    return torch.cat([Z.expand(*batch, *Z.shape[-2:]) for Z in parts], dim=-1)


def _products(parts: list[Tensor], limit: int) -> Tensor | None:
    """K₁ ∘ K₂ has the features z₁ᵢ z₂ⱼ."""
    if math.prod(Z.shape[-1] for Z in parts) > limit:
        return None
    product = parts[0]
    for Z in parts[1:]:
        product = (product.unsqueeze(-1) * Z.unsqueeze(-2)).flatten(-2)
    return product
