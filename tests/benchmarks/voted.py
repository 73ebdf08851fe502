"""Prints the ratios of time the votes are meant to keep; run it alone on a quiet machine.

    OMP_NUM_THREADS=1 python tests/benchmarks/voted.py --data DIR [--repeats 3]

Every ratio is measured within one run, from the least of several repetitions.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.preprocessing import minmax_scale
from sklearn.svm import SVC

from kernel_embed import VotedKernelClassifier
from kernel_embed.benchmarks.votes import whole_program
from kernel_embed.papers.cortes2015.voted import load_two_classes
from kernel_embed.votes import (
    ColumnGeneration,
    KernelFamily,
    Solution,
    VoteProblem,
    polynomial_kernels,
    problem_path,
    trace_bound,
)


def least(repeats: int, call: Callable[[], Any]) -> tuple[float, Any]:
    """The least time of several calls, and the last value."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        value = call()
        times.append(time.perf_counter() - start)
    return min(times), value


def solve(problem: VoteProblem, penalties: np.ndarray) -> Solution:
    """Column generation from nothing."""
    return ColumnGeneration().solve(problem, penalties)


def problem_of(name: str, directory: str, m: int) -> tuple[VoteProblem, np.ndarray]:
    """The first m of a shuffled data set in unit range, with ten degrees and Lemma 3."""
    x, y = load_two_classes(name, directory)
    chosen = np.random.default_rng(0).permutation(len(x))[:m]
    grams = KernelFamily(polynomial_kernels()).grams(minmax_scale(x)[chosen], minmax_scale(x)[chosen])
    return VoteProblem(grams, np.where(y[chosen] == 1, 1.0, -1.0)), np.array([trace_bound(K) for K in grams])


def against_the_whole_program(directory: str, repeats: int) -> None:
    problem, r = problem_of("breastcancer", directory, 546)
    for lam, beta in ((1e-2, 1e-4), (1e-3, 1e-4), (1e-4, 1e-6)):
        penalties = lam * r + beta
        fast, solution = least(repeats, partial(solve, problem, penalties))
        slow, optimum = least(repeats, partial(whole_program, problem, penalties))
        report(
            f"whole program, breastcancer m={problem.m}, ten degrees, λ={lam:g} β={beta:g}",
            f"{slow:.2f} s against {fast:.3f} s: {slow / fast:.1f} times; "
            f"difference of objectives {abs(solution.objective - optimum):.1e}",
        )


def single_solves(directory: str, repeats: int) -> None:
    for name, m in (("musk", 476), ("phishing", 1500)):
        problem, r = problem_of(name, directory, m)
        for lam in (1e-2, 1e-4, 1e-6):
            seconds, solution = least(repeats, partial(solve, problem, lam * r + 1e-6))
            report(
                f"{name} m={m}, ten degrees, λ={lam:g} β=1e-6",
                f"{seconds:.2f} s, gap {solution.gap:.1e}, {len(solution.votes)} votes",
            )


def the_path(directory: str, repeats: int) -> None:
    for name, m in (("musk", 476), ("phishing", 1473), ("breastcancer", 546)):
        problem, r = problem_of(name, directory, m)
        seconds, path = least(repeats, partial(problem_path, problem, r))
        singles = []
        for point in path:
            penalties = point.lam * r + point.beta
            singles.append(least(repeats, partial(solve, problem, penalties))[0])
        report(
            f"path of {len(path)} pairs, {name} m={m}",
            f"{seconds:.2f} s, {seconds / max(singles):.1f} times its hardest single solve ({max(singles):.2f} s); "
            f"all of them from nothing {sum(singles):.2f} s; largest gap {max(p.solution.gap for p in path):.1e}",
        )


def prediction(directory: str, repeats: int) -> None:
    x, y = load_two_classes("waveform01", directory)
    x = minmax_scale(x)
    train, test = x[:1600], np.concatenate([x[1600:]] * 10)
    vote = VotedKernelClassifier(polynomial_kernels(), lam=1e-2, beta=1e-2, num_calibration_folds=0).fit(
        train, y[:1600]
    )
    svm = SVC(kernel="poly", degree=3, gamma=1.0, coef0=1.0, C=1e-3).fit(train, y[:1600])
    fast, _ = least(5 * repeats, lambda: vote.predict(test))
    slow, _ = least(repeats, lambda: svm.predict(test))
    report(
        f"prediction of {len(test)} points, waveform01",
        f"vote {1000 * fast:.1f} ms with {vote.num_votes_} votes (accuracy {vote.score(x[1600:], y[1600:]):.3f}), "
        f"SVC {1000 * slow:.1f} ms with {svm.n_support_.sum()} support vectors "
        f"(accuracy {svm.score(x[1600:], y[1600:]):.3f}): {slow / fast:.1f} times, "
        f"{svm.n_support_.sum() / vote.num_votes_:.1f} times sparser",
    )


def report(what: str, measured: str) -> None:
    sys.stdout.write(f"{what}\n    {measured}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    for benchmark in (prediction, against_the_whole_program, single_solves, the_path):
        benchmark(options.data, options.repeats)
