r"""The regularization path over (λ, β), and the paper's cross validation over it.

The penalties :math:`\Lambda_k = \lambda r_k + \beta` only scale the rows of the dual program, so the basis at one
pair starts another.

Cross validation is that of section 6: in run i, fold i tests, fold i + 1 validates and the rest trains. The pair with
the lowest mean validation error is selected, among ties that with the fewest votes, and its mean test error is the
result.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..runtime import progress_bar
from ..splits import check_partition, random_folds, rotations
from .complexity import complexities, penalties
from .families import Array, KernelFamily, Kernels, Points, check_not_empty
from .predictions import SparseVote, check_classes, one_against_rest, winners
from .problem import TOLERANCE, VoteProblem, check_tolerance
from .solvers import Solution, VoteSolver, default_solver

GRID = tuple(10.0**-i for i in range(7))
"""The paper's values of λ and of β: 1, 0.1, …, 1e-6."""


@dataclasses.dataclass(frozen=True)
class PathPoint:
    """The vote at one pair (λ, β)."""

    lam: float
    beta: float
    solution: Solution


def vote_path(
    kernels: Kernels,
    x: ArrayLike,
    y: ArrayLike,
    *,
    lams: Sequence[float] = GRID,
    betas: Sequence[float] = GRID,
    complexity: str | ArrayLike = "trace",
    radius: float | None = None,
    elastic: float = 0.0,
    solver: VoteSolver | None = None,
    tolerance: float = TOLERANCE,
    seed: int | None = 0,
) -> list[PathPoint]:
    """The votes for all pairs (λ, β), λ outermost, each started from the nearest earlier solution.

    Args:
        kernels: GPyTorch kernels or callables ``(x, z) -> matrix``; ``None`` for polynomials of degree 1 to 10.
        x: points.
        y: labels of two classes; votes for the second are positive.
        lams: values of λ; ``[0.0]`` is the norm-1 SVM.
        betas: values of β.
        complexity: as in :class:`kernel_embed.VotedKernelClassifier`.
        radius: r of the local complexity, likewise.
        elastic: μ, the weight of the squares of the costs Λ_k α_{k,j}.
        solver: by default :class:`kernel_embed.voting.ColumnGeneration`, for ``elastic`` > 0
            :class:`kernel_embed.voting.CoordinateDescent`.
        tolerance: the gap to reach at every pair.
        seed: of Monte Carlo complexities.

    Returns:
        For each pair ``lam``, ``beta`` and the ``solution``, a :class:`kernel_embed.voting.Solution`.

    Raises:
        ValueError: if the labels are not of two classes, or not one for each point.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(40, 2))
        >>> path = vote_path([lambda x, z: x @ z.T + 1], x, x[:, 0] > 0, lams=[0.1, 0.01], betas=[0.0])
        >>> [(point.lam, len(point.solution.votes)) for point in path]
        [(0.1, 3), (0.01, 3)]
    """
    family = KernelFamily.of(kernels)
    points = family.points(x)
    classes, codes = check_classes(y, len(points))
    if len(classes) > 2:
        remedy = "Use y == c, or cross_validate_votes or VotedKernelClassifier, which do so for every class."
        raise ValueError(f"y must have two classes; it has {len(classes)}. {remedy}")
    problem, r = _problem(family, points, one_against_rest(codes, 2)[0], elastic, complexity, radius, seed)
    return problem_path(problem, r, lams, betas, solver=solver, tolerance=tolerance)


def _problem(
    family: KernelFamily, x: Points, y: Array, elastic: float, complexity: str | ArrayLike, radius: float | None,
    seed: int | None,
) -> tuple[VoteProblem, Array]:  # fmt: skip
    """The problem for labels ±1, and the complexities."""
    grams = family.grams(x, x)
    r = complexities(family, x, complexity, grams=grams, radius=radius, seed=seed).values
    return VoteProblem(grams, y, elastic), r


def problem_path(
    problem: VoteProblem,
    r: Array,
    lams: Sequence[float] = GRID,
    betas: Sequence[float] = GRID,
    *,
    solver: VoteSolver | None = None,
    tolerance: float = TOLERANCE,
) -> list[PathPoint]:
    """:func:`vote_path` for Gram matrices and complexities ``r`` that are already computed."""
    check_tolerance(tolerance)
    # Large penalties first: their programs are small, and the number of votes grows.
    lams, betas = check_not_empty("lams", lams), check_not_empty("betas", betas)
    pairs = sorted(itertools.product(lams, betas), reverse=True)
    solver = default_solver(problem.elastic) if solver is None else solver
    if not isinstance(solver, VoteSolver):
        raise TypeError(f"solver must be a VoteSolver, such as ColumnGeneration(), or None, not {solver!r}.")
    solutions = solver.solve_all(problem, [penalties(*pair, r) for pair in pairs], tolerance=tolerance)
    solution_of = dict(zip(pairs, solutions, strict=True))
    return [PathPoint(lam, beta, solution_of[lam, beta]) for lam, beta in itertools.product(lams, betas)]


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
    scaler: Any = None,
    solver: VoteSolver | None = None,
    tolerance: float = TOLERANCE,
    seed: int | None = 0,
    progress: bool | None = None,
) -> CrossValidation:
    """The paper's 5-fold cross validation over the path of (λ, β).

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

    Raises:
        ValueError: if there is not one label for each point, or only one class.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(90, 2))
        >>> result = cross_validate_votes([lambda x, z: x @ z.T], x, x[:, 0] > 0, lams=[1e-2, 1e-3], betas=[1e-3])
        >>> round(result.error, 3)
        0.033
    """
    family = KernelFamily.of(kernels)
    points = family.points(x)
    classes, codes = check_classes(y, len(points))
    parts = random_folds(len(points), num_folds, seed) if partition is None else check_partition(partition, len(points))
    validation, test, num_votes = np.zeros((3, len(parts), len(lams), len(betas)))
    max_gap = 0.0
    with progress_bar(len(parts), "votes", progress) as bar:
        for i, (train, *others) in enumerate(rotations(parts)):
            x_train, *x_others = (points[part] for part in (train, *others))
            if scaler is not None:
                fitted = copy.deepcopy(scaler)
                fitted.fit(x_train)
                x_train, *x_others = (np.asarray(fitted.transform(z)) for z in (x_train, *x_others))
            targets = one_against_rest(codes[train], len(classes))
            problem, r = _problem(family, x_train, targets[0], elastic, complexity, radius, seed)
            paths = [
                problem_path(problem.with_labels(target), r, lams, betas, solver=solver, tolerance=tolerance)
                for target in targets
            ]
            votes = [SparseVote(family, [point.solution.votes for point in path], x_train) for path in paths]
            for errors, part, z in zip((validation, test), others, x_others, strict=True):
                winner = winners(np.stack([vote(z) for vote in votes], axis=-1))  # one column for each pair
                errors[i].flat = (winner != codes[part, None]).mean(axis=0)
            num_votes[i].flat = np.sum([[len(point.solution.votes) for point in path] for path in paths], axis=0)
            max_gap = max(max_gap, *(point.solution.gap for path in paths for point in path))
            bar.update()
    return CrossValidation(tuple(lams), tuple(betas), validation, test, num_votes, max_gap)
