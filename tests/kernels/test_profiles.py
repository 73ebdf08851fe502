"""φ, φ′ and φ″ of every radial kernel: against GPyTorch and autograd."""

import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel

from kernel_embed.kernels import MahalanobisKernel, RadialProfile, plain_profile
from kernel_embed.kernels.profiles import SQUARED_EXPONENTIAL, matern, radial_of

PROFILES = {"rbf": SQUARED_EXPONENTIAL, "1/2": matern(0.5), "3/2": matern(1.5), "5/2": matern(2.5)}

PHI = {
    "rbf": lambda s: torch.exp(-0.5 * s),
    "1/2": lambda s: torch.exp(-s.sqrt()),
    "3/2": lambda s: (1.0 + (3.0 * s).sqrt()) * torch.exp(-(3.0 * s).sqrt()),
    "5/2": lambda s: (1.0 + (5.0 * s).sqrt() + 5.0 * s / 3.0) * torch.exp(-(5.0 * s).sqrt()),
}

S = torch.tensor([0.01, 0.3, 1.0, 2.5, 40.0], dtype=torch.float64)


def three(profile: RadialProfile, s):
    """φ, φ′, φ″ from factors and exponent."""
    E = profile.exponent(-0.5 * s)
    return [factor * E.exp() for factor in (*profile.factors(E), profile.curvature(E))]


@pytest.mark.parametrize("name", PROFILES)
def test_derivatives_equal_autograd(name):
    s = S.clone().requires_grad_()
    phi = PHI[name](s)
    (slope,) = torch.autograd.grad(phi.sum(), s, create_graph=True)
    (curvature,) = torch.autograd.grad(slope.sum(), s)
    for mine, other in zip(three(PROFILES[name], S), (phi, slope, curvature), strict=True):
        torch.testing.assert_close(mine, other.detach(), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("name", PROFILES)
def test_the_form_of_the_gram_matrix_is_the_same(name):
    K, slope, factor = PROFILES[name](-0.5 * S)
    phi, first, _ = three(PROFILES[name], S)
    torch.testing.assert_close(K, phi)
    torch.testing.assert_close(factor * (K if slope is None else slope), first)
    assert PROFILES[name].at_zero() == 1.0
    assert (slope is None) == PROFILES[name].constant


@pytest.mark.parametrize("name", PROFILES)
def test_value_and_slope_are_differentiable(name):
    assert torch.autograd.gradcheck(PROFILES[name].value_and_slope, (S.clone().requires_grad_(),))
    phi, slope = plain_profile(PHI[name]).value_and_slope(S)
    torch.testing.assert_close(PROFILES[name].value_and_slope(S), (phi, slope))


@pytest.mark.parametrize("name", PROFILES)
def test_coinciding_points_have_a_value_and_no_infinite_slope(name):
    s = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    phi, slope = PROFILES[name].value_and_slope(s)
    (phi + slope).sum().backward()
    assert phi.item() == 1.0
    assert math.isfinite(slope.item())
    assert math.isfinite(s.grad.item())


@pytest.mark.parametrize("batch", [(), (3,)])
def test_rational_quadratic_with_its_learned_power(batch):
    kernel = RQKernel(batch_shape=torch.Size(batch)).double()
    kernel.alpha = 0.5 + torch.rand(*batch, 1, dtype=torch.float64)
    x1, x2 = torch.randn(5, 2, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    radial = radial_of(kernel)
    z1, z2 = radial.metric.scaled(x1), radial.metric.scaled(x2)
    s = (z1.unsqueeze(-2) - z2.unsqueeze(-3)).square().sum(-1)
    phi, slope = radial.profile.value_and_slope(s)
    expected = kernel(x1, x2).to_dense()
    torch.testing.assert_close(phi, expected)
    ours = torch.autograd.grad(phi.sum(), kernel.raw_alpha, retain_graph=True)[0]
    torch.testing.assert_close(ours, torch.autograd.grad(expected.sum(), kernel.raw_alpha)[0])
    torch.testing.assert_close(slope, torch.autograd.grad(phi.sum(), s, create_graph=True)[0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: RBFKernel(ard_num_dims=2),
        lambda: MaternKernel(2.5, batch_shape=torch.Size([2])),
        lambda: MahalanobisKernel(2),
    ],
)
def test_metrics_take_points_there_and_slopes_back(make):
    kernel = make().double()
    for parameter in kernel.parameters():
        parameter.data.add_(torch.rand_like(parameter))
    metric = radial_of(kernel).metric
    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(metric.scaled(x))
    (expected,) = torch.autograd.grad((metric.scaled(x) * weights).sum(), x)
    slope = metric.slope(weights)
    torch.testing.assert_close(slope.sum_to_size(x.shape), expected)


def test_whitening_says_how_many_columns_it_wants():
    with pytest.raises(ValueError, match="made for 3 features"):
        MahalanobisKernel(3).whiten(torch.randn(4, 2))
