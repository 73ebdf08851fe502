r"""Kernels between samples (bags of points), for distribution regression with ordinary GPyTorch models.

A bag is a row: its points one after the other, each followed by its weight. :func:`pack_bags` writes that, with weights
:math:`1/n_i` and padding of weight zero for bags of different size. With
:math:`\hat\mu_i = \sum_a w_{ia} k(\cdot, x_{ia})`,

.. math::
    \langle \hat\mu_i, \hat\mu_j \rangle &= \sum_{a, b} w_{ia} w_{jb}\, k(x_{ia}, x_{jb}), \\
    \exp\big(-\lVert \hat\mu_i - \hat\mu_j \rVert^2 / 2\ell^2\big), &\qquad
    \lVert \hat\mu_i - \hat\mu_j \rVert^2 = \langle \hat\mu_i, \hat\mu_i \rangle
        - 2 \langle \hat\mu_i, \hat\mu_j \rangle + \langle \hat\mu_j, \hat\mu_j \rangle .
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from ..runtime import cpu_by_default
from ..validation import check_count, check_features
from .classes import equal
from .gram import gram
from .structure import batch_shape_of, check_kernel

BLOCK_ENTRIES = 2**24
"""Entries of the Gram matrix between points that are computed at a time."""


def pack_bags(bags: Sequence[Tensor], size: int | None = None) -> Tensor:
    """Bags ``(n_i, d)`` as rows of a matrix ``(len(bags), size · (d + 1))``.

    Args:
        bags: samples with the same number of columns.
        size: points in a row, the largest bag by default; give it where training and test bags must match.

    Raises:
        TypeError: if a bag is not a tensor of real numbers.
        ValueError: if there is no bag, the bags have different columns, or ``size`` is smaller than the largest.

    Example:
        >>> pack_bags([torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0]])])
        tensor([[1.0000, 0.5000, 2.0000, 0.5000],
                [3.0000, 1.0000, 3.0000, 0.0000]])
    """
    if not bags:
        raise ValueError("Expected at least one bag, got none.")
    bags = [check_features(bag, f"bag {i}") for i, bag in enumerate(bags)]
    widths = {bag.shape[-1] for bag in bags}
    if len(widths) > 1:
        raise ValueError(f"Expected bags with one number of columns, got {sorted(widths)}.")
    largest = max(bag.shape[-2] for bag in bags)
    size = largest if size is None else check_count("size", size, 0)
    if size < largest:
        raise ValueError(f"Expected a size of at least {largest}, the largest bag, got {size}.")
    rows = []
    for bag in bags:
        n = bag.shape[-2]
        # Padding repeats a point of the bag with weight zero, so that no kernel overflows there.
        points = torch.cat([bag, bag[-1:].expand(size - n, -1)])
        weights = torch.cat([bag.new_full((n, 1), 1.0 / n), bag.new_zeros(size - n, 1)])
        rows.append(torch.cat([points, weights], dim=-1).flatten())
    return torch.stack(rows)


class BasedKernel(Kernel):
    """A kernel with a ``base_kernel``; the parts of the base kernel are not listed as parts of this kernel."""

    base_kernel: Kernel

    @property
    def is_stationary(self) -> bool:
        """Not in general: bags, for example, are not points of a vector space."""
        return False

    def named_sub_kernels(self) -> Iterable[tuple[str, Kernel]]:
        """The direct children that are kernels, with their names; the parts of these are not listed."""
        return [(name, child) for name, child in self.named_children() if isinstance(child, Kernel)]

    def check_last_dim(self, params: dict[str, object]) -> None:
        """Raise if GPyTorch requests one kernel for each column, which has no meaning here."""
        if params.get("last_dim_is_batch"):
            raise RuntimeError(f"{type(self).__name__} does not accept the last_dim_is_batch argument.")


class FollowingKernel(BasedKernel):
    """A kernel without its own parameters: its batch shape is that of its base kernel."""

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of ``base_kernel``."""
        return batch_shape_of(self.base_kernel)

    @batch_shape.setter
    def batch_shape(self, value: torch.Size) -> None:
        """Nothing to set, because the base kernel holds every parameter."""


class BagKernel(FollowingKernel):
    """⟨μ̂_P, μ̂_Q⟩ between bags, the linear kernel on mean embeddings.

    Args:
        base_kernel: k, any GPyTorch kernel between points.
        num_features: d, the columns of a point.
        active_dims: columns of the packed rows.

    Raises:
        TypeError: if ``base_kernel`` is not a kernel, or ``num_features`` not a whole number.
        ValueError: if ``num_features`` is below 1.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> x = pack_bags([torch.tensor([[0.0], [9.0]]), torch.tensor([[0.0]])])
        >>> BagKernel(RBFKernel(), num_features=1)(x).to_dense()[0].tolist()
        [0.5, 0.5]
    """

    @cpu_by_default()
    def __init__(self, base_kernel: Kernel, num_features: int, active_dims: tuple[int, ...] | None = None) -> None:
        super().__init__(active_dims=active_dims)
        check_kernel(base_kernel)
        self.base_kernel, self.num_features = base_kernel, check_count("num_features", num_features)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object) -> Tensor:
        """⟨μ̂_i, μ̂_j⟩ for the packed bags ``x1`` and ``x2``."""
        self.check_last_dim(params)
        return inner_products(self.base_kernel, self.num_features, x1, x2, diag)


class MMDKernel(BasedKernel):
    """exp(−MMD²/2ℓ²) between bags, the Gaussian kernel on mean embeddings.

    Args:
        base_kernel: k, any GPyTorch kernel between points.
        num_features: d, the columns of a point.
        batch_shape: independent kernels in one; that of the base kernel by default.
        active_dims: columns of the packed rows.
        lengthscale_prior: a GPyTorch prior on ℓ, a distance between embeddings, at most √2 for a k between 0 and 1.
        lengthscale_constraint: a GPyTorch constraint on ℓ.

    Raises:
        TypeError: if ``base_kernel`` is not a kernel, or ``num_features`` not a whole number.
        ValueError: if ``num_features`` is below 1.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> x = pack_bags([torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0]])])
        >>> MMDKernel(RBFKernel(), num_features=1)(x).to_dense().diagonal().detach()
        tensor([1., 1.])
    """

    has_lengthscale = True

    def __init__(
        self,
        base_kernel: Kernel,
        num_features: int,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
        lengthscale_prior: Prior | None = None,
        lengthscale_constraint: Interval | None = None,
    ) -> None:
        check_kernel(base_kernel)
        super().__init__(
            batch_shape=base_kernel.batch_shape if batch_shape is None else batch_shape,
            active_dims=active_dims,
            lengthscale_prior=lengthscale_prior,
            lengthscale_constraint=lengthscale_constraint,
        )
        self.base_kernel, self.num_features = base_kernel, check_count("num_features", num_features)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object) -> Tensor:
        """exp(−‖μ̂_i − μ̂_j‖²/2ℓ²) for the packed bags ``x1`` and ``x2``."""
        self.check_last_dim(params)
        k, d = self.base_kernel, self.num_features
        own1 = inner_products(k, d, x1, x1, diag=True)
        same = equal(x1, x2)
        own2 = own1 if same else inner_products(k, d, x2, x2, diag=True)
        if diag:
            square = own1 + own2 - 2.0 * (own1 if same else inner_products(k, d, x1, x2, diag=True))
        else:
            square = own1.unsqueeze(-1) + own2.unsqueeze(-2) - 2.0 * inner_products(k, d, x1, x2)
        scale: Tensor = self.lengthscale.squeeze(-1) if diag else self.lengthscale
        return (square.clamp_min(0.0) * (-0.5 / scale.square())).exp()


def inner_products(kernel: Kernel, num_features: int, x1: Tensor, x2: Tensor, diag: bool = False) -> Tensor:
    """⟨μ̂_i, μ̂_j⟩ for packed bags ``x1`` and ``x2``: ``(*batch, t, s)``, or ``(*batch, t)`` for pairs with ``diag``."""
    points1, weights1 = _unpack(x1, num_features)
    points2, weights2 = _unpack(x2, num_features)
    size1, size2 = points1.shape[-2], points2.shape[-2]
    if diag:
        if kernel.batch_shape:  # one bag at a time, or its dimension would be taken for one of the batch
            K = torch.stack(
                [gram(kernel, p, q) for p, q in zip(points1.unbind(-3), points2.unbind(-3), strict=True)], -3
            )
        else:
            K = gram(kernel, points1, points2)
        return ((K * weights2.unsqueeze(-2)).sum(-1) * weights1).sum(-1)
    flat2 = points2.flatten(-3, -2)
    step = max(1, BLOCK_ENTRIES // (size1 * flat2.shape[-2]))
    parts = []
    for block, weight in zip(points1.split(step, dim=-3), weights1.split(step, dim=-2), strict=True):
        K = gram(kernel, block.flatten(-3, -2), flat2)
        K = (K.unflatten(-1, (-1, size2)) * weights2.unsqueeze(-3)).sum(-1)
        parts.append((K.unflatten(-2, (-1, size1)) * weight.unsqueeze(-1)).sum(-2))
    return torch.cat(parts, dim=-2)


def _unpack(x: Tensor, num_features: int) -> tuple[Tensor, Tensor]:
    """Points ``(*batch, t, size, d)`` and weights ``(*batch, t, size)``."""
    if x.shape[-1] % (num_features + 1):
        raise ValueError(
            f"Expected {num_features} features and a weight for each point of a bag, got rows of {x.shape[-1]}. "
            "Build them with pack_bags."
        )
    parts = x.unflatten(-1, (-1, num_features + 1))
    return parts[..., :-1], parts[..., -1]
