r"""Gram matrices of GPyTorch kernels, with closed-form gradients where they exist.

:func:`gram` returns :math:`K_{ij} = k(x_i, x'_j)` as a dense tensor, equal to ``kernel(x1, x2).to_dense()``. Radial
kernels, alone or scaled, summed and multiplied, take the closed-form gradient of :mod:`kernel_embed.kernels.radial`,
kernels with a registered rule that rule; every other kernel is evaluated by GPyTorch itself.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import torch
from gpytorch import Module
from gpytorch.kernels import ConstantKernel, InducingPointKernel, Kernel, LinearKernel, ProductStructureKernel, RQKernel
from gpytorch.settings import lazily_evaluate_kernels
from linear_operator import LinearOperator
from linear_operator.utils.errors import NanError
from torch import Tensor

from ..validation import all_finite, broadcast_shapes, check_finite, check_memory, check_tensor
from .initialization import check_initialized
from .profiles import RadialProfile, radial_of
from .radial import radial_gram, square_distances
from .structure import Arithmetic, Node, Registry, all_leaves, batch_shape_of, check_columns, check_kernel, visit

GramRule = Callable[[Kernel, Tensor, "Tensor | None"], Tensor]
"""From a kernel and the points that reach its ``forward``, x1 and x2 (``None`` for x1), to k(x1_i, x2_j)."""

GRAMS: Registry[GramRule] = Registry("Gram matrix")

FeatureRule = Callable[[Kernel, Tensor, int], "Tensor | None"]
"""From a kernel, the points that reach its ``forward`` and a limit, to Z with K = ZZᵀ; ``None`` beyond the limit."""

FEATURES: Registry[FeatureRule] = Registry("feature map")

LARGE = 2**27
"""Entries of a matrix, 1 GiB in float64, from which available memory is checked."""

LARGE_REMEDY = "Evaluate some rows at a time, or use features, as kernel_embed.approximate does."


def gram(kernel: Kernel, x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """The matrix k(x1_i, x2_j), of shape ``(*batch, n1, n2)``; ``x2=None`` means ``x1``.

    Args:
        kernel: any GPyTorch kernel.
        x1: points of shape ``(n1, d)``.
        x2: points of shape ``(n2, d)``; ``None`` for ``x1``.

    Returns:
        The matrix, differentiable in the kernel's parameters.

    Raises:
        TypeError: if ``kernel`` is not a kernel, or a point set not a tensor of real numbers.
        ValueError: if ``x1`` and ``x2`` have different columns, none, or others than the kernel takes; or values that
            are not finite.
        MemoryError: if the matrix does not fit.

    Example:
        >>> import torch, gpytorch
        >>> x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> kernel = gpytorch.kernels.RBFKernel().double()
        >>> kernel.lengthscale = 1.0
        >>> gram(kernel, x).detach()
        tensor([[1.0000, 0.6065],
                [0.6065, 1.0000]], dtype=torch.float64)
    """
    check_kernel(kernel)
    x1, x2 = _check_points(x1, "x1", kernel), None if x2 is None else _check_points(x2, "x2", kernel)
    if x2 is not None and x2.shape[-1] != x1.shape[-1]:
        raise ValueError(
            f"Expected x1 and x2 of one width, got {x1.shape[-1]} and {x2.shape[-1]} columns. "
            "Give both the same columns."
        )
    if x1.shape[-1] == 0:
        raise ValueError(f"Expected at least one column in x1, got shape {tuple(x1.shape)}. Give features.")
    check_columns(kernel, x1.shape[-1])
    rows, columns = x1.shape[-2], (x1 if x2 is None else x2).shape[-2]
    if rows * columns == 0:
        return x1.new_zeros(*broadcast_shapes(batch_shape_of(kernel), x1.shape[:-2]), rows, columns)
    if rows * columns > LARGE:
        check_memory(rows, x1, batch_shape_of(kernel).numel(), LARGE_REMEDY, columns, matrices=1)
    return evaluate_gram(kernel, x1, x2)


def evaluate_gram(kernel: Kernel, x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """:func:`gram` for arguments that are known to be valid."""
    K = visit(Node(kernel, None, kernel.active_dims), _Gram(x1, x2))
    return by_gpytorch(kernel, x1, x2) if K is None else K


def gram_diagonal(kernel: Kernel, x: Tensor) -> Tensor:
    """The values k(x_i, x_i), of shape ``(*batch, n)``."""
    check_kernel(kernel)
    x = _check_points(x, "x", kernel)
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


def _check_points(x: Tensor, name: str, kernel: Kernel) -> Tensor:
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


@contextlib.contextmanager
def cross_evaluation(kernel: Kernel) -> Iterator[None]:
    """Let an ``InducingPointKernel`` be evaluated between any two sets of points, whatever its mode.

    In training mode it rejects unequal inputs, and in evaluation mode its cached factor survives a change of its
    parameters. Inside this context it is in evaluation mode with empty caches; its state is restored afterwards. The
    context is not thread-safe.
    """
    inducing = [module for module in kernel.modules() if isinstance(module, InducingPointKernel)]
    if not inducing:
        yield
        return
    with _ONE_AT_A_TIME, _evaluation_mode(inducing):
        yield


_ONE_AT_A_TIME = threading.RLock()


@contextlib.contextmanager
def _evaluation_mode(inducing: list[InducingPointKernel]) -> Iterator[None]:
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


class _Gram(Arithmetic):
    """K where at least one part has a closed form; the others are evaluated by GPyTorch."""

    def __init__(self, x1: Tensor, x2: Tensor | None) -> None:
        self.x1, self.x2 = x1, x2

    def leaf(self, node: Node) -> Tensor | None:
        """K by the rule or the profile of the class."""
        rule = GRAMS.find(node.kernel)
        if rule is not None:
            return finite_values(rule(node.kernel, *self._points(node)), node.kernel)
        radial = radial_of(node.kernel)
        if radial is None or not isinstance(radial.profile, RadialProfile):
            return None
        z1, z2 = (None if x is None else radial.metric.scaled(x) for x in self._points(node))
        assert z1 is not None
        return radial_gram(z1, z2, radial.profile, radial.profile.rough)

    def unknown(self, node: Node) -> Tensor:
        """K as GPyTorch evaluates it."""
        x1, x2 = node.select_inputs(self.x1), None if self.x2 is None else node.select_inputs(self.x2)
        return by_gpytorch(node.kernel, x1, x2)

    def scale(self, node: Node, part: Tensor) -> Tensor:
        """σ²K."""
        return node.factor[..., None, None] * part

    def _points(self, node: Node) -> tuple[Tensor, Tensor | None]:
        return node.select(self.x1), None if self.x2 is None else node.select(self.x2)


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
        if "expected shape of the kernel" in str(error):
            raise ValueError(
                f"{type(kernel).__name__}.forward must return one value for each pair of points, but returned another "
                f"shape ({error}). Return a matrix of n rows and n' columns, or n values if diag=True."
            ) from error
        other = next((p.dtype for p in [*kernel.parameters(), *kernel.buffers()] if p.dtype != x1.dtype), None)
        if "dtype" not in str(error) or other is None:
            raise
        raise TypeError(
            f"Expected the parameters of {type(kernel).__name__} in the dtype of x, {x1.dtype}, got {other}. "
            "Convert the embedding with embedding.to(x.dtype), or let kernel_embed.fit do so."
        ) from error


def _forward(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor | LinearOperator:
    """``kernel(x1, x2)``, without the lazy wrapper where nothing depends on it."""
    if type(kernel).__call__ is not Kernel.__call__ or batch_shape_of(kernel):
        return kernel(x1) if x2 is None else kernel(x1, x2)
    if kernel.active_dims is not None:
        x1, x2 = (
            x1.index_select(-1, kernel.active_dims),
            None if x2 is None else x2.index_select(-1, kernel.active_dims),
        )
    with lazily_evaluate_kernels(False):
        matrix: Tensor | LinearOperator = Module.__call__(kernel, x1, x1 if x2 is None else x2)
    return matrix


def finite_values(K: Tensor, kernel: Kernel) -> Tensor:
    """``K``, or an error if it is not finite."""
    if not all_finite(K):
        raise NanError(
            f"Expected finite kernel values, got NaN or infinite ones from {type(kernel).__name__}. Rescale x, or look "
            "at the hyperparameters of the kernel."
        )
    return K


def dense(matrix: Tensor | LinearOperator) -> Tensor:
    """A result of GPyTorch as a dense tensor."""
    return matrix if isinstance(matrix, Tensor) else matrix.to_dense()


def _rational_quadratic(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    """By its profile: GPyTorch's Gram matrix loses the digits of near points that are far from the mean."""
    radial = radial_of(kernel)
    assert radial is not None
    z1, z2 = radial.metric.scaled(x1), None if x2 is None else radial.metric.scaled(x2)
    return radial.profile.value_and_slope(square_distances(z1, z2))[0]


def _linear(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    """Σ_j v_j x_j x'_j as in GPyTorch, but without its lazy product, which imports SymPy on first use."""
    root = kernel.variance.sqrt()
    z1 = x1 * root
    K: Tensor = z1 @ (z1 if x2 is None else x2 * root).mT
    return K


def _constant(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    """The constant c, without GPyTorch's lazy product."""
    x2 = x1 if x2 is None else x2
    batch = broadcast_shapes(x1.shape[:-2], x2.shape[:-2], kernel.constant.shape[:-1])
    K: Tensor = kernel.constant.unsqueeze(-1).expand(*batch, x1.shape[-2], x2.shape[-2])
    return K


GRAMS.register(RQKernel, _rational_quadratic)
GRAMS.register(ConstantKernel, _constant)
GRAMS.register(LinearKernel, _linear)


def has_explicit_features(kernel: Kernel) -> bool:
    """Whether ``kernel`` has :func:`~kernel_embed.kernels.explicit_features`, by its structure alone."""
    return all_leaves(kernel, lambda leaf: FEATURES.find(leaf) is not None)
