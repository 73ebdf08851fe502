r"""Families of kernels and their Gram matrices.

A kernel is a GPyTorch kernel or any callable ``(x, z) -> matrix``, not necessarily positive definite or symmetric:
the vote only combines the functions :math:`K_k(\cdot, x_j)`. Polynomial kernels :math:`(x^\top z + c)^q` share one
matrix product and use repeated squaring, three times as fast as one product and one ``pow`` per degree.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel, PolynomialKernel, RBFKernel
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..kernels import gram
from ..runtime import cpu_by_default
from ..validation import check_array, check_count, check_memory, check_number

T = TypeVar("T")

Array: TypeAlias = NDArray[np.float64]
Points: TypeAlias = NDArray[Any]
"""One point per row or entry: numbers, or for plain callables strings and any objects, which no dtype describes."""

MEMORY_REMEDY = (
    "Vote with fewer kernels or on a part of the rows, or pass the functions as a stream to "
    "CoordinateDescent.solve_stream, which stores only those that vote."
)

KernelLike: TypeAlias = Kernel | Callable[[Points, Points], ArrayLike | Tensor]
"""A GPyTorch kernel or a callable (x, z) -> matrix."""


@cpu_by_default()
def polynomial_kernels(degrees: Sequence[int] = range(1, 11), offset: float = 1.0) -> list[PolynomialKernel]:
    """The kernels (xᵀz + offset)^q for q in ``degrees``: the paper's family for degrees 1 to 10.

    Args:
        degrees: the q.
        offset: the constant inside the power.

    Raises:
        TypeError: if ``offset`` is not a number, or a degree not a whole number.
        ValueError: if ``offset`` is not positive and finite, or a degree below 1.

    Example:
        >>> [kernel.power for kernel in polynomial_kernels(range(1, 4))]
        [1, 2, 3]
    """
    if not 0.0 < check_number("offset", offset) < np.inf:
        raise ValueError(f"offset must be positive and finite, not {offset}. The paper uses 1.")
    kernels = []
    for degree in check_not_empty("degrees", degrees):
        kernel = PolynomialKernel(power=check_count("a degree", degree)).double()
        kernel.offset = torch.tensor(float(offset), dtype=torch.float64, device="cpu")
        kernels.append(kernel)
    return kernels


GAMMAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""The paper's values of γ."""


@cpu_by_default()
def gaussian_kernels(gammas: Sequence[float] = GAMMAS) -> list[RBFKernel]:
    """The kernels exp(−γ‖x − z‖²), γ = 1 / (2 lengthscale²): the paper's second family.

    Args:
        gammas: the γ.

    Raises:
        TypeError: if a γ is not a number.
        ValueError: if a γ is not positive and finite.

    Example:
        >>> [round(kernel.lengthscale.item(), 4) for kernel in gaussian_kernels([0.5, 2.0])]
        [1.0, 0.5]
    """
    kernels = []
    for gamma in check_not_empty("gammas", gammas):
        if not 0.0 < check_number("γ", gamma) < np.inf:
            raise ValueError(f"Every γ must be positive and finite, not {gamma}.")
        kernel = RBFKernel().double()
        kernel.lengthscale = torch.tensor((2.0 * gamma) ** -0.5, dtype=torch.float64, device="cpu")
        kernels.append(kernel)
    return kernels


def check_not_empty(name: str, values: Sequence[T]) -> Sequence[T]:
    """``values``, a sequence with at least one entry."""
    if not isinstance(values, Iterable) or len(values) == 0:
        raise TypeError(f"{name} must be a list with at least one value, not {values!r}.")
    return values


class KernelFamily:
    """GPyTorch kernels, copied and made float64, or callables ``(x, z) -> matrix``, evaluated together and checked."""

    def __init__(self, kernels: KernelLike | Sequence[KernelLike]) -> None:
        sequence = [kernels] if callable(kernels) else kernels
        if not isinstance(sequence, Sequence) or isinstance(sequence, str):
            raise TypeError(f"kernels must be a kernel or a list of kernels, or None for the default, not {kernels!r}.")
        if not sequence:
            raise ValueError("kernels is an empty list. Give at least one, or None for the default.")
        for k, kernel in enumerate(sequence):
            name = type(kernel).__name__
            if not callable(kernel):
                raise TypeError(f"Kernel {k} must be a GPyTorch kernel or a callable of x and z, not a {name}.")
            if isinstance(kernel, Kernel) and kernel.batch_shape:
                shape = tuple(kernel.batch_shape)
                raise ValueError(
                    f"Kernel {k} ({name}) has batch_shape {shape}. Give each kernel as an entry of the list."
                )
        self.kernels = [copy.deepcopy(k).double() if isinstance(k, Kernel) else k for k in sequence]

    @classmethod
    def of(cls, kernels: Kernels) -> KernelFamily:
        """The family of these kernels: for ``None`` the polynomials of degree 1 to 10; a family unchanged."""
        if isinstance(kernels, KernelFamily):
            return kernels
        return cls(polynomial_kernels() if kernels is None else kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def names(self) -> list[str]:
        """One short name per kernel, such as ``"polynomial 3"``."""
        return [_name(kernel) for kernel in self.kernels]

    @property
    def takes_any_points(self) -> bool:
        """Whether all kernels are plain callables, so that points may be strings or other objects."""
        return not any(isinstance(kernel, Kernel) for kernel in self.kernels)

    def points(self, x: ArrayLike) -> Points:
        """``x`` checked: a matrix of finite numbers, or any sequence if all kernels are plain callables."""
        if self.takes_any_points:
            points = np.asarray(x)
            if points.ndim == 0:
                raise TypeError(f"x must be a sequence with one entry per point, not {x!r}.")
            return points
        points = check_array(x, "x")
        if points.ndim != 2 or 0 in points.shape:
            raise ValueError(f"x must have the shape (n, d), one point per row, not {points.shape}.")
        if not np.isfinite(points).all():
            raise ValueError("x has NaN or infinite values. Remove those rows or impute them.")
        return points

    def grams(self, x: Points, z: Points) -> list[Array]:
        """The matrices K_k(x_i, z_j), one per kernel, as float64 arrays."""
        check_memory(len(x), None, len(self), MEMORY_REMEDY, len(z), matrices=1)
        return list(self.matrices(x, z))

    def matrices(self, x: Points, z: Points, columns: Sequence[NDArray[np.int64]] | None = None) -> Iterator[Array]:
        """The matrices one after the other, checked; that of kernel k only for the points ``columns[k]`` of z."""
        products: Array | None = None  # xᵀz, for all polynomial kernels
        tensors: tuple[Tensor, Tensor] | None = None  # for all others of GPyTorch; copies, arrays may be read-only
        for k, kernel in enumerate(self.kernels):
            at = slice(None) if columns is None else columns[k]
            if columns is not None and not len(columns[k]):  # not evaluated
                yield np.zeros((len(x), 0))
                continue
            if not isinstance(kernel, Kernel):
                try:
                    K = _as_matrix(kernel(x, z[at]))
                except TypeError as error:
                    raise TypeError(
                        f"{kernel!r} is not a function of x and z that returns a matrix: {error}."
                    ) from error
            elif degree(kernel) is not None and kernel.active_dims is None:
                if products is None:
                    products = np.asarray(x, dtype=np.float64) @ np.asarray(z, dtype=np.float64).T
                K = _power(products[:, at] + kernel.offset.item(), int(kernel.power))
            else:
                if tensors is None:
                    x64, z64 = (torch.tensor(part, dtype=torch.float64, device="cpu") for part in (x, z))
                    tensors = x64, z64
                with torch.no_grad():
                    K = _as_matrix(gram(kernel, tensors[0], None if z is x and columns is None else tensors[1][at]))
            shape = (len(x), len(z) if columns is None else len(columns[k]))
            if K.shape != shape:
                raise ValueError(
                    f"Kernel {k} ({_name(kernel)}) returned a matrix of shape {K.shape} in place of {shape}: "
                    "one row per point of x and one column per point of z."
                )
            # A finite sum implies finite entries and is cheaper to check.
            if not np.isfinite(K.sum()) and not np.isfinite(K).all():
                raise ValueError(
                    f"Kernel {k} ({_name(kernel)}) returned NaN or infinite values. Check its parameters, or scale "
                    "the features: high powers of large numbers overflow."
                )
            yield K


Kernels: TypeAlias = KernelFamily | Sequence[KernelLike] | None
"""The kernels of a vote; ``None`` for the polynomials of degree 1 to 10."""


def degree(kernel: KernelLike) -> int | None:
    """The degree of a polynomial kernel (xᵀz + c)^q, or ``None`` for any other kernel."""
    # A subclass may compute something else, so only the class itself is recognized.
    if not isinstance(kernel, PolynomialKernel) or type(kernel) is not PolynomialKernel:
        return None
    return int(kernel.power) if float(kernel.power).is_integer() and kernel.power >= 1 else None


def _name(kernel: KernelLike) -> str:
    if degree(kernel) is not None:
        return f"polynomial {degree(kernel)}"
    if isinstance(kernel, RBFKernel) and type(kernel) is RBFKernel and kernel.lengthscale.numel() == 1:
        return f"gaussian γ={0.5 / kernel.lengthscale.item() ** 2:.3g}"
    return str(getattr(kernel, "__name__", type(kernel).__name__))


def _power(base: Array, exponent: int) -> Array:
    """base^exponent by repeated squaring: a few products where ``pow`` takes a logarithm for every entry."""
    if exponent == 1:
        return base
    root = _power(base, exponent // 2)
    return root * root * base if exponent % 2 else root * root


def _as_matrix(value: ArrayLike | Tensor) -> Array:
    return np.asarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value, dtype=np.float64)
