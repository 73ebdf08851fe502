r"""The representation of new points: kernel values k(x, x_i), or the explicit features φ(x) of the kernel.

.. math::  \mathbf f(x) = \mathbf C^\top \boldsymbol\varphi(x)

A frozen kernel is resolved once: its structure, parameters and everything computed from the training points become one
function of x. A trainable kernel is evaluated by :func:`kernel_embed.kernels.gram`.
"""

from __future__ import annotations

import abc
import dataclasses

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import check_width, explicit_features, gram, has_explicit_features
from ..kernels.gram import finite_values
from ..validation import check_dense, check_features, check_query_points
from .resolution import Function, is_fixed, resolved_features, resolved_gram

BLOCK_NUMBERS = 2**23
"""Kernel values in a block of :func:`in_blocks`: 64 MiB in float64."""

FEATURE_NUMBERS = 2**19
"""Features in a block: 4 MiB in float64, so that they are used while they are still in the cache."""


class Representation(abc.ABC):
    """A function from points ``(t, d)`` to ``(*batch, t, p)``.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from kernel_embed.embeddings import KernelValues
        >>> representation = KernelValues(RBFKernel(), torch.rand(5, 2))
        >>> representation(torch.rand(3, 2)).shape
        torch.Size([3, 5])
    """

    kernel: Kernel
    block_numbers: int
    """How many numbers to compute at once if there are many points."""

    def __call__(self, x: Tensor) -> Tensor:
        """The representation of the points ``x``."""
        return self.values(self.check(x))

    @abc.abstractmethod
    def check(self, x: Tensor) -> Tensor:
        """New points as a tensor that :meth:`values` takes."""

    @abc.abstractmethod
    def values(self, x: Tensor) -> Tensor:
        """The representation of checked points."""

    def times(self, coefficients: Tensor) -> Function | None:
        """x ↦ φ(x) C with the kernel resolved; ``None`` for trainable or random kernels."""
        return None


@dataclasses.dataclass(frozen=True, eq=False)
class KernelValues(Representation):
    """k(x, x_i) for the ``points`` x_i ``(s, d)``.

    Attributes:
        kernel: k.
        points: the x_i.
        block_numbers: how many numbers to compute at once where points are many.

    Raises:
        ValueError: when called, if ``x`` has another number of columns than ``points``, or values that are not
            finite.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from kernel_embed.embeddings import KernelValues
        >>> KernelValues(RBFKernel(), torch.rand(5, 2))(torch.rand(3, 2)).shape
        torch.Size([3, 5])
    """

    kernel: Kernel
    points: Tensor
    block_numbers: int = BLOCK_NUMBERS

    def check(self, x: Tensor) -> Tensor:
        """Points with the columns, the dtype and the device of ``points``."""
        return check_query_points(x, self.points)

    def values(self, x: Tensor) -> Tensor:
        """``(*batch, t, s)``."""
        return gram(self.kernel, x, self.points).to(self.points)

    def times(self, coefficients: Tensor) -> Function | None:
        """Σ_i k(x, x_i) C_i; where the kernel has features Z, as φ(x) (ZᵀC)."""
        if not is_fixed(self.kernel, self.points, coefficients):
            return None
        points = self.points.detach()
        Z = explicit_features(self.kernel, points) if has_explicit_features(self.kernel) else None
        if Z is not None:
            return _product(resolved_features(self.kernel), Z.mT.to(points) @ coefficients, points)
        return _product(resolved_gram(self.kernel, points), coefficients, points)


@dataclasses.dataclass(frozen=True, eq=False)
class KernelFeatures(Representation):
    """The explicit features of ``kernel``, ``num_features`` of them; ``like`` is a tensor of data, if any.

    Attributes:
        kernel: a kernel with explicit features.
        num_features: p.
        like: data whose dtype, device and columns new points must share.
        block_numbers: how many numbers to compute at once where points are many.

    Raises:
        ValueError: when called, if ``x`` has another number of columns than the data, or values that are not finite;
            or if the kernel gives another number of features.

    Example:
        >>> from gpytorch.kernels import LinearKernel
        >>> KernelFeatures(LinearKernel(), 2)(torch.randn(3, 2)).shape
        torch.Size([3, 2])
    """

    kernel: Kernel
    num_features: int
    like: Tensor | None = None
    block_numbers: int = FEATURE_NUMBERS

    def check(self, x: Tensor) -> Tensor:
        """Points like the data, or of a floating dtype if there are no data."""
        if self.like is not None:
            return check_query_points(x, self.like)
        dtype = next((parameter.dtype for parameter in self.kernel.parameters()), None)
        return check_features(x, integers_as=dtype, may_be_empty=True)

    def values(self, x: Tensor) -> Tensor:
        """``(*batch, t, p)``."""
        if x.shape[-2] == 0:
            return x.new_zeros(*self.kernel.batch_shape, 0, self.num_features)
        Z = explicit_features(self.kernel, x)
        assert Z is not None
        check_width(Z, self.num_features)
        return Z.to(x)

    def times(self, coefficients: Tensor) -> Function | None:
        """φ(x) C."""
        if not is_fixed(self.kernel, self.like, coefficients):
            return None
        return _product(resolved_features(self.kernel), coefficients, self.like)


def _product(values: Function, coefficients: Tensor, like: Tensor | None) -> Function:
    p = coefficients.shape[-2]

    def product(x: Tensor) -> Tensor:
        representation = values(x)
        if representation.shape[-1] != p:
            check_width(representation, p)
        if like is not None:
            representation = representation.to(like)
        return representation @ coefficients.to(representation.dtype)

    return product


class LinearMap:
    """x ↦ φ(x) C for checked points ``x``, a block of rows at a time where no gradient is needed.

    Args:
        representation: φ.
        coefficients: C, ``(*batch, p, m)``.

    Attributes:
        resolved: whether the kernel was resolved, so that the map may be kept.
    """

    def __init__(self, representation: Representation, coefficients: Tensor) -> None:
        self.representation, self.coefficients = representation, coefficients
        self.rows = max(1, representation.block_numbers // coefficients.shape[-2])
        with torch.inference_mode(False), torch.no_grad():  # gradients in x may be needed later
            self._product = representation.times(coefficients)
        self.resolved = self._product is not None

    def __call__(self, x: Tensor) -> Tensor:
        """``(*batch, t, m)``.

        Raises:
            NanError: if values are not finite.
        """
        if self._product is None:
            return in_blocks(self.representation.values, x, self.coefficients, self.rows * self.coefficients.shape[-2])
        if x.shape[0] == 0:
            return self.coefficients.new_zeros(*self.coefficients.shape[:-2], 0, self.coefficients.shape[-1])
        needs_gradient = x.requires_grad and torch.is_grad_enabled()
        values = self._product(x) if needs_gradient else by_rows(self._product, x, self.rows)
        if not bool(torch.isfinite(values.detach().sum())):
            finite_values(values, self.representation.kernel)
        return values


def in_blocks(representation: Function, x: Tensor, coefficients: Tensor, numbers: int | None = None) -> Tensor:
    """``representation(x) @ coefficients``, formed a block of rows at a time where no gradient is needed.

    One call can therefore predict for millions of points.

    Args:
        representation: φ, a function from ``(t, d)`` to ``(*batch, t, p)``.
        x: points, ``(t, d)``.
        coefficients: ``(*batch, p, m)``.
        numbers: how many numbers of the representation to compute at once.

    Returns:
        ``(*batch, t, m)``.

    Raises:
        TypeError: if ``x`` is sparse, nested or without values.

    Example:
        >>> from kernel_embed.embeddings import in_blocks
        >>> in_blocks(torch.sin, torch.zeros(1000, 3), torch.ones(3, 2), numbers=300).shape
        torch.Size([1000, 2])
    """
    if isinstance(x, Tensor):
        check_dense(x, "x")
    limit: int = getattr(representation, "block_numbers", BLOCK_NUMBERS) if numbers is None else numbers
    rows = max(1, limit // coefficients.shape[-2])

    def product(x: Tensor) -> Tensor:
        values = representation(x)
        return values @ coefficients.to(values.dtype)

    if torch.is_grad_enabled() or not isinstance(x, Tensor) or x.dim() == 0:
        return product(x)
    return by_rows(product, x, rows)


def by_rows(function: Function, x: Tensor, rows: int) -> Tensor:
    """``function(x)`` ``(*batch, t, m)`` for ``rows`` points at a time."""
    if x.shape[0] <= rows:
        return function(x)
    first = function(x[:rows])
    values = first.new_empty(*first.shape[:-2], x.shape[0], first.shape[-1])
    values[..., :rows, :] = first
    for start in range(rows, x.shape[0], rows):
        values[..., start : start + rows, :] = function(x[start : start + rows])
    return values
