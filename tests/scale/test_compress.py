"""Compression to a few points: the projection is the nearest function, and the report states its error."""

import pytest
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed.kernels.classes import FeatureKernel
from kernel_embed.scale import compress

from ..conftest import make_problem, rbf
from ..explicit_kernels import network


@pytest.fixture
def conditioned():
    p = make_problem(n=120)
    return ke.MulticlassEmbedding(rbf(), p.m, 0.001).condition(p.x, p.y)


@pytest.mark.parametrize("choice", ["greedy", "herding"])
def test_the_compressed_function_is_the_projection(conditioned, choice):
    few, report = compress(conditioned, 15, choice)
    S = few.points
    K_SS = ke.gram(conditioned.embedding.kernel, S)
    B = torch.linalg.solve(K_SS, conditioned.decision_probabilities(S))
    torch.testing.assert_close(few.coefficients, B, rtol=1e-5, atol=1e-6)
    V, K = conditioned.V, conditioned.K
    cross = ke.gram(conditioned.embedding.kernel, conditioned.x, S)
    squared = (V * (K @ V)).sum() - 2 * (V * (cross @ B)).sum() + (B * (K_SS @ B)).sum()
    assert report.relative_norm == pytest.approx((squared / conditioned.squared_norm).sqrt().item(), rel=1e-5)
    difference = few.decision_probabilities(conditioned.x) - conditioned.P
    assert report.largest_difference == pytest.approx(difference.abs().max().item(), rel=1e-9)


def test_greedy_is_nearer_than_herding_and_both_approach(conditioned):
    errors = {c: [compress(conditioned, s, c)[1].relative_norm for s in (5, 20, 60)] for c in ("greedy", "herding")}
    for error in errors.values():
        assert error[0] > error[1] > error[2]
    assert errors["greedy"][1] < errors["herding"][1]
    assert errors["greedy"][2] < 0.2
    few, report = compress(conditioned, 1)
    best = (conditioned.P.square().sum(-1) / conditioned.K.diagonal()).argmax()
    assert torch.equal(few.points[0], conditioned.x[best])  # the best single step
    assert report.num_points == 1


def test_accuracy_is_reported_on_request_and_for_classes_only(conditioned):
    other = make_problem(n=50, seed=0)
    few, report = compress(conditioned, 60, x=other.x, y=other.y)
    assert report.accuracy == (conditioned.predict(other.x) == other.y).double().mean().item()
    assert report.compressed_accuracy == (few.predict(other.x) == other.y).double().mean().item()
    assert report.accuracy_loss == report.accuracy - report.compressed_accuracy
    assert abs(compress(conditioned, 60)[1].accuracy_loss) < 0.1
    p = make_problem(n=60)
    numbers = ke.ConditionalEmbedding(rbf(), 0.001).condition(p.x, p.x.sin())
    few, report = compress(numbers, 40)
    assert report.accuracy is report.accuracy_loss is None
    assert (few.mean(p.x) - numbers.P).abs().max() < 0.1


def test_four_features_need_no_more_than_four_points():
    p = make_problem(n=60)
    conditioned = ke.MulticlassEmbedding(FeatureKernel(network()), p.m, 0.001).condition(p.x, p.y)
    few, report = compress(conditioned, 40)
    assert report.num_points <= 4
    torch.testing.assert_close(
        few.decision_probabilities(p.query), conditioned.decision_probabilities(p.query), rtol=1e-6, atol=1e-6
    )
    assert report.relative_norm < 1e-6


def test_predictions_stay_when_the_kernel_learns_on(conditioned):
    few, _ = compress(conditioned, 10)
    before = few.probabilities(conditioned.x[:5]).detach()
    conditioned.embedding.kernel.lengthscale = 0.1
    assert torch.equal(few.probabilities(conditioned.x[:5]), before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: compress(c, 0), "Expected num_points from 1 to the 120 rows"),
        (lambda c: compress(c, 121), "Expected num_points from 1 to the 120 rows"),
        (lambda c: compress(c, 3, "random"), "Expected choice"),
        (lambda c: compress(c, 3, x=c.x), "pass both x and y"),
        (lambda c: compress(batch_of_two().condition(c.x, c.y), 3), "without batch shape"),
    ],
)
def test_bad_arguments(call, message, conditioned):
    with pytest.raises(ValueError, match=message):
        call(conditioned)


def batch_of_two():
    return ke.MulticlassEmbedding(RBFKernel(batch_shape=torch.Size([2])).double(), 3)
