"""Multiclass embeddings, eqs. (4) to (6), (33) and (37), and their equivalence with kernel ridge regression."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, RFFKernel
from sklearn.kernel_ridge import KernelRidge

import kernel_embed as ke
from kernel_embed.embeddings import clip_normalize
from kernel_embed.objectives import calibrate
from kernel_embed.scale import accumulate

from .. import oracles
from ..conftest import named_kernels, rbf

LAM = 0.02


@pytest.fixture(params=named_kernels())
def case(request, problem):
    kernel = named_kernels()[request.param]
    with torch.no_grad():
        K, K_x = kernel(problem.x).to_dense().numpy(), kernel(problem.query, problem.x).to_dense().numpy()
    embedding = ke.MulticlassEmbedding(kernel, problem.m, LAM).requires_grad_(False)
    return problem, K, K_x, embedding.condition(problem.x, problem.y)


def test_predictions_equal_loops(case):
    problem, K, K_x, conditioned = case
    y, query, close = problem.y.numpy(), problem.query, {"rtol": 1e-7, "atol": 1e-9}
    F = oracles.decision_probabilities(K, K_x, y, problem.m, LAM)
    np.testing.assert_allclose(conditioned.decision_probabilities(query), F, **close)
    np.testing.assert_array_equal(conditioned.predict(query), F.argmax(1))
    p = conditioned.probabilities(query)
    np.testing.assert_allclose(p, oracles.clip_normalized(F), **close)
    np.testing.assert_array_equal(p.argmax(1), F.argmax(1))  # "This does not change the resulting prediction"
    np.testing.assert_allclose(conditioned.entropy(query), oracles.clip_normalized_entropy(F), **close)
    information = oracles.expected_information(K, K_x, y, problem.m, LAM)
    np.testing.assert_allclose(conditioned.entropy(query, "expected-information"), information, **close)
    left_out = oracles.leave_one_out(K, oracles.one_hot(y, problem.m), LAM)
    np.testing.assert_allclose(conditioned.leave_one_out(), left_out, **close)
    ridge = KernelRidge(kernel="precomputed", alpha=len(K) * LAM).fit(K, oracles.one_hot(y, problem.m))
    np.testing.assert_allclose(conditioned.decision_probabilities(query), ridge.predict(K_x), **close)


def test_expectations_from_values_at_the_training_labels_and_of_vectors(problem):
    conditioned = ke.MulticlassEmbedding(rbf(), problem.m, LAM).condition(problem.x, problem.y)
    p, g = conditioned.decision_probabilities(problem.query), torch.tensor([1.0, -2.0, 5.0])
    torch.testing.assert_close(conditioned.expectation(g[problem.y], problem.query), p @ g.double())
    torch.testing.assert_close(conditioned.expectation(torch.eye(3), problem.query), p)


def test_far_away_everything_is_uniform(problem):
    conditioned = ke.MulticlassEmbedding(rbf(), problem.m).condition(problem.x, problem.y)
    far = torch.full((2, 3), 1e6, dtype=torch.float64)
    assert torch.equal(conditioned.decision_probabilities(far), torch.zeros(2, 3, dtype=torch.float64))
    torch.testing.assert_close(conditioned.probabilities(far), torch.full((2, 3), 1 / 3, dtype=torch.float64))
    assert conditioned.entropy(far).tolist() == pytest.approx([math.log(3)] * 2)
    assert conditioned.entropy(far, "expected-information").tolist() == [0.0, 0.0]


def test_clip_normalize_with_nothing_positive():
    p = torch.tensor([[-1.0, -2.0], [0.0, 0.0], [3.0, -1.0], [1e-320, 0.0]], dtype=torch.float64, requires_grad=True)
    q = clip_normalize(p)
    torch.testing.assert_close(q[:3].detach(), torch.tensor([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0]], dtype=torch.float64))
    assert torch.isfinite(q).all()
    q.square().sum().backward()
    assert torch.isfinite(p.grad).all()


def test_entropies_have_finite_gradients(problem):
    for kind in ("clip-normalized", "expected-information"):
        embedding = ke.MulticlassEmbedding(rbf(), problem.m, 1e-4)
        embedding.attach(problem.x, problem.y).entropy(problem.query, kind).sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in embedding.parameters())


def test_a_class_without_rows_gets_no_probability(problem):
    wider = ke.MulticlassEmbedding(rbf(), 5, LAM).condition(problem.x, problem.y)
    plain = ke.MulticlassEmbedding(rbf(), 3, LAM).condition(problem.x, problem.y)
    p = wider.decision_probabilities(problem.query)
    assert torch.equal(p[:, 3:], torch.zeros(7, 2, dtype=torch.float64))
    torch.testing.assert_close(p[:, :3], plain.decision_probabilities(problem.query))


def test_probabilities_converge_to_the_truth():
    """Theorem 1, at one sample size: the estimate is near P(Y = 1 | x) = (1 + sin x)/2."""
    generator = torch.Generator().manual_seed(0)
    x = 6 * torch.rand(1500, 1, generator=generator, dtype=torch.float64)
    truth = lambda x: 0.5 * (1 + torch.sin(x.squeeze(-1)))  # noqa: E731
    y = (torch.rand(1500, generator=generator, dtype=torch.float64) < truth(x)).long()
    embedding = ke.MulticlassEmbedding(rbf(1, 1.0), 2, 1e-3)
    grid = torch.linspace(0.5, 5.5, 21, dtype=torch.float64)[:, None]
    with torch.no_grad():
        p = embedding.condition(x, y).probabilities(grid)[:, 1]
    assert (p - truth(grid)).abs().max() < 0.08


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c, x: c.expectation(torch.zeros(5), x), r"Expected the values of g.*got"),
        (lambda c, x: c.expectation(torch.tensor(2.0), x), r"Expected the values of g.*got"),
        (lambda c, x: c.expectation(torch.zeros(3, 2, 2), x), r"Expected the values of g.*got"),
        (lambda c, x: c.entropy(x, "shannon"), r"kind 'clip-normalized' or 'expected-information', got 'shannon'"),
        (lambda c, x: ke.MulticlassEmbedding(rbf(), 0), r"Expected num_classes of at least 1, got"),
        (lambda c, x: ke.MulticlassEmbedding(rbf(), -1), r"Expected num_classes of at least 1, got"),
        (lambda c, x: ke.MulticlassEmbedding(rbf(), 2.5), r"Expected.*num_classes.*got"),
        (lambda c, x: ke.MulticlassEmbedding(rbf(), "3"), r"Expected.*num_classes.*got"),
    ],
)
def test_bad_arguments(call, message, problem):
    conditioned = ke.MulticlassEmbedding(rbf(), problem.m).condition(problem.x, problem.y)
    with pytest.raises((TypeError, ValueError), match=message):
        call(conditioned, problem.query)


def test_single_precision_agrees_with_double(problem):
    p = [
        ke.MulticlassEmbedding(rbf().to(dtype), problem.m)
        .condition(problem.x.to(dtype), problem.y)
        .probabilities(problem.query.to(dtype))
        for dtype in (torch.float32, torch.float64)
    ]
    assert p[0].dtype == torch.float32
    torch.testing.assert_close(p[0].double(), p[1], rtol=1e-3, atol=1e-4)


# --- calibrated embeddings --------------------------------------------------------------------------------------------


@pytest.fixture
def conditioned():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, dtype=torch.float64, generator=generator)
    y = (x[:, 0] + 0.5 * torch.randn(60, dtype=torch.float64, generator=generator) > 0).long() + (x[:, 1] > 1).long()
    return ke.MulticlassEmbedding(RBFKernel().double(), 3, 0.01).condition(x, y)


def test_probabilities_are_those_of_the_calibration(conditioned):
    calibrated = conditioned.calibrated()
    calibration = calibrate(conditioned.leave_one_out(), conditioned.Y)
    x = conditioned.x[:7] + 0.1
    torch.testing.assert_close(calibrated.probabilities(x), calibration.probabilities(conditioned.mean(x)))
    torch.testing.assert_close(calibrated.leave_one_out(), calibration.probabilities(conditioned.leave_one_out()))
    assert torch.equal(calibrated.predict(x), calibrated.probabilities(x).argmax(-1))


def test_probabilities_are_those_of_the_classifier(conditioned):
    x, y = conditioned.x.numpy(), conditioned.y.numpy()
    classifier = ke.MulticlassEmbeddingClassifier(RBFKernel().double(), max_evaluations=5).fit(x, y)
    calibrated = classifier.conditioned_.calibrated()
    np.testing.assert_allclose(
        calibrated.probabilities(torch.as_tensor(x[:5])).numpy(), classifier.predict_proba(x[:5]), rtol=1e-8
    )


@pytest.mark.parametrize("kernel", [RBFKernel, LinearKernel], ids=["dense", "features"])
def test_the_band_is_that_of_a_gaussian_process_by_loops(conditioned, kernel):
    """20,000 draws each way: limits agree to 0.02, about four standard errors of a quantile."""
    x, kernel = conditioned.x, kernel().double()
    calibrated = ke.MulticlassEmbedding(kernel, 3, 0.01).condition(x, conditioned.y).calibrated()
    points = torch.tensor([[0.3, -0.2], [2.5, 2.5]], dtype=torch.float64)
    lower, upper = calibrated.band(points, coverage=0.8, num_draws=20_000)
    with torch.no_grad():
        K, crosses, variances = kernel(x).numpy(), kernel(points, x).numpy(), kernel(points, diag=True).numpy()
    A = K + 60 * 0.01 * np.eye(60)
    Y, rng = conditioned.Y.numpy(), np.random.default_rng(5)
    for i, k in enumerate(crosses):
        v = variances[i] - k @ np.linalg.solve(A, k)
        s = np.sqrt(v * np.array([Y[:, c] @ np.linalg.solve(A, Y[:, c]) / 60 for c in range(3)]))
        draws = k @ np.linalg.solve(A, Y) + s * rng.standard_normal((20_000, 3))
        p = calibrated.calibration.probabilities(torch.as_tensor(draws)).numpy()
        np.testing.assert_allclose(lower[i], np.quantile(p, 0.1, axis=0), atol=0.02)
        np.testing.assert_allclose(upper[i], np.quantile(p, 0.9, axis=0), atol=0.02)


@pytest.mark.parametrize(
    "setting", [{"coverage": 1.0}, {"coverage": 0.0}, {"coverage": "0.9"}, {"num_draws": 0}, {"seed": 1.5}]
)
def test_wrong_settings_are_named(conditioned, setting):
    with pytest.raises((ValueError, TypeError), match="Expected"):
        conditioned.calibrated().band(conditioned.x[:2], **setting)


# --- rows that come later ---------------------------------------------------------------------------------------------


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(30, 2, dtype=torch.float64, generator=generator)
    return (
        x,
        (x[:, 0] > 0).long() + (x[:, 1] > 1).long(),
        torch.rand(30, dtype=torch.float64, generator=generator) + 0.5,
    )


def embedding_of(kernel, regularization):
    embedding = ke.MulticlassEmbedding(kernel, 3).double()
    embedding.regularization = regularization  # in double precision
    return embedding


KERNELS = {
    "dense": lambda: MaternKernel(nu=1.5),
    "features": lambda: LinearKernel() + LinearKernel(),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", KERNELS)
def test_an_updated_embedding_is_that_of_all_rows(data, name, weighted):
    x, y, w = data
    old = w[:20].sum().item() if weighted else 20.0
    total = w.sum().item() if weighted else 30.0
    torch.manual_seed(0)
    kernel = KERNELS[name]()
    first = embedding_of(kernel, 0.05).condition(x[:20], y[:20], w[:20] if weighted else None)
    updated = first.updated(x[20:], y[20:], w[20:] if weighted else None)
    whole = embedding_of(kernel, 0.05 * old / total).condition(x, y, w if weighted else None)
    torch.testing.assert_close(updated.mean(x), whole.mean(x), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(updated.leave_one_out(), whole.leave_one_out(), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(updated.regularization, whole.regularization)
    assert (first.num_data, updated.num_data) == (20, 30)


def test_soft_labels_join_class_numbers(data):
    x, y, _ = data
    soft = torch.nn.functional.one_hot(y[20:], 3).double()
    first = embedding_of(RBFKernel(), 0.05).condition(x[:20], y[:20])
    torch.testing.assert_close(first.updated(x[20:], soft).mean(x), first.updated(x[20:], y[20:]).mean(x))


def test_real_targets_grow_too(data):
    x, _, _ = data
    first = ke.ConditionalEmbedding(RBFKernel().double(), 0.05).condition(x[:20], x[:20, 0])
    updated = first.updated(x[20:], x[20:, 0])
    whole = ke.ConditionalEmbedding(RBFKernel().double(), 0.05 * 20 / 30).condition(x, x[:, 0])
    torch.testing.assert_close(updated.quantile(0.3, x), whole.quantile(0.3, x), rtol=1e-6, atol=1e-8)


def test_sums_grow_and_old_predictors_stay(data):
    x, y, _ = data
    embedding = embedding_of(RFFKernel(8, num_dims=2), 0.05)
    statistics = accumulate(embedding, x[:20], y[:20])
    first = statistics.condition()
    before, G = first.mean(x), first.statistics.G
    updated = first.updated(x[20:], y[20:])
    statistics.update(x[20:], y[20:])
    embedding.regularization = 0.05 * 20 / 30
    torch.testing.assert_close(updated.mean(x), accumulate(embedding, x, y).condition().mean(x), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(first.mean(x), before, rtol=0, atol=0)
    torch.testing.assert_close(first.statistics.G, G, rtol=0, atol=0)


def test_wrong_rows_are_rejected(data):
    x, y, _ = data
    first = embedding_of(RBFKernel(), 0.05).condition(x[:20], y[:20])
    with pytest.raises(ValueError, match="Expected"):
        first.updated(x[20:, :1], y[20:])
    with pytest.raises(ValueError, match="Expected class numbers"):
        first.updated(x[20:], y[20:] + 7)
