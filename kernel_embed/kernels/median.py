r"""Lengthscales from distances alone: starting values, a baseline, the range of a scan.

The median heuristic is :math:`\ell = \operatorname{median}_{i<j} \lVert x_i - x_j \rVert`.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from ..validation import check_features
from .structure import check_columns, check_kernel, nodes_of

MAX_POINTS = 2000
"""Above this many rows the median is taken over an evenly spaced subset: 2·10⁶ pairs fix it to three digits."""


def median_distance(x: Tensor) -> Tensor:
    """The median of the distances between different rows of ``x`` (``(n, d)``).

    Pairs at distance zero count, unless they are so many that the median itself would be zero; then the median of the
    positive distances is taken, and 1 when there is none.

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
    """x / 2ᵉ and e, zero unless squares of ``x`` leave the range of its dtype: a power of two rounds nothing."""
    _, exponent = torch.frexp(x.abs().amax())
    safe = 120 if x.dtype == torch.float32 else 1000  # so that 2ᵉ is a number, too
    exponent = torch.where(exponent.abs() > safe // 4, exponent.clamp(-safe, safe), 0)
    return (torch.ldexp(x, -exponent) if bool(exponent != 0) else x), exponent


def scan_span(x: Tensor) -> tuple[float, float]:
    """The range of lengthscales to scan: from a quarter of the median nearest-neighbor distance to twice the diameter.

    Example:
        >>> scan_span(torch.tensor([[0.0], [1.0], [3.0]]))
        (0.25, 6.0)
    """
    rows = x.reshape(-1, x.shape[-1]).unique(dim=0)
    rows = rows[:: -(-rows.shape[0] // MAX_POINTS)]
    # By differences, because a matrix product loses near points beside far ones; in units of the largest number, whose
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
        ValueError: if the kernel has no lengthscale, or takes other columns than ``x`` has; or ``x`` is empty or not
            finite.

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
        part.lengthscale = median_distance(columns).to(part.raw_lengthscale).expand_as(part.raw_lengthscale)
    return kernel


def has_lengthscale(kernel: Kernel, x: Tensor) -> bool:
    """Whether :func:`set_lengthscales_by_median` has anything to set."""
    return any(True for _ in _lengthscales(kernel, x))


def _lengthscales(kernel: Kernel, x: Tensor) -> Iterator[tuple[Kernel, Tensor]]:
    """Every kernel with a lengthscale inside ``kernel``, with the columns of ``x`` that reach it."""
    for node in nodes_of(kernel):
        leaf = node.kernel
        if node.composite is not None:
            continue
        if isinstance(leaf, ScaleKernel):  # a subclass: whatever it computes, it has selected the columns of its base
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
