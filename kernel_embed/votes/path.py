r"""The regularisation path over (λ, β), and the paper's cross validation over it.

The penalties :math:`\Lambda_k = \lambda r_k + \beta` only scale the rows of the dual program, so the basis at one
pair starts another. Which pair is nearest, the certificates say: that whose α and u have the least gap under the new
penalties.

Cross validation follows section 6: the sample is partitioned into folds; in run i, fold i tests, fold i + 1 validates
and the rest trains. The pair with the least mean validation error wins, and its mean test error is the result. Of pairs
that tie, the one with the fewest votes wins, which the paper leaves open. λ = 0 is the norm-1 SVM.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from .column_generation import ColumnGeneration
from .families import Array, KernelFamily, KernelLike, Points, polynomial_kernels
from .penalties import complexities, penalties
from .problem import Solution, VoteProblem

GRID = tuple(10.0**-i for i in range(7))
"""The paper's values of λ and of β: 1, 0.1, …, 1e-6."""


@dataclasses.dataclass(frozen=True)
class PathPoint:
    """The vote at one pair (λ, β)."""

    lam: float
    beta: float
    solution: Solution


def vote_path(
    problem: VoteProblem,
    r: Array,
    lams: Sequence[float] = GRID,
    betas: Sequence[float] = GRID,
    *,
    tolerance: float = 1e-7,
) -> list[PathPoint]:
    """The votes for all pairs (λ, β), λ outermost, each started from the nearest solved before it.

    Args:
        problem: the sample.
        r: the complexities r_k, one per kernel.
        lams: values of λ.
        betas: values of β.
        tolerance: the gap to reach at every pair.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(40, 2))
        >>> problem = VoteProblem([x @ x.T + 1], np.where(x[:, 0] > 0, 1.0, -1.0))
        >>> path = vote_path(problem, np.array([1.0]), lams=[0.1, 0.01], betas=[0.0])
        >>> [(point.lam, len(point.solution.votes) > 0) for point in path]
        [(0.1, True), (0.01, True)]
    """
    solver = ColumnGeneration(problem, tolerance)
    # From the heaviest penalties to the lightest: the first programs are small, and the votes grow.
    pairs = sorted(itertools.product(lams, betas), reverse=True)
    solutions = {pair: solver.solve(penalties(*pair, r)) for pair in pairs}
    return [PathPoint(lam, beta, solutions[lam, beta]) for lam, beta in itertools.product(lams, betas)]


@dataclasses.dataclass(frozen=True)
class CrossValidation:
    """The result of :func:`cross_validate_votes`. Errors are shares between 0 and 1.

    Attributes:
        lams, betas: the values tried.
        validation_errors: shape (folds, len(lams), len(betas)).
        test_errors: the same shape.
        num_votes: the same shape, of the vote trained without either fold.
        max_gap: the largest gap of all votes.
    """

    lams: tuple[float, ...]
    betas: tuple[float, ...]
    validation_errors: Array
    test_errors: Array
    num_votes: Array
    max_gap: float

    @property
    def best(self) -> tuple[int, int]:
        """Position of the chosen pair: least mean validation error, then fewest votes."""
        error, votes = self.validation_errors.mean(axis=0), self.num_votes.mean(axis=0)
        i, j = np.unravel_index(np.lexsort((votes.ravel(), error.round(12).ravel()))[0], error.shape)
        return int(i), int(j)

    @property
    def lam(self) -> float:
        """The chosen λ."""
        return self.lams[self.best[0]]

    @property
    def beta(self) -> float:
        """The chosen β."""
        return self.betas[self.best[1]]

    @property
    def validation_error(self) -> float:
        """Mean validation error at the chosen pair."""
        return float(self.validation_errors.mean(axis=0)[self.best])

    @property
    def error(self) -> float:
        """Mean test error at the chosen pair."""
        return float(self.test_errors.mean(axis=0)[self.best])

    @property
    def error_std(self) -> float:
        """Standard deviation of the test error over the folds."""
        return float(self.test_errors.std(axis=0, ddof=1)[self.best])

    @property
    def votes(self) -> float:
        """Mean number of votes at the chosen pair."""
        return float(self.num_votes.mean(axis=0)[self.best])


def split_folds(n: int, folds: int, seed: int | None = 0) -> list[NDArray[np.int64]]:
    """A random partition of 0 … n − 1 into parts of nearly equal size.

    Example:
        >>> sorted(len(part) for part in split_folds(7, 3))
        [2, 2, 3]
    """
    if not 3 <= folds <= n:
        raise ValueError(f"Expected 3 ≤ folds ≤ {n} (training, validation and test need one each), got {folds}.")
    return [np.asarray(part) for part in np.array_split(np.random.default_rng(seed).permutation(n), folds)]


def cross_validate_votes(
    x: ArrayLike,
    y: ArrayLike,
    kernels: Sequence[KernelLike] | None = None,
    *,
    lams: Sequence[float] = GRID,
    betas: Sequence[float] = GRID,
    complexity: str | ArrayLike = "trace",
    radius: float | None = None,
    folds: int = 5,
    scaler: Any = None,
    seed: int | None = 0,
    tolerance: float = 1e-7,
    progress: Callable[[Iterable[Any]], Iterable[Any]] | None = None,
) -> CrossValidation:
    """The paper's 5-fold cross validation over the path of (λ, β), in one call.

    Args:
        x: points.
        y: labels of two classes; for more, every pair (λ, β) is a one-vs-rest vote.
        kernels: as in :class:`VotedKernelClassifier`; polynomials of degree 1 to 10 by default.
        lams, betas: the grid; ``lams=[0.0]`` is the norm-1 SVM.
        complexity: as in :class:`VotedKernelClassifier`.
        radius: r of the local complexity, likewise; the paper chooses it by validation, one call for each r.
        folds: parts of the sample, at least 3.
        scaler: a scikit-learn transformer, fitted on each training part.
        seed: of the partition.
        tolerance: the gap to reach.
        progress: wraps the loop over folds, for example ``tqdm.tqdm``.

    Example:
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.preprocessing import MinMaxScaler
        >>> x, y = load_breast_cancer(return_X_y=True)
        >>> result = cross_validate_votes(x[:200], y[:200], polynomial_kernels([1, 2]), lams=[1e-2, 1e-3],
        ...                               betas=[1e-3], scaler=MinMaxScaler())
        >>> result.validation_errors.shape, result.error < 0.1
        ((5, 2, 1), True)
    """
    points, labels = np.asarray(x), np.asarray(y)
    if len(points) != len(labels):
        raise ValueError(f"Expected as many labels as points, got {len(labels)} labels for {len(points)} points.")
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"Expected labels of at least two classes, got the one class {classes.tolist()}.")
    family = KernelFamily(polynomial_kernels() if kernels is None else kernels)
    parts = split_folds(len(points), folds, seed)
    shape = (folds, len(lams), len(betas))
    validation, test, votes = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    gap = 0.0
    runs: Iterable[int] = range(folds) if progress is None else progress(range(folds))
    for i in runs:
        held = [parts[(i + 1) % folds], parts[i]]
        train = np.concatenate([parts[k] for k in range(folds) if k not in (i, (i + 1) % folds)])
        x_train, *x_held = _scaled(scaler, points, train, *held)
        grams = family.grams(x_train, x_train)
        num_features = x_train.shape[1] if x_train.ndim == 2 else None
        r = complexities(family, grams, num_features, complexity, radius=radius, seed=seed).values
        targets = [1] if len(classes) == 2 else list(range(len(classes)))
        paths = []
        for target in targets:
            problem = VoteProblem(grams, np.where(codes[train] == target, 1.0, -1.0))
            paths.append(vote_path(problem, r, lams, betas, tolerance=tolerance))
        gap = max(gap, max(point.solution.gap for path in paths for point in path))
        del grams
        votes[i] = np.reshape(
            [sum(len(path[t].solution.votes) for path in paths) for t in range(len(paths[0]))], shape[1:]
        )
        f = np.stack([path_values(family, [point.solution for point in path], x_train, x_held) for path in paths])
        wrong = [np.array_split(part, [len(held[0])], axis=1) for part in f]
        for errors, side in ((validation, 0), (test, 1)):
            values = np.stack([part[side] for part in wrong])
            predicted = (values[0] > 0).astype(int) if len(classes) == 2 else values.argmax(axis=0)
            errors[i] = (predicted != codes[held[side]]).mean(axis=1).reshape(shape[1:])
    return CrossValidation(tuple(lams), tuple(betas), validation, test, votes, gap)


def path_values(
    family: KernelFamily, solutions: Sequence[Solution], x_train: Points, x_held: Sequence[Points]
) -> Array:
    """f(x) of every solution at all held-out points in turn, shape (number of solutions, number of points)."""
    x = np.concatenate(list(x_held))
    f = np.zeros((len(solutions), len(x)))
    kernel = np.concatenate([solution.votes.kernel for solution in solutions])
    for k in np.unique(kernel):
        points = np.unique(np.concatenate([s.votes.point[s.votes.kernel == k] for s in solutions]))
        weights = np.zeros((len(solutions), len(points)))
        for t, solution in enumerate(solutions):
            chosen = solution.votes.kernel == k
            weights[t, np.searchsorted(points, solution.votes.point[chosen])] = solution.votes.weight[chosen]
        f += weights @ family.gram(int(k), x, x_train[points]).T
    return f


def _scaled(scaler: Any, points: Points, *parts: NDArray[np.int64]) -> list[Points]:
    if scaler is None:
        return [points[part] for part in parts]
    fitted = clone(scaler).fit(points[parts[0]])
    return [np.asarray(fitted.transform(points[part])) for part in parts]
