"""The delta kernel on labels, the squared exponential with a full covariance (eq. 24), and kernels built on another."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ...validation import check_count
from ..profiles import PROFILES, SQUARED_EXPONENTIAL, Radial
from ..radial import Whitening, radial_gram
from ..structure import batch_shape_of


class BasedKernel(Kernel):
    """A kernel with a ``base_kernel``; the parts of the base kernel are not listed as parts of this kernel."""

    base_kernel: Kernel

    def named_sub_kernels(self) -> Iterable[tuple[str, Kernel]]:
        """The base kernel alone."""
        return [(name, child) for name, child in self.named_children() if isinstance(child, Kernel)]

    @property
    def is_stationary(self) -> bool:
        """False unless a subclass overrides it: bags, for example, are not points of a vector space."""
        return False

    def check_last_dim(self, last_dim_is_batch: bool) -> None:
        """Raise if GPyTorch requests one kernel for each column, which has no meaning here."""
        if last_dim_is_batch:
            raise RuntimeError(f"{type(self).__name__} does not accept the last_dim_is_batch argument.")


class FollowingKernel(BasedKernel):
    """A kernel without its own parameters: its batch shape is that of its base kernel."""

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the base kernel."""
        return batch_shape_of(self.base_kernel)

    @batch_shape.setter
    def batch_shape(self, value: torch.Size) -> None:
        """Nothing to set, because the base kernel holds every parameter."""


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
        L = torch.linalg.cholesky(torch.linalg.inv(value.to(self.raw_factor)))
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
    T: Tensor = torch.linalg.cholesky(2.0 * L.mT @ L + h[..., None, None] * eye)
    log_size = 0.5 * D * math.log(2.0 * math.pi) - T.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    left = torch.linalg.solve_triangular(T, eye, upper=False) * (0.5 * h).sqrt()[..., None, None]
    y = z1 if z2 is None else z2
    matrix = matrix * radial_gram(z1 @ left.mT, -(y @ left.mT), SQUARED_EXPONENTIAL)
    return log_size.exp()[..., None, None] * matrix


class DeltaKernel(Kernel):
    """δ(y, y') = 1 where two rows are equal, else 0.

    Args:
        batch_shape: as in every GPyTorch kernel.
        active_dims: the columns to compare; all by default.

    Example:
        >>> import torch
        >>> DeltaKernel()(torch.tensor([[0.0], [1.0], [0.0]])).to_dense()
        tensor([[1., 0., 1.],
                [0., 1., 0.],
                [1., 0., 1.]])
    """

    is_stationary = True

    def __init__(self, batch_shape: torch.Size | None = None, active_dims: tuple[int, ...] | None = None) -> None:
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        # This kernel has no parameter from which to read its batch shape, dtype and device.
        self.register_buffer("_one", torch.ones(self.batch_shape, device=torch.get_default_device()), persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype the kernel was moved to."""
        dtypes: set[torch.dtype] = {self._one.dtype, *(parameter.dtype for parameter in self.parameters())}
        if len(dtypes) > 1:
            raise RuntimeError(f"The kernel's parameters have multiple dtypes: {dtypes}.")
        return dtypes.pop()

    @property
    def device(self) -> torch.device:
        """The device the kernel was moved to."""
        device: torch.device = self._one.device
        return device

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object) -> Tensor:
        """Equality of rows, as numbers of the dtype of ``x1``."""
        if diag:
            return (x1 == x2).all(dim=-1).to(x1.dtype)
        return (x1.unsqueeze(-2) == x2.unsqueeze(-3)).all(dim=-1).to(x1.dtype)
