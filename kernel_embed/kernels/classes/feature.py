r"""A kernel on learned features, :math:`k(x, x') = \kappa(\varphi_\theta(x), \varphi_\theta(x'))` (eqs. 71 and 72).

The feature map φ is any ``torch.nn.Module``. With the linear kernel κ(z, z') = zᵀz' this is the explicit conditional
embedding network, with any other κ the implicit one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch
from gpytorch.kernels import Kernel
from linear_operator import LinearOperator
from torch import Tensor

from ...linalg import require_finite
from ...validation import broadcast_shapes
from ..gram import GRAMS, gram
from ..initialization import INITIALIZATIONS, Initialization, initialize_from_data, is_initialized
from ..structure import batch_shape_of

Index = int | slice | Tensor | None
"""An index of elements of a batch."""


class FeatureKernel(Kernel):
    r"""k(x, x') = κ(φ(x), φ(x')), with φ a network and κ a kernel on its output.

    Args:
        feature_map: φ, any module that takes ``(n, d)`` and returns ``(n, p)``. Its weights are hyperparameters of the
            kernel and are learned with it. For images, pass flattened rows and begin with ``torch.nn.Unflatten``.
        base_kernel: κ, any GPyTorch kernel; ``None`` for zᵀz', which adds no parameter.
        batch_shape: independent kernels in one, which share φ.
        active_dims: columns used, before φ.

    The map is evaluated once for each set of points, so that dropout drops the same units in every entry of a Gram
    matrix. ``embedding.train()`` and ``embedding.eval()`` set its mode: learn in the first, predict in the second.

    Raises:
        TypeError: if ``feature_map`` is not a module, or ``base_kernel`` not a kernel.

    Example:
        >>> import kernel_embed as ke
        >>> network = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
        >>> kernel = FeatureKernel(network)
        >>> x = torch.randn(5, 2)
        >>> bool(torch.allclose(kernel(x).to_dense(), network(x) @ network(x).T, atol=1e-6))
        True
    """

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
            raise TypeError(
                f"Expected feature_map to be a torch.nn.Module, got {type(feature_map).__name__}. "
                "Wrap a function in a module whose forward calls it."
            )
        if base_kernel is not None and not isinstance(base_kernel, Kernel):
            raise TypeError(
                f"Expected base_kernel to be a gpytorch.kernels.Kernel, got {type(base_kernel).__name__}. "
                "Leave it out for a linear kernel."
            )
        self.feature_map = feature_map
        self.base_kernel = base_kernel
        self.num_features: int | None = None
        """p at the last evaluation of the map."""

    def features(self, x: Tensor) -> Tensor:
        """φ(x) for ``x`` of shape ``(*batch, n, d)`` with its active dimensions already selected: ``(*batch, n, p)``.

        Raises:
            TypeError: if the weights of the feature map have another dtype than ``x``.
            ValueError: if the feature map does not take the columns of ``x``, or does not return one row of features
                for each row.
        """
        rows = x.reshape(-1, x.shape[-1])
        try:
            z = self.feature_map(rows)
        except RuntimeError as error:
            other = next((p.dtype for p in self.feature_map.parameters() if p.dtype != x.dtype), None)
            if "shapes cannot be multiplied" in str(error):
                raise ValueError(f"The feature map does not take x with {x.shape[-1]} columns ({error}).") from error
            if "dtype" not in str(error) or other is None:
                raise
            raise TypeError(
                f"Expected the weights of the feature map in the dtype of x, {x.dtype}, got {other}. "
                "Convert the embedding with embedding.to(x.dtype), or let kernel_embed.fit do so."
            ) from error
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
        if x2 is None or x1 is x2 or (x1.shape == x2.shape and torch.equal(x1, x2)):
            return z1, None
        z2 = self.features(x2)
        check_width(z2, z1.shape[-1])
        return z1, z2

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: object
    ) -> Tensor | LinearOperator:
        """κ(φ(x1), φ(x2)), or its diagonal."""
        if last_dim_is_batch:
            raise NotImplementedError("A feature map takes all columns at once; last_dim_is_batch has no meaning.")
        z1, z2 = self.pair(x1, x2)
        z2 = z1 if z2 is None else z2
        if self.base_kernel is not None:
            covariance: Tensor | LinearOperator = self.base_kernel(z1, z2, diag=diag, **params)
            return covariance
        K = (z1 * z2).sum(-1) if diag else z1 @ z2.mT
        own = K.shape[:-1] if diag else K.shape[:-2]
        return K.expand(*broadcast_shapes(batch_shape_of(self), own), *K.shape[len(own) :])

    def __getitem__(self, index: Index | tuple[Index, ...]) -> FeatureKernel:
        """The kernel of some elements of the batch, with the same feature map."""
        base = None if self.base_kernel is None else self.base_kernel[index]
        own = torch.empty(self._batch_shape)[index].shape if len(self._batch_shape) else self._batch_shape
        part = FeatureKernel(self.feature_map, base, batch_shape=own, active_dims=self.active_dims)
        part.num_features, part.training = self.num_features, self.training
        return part

    @property
    def is_stationary(self) -> bool:
        """Never: φ(x) moves with x."""
        return False


def _gram(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    """κ(φ(x1), φ(x2)), with φ evaluated once for each."""
    z1, z2 = kernel.pair(x1, x2)
    if kernel.base_kernel is not None:
        for z in (z1, z2):
            if z is not None:
                require_finite(z)
        return gram(kernel.base_kernel, z1, z2)
    K: Tensor = z1 @ (z1 if z2 is None else z2).mT
    return K.expand(*broadcast_shapes(batch_shape_of(kernel), K.shape[:-2]), *K.shape[-2:])


def _is_complete(kernel: Kernel) -> bool:
    return kernel.base_kernel is None or is_initialized(kernel.base_kernel)


def _complete(kernel: Kernel, x: Tensor) -> None:
    """Complete κ on φ(x), with φ in evaluation mode, so that batch normalization learns nothing from it."""
    with evaluation_mode(kernel.feature_map):
        z = kernel.features(x)
    initialize_from_data(kernel.base_kernel, z)


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


GRAMS.register(FeatureKernel, _gram)
INITIALIZATIONS.register(FeatureKernel, Initialization(_is_complete, _complete))


def check_width(z: Tensor, expected: int) -> None:
    """Raise unless there are ``expected`` features."""
    if z.shape[-1] != expected:
        raise ValueError(
            f"The feature map returned {z.shape[-1]} features, but {expected} for the training data. "
            "A feature map must return the same number of features for every set of points."
        )
