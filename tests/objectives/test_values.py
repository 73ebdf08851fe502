"""Every objective against its loop-written oracle."""

import math

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

import kernel_embed as ke
from kernel_embed.embeddings.calibration import SCALE_RIDGE, smoothed
from kernel_embed.objectives import SoftmaxCalibration, calibrate
from kernel_embed.objectives.cross_validation import permutation

from .. import oracles
from ..conftest import named_kernels, rbf

LAM, NAN, INF = 0.02, float("nan"), float("inf")


@pytest.fixture(params=["rbf", "matern12", "product", "linear"])
def case(request, problem):
    """Embedding, K, one-hot Y, sup k(x, x), all known to NumPy."""
    kernel = named_kernels()[request.param]
    with torch.no_grad():
        K = kernel(problem.x).to_dense().numpy()
        sup = float(kernel.outputscale) if request.param == "product" else max(K.diagonal())
    embedding = ke.MulticlassEmbedding(kernel, problem.m, LAM).requires_grad_(False)
    y = problem.y.numpy()
    return embedding, problem, K, oracles.one_hot(y, problem.m), y, sup


@pytest.mark.parametrize("epsilon", [1e-15, 1e-3, 0.3])
def test_empirical_and_leave_one_out_risk(case, epsilon):
    embedding, problem, K, Y, y, _ = case
    for risk, F in (
        (ke.EmpiricalRisk, K @ oracles.coefficients(K, Y, LAM)),
        (ke.LeaveOneOutRisk, oracles.leave_one_out(K, Y, LAM)),
    ):
        value = risk(epsilon)(embedding, problem.x, problem.y).item()
        assert value == pytest.approx(oracles.clipped_cross_entropy(F, y, epsilon), rel=1e-8)


def test_loss_below_epsilon_continues_by_its_tangent():
    f = torch.tensor([-0.5, 0.05, 0.1, 0.2, 1.0, 1.7], dtype=torch.float64, requires_grad=True)
    from kernel_embed.objectives.risk import clipped_cross_entropy

    flat = clipped_cross_entropy(f, 0.1)
    expected = [-math.log(min(max(u, 0.1), 1.0)) for u in f.tolist()]
    np.testing.assert_allclose(flat.detach(), expected)
    linear = clipped_cross_entropy(f, 0.1, "linear")
    tangent = [-math.log(min(max(u, 0.1), 1.0)) + max(0.1 - u, 0.0) / 0.1 for u in f.tolist()]
    np.testing.assert_allclose(linear.detach(), tangent)
    (slope,) = torch.autograd.grad(linear.sum(), f)
    assert slope[0].item() == slope[1].item() == pytest.approx(-10.0)
    assert slope[-1].item() == 0.0


RATES = {
    "0.25": 0.25,
    "4e": 4 * math.e,
    "4e/sqrt(n)": 4 * math.e / math.sqrt(24),
    "4e/√n": 4 * math.e / math.sqrt(24),
    "e/sqrt(n)": math.e / math.sqrt(24),
    "4e/n": 4 * math.e / 24,
}


def test_rademacher_complexity(case):
    embedding, problem, K, Y, _, sup = case
    r = oracles.rademacher_complexity(K, Y, LAM, sup)
    assert ke.RademacherComplexity()(embedding, problem.x, problem.y).item() == pytest.approx(r, rel=1e-8)
    for rate, multiplier in RATES.items():
        objective = ke.RademacherComplexity(0.25 if rate == "0.25" else rate)
        assert objective(embedding, problem.x, problem.y).item() == pytest.approx(multiplier * r, rel=1e-8)


def test_complexity_with_a_given_bound(problem):
    kernel = named_kernels()["linear"]
    plain = ke.RademacherComplexity()(ke.MulticlassEmbedding(kernel, 3), problem.x, problem.y)
    bounded = ke.MulticlassEmbedding(kernel, 3, sup_diagonal=100.0)
    sup = ke.kernels.sup_diagonal(kernel, problem.x).value
    torch.testing.assert_close(ke.RademacherComplexity()(bounded, problem.x, problem.y), plain * (100.0 / sup).sqrt())


@pytest.mark.parametrize(("fraction", "held_out"), [(0.25, 6), (0.5, 12), (0.001, 1), (0.999, 23)])
def test_batch_validation_risk(case, fraction, held_out):
    embedding, problem, K, _, y, sup = case
    order = permutation(24, 3).numpy()
    validation, training = order[:held_out], order[held_out:]
    if embedding.kernel.__class__.__name__ == "LinearKernel":
        sup = max(K[i, i] for i in training)  # the maximum over the data of r^(T)
    expected = oracles.batch_validation(K, y, problem.m, LAM, training, validation, 0.7, sup, 1e-3)
    objective = ke.BatchValidationRisk(fraction, ke.RademacherComplexity(0.7), seed=3, epsilon=1e-3)
    assert objective(embedding, problem.x, problem.y).item() == pytest.approx(expected, rel=1e-8)
    plain = oracles.batch_validation(K, y, problem.m, LAM, training, validation, 0.0, 1.0, 1e-15)
    objective = ke.BatchValidationRisk(fraction, seed=3)
    assert objective(embedding, problem.x, problem.y).item() == pytest.approx(plain, rel=1e-8)


def folds(n: int, k: int, seed: int):
    order = permutation(n, seed).numpy()
    held = [order[f::k] for f in range(k)]
    return [(np.concatenate([h for j, h in enumerate(held) if j != f]), held[f]) for f in range(k)]


@pytest.mark.parametrize("norm_penalty", [False, True])
@pytest.mark.parametrize("k", [2, 5, 24])
def test_cross_validation_with_the_delta_kernel(case, k, norm_penalty):
    embedding, problem, K, Y, _, _ = case
    expected = oracles.validation_objective(K, Y @ Y.T, LAM, folds(24, k, 1), norm_penalty)
    value = ke.CrossValidationRisk(k, norm_penalty, seed=1)(embedding, problem.x, problem.y).item()
    assert value == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("norm_penalty", [False, True])
@pytest.mark.parametrize("vector", [False, True])
def test_cross_validation_with_a_general_target_kernel(problem, norm_penalty, vector):
    y = problem.x @ torch.tensor([[1.0, 0.3], [0.5, -1.0], [0.0, 2.0]], dtype=torch.float64)
    y = y if vector else y[:, 0]
    target = rbf(2 if vector else 1)
    embedding = ke.ConditionalEmbedding(rbf(), LAM, target).requires_grad_(False)
    with torch.no_grad():
        K = rbf()(problem.x).to_dense().numpy()
    rows = y.numpy().reshape(24, -1)
    L = oracles.gram(oracles.rbf(target.lengthscale.detach().numpy()), rows)
    expected = oracles.validation_objective(K, L, LAM, folds(24, 4, 0), norm_penalty)
    value = ke.CrossValidationRisk(4, norm_penalty)(embedding, problem.x, y).item()
    assert value == pytest.approx(expected, rel=1e-8)


def test_conditional_evidence(case):
    embedding, problem, K, Y, _, _ = case
    value = ke.ConditionalEvidence()(embedding, problem.x, problem.y).item()
    assert value == pytest.approx(oracles.negative_log_evidence(K, Y, LAM), rel=1e-8)


def test_evidence_of_continuous_targets(problem):
    y = problem.x[:, :2]
    value = ke.ConditionalEvidence()(ke.ConditionalEmbedding(rbf(), LAM), problem.x, y).item()
    with torch.no_grad():
        K = rbf()(problem.x).to_dense().numpy()
    assert value == pytest.approx(oracles.negative_log_evidence(K, y.numpy(), LAM), rel=1e-8)


@pytest.mark.parametrize("penalty", [0.1, 1.0, 10.0])
def test_calibrated_leave_one_out_risk(case, penalty):
    embedding, problem, K, Y, _, _ = case
    F = oracles.leave_one_out(K, Y, LAM)
    expected, _ = oracles.calibrated_risk(F, Y, penalty)
    value = ke.CalibratedLeaveOneOutRisk(penalty)(embedding, problem.x, problem.y).item()
    assert value == pytest.approx(expected, rel=1e-6)


def probabilities_like(seed: int, n: int = 40, m: int = 3, quality: float = 1.0):
    generator = np.random.RandomState(seed)
    Y = oracles.one_hot(generator.randint(m, size=n), m)
    return 0.3 * quality * Y + 0.3 + 0.2 * generator.randn(n, m), Y


@pytest.mark.parametrize("quality", [-2.0, -0.5, 0.0, 0.5, 2.0, 8.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_calibration_is_the_constrained_minimum(seed, quality):
    """Good, worthless and misleading decision probabilities; scales never fall below zero."""
    F, Y = probabilities_like(seed, quality=quality)
    expected, u = oracles.calibrated_risk(F, Y, 1.0)
    found = ke.objectives.calibrate(torch.as_tensor(F), torch.as_tensor(Y))
    assert (found.scales >= 0).all()
    log_p = found.log_probabilities(torch.as_tensor(F)).numpy()
    n, m = F.shape
    value = -((n * Y + 1 / m) / (n + 1) * log_p).sum() / n + 0.5 / n * float(found.offset.square().sum())
    assert value == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(found.offset, u[2:], atol=1e-3)


def test_calibration_of_perfect_separation_is_finite():
    F = torch.tensor([[1.0, 0.0]] * 10 + [[0.0, 1.0]] * 10, dtype=torch.float64)
    found = ke.objectives.calibrate(F, F)
    p = found.probabilities(F)
    assert torch.isfinite(p).all()
    assert p[0, 0].item() == pytest.approx(20.5 / 21, abs=0.01)  # (n + 1/m) / (n + 1)


ONE = torch.zeros(1, 3, dtype=torch.float64), torch.tensor([0])
REJECTED = [
    *[
        (lambda p, rate=r: ke.RademacherComplexity(rate), r"Unknown rate .* one of 4e, 4e/sq")
        for r in ("4e/n^2", "", "e")
    ],
    *[
        (lambda p, rate=r: ke.RademacherComplexity(rate), "rate must be finite and not negative")
        for r in (-1.0, NAN, INF)
    ],
    *[(lambda p, e=e: ke.EmpiricalRisk(e), "epsilon must lie between 0 and 1, got") for e in (0.0, 1.0, -1.0, NAN)],
    *[(lambda p, e=e: ke.LeaveOneOutRisk(e), "epsilon must lie between 0 and 1, got") for e in (0.0, 1.0, -1.0, NAN)],
    *[(lambda p, v=v: ke.BatchValidationRisk(v), "validation_fraction must lie between 0 and 1") for v in (0.0, 1.0)],
    (
        lambda p: ke.BatchValidationRisk()(ke.MulticlassEmbedding(rbf(), 3), *ONE),
        "needs at least 2 rows or groups, got 1",
    ),
    (lambda p: ke.CalibratedLeaveOneOutRisk(0.0), "Expected a positive, finite penalty, got 0"),
    (lambda p: ke.EmpiricalRisk(below="steep"), "below must be 'flat' or 'linear', got 'steep'"),
    (lambda p: ke.CrossValidationRisk(1), "Expected at least 2 folds, got 1"),
    (lambda p: ke.CrossValidationRisk(30)(ke.MulticlassEmbedding(rbf(), 3), p.x, p.y), r"as folds \(30\), got 24"),
    (
        lambda p: ke.CrossValidationRisk()(ke.ConditionalEmbedding(rbf()), p.x, p.x[:, 0]),
        "needs a target_kernel.*Pass",
    ),
]


@pytest.mark.parametrize(("call", "message"), REJECTED, ids=[str(i) for i in range(len(REJECTED))])
def test_arguments_are_checked(call, message, problem):
    with pytest.raises(ValueError, match=message):
        call(problem)


def test_permutations_leave_the_global_generator_alone():
    state = torch.get_rng_state()
    assert sorted(permutation(10, 5).tolist()) == list(range(10))
    assert torch.equal(permutation(10, 5), permutation(10, 5))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_ridge_on_scales_moves_the_calibration_as_little_as_the_pages_say():
    """iris under the default objective, with and without the ridge, by Newton's method on autograd's derivatives."""
    x, y = load_iris(return_X_y=True)
    options = {"objective": ke.default_objective(), "random_state": 0, "progress": False}
    conditioned = ke.MulticlassEmbeddingClassifier(**options).fit(x, y).conditioned_
    F, T = conditioned.leave_one_out().detach(), smoothed(conditioned.Y, conditioned.total_weight)
    w = conditioned.row_weights / conditioned.total_weight if conditioned.row_weights is not None else 1 / len(F)
    found = calibrate(F, conditioned.Y, weights=conditioned.row_weights)

    def q(u, ridge=0.0):
        log_p = SoftmaxCalibration(u[:2], u[2:]).log_probabilities(F)
        penalty = 0.5 / conditioned.total_weight * u[2:].square().sum() + 0.5 * ridge * u[:2].square().sum()
        return -(w * (T * log_p).sum(-1)).sum() + penalty

    ends = []
    for ridge in (SCALE_RIDGE, 0.0):
        u = torch.cat([found.scales, found.offset])
        for _ in range(20):
            slope = torch.autograd.functional.jacobian(lambda v, ridge=ridge: q(v, ridge), u)
            u = u - torch.linalg.solve(torch.autograd.functional.hessian(lambda v, ridge=ridge: q(v, ridge), u), slope)
        ends.append(u)
    with_ridge, without = ends
    torch.testing.assert_close(torch.cat([found.scales, found.offset]), with_ridge, rtol=0, atol=1e-8)
    p = [SoftmaxCalibration(u[:2], u[2:]).probabilities(F) for u in ends]
    assert 1e-4 < (with_ridge - without).abs().max() < 3e-3
    assert (p[0] - p[1]).abs().max() < 6e-5
    assert 0 <= q(with_ridge) - q(without) < 2e-10
