r"""The vote as a scikit-learn classifier."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..votes.calibration import deal_folds, fit_temperature, probabilities
from ..votes.column_generation import ColumnGeneration
from ..votes.coordinate_descent import descend
from ..votes.families import Array, KernelFamily, KernelLike, Points, polynomial_kernels
from ..votes.guarantee import Guarantee, theorem_1, theorem_2
from ..votes.penalties import complexities, penalties
from ..votes.problem import Solution, VoteProblem, Votes
from ..votes.sparse import SparseVote

SOLVERS = ("column_generation", "coordinate_descent")


class VotedKernelClassifier(ClassifierMixin, BaseEstimator):
    r"""A sparse vote over the functions :math:`K_k(\cdot, x_j)` of many kernels (voted kernel regularization, eq. 1).

    Every function is penalised by :math:`\Lambda_k = \lambda r_k + \beta`, with :math:`r_k` the Rademacher complexity
    of its kernel, so that very complex kernels take part where they pay and only there. ``lam=0`` is the norm-1 SVM.
    Two classes are the paper's; more are one vote each against the rest, on the same Grams.

    Features should be of size one, as for an SVM: scale them to unit range or unit variance first.

    Args:
        kernels: GPyTorch kernels or callables ``(x, z) -> matrix``, which need be neither positive definite nor
            symmetric; polynomials :math:`(x^\top z + 1)^q` of degree 1 to 10 by default. If all are callables, points
            may be strings or any objects.
        lam: λ, the weight of the complexities.
        beta: β, the weight of the plain norm.
        complexity: ``"trace"`` (Lemma 3), ``"dimension"`` (Lemma 4, polynomials), ``"local"`` (section 5.3),
            ``"monte_carlo"`` (the complexity itself), or one number per kernel.
        radius: r of the local complexity; ``None`` takes each kernel's own, its fixed point.
        solver: ``"column_generation"`` (linear programming, HiGHS) or ``"coordinate_descent"`` (Appendix C).
        tol: the gap to reach between objective and dual bound; F(0) = 1.
        max_rounds: how often a solver prices all base functions at most.
        calibration_folds: folds whose held-out votes calibrate ``predict_proba``; 0 leaves it out and saves its time.
        random_state: seed of the calibration folds and of Monte Carlo complexities.

    Attributes:
        classes_: the labels.
        objective_: F(α), eq. (1), at the solution; for more than two classes an array, one value per class.
        bound_: the dual bound from below, and ``gap_``, how far above the optimum the objective may be at most.
        num_votes_: how many functions vote.
        support_: positions of the training points with votes, the only points kept.
        complexities_: r_k.
        penalties_: Λ_k.
        rules_: by which rule each r_k was found.
        margins_: y f(x) of the training points, one row per vote.
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

    def __init__(
        self,
        kernels: Sequence[KernelLike] | None = None,
        lam: float = 1e-3,
        beta: float = 1e-4,
        complexity: str | ArrayLike = "trace",
        *,
        radius: float | None = None,
        solver: str = "column_generation",
        tol: float = 1e-7,
        max_rounds: int = 1000,
        calibration_folds: int = 3,
        random_state: int | None = 0,
    ) -> None:
        self.kernels = kernels
        self.lam = lam
        self.beta = beta
        self.complexity = complexity
        self.radius = radius
        self.solver = solver
        self.tol = tol
        self.max_rounds = max_rounds
        self.calibration_folds = calibration_folds
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike) -> VotedKernelClassifier:
        """Solve eq. (1) on the sample."""
        if self.solver not in SOLVERS:
            raise ValueError(f"Expected solver to be one of {', '.join(SOLVERS)}, got {self.solver!r}.")
        self.family_ = KernelFamily(polynomial_kernels() if self.kernels is None else self.kernels)
        x, labels = self._check_fit(X, y)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"Expected labels of at least two classes, got one class: {self.classes_.tolist()}.")
        grams = self.family_.grams(x, x)
        num_features = x.shape[1] if x.ndim == 2 else None
        r = complexities(self.family_, grams, num_features, self.complexity, radius=self.radius, seed=self.random_state)
        self.complexities_, self.rules_ = r
        self.penalties_ = penalties(self.lam, self.beta, r.values)
        self.sup_ = np.array([np.abs(K).max() for K in grams])
        targets = self._targets(codes)
        solutions = [self._solve(VoteProblem(grams, target)) for target in targets]
        self._keep(solutions, x)
        self.margins_ = np.stack(
            [VoteProblem(grams, t).margins(s.votes) for t, s in zip(targets, solutions, strict=True)]
        )
        self.temperature_ = self._calibrate(grams, targets, codes, solutions) if self.calibration_folds else None
        return self

    def decision_function(self, X: Any) -> Array:
        """The votes f(x): shape (n,) for two classes, positive for ``classes_[1]``; (n, number of classes) for more."""
        check_is_fitted(self)
        f = self.vote_(self._check_points(X))
        return f[:, 0] if len(self.classes_) == 2 else f

    def predict(self, X: Any) -> NDArray[Any]:
        """The label with the most votes."""
        f = self.decision_function(X)
        codes = (f > 0).astype(int) if f.ndim == 1 else f.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, one temperature away from the votes, fitted on held-out ones."""
        check_is_fitted(self)
        if self.temperature_ is None:
            raise AttributeError(
                "Expected a vote fitted with calibration_folds ≥ 2, got calibration_folds=0. Fit again with folds to "
                "have probabilities."
            )
        return probabilities(self.decision_function(X), self.temperature_)

    def report(self) -> list[dict[str, Any]]:
        """One record per kernel: its name, complexity and the rule it came from, penalty, total weight and votes.

        Example:
            >>> import numpy as np
            >>> x = np.linspace(-1, 1, 30)[:, None]
            >>> vote = VotedKernelClassifier().fit(x, np.abs(x[:, 0]) > 0.5)
            >>> [row["kernel"] for row in vote.report()][:2], sum(row["num_votes"] for row in vote.report()) < 10
            (['polynomial 1', 'polynomial 2'], True)
        """
        check_is_fitted(self)
        return [
            {
                "kernel": name,
                "rule": self.rules_[k],
                "complexity": float(self.complexities_[k]),
                "penalty": float(self.penalties_[k]),
                "weight": self.vote_.total_weight(k),
                "num_votes": self.vote_.num_votes(k),
            }
            for k, name in enumerate(self.family_.names())
        ]

    def guarantee(
        self, theorem: int = 1, rho: float | None = None, delta: float = 0.05, K: float = 2.0
    ) -> Guarantee | list[Guarantee]:
        """The right-hand side of Theorem 1 or 2 for the fitted vote, of each vote where there are several.

        The complexities are those of the penalties: fit with ``complexity="local"`` for Theorem 2 with local ones.

        Args:
            theorem: 1 or 2.
            rho: the margin of the convex combination; by default that of the hinge, y f(x) = 1.
            delta: the probability with which the bound may fail.
            K: the constant K > 1 of Theorem 2.
        """
        check_is_fitted(self)
        if theorem not in (1, 2):
            raise ValueError(f"Expected theorem 1 or 2, got {theorem}.")
        results = []
        for c, margins in enumerate(self.margins_):
            norms = self.vote_.norms(c)  # Σ_j |α_{k,j}| per kernel
            A = float(norms @ self.sup_)
            if A == 0:
                raise ValueError("Expected a vote with at least one function, got none: lower lam or beta.")
            mean_complexity = float(norms @ self.complexities_) / A
            margin = 1.0 / A if rho is None else rho
            p = len(self.family_)
            if theorem == 1:
                results.append(theorem_1(margins / A, mean_complexity, p, margin, delta))
            else:
                results.append(theorem_2(margins / A, mean_complexity, p, margin, delta, K))
        return results[0] if len(results) == 1 else results

    def _check_fit(self, X: Any, y: Any) -> tuple[Points, NDArray[Any]]:
        """Points as the kernels take them, and labels: checked once, here."""
        if not self._free(X):
            x, labels = validate_data(self, X, y, dtype=np.float64)
            check_classification_targets(labels)
            return x, labels
        x, labels = np.asarray(X), np.asarray(y)
        if labels.ndim != 1 or len(labels) != len(x):
            raise ValueError(f"Expected one label per point, {len(x)} in all, got labels of shape {labels.shape}.")
        return x, labels

    def _check_points(self, X: Any) -> Points:
        return np.asarray(X) if self._free(X) else validate_data(self, X, dtype=np.float64, reset=False)

    def _free(self, X: Any) -> bool:
        """Whether the points are no numbers, which only plain callables can take."""
        return self.family_.takes_any_points and not _is_numeric(X)

    def _targets(self, codes: NDArray[np.int64]) -> list[Array]:
        """Labels ±1, one array per vote: one vote for two classes, one per class for more."""
        if len(self.classes_) == 2:
            return [np.where(codes == 1, 1.0, -1.0)]
        return [np.where(codes == c, 1.0, -1.0) for c in range(len(self.classes_))]

    def _solve(self, problem: VoteProblem, start: Votes | None = None) -> Solution:
        if self.solver == "coordinate_descent":
            solution = descend(problem, self.penalties_, self.tol, self.max_rounds)
        else:
            solver = ColumnGeneration(problem, self.tol, self.max_rounds)
            if start is not None:
                solver.start_from(start.kernel, start.point)
            solution = solver.solve(self.penalties_)
        if not solution.converged:
            warnings.warn(
                f"{self.solver} reached a gap of {solution.gap:.2e} after {solution.num_rounds} rounds, expected "
                f"{self.tol:.2e}: the objective {solution.objective:.6g} may be that far above the optimum. Raise "
                "max_rounds or the penalties, or scale the features.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return solution

    def _keep(self, solutions: list[Solution], x: Points) -> None:
        objective = np.array([solution.objective for solution in solutions])
        bound = np.array([solution.bound for solution in solutions])
        gap = np.array([solution.gap for solution in solutions])
        single = len(solutions) == 1
        self.objective_ = float(objective[0]) if single else objective
        self.bound_ = float(bound[0]) if single else bound
        self.gap_ = float(gap[0]) if single else gap
        self.num_rounds_ = max(solution.num_rounds for solution in solutions)
        self.vote_ = SparseVote(self.family_, [solution.votes for solution in solutions], x)
        self.num_votes_ = sum(len(solution.votes) for solution in solutions)
        self.support_ = self.vote_.support

    def _calibrate(
        self, grams: list[Array], targets: list[Array], codes: NDArray[np.int64], solutions: list[Solution]
    ) -> float:
        """The temperature of held-out votes; each fold starts from the functions that vote in the whole."""
        m = len(codes)
        if self.calibration_folds < 2:
            raise ValueError(f"Expected calibration_folds ≥ 2, or 0 for none, got {self.calibration_folds}.")
        fold = deal_folds(codes, min(self.calibration_folds, m), self.random_state)
        votes = np.zeros((m, len(targets)))
        for i in np.unique(fold):
            train, held = np.flatnonzero(fold != i), np.flatnonzero(fold == i)
            inner = [K[np.ix_(train, train)] for K in grams]
            for c, target in enumerate(targets):
                solution = self._solve(VoteProblem(inner, target[train]), solutions[c].votes.restricted_to(train))
                for k, j, weight in zip(
                    solution.votes.kernel, train[solution.votes.point], solution.votes.weight, strict=True
                ):
                    votes[held, c] += weight * grams[k][held, j]
        return fit_temperature(votes[:, 0] if len(targets) == 1 else votes, codes)


def _is_numeric(X: Any) -> bool:
    """Whether X would pass as a matrix of numbers, and so goes through the usual checks."""
    if hasattr(X, "dtypes") or hasattr(X, "toarray"):
        return True
    array = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object if _ragged(X) else None)
    return bool(array.dtype.kind in "fiubc")


def _ragged(X: Any) -> bool:
    try:
        np.asarray(X)
    except ValueError:
        return True
    return False
