"""Both solvers against the whole linear voting.program, against each other, and against the KKT conditions."""

import numpy as np
import pytest

from kernel_embed import voting
from kernel_embed.voting import ColumnGeneration, CoordinateDescent, KernelFamily, VoteProblem, Votes, VoteSolver

from . import oracle

EXACT = {"tolerance": 1e-8}
SOLVERS = ColumnGeneration(), CoordinateDescent()


def generate(problem, penalties, **options):
    return ColumnGeneration(**options).solve(problem, penalties, **EXACT)


def descend(problem, penalties, **options):
    return CoordinateDescent(**options).solve(problem, penalties)


def assert_optimal(grams, y, penalties):
    """Both solvers reach the optimum of the whole linear program."""
    optimum, _ = oracle.whole_program(grams, y, penalties)
    for solve, accuracy in ((generate, 1e-7), (descend, 1e-6)):
        solution = solve(VoteProblem(grams, y), penalties)
        assert solution.converged
        assert solution.objective == pytest.approx(optimum, abs=accuracy)
        assert solution.bound <= optimum + 1e-8 <= solution.objective + 2e-8


@pytest.mark.parametrize("lam", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("beta", [1e-2, 1e-4])
def test_both_solvers_reach_the_optimum_of_the_whole_program(sample, grams, lam, beta):
    assert_optimal(grams, sample[1], lam * np.array([voting.trace_bound(K) for K in grams]) + beta)


def test_rows_may_repeat_and_kernels_need_be_neither_symmetric_nor_positive(sample):
    x, y = sample
    noise = np.random.default_rng(0).normal(size=(120, 120))
    assert_optimal([noise, -np.abs(x[:, :1] - x[:, 1])], y, np.array([0.02, 0.01]))
    x, y = np.vstack([x, x[:40], x[:5]]), np.concatenate([y, y[:40], -y[:5]])
    assert_optimal(KernelFamily(voting.polynomial_kernels([1, 3])).grams(x, x), y, np.array([0.01, 0.02]))


def test_one_kernel_without_complexity_is_the_norm_1_svm(sample):
    """Zhu et al. (2003): min mean hinge + β‖α‖₁, which the whole program is for one kernel."""
    x, y = sample
    for K in KernelFamily([*voting.polynomial_kernels([2]), *voting.gaussian_kernels([1.0])]).grams(x, x):
        assert_optimal([K], y, np.array([0.01]))


@pytest.mark.parametrize("solve", [generate, descend])
def test_kkt_conditions_hold(sample, grams, solve):
    _, y = sample
    m = len(y)
    penalties = 0.003 * np.array([voting.trace_bound(K) for K in grams]) + 1e-3
    problem = VoteProblem(grams, y)
    solution = solve(problem, penalties)
    u, votes = solution.u, solution.votes
    z = problem.margins(votes)
    assert (u >= 0).all()
    assert (u <= 1 / m + 1e-15).all()
    # Complementary slackness of the hinge: points beyond the margin carry no weight, points within carry all of it.
    assert np.abs(u[z > 1 + 1e-4]).max(initial=0.0) <= 1e-6
    assert np.abs(u[z < 1 - 1e-4] - 1 / m).max(initial=0.0) <= 1e-6
    # Stationarity: |hᵀu| ≤ Λ for every function, with equality and the sign of α where it votes.
    prices = np.stack(problem.prices(u)) / penalties[:, None]
    assert np.abs(prices).max() <= 1 + 1e-5
    np.testing.assert_allclose(prices[votes.kernel, votes.point], np.sign(votes.weight), atol=1e-4)


def test_a_solve_starts_from_the_nearest_before_it_not_from_the_last(sample, grams):
    penalties = [np.full(5, penalty) for penalty in (1e-1, 1e-4, 1.001e-1, 1.001e-4)]
    heavy, light, *near = ColumnGeneration().solve_all(VoteProblem(grams, sample[1]), penalties, **EXACT)
    assert min(heavy.num_rounds, light.num_rounds) > 1
    assert [solution.num_rounds for solution in near] == [1, 1]


def test_dropped_points_do_not_change_the_solution(sample, grams, monkeypatch):
    columns, objectives = {}, {}
    for beyond in (0.0, 1.0, np.inf):
        monkeypatch.setattr(voting.program, "EXCESS_MARGIN", beyond)
        problem, history = VoteProblem(grams, sample[1]), []
        for penalty in (1e-1, 1e-2, 1e-3, 1e-4, 1e-2):
            ColumnGeneration().solve_next(history, problem, np.full(5, penalty), **EXACT)
        objectives[beyond] = [finished.solution.objective for finished in history]
        columns[beyond] = len(history[-2].warm_start.active)
    assert columns[0.0] <= columns[1.0] < 0.7 * columns[np.inf] == 0.7 * 120
    for beyond in (0.0, 1.0):
        np.testing.assert_allclose(objectives[beyond], objectives[np.inf], rtol=0, atol=1e-8)


def test_columns_of_very_different_scale(sample):
    x, y = sample
    grams = KernelFamily(voting.polynomial_kernels([1, 5, 10])).grams(30 * x, 30 * x)
    assert max(np.abs(K).max() for K in grams) > 1e30
    penalties = 1e-3 * np.array([voting.trace_bound(K) for K in grams]) + 1e-4
    solution = generate(VoteProblem(grams, y), penalties)
    assert solution.converged
    assert solution.objective == pytest.approx(oracle.whole_program(grams, y, penalties)[0], abs=1e-6)


def test_large_penalties_give_an_empty_vote_and_one_label_a_correct_one(sample, grams):
    for solve in (generate, descend):
        solution = solve(VoteProblem(grams, sample[1]), np.full(5, 1e9))
        assert (len(solution.votes), solution.objective, solution.converged) == (0, 1.0, True)
    solution = generate(VoteProblem(grams, np.ones(120)), np.full(5, 1e-3))
    assert solution.converged
    assert (VoteProblem(grams, np.ones(120)).margins(solution.votes) > 0).all()


def test_descent_stores_only_what_votes():
    """A stream of 1200 decision stumps, of which only a few are stored at a time."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 2))
    y = np.where(x[:, 0] + x[:, 1] > 0, 1.0, -1.0)
    directions = rng.normal(size=(30, 2))

    def stream():
        for t, direction in enumerate(directions):
            cuts = np.linspace(-2, 2, 40)
            yield [(t, c) for c in range(40)], y * np.sign(x @ direction - cuts[:, None]), np.full(40, 0.05)

    descent = CoordinateDescent().solve_stream(stream, m=80)
    assert descent.converged
    assert descent.gap <= 1e-7
    assert len(descent.weights) < 80
    assert len(descent._functions) < 120
    h = np.concatenate([block[1] for block in stream()])
    optimum, _ = oracle.whole_program([(y[:, None] * h.T)], y, np.array([0.05]))
    assert descent.objective == pytest.approx(optimum, abs=1e-6)


def test_literal_coordinate_descent_stops_short(sample):
    """Why the hinge is rounded: at its kinks no single coordinate improves, yet several together do."""
    x, y = sample[0][:30], sample[1][:30]
    (K,) = KernelFamily(voting.polynomial_kernels([3])).grams(x, x)
    h, penalty = K * y, 1e-3  # row j is the base function h_j
    alpha, z = np.zeros(30), np.zeros(30)
    moved = True
    while moved:
        moved = False
        for j in range(30):
            # F is piecewise linear along a coordinate, so its minimum lies on a break point.
            steps = np.concatenate([[0.0, -alpha[j]], (1 - z) / h[j]])
            loss = np.maximum(0, 1 - z - steps[:, None] * h[j]).mean(axis=1) + penalty * np.abs(alpha[j] + steps)
            if loss.min() < loss[0] - 1e-13:
                step = steps[loss.argmin()]
                alpha[j] += step
                z += step * h[j]
                moved = True
    stuck = np.maximum(0, 1 - z).mean() + penalty * np.abs(alpha).sum()
    solution = descend(VoteProblem([K], y), np.array([penalty]))
    assert solution.converged
    assert stuck > solution.objective + 1e-3


def test_other_labels_share_the_grams(sample, grams):
    problem = VoteProblem(grams, sample[1])
    other = problem.with_labels(-sample[1])
    assert other.grams is problem.grams
    assert (problem.y == sample[1]).all()
    votes = Votes(np.array([0, 3]), np.array([5, 7]), np.array([0.5, -0.1]))
    np.testing.assert_array_equal(other.margins(votes), -problem.margins(votes))


def test_a_stopped_solver_reports_its_gap(sample, grams):
    _, y = sample
    penalties = 1e-4 * np.array([voting.trace_bound(K) for K in grams]) + 1e-6
    optimum, _ = oracle.whole_program(grams, y, penalties)
    for solve in (generate, descend):
        stopped = solve(VoteProblem(grams, y), penalties, max_rounds=2)
        assert not stopped.converged
        assert stopped.bound <= optimum <= stopped.objective


def test_a_program_that_runs_out_of_iterations_ends_the_solve(sample, grams, monkeypatch):
    monkeypatch.setattr(voting.program, "MAX_ITERATIONS", 0)
    solution = generate(VoteProblem(grams, sample[1]), np.full(len(grams), 1e-3))
    assert not solution.converged
    assert solution.num_rounds <= 2
    assert solution.bound <= solution.objective <= 1.0  # F(0): never worse than no votes


@pytest.mark.parametrize("tolerance", [0.0, -1e-7, np.nan, np.inf])
def test_unreachable_tolerances_are_rejected(sample, grams, tolerance):
    problem, penalties = VoteProblem(grams, sample[1]), np.full(5, 1e-2)
    calls = [(solver.solve, problem, penalties) for solver in SOLVERS]
    calls += [(solver.solve_all, problem, [penalties]) for solver in SOLVERS]
    for call, *arguments in (*calls, (SOLVERS[1].solve_stream, lambda: [], 3), (voting.vote_path, None, *sample)):
        with pytest.raises(ValueError, match="tolerance must be positive and finite"):
            call(*arguments, tolerance=tolerance)


@pytest.mark.parametrize(
    ("message", "call"),
    [
        *((r"Every penalty .* must be positive", lambda p, solver=s: solver.solve(p, np.zeros(5))) for s in SOLVERS),
        (r"Every penalty .* must be positive", lambda p: generate(p, np.array([1.0, 1.0, 0.0, 1.0, 1.0]))),
        (r"Every penalty .* must be positive", lambda p: descend(p, np.full(5, np.nan))),
        (r"labels −1 and \+1", lambda p: VoteProblem(p.grams, np.arange(120.0))),
        ("Gram 0 must have 3 rows", lambda p: VoteProblem(p.grams, np.array([1.0, -1.0, 1.0]))),
        ("grams is empty", lambda p: VoteProblem([], np.array([1.0, -1.0]))),
        ("y must have 120 labels", lambda p: p.with_labels(np.ones(3))),
    ],
)
def test_bad_input(sample, grams, message, call):
    with pytest.raises(ValueError, match=message):
        call(VoteProblem(grams, sample[1]))


def test_descent_stops_at_rounding_errors(sample, grams):
    """A gap of 1e-300 is out of reach: the search says so after a few rounds, not after two thousand."""
    problem, penalties = VoteProblem([K[:24, :24] for K in grams[:3]], sample[1][:24]), np.full(3, 1e-2)
    solution = CoordinateDescent().solve(problem, penalties, tolerance=1e-300)
    assert solution.gap <= 1e-9
    assert solution.converged == (solution.gap <= 1e-300)
    assert solution.num_rounds < 100


def test_solvers_are_values(sample, grams):
    """Two of the same settings are one; the settings are checked; one object serves any number of problems."""
    assert ColumnGeneration(max_rounds=7) == ColumnGeneration(7)
    assert ColumnGeneration() != CoordinateDescent()
    for solver in (ColumnGeneration, CoordinateDescent):
        with pytest.raises(ValueError, match="max_rounds of at least 1"):
            solver(max_rounds=0)
        with pytest.raises(AttributeError):
            solver().max_rounds = 3
    with pytest.raises(TypeError, match="abstract"):
        VoteSolver()
    problem, penalties = VoteProblem(grams, sample[1]), np.full(5, 1e-3)
    cold, again = (ColumnGeneration().solve(problem, penalties) for _ in range(2))
    assert cold.num_rounds == again.num_rounds > 1  # two solves share nothing
    warm = ColumnGeneration().solve(problem, penalties, start=cold.votes)  # which only saves rounds
    assert warm.num_rounds == 1
    assert warm.objective == pytest.approx(cold.objective, abs=2e-7)
