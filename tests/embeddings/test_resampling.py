"""Weights of the training rows in predictions: exact, approximate and averaged, and rows drawn by them."""

import copy

import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch.utils.data import DataLoader, TensorDataset

import kernel_embed as ke
from kernel_embed.embeddings.probabilities import resampled_rows


@pytest.fixture(scope="module")
def rows():
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(40, 1, generator=generator, dtype=torch.float64)
    return x, torch.sin(6 * x.squeeze(-1)) + 0.3 * torch.randn(40, generator=generator, dtype=torch.float64)


def made() -> ke.ConditionalEmbedding:
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.2
    return ke.ConditionalEmbedding(kernel, 0.01).double()


QUERY = torch.linspace(0, 1, 4, dtype=torch.float64).unsqueeze(-1)


def test_approximate_weights_are_near_the_exact_ones(rows):
    x, y = rows
    exact = made().condition(x, y)
    near, _ = ke.approximate(made(), x, y, method=ke.Nystrom(40))
    torch.testing.assert_close(near.weights(QUERY), exact.weights(QUERY), atol=1e-4, rtol=0)
    # w is what carries any g: E[g(Y) | X = x] = Σ w_i(x) g(y_i)
    torch.testing.assert_close(near.weights(QUERY).mT @ y.square(), near.expectation(torch.square, QUERY))
    assert torch.equal(near.sample_rows(5, QUERY, seed=0), exact.sample_rows(5, QUERY, seed=0))


def test_left_out_distributions_through_features_are_those_of_the_same_kernel(rows):
    x, y = rows
    near, _ = ke.approximate(made(), x, y, method=ke.Nystrom(12))
    same = ke.ConditionalEmbedding(near.embedding.kernel, 0.01).double().condition(x, y)
    torch.testing.assert_close(
        near.leave_one_out_distribution().F, same.leave_one_out_distribution().F, atol=1e-8, rtol=0
    )


def test_a_posterior_averages_the_weights_of_its_draws(rows):
    x, y = rows
    posterior = ke.sample_posterior(made(), ke.LeaveOneOutScore(), x, y, num_samples=3, sampler=ke.Laplace(), seed=0)
    weights, left_out = 0.0, 0.0
    num_draws = len(posterior.weights)
    for s in range(num_draws):
        one = copy.deepcopy(made())
        one.initialize(**{name: values[s] for name, values in posterior.samples.items()})
        conditioned = one.condition(x, y)
        weights = weights + conditioned.weights(QUERY) / num_draws
        left_out = left_out + conditioned.leave_one_out_distribution().F / num_draws
    torch.testing.assert_close(posterior.row_weights(QUERY), weights)
    torch.testing.assert_close(posterior.leave_one_out_distribution().F, left_out)
    torch.testing.assert_close(posterior.row_weights(QUERY).mT @ y, posterior.mean(QUERY).squeeze(-1))
    assert torch.equal(posterior.sample_rows(4, QUERY, seed=2), resampled_rows(weights, 4, seed=2))


def test_rows_are_drawn_by_their_shares():
    w = torch.tensor([[0.5, -0.2], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    p = torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64)
    rows = resampled_rows(w, 40_000, seed=0, row_weights=p)
    for k in range(2):
        v = (w[:, k] + (1 - w[:, k].sum()) * p / 4).clamp_min(0)
        shares = torch.bincount(rows[k], minlength=3) / 40_000
        torch.testing.assert_close(shares.double(), v / v.sum(), atol=0.01, rtol=0)


def test_predictors_without_data_reject_what_needs_it(rows):
    x, y = rows
    loader = DataLoader(TensorDataset(x, y), batch_size=20)
    sums, _ = ke.approximate(made(), loader, method=ke.Nystrom(10))
    for call in (lambda: sums.weights(QUERY), lambda: sums.sample_rows(2, QUERY)):
        with pytest.raises(TypeError, match="does not hold its training data"):
            call()
    with pytest.raises(TypeError, match="which holds its targets"):
        sums.leave_one_out_distribution()
    labels = ke.MulticlassEmbedding(RBFKernel().double(), 2).condition(x, (y > 0).long())
    with pytest.raises(TypeError, match="For class labels use"):
        labels.leave_one_out_distribution()
    with pytest.raises(ValueError, match="Expected k of at least 1"):
        labels.sample_rows(0, QUERY)
