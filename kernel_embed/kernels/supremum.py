r"""The bound of a kernel on its diagonal, :math:`\alpha(\theta)^2 = \sup_x k_\theta(x, x)` (Theorem 4).

It is known in closed form for kernels with a registered rule or profile, for classes that declare themselves
stationary, and for their scaled, summed and multiplied forms. For every other kernel the user chooses:

===========================  ===============================================================  =======================
``sup_diagonal=``            α²                                                               a bound?
===========================  ===============================================================  =======================
``None``                     the largest k(x_i, x_i) of the batch                             on these data
a number                     the number, checked on every batch                               if the user is right
``LipschitzBound``           (‖φ(0)‖ + Lip(φ) R)² for all ‖x‖ ≤ R                             yes
:class:`NominalDiagonal`     a constant, unchecked; the paper's code for its networks has 1   no
:class:`MeanDiagonal`        the mean of k(x_i, x_i), as the paper's code for MNIST           no
===========================  ===============================================================  =======================

The last two make r a penalty that is scaled like the paper's, but not the bound of Theorem 4;
:mod:`kernel_embed.kernels.lipschitz` has the third. :class:`SupDiagonal` records which one was used.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Protocol

import torch
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    Kernel,
    MaternKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    RBFKernel,
    RFFKernel,
    SpectralMixtureKernel,
)
from torch import Tensor

from ..validation import broadcast_shapes, check_features, check_number
from .classes.feature import FeatureKernel
from .gram import gram_diagonal
from .profiles import PROFILES
from .structure import Arithmetic, Node, Registry, all_leaves, batch_shape_of, check_columns, check_kernel, fold

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
        >>> import gpytorch, kernel_embed as ke
        >>> bound = ke.kernels.sup_diagonal(gpytorch.kernels.RBFKernel(), torch.rand(5, 2))
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
        >>> import kernel_embed as ke
        >>> ke.kernels.MeanDiagonal()(None, torch.tensor([3.0, 5.0]))       # one of the implementations
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

    Returns:
        α² with its source.

    Raises:
        TypeError: if ``kernel`` is not a kernel, or ``bound`` not a number.
        ValueError: if ``bound`` is not positive and finite, k(x, x) is negative somewhere, a registered supremum is
            negative or not finite, or k(x, x) exceeds ``bound`` on the data (a ``DiagonalBoundError``).

    Example:
        >>> import torch, gpytorch
        >>> x = torch.randn(5, 2)
        >>> kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        >>> kernel.outputscale = 4.0
        >>> sup_diagonal(kernel, x).source, round(sup_diagonal(kernel, x).value.item(), 4)
        ('closed form', 4.0)
        >>> sup_diagonal(gpytorch.kernels.LinearKernel(), x).source
        'maximum over the data'
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
            raise ValueError(
                f"{type(kernel).__name__} is not positive definite: k(x, x) = {lowest.item():.3g} at some x. "
                "Correct the kernel."
            )
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
            f"Expected k(x, x) ≤ {bound:g}, the given bound, got {highest:.6g} on the data. Give a bound that "
            "holds for the hyperparameters in use, or None for the largest value over the data."
        )
    return SupDiagonal(torch.full(kernel.batch_shape, bound, dtype=x.dtype, device=x.device), "given", True)


class _Supremum(Arithmetic):
    """α² from the suprema of all parts: exact if their diagonals are constant, since all are attained at the same x."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def leaf(self, node: Node) -> Tensor | None:
        """α² by the rule of the class."""
        kernel, rule = node.kernel, _rule(node.kernel)
        value = None if rule is None else rule(kernel, node.select_inputs(self.x))
        if value is not None and not _is_possible(kernel, value):
            raise ValueError(
                f"The registered supremum of {type(kernel).__name__} must be finite and not negative, but it is "
                f"{value.detach().flatten().tolist()}. Correct the rule supremum= of kernel_embed.register."
            )
        return value

    def scale(self, node: Node, part: Tensor) -> Tensor:
        """σ²α²."""
        return node.factor * part


def _is_possible(kernel: Kernel, value: Tensor) -> bool:
    """0 ≤ α² < ∞; of hyperparameters that are not finite any other, because learning turns back from those itself."""
    if bool(((value >= 0) & (value < math.inf)).all()):
        return True
    return not bool((value < 0).any()) and not all(bool(p.isfinite().all()) for p in kernel.parameters())


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
    batch = batch_shape_of(kernel)
    constant: Tensor = kernel.constant.to(x).reshape(batch)
    return constant.expand(broadcast_shapes(batch, x.shape[:-2]))


def _of_base(kernel: Kernel, x: Tensor) -> Tensor:
    """The supremum of the base kernel, whose diagonal is constant: the network need not be evaluated."""
    x = x if kernel.active_dims is None else x.index_select(-1, kernel.active_dims)
    width = kernel.num_features or kernel.features(x).shape[-1]
    value = fold(kernel.base_kernel, _Supremum(x.new_zeros(1, width)))
    assert value is not None, "only called where it is known"
    return value


def _base_is_known(kernel: Kernel) -> bool:
    return kernel.base_kernel is not None and all_leaves(kernel.base_kernel, lambda leaf: _rule(leaf) is not None)


for _kind in (PeriodicKernel, CosineKernel, PiecewisePolynomialKernel, SpectralMixtureKernel, RFFKernel):
    SUPREMA.register(_kind, _constant_diagonal)
for _kind in (RBFKernel, MaternKernel):
    SUPREMA.register(_kind, _one)
SUPREMA.register(ConstantKernel, _of_constant)
SUPREMA.register(FeatureKernel, _of_base, when=_base_is_known)


class NominalDiagonal:
    """α² is ``value``, whatever k(x, x) is: a scale, not a bound.

    Args:
        value: α².

    Raises:
        TypeError: if ``value`` is not a number.
        ValueError: if ``value`` is not positive and finite.

    Example:
        >>> NominalDiagonal(1.0)(None, torch.tensor([3.0, 4.0]))
        tensor(1.)
    """

    source = "nominal, not a bound"

    def __init__(self, value: float = 1.0) -> None:
        if not 0.0 < check_number("value", value) < math.inf:
            raise ValueError(f"Expected a positive, finite value, got {value}. Give the largest k(x, x).")
        self.value = float(value)

    def __call__(self, kernel: Kernel, diagonal: Tensor) -> Tensor:
        """``value``, for every element of the batch."""
        return diagonal.new_full(diagonal.shape[:-1], self.value)


class MeanDiagonal:
    """α² is the mean of k(x_i, x_i): a scale, not a bound.

    Example:
        >>> MeanDiagonal()(None, torch.tensor([3.0, 4.0]))
        tensor(3.5000)
    """

    source = "mean over the data, not a bound"

    def __call__(self, kernel: Kernel, diagonal: Tensor) -> Tensor:
        """(1/n) Σ k(x_i, x_i)."""
        return diagonal.mean(dim=-1)
