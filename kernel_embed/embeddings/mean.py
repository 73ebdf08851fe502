r"""The kernel mean embedding of a sample, eqs. (1) and (2), its shrinkage, eq. (9), and its sampling error, eq. (6).

.. math::
    \mu_P = \int k(\cdot, x)\, P(dx), \qquad \hat\mu = \sum_i \beta_i\, k(\cdot, x_i), \quad \beta_i = 1/n , \\
    \check\mu_\lambda = \hat\Sigma (\hat\Sigma + \lambda I)^{-1} \hat\mu = \sum_i \beta_i k(\cdot, x_i), \qquad
    \beta = (K + n\lambda I)^{-1} [\hat\mu(x_1), \dots, \hat\mu(x_n)]^\top , \\
    \operatorname{Cov}[\hat\mu(x), \hat\mu(y)] \approx \frac1n \operatorname{Cov}_j[k(x_j, x), k(x_j, y)]
    = (D D^\top)_{xy}, \qquad D_{xj} = \frac{k(x, x_j) - \hat\mu(x)}{\sqrt{n (n - 1)}} .
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import gram
from ..kernels.parameters import frozen
from ..kernels.structure import check_columns, check_kernel
from ..linalg import DenseSystem
from ..validation import check_features, check_memory, check_query_points, check_sample, check_share, check_tensor
from .base import KernelEmbedding, RegularizedEmbedding

NoiseKind = Literal["heteroscedastic", "central-limit"]
NUGGET = 1e-4
"""Independent noise relative to that of the central limit theorem, whose covariance alone is singular."""
BLOCK_ENTRIES = 2**24
"""Entries of a block of the Gram matrix where only its row sums are needed."""


class MeanEmbedding(KernelEmbedding):
    """The empirical mean embedding μ̂ of eq. (2).

    Args:
        kernel: k, any GPyTorch kernel.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> kernel = RBFKernel().double()
        >>> kernel.lengthscale = 1.0
        >>> mean = MeanEmbedding(kernel).condition(torch.tensor([[0.0], [1.0]], dtype=torch.float64))
        >>> mean(torch.tensor([[0.0]], dtype=torch.float64))         # ½ (1 + e^{−½})
        tensor([0.8033], dtype=torch.float64)
    """

    def attach(self, x: Tensor) -> WeightedEmbedding:
        """The embedding of the sample ``x`` of shape ``(n, d)``, differentiable in the parameters as they are."""
        x = check_sample(x, self.kernel.parameters())
        check_columns(self.kernel, x.shape[-1])
        return WeightedEmbedding(self.kernel, x, x.new_full((x.shape[-2],), 1.0 / x.shape[-2]))

    def condition(self, x: Tensor) -> WeightedEmbedding:
        """The embedding of the sample ``x`` of shape ``(n, d)``, with a frozen copy of the kernel."""
        return frozen(self).attach(x)


class WeightedEmbedding:
    """Σ_i β_i k(·, x_i), an element of the RKHS of k: a function that is called on points.

    Attributes:
        kernel: k.
        x: the sample, ``(n, d)``.
        weights: β, ``(*batch, n)``.

    Raises:
        TypeError: if ``kernel`` is not a kernel, or ``x`` or ``weights`` not a tensor of real numbers.
        ValueError: if there is not one weight for each row of ``x``; when called, if the points have other columns
            than ``x``.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.tensor([[0.0], [1.0]])
        >>> mean = ke.embeddings.WeightedEmbedding(gpytorch.kernels.RBFKernel(), x, torch.tensor([0.5, 0.5]))
        >>> mean(torch.rand(4, 1)).shape
        torch.Size([4])
    """

    def __init__(self, kernel: Kernel, x: Tensor, weights: Tensor) -> None:
        check_kernel(kernel)
        check_tensor(x, "x")
        check_tensor(weights, "weights")
        if x.dim() != 2 or weights.dim() == 0 or weights.shape[-1] != x.shape[0]:
            raise ValueError(
                f"Expected x of shape (n, d) and n weights, got shapes {tuple(x.shape)} and {tuple(weights.shape)}."
            )
        self.kernel, self.x, self.weights = kernel, x, weights.to(x) if x.is_floating_point() else weights

    def __call__(self, x: Tensor) -> Tensor:
        """The values at ``x`` (``(t, d)``): ``(*batch, t)``."""
        x = check_query_points(x, self.x)
        rows = max(1, BLOCK_ENTRIES // self.x.shape[-2])
        parts = [gram(self.kernel, block, self.x) @ self.weights.unsqueeze(-1) for block in x.split(rows, dim=-2)]
        return torch.cat(parts, dim=-2).squeeze(-1)

    def expectation(self, g: Callable[[Tensor], Tensor] | Tensor) -> Tensor:
        """Σ_i β_i g(x_i), the estimate of E[g(X)], for values ``(n,)`` or ``(n, q)``; exact for g in the RKHS."""
        values = torch.as_tensor(g(self.x) if callable(g) else g).to(self.weights)
        if values.dim() not in (1, 2) or values.shape[0] != self.x.shape[0]:
            raise ValueError(
                f"Expected the values of g at the {self.x.shape[0]} points, got shape {tuple(values.shape)}."
            )
        return self.weights @ values

    def inner(self, other: WeightedEmbedding) -> Tensor:
        """⟨f, f'⟩ in the RKHS of k: ``batch``."""
        if other.x.shape[-1] != self.x.shape[-1]:
            raise ValueError(f"Expected samples of one width, got {self.x.shape[-1]} and {other.x.shape[-1]} columns.")
        return (self(other.x) * other.weights).sum(-1)

    def squared_distance(self, other: WeightedEmbedding) -> Tensor:
        """‖f − f'‖² in the RKHS of k, the (biased) MMD² of two samples: ``batch``."""
        return self.inner(self) - 2.0 * self.inner(other) + other.inner(other)


class ShrinkageMeanEmbedding(RegularizedEmbedding):
    """The estimator μ̌_λ of eq. (9), which shrinks μ̂ along the directions in which the data vary least.

    It is the posterior mean of :class:`kernel_embed.BayesianMeanEmbedding` with prior covariance k in place of r and
    noise σ² = nλ.

    The arguments are those of :class:`RegularizedEmbedding`.

    Example:
        >>> import gpytorch
        >>> x = torch.randn(20, 1, generator=torch.Generator().manual_seed(0))
        >>> shrunk = ShrinkageMeanEmbedding(gpytorch.kernels.RBFKernel(), regularization=0.1).condition(x)
        >>> bool(shrunk.inner(shrunk) < 1)
        True
    """

    def attach(self, x: Tensor) -> WeightedEmbedding:
        """μ̌_λ for the sample ``x`` of shape ``(n, d)``, differentiable in the parameters as they are."""
        x = check_sample(x, self.kernel.parameters())
        check_columns(self.kernel, x.shape[-1])
        check_memory(x.shape[-2], x, self.batch_shape.numel(), "Shrink the embedding of a part of the rows.")
        K = gram(self.kernel, x)
        ridge = (x.shape[-2] * self.regularization.to(K)).expand(K.shape[:-2])
        # eq. (9): β = (K + nλI)⁻¹ μ̂(x)
        beta = DenseSystem(K, ridge).solve(K.mean(dim=-1, keepdim=True))
        return WeightedEmbedding(self.kernel, x, beta.squeeze(-1))

    def condition(self, x: Tensor) -> WeightedEmbedding:
        """μ̌_λ for the sample ``x`` of shape ``(n, d)``, with a frozen copy of the kernel."""
        return frozen(self).attach(x)


def deviations(kernel: Kernel, x: Tensor, points: Tensor) -> Tensor:
    """D with DDᵀ the covariance of μ̂ of the sample ``x`` at ``points``, eq. (6): ``(*batch, t, n)``."""
    K = gram(kernel, points, x)
    n = x.shape[-2]
    return (K - K.mean(dim=-1, keepdim=True)) / math.sqrt(n * max(n - 1, 1))


def central_limit_variance(kernel: Kernel, x: Tensor, points: Tensor) -> Tensor:
    """Var_j[k(x_j, x)] / n at ``points``, kept off zero, where k is the same for every x_j: ``(*batch, t)``."""
    # eq. (6), its diagonal
    variance = deviations(kernel, x, points).square().sum(dim=-1)
    return variance + 1e-6 * variance.detach().mean(dim=-1, keepdim=True) + torch.finfo(variance.dtype).eps


def central_limit_covariance(kernel: Kernel, x: Tensor, points: Tensor) -> Tensor:
    """The joint covariance at ``points`` with a nugget: ``(*batch, t, t)``."""
    D, variance = deviations(kernel, x, points), central_limit_variance(kernel, x, points)
    nugget = NUGGET * variance.mean(dim=-1, keepdim=True)
    return D @ D.mT + torch.diag_embed(nugget.expand(variance.shape))


def credible_band(posterior: MultivariateNormal, level: float) -> tuple[Tensor, Tensor]:
    """Pointwise central intervals of probability ``level``."""
    check_share("level", level)
    half = torch.special.ndtri(torch.tensor(0.5 + 0.5 * level, dtype=torch.float64)).item()
    deviation = posterior.covariance_matrix.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt()
    return posterior.mean - half * deviation, posterior.mean + half * deviation


def observation_points(x: Tensor, locations: Tensor) -> tuple[Tensor | None, Tensor]:
    """Row numbers (``None`` for points that are not rows) and points at which the embedding is observed."""
    if locations.is_floating_point():
        return None, check_features(locations, "locations", width=x.shape[-1]).to(x)
    n = x.shape[-2]
    if locations.dim() != 1 or not locations.numel() or int(locations.min()) < 0 or int(locations.max()) >= n:
        raise ValueError(
            f"locations must be points, or a vector of row numbers from 0 to {n - 1}, but have shape "
            f"{tuple(locations.shape)} and type {locations.dtype}."
        )
    locations = locations.to(x.device)
    return locations, x[..., locations, :]
