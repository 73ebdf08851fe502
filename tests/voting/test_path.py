"""The path, the paper's cross validation, and the theorems' right-hand sides."""

import math

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler

from kernel_embed import VotedKernelClassifier, voting
from kernel_embed.splits import random_folds
from kernel_embed.voting import ColumnGeneration, CoordinateDescent, VoteProblem


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


def test_bad_input(sample):
    x, y = sample
    both, folds = (voting.cross_validate_votes, voting.vote_path), (voting.cross_validate_votes,)
    for message, calls, points, labels, settings in (
        ("num_folds must be between 3 and", folds, x, y, {"num_folds": 2}),
        ("split the rows 0 … 119", folds, x, y, {"partition": random_folds(119, 5)}),
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


def test_theorem_1_by_hand():
    margins = np.array([0.1, 0.2, 0.5, -0.3] * 50)
    m, p, rho, delta, r = 200, 5, 0.2, 1.0 - 0.9, 0.03
    n = math.ceil(4 / rho**2 * math.log(rho**2 * m / math.log(p)))
    expected = 0.75 + 4 / rho * r + 2 / rho * math.sqrt(math.log(p) / m)
    expected += math.sqrt(n * math.log(p) / m + math.log(2 / delta) / (2 * m))
    result = voting.theorem_1(margins, r, p, rho, confidence=0.9)
    assert result.value == pytest.approx(expected, rel=1e-12)
    assert result.is_vacuous
    assert result.confidence == 0.9


def test_theorem_2_by_hand_and_its_faster_rate():
    m, p, rho, delta, r, K = 10**6, 5, 0.5, 1.0 - 0.9, 1e-4, 3.0
    n = math.ceil(8 / rho**2 * math.log(rho**2 * (1 + K / (K - 1)) * m / (40 * K * math.log(p))))
    expected = 6 * K / rho * r + 40 * K / rho**2 * math.log(p) / m + 5 * K * math.log(2 / delta) / m
    expected += 5 * K * n * math.log(p) / m
    assert voting.theorem_2(np.ones(m), r, p, rho, 0.9, K).value == pytest.approx(expected, rel=1e-12)
    # The terms of Theorem 2 fall as 1/m, those of Theorem 1 as its root.
    first = [voting.theorem_1(np.ones(size), 0.0, p, rho).confidence_term for size in (10**5, 10**7)]
    second = [voting.theorem_2(np.ones(size), 0.0, p, rho).confidence_term for size in (10**5, 10**7)]
    assert 5 < first[0] / first[1] < 20
    assert 40 < second[0] / second[1] < 120
    for message, theorem, *arguments in (
        ("K > 1", voting.theorem_2, np.ones(10), 0.1, 2, 0.1, 0.95, 1.0),
        ("rho must be positive", voting.theorem_1, np.ones(10), 0.1, 2, 0.0),
        ("between 0 and 1", voting.theorem_1, np.ones(10), 0.1, 2, 0.1, 1.0),
        ("at least one entry", voting.theorem_1, np.ones(0), 0.1, 2, 0.1),
    ):
        with pytest.raises(ValueError, match=message):
            theorem(*arguments)
