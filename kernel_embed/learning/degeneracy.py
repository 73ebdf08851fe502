r"""Degenerate fits: default bounds that a search does not cross, and what is degenerate at its end.

Leave-one-out objectives may have their infimum at the edge of the parameter space. For a column of zeros and ones,
every lengthscale below a tenth of their distance gives the same kernel up to rounding; and a kernel that is
invertible by itself, such as the exponential one, allows any :math:`\lambda`. There a search would go on to 1e-37. With
:math:`\delta_j` the median gap between the values of column j, or of neighboring rows for a common lengthscale,

.. math::
    \ell_j \ge \delta_j / 100, \qquad \lambda \ge 100 \, \varepsilon \, \overline{k(x, x)},

where :math:`\varepsilon` is the rounding error of the dtype. A search that stays inside takes the same path as without
bounds. A start outside, and the constraints of the parameters, take precedence.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from ..kernels import gram, gram_diagonal
from ..kernels.evaluators import RadialEvaluator
from ..kernels.parameters import has_lengthscale
from ..kernels.radial import radial_of
from ..kernels.structure import batch_shape_of, nodes_of
from .parameters import ParameterVector, Vector, flatten, is_small

RIDGE = "raw_regularization"
SMALLEST_LENGTHSCALE = 1e-2  # in units of the gaps in the data
SMALLEST_RIDGE = 100.0  # in units of the rounding error of k(x, x)
UNRELATED = 1e-8  # correlation below which neighbors are treated as unrelated
MOST_POINTS = 500  # rows whose nearest neighbors are computed
NUM_ROWS = 50  # rows that are compared with all others
MIN_CORRELATION = 1e-12  # k(x, x') / √(k(x, x) k(x', x')) below which two points are treated as uncorrelated
MIN_SPREAD = 1e-8  # relative differences of kernel values below which points are not distinguished


class Lengthscale(NamedTuple):
    """A lengthscale of a radial kernel, and the gaps of the data that it is compared with, one for each entry."""

    name: str
    kernel: Kernel
    gaps: Tensor
    columns: list[int] | None  # of each entry; ``None`` for a lengthscale common to several


def _kernel_beside_ridge(module: gpytorch.Module, x: Tensor) -> Kernel | None:
    """The kernel of an embedding with λ; the evidence of a mean embedding is in the log domain, and has no edges."""
    kernel = getattr(module, "kernel", None)
    return kernel if isinstance(kernel, Kernel) and hasattr(module, RIDGE) and len(x) > 1 else None


@torch.no_grad()
def default_limits(vector: ParameterVector, x: Tensor) -> Vector:
    """The lowest value of each raw parameter, −∞ where there is none; never above the current value."""
    lowest, kernel = {}, _kernel_beside_ridge(vector.module, x)
    if kernel is not None:
        lowest = {found.name: SMALLEST_LENGTHSCALE * found.gaps for found in _lengthscales(kernel, vector, x)}
        if RIDGE in vector.named:
            lowest[RIDGE] = smallest_ridge(kernel, x)
    limits = []
    for name, raw in vector.named.items():
        constraint, limit = vector.module.constraint_for_parameter_name(name), torch.full_like(raw, -torch.inf)
        # An interval has its own bounds.
        if name in lowest and constraint is not None and not bool(torch.isfinite(constraint.upper_bound).any()):
            limit = constraint.inverse_transform(lowest[name].to(raw).expand_as(raw))
        limits.append(limit.nan_to_num(-torch.inf, torch.inf, -torch.inf))
    return np.minimum(flatten(limits), vector.get())


def smallest_ridge(kernel: Kernel, x: Tensor) -> Tensor:
    """The smallest nλ: 100 ε times the mean of k(x, x), with ε the rounding error of the dtype."""
    rows = x[:: -(-len(x) // NUM_ROWS)]
    K = _radial_gram(kernel, rows)
    K = gram(kernel, rows) if K is None else K
    return SMALLEST_RIDGE * torch.finfo(x.dtype).eps * K.diagonal(dim1=-2, dim2=-1).mean()


def _lengthscales(kernel: Kernel, vector: ParameterVector, x: Tensor) -> Iterator[Lengthscale]:
    """The lengthscales of radial kernels that are learned."""
    names = {id(raw): name for name, raw in vector.named.items()}
    for node in nodes_of(kernel):
        raw = getattr(node.kernel, "raw_lengthscale", None)
        if raw is None or node.composite is not None or id(raw) not in names or radial_of(node.kernel) is None:
            continue
        columns = list(range(x.shape[-1])) if node.columns is None else node.columns.tolist()
        points, d = node.select(x), raw.shape[-1]
        if d == len(columns):
            yield Lengthscale(names[id(raw)], node.kernel, column_gaps(points), columns)
        elif d == 1:
            yield Lengthscale(names[id(raw)], node.kernel, neighbor_gap(points).reshape(1), None)


def column_gaps(x: Tensor) -> Tensor:
    """The median difference of neighboring distinct values in each column; 0 for a constant column."""
    gaps = x.sort(dim=-2).values.diff(dim=-2)
    return torch.where(gaps > 0, gaps, torch.nan).nanmedian(dim=-2).values.nan_to_num(0.0)


def neighbor_gap(x: Tensor) -> Tensor:
    """The median distance from a row to the nearest other one; 0 if all rows are equal."""
    if x.shape[-1] == 1:
        return column_gaps(x).squeeze(-1)
    rows = x[:: -(-len(x) // MOST_POINTS)]
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    nearest = torch.where(distances > 0, distances, torch.inf).amin(dim=-1)
    gap = nearest[nearest < torch.inf]
    return gap.median() * len(rows) / len(x) if gap.numel() else x.new_zeros(())


@torch.no_grad()
def degeneracies(vector: ParameterVector, x: Tensor, column_names: Sequence[str] | None) -> tuple[str, ...]:
    """What is degenerate at the current parameters, each with the parameter and its column."""
    kernel = _kernel_beside_ridge(vector.module, x)
    if kernel is None:
        return ()
    reasons = []
    if RIDGE in vector.named and bool((vector.module.regularization <= 2.0 * smallest_ridge(kernel, x)).any()):
        reasons.append("regularization is at the rounding error of the Gram matrix, so that the fit interpolates")
    for lengthscale in () if batch_shape_of(kernel) else _lengthscales(kernel, vector, x):
        reasons += _unrelated(lengthscale, column_names)
    fault = None if reasons else _fault(kernel, x)
    return tuple(reasons if fault is None else [f"the kernel {fault}"])


def _unrelated(lengthscale: Lengthscale, column_names: Sequence[str] | None) -> Iterator[str]:
    """The columns in which neighbors are unrelated."""
    radial = radial_of(lengthscale.kernel)
    assert radial is not None
    ratios = (lengthscale.gaps / lengthscale.kernel.lengthscale).reshape(-1, len(lengthscale.gaps)).amax(dim=0)
    squares = torch.cat([ratios.square(), ratios.new_zeros(1)]).clamp_max(1e8)
    values = radial.profile.value_and_slope(squares.reshape(-1, 1))[0].flatten()
    name = lengthscale.name.replace("raw_", "")
    for i in torch.nonzero(values[:-1] < UNRELATED * values[-1]).flatten().tolist():
        if lengthscale.columns is None:
            yield f"{name} is so short that no two rows are related"
        else:
            column = lengthscale.columns[i]
            of = f"column {column}" if column_names is None else f"column {column_names[column]!r}"
            yield f"{name} of {of} is so short that rows with different values in it are unrelated"


def warn_of_blind_start(embedding: gpytorch.Module, x: Tensor) -> bool:
    """Warn if K is diagonal or constant up to rounding, so that the gradient is 0; returns whether it warned."""
    kernel = _kernel_beside_ridge(embedding, x)
    fault = None if kernel is None else _fault(kernel, x)
    if fault is not None:
        warnings.warn(
            f"The kernel {fault} at the start of fit, where the objective is flat and the search may end as it began. "
            "Call kernel_embed.kernels.set_lengthscales_by_median(embedding.kernel, x) before, or scale the features.",
            NumericalWarning,
            stacklevel=4,
        )
    return fault is not None


@torch.no_grad()
def _fault(kernel: Kernel, x: Tensor) -> str | None:
    """A description of the problem with K between some rows and all rows."""
    if not has_lengthscale(kernel):
        return None
    rows = torch.linspace(0, len(x) - 1, min(NUM_ROWS, len(x)), device=x.device, dtype=torch.float64).round().long()
    K = _radial_gram(kernel, x)
    K, diagonal = (gram(kernel, x[rows], x), gram_diagonal(kernel, x)) if K is None else (K[rows], K.diagonal())
    spread, size = K.amax(dim=(-2, -1)) - K.amin(dim=(-2, -1)), K.abs().amax(dim=(-2, -1))
    if bool((spread <= MIN_SPREAD * size).any()) and bool((x[rows] != x[:1]).any()):
        return "is constant up to rounding"
    diagonal = diagonal.clamp_min(torch.finfo(x.dtype).tiny).sqrt()
    correlations = K.abs() / (diagonal[..., rows].unsqueeze(-1) * diagonal.unsqueeze(-2))
    correlations[..., torch.arange(len(rows), device=x.device), rows] = 0.0
    if bool((correlations.amax(dim=-1).median(dim=-1).values < MIN_CORRELATION).any()):
        return "sees no two points as near, for more than half of them,"
    return None


def _radial_gram(kernel: Kernel, x: Tensor) -> Tensor | None:
    """K of a radial kernel at few rows, without modules."""
    radial = RadialEvaluator.of(kernel, x) if is_small(x) else None
    matrix = None if radial is None else radial({})
    return None if matrix is None else matrix.scale * torch.from_numpy(matrix.K)
