"""Votes by column generation: beside the whole linear program and EasyMKL, and on the paper's data."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import minmax_scale
from sklearn.svm import SVC

from ...estimators import VotedKernelClassifier
from ...results import Record
from ...voting import (
    ColumnGeneration,
    KernelFamily,
    VoteProblem,
    polynomial_kernels,
    problem_path,
    trace_bound,
)
from ..papers.cortes2015.voted import load_two_classes
from .measurement import OURS, Call, Measurement, Scope, part

PART = "votes over ten polynomial kernels"
PREDICTION = "prediction of 17040 points, waveform01"
WHOLE = "the whole program (HiGHS)"
LAM, BETA = 1e-3, 1e-4
NUM_TRAIN = 1600
Array = NDArray[np.float64]
Pair = tuple[float, float]
Problem = Callable[[], tuple[VoteProblem, Array]]


def problem(m: int, name: str | None = None, data: pathlib.Path | None = None) -> tuple[VoteProblem, Array]:
    """The first m rows of a shuffled data set in unit range with ten degrees, and the bounds of Lemma 3.

    Without a name the data are the breast cancer table that scikit-learn ships.
    """
    x, y = load_breast_cancer(return_X_y=True) if name is None else load_two_classes(name, data)
    rows = np.random.default_rng(0).permutation(len(x))[:m]
    x = minmax_scale(x)[rows]
    grams = KernelFamily(polynomial_kernels()).grams(x, x)
    return VoteProblem(grams, np.where(y[rows] == 1, 1.0, -1.0)), np.array([trace_bound(K) for K in grams])


def whole_program(problem: VoteProblem, penalties: Array) -> float:
    """Section 5.1 as published, all columns at once, scaled by their penalties, to HiGHS with its defaults."""
    import highspy

    m = problem.m
    h = np.hstack([K * problem.y[:, None] / penalty for K, penalty in zip(problem.grams, penalties, strict=True)])
    columns = np.hstack([h, -h, np.eye(m)])
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = columns.shape[1], m
    lp.col_cost_ = np.concatenate([np.ones(2 * h.shape[1]), np.full(m, 1.0 / m)])
    lp.col_lower_, lp.col_upper_ = np.zeros(columns.shape[1]), np.full(columns.shape[1], highspy.kHighsInf)
    lp.row_lower_, lp.row_upper_ = np.ones(m), np.full(m, highspy.kHighsInf)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.arange(0, columns.size + 1, columns.shape[1])
    lp.a_matrix_.index_ = np.tile(np.arange(columns.shape[1]), m)
    lp.a_matrix_.value_ = columns.ravel()
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(lp)
    solver.run()
    assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return float(solver.getInfo().objective_function_value)


def _solve(make: Problem, pair: Pair) -> Call:
    """Column generation without a warm start."""
    votes, r = make()

    def call() -> Record:
        solution = ColumnGeneration().solve(votes, pair[0] * r + pair[1])
        return {"objective": solution.objective, "gap": solution.gap, "votes": len(solution.votes)}

    return call


def _whole(make: Problem, pair: Pair) -> Call:
    votes, r = make()
    return lambda: {"objective": whole_program(votes, pair[0] * r + pair[1])}


def _mklpy(make: Problem) -> Call:
    import torch
    from MKLpy.algorithms import EasyMKL

    votes, _ = make()
    grams = [torch.as_tensor(K / np.sqrt(np.outer(np.diag(K), np.diag(K)))) for K in votes.grams]
    return lambda: EasyMKL(lam=0.1).fit(grams, votes.y)


def _path(make: Problem) -> Call:
    votes, r = make()
    return lambda: {"gap": max(point.solution.gap for point in problem_path(votes, r))}


def _hardest(make: Problem) -> Call:
    """The hardest pair of the path without a warm start; and how long all pairs take so, one by one."""
    votes, r = make()

    def seconds(pair: Pair) -> float:
        start = time.perf_counter()
        ColumnGeneration().solve(votes, pair[0] * r + pair[1])
        return time.perf_counter() - start

    times = {pair: seconds(pair) for pair in [(point.lam, point.beta) for point in problem_path(votes, r)]}
    lam, beta = max(times, key=lambda pair: times[pair])

    def call() -> Record:
        gap = ColumnGeneration().solve(votes, lam * r + beta).gap
        return {"gap": gap, "all_pairs_seconds": sum(times.values())}

    return call


def _predict(learner: VotedKernelClassifier | SVC, data: pathlib.Path | None) -> Call:
    x, y = load_two_classes("waveform01", data)
    x = minmax_scale(x)
    learner.fit(x[:NUM_TRAIN], y[:NUM_TRAIN])
    test = np.concatenate([x[NUM_TRAIN:]] * 10)
    votes = learner.num_votes_ if isinstance(learner, VotedKernelClassifier) else int(learner.n_support_.sum())
    figures: Record = {"accuracy": float(learner.score(x[NUM_TRAIN:], y[NUM_TRAIN:])), "votes": votes}

    def call() -> Record:
        learner.predict(test)
        return figures

    return call


@part("votes")
def votes_cases(scope: Scope) -> Iterator[Measurement]:
    """A vote by column generation, beside the whole linear program and EasyMKL."""
    n = 100 if scope.quick else 500
    make = partial(problem, n)
    yield Measurement(PART, OURS, n, partial(_objective, make), repeats=3)
    yield Measurement(PART, WHOLE, n, partial(_whole, make, (LAM, BETA)))
    yield Measurement(PART, "MKLpy, EasyMKL", n, partial(_mklpy, make), package="MKLpy")


def _objective(make: Problem) -> Call:
    votes, r = make()
    return lambda: {"objective": ColumnGeneration().solve(votes, LAM * r + BETA).objective}


@part("votes-path")
def path_cases(scope: Scope) -> Iterator[Measurement]:
    """Votes on the data of the paper: prediction, single solves and paths of penalties."""
    data, cut = scope.data, 10 if scope.quick else 1
    ours = VotedKernelClassifier(polynomial_kernels(), lam=1e-2, beta=1e-2, num_calibration_folds=0)
    svc = SVC(kernel="poly", degree=3, gamma=1.0, coef0=1.0, C=1e-3)
    yield Measurement(PREDICTION, OURS, NUM_TRAIN, partial(_predict, ours, data), repeats=15)
    yield Measurement(PREDICTION, "SVC", NUM_TRAIN, partial(_predict, svc, data), repeats=3)
    m = 546 // cut
    for pair in ((1e-2, 1e-4), (1e-3, 1e-4), (1e-4, 1e-6)):
        title, make = (
            f"votes on breastcancer, λ = {pair[0]:g}, β = {pair[1]:g}",
            partial(problem, m, "breastcancer", data),
        )
        yield Measurement(title, OURS, m, partial(_solve, make, pair), repeats=3)
        yield Measurement(title, WHOLE, m, partial(_whole, make, pair))
    for name, m in (("musk", 476 // cut), ("phishing", 1500 // cut)):
        for lam in (1e-2, 1e-4, 1e-6):
            title, make = f"votes on {name}, λ = {lam:g}, β = 1e-06", partial(problem, m, name, data)
            yield Measurement(title, OURS, m, partial(_solve, make, (lam, 1e-6)), repeats=3)
    for name, m in (("musk", 476 // cut), ("phishing", 1473 // cut), ("breastcancer", 546 // cut)):
        title, single = f"path of 49 pairs on {name}", f"{OURS}, the hardest pair alone"
        make = partial(problem, m, name, data)
        yield Measurement(title, single, m, partial(_hardest, make), against=single, repeats=3)
        yield Measurement(title, f"{OURS}, the path", m, partial(_path, make), against=single, repeats=3)
