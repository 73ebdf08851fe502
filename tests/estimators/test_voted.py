"""The scikit-learn front end."""

import dataclasses
import pickle

import gpytorch
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.preprocessing import minmax_scale
from sklearn.utils.estimator_checks import parametrize_with_checks

from kernel_embed import VotedKernelClassifier, voting
from kernel_embed.voting import ColumnGeneration, CoordinateDescent, KernelFamily, VoteSolver
from kernel_embed.voting.predictions import fit_temperature

from ..voting import oracle


@parametrize_with_checks([VotedKernelClassifier()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_objective_and_gap_are_those_of_eq_1(sample):
    x, y = sample
    vote = VotedKernelClassifier(voting.polynomial_kernels(range(1, 5)), lam=0.01, beta=0.001).fit(x, y)
    grams = KernelFamily(voting.polynomial_kernels(range(1, 5))).grams(x, x)
    optimum, _ = oracle.whole_program(grams, y, vote.penalties_)
    assert vote.objective_ == pytest.approx(optimum, abs=1e-7)
    assert 0 <= vote.gap_ <= 1e-7
    assert vote.bound_ <= optimum + 1e-9
    assert vote.num_votes_ == sum(row["num_votes"] for row in vote.report())
    hinge = np.maximum(0, 1 - y * vote.decision_function(x)).mean()
    norm = sum(row["penalty"] * row["weight"] for row in vote.report())
    assert vote.objective_ == pytest.approx(hinge + norm, rel=1e-9)
    np.testing.assert_allclose(vote.margins_[0], y * vote.decision_function(x), atol=1e-9)


@pytest.mark.parametrize("complexity", ["trace", "dimension", "local", "monte_carlo", np.linspace(1, 2, 3)])
def test_both_solvers_agree_for_every_complexity(sample, complexity):
    x, y = sample
    options = {"kernels": voting.polynomial_kernels([1, 2, 3]), "lam": 1e-3, "beta": 1e-3, "complexity": complexity}
    first = VotedKernelClassifier(**options, num_calibration_folds=0).fit(x, y)
    second = VotedKernelClassifier(**options, solver=CoordinateDescent(), num_calibration_folds=0).fit(x, y)
    assert first.objective_ == pytest.approx(second.objective_, abs=1e-6)
    np.testing.assert_allclose(first.decision_function(x), second.decision_function(x), atol=1e-2)


def test_only_points_with_votes_are_kept_and_evaluated(sample):
    x, y = sample
    calls = []

    def counted(kernel):
        return lambda a, b: calls.append(len(b)) or kernel(a @ b.T)

    linear, cubic, never = (counted(k) for k in (lambda p: p + 1, lambda p: (p + 1) ** 3, np.zeros_like))
    vote = VotedKernelClassifier([linear, cubic, never], lam=0.01, beta=0.001, num_calibration_folds=0).fit(x, y)
    calls.clear()
    f = vote.decision_function(x[:7])
    assert sum(calls) == vote.num_votes_
    assert len(calls) == 2
    np.testing.assert_array_equal(vote.vote_.points, x[vote.support_])
    assert len(vote.support_) <= vote.num_votes_ < len(x)
    pickled = len(pickle.dumps(VotedKernelClassifier(num_calibration_folds=0).fit(x, y).vote_.points))
    assert pickled < len(pickle.dumps(x))
    g = sum(
        kernel(x[:7], vote.vote_.points) @ weights[:, 0]
        for kernel, weights in zip([linear, cubic], vote.vote_.weights, strict=False)
    )
    np.testing.assert_allclose(f, g, rtol=1e-9)


def test_prediction_in_blocks_is_prediction_at_once(sample, monkeypatch):
    x, y = sample
    vote = VotedKernelClassifier([*voting.gaussian_kernels([1.0]), gpytorch.kernels.MaternKernel()]).fit(x, y)
    whole = vote.decision_function(x)
    monkeypatch.setattr("kernel_embed.voting.predictions.BATCH_SIZE", 7)
    np.testing.assert_allclose(vote.decision_function(x), whole, atol=1e-12)


def test_kernels_given_are_not_changed_and_any_gpytorch_kernel_serves(sample):
    x, y = sample
    kernels = [
        gpytorch.kernels.MaternKernel(nu=0.5),
        gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2)),
        gpytorch.kernels.RBFKernel(active_dims=[1]),
        gpytorch.kernels.PolynomialKernel(power=2, active_dims=[0]),
    ]
    vote = VotedKernelClassifier(kernels).fit(x, y)
    assert vote.score(x, y) > 0.85
    assert next(kernels[0].parameters()).dtype.is_floating_point
    assert str(next(kernels[0].parameters()).dtype) == "torch.float32"
    assert clone(vote).fit(x, y).objective_ == pytest.approx(vote.objective_)
    for kernel, K in zip(vote.family_.kernels, vote.family_.grams(x, x[:9]), strict=True):
        import torch

        expected = kernel(torch.from_numpy(x), torch.from_numpy(x[:9])).to_dense().detach().numpy()
        np.testing.assert_allclose(K, expected, atol=1e-9)


def test_strings_vote_by_edit_distance():
    rng = np.random.default_rng(0)

    def word(letters):
        return "".join(rng.choice(list(letters), size=rng.integers(4, 9)))

    x = np.array([word("aab") for _ in range(30)] + [word("bba") for _ in range(30)])
    y = np.array(["a"] * 30 + ["b"] * 30)
    for complexity in ("trace", "monte_carlo"):
        vote = VotedKernelClassifier([oracle.edit_kernel], lam=1e-3, beta=1e-3, complexity=complexity).fit(x, y)
        assert vote.score(x, y) > 0.8
        assert vote.predict(list(x[:3])).shape == (3,)
    assert VotedKernelClassifier([oracle.edit_kernel]).fit(x, y).rules_ == ["Massart"]


def test_more_classes_share_the_grams_and_have_probabilities():
    x, y = load_iris(return_X_y=True)
    x = minmax_scale(x)
    train, test = np.arange(0, 150, 2), np.arange(1, 150, 2)
    vote = VotedKernelClassifier(voting.polynomial_kernels(range(1, 6)), lam=1e-3).fit(x[train], y[train])
    assert vote.decision_function(x).shape == (150, 3)
    assert vote.score(x[test], y[test]) > 0.9
    assert np.shape(vote.objective_) == np.shape(vote.gap_) == (3,)
    probabilities = vote.predict_proba(x[test])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert log_loss(y[test], probabilities) < 0.3
    assert len(vote.guarantee()) == 3


def test_probabilities_are_calibrated():
    x, labels = make_moons(600, noise=0.35, random_state=0)
    vote = VotedKernelClassifier(voting.polynomial_kernels(range(1, 4)), lam=1e-3).fit(x[:300], labels[:300])
    p = vote.predict_proba(x[300:])[:, 1]
    assert log_loss(labels[300:], p) < 0.4
    high = p > 0.8
    assert abs(labels[300:][high].mean() - p[high].mean()) < 0.1
    without = VotedKernelClassifier(num_calibration_folds=0).fit(x, labels)
    with pytest.raises(AttributeError, match="num_calibration_folds=0"):
        without.predict_proba(x)


def test_user_solvers_and_random_states(sample):
    x, y = sample

    @dataclasses.dataclass(frozen=True)
    class Counting(VoteSolver):
        """A solver from outside the package."""

        starts: list

        def solve(self, problem, penalties, *, tolerance=1e-7, start=None):
            self.starts.append(start)
            return ColumnGeneration().solve(problem, penalties, tolerance=tolerance, start=start)

    own = VotedKernelClassifier(
        voting.polynomial_kernels([1, 2]), solver=Counting([]), random_state=np.random.RandomState(0)
    )
    own.fit(x, y)
    assert [start is None for start in own.solver.starts] == [True, False, False, False]
    again = VotedKernelClassifier(voting.polynomial_kernels([1, 2]), random_state=np.random.RandomState(0)).fit(x, y)
    assert own.objective_ == again.objective_
    assert own.temperature_ == again.temperature_


def test_the_temperature_is_that_of_least_log_loss():
    rng = np.random.default_rng(0)
    votes, codes = rng.normal(size=(200, 3)), rng.integers(0, 3, 200)
    votes[np.arange(200), codes] += 1.0
    epsilon = 1 / 202
    targets = np.eye(3)[codes] * (1 - epsilon) + epsilon / 3

    def loss(log_a):
        return float((logsumexp(np.exp(log_a) * votes, axis=1) - np.exp(log_a) * (targets * votes).sum(axis=1)).sum())

    expected = minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-10}).x
    assert np.log(fit_temperature(votes, codes)) == pytest.approx(expected, abs=1e-6)
    assert fit_temperature(-votes, codes) == 1e-3  # misleading votes get the smallest scale
    # Perfect votes, but no certainty: e^a / (e^a + 2) = 1 − ε + ε/3.
    assert fit_temperature(np.eye(3)[codes], codes) == pytest.approx(np.log(3 / epsilon - 2), rel=1e-9)


def test_labels_of_any_kind_and_rare_classes():
    x = np.vstack([np.zeros((1, 2)), np.random.default_rng(0).normal(size=(30, 2)) + 2])
    vote = VotedKernelClassifier(voting.polynomial_kernels([1, 2])).fit(x, np.array(["rare"] + ["common"] * 30))
    assert set(vote.classes_) == {"rare", "common"}
    assert vote.predict_proba(x).shape == (31, 2)


def test_bad_input(sample):
    x, y = sample

    def broken(a, b):
        return np.full((len(a), len(b)), np.nan)

    def narrow(a, b):
        return np.ones((len(a), 1))

    linear, batch = voting.polynomial_kernels([1]), gpytorch.kernels.RBFKernel(batch_shape=[2])
    for message, settings, labels in (
        (r"Kernel 0 \(broken\) returned NaN", {"kernels": [broken]}, y),
        (r"Kernel 1 \(narrow\) .* shape \(120, 1\) in place of \(120, 120\)", {"kernels": [*linear, narrow]}, y),
        ("at least two classes", {}, np.ones(120)),
        ("penalty .* must be positive", {"lam": 0.0, "beta": 0.0}, y),
        ("lam must be finite and at least 0", {"lam": -1.0}, y),
        (r"solver must be a VoteSolver such as .*, or None, not 'simplex'", {"solver": "simplex"}, y),
        ("kernels is an empty list", {"kernels": []}, y),
        ("Kernel 0 must be a GPyTorch kernel or a callable", {"kernels": ["rbf"]}, y),
        (r"Kernel 0 \(RBFKernel\) has batch_shape", {"kernels": [batch]}, y),
        ("num_calibration_folds must be 0 or at least 2", {"num_calibration_folds": 1}, y),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            VotedKernelClassifier(**settings).fit(x, labels)
    with pytest.raises(ValueError, match="2 labels, one per point"):
        VotedKernelClassifier([oracle.edit_kernel]).fit(["a", "b"], [0, 1, 1])


@pytest.mark.parametrize("solver", [ColumnGeneration(max_rounds=2), CoordinateDescent(max_rounds=2)])
def test_a_solver_that_does_not_converge_says_so(sample, solver):
    x, y = sample
    vote = VotedKernelClassifier(solver=solver, lam=1e-4, beta=1e-6, num_calibration_folds=0)
    with pytest.warns(ConvergenceWarning, match=rf"{type(solver).__name__} stopped after 2 rounds with a gap of \d"):
        vote.fit(x, y)
    assert vote.gap_ > 1e-7


def test_guarantee(sample):
    x, y = sample
    vote = VotedKernelClassifier(voting.gaussian_kernels([0.1, 1.0]), lam=1e-2, beta=1e-2).fit(x, y)
    first, second = vote.guarantee(), vote.guarantee(theorem=2)
    A = sum(row["weight"] for row in vote.report())
    assert first.rho == pytest.approx((1 - 1e-6) / A, rel=1e-12)
    assert first.margin_error == pytest.approx((vote.margins_[0] <= 1 - 1e-6).mean())
    complexity = sum(row["weight"] * row["complexity"] for row in vote.report())
    assert first.complexity_term == pytest.approx(4 * complexity / (1 - 1e-6))
    # Points on the hinge itself, as many as votes, do not depend on rounding.
    for shift in (1 - 1e-9, 1 + 1e-9):
        assert vote.guarantee(first.rho * shift).margin_error == first.margin_error
    assert (first.theorem, second.theorem) == (1, 2)
    assert first.confidence == 0.95
    assert second.margin_error == pytest.approx(2 * first.margin_error)
    assert first.value > vote.guarantee(first.rho, confidence=0.5).value
    with pytest.raises(ValueError, match="at least two kernels"):
        VotedKernelClassifier(voting.gaussian_kernels([1.0])).fit(x, y).guarantee()
    with pytest.raises(ValueError, match="Lower lam or beta"):
        VotedKernelClassifier(lam=1e6).fit(x, y).guarantee()


def test_calibration_keeps_groups_and_equal_rows_in_one_fold():
    """Three copies of each row: with copies in other folds the held-out votes are those of training rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 2))
    y = (x[:, 0] + rng.normal(size=50) > 0).astype(int)
    copy = np.tile(np.arange(50), 3)
    settings = {"kernels": [gpytorch.kernels.RBFKernel()], "lam": 1e-5, "beta": 1e-5}
    equal = VotedKernelClassifier(**settings).fit(x[copy], y[copy])
    grouped = VotedKernelClassifier(**settings).fit(x[copy] + 1e-9 * rng.normal(size=(150, 2)), y[copy], groups=copy)
    apart = VotedKernelClassifier(**settings).fit(x[copy], y[copy], groups=np.arange(150))
    new = rng.normal(size=(2000, 2))
    labels = (new[:, 0] + rng.normal(size=2000) > 0).astype(int)
    losses = [log_loss(labels, vote.predict_proba(new)) for vote in (equal, grouped, apart)]
    places = np.unique(x[copy], axis=0, return_inverse=True)[1].ravel()
    same = VotedKernelClassifier(**settings).fit(x[copy], y[copy], groups=places)
    assert same.temperature_ == equal.temperature_
    assert max(equal.temperature_, grouped.temperature_) < 0.2 * apart.temperature_, apart.temperature_
    assert max(losses[:2]) < 0.8 * losses[2]
    with pytest.raises(ValueError, match="All rows are in one group"):
        VotedKernelClassifier().fit(x, y, groups=np.zeros(50))
    with pytest.raises(ValueError, match=r"one label for each of the 50 rows, but has shape \(3,\)"):
        VotedKernelClassifier().fit(x, y, groups=[1, 2, 3])
