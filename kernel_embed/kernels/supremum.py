r"""The bound of a kernel on its diagonal, :math:`\alpha(\theta)^2 = \sup_x k_\theta(x, x)` (Theorem 4).

It is known in closed form for kernels with a registered rule or profile, for classes that declare themselves
stationary, and for their scaled, summed and multiplied forms. For every other kernel it is the largest k(x_i, x_i) of
the batch, a number given by the user, which is checked on every batch, or a function of
:mod:`kernel_embed.kernels.diagonal_bounds`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Protocol

import gpytorch
import torch
from gpytorch.kernels import Kernel, ProductStructureKernel
from torch import Tensor

from ..validation import broadcast_shapes, check_features, check_number
from .classes import FeatureKernel
from .gram import check_points, cross_evaluation, dense, finite_values
from .parameters import check_initialized
from .radial import PROFILES
from .structure import Algebra, Node, Registry, add, batch_shape_of, check_columns, check_kernel, fold, leaves, multiply

SupremumRule = Callable[[Kernel, Tensor], Tensor]
"""From a kernel and points x to call it with, to sup k(x, x) over all x, of the kernel's batch shape."""

SUPREMA: Registry[SupremumRule] = Registry("supremum")


class DiagonalBoundError(ValueError):
    """A given bound of k(x, x) does not hold."""


@dataclasses.dataclass(frozen=True)
class SupDiagonal:
    """α² and where it comes from.

    Attributes:
        value: α², of the kernel's batch shape.
        source: ``"closed form"``, ``"given"``, ``"maximum over the data"``, or the ``source`` of a function.
        is_bound: whether it bounds k(x, x) for every x, and not only at the data, or nowhere.

    Example:
        >>> bound = sup_diagonal(gpytorch.kernels.RBFKernel(), torch.rand(5, 2))
        >>> bound.alpha.item(), bound.source
        (1.0, 'closed form')
    """

    value: Tensor
    source: str
    is_bound: bool = False

    @property
    def alpha(self) -> Tensor:
        """α, the bound of the feature map's norm."""
        return self.value.sqrt()


class DiagonalBound(Protocol):
    """α² as a function of the kernel and of its values k(x_i, x_i) at the data; ``source`` describes it.

    A function whose value holds for every x has a further attribute, ``is_bound = True``; certificates use no others.

    Example:
        >>> from kernel_embed.kernels import MeanDiagonal
        >>> MeanDiagonal()(None, torch.tensor([3.0, 5.0]))
        tensor(4.)
    """

    source: str

    def __call__(self, kernel: Kernel, diagonal: Tensor) -> Tensor:
        """α², of the batch shape of ``diagonal`` ``(*batch, n)``."""
        ...  # pragma: no cover


def sup_diagonal(
    kernel: Kernel, x: Tensor, bound: float | DiagonalBound | None = None, diagonal: Tensor | None = None
) -> SupDiagonal:
    """α² = sup k(x, x) of ``kernel``, of shape ``kernel.batch_shape``.

    Args:
        kernel: any GPyTorch kernel.
        x: data; used where no closed form exists.
        bound: a known bound, which is checked on the data, or a function that computes one.
        diagonal: the values k(x_i, x_i), if they are already computed.

    Raises:
        TypeError: if ``kernel`` is not a kernel, or ``bound`` not a number.
        ValueError: if ``bound`` is not positive and finite, k(x, x) is negative somewhere, a registered supremum is
            negative or not finite, or k(x, x) exceeds ``bound`` on the data (a ``DiagonalBoundError``).

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> sup_diagonal(RBFKernel() + RBFKernel(), torch.randn(5, 2)).value.item()
        2.0
    """
    check_kernel(kernel)
    x = check_features(x)
    check_columns(kernel, x.shape[-1])
    if bound is None:
        closed = fold(kernel, _Supremum(x))
        if closed is not None:
            return SupDiagonal(closed, "closed form", True)
    diagonal = gram_diagonal(kernel, x) if diagonal is None else diagonal
    if bound is None:
        lowest = diagonal.detach().amin()
        if bool(lowest < 0):
            name = type(kernel).__name__
            raise ValueError(f"{name} is not positive definite: k(x, x) = {lowest.item():.3g} at some x. Change it.")
        return SupDiagonal(diagonal.amax(dim=-1), "maximum over the data")
    if callable(bound):
        source = getattr(bound, "source", "given by a function")
        return SupDiagonal(bound(kernel, diagonal), source, bool(getattr(bound, "is_bound", False)))
    bound = check_number("a bound of k(x, x)", bound)
    if not 0.0 < bound <= torch.finfo(x.dtype).max:
        raise ValueError(f"Expected a positive, finite bound of k(x, x), got {bound}. Give a larger number, or None.")
    highest = diagonal.detach().amax().item()
    if highest > bound * (1.0 + 1e-6):
        raise DiagonalBoundError(
            f"Expected k(x, x) ≤ {bound:g}, as given, got {highest:.6g} on the data. Give another bound."
        )
    return SupDiagonal(torch.full(kernel.batch_shape, bound, dtype=x.dtype, device=x.device), "given", True)


def gram_diagonal(kernel: Kernel, x: Tensor) -> Tensor:
    """The values k(x_i, x_i), of shape ``(*batch, n)``."""
    check_kernel(kernel)
    x = check_points(x, "x", kernel)
    check_columns(kernel, x.shape[-1])
    if x.shape[-2] == 0:
        return x.new_zeros(*batch_shape_of(kernel), 0)
    check_initialized(kernel)
    with cross_evaluation(kernel):
        if type(kernel) is ProductStructureKernel:
            # Its __call__ treats every result as a matrix (GPyTorch 1.15), so only forward gives the diagonal.
            x = x if kernel.active_dims is None else x.index_select(-1, kernel.active_dims)
            return finite_values(dense(kernel.forward(x, x, diag=True)), kernel)
        return finite_values(dense(kernel(batch_rows(kernel, x), diag=True)), kernel)


def batch_rows(kernel: Kernel, x: Tensor) -> Tensor:
    """``x`` with the batch dimensions of the kernel; without them GPyTorch takes n × n values for a matrix."""
    return x[(None,) * len(kernel.batch_shape)] if x.dim() == 2 else x


class _Supremum(Algebra[Tensor]):
    """α² from the suprema of all parts: exact if their diagonals are constant, since all are attained at the same x."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def leaf(self, node: Node) -> Tensor | None:
        """α² by the registered rule or profile of the kernel; raises if it is negative or not finite."""
        kernel, rule = node.kernel, _rule(node.kernel)
        value = None if rule is None else rule(kernel, node.select_inputs(self.x))
        if value is None or bool(((value >= 0) & (value < math.inf)).all()):
            return value
        # Optimizers reject hyperparameters that are not finite, so these raise nothing here.
        if bool((value < 0).any()) or all(bool(p.isfinite().all()) for p in kernel.parameters()):
            name, got = type(kernel).__name__, value.detach().flatten().tolist()
            raise ValueError(
                f"The registered supremum of {name} must be finite and not negative, but it is {got}. Register another."
            )
        return value

    def scale(self, node: Node, part: Tensor) -> Tensor:
        """σ²α²."""
        return node.factor * part

    def add(self, node: Node, parts: Sequence[Tensor]) -> Tensor:
        """Σ_p α_p²."""
        return add(parts)

    def multiply(self, node: Node, parts: Sequence[Tensor]) -> Tensor:
        """∏_p α_p²."""
        return multiply(parts)


def _rule(kernel: Kernel) -> SupremumRule | None:
    rule = SUPREMA.find(kernel)
    # Only a class that defines is_stationary itself: the inherited property of GPyTorch means "has a lengthscale".
    if rule is None and (PROFILES.find(kernel) is not None or type(kernel).is_stationary is True):
        return _constant_diagonal
    return rule


def _constant_diagonal(kernel: Kernel, x: Tensor) -> Tensor:
    """k(x, x) at one point, the supremum of a kernel with the same value at every x."""
    return gram_diagonal(kernel, x[..., :1, :])[..., 0]


def _one(kernel: Kernel, x: Tensor) -> Tensor:
    """φ(0) = 1, without an evaluation, because learning needs it at every step."""
    return x.new_ones(batch_shape_of(kernel))


def _of_constant(kernel: Kernel, x: Tensor) -> Tensor:
    constant: Tensor = kernel.constant.to(x).squeeze(-1)
    return constant.expand(broadcast_shapes(constant.shape, x.shape[:-2]))


def _of_base(kernel: Kernel, x: Tensor) -> Tensor:
    """The supremum of the base kernel, whose diagonal is constant: the network need not be evaluated."""
    x = x if kernel.active_dims is None else x.index_select(-1, kernel.active_dims)
    width = kernel.num_features or kernel.features(x).shape[-1]
    value = fold(kernel.base_kernel, _Supremum(x.new_zeros(1, width)))
    assert value is not None, "only called where it is known"
    return value


def _base_is_known(kernel: Kernel) -> bool:
    return kernel.base_kernel is not None and all(_rule(leaf) is not None for leaf in leaves(kernel.base_kernel))


for _name in ("PeriodicKernel", "CosineKernel", "PiecewisePolynomialKernel", "SpectralMixtureKernel", "RFFKernel"):
    SUPREMA.register(getattr(gpytorch.kernels, _name), _constant_diagonal)
for _kind in (gpytorch.kernels.RBFKernel, gpytorch.kernels.MaternKernel):
    SUPREMA.register(_kind, _one)
SUPREMA.register(gpytorch.kernels.ConstantKernel, _of_constant)
SUPREMA.register(FeatureKernel, _of_base, when=_base_is_known)
