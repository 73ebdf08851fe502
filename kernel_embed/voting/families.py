r"""Many kernels evaluated on the same points: the Grams a vote is built of.

A kernel is a GPyTorch kernel or any callable ``(x, z) -> matrix``, not necessarily positive definite nor symmetric:
the vote is a combination of the functions :math:`K_k(\cdot, x_j)`, and nothing else is asked of them.

GPyTorch kernels go through :func:`kernel_embed.gram`, with one exception. Polynomial kernels :math:`(x^\top z + c)^q`
need one matrix product for all degrees together, and powers by repeated squaring, three times as fast as one product
and one ``pow`` for each degree (ten degrees, 2456 points of 30 features).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel, PolynomialKernel, RBFKernel
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..kernels import gram
from ..validation import check_count, check_memory, check_number, check_tensor

T = TypeVar("T")

Array: TypeAlias = NDArray[np.float64]
Points: TypeAlias = NDArray[Any]
"""One point per row or entry: numbers, or for plain callables strings and any objects, which no dtype describes."""

MEMORY_REMEDY = (
    "Vote with fewer kernels or on a part of the rows, or give the functions as a stream to "
    "CoordinateDescent.solve_stream, which holds only those that vote."
)

KernelLike: TypeAlias = Kernel | Callable[[Points, Points], ArrayLike | Tensor]
"""A GPyTorch kernel or a callable (x, z) -> matrix."""


def polynomial_kernels(degrees: Sequence[int] = range(1, 11), offset: float = 1.0) -> list[PolynomialKernel]:
    """The kernels (xᵀz + offset)^q for q in ``degrees``: the paper's family for degrees 1 to 10.

    Args:
        degrees: the q.
        offset: the constant inside the power.

    Returns:
        One kernel for each degree.

    Raises:
        TypeError: if ``offset`` is not a number, or a degree not a whole number.
        ValueError: if ``offset`` is not positive and finite, or a degree below 1.

    Example:
        >>> [kernel.power for kernel in polynomial_kernels(range(1, 4))]
        [1, 2, 3]
    """
    offset = check_number("offset", offset)
    if not 0.0 < offset < np.inf:
        raise ValueError(f"Expected a positive, finite offset, got {offset}. The paper takes 1.")
    kernels = []
    for degree in several("degrees", degrees):
        kernel = PolynomialKernel(power=check_count("a degree", degree)).double()
        kernel.offset = offset
        kernels.append(kernel)
    return kernels


GAMMAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""The paper's values of γ."""


def gaussian_kernels(gammas: Sequence[float] = GAMMAS) -> list[RBFKernel]:
    """The kernels exp(−γ‖x − z‖²), γ = 1 / (2 lengthscale²): the paper's second family.

    Args:
        gammas: the γ.

    Returns:
        One kernel for each γ.

    Raises:
        TypeError: if a γ is not a number.
        ValueError: if a γ is not positive and finite.

    Example:
        >>> [round(kernel.lengthscale.item(), 4) for kernel in gaussian_kernels([0.5, 2.0])]
        [1.0, 0.5]
    """
    kernels = []
    for gamma in several("gammas", gammas):
        if not 0.0 < check_number("γ", gamma) < np.inf:
            raise ValueError(f"Expected γ > 0 and finite, got {gamma}. Give other values.")
        kernel = RBFKernel().double()
        kernel.lengthscale = (2.0 * gamma) ** -0.5
        kernels.append(kernel)
    return kernels


def several(name: str, values: Sequence[T]) -> Sequence[T]:
    """``values``, of which there must be some."""
    if not isinstance(values, Iterable) or len(values) == 0:
        raise TypeError(f"Expected {name} as a sequence of at least one value, got {values!r}. Give a list.")
    return values


class KernelFamily:
    """A list of kernels, evaluated together and checked.

    Args:
        kernels: GPyTorch kernels or callables ``(x, z) -> matrix``. GPyTorch kernels are copied and made float64.

    Raises:
        TypeError: if ``kernels`` is neither a kernel nor a list of kernels.
        ValueError: if the list is empty.

    Example:
        >>> import numpy as np
        >>> family = KernelFamily([*polynomial_kernels([1, 2]), lambda x, z: -np.abs(x - z.T)])
        >>> x = np.array([[0.0], [2.0]])
        >>> for K in family.grams(x, x):
        ...     print(K.tolist())
        [[1.0, 1.0], [1.0, 5.0]]
        [[1.0, 1.0], [1.0, 25.0]]
        [[-0.0, -2.0], [-2.0, -0.0]]
    """

    def __init__(self, kernels: KernelLike | Sequence[KernelLike]) -> None:
        given = [kernels] if callable(kernels) else kernels
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise TypeError(
                f"Expected a kernel or a list of kernels, got {kernels!r}. Leave kernels=None for the default."
            )
        self.kernels: list[KernelLike] = [_own(k, kernel) for k, kernel in enumerate(given)]
        if not self.kernels:
            raise ValueError("Expected at least one kernel, got an empty list. Leave kernels=None for the default.")

    @classmethod
    def of(cls, kernels: Kernels) -> KernelFamily:
        """The family of these kernels: the polynomials of degree 1 to 10 for ``None``, a family itself as it is.

        Example:
            >>> KernelFamily.of(None).names()[-1]
            'polynomial 10'
        """
        if isinstance(kernels, KernelFamily):
            return kernels
        return cls(polynomial_kernels() if kernels is None else kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def names(self) -> list[str]:
        """One short name per kernel, for reports."""
        return [kernel_name(kernel) for kernel in self.kernels]

    @property
    def takes_any_points(self) -> bool:
        """Whether all kernels are plain callables, so that points may be strings or other objects."""
        return not any(isinstance(kernel, Kernel) for kernel in self.kernels)

    def points(self, x: ArrayLike) -> Points:
        """``x`` as these kernels take it: a matrix of finite numbers, or anything where all are plain callables."""
        if self.takes_any_points:
            points = np.asarray(x)
            if points.ndim == 0:
                raise TypeError(f"Expected x as a sequence of points, got {x!r}. Give one entry for each point.")
            return points
        if isinstance(x, Tensor):
            check_tensor(x, "x")
            x = x.detach().cpu().numpy()
        try:
            points = np.asarray(x, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"Expected x as a matrix of numbers, got {type(x).__name__} ({error}). Other points need kernels "
                "that are all plain callables."
            ) from error
        if points.ndim != 2 or 0 in points.shape:
            raise ValueError(
                f"Expected x of shape (n, d), one point per row, got {points.shape}. Other points need kernels that "
                "are all plain callables."
            )
        if not np.isfinite(points).all():
            raise ValueError("Expected finite values in x, got NaN or infinity. Remove those rows or impute them.")
        return points

    def grams(self, x: Points, z: Points) -> list[Array]:
        """The matrices K_k(x_i, z_j), one per kernel, as float64 arrays.

        Raises:
            MemoryError: if the Gram matrices do not fit.
        """
        check_memory(len(x), None, len(self), MEMORY_REMEDY, len(z), matrices=1)
        shared = SharedWork(x, z)
        return [self.checked(k, shared) for k in range(len(self))]

    def gram(self, k: int, x: Points, z: Points) -> Array:
        """The matrix K_k(x_i, z_j) of kernel ``k`` alone."""
        return self.checked(k, SharedWork(x, z))

    def checked(self, k: int, shared: SharedWork, used: NDArray[np.int64] | None = None) -> Array:
        """The matrix of kernel ``k`` on shared points, or on the columns ``used`` of them: right shape, finite."""
        kernel = self.kernels[k]
        matrix = shared.evaluate(kernel, used)
        shape = (len(shared.x), len(shared.z) if used is None else len(used))
        if matrix.shape != shape:
            raise ValueError(
                f"Expected a matrix of shape {shape} from kernel {k} ({kernel_name(kernel)}), got {matrix.shape}. A "
                "kernel takes (x, z) and returns one row per point of x and one column per point of z."
            )
        # A finite sum needs no second look, and most sums are finite.
        if not np.isfinite(matrix.sum()) and not np.isfinite(matrix).all():
            raise ValueError(
                f"Expected finite values from kernel {k} ({kernel_name(kernel)}), got NaN or infinity. Check its "
                "parameters, or scale the features: high powers overflow on large ones."
            )
        return matrix


Kernels: TypeAlias = KernelFamily | Sequence[KernelLike] | None
"""What a caller may give for the kernels of a vote; ``None`` for the polynomials of degree 1 to 10."""


def _own(k: int, kernel: KernelLike) -> KernelLike:
    """Kernel ``k`` of a family: a float64 copy of a GPyTorch kernel, a callable itself."""
    if isinstance(kernel, Kernel):
        if kernel.batch_shape:
            raise ValueError(
                f"Expected kernels without a batch dimension, got batch_shape {tuple(kernel.batch_shape)} for kernel "
                f"{k} ({type(kernel).__name__}). Give each kernel as one item of the list."
            )
        return copy.deepcopy(kernel).double()
    if callable(kernel):
        return kernel
    raise TypeError(
        f"Expected a GPyTorch kernel or a callable of x and z, got {type(kernel).__name__} as number {k}. Give one."
    )


class SharedWork:
    """What the kernels of one family have in common on points (x, z), computed when first asked for."""

    def __init__(self, x: Points, z: Points) -> None:
        self.x, self.z = x, z

    @functools.cached_property
    def products(self) -> Array:
        """x_iᵀ z_j."""
        products: Array = np.asarray(self.x, dtype=np.float64) @ np.asarray(self.z, dtype=np.float64).T
        return products

    @functools.cached_property
    def tensors(self) -> tuple[Tensor, Tensor]:
        """x and z as float64 tensors, one and the same where x and z are; copies, as arrays may be read-only."""
        x = torch.tensor(self.x, dtype=torch.float64)
        return x, x if self.z is self.x else torch.tensor(self.z, dtype=torch.float64)

    def evaluate(self, kernel: KernelLike, used: NDArray[np.int64] | None = None) -> Array:
        """The matrix of ``kernel``, on the columns ``used`` only where they are given."""
        if not isinstance(kernel, Kernel):
            return _as_matrix(_called(kernel, self.x, self.z if used is None else self.z[used]))
        if degree(kernel) is not None and kernel.active_dims is None:
            products = self.products if used is None else self.products[:, used]
            return _power(products + kernel.offset.item(), int(kernel.power))
        x, z = self.tensors
        columns = None if used is None and z is x else z if used is None else z[torch.from_numpy(used)]
        with torch.no_grad():
            return _as_matrix(gram(kernel, x, columns))


def _called(kernel: Callable[[Points, Points], ArrayLike | Tensor], x: Points, z: Points) -> ArrayLike | Tensor:
    try:
        return kernel(x, z)
    except TypeError as error:
        raise TypeError(f"Expected a function of x and z, got {kernel!r} ({error}). Return a matrix.") from error


def degree(kernel: KernelLike) -> int | None:
    """The degree of a polynomial kernel (xᵀz + c)^q, or ``None`` for any other kernel."""
    # A subclass may compute something else, so only the class itself is recognized.
    if not isinstance(kernel, PolynomialKernel) or type(kernel) is not PolynomialKernel:
        return None
    return int(kernel.power) if float(kernel.power).is_integer() and kernel.power >= 1 else None


def kernel_name(kernel: KernelLike) -> str:
    """A short name such as ``"polynomial 3"``."""
    if degree(kernel) is not None:
        return f"polynomial {degree(kernel)}"
    if isinstance(kernel, RBFKernel) and type(kernel) is RBFKernel and kernel.lengthscale.numel() == 1:
        return f"gaussian γ={0.5 / kernel.lengthscale.item() ** 2:.3g}"
    if isinstance(kernel, Kernel):
        return type(kernel).__name__
    return str(getattr(kernel, "__name__", type(kernel).__name__))


def _power(base: Array, exponent: int) -> Array:
    """base^exponent by squaring: a few products where ``pow`` takes a logarithm for every entry."""
    result: Array | None = None
    while True:
        if exponent & 1:
            result = base.copy() if result is None else result * base
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        base = base * base


def _as_matrix(value: ArrayLike | Tensor) -> Array:
    return np.asarray(value.detach().cpu().numpy() if isinstance(value, Tensor) else value, dtype=np.float64)


def is_numeric(X: ArrayLike | Sequence[object]) -> bool:
    """Whether X would pass as a matrix of numbers, and so goes through the usual checks.

    Example:
        >>> is_numeric([[1.0, 2.0]]), is_numeric(["word", "sword"])
        (True, False)
    """
    if hasattr(X, "dtypes") or hasattr(X, "toarray"):
        return True
    if isinstance(X, Tensor):
        check_tensor(X, "X")
        return True
    array = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object if _ragged(X) else None)
    return bool(array.dtype.kind in "fiubc")


def _ragged(X: ArrayLike | Sequence[object]) -> bool:
    try:
        np.asarray(X)
    except ValueError:
        return True
    return False
