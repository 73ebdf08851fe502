"""A vote by column generation, against the whole linear program and against multiple kernel learning of MKLpy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import minmax_scale

from ...voting import ColumnGeneration, KernelFamily, VoteProblem, polynomial_kernels, trace_bound
from .cases import OURS, Call, Case, Scope

PART = "votes over ten polynomial kernels"
LAM, BETA = 1e-3, 1e-4


def problem(n: int) -> tuple[VoteProblem, NDArray[np.float64]]:
    """The first rows of a shuffled data set that scikit-learn ships, in unit range, and the penalties."""
    x, y = load_breast_cancer(return_X_y=True)
    chosen = np.random.default_rng(0).permutation(len(x))[:n]
    x = minmax_scale(x)[chosen]
    grams = KernelFamily(polynomial_kernels()).grams(x, x)
    penalties = np.array([LAM * trace_bound(K) + BETA for K in grams])
    return VoteProblem(grams, np.where(y[chosen] == 1, 1.0, -1.0)), penalties


def whole_program(problem: VoteProblem, penalties: NDArray[np.float64]) -> float:
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


def _ours(n: int) -> Call:
    votes, penalties = problem(n)
    return lambda: {"objective": ColumnGeneration().solve(votes, penalties).objective}


def _whole(n: int) -> Call:
    votes, penalties = problem(n)
    return lambda: {"objective": whole_program(votes, penalties)}


def _mklpy(n: int) -> Call:
    import torch
    from MKLpy.algorithms import EasyMKL

    votes, _ = problem(n)
    grams = [torch.as_tensor(K / np.sqrt(np.outer(np.diag(K), np.diag(K)))) for K in votes.grams]
    return lambda: EasyMKL(lam=0.1).fit(grams, votes.y)


def cases(scope: Scope) -> Iterator[Case]:
    """A vote by column generation, beside the whole linear program and EasyMKL."""
    n = 100 if scope.quick else 500
    yield Case(PART, OURS, n, partial(_ours, n), repeats=3)
    yield Case(PART, "the whole program (HiGHS)", n, partial(_whole, n))
    yield Case(PART, "MKLpy, EasyMKL", n, partial(_mklpy, n), package="MKLpy")
