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
SMALLEST_LENGTHSCALE = 1e-2
"""In units of the gaps in the data."""
SMALLEST_RIDGE = 100.0
"""In units of the rounding error of k(x, x)."""
UNRELATED = 1e-8
"""The correlation below which neighbors are treated as unrelated."""
MOST_POINTS = 500
"""Rows whose nearest neighbors are computed."""


class Lengthscale(NamedTuple):
    """A lengthscale of a radial kernel, and the gaps of the data that it is compared with."""

    name: str
    kernel: Kernel
    gaps: Tensor
    """One gap for each entry of the lengthscale, ``(d,)`` or ``(1,)``."""
    columns: list[int] | None
    """The column of each entry; ``None`` for a lengthscale common to several."""


@torch.no_grad()
def default_limits(vector: ParameterVector, x: Tensor) -> Vector:
    """The lowest value of each raw parameter, −∞ where there is none; never above the current value."""
    lowest = {name: torch.full_like(raw, -torch.inf) for name, raw in vector.named.items()}
    has_ridge = hasattr(vector.module, RIDGE) and isinstance(getattr(vector.module, "kernel", None), Kernel)
    if has_ridge and len(x) > 1:
        if RIDGE in lowest:
            lowest[RIDGE].copy_(_raw(vector, RIDGE, smallest_ridge(vector.module.kernel, x)))
        for name, _, gaps, _ in _lengthscales(vector, x):
            lowest[name].copy_(_raw(vector, name, SMALLEST_LENGTHSCALE * gaps))
    return np.minimum(flatten(lowest.values()), vector.get())


def _raw(vector: ParameterVector, name: str, lowest: Tensor) -> Tensor:
    """The raw value of a lower bound; −∞ where the constraint has bounds of its own."""
    constraint, raw = vector.module.constraint_for_parameter_name(name), vector.named[name]
    if constraint is None or bool(torch.isfinite(constraint.upper_bound).any()):
        return torch.full_like(raw, -torch.inf)
    value: Tensor = constraint.inverse_transform(lowest.to(raw).expand_as(raw))
    return value.nan_to_num(-torch.inf, torch.inf, -torch.inf)


def smallest_ridge(kernel: Kernel, x: Tensor) -> Tensor:
    """100 ε times the mean of k(x, x)."""
    diagonal = gram(kernel, x[:: -(-len(x) // NUM_ROWS)]).detach().diagonal(dim1=-2, dim2=-1)
    return SMALLEST_RIDGE * torch.finfo(x.dtype).eps * diagonal.mean()


def _lengthscales(vector: ParameterVector, x: Tensor) -> Iterator[Lengthscale]:
    """The lengthscales of radial kernels that are learned."""
    names = {id(raw): name for name, raw in vector.named.items()}
    for node in nodes_of(vector.module.kernel):
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
    module = vector.module
    kernel = getattr(module, "kernel", None)
    if not isinstance(kernel, Kernel) or not hasattr(module, RIDGE) or len(x) < 2:
        return ()
    reasons = []
    if RIDGE in vector.named and bool((module.regularization <= 2.0 * smallest_ridge(kernel, x)).any()):
        reasons.append("regularization is at the rounding error of the Gram matrix, so that the fit interpolates")
    for lengthscale in () if batch_shape_of(kernel) else _lengthscales(vector, x):
        reasons += _unrelated(lengthscale, column_names)
    if not reasons and has_lengthscale(kernel):
        fault = _fault(kernel, x)
        reasons += [] if fault is None else [f"the kernel {fault}"]
    return tuple(reasons)


def _unrelated(lengthscale: Lengthscale, column_names: Sequence[str] | None) -> Iterator[str]:
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


NUM_ROWS = 50
"""Rows that are compared with all others."""
MIN_CORRELATION = 1e-12
"""Correlations k(x, x') / √(k(x, x) k(x', x')) below which two points are treated as uncorrelated."""
MIN_SPREAD = 1e-8
"""Relative differences of kernel values below which points are not distinguished."""


def warn_of_blind_start(embedding: gpytorch.Module, x: Tensor) -> bool:
    """Whether this warned of a Gram matrix that is diagonal or constant up to rounding, where the gradient vanishes.

    This concerns embeddings with a ridge λ. The evidence of a mean embedding is computed in the log domain, and is not
    flat there.
    """
    kernel = getattr(embedding, "kernel", None)
    if not isinstance(kernel, Kernel) or not hasattr(embedding, RIDGE) or x.shape[-2] < 2:
        return False
    fault = _fault(kernel, x) if has_lengthscale(kernel) else None
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
    rows = torch.linspace(0, x.shape[-2] - 1, min(NUM_ROWS, x.shape[-2]), device=x.device, dtype=torch.float64)
    rows = rows.round().long()
    K, diagonal = _values(kernel, x, rows)
    size = K.abs().amax(dim=(-2, -1))
    if bool((K.amax(dim=(-2, -1)) - K.amin(dim=(-2, -1)) <= MIN_SPREAD * size).any()) and bool(
        (x[rows] != x[:1]).any()
    ):
        return "is constant up to rounding"
    diagonal = diagonal.clamp_min(torch.finfo(x.dtype).tiny).sqrt()
    correlations = K.abs() / (diagonal[..., rows].unsqueeze(-1) * diagonal.unsqueeze(-2))
    correlations[..., torch.arange(len(rows), device=x.device), rows] = 0.0
    if bool((correlations.amax(dim=-1).median(dim=-1).values < MIN_CORRELATION).any()):
        return "sees no two points as near, for more than half of them,"
    return None


def _values(kernel: Kernel, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """k(x_i, x_j) for some ``rows`` i and all j, and k(x_j, x_j)."""
    if is_small(x):
        radial = RadialEvaluator.of(kernel, x)
        matrix = None if radial is None else radial({})
        if matrix is not None:
            K = matrix.scale * torch.from_numpy(matrix.K)
            return K[rows], K.diagonal()
    return gram(kernel, x[rows], x), gram_diagonal(kernel, x)
