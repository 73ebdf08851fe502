"""On the paper's own data: the sizes it names, and the table as an experiment."""

import json
import os
import warnings

import numpy as np
import pytest
from sklearn.preprocessing import minmax_scale, normalize

from kernel_embed.lab.papers import Settings
from kernel_embed.lab.papers.cortes2015.cells import load_two_classes
from kernel_embed.lab.papers.cortes2015.voted import VotedTable
from kernel_embed.lab.papers.cortes2015.voted_table import METHODS
from kernel_embed.results import Results
from kernel_embed.voting import (
    ColumnGeneration,
    KernelFamily,
    VoteProblem,
    gaussian_kernels,
    polynomial_kernels,
    trace_bound,
    vote_path,
)
from kernel_embed.voting.folds import split_folds

from ...voting import oracle

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not os.environ.get("KERNEL_EMBED_DATA"), reason="KERNEL_EMBED_DATA is not set"),
]


def problem_of(name, m):
    x, y = load_two_classes(name, None)
    chosen = np.random.default_rng(0).permutation(len(x))[:m]
    x = minmax_scale(x)[chosen]
    return VoteProblem(KernelFamily(polynomial_kernels()).grams(x, x), np.where(y[chosen] == 1, 1.0, -1.0))


@pytest.mark.parametrize(("name", "m"), [("musk", 476), ("phishing", 1500)])
def test_ten_degrees_solve_without_numerical_warnings(name, m):
    problem = problem_of(name, m)
    penalties = 1e-4 * np.array([trace_bound(K) for K in problem.grams]) + 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solution = ColumnGeneration().solve(problem, penalties, tolerance=1e-8)
    assert solution.converged
    assert solution.gap <= 1e-8


def test_column_generation_is_the_whole_program_with_ten_degrees():
    problem = problem_of("breastcancer", 250)
    penalties = 1e-3 * np.array([trace_bound(K) for K in problem.grams]) + 1e-4
    optimum, _ = oracle.whole_program(problem.grams, problem.y, penalties)
    assert ColumnGeneration().solve(problem, penalties, tolerance=1e-8).objective == pytest.approx(optimum, abs=1e-6)


def test_the_table_runs_resumes_and_is_flat():
    table = VotedTable(families=("polynomial",), scalings=("unit norm",))
    settings = {"quick": True, "datasets": ("vertebral",)}
    results = Results(None, table.key)
    table.run(results, Settings(**settings, methods=("VKR trace",)))
    (first,) = results.records
    table.run(results, Settings(**settings))
    assert results.records[0] is first, "a finished cell is kept and not run again"
    assert sorted(result["method"] for result in results.records) == sorted(METHODS)
    for result in results.records:
        assert all(
            isinstance(value, str | int | float | bool | None) for value in json.loads(json.dumps(result)).values()
        )
        assert 5 < result["error"] < 35
        assert result["votes"] > 0
    assert first["printed_error"] == 17.10


def test_two_classes_are_needed():
    assert len(load_two_classes("waveform01", None)[0]) == 3304
    with pytest.raises(ValueError, match="Expected two classes in wine, got 3"):
        load_two_classes("wine", None)


@pytest.mark.parametrize(
    ("name", "scale", "parts"), [("vertebral", minmax_scale, slice(2, 5)), ("diabetes", normalize, slice(1, 4))]
)
def test_a_program_that_highs_is_unsure_of_is_not_the_end(name, scale, parts):
    """At γ = 10⁻⁶ all columns are nearly constant, and HiGHS gives up a program of two rows as unknown."""
    x, y = load_two_classes(name, None)
    chosen = np.concatenate(split_folds(len(x), 5, 0)[parts])
    path = vote_path(gaussian_kernels(), scale(x[chosen]), y[chosen], tolerance=1e-6)
    assert max(point.solution.gap for point in path) <= 1e-6
