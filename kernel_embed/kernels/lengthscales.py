r"""Lengthscales from the data: starting values, a baseline, the range of a scan, and the default kernel.

The median heuristic is :math:`\ell = \operatorname{median}_{i<j} \lVert x_i - x_j \rVert`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from torch import Tensor

from ..runtime import cpu_by_default
from ..validation import check_features, check_number
from .parameters import log_normal_prior, log_scaled
from .structure import check_columns, check_kernel, nodes_of

MAX_POINTS = 2000
"""Above this many rows the median is that of an evenly spaced subset: 2·10⁶ pairs determine it to three digits."""
RELATIVE_LENGTHSCALE = 0.15
"""Of √d: near the best isotropic lengthscale of every data set it was tried on, which range from 0.08 to 0.22."""
PRIOR_SCALE = 0.5
"""Standard deviation of log ℓ_j: between 0.5 and 1 the test likelihood hardly changed."""


@cpu_by_default()
def default_kernel(x: Tensor, lengthscale: float | None = None) -> RBFKernel:
    r"""An ARD squared exponential kernel with a prior on its lengthscales, in the units of the data.

    With :math:`s_j` the range of feature j, every :math:`\log \ell_j` starts at :math:`\log(s_j \ell)` and has a
    Gaussian prior around it, so that all features are equally relevant a priori.

    Args:
        x: inputs of shape ``(n, d)``.
        lengthscale: ℓ, for features of unit range; :math:`0.15 \sqrt d` by default.

    Raises:
        TypeError: if ``x`` is not a tensor of real numbers, or ``lengthscale`` not a number.
        ValueError: if ``x`` is empty or not finite, ``lengthscale`` is not positive and finite, or the ranges of the
            features are more than the dtype can hold.

    Example:
        >>> x = torch.tensor([[0.0, 10.0], [1.0, 30.0]], dtype=torch.float64)
        >>> default_kernel(x, lengthscale=0.5).lengthscale.detach()
        tensor([[ 0.5000, 10.0000]], dtype=torch.float64)
    """
    x = check_features(x)
    d = x.shape[-1]
    scale = RELATIVE_LENGTHSCALE * math.sqrt(d) if lengthscale is None else check_number("lengthscale", lengthscale)
    if not 0.0 < scale < math.inf:
        raise ValueError(f"Expected a positive, finite lengthscale, got {lengthscale}. Give it in units of the ranges.")
    centre = (feature_ranges(x) * scale).unsqueeze(0)
    if not bool(((centre > 0) & (centre < math.inf)).all()):
        raise ValueError(
            f"Expected features whose ranges {x.dtype} can hold, got lengthscales from {float(centre.min()):g} to "
            f"{float(centre.max()):g}. Rescale the features."
        )
    prior = log_normal_prior(centre, PRIOR_SCALE)
    kernel = RBFKernel(ard_num_dims=d, lengthscale_prior=prior, lengthscale_constraint=log_scaled()).to(x)
    kernel.lengthscale = centre
    return kernel


def feature_ranges(x: Tensor) -> Tensor:
    """s_j, the range of each feature, and 1 for constant ones."""
    x = check_features(x)
    spread = x.amax(dim=-2) - x.amin(dim=-2)
    return torch.where(spread > 0, spread, 1.0)


def median_distance(x: Tensor) -> Tensor:
    """The median distance between rows of ``x``; of the positive distances if it is zero, and 1 if there are none.

    Args:
        x: points of shape ``(n, d)``.

    Raises:
        TypeError: if ``x`` is not a tensor of real numbers.
        ValueError: if ``x`` is empty or not finite, or the median leaves the range of its dtype.

    Example:
        >>> median_distance(torch.tensor([[0.0], [1.0], [3.0]]))
        tensor(2.)
    """
    x = check_features(x)
    # In units of a power of two, which is exact, where squares of x leave the range of its dtype.
    _, exponent = torch.frexp(x.abs().amax())
    safe = 120 if x.dtype == torch.float32 else 1000  # so that the power is finite, too
    exponent = torch.where(exponent.abs() > safe // 4, exponent.clamp(-safe, safe), 0)
    if bool(exponent != 0):
        x = torch.ldexp(x, -exponent)
    distances = torch.pdist(x[:: -(-x.shape[0] // MAX_POINTS)])
    if distances.numel() == 0 or not bool((median := distances.quantile(0.5)) > 0):
        distances = distances[distances > 0]
        if not distances.numel():
            return x.new_ones(())
        median = distances.quantile(0.5)
    return _in_range(torch.ldexp(median, exponent))


def _in_range(median: Tensor) -> Tensor:
    if 0 < median < torch.inf:
        return median
    raise ValueError(f"The median distance leaves the range of {median.dtype}: {median.item():g}. Standardize x.")


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

    Raises:
        TypeError: if ``kernel`` is not a kernel, or ``x`` not a tensor of real numbers.
        ValueError: if the kernel has no lengthscale, or takes other columns than ``x`` has; ``x`` is empty or not
            finite; or a median distance leaves the range of the kernel's dtype.

    Example:
        >>> kernel = ScaleKernel(RBFKernel())
        >>> x = torch.tensor([[0.0], [1.0], [3.0]])
        >>> set_lengthscales_by_median(kernel, x).base_kernel.lengthscale.item()
        2.0
    """
    check_kernel(kernel)
    x = check_features(x)
    check_columns(kernel, x.shape[-1])
    parts = list(_lengthscales(kernel, x))
    if not parts:
        raise ValueError(f"Expected a kernel with a lengthscale, got {type(kernel).__name__}. Learn it with fit.")
    for part, columns in parts:
        median = _in_range(median_distance(columns).to(part.raw_lengthscale))
        part.lengthscale = median.expand_as(part.raw_lengthscale)
    return kernel


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
