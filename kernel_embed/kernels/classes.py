r"""The delta kernel on labels, the squared exponential with a full covariance, and kernels on learned features.

A kernel on learned features (eqs. 71, 72) is :math:`k(x, x') = \kappa(\varphi_\theta(x), \varphi_\theta(x'))` for any
``torch.nn.Module`` φ. With the linear kernel κ(z, z') = zᵀz' this is the explicit conditional embedding network, with
any other κ the implicit one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import torch
from gpytorch.kernels import Kernel
from linear_operator import LinearOperator
from torch import Tensor

from ..runtime import cpu_by_default
from ..validation import broadcast_shapes, check_count
from .radial import PROFILES, SQUARED_EXPONENTIAL, Radial, radial_gram
from .structure import batch_shape_of

Index = int | slice | Tensor | None
"""An index of elements of a batch."""


class DeltaKernel(Kernel):
    """δ(y, y') = 1 where two rows are equal, else 0.

    Args:
        batch_shape: as in every GPyTorch kernel.
        active_dims: the columns to compare; all by default.

    Example:
        >>> DeltaKernel()(torch.tensor([[0.0], [1.0], [0.0]])).to_dense()[0]
        tensor([1., 0., 1.])
    """

    is_stationary = True

    @cpu_by_default()
    def __init__(self, batch_shape: torch.Size | None = None, active_dims: tuple[int, ...] | None = None) -> None:
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        # This kernel has no parameter from which to read its batch shape, dtype and device.
        self.register_buffer("_one", torch.ones(self.batch_shape, device=torch.get_default_device()), persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of a buffer that follows ``kernel.to``; raises if a parameter has another one."""
        dtypes: set[torch.dtype] = {self._one.dtype, *(parameter.dtype for parameter in self.parameters())}
        if len(dtypes) > 1:
            raise RuntimeError(f"The kernel's parameters have multiple dtypes: {dtypes}.")
        return dtypes.pop()

    @property
    def device(self) -> torch.device:
        """The device of the kernel's buffer, since the kernel itself has no parameters."""
        device: torch.device = self._one.device
        return device

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object) -> Tensor:
        """1 for the pairs of equal rows, else 0, in the dtype of ``x1``."""
        equal = x1 == x2 if diag else x1.unsqueeze(-2) == x2.unsqueeze(-3)
        return equal.all(dim=-1).to(x1.dtype)


class MahalanobisKernel(Kernel):
    r"""k(x, y) = exp(−½ (x − y)ᵀ Σ⁻¹ (x − y)) with any positive definite Σ (eq. 24), learned through Σ⁻¹ = LLᵀ.

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
        >>> round(kernel(x).to_dense()[0, 1].item(), 4)            # exp(−1/3)
        0.7165
    """

    has_lengthscale, is_stationary = False, True

    def __init__(
        self, num_dims: int, batch_shape: torch.Size | None = None, active_dims: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        self.num_dims = num_dims = check_count("num_dims", num_dims)
        self.register_parameter("raw_factor", torch.nn.Parameter(torch.zeros(*self.batch_shape, num_dims, num_dims)))

    @property
    def factor(self) -> Tensor:
        """L, lower triangular with a positive diagonal, Σ⁻¹ = LLᵀ: ``(*batch, D, D)``."""
        lower: Tensor = self.raw_factor.tril(-1) + torch.diag_embed(self.log_diagonal.exp())
        return lower

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
        """Set Σ, through the Cholesky factor L of Σ⁻¹."""
        L = torch.linalg.cholesky(torch.linalg.inv(value.to(self.raw_factor)))
        raw = L.tril(-1) + torch.diag_embed(L.diagonal(dim1=-2, dim2=-1).log())
        self.initialize(raw_factor=raw.expand(self.raw_factor.shape).clone())

    def whiten(self, x: Tensor) -> Tensor:
        """z = Lᵀx, so that k is a unit squared exponential of z."""
        return Radial(SQUARED_EXPONENTIAL, factor=self.factor).scaled(x)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object) -> Tensor:
        """exp(−½‖Lᵀ(x − y)‖²) for all pairs of rows, or row by row with ``diag``."""
        if diag:
            return self.whiten(x1 - x2).square().sum(-1).mul(-0.5).exp()
        if x1.requires_grad or x2.requires_grad:
            difference = self.whiten(x1).unsqueeze(-2) - self.whiten(x2).unsqueeze(-3)
            return difference.square().sum(-1).mul(-0.5).exp()
        return radial_gram(self.whiten(x1), None if equal(x1, x2) else self.whiten(x2), SQUARED_EXPONENTIAL)


PROFILES.register(MahalanobisKernel, lambda kernel: Radial(SQUARED_EXPONENTIAL, factor=kernel.factor))


class FeatureKernel(Kernel):
    r"""k(x, x') = κ(φ(x), φ(x')), with φ a network and κ a kernel on its output.

    Args:
        feature_map: φ, any module that takes ``(n, d)`` and returns ``(n, p)``. Its weights are hyperparameters of the
            kernel and are learned with it. For images, pass flattened rows and begin with ``torch.nn.Unflatten``.
        base_kernel: κ, any GPyTorch kernel; ``None`` for zᵀz', which adds no parameter.
        batch_shape: independent kernels in one, which share φ.
        active_dims: columns used, before φ.

    The map is evaluated once for each set of points. ``embedding.train()`` and ``embedding.eval()`` set its mode.

    Raises:
        TypeError: if ``feature_map`` is not a module, or ``base_kernel`` not a kernel.

    Example:
        >>> FeatureKernel(torch.nn.ReLU())(torch.tensor([[1.0, -3.0], [2.0, 1.0]])).to_dense()[0]
        tensor([1., 2.])
    """

    is_stationary = False

    @cpu_by_default()
    def __init__(
        self,
        feature_map: torch.nn.Module,
        base_kernel: Kernel | None = None,
        *,
        batch_shape: torch.Size | None = None,
        active_dims: Sequence[int] | Tensor | None = None,
    ) -> None:
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        if not isinstance(feature_map, torch.nn.Module):
            raise TypeError(f"Expected feature_map to be a torch.nn.Module, got {type(feature_map).__name__}.")
        if base_kernel is not None and not isinstance(base_kernel, Kernel):
            raise TypeError(f"Expected base_kernel to be a gpytorch kernel or None, got {type(base_kernel).__name__}.")
        self.feature_map, self.base_kernel = feature_map, base_kernel
        self.num_features: int | None = None
        """p at the last evaluation of the map."""

    def features(self, x: Tensor) -> Tensor:
        """φ(x) ``(*batch, n, p)`` for ``x`` ``(*batch, n, d)`` with its active dimensions already selected."""
        rows = x.reshape(-1, x.shape[-1])
        try:
            z = self.feature_map(rows)
        except RuntimeError as error:
            if "shapes cannot be multiplied" in str(error):
                raise ValueError(f"The feature map does not take x with {x.shape[-1]} columns ({error}).") from error
            if "dtype" in str(error):
                check_dtype(self.feature_map.parameters(), x, "weights of the feature map")
            raise
        if not isinstance(z, Tensor) or z.dim() != 2 or z.shape[0] != rows.shape[0] or z.shape[1] == 0:
            got = f"shape {tuple(z.shape)}" if isinstance(z, Tensor) else type(z).__name__
            raise ValueError(
                f"Expected features of shape ({rows.shape[0]}, p) from {type(self.feature_map).__name__}, got {got}. "
                "End a convolutional network with torch.nn.Flatten."
            )
        self.num_features = z.shape[1]
        return z.reshape(*x.shape[:-1], -1)

    def pair(self, x1: Tensor, x2: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """φ(x1) and φ(x2); ``None`` for the second if x2 is x1."""
        z1 = self.features(x1)
        if x2 is None or equal(x1, x2):
            return z1, None
        z2 = self.features(x2)
        check_width(z2, z1.shape[-1])
        return z1, z2

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object) -> Tensor | LinearOperator:
        """κ(φ(x1), φ(x2)), with zᵀz' for κ if there is no ``base_kernel``."""
        if params.pop("last_dim_is_batch", False):
            raise NotImplementedError("A feature map takes all columns at once, without last_dim_is_batch.")
        z1, z2 = self.pair(x1, x2)
        z2 = z1 if z2 is None else z2
        if self.base_kernel is not None:
            covariance: Tensor | LinearOperator = self.base_kernel(z1, z2, diag=diag, **params)
            return covariance
        return self.expanded((z1 * z2).sum(-1), 1) if diag else self.expanded(z1 @ z2.mT)

    def expanded(self, K: Tensor, dims: int = 2) -> Tensor:
        """``K``, whose last ``dims`` dimensions are rows and columns, with the batch shape of the kernel."""
        batch = broadcast_shapes(batch_shape_of(self), K.shape[:-dims])
        return K.expand(*batch, *K.shape[-dims:])

    def __getitem__(self, index: Index | tuple[Index, ...]) -> FeatureKernel:
        """The kernel of some elements of the batch, with the same feature map."""
        base = None if self.base_kernel is None else self.base_kernel[index]
        own = torch.empty(self._batch_shape, device="cpu")[index].shape if len(self._batch_shape) else self._batch_shape
        part = FeatureKernel(self.feature_map, base, batch_shape=own, active_dims=self.active_dims)
        part.num_features, part.training = self.num_features, self.training
        return part


def equal(x1: Tensor, x2: Tensor) -> bool:
    """Whether two sets of points are the same."""
    return x1 is x2 or (x1.shape == x2.shape and torch.equal(x1, x2))


def check_dtype(own: Iterable[Tensor], x: Tensor, what: str) -> None:
    """Raise if a tensor has another dtype than ``x``."""
    other = next((tensor.dtype for tensor in own if tensor.dtype != x.dtype), None)
    if other is not None:
        raise TypeError(f"Expected the {what} in the dtype of x, {x.dtype}, got {other}. Use embedding.to(x.dtype).")


def check_width(z: Tensor, expected: int) -> None:
    """Raise unless there are ``expected`` features."""
    if z.shape[-1] != expected:
        raise ValueError(f"The feature map returned {z.shape[-1]} features, but {expected} for the training data.")


@contextlib.contextmanager
def evaluation_mode(module: torch.nn.Module) -> Iterator[None]:
    """``module`` in evaluation mode inside the block, and every part of it in its own mode afterwards."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training
