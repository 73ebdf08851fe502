r"""The empirical embedding μ̂ (eq. 2) and its log slope log γ = log ‖∇μ̂‖ (eqs. 10, 12) for any kernel.

RBF and Matérn kernels, alone or scaled, take the closed form in the log domain of
:mod:`kernel_embed.kernels.radial_slope`. For sums and products
:math:`\sum_j \omega_{ij} \partial_x k(x_i, x_j)` is taken apart by the rules of differentiation, down to radial kernels, whose derivative is written out, and to kernels
of any other kind, which autograd differentiates.

A kernel with a cusp (Matérn ½) has no derivative where two points coincide; by symmetry that pair counts zero. For a
pair of one point with itself :math:`\partial_1 k(x, x) = \frac12 \nabla k(x, x)`, zero for every stationary kernel.
"""

from __future__ import annotations

import functools
import math
import operator
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, ProductKernel, RBFKernel, RQKernel, ScaleKernel
from linear_operator.utils.errors import NanError
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from .gram import cross_evaluation, gram_diagonal
from .mahalanobis import MahalanobisKernel
from .radial_slope import SQUARED_EXPONENTIAL, SlopeProfile, matern_slope, radial_slope

CDIST_ROWS = 26
"""Above 25 rows torch.cdist takes its matrix-product form, the one that can be differentiated twice."""


class EmpiricalEmbedding(NamedTuple):
    """μ̂(x_i), ``mean``, and log γ(x_i), ``log_slope``, each of shape ``(*batch, t)``."""

    mean: Tensor
    log_slope: Tensor


def empirical_embedding(
    kernel: Kernel, sample: Tensor, points: Tensor | None = None, own: Tensor | None = None
) -> EmpiricalEmbedding:
    """μ̂ of ``sample`` (``(n, d)``) and log γ at ``points`` (``(t, d)``).

    Args:
        kernel: any GPyTorch kernel.
        sample: the data.
        points: where to evaluate; the sample itself by default.
        own: the row of ``sample`` that each point is; ``None`` for points that are not in the sample.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [3.0]], dtype=torch.float64)
        >>> kernel = RBFKernel().double()
        >>> kernel.lengthscale = 1e-2                  # every kernel value underflows, the logarithm does not
        >>> empirical_embedding(kernel, x).log_slope.detach().round()
        tensor([ -4992.,  -4992., -19991.], dtype=torch.float64)
    """
    if points is None:
        points, own = sample, torch.arange(sample.shape[-2], device=sample.device)
    radial = _radial(kernel)
    if radial is not None:
        return _radial_embedding(*radial, kernel.active_dims, sample, points, own)
    return _general_embedding(kernel, sample, points, own)


# --- radial kernels ---------------------------------------------------------------------------------------------------


def _radial(kernel: Kernel) -> tuple[Kernel, Tensor | None] | None:
    """The radial kernel inside ``kernel`` and the scale on it."""
    if type(kernel) in (RBFKernel, MaternKernel, MahalanobisKernel):
        return kernel, None
    if type(kernel) is ScaleKernel:
        inside = _radial(kernel.base_kernel)
        if inside is not None:
            outputscale: Tensor = kernel.outputscale
            return inside[0], outputscale if inside[1] is None else outputscale * inside[1]
    return None


def _profile(kernel: Kernel) -> SlopeProfile:
    return matern_slope(kernel.nu) if isinstance(kernel, MaternKernel) else SQUARED_EXPONENTIAL


def _radial_embedding(
    kernel: Kernel,
    outputscale: Tensor | None,
    columns: Tensor | None,
    sample: Tensor,
    points: Tensor,
    own: Tensor | None,
) -> EmpiricalEmbedding:
    if columns is not None:
        sample, points = sample.index_select(-1, columns), points.index_select(-1, columns)
    z = _scaled(kernel, sample)
    z1 = z if points is sample else _scaled(kernel, points)
    mean, v, m, noise = radial_slope(z1, z, own, _profile(kernel))
    repeated = None
    if _may_repeat(kernel, m, z):
        repeated = _merge_repeated(sample, points, own)
    if repeated is not None:
        sample, points, own, counts, inverse = repeated
        answers = radial_slope(_scaled(kernel, points), _scaled(kernel, sample), own, _profile(kernel), counts)
        mean, m, noise = (t[..., inverse] for t in (answers[0], answers[2], answers[3]))
        v = answers[1][..., inverse, :]
    # γ = ‖∂μ̂/∂x‖, x = ℓz (eq. 12)
    slope = v @ kernel.factor.mT if isinstance(kernel, MahalanobisKernel) else v / kernel.lengthscale
    unit = noise if isinstance(kernel, MahalanobisKernel) else noise / kernel.lengthscale.amax(dim=(-2, -1))[..., None]
    log_slope = m + _log_norm(slope, unit)
    if outputscale is not None:
        mean, log_slope = outputscale[..., None] * mean, outputscale[..., None].log() + log_slope
    return EmpiricalEmbedding(mean, log_slope)


def _scaled(kernel: Kernel, x: Tensor) -> Tensor:
    return kernel.whiten(x) if isinstance(kernel, MahalanobisKernel) else x / kernel.lengthscale


def _may_repeat(kernel: Kernel, m: Tensor, z: Tensor) -> bool:
    """Whether some point may coincide with another: its nearest exponent is zero up to rounding."""
    rounding = 64.0 * torch.finfo(z.dtype).eps * (1.0 + z.detach().square().sum(-1).amax())
    if isinstance(kernel, MaternKernel):
        rounding = (2.0 * kernel.nu * rounding).sqrt()
    return z.shape[-2] > 1 and bool((m >= -rounding).any())


def _merge_repeated(
    sample: Tensor, points: Tensor, own: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor] | None:
    """The different rows with their counts, where some are repeated: a repeated point has no slope of its own."""
    if sample.dim() != 2:
        return None
    rows, inverse, counts = sample.unique(dim=0, return_inverse=True, return_counts=True)
    if rows.shape[0] == sample.shape[0]:
        return None
    counts = counts.to(sample)
    if own is None:
        return rows, points, None, counts, torch.arange(points.shape[-2], device=points.device)
    different, back = inverse[own].unique(return_inverse=True)
    return rows, rows[different], different, counts, back


# --- sums, products, and any other kernel -----------------------------------------------------------------------------


class _Expansion(NamedTuple):
    """k(x_i, x_j), and the function from ω to Σ_j ω_ij ∂k(x_i, x_j)/∂x_i, of shape ``(*batch, t, d)``."""

    values: Tensor
    slope: Callable[[Tensor], Tensor]


def _general_embedding(kernel: Kernel, sample: Tensor, points: Tensor, own: Tensor | None) -> EmpiricalEmbedding:
    n = sample.shape[-2]
    mask = None
    if own is not None:
        mask = torch.zeros(points.shape[-2], n, dtype=torch.bool, device=sample.device)
        mask[torch.arange(points.shape[-2], device=sample.device), own] = True
    batch = torch.broadcast_shapes(kernel.batch_shape, points.shape[:-2])
    points = points.expand(*batch, *points.shape[-2:])
    with torch.enable_grad():
        K, slope = _expand(kernel, points, sample, mask)
        total = slope(torch.ones_like(K)) / n
    if not torch.is_grad_enabled():
        K, total = K.detach(), total.detach()
    spread = (sample.amax(dim=-2) - sample.amin(dim=-2)).amax(dim=-1).clamp_min(torch.finfo(sample.dtype).tiny)
    unit = 8.0 * torch.finfo(sample.dtype).eps * K.detach().abs().mean(dim=-1) / spread.unsqueeze(-1)
    return EmpiricalEmbedding(K.mean(dim=-1), _log_norm(total, unit, exact_zero_is_underflow=True))


def _expand(kernel: Kernel, x1: Tensor, x2: Tensor, mask: Tensor | None) -> _Expansion:
    if not _is_understood(kernel):
        return _by_autograd(kernel, x1, x2, mask)
    columns = kernel.active_dims
    if columns is None:
        return _understood(kernel, x1, x2, mask)
    inner = _understood(kernel, x1.index_select(-1, columns), x2.index_select(-1, columns), mask)
    width = x1.shape[-1]

    def slope(weight: Tensor) -> Tensor:
        part = inner.slope(weight)
        return part.new_zeros(*part.shape[:-1], width).index_add(-1, columns, part)

    return _Expansion(inner.values, slope)


def _is_understood(kernel: Kernel) -> bool:
    if type(kernel) is ScaleKernel:
        return _is_understood(kernel.base_kernel)
    return type(kernel) in (RBFKernel, MaternKernel, RQKernel, AdditiveKernel, ProductKernel)


def _understood(kernel: Kernel, x1: Tensor, x2: Tensor, mask: Tensor | None) -> _Expansion:
    """As :func:`_expand`, for inputs that are the active columns already."""
    if isinstance(kernel, ScaleKernel):
        base = _understood(kernel.base_kernel, x1, x2, mask)
        scale: Tensor = kernel.outputscale[..., None, None]
        return _Expansion(scale * base.values, lambda weight: scale * base.slope(weight))
    if isinstance(kernel, AdditiveKernel | ProductKernel):
        parts = [_expand(part, x1, x2, mask) for part in kernel.kernels]
        if isinstance(kernel, AdditiveKernel):
            values = functools.reduce(operator.add, (part.values for part in parts))
            return _Expansion(values, lambda weight: _add(part.slope(weight.expand_as(part.values)) for part in parts))
        values = functools.reduce(operator.mul, (part.values for part in parts))
        return _Expansion(values, functools.partial(_product_slope, parts))
    return _radial_expansion(kernel, x1, x2)


def _add(terms: object) -> Tensor:
    total: Tensor = functools.reduce(operator.add, terms)  # type: ignore[call-overload]
    return total


def _product_slope(parts: list[_Expansion], weight: Tensor) -> Tensor:
    """(∏ k_p)' = Σ_p k_p' ∏_{q≠p} k_q."""
    terms = []
    for position, part in enumerate(parts):
        others = (other.values for i, other in enumerate(parts) if i != position)
        terms.append(part.slope(functools.reduce(operator.mul, others, weight)))
    return _add(terms)


def _radial_expansion(kernel: Kernel, x1: Tensor, x2: Tensor) -> _Expansion:
    lengthscale: Tensor = kernel.lengthscale
    centre = x2.detach().mean(dim=-2, keepdim=True)
    z1, z2 = (x1 - centre) / lengthscale, (x2 - centre) / lengthscale
    square = z1.square().sum(-1, keepdim=True) + z2.square().sum(-1).unsqueeze(-2) - 2.0 * z1 @ z2.mT
    # Rounding may leave a small distance between coinciding points; for a cusp that would be a slope of its own.
    rounding = 64.0 * torch.finfo(square.dtype).eps * (1.0 + z2.detach().square().sum(-1).amax(-1)[..., None, None])
    phi, slope = _radial_values(kernel, torch.where(square > rounding, square, 0.0))

    def weighted(weight: Tensor) -> Tensor:
        M = 2.0 * weight * slope
        return (M.sum(-1, keepdim=True) * z1 - M @ z2) / lengthscale

    return _Expansion(phi, weighted)


def _radial_values(kernel: Kernel, s: Tensor) -> tuple[Tensor, Tensor]:
    """φ(s) and φ'(s)."""
    if isinstance(kernel, RBFKernel):
        phi = torch.exp(-0.5 * s)
        return phi, -0.5 * phi
    if isinstance(kernel, RQKernel):
        alpha: Tensor = kernel.alpha
        alpha = alpha[..., None] if alpha.dim() == s.dim() - 1 else alpha[..., None, None]
        base = 1.0 + s / (2.0 * alpha)
        phi = base.pow(-alpha)
        return phi, -0.5 * phi / base
    nu = kernel.nu
    positive = s > 0
    a = torch.where(positive, (2.0 * nu * torch.where(positive, s, 1.0)).sqrt(), 0.0)
    decay = torch.exp(-a)
    if nu == 0.5:
        return decay, torch.where(positive, -0.5 * decay / torch.where(positive, a, 1.0), 0.0)
    if nu == 1.5:
        return (1.0 + a) * decay, -1.5 * decay
    return (1.0 + a + a.square() / 3.0) * decay, (-5.0 / 6.0) * (1.0 + a) * decay


def _by_autograd(kernel: Kernel, x1: Tensor, x2: Tensor, mask: Tensor | None) -> _Expansion:
    inputs = x1.clone()
    if not inputs.requires_grad:
        inputs.requires_grad_(True)
    batch, t, n = x1.shape[:-2], x1.shape[-2], x2.shape[-2]
    # Rows more than needed: GPyTorch treats equal inputs apart, with distances that cannot be differentiated at zero.
    extra = max(1, CDIST_ROWS - n) + (1 if n + max(1, CDIST_ROWS - n) == t else 0)
    longer = torch.cat([x2, x2[..., -1:, :].expand(*x2.shape[:-2], extra, x2.shape[-1])], dim=-2)
    with cross_evaluation(kernel):
        K = _dense(kernel(inputs, longer.expand(*batch, *longer.shape[-2:])))[..., :n]
    if mask is not None:
        K = torch.where(mask, gram_diagonal(kernel, inputs).unsqueeze(-1), K)

    def slope(weight: Tensor) -> Tensor:
        # ∂₁k(x, x) = ½ ∇k(x, x) for a pair of one point with itself
        halved = weight if mask is None else torch.where(mask, 0.5 * weight, weight)
        if not K.requires_grad:
            return torch.zeros_like(inputs)
        (gradient,) = torch.autograd.grad(
            K, inputs, halved.expand_as(K), create_graph=True, allow_unused=True, materialize_grads=True
        )
        return gradient

    return _Expansion(K, slope)


def _dense(matrix: object) -> Tensor:
    return matrix if isinstance(matrix, Tensor) else matrix.to_dense()  # type: ignore[attr-defined]


# --- where the slope vanishes -----------------------------------------------------------------------------------------


def _log_norm(slope: Tensor, noise: Tensor, exact_zero_is_underflow: bool = False) -> Tensor:
    """log ‖slope‖, where below the rounding error ``noise`` it is that of the noise, announced."""
    square = slope.square().sum(-1)
    # Components of 1e-170 have no square; scaling by the largest one keeps it.
    largest = slope.detach().abs().amax(dim=-1)
    small = largest < math.sqrt(torch.finfo(slope.dtype).tiny) * 1e8
    if bool(small.any()):
        unit = torch.where(largest > 0, largest, 1.0)
        square = (slope / unit.unsqueeze(-1)).square().sum(-1)
    else:
        unit = torch.ones_like(largest)
    norm = unit * square.detach().sqrt()
    if not bool(torch.isfinite(norm).all()):
        raise NanError(
            f"Expected a finite gradient of the embedding, got {int((~torch.isfinite(norm)).sum())} values that are "
            "not finite. Look for hyperparameters that overflowed, or features on very different scales."
        )
    zero = norm == 0
    if (exact_zero_is_underflow and bool(zero.any())) or bool((zero & (noise <= 0)).any()):
        raise NanError(_flat_message(int(zero.sum()), zero.numel()))
    flat = norm <= noise
    if bool(flat.any()):
        warnings.warn(
            f"The empirical embedding is flat, up to rounding, at {int(flat.sum())} of {flat.numel()} points (they lie "
            "symmetrically among the others, for example on a grid). Their density under eq. (13) is zero; log γ is "
            "replaced by the logarithm of the rounding error there.",
            NumericalWarning,
            stacklevel=4,
        )
    safe = torch.where(flat, 1.0, square)
    return torch.where(flat, noise.clamp_min(torch.finfo(noise.dtype).tiny).log(), 0.5 * safe.log() + unit.log())


def _flat_message(count: int, total: int) -> str:
    return (
        f"Expected an embedding with a slope at every point, got none at all at {count} of {total} points, so that "
        "eq. (13) gives them density zero. Either there is no other point than copies of one, or every kernel value "
        "between them and the others underflows, or the kernel is constant. Use a longer lengthscale or drop "
        "points that lie far from all others."
    )
