r"""Many kernels evaluated on the same points: the Grams a vote is built of.

A kernel is a GPyTorch kernel or any callable ``(x, z) -> matrix``, not necessarily positive definite nor symmetric:
the vote is a combination of the functions :math:`K_k(\cdot, x_j)`, and nothing else is asked of them.

Kernels of one family share their work. Polynomial kernels :math:`(x^\top z + c)^q` need one matrix product for all
degrees together, and isotropic Gaussians one matrix of distances for all lengthscales.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from gpytorch.kernels import Kernel, PolynomialKernel, RBFKernel
from numpy.typing import NDArray

from kernel_embed.kernels import gram

Array: TypeAlias = NDArray[np.float64]
Points: TypeAlias = NDArray[Any]
KernelLike: TypeAlias = Any
"""A GPyTorch kernel or a callable (x, z) -> matrix."""


def polynomial_kernels(degrees: Sequence[int] = range(1, 11), offset: float = 1.0) -> list[PolynomialKernel]:
    """The kernels (xᵀz + offset)^q for q in ``degrees``: the paper's family for degrees 1 to 10.

    Example:
        >>> [kernel.power for kernel in polynomial_kernels(range(1, 4))]
        [1, 2, 3]
    """
    kernels = []
    for degree in degrees:
        kernel = PolynomialKernel(power=int(degree)).double()
        kernel.offset = offset
        kernels.append(kernel)
    return kernels


GAMMAS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""The paper's values of γ."""


def gaussian_kernels(gammas: Sequence[float] = GAMMAS) -> list[RBFKernel]:
    """The kernels exp(−γ‖x − z‖²), γ = 1 / (2 lengthscale²): the paper's second family.

    Example:
        >>> [round(kernel.lengthscale.item(), 4) for kernel in gaussian_kernels([0.5, 2.0])]
        [1.0, 0.5]
    """
    kernels = []
    for gamma in gammas:
        if not (np.isfinite(gamma) and gamma > 0):
            raise ValueError(f"Expected γ > 0, got {gamma}.")
        kernel = RBFKernel().double()
        kernel.lengthscale = (2.0 * gamma) ** -0.5
        kernels.append(kernel)
    return kernels


class KernelFamily:
    """A list of kernels, evaluated together and checked.

    Args:
        kernels: GPyTorch kernels or callables ``(x, z) -> matrix``. GPyTorch kernels are copied and made float64.

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

    def __init__(self, kernels: Sequence[KernelLike]) -> None:
        if isinstance(kernels, Kernel) or callable(kernels):
            kernels = [kernels]
        self.kernels: list[KernelLike] = []
        for k, kernel in enumerate(kernels):
            if isinstance(kernel, Kernel):
                if kernel.batch_shape:
                    raise ValueError(
                        f"Expected kernels without a batch dimension, got batch_shape {tuple(kernel.batch_shape)} for "
                        f"kernel {k} ({type(kernel).__name__}). Give each kernel as one item of the list."
                    )
                self.kernels.append(copy.deepcopy(kernel).double())
            elif callable(kernel):
                self.kernels.append(kernel)
            else:
                raise TypeError(
                    f"Expected a GPyTorch kernel or a callable (x, z) -> matrix, got {type(kernel).__name__} for "
                    f"kernel {k}."
                )
        if not self.kernels:
            raise ValueError("Expected at least one kernel, got an empty list. Leave kernels=None for the default.")

    def __len__(self) -> int:
        return len(self.kernels)

    def names(self) -> list[str]:
        """One short name per kernel, for reports."""
        return [kernel_name(kernel) for kernel in self.kernels]

    @property
    def takes_any_points(self) -> bool:
        """Whether all kernels are plain callables, so that points may be strings or other objects."""
        return not any(isinstance(kernel, Kernel) for kernel in self.kernels)

    def grams(self, x: Points, z: Points) -> list[Array]:
        """The matrices K_k(x_i, z_j), one per kernel, as float64 arrays."""
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


class SharedWork:
    """What the kernels of one family have in common on points (x, z), computed when first asked for."""

    def __init__(self, x: Points, z: Points) -> None:
        self.x, self.z = x, z
        self._products: Array | None = None
        self._squares: Array | None = None

    @property
    def products(self) -> Array:
        """x_iᵀ z_j."""
        if self._products is None:
            self._products = self.x @ self.z.T
        return self._products

    @property
    def squares(self) -> Array:
        """‖x_i − z_j‖², centred first because rounding grows with the distance from the origin."""
        if self._squares is None:
            centre = self.z.mean(axis=0)
            x, z = self.x - centre, self.z - centre
            squares = (x**2).sum(1)[:, None] + (z**2).sum(1)[None, :] - 2.0 * (x @ z.T)
            self._squares = np.maximum(squares, 0.0, out=squares)
        return self._squares

    def evaluate(self, kernel: KernelLike, used: NDArray[np.int64] | None = None) -> Array:
        """The matrix of ``kernel``, on the columns ``used`` only where they are given."""
        if isinstance(kernel, Kernel) and kernel.active_dims is None:
            if degree(kernel) is not None:
                products = self.products if used is None else self.products[:, used]
                return _power(products + kernel.offset.item(), int(kernel.power))
            if type(kernel) is RBFKernel and kernel.lengthscale.numel() == 1:
                squares = self.squares if used is None else self.squares[:, used]
                return np.asarray(np.exp(squares * (-0.5 / kernel.lengthscale.item() ** 2)))
        z = self.z if used is None else self.z[used]
        if not isinstance(kernel, Kernel):
            return _as_matrix(kernel(self.x, z))
        with torch.no_grad():
            return _as_matrix(gram(kernel, torch.from_numpy(self.x), torch.from_numpy(z)))


def degree(kernel: KernelLike) -> int | None:
    """The degree of a polynomial kernel (xᵀz + c)^q, or ``None`` for any other kernel."""
    if type(kernel) is PolynomialKernel and float(kernel.power).is_integer() and kernel.power >= 1:
        return int(kernel.power)
    return None


def kernel_name(kernel: KernelLike) -> str:
    """A short name such as ``"polynomial 3"``."""
    if degree(kernel) is not None:
        return f"polynomial {degree(kernel)}"
    if type(kernel) is RBFKernel and kernel.lengthscale.numel() == 1:
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


def _as_matrix(value: Any) -> Array:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    return np.asarray(value, dtype=np.float64)
