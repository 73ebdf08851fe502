"""The votes on the paper's data: prediction against SVC, whole programs, single solves, and paths of 49 pairs."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray
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
from .cases import OURS, Call, Case, Scope
from .votes import whole_program

PREDICTION = "prediction of 17040 points, waveform01"
NUM_TRAIN = 1600
Data = pathlib.Path | None
Pair = tuple[float, float]


def problem(name: str, directory: Data, m: int) -> tuple[VoteProblem, NDArray[np.float64]]:
    """The first m of a shuffled data set in unit range, with ten degrees and Lemma 3."""
    x, y = load_two_classes(name, directory)
    chosen = np.random.default_rng(0).permutation(len(x))[:m]
    x = minmax_scale(x)[chosen]
    grams = KernelFamily(polynomial_kernels()).grams(x, x)
    return VoteProblem(grams, np.where(y[chosen] == 1, 1.0, -1.0)), np.array([trace_bound(K) for K in grams])


def _solve(name: str, m: int, pair: Pair, directory: Data) -> Call:
    """Column generation from nothing."""
    votes, r = problem(name, directory, m)
    penalties = pair[0] * r + pair[1]

    def call() -> Record:
        solution = ColumnGeneration().solve(votes, penalties)
        return {"objective": solution.objective, "gap": solution.gap, "votes": len(solution.votes)}

    return call


def _whole(name: str, m: int, pair: Pair, directory: Data) -> Call:
    votes, r = problem(name, directory, m)
    return lambda: {"objective": whole_program(votes, pair[0] * r + pair[1])}


def _path(name: str, m: int, directory: Data) -> Call:
    votes, r = problem(name, directory, m)
    return lambda: {"gap": max(point.solution.gap for point in problem_path(votes, r))}


def _hardest(name: str, m: int, directory: Data) -> Call:
    """The hardest pair of the path, solved from nothing; and how long all pairs take so, one by one."""
    votes, r = problem(name, directory, m)
    pairs = [(point.lam, point.beta) for point in problem_path(votes, r)]

    def seconds(pair: Pair) -> float:
        started = time.perf_counter()
        ColumnGeneration().solve(votes, pair[0] * r + pair[1])
        return time.perf_counter() - started

    times = {pair: seconds(pair) for pair in pairs}
    lam, beta = max(times, key=lambda pair: times[pair])

    def call() -> Record:
        gap = ColumnGeneration().solve(votes, lam * r + beta).gap
        return {"gap": gap, "all_pairs_seconds": sum(times.values())}

    return call


def _predict(ours: bool, directory: Data) -> Call:
    x, y = load_two_classes("waveform01", directory)
    x = minmax_scale(x)
    train, test = x[:NUM_TRAIN], np.concatenate([x[NUM_TRAIN:]] * 10)
    learner: VotedKernelClassifier | SVC = (
        VotedKernelClassifier(polynomial_kernels(), lam=1e-2, beta=1e-2, num_calibration_folds=0)
        if ours
        else SVC(kernel="poly", degree=3, gamma=1.0, coef0=1.0, C=1e-3)
    )
    learner.fit(train, y[:NUM_TRAIN])
    votes = learner.num_votes_ if isinstance(learner, VotedKernelClassifier) else int(learner.n_support_.sum())
    figures: Record = {"accuracy": float(learner.score(x[NUM_TRAIN:], y[NUM_TRAIN:])), "votes": votes}

    def call() -> Record:
        learner.predict(test)
        return figures

    return call


def cases(scope: Scope) -> Iterator[Case]:
    """Votes on the data of the paper: prediction, single solves and paths of penalties."""
    place, cut = scope.data, 10 if scope.quick else 1
    yield Case(PREDICTION, OURS, NUM_TRAIN, partial(_predict, True, place), repeats=15)
    yield Case(PREDICTION, "SVC", NUM_TRAIN, partial(_predict, False, place), repeats=3)
    m = 546 // cut
    for pair in ((1e-2, 1e-4), (1e-3, 1e-4), (1e-4, 1e-6)):
        part = f"votes on breastcancer, λ = {pair[0]:g}, β = {pair[1]:g}"
        yield Case(part, OURS, m, partial(_solve, "breastcancer", m, pair, place), repeats=3)
        yield Case(part, "the whole program (HiGHS)", m, partial(_whole, "breastcancer", m, pair, place))
    for name, m in (("musk", 476 // cut), ("phishing", 1500 // cut)):
        for lam in (1e-2, 1e-4, 1e-6):
            part = f"votes on {name}, λ = {lam:g}, β = 1e-06"
            yield Case(part, OURS, m, partial(_solve, name, m, (lam, 1e-6), place), repeats=3)
    for name, m in (("musk", 476 // cut), ("phishing", 1473 // cut), ("breastcancer", 546 // cut)):
        part, single = f"path of 49 pairs on {name}", f"{OURS}, the hardest pair alone"
        yield Case(part, single, m, partial(_hardest, name, m, place), against=single, repeats=3)
        yield Case(part, f"{OURS}, the path", m, partial(_path, name, m, place), against=single, repeats=3)
