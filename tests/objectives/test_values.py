"""Every objective against its loop-written oracle."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, RFFKernel
from scipy.optimize import minimize
from sklearn.datasets import load_iris

import kernel_embed as ke
from kernel_embed.embeddings import ConditionedEmbedding
from kernel_embed.embeddings.calibration import SCALE_RIDGE, smoothed
from kernel_embed.linalg import DenseSystem
from kernel_embed.objectives import SoftmaxCalibration, calibrate, leave_one_out_scores, pool
from kernel_embed.objectives.cross_validation import permutation
from kernel_embed.testing import ObjectiveContract

from .. import oracles
from ..conftest import named_kernels, rbf
from ..testing import checks, suite

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


def test_evidence_is_that_of_loops(case, problem):
    embedding, problem, K, Y, _, _ = case
    value = ke.ConditionalEvidence()(embedding, problem.x, problem.y).item()
    assert value == pytest.approx(oracles.negative_log_evidence(K, Y, LAM), rel=1e-8)
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


# --- the leave-one-out score ------------------------------------------------------------------------------------------


N, LAMBDA = 24, 0.02


def data(q: int | None = None):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(N, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(N, *(() if q is None else (q,)), generator=generator, dtype=torch.float64)
    y[5] = y[2]
    return x, y


def embedding(kernel=None, **options) -> ke.ConditionalEmbedding:
    kernel = kernel or MaternKernel(nu=2.5, ard_num_dims=2)
    return ke.ConditionalEmbedding(kernel, LAMBDA, **options).double()


def left_out_weights(made, x) -> list[torch.Tensor]:
    """v_j of the measure that predicts row i, from a solve without row i: rows that are not i, ridge nλ held."""
    K = ke.gram(made.kernel, x).detach()
    answers = []
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i]
        A = K[others][:, others] + len(x) * made.regularization.item() * torch.eye(len(x) - 1, dtype=K.dtype)
        w = torch.zeros(len(x), dtype=K.dtype)
        w[others] = torch.linalg.solve(A, K[others, i])
        answers.append(1.0 / len(x) + w - w.sum() / len(x))
    return answers


def test_it_is_the_crps_of_n_refits_by_integration():
    x, y = data()
    made = embedding()
    ours = leave_one_out_scores(made.condition(x, y))
    order = y.sort()
    edges = order.values.numpy()
    for i, v in enumerate(left_out_weights(made, x)):
        F = v[order.indices].cumsum(0).numpy()
        total = 0.0
        for j in range(len(edges) - 1):
            # F and the indicator are constant on [t_j, t_{j+1})
            total += (F[j] - float(y[i] <= edges[j])) ** 2 * (edges[j + 1] - edges[j])
        assert ours[i].item() == pytest.approx(total, rel=1e-9, abs=1e-12)
    assert ke.LeaveOneOutScore()(made, x, y).item() == pytest.approx(ours.mean().item(), rel=1e-12)


def test_it_is_the_energy_score_of_n_refits_for_vectors():
    x, y = data(q=3)
    made = embedding()
    ours = leave_one_out_scores(made.condition(x, y))
    for i, v in enumerate(left_out_weights(made, x)):
        to_outcome = (v * (y - y[i]).norm(dim=1)).sum()
        among = (v[:, None] * v * (y[:, None] - y).norm(dim=2)).sum()
        torch.testing.assert_close(ours[i], to_outcome - 0.5 * among, rtol=1e-8, atol=1e-10)


def test_with_the_delta_kernel_it_is_the_brier_score():
    x, _ = data()
    labels = torch.arange(N) % 3
    made = ke.MulticlassEmbedding(RBFKernel(), 3, LAMBDA).double()
    conditioned = made.condition(x, labels)
    brier = (conditioned.Y - conditioned.leave_one_out()).square().sum(-1).mean()
    torch.testing.assert_close(ke.LeaveOneOutScore()(made, x, labels), brier)
    by_matrix = leave_one_out_scores(embedding(made.kernel).condition(x, labels), ke.kernels.DeltaKernel(), False)
    torch.testing.assert_close(by_matrix.mean(), brier)


def test_with_the_linear_kernel_it_is_the_squared_error_of_the_mean():
    x, y = data()
    conditioned = embedding().condition(x, y - y.mean())
    kernel = LinearKernel().double()
    kernel.variance = 1.0
    squares = (conditioned.Y - conditioned.leave_one_out()).square().squeeze(-1)
    torch.testing.assert_close(leave_one_out_scores(conditioned, kernel), squares)


def test_a_target_kernel_of_the_embedding_is_used_and_held():
    x, y = data()
    target = RBFKernel().double()
    one, other = embedding(target_kernel=target), embedding()
    value = ke.LeaveOneOutScore()(one, x, y)
    torch.testing.assert_close(value, ke.LeaveOneOutScore(target)(other, x, y))
    value.backward()
    assert target.raw_lengthscale.grad is None


def test_weights_of_rows_count():
    x, y = data()
    made, w = embedding(), torch.ones(N, dtype=torch.float64)
    K, ridge = ke.gram(made.kernel, x).detach(), N * made.regularization.detach()

    def score(system, rows=slice(None)):
        return ke.LeaveOneOutScore().evaluate(ConditionedEmbedding(made, x[rows], y[rows], system))

    torch.testing.assert_close(score(DenseSystem(K, ridge)), score(DenseSystem(K, ridge, w)))
    w[0] = 1e-9  # as good as absent from the mean, the marginal and the embedding
    rest = score(DenseSystem(K[1:, 1:], ridge), slice(1, None))
    torch.testing.assert_close(score(DenseSystem(K, ridge, w)), rest, rtol=1e-6, atol=1e-9)


def through_features():
    torch.manual_seed(0)
    return embedding(RFFKernel(4, num_dims=2))


CASES = {
    "numbers": {"make_embedding": embedding, "make_data": data},
    "vectors": {"make_embedding": embedding, "make_data": lambda: data(q=2)},
    "features": {"make_embedding": through_features, "make_data": data},
}


@pytest.mark.parametrize("check", checks(ObjectiveContract))
@pytest.mark.parametrize("case", CASES)
def test_the_contract_of_objectives(case, check):
    getattr(suite(ObjectiveContract, **{"make_objective": ke.LeaveOneOutScore} | CASES[case]), check)()


def test_learning_finds_the_noise_and_a_bad_kernel_is_named():
    x = torch.linspace(0, 1, 60, dtype=torch.float64).unsqueeze(-1)
    y = torch.sin(6 * x.squeeze(-1))
    made = embedding(RBFKernel())
    assert ke.fit(made, ke.LeaveOneOutScore(), x, y).value < 0.04
    with pytest.raises(TypeError, match=r"target_kernel must be a gpytorch\.kernels\.Kernel"):
        ke.LeaveOneOutScore("rbf")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="so centered=False is not possible"):
        ke.LeaveOneOutScore(centered=False)(made, x, y)
    assert (
        repr(0.5 * ke.LeaveOneOutScore(RBFKernel(), centered=True))
        == "0.5 * LeaveOneOutScore(RBFKernel, centered=True)"
    )


def test_the_scale_of_targets_is_the_scale_of_the_score():
    x, y = data()
    one = ke.LeaveOneOutScore()(embedding(), x, y).item()
    assert ke.LeaveOneOutScore()(embedding(), x, 1e9 * y + 1e9).item() == pytest.approx(1e9 * one, rel=1e-9)
    assert ke.LeaveOneOutScore()(embedding(), x, torch.full((N,), 7.0, dtype=torch.float64)).item() == 0.0
    assert np.isfinite(one)


# --- the pool, and weights of rows ------------------------------------------------------------------------------------


@pytest.fixture
def members():
    generator = torch.Generator().manual_seed(0)
    Y = torch.nn.functional.one_hot(torch.randint(3, (60,), generator=generator), 3).double()
    logits = torch.stack(
        [c * Y + torch.randn(60, 3, generator=generator, dtype=torch.float64) for c in (2.0, 1.0, 0.0)]
    )
    return logits.log_softmax(-1), Y


def test_pool_is_the_constrained_minimum(members):
    log_p, Y = members
    found = pool(log_p, Y, pull=0.3)
    T = (60 * Y + 1 / 3).numpy() / 61

    def value(u):
        z = np.einsum("k,knm->nm", u[:3], log_p.numpy()) + u[3:]
        q = z - np.log(np.exp(z).sum(1, keepdims=True))
        return -(T * q).sum() / 60 + 0.3 * 3 / 120 * ((u[:3] - 1 / 3) ** 2).sum() + (u[3:] ** 2).sum() / 120

    expected = minimize(value, np.full(6, 0.1), bounds=[(0, None)] * 3 + [(None, None)] * 3, tol=1e-12)
    assert value(np.concatenate([found.weights, found.offset])) == pytest.approx(expected.fun, abs=1e-8)
    np.testing.assert_allclose(found.weights, expected.x[:3], atol=2e-3)
    assert found.weights[0] > found.weights[1] > found.weights[2]


def test_few_rows_pool_to_the_geometric_mean(members):
    log_p, Y = members
    found = pool(log_p, Y, pull=1e6)
    torch.testing.assert_close(found.weights, torch.full((3,), 1 / 3, dtype=torch.float64), atol=1e-3, rtol=0)


def test_weights_are_repeated_rows(members):
    log_p, Y = members
    weights = torch.arange(60) % 3 + 1
    weighted = pool(log_p, Y, weights=weights.double())
    repeated = pool(log_p.repeat_interleave(weights, dim=1), Y.repeat_interleave(weights, dim=0))
    torch.testing.assert_close(weighted.weights, repeated.weights, atol=1e-4, rtol=0)
    F = log_p[0].exp()
    one = calibrate(F, Y, weights=weights.double())
    other = calibrate(F.repeat_interleave(weights, dim=0), Y.repeat_interleave(weights, dim=0))
    torch.testing.assert_close(one.scales, other.scales)
    torch.testing.assert_close(one.offset, other.offset)


@pytest.fixture
def weighted_rows():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(25, 2, dtype=torch.float64, generator=generator)
    y = torch.randint(3, (25,), generator=generator)
    return x, y, torch.arange(25) % 3 + 1


OBJECTIVES = [
    ke.EmpiricalRisk(),
    ke.LeaveOneOutRisk(),
    ke.CalibratedLeaveOneOutRisk(),
    ke.RademacherComplexity("4e/sqrt(n)"),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@pytest.mark.parametrize("featured", [False, True])
def test_an_objective_of_weighted_rows_is_that_of_repeated_ones(objective, featured, weighted_rows):
    x, y, weights = weighted_rows
    kernel = RFFKernel(10, num_dims=2) if featured else RBFKernel()
    embedding = ke.MulticlassEmbedding(kernel, 3, 0.05).double()
    one = objective.evaluate(embedding.attach(x, y, weights.double()))
    other = objective.evaluate(embedding.attach(x.repeat_interleave(weights, dim=0), y.repeat_interleave(weights)))
    torch.testing.assert_close(one, other)
    gradients = [torch.autograd.grad(value, list(embedding.parameters()), allow_unused=True) for value in (one, other)]
    for left, right in zip(*gradients, strict=True):
        if left is not None:
            torch.testing.assert_close(left, right)


def test_answers_and_leave_one_out_of_weighted_rows_are_those_of_repeated_ones(weighted_rows):
    x, y, weights = weighted_rows
    embedding = ke.MulticlassEmbedding(RBFKernel(), 3, 0.05).double()
    one = embedding.condition(x, y, weights.double())
    other = embedding.condition(x.repeat_interleave(weights, dim=0), y.repeat_interleave(weights))
    torch.testing.assert_close(one.probabilities(x + 0.1), other.probabilities(x + 0.1))
    torch.testing.assert_close(one.leave_one_out().repeat_interleave(weights, dim=0), other.leave_one_out())


def test_soft_labels_are_shared_rows(weighted_rows):
    """A row that is half of one class and half of another is two rows of half the weight."""
    x, y, _ = weighted_rows
    embedding = ke.MulticlassEmbedding(RBFKernel(), 3, 0.05).double()
    hard = torch.nn.functional.one_hot(y, 3).double()
    soft = 0.5 * hard + 0.5 * hard.roll(1, dims=-1)
    halves = torch.full((50,), 0.5, dtype=torch.float64)
    two = embedding.condition(x.repeat(2, 1), torch.cat([y, (y + 1) % 3]), halves)
    torch.testing.assert_close(embedding.condition(x, soft).probabilities(x), two.probabilities(x))
    torch.testing.assert_close(
        ke.EmpiricalRisk().evaluate(embedding.condition(x, hard)), ke.EmpiricalRisk()(embedding, x, y)
    )


@pytest.mark.parametrize(
    ("y", "weights", "message"),
    [
        (None, torch.ones(3), r"Expected a weight for each of the 25 rows of x, got \(3,\)"),
        (None, -torch.ones(25), r"Expected positive weights, got 25 that are not"),
        (None, torch.full((25,), torch.nan), r"Expected finite values in weights"),
        (torch.ones(25, 3), None, r"Expected rows of probabilities in y.*Divide each row by its sum"),
    ],
)
def test_weights_and_soft_labels_are_checked(y, weights, message, weighted_rows):
    with pytest.raises(ValueError, match=message):
        ke.MulticlassEmbedding(RBFKernel(), 3).attach(weighted_rows[0], weighted_rows[1] if y is None else y, weights)


@pytest.mark.parametrize("optimizer", [ke.learning.LBFGS(10), ke.learning.Adam(10)])
def test_fit_with_weights_is_fit_with_repeated_rows(optimizer, weighted_rows):
    x, y, weights = weighted_rows
    lengthscales = []
    for data in ((x, y, weights.double()), (x.repeat_interleave(weights, dim=0), y.repeat_interleave(weights), None)):
        embedding = ke.MulticlassEmbedding(RBFKernel(), 3)
        ke.fit(embedding, ke.LeaveOneOutRisk(), *data[:2], weights=data[2], optimizer=optimizer)
        lengthscales.append(embedding.kernel.lengthscale.item())
    assert lengthscales[0] == pytest.approx(lengthscales[1], rel=1e-6)


def test_a_mini_batch_has_the_weights_of_its_rows(weighted_rows):
    x, y, weights = weighted_rows
    batches = []

    class Risk(ke.EmpiricalRisk):
        def evaluate(self, attached):
            batches.append((attached.x, attached.row_weights))
            return super().evaluate(attached)

    embedding = ke.MulticlassEmbedding(RBFKernel(), 3)
    ke.fit(embedding, Risk(), x, y, weights=weights.double(), batch_size=10, num_epochs=1)
    seen, weights_seen = (torch.cat(part) for part in zip(*batches, strict=True))
    order = (seen[:, None] == x[None]).all(-1).int().argmax(1)
    assert sorted(order.tolist()) == list(range(25))
    torch.testing.assert_close(weights_seen, weights.double()[order])
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=10)
    with pytest.raises(ValueError, match=r"Weights are for all 25 rows, but the loader yields 10"):
        ke.fit(embedding, Risk(), loader, weights=weights.double(), num_epochs=1)
