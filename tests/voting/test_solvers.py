"""Both solvers against the whole linear voting.program, against each other, and against the KKT conditions."""

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from kernel_embed import VotedKernelClassifier, voting
from kernel_embed.splits import random_folds
from kernel_embed.voting import (
    ColumnGeneration,
    CoordinateDescent,
    KernelFamily,
    VoteProblem,
    Votes,
    VoteSolver,
    cross_validate_votes,
    trace_bound,
)
from kernel_embed.voting.problem import dual_bound

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
    """The settings are checked; one object serves any number of problems."""
    for solver in (ColumnGeneration, CoordinateDescent):
        with pytest.raises(ValueError, match="max_rounds of at least 1"):
            solver(max_rounds=0)
    with pytest.raises(TypeError, match="abstract"):
        VoteSolver()
    problem, penalties = VoteProblem(grams, sample[1]), np.full(5, 1e-3)
    cold, again = (ColumnGeneration().solve(problem, penalties) for _ in range(2))
    assert cold.num_rounds == again.num_rounds > 1  # two solves share nothing
    warm = ColumnGeneration().solve(problem, penalties, start=cold.votes)  # which only saves rounds
    assert warm.num_rounds == 1
    assert warm.objective == pytest.approx(cold.objective, abs=2e-7)


# --- the elastic penalty ----------------------------------------------------------------------------------------------


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


# --- paths and cross validation ---------------------------------------------------------------------------------------


def test_the_path_is_every_single_solve(sample, grams):
    _, y = sample
    r = np.array([voting.trace_bound(K) for K in grams])
    problem = VoteProblem(grams, y)
    path = voting.problem_path(problem, r, lams=[1e-1, 1e-3, 1e-2], betas=[1e-1, 1e-4])
    assert [(point.lam, point.beta) for point in path] == [(a, b) for a in (1e-1, 1e-3, 1e-2) for b in (1e-1, 1e-4)]
    for point in path:
        single = ColumnGeneration().solve(problem, point.lam * r + point.beta, tolerance=1e-8)
        assert point.solution.objective == pytest.approx(single.objective, abs=2e-7)


def test_the_path_of_plain_points_is_that_of_their_grams(sample, grams):
    x, y = sample
    grid = {"lams": [1e-1, 1e-2], "betas": [1e-3]}
    r = np.array([voting.trace_bound(K) for K in grams])
    expected = voting.problem_path(VoteProblem(grams, y), r, **grid)
    labels = np.where(y > 0, "yes", "no")  # the second class in order is the positive one
    for points, solver in ((x, None), (x.tolist(), CoordinateDescent())):
        path = voting.vote_path(voting.polynomial_kernels(range(1, 6)), points, labels, solver=solver, **grid)
        for point, other in zip(path, expected, strict=True):
            assert (point.lam, point.beta) == (other.lam, other.beta)
            assert point.solution.objective == pytest.approx(other.solution.objective, abs=2e-7)
    local = voting.vote_path(None, x, labels, lams=[1e-3], betas=[1e-3], complexity="local")
    assert len(local[0].solution.penalties) == 10


def test_cross_validation_is_the_paper_s(sample):
    """Test fold i, validation fold i + 1, in a loop over classifiers."""
    x, y = sample
    lams, betas, kernels = [1e-2, 1e-4], [1e-3], voting.polynomial_kernels([1, 3])
    result = voting.cross_validate_votes(kernels, x, y, lams=lams, betas=betas, scaler=StandardScaler(), seed=3)
    parts = random_folds(len(x), 5, 3)
    for i in range(5):
        others = [parts[i], parts[(i + 1) % 5]]
        train = np.setdiff1d(np.arange(len(x)), np.concatenate(others))
        scaler = StandardScaler().fit(x[train])
        for a, lam in enumerate(lams):
            vote = VotedKernelClassifier(kernels, lam=lam, beta=betas[0], num_calibration_folds=0)
            vote.fit(scaler.transform(x[train]), y[train])
            errors = [1 - vote.score(scaler.transform(x[part]), y[part]) for part in others]
            assert result.test_errors[i, a, 0] == pytest.approx(errors[0])
            assert result.validation_errors[i, a, 0] == pytest.approx(errors[1])
            assert result.num_votes[i, a, 0] == vote.num_votes_
    mean = result.validation_errors.mean(axis=0)
    assert result.validation_error == mean.min()
    assert result.error == result.test_errors.mean(axis=0)[result.best]
    assert result.max_gap <= 1e-7


def test_ties_go_to_the_fewest_votes(sample):
    x, y = sample
    result = voting.cross_validate_votes(voting.polynomial_kernels([1]), x, y, lams=[0.0], betas=[1e-2, 1e-3, 1e-4])
    tied = np.isclose(result.validation_errors.mean(axis=0), result.validation_error)
    assert result.votes == result.num_votes.mean(axis=0)[tied].min()


def test_more_classes_and_folds_of_one_class():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(30, 2)) + 4 * c for c in range(3)])
    y = np.repeat(["a", "b", "c"], 30)
    assert voting.cross_validate_votes(voting.polynomial_kernels([1, 2]), x, y, lams=[1e-3], betas=[1e-3]).error < 0.1
    # Every point of the second class in one fold: its training part has one class only, and predicts it.
    parts = random_folds(60, 5, 0)
    labels = np.zeros(60, dtype=int)
    labels[parts[2]] = 1
    x = rng.normal(size=(60, 2)) + 6 * labels[:, None]
    result = voting.cross_validate_votes(voting.polynomial_kernels([1]), x, labels, lams=[1e-3], betas=[1e-3], seed=0)
    assert result.test_errors[2, 0, 0] == 1.0
    assert np.isfinite(result.validation_errors).all()


def test_random_folds_are_seeded_and_a_user_may_give_the_partition(sample):
    x, y = sample

    def errors(**settings):
        return voting.cross_validate_votes(
            voting.polynomial_kernels([1]), x, y, lams=[1e-2], betas=[1e-2], **settings
        ).test_errors

    np.testing.assert_array_equal(errors(seed=0), errors(seed=0))
    assert not np.array_equal(errors(seed=0), errors(seed=1))
    np.testing.assert_array_equal(errors(partition=random_folds(len(x), 5, 1)), errors(seed=1))
    assert errors(num_folds=3).shape == (3, 1, 1)
    assert errors(partition=[test for _, test in StratifiedKFold(4).split(x, y)]).shape == (4, 1, 1)


def test_bytes_do_not_overflow():
    """Images of eight bits: their products need more."""
    x = np.random.default_rng(0).integers(0, 255, size=(40, 3), dtype=np.uint8)
    y = x[:, 0] > 127
    bytewise, exact = (
        voting.vote_path(voting.polynomial_kernels([2]), z, y, lams=[1e-3], betas=[1e-3]) for z in (x, x.astype(float))
    )
    assert bytewise[0].solution.objective == exact[0].solution.objective


def test_bad_input_of_paths(sample):
    x, y = sample
    both, folds = (voting.cross_validate_votes, voting.vote_path), (voting.cross_validate_votes,)
    for message, calls, points, labels, settings in (
        ("num_folds must be between 3 and", folds, x, y, {"num_folds": 2}),
        ("each of the rows 0 … 119", folds, x, y, {"partition": random_folds(119, 5)}),
        ("at least two classes", both, x, np.zeros(120), {}),
        ("120 labels, one per point", both, x, y[:-1], {}),
        ("penalty .* must be positive", both, x, y, {"lams": [0.0], "betas": [0.0]}),
        (r"x must have the shape \(n, d\)", both, x[:, 0], y, {}),
        ("x has NaN or infinite values", both, np.where(x > 1, np.nan, x), y, {}),
        ("two classes; it has 3", (voting.vote_path,), x, np.arange(120) % 3, {}),
    ):
        for call in calls:
            with pytest.raises(ValueError, match=message):
                call(None, points, labels, **settings)
