r"""The optimization problem of the vote, its dual, and the gap between them.

With base functions :math:`h_{k,j} = (y_i K_k(x_i, x_j))_{i}` and penalties :math:`\Lambda_k = \lambda r_k + \beta`, the
vote minimizes

.. math::  F(\alpha) = \frac1m \sum_i \max\Big(0, 1 - \sum_{k,j} \alpha_{k,j} h_{k,j,i}\Big)
                       + \sum_{k,j} \Lambda_k |\alpha_{k,j}| .                                    \tag{1}

(The paper writes :math:`y_i y_j K_k(x_i, x_j)`; the sign :math:`y_j` only renames :math:`\alpha_{k,j}`.) Its dual is

.. math::  \max_u \sum_i u_i \quad\text{s.t.}\quad 0 \le u_i \le \tfrac1m, \quad |h_{k,j}^\top u| \le \Lambda_k .

Dividing any :math:`u \in [0, 1/m]^m` by :math:`\max(1, \max_{k,j} |h_{k,j}^\top u| / \Lambda_k)` makes it feasible, so
every solver can bound its distance from the optimum: the gap.

The elastic penalty, which the paper does not treat, adds the squares of the costs :math:`\Lambda_k |\alpha_{k,j}|`:

.. math::  F_\mu(\alpha) = F(\alpha) + \frac\mu2 \sum_{k,j} (\Lambda_k \alpha_{k,j})^2 , \qquad
           \max_{0 \le u \le 1/m} \sum_i u_i
           - \frac1{2\mu} \sum_{k,j} \Big(\frac{|h_{k,j}^\top u|}{\Lambda_k} - 1\Big)_+^2 .

In its dual every :math:`tu`, :math:`0 \le t \le 1`, is feasible; :func:`dual_bound` takes the best :math:`t`.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..validation import check_array, check_number
from .families import Array

TOLERANCE = 1e-7  # the default gap; F(0) = 1, so it is relative to the objective without votes


@dataclasses.dataclass(frozen=True)
class Votes:
    """The non-zero coefficients: ``weight[t]`` is α of the function K_{kernel[t]}(·, x_{point[t]})."""

    kernel: NDArray[np.int64]
    point: NDArray[np.int64]
    weight: Array

    def __len__(self) -> int:
        return len(self.weight)

    def restricted_to(self, points: NDArray[np.int64]) -> Votes:
        """The votes of ascending ``points`` only, renumbered by their positions in it."""
        kept = np.isin(self.point, points)
        return Votes(self.kernel[kept], np.searchsorted(points, self.point[kept]), self.weight[kept])

    @classmethod
    def none(cls) -> Votes:
        """No votes, α = 0."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))


class VoteProblem:
    """The data of eq. (1): Gram matrices K_k and labels ±1.

    Args:
        grams: the matrices K_k(x_i, x_j), one per kernel, rows for the sample's points, columns for base functions.
        y: labels, −1 or +1, shape (m,).
        elastic: μ ≥ 0, the weight of the squares; 0 is the paper's problem.

    Raises:
        TypeError: if a Gram matrix does not consist of real numbers.
        ValueError: if there is no Gram matrix, or one without a row for each label or with a value that is not finite,
            or ``elastic`` is negative.

    Example:
        >>> import numpy as np
        >>> problem = VoteProblem([np.eye(2)], np.array([1.0, -1.0]))
        >>> votes = Votes(np.array([0, 0]), np.array([0, 1]), np.array([1.0, -1.0]))
        >>> problem.objective(votes, np.array([0.1]))
        0.2
    """

    def __init__(self, grams: Sequence[Array], y: Array, elastic: float = 0.0) -> None:
        self.y = _check_signs(y)
        self.elastic = check_elastic(elastic)
        self.m = len(self.y)
        if not grams:
            raise ValueError("grams is empty. Give one Gram matrix per kernel.")
        self.grams = [check_array(K, f"Gram {k}") for k, K in enumerate(grams)]
        for k, K in enumerate(self.grams):
            if K.ndim != 2 or K.shape[0] != self.m:
                raise ValueError(f"Gram {k} must have {self.m} rows, one per label; its shape is {K.shape}.")
            if not np.isfinite(K).all():
                raise ValueError(f"Gram {k} has NaN or infinite values. Check the kernel.")
        # One base function per row, so that memory is read in order; a symmetric K is not copied.
        self._functions = [
            K if np.array_equal(K, K.T) and K.flags.c_contiguous else np.ascontiguousarray(K.T) for K in self.grams
        ]

    def with_labels(self, y: Array) -> VoteProblem:
        """The same points with other labels; the Gram matrices are shared.

        Raises:
            ValueError: if there is not one label for each point.
        """
        other = copy.copy(self)
        other.y = _check_signs(y)
        if len(other.y) != self.m:
            raise ValueError(f"y must have {self.m} labels, one per point; it has {len(other.y)}.")
        return other

    def columns(
        self, kernel: NDArray[np.int64], point: NDArray[np.int64], at: NDArray[np.int64] | None = None
    ) -> Array:
        """The base functions h_{k,j} as the rows of a matrix, at all m points of the sample or ``at`` some of them."""
        h = np.empty((len(kernel), self.m if at is None else len(at)))
        for k in np.unique(kernel):
            of_kernel = kernel == k
            functions, j = self._functions[k], point[of_kernel]
            h[of_kernel] = functions[j] if at is None else functions[np.ix_(j, at)]
        h *= self.y if at is None else self.y[at]
        return h

    def margins(self, votes: Votes) -> Array:
        """y_i f(x_i) of every point of the sample."""
        margins: Array = votes.weight @ self.columns(votes.kernel, votes.point)
        return margins

    def prices(self, u: Array) -> list[Array]:
        """h_{k,j}ᵀu of every base function, one array per kernel: the pricing step."""
        signed = self.y * u
        nonzero = np.flatnonzero(signed)
        if 3 * len(nonzero) < self.m:  # points beyond their margin have u = 0
            return [signed[nonzero] @ K[nonzero] for K in self.grams]
        return [functions @ signed for functions in self._functions]

    def objective(self, votes: Votes, penalties: Array, margins: Array | None = None) -> float:
        """F(α) of eq. (1), with the squares if ``elastic`` > 0; ``margins`` saves computing them."""
        loss = np.maximum(0.0, 1.0 - (self.margins(votes) if margins is None else margins)).mean()
        costs = penalties[votes.kernel] * np.abs(votes.weight)
        return float(loss + costs.sum() + 0.5 * self.elastic * (costs**2).sum())


def dual_bound(total: float, violations: Array, elastic: float = 0.0) -> float:
    r"""The best lower bound along tu: :math:`\max_{t \le 1} t \sum_i u_i - \frac1{2\mu} \sum_j (t v_j - 1)_+^2`.

    ``total`` is :math:`\sum_i u_i` and ``violations`` are :math:`v_j = |h_j^\top u| / \Lambda_j`; those of at most 1
    may be left out. With the J largest :math:`v_j` counted, the slope is zero at
    :math:`t = (\mu \sum_i u_i + \sum_{j \le J} v_j) / \sum_{j \le J} v_j^2`, the least of which is the maximum.
    """
    v = -np.sort(-violations[violations > 1.0])
    if not len(v):
        return total
    if not elastic:
        return total / float(v[0])
    t = min(1.0, float(((elastic * total + np.cumsum(v)) / np.cumsum(v**2)).min()))
    return float(t * total - (np.maximum(t * v - 1.0, 0.0) ** 2).sum() / (2.0 * elastic))


def _check_signs(y: Array) -> Array:
    y = check_array(y, "y")
    if y.ndim != 1 or not np.isin(y, (-1.0, 1.0)).all():
        shown = ", ".join(f"{value:g}" for value in np.unique(y)[:5])
        raise ValueError(f"y must be a vector of labels −1 and +1; it has shape {y.shape} and values such as {shown}.")
    return y


def check_elastic(elastic: float) -> float:
    """μ as a finite number ≥ 0."""
    if not 0.0 <= check_number("elastic", elastic) < np.inf:
        raise ValueError(f"elastic must be finite and at least 0, not {elastic!r}. 0 is the problem of the paper.")
    return float(elastic)


def check_tolerance(tolerance: float) -> None:
    """Raise unless ``tolerance`` is a gap that can be reached: in floating point no search ends at exactly 0."""
    if not 0.0 < check_number("tolerance", tolerance) < math.inf:
        raise ValueError(f"tolerance must be positive and finite, for example {TOLERANCE:g}; it is {tolerance!r}.")


def check_penalties(penalties: Array, num_kernels: int) -> Array:
    """Λ_k as an array, one positive number per kernel."""
    penalties = check_array(penalties, "penalties")
    if penalties.shape != (num_kernels,):
        raise ValueError(f"penalties must have {num_kernels} numbers, one per kernel; its shape is {penalties.shape}.")
    bad = np.flatnonzero(~(np.isfinite(penalties) & (penalties > 0)))
    if len(bad):
        value = f"{penalties[bad[0]]:g} for kernel {bad[0]}"
        raise ValueError(
            f"Every penalty Λ_k = λ r_k + β must be positive and finite; it is {value}. Raise beta or lam."
        )
    return penalties
