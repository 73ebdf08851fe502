"""Sufficient statistics: one pass, any split, the same predictions."""

import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel, RFFKernel
from linear_operator.utils.errors import NanError
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import kernel_embed as ke
from kernel_embed.kernels.classes import FeatureKernel
from kernel_embed.objectives import rademacher_complexity
from kernel_embed.scale import FeatureStatistics, accumulate

from ..conftest import make_problem
from ..explicit_kernels import explicit_kernels, network


@pytest.mark.parametrize("name", sorted(explicit_kernels()))
@pytest.mark.parametrize("batch_size", [1, 7, 60])
def test_predictions_are_those_of_condition(name, batch_size):
    p = make_problem(n=60)
    embedding = ke.MulticlassEmbedding(explicit_kernels()[name], p.m, 0.003)
    exact = embedding.condition(p.x, p.y)
    predictor = accumulate(embedding, DataLoader(TensorDataset(p.x, p.y), batch_size)).condition()
    close = {"rtol": 1e-8, "atol": 1e-8}
    for method in ("decision_probabilities", "probabilities", "entropy"):
        torch.testing.assert_close(getattr(predictor, method)(p.query), getattr(exact, method)(p.query), **close)
    assert torch.equal(predictor.predict(p.query), exact.predict(p.query))
    values = torch.arange(3.0, dtype=torch.float64)
    torch.testing.assert_close(predictor.expectation(values, p.query), exact.expectation(values, p.query), **close)
    torch.testing.assert_close(rademacher_complexity(predictor), rademacher_complexity(exact), **close)
    assert predictor.num_data == 60


def test_blocks_and_sums_of_parts():
    p = make_problem(n=900)
    embedding = ke.MulticlassEmbedding(FeatureKernel(network()), p.m)
    whole = accumulate(embedding, p.x, p.y)
    parts = accumulate(embedding, p.x[:300], p.y[:300]) + accumulate(embedding, p.x[300:], p.y[300:])
    both = FeatureStatistics(embedding) + whole  # an empty part
    for other in (parts, both):
        torch.testing.assert_close(other.G, whole.G)
        torch.testing.assert_close(other.C, whole.C)
        assert (other.num_data, other.largest_diagonal) == (900, whole.largest_diagonal)
    torch.testing.assert_close(parts.condition().predict(p.query), whole.condition().predict(p.query))


def test_sums_are_in_float64():
    x = torch.full((200_000, 1), 0.1)
    embedding = ke.MulticlassEmbedding(FeatureKernel(nn.Identity()), 2)
    statistics = accumulate(embedding, DataLoader(TensorDataset(x, torch.zeros(200_000)), 1000))
    assert statistics.G.dtype == torch.float64
    assert statistics.G.item() == pytest.approx(2000.0, rel=1e-4)
    assert statistics.condition().decision_probabilities(x[:3]).dtype == torch.float32


def test_the_kernel_stays_what_it_was_at_the_first_row(problem):
    embedding = ke.MulticlassEmbedding(LinearKernel().double(), problem.m)
    statistics = FeatureStatistics(embedding).update(problem.x[:10], problem.y[:10])
    expected = accumulate(embedding, problem.x, problem.y)
    embedding.kernel.variance = 7.0
    torch.testing.assert_close(statistics.update(problem.x[10:], problem.y[10:]).G, expected.G)


def network_embedding():
    return ke.MulticlassEmbedding(FeatureKernel(network()), 3)


RFF, BATCHED = RFFKernel(9, num_dims=3).double(), LinearKernel(batch_shape=torch.Size([2]))
REJECTED = [
    (lambda e, p: FeatureStatistics(ke.MulticlassEmbedding(RBFKernel(), 2)), r"got RBFKernel. Approximate it"),
    (lambda e, p: FeatureStatistics(ke.MulticlassEmbedding(BATCHED, 2)), "without batch shape"),
    (lambda e, p: FeatureStatistics(e).condition(), r"There are no rows yet. Call update"),
    (lambda e, p: accumulate(e, p.x), "Targets y are missing"),
    (lambda e, p: accumulate(e, p.x, p.y + 1), "Expected class numbers from 0 to 2"),
    (lambda e, p: accumulate(e, DataLoader(p.x, 4)), "yields only x"),
    (
        lambda e, p: accumulate(e, p.x, p.y) + accumulate(ke.MulticlassEmbedding(RFF, 3), p.x, p.y),
        "of 4 .*, got 18 and 3",
    ),
]


@pytest.mark.parametrize(("call", "message"), REJECTED, ids=[message for _, message in REJECTED])
def test_bad_arguments(call, message, problem):
    with pytest.raises((TypeError, ValueError), match=message):
        call(network_embedding(), problem)


def test_features_that_change_or_are_not_finite(problem):
    class Broken(nn.Module):
        def forward(self, x):
            return x * float("nan") if len(x) == 4 else x[:, : 1 + len(x) % 2]

    broken = ke.MulticlassEmbedding(FeatureKernel(Broken()), problem.m)
    with pytest.raises(NanError, match=r"Expected finite features, got NaN or infinite ones among rows 0 to 3"):
        accumulate(broken, problem.x[:4], problem.y[:4])
    changing = FeatureStatistics(broken).update(problem.x[:5], problem.y[:5])
    with pytest.raises(ValueError, match=r"returned 1 features, but 2 for the training data"):
        changing.update(problem.x[:6], problem.y[:6])
    assert changing.num_data == 5


@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_values_at_rows_that_were_seen(weighted):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(40, 2, dtype=torch.float64, generator=generator)
    y = (x[:, 0] > 0).long()
    w = torch.randint(1, 4, (40,), generator=generator).double() if weighted else None
    embedding = ke.MulticlassEmbedding(RFFKernel(6, num_dims=2), 2, 0.01).double()
    predictor = FeatureStatistics(embedding).update(x, y, w).condition()
    expected = embedding.condition(x, y, w).leave_one_out()
    values = predictor.leave_one_out_at(x[5:20], y[5:20], None if w is None else w[5:20])
    torch.testing.assert_close(values, expected[5:20], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_half_of_the_sums_stand_for_the_whole(dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 450, generator=generator, dtype=torch.float64).to(dtype)  # more features than one block holds
    y, weights = torch.randn(300, 2, generator=generator).to(dtype), torch.rand(300, generator=generator).to(dtype)
    embedding = ke.ConditionalEmbedding(FeatureKernel(nn.Identity())).to(dtype)
    statistics = FeatureStatistics(embedding).update(x[:100], y[:100], weights[:100])
    statistics.update(x[100:], y[100:], weights[100:])
    Z, W = x.double(), weights.double().unsqueeze(-1)
    close = {"rtol": 1e-10, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-3}
    torch.testing.assert_close(statistics.G, Z.mT @ (W * Z), **close)
    torch.testing.assert_close(statistics.C, Z.mT @ (W * y.double()), **close)
    x[290, 3] = 1e200 if dtype == torch.float64 else 1e30  # finite, but its square is not
    with pytest.raises(NanError, match="Expected finite features"):
        statistics.update(x, y, weights)
    torch.testing.assert_close(statistics.G, statistics.G.mT, **close)  # both halves, up to the row that failed
