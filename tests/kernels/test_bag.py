"""Kernels between bags, and a Gaussian process that regresses on distributions."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from kernel_embed.embeddings.mean import MeanEmbedding
from kernel_embed.kernels.bags import BagKernel, MMDKernel, pack_bags

from ..bayesian_kernels import ExactGP, rbf


def bags(sizes=(4, 7, 1, 7), d=2):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, d, generator=generator, dtype=torch.float64) for n in sizes]


def test_inner_products_are_those_of_mean_embeddings():
    sample, other = bags(), bags((3, 5))
    kernel = rbf(0.8, 1.2)
    K = BagKernel(kernel, num_features=2)(pack_bags(sample, 9), pack_bags(other, 9)).to_dense()
    for i, one in enumerate(sample):
        for j, two in enumerate(other):
            mean = MeanEmbedding(kernel)
            torch.testing.assert_close(K[i, j], mean.condition(one).inner(mean.condition(two)))


def test_gaussian_form_is_that_of_the_mmd():
    sample = bags()
    kernel = rbf(0.8, 1.2)
    mmd = MMDKernel(kernel, num_features=2).double()
    mmd.lengthscale = torch.tensor(0.6, dtype=torch.float64)
    K = mmd(pack_bags(sample)).to_dense()
    mean = MeanEmbedding(kernel)
    for i, one in enumerate(sample):
        for j, two in enumerate(sample):
            square = mean.condition(one).squared_distance(mean.condition(two))
            torch.testing.assert_close(K[i, j], torch.exp(-0.5 * square / 0.36), rtol=1e-9, atol=1e-12)


def test_padding_and_blocks_change_nothing(monkeypatch):
    sample = bags()
    kernel = BagKernel(rbf(0.8), num_features=2)
    plain = kernel(pack_bags(sample)).to_dense()
    torch.testing.assert_close(kernel(pack_bags(sample, 20)).to_dense(), plain)
    torch.testing.assert_close(kernel(pack_bags(sample), diag=True), plain.diagonal())
    monkeypatch.setattr("kernel_embed.kernels.bags.BLOCK_ENTRIES", 1)
    torch.testing.assert_close(kernel(pack_bags(sample)).to_dense(), plain)


@pytest.mark.parametrize("make", [BagKernel, MMDKernel])
def test_distribution_regression(make):
    """An ordinary ExactGP learns the standard deviation of a distribution from samples of different size."""
    generator = torch.Generator().manual_seed(1)
    deviations = torch.rand(40, generator=generator, dtype=torch.float64) + 0.5
    sizes = torch.randint(10, 30, (40,), generator=generator).tolist()
    sample = [
        s * torch.randn(n, 1, generator=generator, dtype=torch.float64) for s, n in zip(deviations, sizes, strict=True)
    ]
    x = pack_bags(sample)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = ExactGP(x[:30], deviations[:30], likelihood, ScaleKernel(make(RBFKernel(), num_features=1))).double()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(25):
        optimizer.zero_grad()
        loss = -objective(model(x[:30]), deviations[:30])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        error = (model(x[30:]).mean - deviations[30:]).square().mean().sqrt()
    assert error < 0.7 * deviations.std()


X = torch.zeros(3, 4)
REJECTED = [
    (lambda: pack_bags([torch.zeros(2, 1), torch.zeros(2, 2)]), "one number of columns"),
    (lambda: pack_bags([torch.zeros(3, 1)], size=2), "at least 3, the largest bag"),
    (lambda: pack_bags([]), "at least one bag"),
    (lambda: BagKernel(RBFKernel(), num_features=2)(X).to_dense(), "Build them with pack_bags"),
    (lambda: BagKernel(RBFKernel(), num_features=1).forward(X, X, last_dim_is_batch=True), "last_dim_is_batch"),
    (lambda: MMDKernel(RBFKernel(), num_features=1).forward(X, X, last_dim_is_batch=True), "last_dim_is_batch"),
]


@pytest.mark.parametrize(("call", "message"), REJECTED)
def test_bad_bags(call, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        call()
