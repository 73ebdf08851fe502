"""μ̂ and log γ by closed form, product rule and autograd; the log domain, blocks, repeated points."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel
from linear_operator.utils.errors import NanError
from linear_operator.utils.warnings import NumericalWarning

from kernel_embed.embeddings import empirical, empirical_embedding, slopes

from ..bayesian_kernels import rbf, shaken

RADIAL = {
    "rbf": lambda: RBFKernel(),
    "ard": lambda: RBFKernel(ard_num_dims=2),
    "matern 1/2": lambda: MaternKernel(nu=0.5),
    "matern 3/2": lambda: MaternKernel(nu=1.5, ard_num_dims=2),
    "matern 5/2": lambda: ScaleKernel(MaternKernel(nu=2.5)),
    "columns": lambda: ScaleKernel(RBFKernel(active_dims=[1])),
}


def with_gradient(embed, kernel, seed=0):
    """μ̂ and log γ, and the gradient of a random combination of them."""
    embedded = embed()
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(2, *embedded.mean.shape, generator=generator, dtype=torch.float64)
    total = (weights[0] * embedded.mean + weights[1] * embedded.log_slope).sum()
    gradients = torch.autograd.grad(total, [p for p in kernel.parameters() if p.requires_grad])
    return embedded.mean, embedded.log_slope, torch.cat([g.reshape(-1) for g in gradients])


def by_loop(kernel, x):
    """Eqs. (2) and (12), the derivative of every pair by central differences."""
    n, d = x.shape
    mean, log_slope = [], []
    for i in range(n):
        mean.append(sum(kernel(x[j : j + 1], x[i : i + 1]).to_dense().item() for j in range(n)) / n)
        slope = np.zeros(d)
        for c in range(d):
            step = torch.zeros(1, d, dtype=x.dtype)
            step[0, c] = 1e-6
            for j in range(n):
                ends = [kernel(x[i : i + 1] + s * step, x[j : j + 1]).to_dense().item() for s in (1, -1)]
                slope[c] += (ends[0] - ends[1]) / 2e-6 / n
        log_slope.append(math.log(np.linalg.norm(slope)))
    return torch.tensor(mean, dtype=x.dtype), torch.tensor(log_slope, dtype=x.dtype)


@pytest.mark.parametrize(
    "make", [RADIAL["ard"], RADIAL["matern 3/2"], RQKernel, LinearKernel, lambda: RBFKernel() * PeriodicKernel()]
)
def test_against_a_loop_with_differences(make, x):
    kernel = shaken(make())
    embedded = empirical_embedding(kernel, x[:8])
    mean, log_slope = by_loop(kernel, x[:8])
    torch.testing.assert_close(embedded.mean, mean)
    torch.testing.assert_close(embedded.log_slope, log_slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", RADIAL)
def test_closed_form_rules_and_autograd_agree(name, x, monkeypatch):
    kernel = shaken(RADIAL[name]())
    own = torch.arange(len(x))
    closed = with_gradient(lambda: empirical_embedding(kernel, x), kernel)
    rules = with_gradient(lambda: empirical._general_embedding(kernel, x, x, own), kernel)
    monkeypatch.setattr(slopes, "fold", lambda kernel, rules: None)
    autograd = with_gradient(lambda: empirical._general_embedding(kernel, x, x, own), kernel)
    for one, two, three in zip(closed, rules, autograd, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(one, three, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", RADIAL)
def test_blocks_change_nothing(name, x, monkeypatch):
    kernel = shaken(RADIAL[name]())
    whole = with_gradient(lambda: empirical_embedding(kernel, x), kernel)
    monkeypatch.setattr(slopes, "MAX_STORED", 0)
    monkeypatch.setattr(slopes, "BLOCK_ENTRIES", 60)
    for one, two in zip(whole, with_gradient(lambda: empirical_embedding(kernel, x), kernel), strict=True):
        torch.testing.assert_close(one, two)


def test_some_rows_and_other_points(x):
    kernel = rbf(0.5, 0.8)
    whole = empirical_embedding(kernel, x)
    rows = torch.tensor([3, 17, 4])
    some = empirical_embedding(kernel, x, x[rows], rows)
    torch.testing.assert_close(some.log_slope, whole.log_slope[rows])
    elsewhere = empirical_embedding(kernel, x, x + 1e-9)
    torch.testing.assert_close(elsewhere.log_slope, whole.log_slope, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(elsewhere.mean, whole.mean)


def test_underflow_is_a_finite_logarithm():
    # two points at distance d: γ = (d/ℓ²) exp(−d²/2ℓ²) / 2
    x = torch.tensor([[0.0], [5.0]], dtype=torch.float64)
    kernel = rbf(0.01)
    expected = math.log(5.0 / 0.01**2 / 2) - 0.5 * (5.0 / 0.01) ** 2
    log_slope = empirical_embedding(kernel, x).log_slope
    torch.testing.assert_close(log_slope, torch.full((2,), expected, dtype=torch.float64))
    log_slope.sum().backward()
    assert torch.isfinite(kernel.raw_lengthscale.grad).all()


@pytest.mark.parametrize("make", [lambda: rbf(0.01), lambda: shaken(MaternKernel(nu=0.5))])
def test_a_lonely_pair_of_equal_points(make):
    # Their slope comes from the far points alone: merging equals writing the pair as one point of weight two.
    x = torch.tensor([[0.0], [0.7], [1.0], [9.0], [9.0]], dtype=torch.float64)
    kernel = make()
    embedded = empirical_embedding(kernel, x)
    assert torch.isfinite(embedded.log_slope).all()
    torch.testing.assert_close(embedded.log_slope[3], embedded.log_slope[4])
    near = empirical_embedding(kernel, x + torch.tensor([[0.0], [0.0], [0.0], [0.0], [1e-7]]).double())
    torch.testing.assert_close(embedded.mean, near.mean, rtol=1e-4, atol=1e-4)


def test_repeated_points_are_weights(x):
    kernel = rbf(0.5, 0.8)
    doubled = empirical_embedding(kernel, torch.cat([x, x]))
    torch.testing.assert_close(doubled.log_slope, empirical_embedding(kernel, x).log_slope.repeat(2))


def test_own_terms_of_other_kernels_count_half(x):
    # For the linear kernel vxᵀy the slope is v·mean(x) everywhere, own terms included.
    kernel = shaken(LinearKernel())
    expected = (kernel.variance.squeeze() * x.mean(0).norm()).log()
    log_slope = empirical_embedding(kernel, x).log_slope
    torch.testing.assert_close(log_slope, expected.expand(20) if expected.dim() == 0 else expected.expand_as(log_slope))


def test_flat_embeddings_are_announced_or_refused():
    x = torch.tensor([[-1.0], [0.0], [1.0]], dtype=torch.float64)
    with pytest.warns(NumericalWarning, match="flat, up to rounding, at 1 of 3"):
        embedded = empirical_embedding(rbf(1.0), x)
    assert torch.isfinite(embedded.log_slope).all()
    assert embedded.log_slope[1] < -30
    with pytest.raises(NanError, match="all points are copies of one"):
        empirical_embedding(rbf(1.0), torch.ones(4, 2, dtype=torch.float64))
    far = torch.tensor([[0.0], [1e4], [2.1e4]], dtype=torch.float64)
    with pytest.raises(NanError, match="underflows"):
        empirical_embedding(rbf(1.0) + rbf(2.0), far)


def test_draws_are_one_more_batch_dimension(x):
    kernel = RBFKernel(batch_shape=torch.Size([3])).double()
    kernel.lengthscale = torch.tensor([0.3, 0.6, 1.2]).double()[:, None, None]
    together = empirical_embedding(kernel, x)
    product = empirical_embedding(kernel * PeriodicKernel().double(), x)
    for i in range(3):
        alone = rbf(kernel.lengthscale[i].item())
        torch.testing.assert_close(together.log_slope[i], empirical_embedding(alone, x).log_slope)
        single = empirical_embedding(alone * PeriodicKernel().double(), x)
        torch.testing.assert_close(product.log_slope[i], single.log_slope, rtol=1e-6, atol=1e-6)
