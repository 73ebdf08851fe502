"""The vote as a scikit-learn classifier."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from ..bounds import Bound
from ..runtime import cpu_by_default
from ..splits import Integers, RandomState, equal_rows, group_numbers, seed_of, stratified_folds
from ..tabular.encoder import label_array, on_host
from ..validation import check_count, check_tensor
from ..voting import BaseFunctions, KernelFamily, Solution, SparseVote, VoteProblem, Votes, VoteSolver
from ..voting.complexity import complexities, penalties
from ..voting.families import Array, KernelLike, Points
from ..voting.generalization import Theorem, num_outside_radius, vote_guarantee
from ..voting.predictions import check_classes, fit_temperature, one_against_rest, probabilities, winners
from ..voting.problem import TOLERANCE
from ..voting.solvers import default_solver

Data: TypeAlias = ArrayLike | Sequence[object]
"""A matrix of numbers; if all kernels are callables, also strings or any objects."""


@dataclasses.dataclass(eq=False, repr=False)
class VotedKernelClassifier(ClassifierMixin, BaseEstimator):
    r"""A sparse vote over the functions :math:`K_k(\cdot, x_j)` of many kernels (voted kernel regularization, eq. 1).

    Every function is penalized by :math:`\Lambda_k = \lambda r_k + \beta`, with :math:`r_k` the Rademacher complexity
    of its kernel; ``lam=0`` is the norm-1 SVM. With more than two classes, each class has a vote against the rest.
    Scale features to unit range or unit variance first, as for an SVM.

    Args:
        kernels: GPyTorch kernels or callables ``(x, z) -> matrix``, which need be neither positive definite nor
            symmetric; polynomials :math:`(x^\top z + 1)^q` of degree 1 to 10 by default. If all are callables, points
            may be strings or any objects.
        lam: λ, the weight of the complexities.
        beta: β, the weight of the plain norm.
        complexity: ``"trace"`` (Lemma 3), ``"dimension"`` (Lemma 4, polynomials), ``"local"`` (section 5.3,
            or Lemma 3 if that is smaller), ``"monte_carlo"`` (the complexity itself), or one number per kernel.
        radius: r of the local complexity; by default the fixed point of each kernel.
        elastic: μ, the weight of :math:`\frac12 \sum_{k,j} (\Lambda_k \alpha_{k,j})^2`: functions that are nearly
            equal share a vote. 0 is the paper's problem, and sparser.
        solver: :class:`kernel_embed.voting.ColumnGeneration` (linear programming, HiGHS; the default),
            :class:`kernel_embed.voting.CoordinateDescent` (Appendix C; the default for ``elastic`` > 0), or any
            :class:`kernel_embed.voting.VoteSolver`.
        tolerance: the gap to reach between objective and dual bound; F(0) = 1.
        num_calibration_folds: folds whose held-out votes calibrate ``predict_proba``; 0 for none, which saves time.
        random_state: seed of the calibration folds and of Monte Carlo complexities.

    Attributes:
        classes_: the labels.
        objective_: F(α), eq. (1), at the solution; for more than two classes an array, one value per class.
        bound_: the lower bound from the dual, and ``gap_``, the difference of objective and bound.
        num_votes_: how many functions vote.
        support_: positions of the training points with votes; only these points are stored.
        complexities_: r_k.
        penalties_: Λ_k.
        rules_: the rule of each r_k.
        margins_: y f(x) of the training points, one row per vote.
        num_outside_radius_: for each vote, how many of its functions the local complexity does not cover.
        num_rounds_: rounds of the solver.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.preprocessing import minmax_scale
        >>> x, y = load_breast_cancer(return_X_y=True)
        >>> x = minmax_scale(x)
        >>> vote = VotedKernelClassifier().fit(x[::2], y[::2])
        >>> vote.score(x[1::2], y[1::2]) > 0.94, vote.num_votes_ < 40, vote.gap_ < 1e-7
        (True, True, True)
    """

    kernels: Sequence[KernelLike] | None = None
    lam: float = 1e-3
    beta: float = 1e-4
    complexity: str | ArrayLike = "trace"
    _: dataclasses.KW_ONLY
    radius: float | None = None
    elastic: float = 0.0
    solver: VoteSolver | None = None
    tolerance: float = TOLERANCE
    num_calibration_folds: int = 3
    random_state: RandomState = 0

    @cpu_by_default()
    def fit(self, X: Data, y: ArrayLike, *, groups: ArrayLike | None = None) -> VotedKernelClassifier:
        """Solve eq. (1) on the sample.

        Args:
            X: the training points.
            y: their labels.
            groups: a label for each row. Rows of one group, such as a patient, a batch or a day, are in one calibration
                fold. Without groups, equal rows are.

        Raises:
            TypeError: if ``solver`` is not a :class:`~kernel_embed.voting.VoteSolver`, or ``X`` no sequence of points.
            ValueError: if ``num_calibration_folds`` is 1 or negative, a point has no label, there is one class, or
                ``groups`` are not one for each row or all the same.
        """
        if self.solver is not None and not isinstance(self.solver, VoteSolver):
            raise TypeError(f"solver must be a VoteSolver such as ColumnGeneration(), or None, not {self.solver!r}.")
        if check_count("num_calibration_folds", self.num_calibration_folds, 0) == 1:
            raise ValueError(f"num_calibration_folds must be 0 or at least 2, not {self.num_calibration_folds}.")
        self.family_ = KernelFamily.of(self.kernels)
        x, labels = self._check_fit(X, y)
        self.classes_, codes = check_classes(labels, len(x))
        units = _calibration_units(x, group_numbers(groups, len(x)))
        seed = seed_of(self.random_state)
        grams = self.family_.grams(x, x)
        r = complexities(self.family_, x, self.complexity, grams=grams, radius=self.radius, seed=seed)
        self.complexities_, self.rules_ = r.values, r.rules
        self.penalties_ = penalties(self.lam, self.beta, r.values)
        self.base_ = BaseFunctions.of(self.family_, x, grams, r)
        targets = one_against_rest(codes, len(self.classes_))
        problem = VoteProblem(grams, targets[0], self.elastic)
        problems = [problem.with_labels(target) for target in targets]
        solutions = [self._solve(problem) for problem in problems]
        self.margins_ = np.stack([p.margins(s.votes) for p, s in zip(problems, solutions, strict=True)])
        self.num_outside_radius_ = [num_outside_radius(solution.votes, grams, r.radii) for solution in solutions]
        for name in ("objective", "bound", "gap"):
            values = [getattr(solution, name) for solution in solutions]
            setattr(self, f"{name}_", float(values[0]) if len(values) == 1 else np.array(values))
        self.num_rounds_ = max(solution.num_rounds for solution in solutions)
        self.vote_ = SparseVote(self.family_, [solution.votes for solution in solutions], x)
        self.num_votes_ = sum(len(solution.votes) for solution in solutions)
        self.support_ = self.vote_.support
        self.temperature_ = None
        if self.num_calibration_folds:
            generator = np.random.default_rng(seed)
            num_folds = min(self.num_calibration_folds, len(np.unique(units)))
            folds = stratified_folds(codes, num_folds, generator, units, balanced=True)
            held_out = self._held_out_votes(problems, solutions, folds)
            self.temperature_ = fit_temperature(held_out[:, 0] if len(problems) == 1 else held_out, codes)
        return self

    def decision_function(self, X: Data) -> Array:
        """The votes f(x): (n,) for two classes, positive for ``classes_[1]``; (n, number of classes) for more."""
        f = self._votes(X)
        return f[:, 0] if len(self.classes_) == 2 else f

    def predict(self, X: Data) -> NDArray[Any]:
        """The label with the most votes."""
        codes = winners(self._votes(X))  # raises NotFittedError before there are classes
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: Data) -> Array:
        """Probabilities of the classes: a softmax of the votes, with a temperature fitted on held-out votes.

        Raises:
            AttributeError: if ``num_calibration_folds`` was 0.
        """
        check_is_fitted(self)
        if self.temperature_ is None:
            raise AttributeError("num_calibration_folds=0 gives no probabilities. Fit again with at least 2 folds.")
        return probabilities(self.decision_function(X), self.temperature_)

    def report(self) -> list[dict[str, Any]]:
        """One record per kernel: name, complexity and its rule, penalty, total weight and number of votes.

        Raises:
            sklearn.exceptions.NotFittedError: if ``fit`` was not called.
        """
        check_is_fitted(self)
        alpha = self.vote_.weights
        columns = {
            "kernel": self.family_.names(),
            "rule": self.rules_,
            "complexity": self.complexities_.tolist(),
            "penalty": self.penalties_.tolist(),
            "weight": np.abs(alpha).sum((1, 2)).tolist(),
            "num_votes": (alpha != 0).sum((1, 2)).tolist(),
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def guarantee(
        self,
        rho: float | None = None,
        *,
        theorem: Theorem = 1,
        confidence: float = 0.95,
        K: float = 2.0,
        uniform: bool = False,
        sup_diagonal: ArrayLike | None = None,
    ) -> Bound | list[Bound]:
        """The right-hand side of Theorem 1 or 2 for the fitted vote, or a list, one per class, if there are several.

        As published it is an estimate. ``uniform=True`` is a certificate for Theorem 1 and kernels whose K(x, x) is
        bounded; see ``kind`` and ``reasons`` of the result. The confidence is that of each vote separately.

        Args:
            rho: the margin of the convex combination; by default just below that of the hinge, y f(x) = 1 − 10⁻⁶.
            theorem: 1 or 2; fit with ``complexity="local"`` for Theorem 2 with local complexities.
            confidence: 1 − δ.
            K: the constant K > 1 of Theorem 2.
            uniform: the form for all ρ at once, rounded down to a grid, so that ρ may come from the data.
            sup_diagonal: sup K(x, x) of every kernel over all inputs, for ``uniform=True``; by default the closed form,
                which polynomials and callables do not have.

        Raises:
            sklearn.exceptions.NotFittedError: if ``fit`` was not called.
        """
        check_is_fitted(self)
        base, norms = self.base_.with_bounds(sup_diagonal), np.abs(self.vote_.weights).sum(1)  # Σ_j |α_{k,j}|
        results = [
            vote_guarantee(margins, norms[:, c], base, rho, theorem, confidence, K, uniform, outside)
            for c, (margins, outside) in enumerate(zip(self.margins_, self.num_outside_radius_, strict=True))
        ]
        return results[0] if len(results) == 1 else results

    def _check_fit(self, X: Data, y: ArrayLike) -> tuple[Points, NDArray[Any]]:
        if self._is_object_data(X):
            points = np.asarray(X)
            if points.ndim == 0:
                raise TypeError(f"X must be a list or an array of points, not {X!r}.")
            return points, np.asarray(label_array(y, required=True))
        x, labels = validate_data(self, on_host(X), label_array(y, required=True), dtype=np.float64)
        check_classification_targets(labels)
        return x, labels

    def _votes(self, X: Data) -> Array:
        check_is_fitted(self)
        if self._is_object_data(X):
            return self.vote_(np.asarray(X))
        return self.vote_(validate_data(self, on_host(X), dtype=np.float64, reset=False))

    def _is_object_data(self, X: Data) -> bool:
        """Whether the points are strings or other objects, which only callables accept, and not a matrix of numbers."""
        if not self.family_.takes_any_points or hasattr(X, "dtypes") or hasattr(X, "toarray"):
            return False
        if isinstance(X, Tensor):
            check_tensor(X, "X")
            return False
        try:
            return np.asarray(X).dtype.kind not in "fiubc"
        except ValueError:  # ragged
            return True

    def _solve(self, problem: VoteProblem, start: Votes | None = None) -> Solution:
        solver = default_solver(self.elastic) if self.solver is None else self.solver
        solution = solver.solve(problem, self.penalties_, tolerance=self.tolerance, start=start)
        if not solution.converged:
            warnings.warn(
                f"{type(solver).__name__} stopped after {solution.num_rounds} rounds with a gap of {solution.gap:.2e}, "
                f"above the tolerance {self.tolerance:.2e}. Raise max_rounds or the penalties, or scale the features.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return solution

    def _held_out_votes(self, problems: list[VoteProblem], solutions: list[Solution], fold: NDArray[np.int64]) -> Array:
        """f at every point by a vote fitted without its fold, warm-started from the full solution."""
        grams, votes = problems[0].grams, np.zeros((len(fold), len(problems)))
        for i in np.unique(fold):
            train, test = np.flatnonzero(fold != i), np.flatnonzero(fold == i)
            inner = VoteProblem([K[np.ix_(train, train)] for K in grams], problems[0].y[train], self.elastic)
            for c, (problem, whole) in enumerate(zip(problems, solutions, strict=True)):
                start = whole.votes.restricted_to(train)
                part = self._solve(inner.with_labels(problem.y[train]), start).votes
                for k, j, weight in zip(part.kernel, train[part.point], part.weight, strict=True):
                    votes[test, c] += weight * grams[k][test, j]
        return votes


def _calibration_units(x: Points, groups: Integers | None) -> Integers:
    """Numbers that rows share if they must be in one calibration fold: their group or, if they are equal, their place.

    A copy of a row in another fold would vote for it, and the probabilities would be too sure.
    """
    if groups is not None:
        if len(np.unique(groups)) < 2:
            raise ValueError("All rows are in one group, which leaves no others to calibrate with. Give two groups.")
        return groups
    number = equal_rows(x) if x.dtype.kind == "f" else None
    return np.arange(len(x)) if number is None or number.max() == 0 else number
