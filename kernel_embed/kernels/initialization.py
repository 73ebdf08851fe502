r"""Initialization of kernels from data, and lengthscales from distances.

GPyTorch's ``RFFKernel`` without ``num_dims`` draws its frequencies at its first evaluation. Here that is a separate
step, :func:`kernel_embed.kernels.initialize_from_data`, so that no evaluation changes a kernel.

Lengthscales from distances serve as starting values, as a baseline, and as the range of a scan.

The median heuristic is :math:`\ell = \operatorname{median}_{i<j} \lVert x_i - x_j \rVert`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import torch
from gpytorch.kernels import Kernel, RFFKernel, ScaleKernel
from torch import Tensor

from ..validation import check_dense, check_features
from .structure import Node, Registry, check_columns, check_kernel, nodes_of

MAX_POINTS = 2000
"""Above this many rows the median is that of an evenly spaced subset: 2·10⁶ pairs determine it to three digits."""


def median_distance(x: Tensor) -> Tensor:
    """The median of the distances between different rows of ``x`` (``(n, d)``).

    Pairs at distance zero are included. If the median is then zero, the median of the positive distances is used, or 1
    if there are none.

    Args:
        x: points of shape ``(n, d)``.

    Returns:
        A scalar.

    Raises:
        TypeError: if ``x`` is not a tensor of real numbers.
        ValueError: if ``x`` is empty or not finite.

    Example:
        >>> median_distance(torch.tensor([[0.0], [1.0], [3.0]]))
        tensor(2.)
    """
    x, exponent = _in_range(check_features(x))
    distances = torch.pdist(x[:: -(-x.shape[0] // MAX_POINTS)])
    if distances.numel() == 0:
        return x.new_ones(())
    median = distances.quantile(0.5)
    if not median > 0:
        positive = distances[distances > 0]
        if not positive.numel():
            return x.new_ones(())
        median = positive.quantile(0.5)
    return torch.ldexp(median, exponent)


def _in_range(x: Tensor) -> tuple[Tensor, Tensor]:
    """x / 2ᵉ and e, zero unless squares of ``x`` leave the range of its dtype; scaling by a power of two is exact."""
    _, exponent = torch.frexp(x.abs().amax())
    safe = 120 if x.dtype == torch.float32 else 1000  # so that 2ᵉ is finite, too
    exponent = torch.where(exponent.abs() > safe // 4, exponent.clamp(-safe, safe), 0)
    return (torch.ldexp(x, -exponent) if bool(exponent != 0) else x), exponent


def scan_span(x: Tensor) -> tuple[float, float]:
    """The lengthscales to scan: from a quarter of the median nearest-neighbor distance to twice the diameter."""
    rows = x.reshape(-1, x.shape[-1]).unique(dim=0)
    rows = rows[:: -(-rows.shape[0] // MAX_POINTS)]
    # By differences, because a matrix product loses digits of small distances; in units of the largest number, whose
    # square may overflow.
    unit = rows.abs().max().clamp_min(torch.finfo(rows.dtype).tiny)
    distances = torch.cdist(rows / unit, rows / unit, compute_mode="donot_use_mm_for_euclid_dist") * unit
    diameter = float(distances.max()) or 1.0
    distances.fill_diagonal_(float("inf"))
    nearest = float(distances.amin(dim=-1).median()) if rows.shape[0] > 1 else diameter
    return max(0.25 * nearest, 1e-6 * diameter), 2.0 * diameter


def set_lengthscales_by_median(kernel: Kernel, x: Tensor) -> Kernel:
    """Set every lengthscale inside ``kernel`` to the median distance of its own active columns; returns ``kernel``.

    Args:
        kernel: any GPyTorch kernel; its lengthscales are changed in place.
        x: points of shape ``(n, d)``.

    Returns:
        The same ``kernel``.

    Raises:
        TypeError: if ``kernel`` is not a kernel, or ``x`` not a tensor of real numbers.
        ValueError: if the kernel has no lengthscale, or takes other columns than ``x`` has; ``x`` is empty or not
            finite; or a median distance leaves the range of the kernel's dtype.

    Example:
        >>> from gpytorch.kernels import RBFKernel, ScaleKernel
        >>> kernel = ScaleKernel(RBFKernel())
        >>> x = torch.tensor([[0.0], [1.0], [3.0]])
        >>> set_lengthscales_by_median(kernel, x).base_kernel.lengthscale.item()
        2.0
    """
    check_kernel(kernel)
    x = check_features(x)
    check_columns(kernel, x.shape[-1])
    lengthscales = list(_lengthscales(kernel, x))
    if not lengthscales:
        raise ValueError(
            f"Expected a kernel with a lengthscale, got {type(kernel).__name__} without one. "
            "The median heuristic can set nothing else; learn the kernel with kernel_embed.fit instead."
        )
    for part, columns in lengthscales:
        median = median_distance(columns).to(part.raw_lengthscale)
        if not 0 < median < torch.inf:
            raise ValueError(
                f"The median distance leaves the range of {median.dtype}: {median.item():g}. Standardize x, or use "
                "float64 for x and the kernel."
            )
        part.lengthscale = median.expand_as(part.raw_lengthscale)
    return kernel


def has_lengthscale(kernel: Kernel, x: Tensor) -> bool:
    """Whether ``kernel`` has a lengthscale for :func:`set_lengthscales_by_median`."""
    return any(True for _ in _lengthscales(kernel, x))


def _lengthscales(kernel: Kernel, x: Tensor) -> Iterator[tuple[Kernel, Tensor]]:
    """Every kernel with a lengthscale inside ``kernel``, with the columns of ``x`` that reach it."""
    for node in nodes_of(kernel):
        leaf = node.kernel
        if node.composite is not None:
            continue
        if isinstance(leaf, ScaleKernel):  # a subclass, which has already selected the columns of its base
            base = node.base()
            yield from _lengthscales(base.kernel, base.select_inputs(x))
            continue
        columns = node.select(x)
        if leaf.has_lengthscale:
            yield leaf, columns
        for part in _outermost_kernels(leaf):
            yield from _lengthscales(part, columns)


def _outermost_kernels(module: torch.nn.Module) -> Iterator[Kernel]:
    """The kernels inside ``module`` that are not inside another of them."""
    for child in module.children():
        if isinstance(child, Kernel):
            yield child
        else:
            yield from _outermost_kernels(child)


@dataclasses.dataclass(frozen=True)
class Initialization:
    """How kernels of a class are initialized from data.

    Args:
        is_complete: whether a kernel can be evaluated as it is.
        complete: initializes a kernel in place from the points ``(n, d)`` that reach its ``forward``.
        otherwise: other ways to initialize it, for error messages.

    Example:
        >>> from kernel_embed.kernels import Initialization
        >>> rule = Initialization(
        ...     is_complete=lambda kernel: hasattr(kernel, "center"),
        ...     complete=lambda kernel, x: setattr(kernel, "center", x.mean(0)),
        ... )
        >>> rule.otherwise
        ''
    """

    is_complete: Callable[[Kernel], bool]
    complete: Callable[[Kernel, Tensor], None]
    otherwise: str = ""


INITIALIZATIONS: Registry[Initialization] = Registry("initialization")
INITIALIZATIONS.register(
    RFFKernel,
    Initialization(
        is_complete=lambda kernel: hasattr(kernel, "randn_weights"),
        complete=lambda kernel, x: kernel._init_weights(x.shape[-1], kernel.num_samples),
        otherwise="give num_dims",
    ),
)


def initialize_from_data(kernel: Kernel, x: Tensor) -> Kernel:
    """Initialize every part of ``kernel`` that depends on data ``x`` (``(n, d)``); returns ``kernel``.

    Initialized parts stay unchanged, so that a second call has no effect.

    Args:
        kernel: any GPyTorch kernel; it is changed in place.
        x: the data.

    Returns:
        The same ``kernel``.

    Raises:
        TypeError: if ``kernel`` is not a kernel, or ``x`` not a tensor of real numbers.
        ValueError: if ``x`` is empty, not finite, or has other columns than the kernel takes.

    Example:
        >>> from gpytorch.kernels import RFFKernel, ScaleKernel
        >>> kernel = ScaleKernel(RFFKernel(num_samples=5))
        >>> initialize_from_data(kernel, torch.rand(10, 3)).base_kernel.randn_weights.shape
        torch.Size([3, 5])
    """
    check_kernel(kernel)
    if not is_initialized(kernel):
        x = check_features(x)
        check_columns(kernel, x.shape[-1])
        with torch.no_grad():
            for node in nodes_of(kernel):
                _initialize(node, node.select(x))
    return kernel


def _initialize(node: Node, x: Tensor) -> None:
    """Complete the kernel of a node, and the kernels that a leaf holds."""
    rule = INITIALIZATIONS.find(node.kernel)
    if rule is not None and not rule.is_complete(node.kernel):
        rule.complete(node.kernel, x)
    if node.composite is None:
        for child in node.kernel.children():
            if isinstance(child, Kernel):
                initialize_from_data(child, x)


def initialize_parts(module: torch.nn.Module, x: Tensor, y: Tensor | None = None) -> None:
    """:func:`initialize_from_data` for the ``kernel`` of an embedding at ``x``, and its ``target_kernel`` at ``y``."""
    kernel, target_kernel = getattr(module, "kernel", None), getattr(module, "target_kernel", None)
    if isinstance(kernel, Kernel):
        initialize_from_data(kernel, x)
    if isinstance(target_kernel, Kernel) and isinstance(y, Tensor) and y.dim() > 0 and y.numel() > 0:
        check_dense(y, "y")
        initialize_from_data(target_kernel, y.to(x).reshape(y.shape[0], -1))


def is_initialized(kernel: Kernel) -> bool:
    """Whether every part of ``kernel`` can be evaluated as it is."""
    return next(_incomplete(kernel), None) is None


def check_initialized(kernel: Kernel) -> None:
    """Raise if a part of ``kernel`` is not initialized from data."""
    for part, rule in reversed(list(_incomplete(kernel))):  # the innermost first, which causes the error
        other = f", or {rule.otherwise}" if rule.otherwise else ""
        raise ValueError(
            f"{type(part).__name__} must be initialized from data before its first use. Call "
            f"kernel_embed.kernels.initialize_from_data(kernel, x) first{other}; fit does this itself for tensors."
        )


def _incomplete(kernel: Kernel) -> Iterator[tuple[Kernel, Initialization]]:
    for module in kernel.modules():
        rule = INITIALIZATIONS.find(module)
        if rule is not None and not rule.is_complete(module):
            yield module, rule
