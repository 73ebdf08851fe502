"""Adding rows gives the predictions of conditioning on all rows at once."""

import gpytorch
import pytest
import torch

import kernel_embed as ke
from kernel_embed.scale import accumulate


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
    "dense": lambda: gpytorch.kernels.MaternKernel(nu=1.5),
    "features": lambda: gpytorch.kernels.LinearKernel() + gpytorch.kernels.LinearKernel(),
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
    first = embedding_of(gpytorch.kernels.RBFKernel(), 0.05).condition(x[:20], y[:20])
    torch.testing.assert_close(first.updated(x[20:], soft).mean(x), first.updated(x[20:], y[20:]).mean(x))


def test_real_targets_grow_too(data):
    x, _, _ = data
    first = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel().double(), 0.05).condition(x[:20], x[:20, 0])
    updated = first.updated(x[20:], x[20:, 0])
    whole = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel().double(), 0.05 * 20 / 30).condition(x, x[:, 0])
    torch.testing.assert_close(updated.quantile(0.3, x), whole.quantile(0.3, x), rtol=1e-6, atol=1e-8)


def test_sums_grow_and_old_predictors_stay(data):
    x, y, _ = data
    embedding = embedding_of(gpytorch.kernels.RFFKernel(8, num_dims=2), 0.05)
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
    first = embedding_of(gpytorch.kernels.RBFKernel(), 0.05).condition(x[:20], y[:20])
    with pytest.raises(ValueError, match="Expected"):
        first.updated(x[20:, :1], y[20:])
    with pytest.raises(ValueError, match="Expected class numbers"):
        first.updated(x[20:], y[20:] + 7)
