r"""Where two samples differ: points, rows and columns, each corrected for multiple comparisons.

The witness of samples x (n points) and y (m points) is

.. math::  w(t) = \hat\mu_P(t) - \hat\mu_Q(t) = \frac1n \sum_i k(x_i, t) - \frac1m \sum_j k(y_j, t) .

Relabeled, it is :math:`w_b(t)`, with the variance :math:`s^2(t) = \frac{N}{nm} \operatorname{var} k(\cdot, t)` over
the N = n + m pooled points. With M_b its largest excursion and c_α the 1 − α quantile of these,

.. math::  M_b = \max_t \frac{|w_b(t)|}{s(t)}, \qquad p(t) = \frac{1 + \#\{b : M_b \ge |w(t)| / s(t)\}}{1 + B}, \qquad
           |w_b(t)| \le c_\alpha s(t) \text{ for all t,}

except with probability α if the samples are of one distribution. Where the kernel was chosen among several by its
statistic, which uses the labels, the maximum is over all of these kernels too.

**Rows.** :math:`\mathrm{MMD}_b^2 = \frac1n \sum_i w(x_i) - \frac1m \sum_j w(y_j)`, so that w(x_i)/n and −w(y_j)/m are
the contributions of single rows.

**Columns.** The statistic of every column alone, and that of all columns but one, on the scale of :mod:`.result`, with
p-values corrected by the maximum again. A column that matters only together with others is not detected alone, but its
absence reduces the statistic of the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ..results import table
from .checks import finite_gram
from .kernel_choice import kernels_by_rule
from .mmd import STATISTICS, indicators, statistics
from .result import ROUNDING, standardized

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .result import SamplesTestResult

MEMORY = 2**26  # bytes of a block of the Gram matrix


class ColumnDifference(NamedTuple):
    """The part of one column in the difference of two samples."""

    name: str
    alone: float  # the standardized statistic of this column alone
    pvalue: float  # of this column alone, corrected for the number of columns
    without: float  # the standardized statistic of all other columns; NaN if there are none


@dataclasses.dataclass(frozen=True, repr=False)
class Differences:
    """Where two samples differ; see :meth:`SamplesTestResult.differences`.

    Attributes:
        points: where the witness was evaluated, ``(t, d)``.
        witness: w at the points, ``(t,)``; positive where the first sample is denser.
        band: c_α s, ``(t,)``: the half-width of the simultaneous band around 0 under the null hypothesis.
        pvalues: of each point, corrected for the number of points, ``(t,)``.
        level: 1 − α of the band.
        rows: the contribution of each row to MMD², a pair of ``(n,)`` and ``(m,)``.
        columns: for each column its ``name``; ``alone``, the standardized statistic of this column alone, with its
            ``pvalue`` corrected for the number of columns; and ``without``, that of all other columns.
        samples: the two samples.

    Example:
        >>> import kernel_embed as ke
        >>> x, y = torch.randn(2, 40, 2, generator=torch.Generator().manual_seed(0))
        >>> result = ke.two_sample_test(x, y + torch.tensor([0.0, 2.0]), "median", 99, seed=0)
        >>> {column.name: round(column.pvalue, 3) for column in result.differences().columns}
        {'column 0': 0.906, 'column 1': 0.001}
    """

    points: Tensor
    witness: Tensor
    band: Tensor
    pvalues: Tensor
    level: float
    rows: tuple[Tensor, Tensor]
    columns: tuple[ColumnDifference, ...]
    samples: tuple[Tensor, Tensor]

    @property
    def significant(self) -> Tensor:
        """Which points are outside the band, ``(t,)``."""
        return self.witness.abs() > self.band

    def top_rows(self, count: int = 10) -> tuple[Tensor, Tensor]:
        """The indices of the rows of either sample that contribute most, the largest first."""
        first, second = (part.argsort(descending=True)[:count] for part in self.rows)
        return first, second

    def summary(self) -> str:
        """The share of points outside the band, and a table of the columns."""
        share = float(self.significant.double().mean())
        head = f"outside the {self.level:.0%} band: {share:.0%} of {len(self.points)} points"
        rows = [[c.name, f"{c.alone:.2f}", f"{c.pvalue:.3g}", f"{c.without:.2f}"] for c in self.columns]
        return f"{head}\n{table(['column', 'alone', 'p', 'without'], rows)}"

    def __repr__(self) -> str:
        return self.summary()

    def plot(self, ax: Axes | None = None, column: int = 0) -> Axes:
        """Plot the witness and the band over one column; with several columns, in units of the band."""
        from ..plots import plot_differences

        unit = torch.ones_like(self.band) if len(self.columns) == 1 else self.band.clamp_min(ROUNDING)
        x = self.points[:, column]
        ax = plot_differences(x, self.witness / unit, self.band / unit, level=self.level, ax=ax)
        ax.set_xlabel(self.columns[column].name)
        return ax


def find_differences(
    result: SamplesTestResult, points: Tensor, level: float, num_permutations: int, generator: torch.Generator
) -> Differences:
    """The differences of the first two samples of a test."""
    x, y = result.samples[:2]
    n, m = len(x), len(y)
    pooled = torch.cat([x, y])
    # w_b(t) = Σ_i a_ib k(u_i, t), a = 1/n for those labeled x and −1/m for the rest
    E = indicators((n, m), num_permutations, generator, pooled)
    A = E[:, 0].to(pooled) * (1.0 / n + 1.0 / m) - 1.0 / m
    width = max(1, MEMORY // (8 * len(pooled)))
    largest = pooled.new_zeros(1 + num_permutations)
    # The kernel with the largest statistic comes last, and its witness remains.
    for kernel in [*(other for other in result.kernels if other is not result.kernel), result.kernel]:
        parts = []
        for block in points.split(width):
            K = finite_gram(kernel, block, pooled)
            s = ((n + m) / (n * m)) ** 0.5 * K.std(-1)
            w = K @ A
            ratio = w.abs() / s.clamp_min(ROUNDING).unsqueeze(-1)
            largest = torch.maximum(largest, ratio.amax(0))
            parts.append(torch.stack([w[:, 0], s, ratio[:, 0]]))
    witness, s, ratio = torch.cat(parts, dim=1)
    c = largest.quantile(level, interpolation="higher")
    pvalues = (1.0 + (largest[1:] >= ratio.unsqueeze(-1) * (1.0 - 1e-9)).sum(-1)) / (1.0 + num_permutations)
    own = torch.cat([finite_gram(kernel, block, pooled) @ A[:, 0] for block in pooled.split(width)])
    columns = _columns(result, pooled, E, generator)
    return Differences(points, witness, c * s, pvalues, level, (own[:n] / n, -own[n:] / m), columns, (x, y))


def _columns(
    result: SamplesTestResult, pooled: Tensor, E: Tensor, generator: torch.Generator
) -> tuple[ColumnDifference, ...]:
    sizes, d = tuple(map(len, result.samples[:2])), pooled.shape[1]

    def statistic(columns: Sequence[int], E: Tensor) -> Tensor:
        """The largest standardized statistic of the default kernels on some columns, ``(1 + B,)``."""
        categorical = tuple(place for place, j in enumerate(columns) if j in result.categorical)
        x = pooled[:, columns]
        kernels = kernels_by_rule(x, "evidence+median", categorical, generator).kernels
        T, scale = statistics(kernels, x, E, sizes, STATISTICS["biased"])
        z = standardized(T, scale)[0].amax(0)
        return torch.where(torch.isfinite(z), z, 0.0)

    alone = torch.stack([statistic([j], E) for j in range(d)])
    pvalues = (alone.amax(0) >= alone[:, :1] - 1e-9).double().mean(-1)
    others = [[i for i in range(d) if i != j] for j in range(d)]
    without = [float(statistic(rest, E[..., :1])[0]) if rest else float("nan") for rest in others]
    return tuple(
        ColumnDifference(name, float(z[0]), float(p), rest)
        for name, z, p, rest in zip(result.columns, alone, pvalues, without, strict=True)
    )
