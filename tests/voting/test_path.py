"""The path and the paper's cross validation."""

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
