r"""The squared exponential kernel with a full covariance matrix, eq. (24)."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ...linalg import cholesky_factor
from ...validation import check_count
from ..profiles import PROFILES, SQUARED_EXPONENTIAL, Radial
from ..radial import Whitening, radial_gram


class MahalanobisKernel(Kernel):
    r"""k(x, y) = exp(−½ (x − y)ᵀ Σ⁻¹ (x − y)) with any positive definite Σ, learned through Σ⁻¹ = LLᵀ.

    L is lower triangular; its diagonal is learned as a logarithm, so every value of the parameter is valid.

    Args:
        num_dims: D, the number of (active) input columns.
        batch_shape: independent kernels in one.
        active_dims: columns used.

    Raises:
        TypeError: if ``num_dims`` is not a whole number.
        ValueError: if it is below 1.

    Example:
        >>> kernel = MahalanobisKernel(num_dims=2)
        >>> kernel.covariance = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
        >>> kernel(x).to_dense()[0, 1].item() - math.exp(-1 / 3) < 1e-6
        True
    """

    has_lengthscale = False

    def __init__(
        self,
        num_dims: int,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.num_dims = num_dims = check_count("num_dims", num_dims)
        self.register_parameter("raw_factor", torch.nn.Parameter(torch.zeros(*self.batch_shape, num_dims, num_dims)))

    @property
    def is_stationary(self) -> bool:
        """k depends on x − y alone."""
        return True

    @property
    def factor(self) -> Tensor:
        """L, lower triangular with a positive diagonal, Σ⁻¹ = LLᵀ: ``(*batch, D, D)``."""
        lower: Tensor = self.raw_factor.tril(-1)
        return lower + torch.diag_embed(self.log_diagonal.exp())

    @property
    def log_diagonal(self) -> Tensor:
        """log diag L: ``(*batch, D)``."""
        diagonal: Tensor = self.raw_factor.diagonal(dim1=-2, dim2=-1)
        return diagonal

    @property
    def covariance(self) -> Tensor:
        """Σ: ``(*batch, D, D)``."""
        return torch.cholesky_inverse(self.factor)

    @covariance.setter
    def covariance(self, value: Tensor) -> None:
        """Set L from Σ."""
        L = cholesky_factor(torch.linalg.inv(value.to(self.raw_factor)))
        raw = L.tril(-1) + torch.diag_embed(L.diagonal(dim1=-2, dim2=-1).log())
        self.initialize(raw_factor=raw.expand(self.raw_factor.shape).clone())

    def whiten(self, x: Tensor) -> Tensor:
        """z = Lᵀx, so that k is a unit squared exponential of z."""
        return Whitening(self.factor).scaled(x)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object) -> Tensor:
        """exp(−½ ‖Lᵀ(x1 − x2)‖²)."""
        if diag:
            return self.whiten(x1 - x2).square().sum(-1).mul(-0.5).exp()
        same = x1.shape == x2.shape and torch.equal(x1, x2)
        if x1.requires_grad or x2.requires_grad:
            difference = self.whiten(x1).unsqueeze(-2) - self.whiten(x2).unsqueeze(-3)
            return difference.square().sum(-1).mul(-0.5).exp()
        return radial_gram(self.whiten(x1), None if same else self.whiten(x2), SQUARED_EXPONENTIAL)


def _radial(kernel: Kernel) -> Radial:
    return Radial(SQUARED_EXPONENTIAL, Whitening(kernel.factor))


PROFILES.register(MahalanobisKernel, _radial)


def mahalanobis_smoothed_gram(kernel: MahalanobisKernel, x1: Tensor, x2: Tensor | None, h: Tensor | None) -> Tensor:
    r"""r of eq. (25) for a full Σ, under Lebesgue (``h=None``) or Gaussian measure, h = η⁻² (appendix A.3).

    .. math::
        r = (2\pi)^{D/2} |2\Sigma^{-1} + h I|^{-1/2} e^{-\frac14 \delta^\top \Sigma^{-1} \delta}\,
            e^{-\frac12 s^\top (\frac12 \Sigma + h^{-1} I)^{-1} s}, \qquad s = \tfrac12 (x + y) .
    """
    D = kernel.num_dims
    root = math.sqrt(0.5)
    z1, z2 = kernel.whiten(x1), None if x2 is None else kernel.whiten(x2)
    matrix = radial_gram(root * z1, None if z2 is None else root * z2, SQUARED_EXPONENTIAL)
    if h is None:
        log_size = 0.5 * D * math.log(math.pi) - kernel.log_diagonal.sum(-1)
        return log_size.exp()[..., None, None] * matrix
    L = kernel.factor
    eye = torch.eye(D, dtype=L.dtype, device=L.device)
    # (½Σ + h⁻¹I)⁻¹ = 2h (2LLᵀ + hI)⁻¹ LLᵀ = 2h L (2LᵀL + hI)⁻¹ Lᵀ, so with TTᵀ = 2LᵀL + hI it is √(2h) T⁻¹z, squared.
    T = cholesky_factor(2.0 * L.mT @ L + h[..., None, None] * eye)
    log_size = 0.5 * D * math.log(2.0 * math.pi) - T.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    left = torch.linalg.solve_triangular(T, eye, upper=False) * (0.5 * h).sqrt()[..., None, None]
    y = z1 if z2 is None else z2
    matrix = matrix * radial_gram(z1 @ left.mT, -(y @ left.mT), SQUARED_EXPONENTIAL)
    return log_size.exp()[..., None, None] * matrix
