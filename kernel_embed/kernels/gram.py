r"""Gram matrices of GPyTorch kernels, with closed-form gradients where they exist.

:func:`gram` equals ``kernel(x1, x2).to_dense()``. Radial kernels, alone or scaled, summed and multiplied, take the
closed-form gradient of :mod:`kernel_embed.kernels.radial`, kernels with a registered rule that rule; every other kernel
is evaluated by GPyTorch itself.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from gpytorch import Module
from gpytorch.kernels import ConstantKernel, InducingPointKernel, Kernel, LinearKernel, RQKernel
from gpytorch.settings import lazily_evaluate_kernels
from linear_operator import LinearOperator
from linear_operator.utils.errors import NanError
from torch import Tensor

from ..linalg import require_finite
from ..validation import all_finite, broadcast_shapes, check_finite, check_memory, check_tensor
from .classes import FeatureKernel, check_dtype, check_width
from .parameters import check_initialized
from .radial import RadialProfile, radial_gram, radial_of, square_distances
from .structure import FEATURES, Algebra, Node, Registry, batch_shape_of, check_columns, check_kernel, fold
from .structure import add as sum_of
from .structure import multiply as product_of

GramRule = Callable[[Kernel, Tensor, "Tensor | None"], Tensor]
"""From a kernel and the points that reach its ``forward``, x1 and x2 (``None`` for x1), to k(x1_i, x2_j)."""

GRAMS: Registry[GramRule] = Registry("Gram matrix")

Function = Callable[[Tensor], Tensor]

LARGE = 2**27
"""Entries of a matrix, 1 GiB in float64, from which available memory is checked."""


def gram(kernel: Kernel, x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """The matrix k(x1_i, x2_j), of shape ``(*batch, n1, n2)``; ``x2=None`` means ``x1``.

    Args:
        kernel: any GPyTorch kernel.
        x1: points of shape ``(n1, d)``.
        x2: points of shape ``(n2, d)``; ``None`` for ``x1``.

    Raises:
        TypeError: if ``kernel`` is not a kernel, or a point set not a tensor of real numbers.
        ValueError: if ``x1`` and ``x2`` have different columns, none, or others than the kernel takes; or values that
            are not finite.
        MemoryError: if the matrix does not fit.

    Example:
        >>> from gpytorch.kernels import LinearKernel
        >>> gram(LinearKernel(), torch.tensor([[0.0], [1.0]])).detach()
        tensor([[0.0000, 0.0000],
                [0.0000, 0.6931]])
    """
    check_kernel(kernel)
    x1, x2 = check_points(x1, "x1", kernel), None if x2 is None else check_points(x2, "x2", kernel)
    if x2 is not None and x2.shape[-1] != x1.shape[-1]:
        raise ValueError(f"Expected x1 and x2 of one width, got {x1.shape[-1]} and {x2.shape[-1]} columns.")
    if x1.shape[-1] == 0:
        raise ValueError(f"Expected at least one column in x1, got shape {tuple(x1.shape)}. Give features.")
    check_columns(kernel, x1.shape[-1])
    rows, columns = x1.shape[-2], (x1 if x2 is None else x2).shape[-2]
    if rows * columns == 0:
        return x1.new_zeros(*broadcast_shapes(batch_shape_of(kernel), x1.shape[:-2]), rows, columns)
    if rows * columns > LARGE:
        remedy = "Evaluate some rows at a time, or use features, as kernel_embed.approximate does."
        check_memory(rows, x1, batch_shape_of(kernel).numel(), remedy, columns, matrices=1)
    return evaluate_gram(kernel, x1, x2)


def check_points(x: Tensor, name: str, kernel: Kernel) -> Tensor:
    """``x`` as rows of finite points; whole numbers in the dtype of the kernel's parameters."""
    check_tensor(x, name)
    check_finite(x, name)
    if not x.is_floating_point():
        x = x.to(next((p.dtype for p in kernel.parameters()), torch.get_default_dtype()))
    if x.is_inference():
        x = x.clone()
    if x.dim() == 0:
        raise ValueError(f"Expected {name} of shape (n, d), got a single number. Give it as a 1 × 1 tensor.")
    return x.unsqueeze(-1) if x.dim() == 1 else x


def evaluate_gram(kernel: Kernel, x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """:func:`gram` for arguments that are known to be valid."""
    function = fold(kernel, _Gram(x2))
    return by_gpytorch(kernel, x1, x2) if function is None else function(x1)


def resolved_gram(kernel: Kernel, points: Tensor) -> Function:
    """x ↦ k(x, points) for a frozen kernel, with everything that depends on ``points`` alone computed once."""
    return fold(kernel, _FrozenGram(points)) or (lambda x: by_gpytorch(kernel, x, points))


class _Gram(Algebra[Function]):
    """x ↦ k(x, points), ``None`` for x itself, where at least one part has a closed form."""

    def __init__(self, points: Tensor | None) -> None:
        self.points = points

    def leaf(self, node: Node) -> Function | None:
        """The closed form of the kernel as a function of the original input, if there is one."""
        function = self.closed_form(node.kernel, None if self.points is None else node.select(self.points))
        return None if function is None else node.on_columns(function)

    def closed_form(self, kernel: Kernel, points: Tensor | None) -> Function | None:
        """x ↦ k(x, points) for a kernel that is not composed."""
        rule = GRAMS.find(kernel)
        if rule is not None:
            return lambda x: finite_values(rule(kernel, x, points), kernel)
        radial = radial_of(kernel)
        if radial is None or not isinstance(profile := radial.profile, RadialProfile):
            return None
        scaled = None if points is None else radial.scaled(points)
        return lambda x: radial_gram(radial.scaled(x), scaled, profile)

    def unknown(self, node: Node) -> Function:
        """x ↦ k(x, points) by GPyTorch, for a part without a closed form."""
        points = None if self.points is None else node.select_inputs(self.points)
        return lambda x: by_gpytorch(node.kernel, node.select_inputs(x), points)

    def scale(self, node: Node, part: Function) -> Function:
        """x ↦ σ² k(x, points)."""
        factor = node.factor[..., None, None]
        return lambda x: factor * part(x)

    def add(self, node: Node, parts: Sequence[Function]) -> Function:
        """x ↦ Σ_p k_p(x, points)."""
        return lambda x: sum_of([part(x) for part in parts])

    def multiply(self, node: Node, parts: Sequence[Function]) -> Function:
        """x ↦ ∏_p k_p(x, points)."""
        return lambda x: product_of([part(x) for part in parts])


class _FrozenGram(_Gram):
    def closed_form(self, kernel: Kernel, points: Tensor | None) -> Function | None:
        """A feature map is evaluated once at the points, and its base kernel resolved there."""
        if points is None or type(kernel) is not FeatureKernel:
            return super().closed_form(kernel, points)
        z, base = kernel.features(points), kernel.base_kernel
        inner = resolved_gram(base, z) if base is not None else (lambda features: features @ z.mT)

        def mapped(x: Tensor) -> Tensor:
            features = kernel.feature_map(x)
            if features.shape[-1] != z.shape[-1]:
                check_width(features, z.shape[-1])
            return inner(features)

        return mapped


def _of_features(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    """κ(φ(x1), φ(x2)), with φ evaluated once for each."""
    z1, z2 = kernel.pair(x1, x2)
    if kernel.base_kernel is None:
        K: Tensor = kernel.expanded(z1 @ (z1 if z2 is None else z2).mT)
        return K
    for z in (z1, z2):
        if z is not None:
            require_finite(z)
    return gram(kernel.base_kernel, z1, z2)


def _rational_quadratic(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    """By its profile: GPyTorch's Gram matrix loses the digits of near points that are far from the mean."""
    radial = radial_of(kernel)
    assert radial is not None
    squares = square_distances(radial.scaled(x1), None if x2 is None else radial.scaled(x2))
    return radial.profile.value_and_slope(squares)[0]


def _of_rule(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    """ZZᵀ of a class with explicit features, without GPyTorch's lazy product, which imports SymPy on first use."""
    rule: Any = FEATURES.find(kernel)
    Z = rule(kernel, x1, 1)
    K: Tensor = Z @ (Z if x2 is None else rule(kernel, x2, 1)).mT
    return K


GRAMS.register(FeatureKernel, _of_features)
GRAMS.register(RQKernel, _rational_quadratic)
GRAMS.register(ConstantKernel, _of_rule)
GRAMS.register(LinearKernel, _of_rule)


def by_gpytorch(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    """K as the kernel itself evaluates it, with helpful error messages."""
    check_initialized(kernel)
    try:
        with cross_evaluation(kernel):
            K = dense(_forward(kernel, x1, x2))
        expected = (x1.shape[-2], (x1 if x2 is None else x2).shape[-2])
        if K.shape[-2:] != expected:
            raise RuntimeError(f"The expected shape of the kernel was {expected}, got {tuple(K.shape[-2:])}")
        return finite_values(K, kernel)
    except RuntimeError as error:
        name = type(kernel).__name__
        if "expected shape of the kernel" in str(error):
            raise ValueError(
                f"{name}.forward must return one value for each pair of points, but returned another shape ({error}). "
                "Return a matrix of n rows and n' columns, or n values if diag=True."
            ) from error
        if "dtype" in str(error):
            check_dtype([*kernel.parameters(), *kernel.buffers()], x1, f"parameters of {name}")
        raise


def _forward(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor | LinearOperator:
    """``kernel(x1, x2)``, without the lazy wrapper where nothing depends on it."""
    if type(kernel).__call__ is not Kernel.__call__ or batch_shape_of(kernel):
        return kernel(x1) if x2 is None else kernel(x1, x2)
    if kernel.active_dims is not None:
        x1 = x1.index_select(-1, kernel.active_dims)
        x2 = None if x2 is None else x2.index_select(-1, kernel.active_dims)
    with lazily_evaluate_kernels(False):
        matrix: Tensor | LinearOperator = Module.__call__(kernel, x1, x1 if x2 is None else x2)
    return matrix


def dense(matrix: Tensor | LinearOperator) -> Tensor:
    """A result of GPyTorch as a dense tensor."""
    return matrix if isinstance(matrix, Tensor) else matrix.to_dense()


def finite_values(K: Tensor, kernel: Kernel) -> Tensor:
    """``K``, or an error if it is not finite."""
    if not all_finite(K):
        raise NanError(
            f"Expected finite kernel values, got NaN or infinite ones from {type(kernel).__name__}. Rescale x."
        )
    return K


_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def cross_evaluation(kernel: Kernel) -> Iterator[None]:
    """Let an ``InducingPointKernel`` be evaluated between any two sets of points, whatever its mode.

    In training mode it rejects unequal inputs, and in evaluation mode its cached factor survives a change of its
    parameters. Here it is in evaluation mode with empty caches; its state is restored afterwards.
    """
    inducing = [module for module in kernel.modules() if isinstance(module, InducingPointKernel)]
    if not inducing:
        yield
        return
    with _ONE_AT_A_TIME:
        modes = [module.training for module in inducing]
        try:
            for module in inducing:
                module.training = False
                module._clear_cache()
            yield
        finally:
            for module, mode in zip(inducing, modes, strict=True):
                module._clear_cache()
                module.training = mode
