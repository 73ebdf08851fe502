r"""The paper's cross validation over the path of (λ, β), section 6.

The sample is partitioned into folds; in run i, fold i tests, fold i + 1 validates and the rest trains. The pair with
the lowest mean validation error is selected, and its mean test error is the result. Ties, which the paper does not
mention, are resolved by the fewest votes. λ = 0 is the norm-1 SVM.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..progress import progress_bar
from ..splits import check_partition, random_folds, rotations
from .families import Array, KernelFamily, Kernels, Points
from .path import GRID, PathPoint, PathSettings
from .predictions import SparseVote, check_classes, one_against_rest, winners
from .problem import TOLERANCE, VoteSolver


@dataclasses.dataclass(frozen=True)
class CrossValidation:
    """The result of :func:`kernel_embed.voting.cross_validate_votes`. Errors are shares between 0 and 1.

    Attributes:
        lams: the values of λ.
        betas: the values of β.
        validation_errors: shape (folds, len(lams), len(betas)).
        test_errors: the same shape.
        num_votes: the same shape.
        max_gap: the largest gap of all votes.

    Example:
        >>> import numpy as np
        >>> from kernel_embed.voting import CrossValidation
        >>> errors, votes = np.array([[[0.2], [0.1]]]), np.array([[[5], [3]]])
        >>> CrossValidation((0.1, 0.01), (0.0,), errors, errors, votes, max_gap=1e-8).error
        0.1
    """

    lams: tuple[float, ...]
    betas: tuple[float, ...]
    validation_errors: Array
    test_errors: Array
    num_votes: Array
    max_gap: float

    @property
    def best(self) -> tuple[int, int]:
        """The indices of the selected pair, by lowest mean validation error, then fewest votes."""
        error, votes = self.validation_errors.mean(axis=0), self.num_votes.mean(axis=0)
        i, j = np.unravel_index(np.lexsort((votes.ravel(), error.round(12).ravel()))[0], error.shape)
        return int(i), int(j)

    @property
    def lam(self) -> float:
        """The selected λ."""
        return self.lams[self.best[0]]

    @property
    def beta(self) -> float:
        """The selected β."""
        return self.betas[self.best[1]]

    @property
    def validation_error(self) -> float:
        """Mean validation error of the selected pair."""
        return float(self.validation_errors.mean(axis=0)[self.best])

    @property
    def error(self) -> float:
        """Mean test error of the selected pair."""
        return float(self.test_errors.mean(axis=0)[self.best])

    @property
    def error_std(self) -> float:
        """Standard deviation of the test error over the folds."""
        return float(self.test_errors.std(axis=0, ddof=1)[self.best])

    @property
    def votes(self) -> float:
        """Mean number of votes of the selected pair."""
        return float(self.num_votes.mean(axis=0)[self.best])


class Scaler(Protocol):
    """Scales the points of each run: any transformer of scikit-learn."""

    def fit(self, X: Points) -> object:
        """Learn the scale from the training part."""

    def transform(self, X: Points) -> ArrayLike:
        """The scaled points."""


def cross_validate_votes(
    kernels: Kernels,
    x: ArrayLike,
    y: ArrayLike,
    *,
    lams: Sequence[float] = GRID,
    betas: Sequence[float] = GRID,
    complexity: str | ArrayLike = "trace",
    radius: float | None = None,
    elastic: float = 0.0,
    num_folds: int = 5,
    partition: Sequence[ArrayLike] | None = None,
    scaler: Scaler | None = None,
    solver: VoteSolver | None = None,
    tolerance: float = TOLERANCE,
    seed: int | None = 0,
    progress: bool | None = None,
) -> CrossValidation:
    """The paper's 5-fold cross validation over the path of (λ, β), in one call.

    Args:
        kernels: as in :func:`kernel_embed.voting.vote_path`, like all arguments without an explanation.
        x: points.
        y: labels; with more than two classes, every pair (λ, β) is a vote of each class against the rest.
        lams: values of λ.
        betas: values of β.
        complexity: the rule for r_k.
        radius: r of the local complexity; the paper selects it by validation, one call for each r.
        elastic: μ.
        num_folds: parts of the sample, at least 3.
        partition: the parts, each an array of row numbers, in place of ``num_folds`` random ones:
            ``[test for _, test in splitter.split(x, y)]`` uses any splitter of scikit-learn.
        scaler: a scikit-learn transformer, copied and fitted on each training part.
        solver: the solver.
        tolerance: the gap to reach.
        seed: of the partition and of Monte Carlo complexities.
        progress: show a progress bar; ``None`` shows it on a terminal or in a notebook.

    Returns:
        Errors and numbers of votes of every fold and pair.

    Raises:
        ValueError: if there is not one label for each point, or only one class.

    Example:
        >>> from kernel_embed.voting import polynomial_kernels
        >>> from sklearn.datasets import load_breast_cancer
        >>> from sklearn.preprocessing import MinMaxScaler
        >>> x, y = load_breast_cancer(return_X_y=True)
        >>> result = cross_validate_votes(polynomial_kernels([1, 2]), x[:200], y[:200], lams=[1e-2, 1e-3],
        ...                               betas=[1e-3], scaler=MinMaxScaler())
        >>> result.validation_errors.shape, result.error < 0.1
        ((5, 2, 1), True)
    """
    family = KernelFamily.of(kernels)
    points = family.points(x)
    classes, codes = check_classes(y, len(points))
    n = len(points)
    parts = random_folds(n, num_folds, seed) if partition is None else check_partition(partition, n)
    settings = PathSettings(lams, betas, complexity, radius, elastic, solver, tolerance, seed)
    runs = []
    with progress_bar(len(parts), "votes", progress) as bar:
        for train, *others in rotations(parts):
            x_train, *x_others = _scaled(scaler, points, train, *others)
            paths = settings.paths(family, x_train, one_against_rest(codes[train], len(classes)))
            runs.append(_run(family, paths, x_train, x_others, [codes[part] for part in others]))
            bar.update()
    shape = (len(parts), len(lams), len(betas))
    validation, test, num_votes = (np.reshape([run[t] for run in runs], shape) for t in range(3))
    max_gap = max(run[3] for run in runs)
    return CrossValidation(tuple(lams), tuple(betas), validation, test, num_votes, max_gap)


def _run(
    family: KernelFamily,
    paths: Sequence[Sequence[PathPoint]],
    x_train: Points,
    x_others: Sequence[Points],
    codes: Sequence[NDArray[np.int64]],
) -> tuple[Array, Array, Array, float]:
    """Errors on the validation and the test part and number of votes of every pair; the largest gap."""
    errors = [
        (path_winners(family, paths, x_train, x) != numbers[:, None]).mean(axis=0)
        for x, numbers in zip(x_others, codes, strict=True)
    ]
    num_votes = np.array([[len(point.solution.votes) for point in path] for path in paths], dtype=np.float64)
    max_gap = max(point.solution.gap for path in paths for point in path)
    return errors[0], errors[1], num_votes.sum(axis=0), max_gap


def path_winners(
    family: KernelFamily, paths: Sequence[Sequence[PathPoint]], x_train: Points, x: Points
) -> NDArray[np.int64]:
    """The class that wins at each point of ``x`` (rows) for each point of the paths (columns)."""
    votes = [SparseVote(family, [point.solution.votes for point in path], x_train)(x) for path in paths]
    return winners(np.stack(votes, axis=-1))


def _scaled(scaler: Scaler | None, points: Points, *parts: NDArray[np.int64]) -> list[Points]:
    if scaler is None:
        return [points[part] for part in parts]
    fitted = copy.deepcopy(scaler)
    fitted.fit(points[parts[0]])
    return [np.asarray(fitted.transform(points[part])) for part in parts]
