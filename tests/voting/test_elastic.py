"""The elastic penalty: its optimum by another method, its dual bound, and bad settings."""

import numpy as np
import pytest

from kernel_embed import VotedKernelClassifier
from kernel_embed.voting import ColumnGeneration, CoordinateDescent, VoteProblem, cross_validate_votes, trace_bound
from kernel_embed.voting.problem import dual_bound

from . import oracle


@pytest.fixture
def penalties(grams):
    return 0.003 * np.array([trace_bound(K) for K in grams]) + 1e-3


@pytest.mark.parametrize("elastic", [10.0, 1000.0])
def test_descent_reaches_the_optimum_of_the_dual(sample, grams, penalties, elastic):
    _, y = sample
    problem = VoteProblem(grams, y, elastic)
    solution = CoordinateDescent().solve(problem, penalties)
    optimum = oracle.elastic_program(grams, y, penalties, elastic)
    assert solution.converged
    assert solution.bound - 1e-9 <= optimum + 1e-7
    assert solution.objective == pytest.approx(optimum, abs=1e-6)
    assert solution.objective == pytest.approx(problem.objective(solution.votes, penalties), abs=1e-9)


@pytest.mark.parametrize("elastic", [0.0, 50.0])
def test_objective_is_that_of_the_loops_and_adds_the_squares(sample, grams, penalties, elastic):
    _, y = sample
    votes = CoordinateDescent().solve(VoteProblem(grams, y, 50.0), penalties).votes
    plain = oracle.objective_by_loops(grams, y, votes.kernel, votes.point, votes.weight, penalties)
    squares = sum((penalties[k] * a) ** 2 for k, a in zip(votes.kernel, votes.weight, strict=True))
    expected = pytest.approx(plain + elastic / 2 * squares, rel=1e-12)
    assert VoteProblem(grams, y, elastic).objective(votes, penalties) == expected


def test_votes_satisfy_the_kkt_conditions(sample, grams, penalties):
    """|hᵀu| / Λ = 1 + μΛ|α| where a function votes, and at most 1 where it does not."""
    _, y = sample
    problem = VoteProblem(grams, y, 1000.0)
    solution = CoordinateDescent().solve(problem, penalties)
    prices = np.stack(problem.prices(solution.u)) / penalties[:, None]
    votes = solution.votes
    slopes = np.zeros_like(prices)
    slopes[votes.kernel, votes.point] = 1000.0 * penalties[votes.kernel] * np.abs(votes.weight)
    assert np.abs(prices[votes.kernel, votes.point] - np.sign(votes.weight)).max() > 0.1
    assert (np.abs(prices) <= 1.0 + slopes + 1e-4).all()
    expected = np.sign(votes.weight) * (1.0 + slopes[votes.kernel, votes.point])
    np.testing.assert_allclose(prices[votes.kernel, votes.point], expected, atol=1e-3)


@pytest.mark.parametrize("elastic", [0.0, 1e-12, 0.3, 5.0])
def test_bound_is_the_best_along_the_ray(elastic):
    rng = np.random.default_rng(3)
    v, total = rng.uniform(0.0, 4.0, size=40), 0.7
    t = np.linspace(0.0, 1.0, 200_001)
    excess = sum(np.maximum(t * each - 1.0, 0.0) ** 2 for each in v)
    best = (t * total - excess / (2.0 * elastic)).max() if elastic > 1e-09 else total / v.max()
    assert dual_bound(total, v, elastic) == pytest.approx(best, abs=1e-5)
    assert dual_bound(total, v[v <= 1.0], elastic) == total


def test_more_functions_share_a_vote(sample):
    x, y = sample
    plain = VotedKernelClassifier(num_calibration_folds=0).fit(x, y)
    shared = VotedKernelClassifier(elastic=1000.0, num_calibration_folds=0).fit(x, y)
    assert shared.num_votes_ > plain.num_votes_
    assert shared.gap_ <= 1e-7
    assert shared.objective_ > plain.objective_


def test_settings(sample, grams, penalties):
    x, y = sample
    with pytest.raises(
        ValueError, match=r"linear programs only, elastic = 0; this problem has elastic = 1\. Use Coord"
    ):
        ColumnGeneration().solve(VoteProblem(grams, y, 1.0), penalties)
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="elastic must be finite and at least 0"):
            VotedKernelClassifier(elastic=bad).fit(x, y)
    with pytest.raises(TypeError, match="Expected elastic as a number"):
        VoteProblem(grams, y, "1")
    result = cross_validate_votes(None, x, y, lams=[1e-2], betas=[1e-3], num_folds=3, elastic=10.0)
    assert result.max_gap <= 1e-7
