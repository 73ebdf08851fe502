"""Multiclass embeddings, eqs. (4) to (6), (33) and (37), and their equivalence with kernel ridge regression."""

import math

import numpy as np
import pytest
import torch
from sklearn.kernel_ridge import KernelRidge

import kernel_embed as ke
from kernel_embed.embeddings import clip_normalize

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
