"""Near points keep their digits whatever lies far: against differences taken one by one."""

import warnings

import gpytorch
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, RQKernel
from linear_operator.utils.errors import NanError
from linear_operator.utils.warnings import NumericalWarning

import kernel_embed as ke
from kernel_embed.embeddings.slopes import radial_slope
from kernel_embed.kernels.lengthscales import scan_span
from kernel_embed.kernels.radial import SQUARED_EXPONENTIAL, half_squares, radial_gram, square_distances
from kernel_embed.kernels.registration import matern


def points(n: int = 60, d: int = 3) -> torch.Tensor:
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def far_apart(name: str, n: int = 60) -> torch.Tensor:
    """Points of which most have near ones, with others far away."""
    x = points(n)
    match name:
        case "two clusters":
            x[n // 2 :] += 1e8
        case "many clusters":
            x += 1e7 * torch.arange(n, dtype=x.dtype).remainder(7).unsqueeze(-1) * torch.tensor([1.0, -2.0, 3.0])
        case "clusters of clusters":
            steps = torch.arange(n, dtype=x.dtype)
            x = 0.1 * x + 1e4 * steps.remainder(3).unsqueeze(-1) + 1e9 * steps.remainder(2).unsqueeze(-1)
        case "one outlier":
            x[0] = 1e11
        case "scattered":
            x = x * 1e6
            x[1::2] = x[::2] + 0.5
    return x


NAMES = ["two clusters", "many clusters", "clusters of clusters", "one outlier", "scattered"]


def by_differences(z1: torch.Tensor, z2: torch.Tensor) -> torch.Tensor:
    return (z1.unsqueeze(-2) - z2.unsqueeze(-3)).square().sum(-1)


@pytest.mark.parametrize("name", NAMES)
def test_distances(name: str) -> None:
    z = far_apart(name)
    exact = by_differences(z, z)
    for other in (None, z.clone()):
        found = square_distances(z, other)
        # The points themselves are given to 1e-16 of their size, and centering may round once more; 10⁵ roundings else.
        allowed = 1e-9 * exact + 2e-11 + 64 * 2.0**-53 * z.abs().max() * exact.sqrt()
        assert ((found - exact).abs() <= allowed).all(), name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("profile", [SQUARED_EXPONENTIAL, matern(0.5), matern(2.5)], ids=["rbf", "half", "five"])
def test_gradients(name: str, profile) -> None:
    """∂q/∂z and, what loses twice the digits, ∂q/∂ log ℓ, against autograd through differences."""
    x = far_apart(name)
    weights = torch.randn(x.shape[0], x.shape[0], dtype=x.dtype, generator=torch.Generator().manual_seed(1))
    different = by_differences(x, x) > 0
    gradients = []
    for exact in (False, True):
        log_scale = torch.zeros((), dtype=x.dtype, requires_grad=True)
        z = x.clone().requires_grad_()
        if exact:
            # Scale the differences, not the points: their ratio to the lengthscale is what is asked.
            s = torch.where(different, by_differences(z, z), 1.0) * torch.exp(-2.0 * log_scale)
            K = torch.where(different, profile.value_and_slope(s)[0], profile.at_zero())
        else:
            K = radial_gram(z * torch.exp(-log_scale), None, profile)
        gradients.append(torch.autograd.grad((weights * K).sum(), [z, log_scale]))
    (found_z, found_scale), (exact_z, exact_scale) = gradients
    precision = 2.0**-50 * float(x.abs().max())
    torch.testing.assert_close(found_z, exact_z, rtol=1e-8, atol=max(1e-10, 10.0 * precision))
    torch.testing.assert_close(found_scale, exact_scale, rtol=1e-8, atol=max(1e-9, 1e3 * precision))


def test_gram_of_two_clusters_and_batches() -> None:
    x = torch.stack([far_apart("two clusters", 200), points(200)])
    kernel = RBFKernel(batch_shape=torch.Size([2])).double()
    K = ke.kernels.gram(kernel, x).detach()
    z = x / kernel.lengthscale.detach()
    torch.testing.assert_close(K, torch.exp(-0.5 * by_differences(z, z)), rtol=0, atol=1e-7)
    torch.testing.assert_close(K[1], ke.kernels.gram(kernel, points(200)).detach()[1], rtol=0, atol=1e-14)


@pytest.mark.parametrize("kernel", [RBFKernel(), MaternKernel(0.5), MaternKernel(1.5), RQKernel()], ids=repr)
def test_copies_at_tiny_lengthscales(kernel: gpytorch.kernels.Kernel) -> None:
    kernel = kernel.double()
    kernel.raw_lengthscale_constraint = gpytorch.constraints.Positive()
    kernel.initialize(lengthscale=1e-12)
    x = points(40)
    assert torch.equal(ke.kernels.gram(kernel, x, x.clone()).diagonal(), torch.ones(40, dtype=x.dtype))


@pytest.mark.parametrize("name", ["two clusters", "clusters of clusters"])
def test_slope_of_the_embedding(name: str) -> None:
    """μ̂, v and their gradients in the log domain, beside autograd through differences."""
    x = far_apart(name)
    gradients, values = [], []
    h = points(60).mul_(0.1)
    for exact in (False, True):
        log_scale = torch.zeros((), dtype=x.dtype, requires_grad=True)
        if exact:
            differences = (x.unsqueeze(1) - x.unsqueeze(0)) * torch.exp(-log_scale)
            K = torch.exp(-0.5 * differences.square().sum(-1))
            mean, v = K.mean(-1), -(K.unsqueeze(-1) * differences).mean(-2)
        else:
            z = x * torch.exp(-log_scale)
            mean, scaled, m, _ = radial_slope(z, z, torch.arange(60), SQUARED_EXPONENTIAL)
            v = scaled * m.exp().unsqueeze(-1)
        values.append((mean.detach(), v.detach()))
        gradients.append(torch.autograd.grad(mean.sum() + (h * v).sum(), log_scale)[0])
    torch.testing.assert_close(values[0], values[1], rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-5, atol=1e-6)


def test_sized_gaussians() -> None:
    x = far_apart("two clusters")
    size = torch.tensor([0.3, -0.7], dtype=x.dtype, requires_grad=True)
    K = radial_gram(x.requires_grad_(), None, SQUARED_EXPONENTIAL, size)
    exact = torch.exp(size.detach()[:, None, None] - 0.5 * by_differences(x, x).detach())
    torch.testing.assert_close(K.detach(), exact, rtol=0, atol=1e-7)
    K.sum().backward()
    torch.testing.assert_close(size.grad, exact.sum((-2, -1)), rtol=1e-7, atol=0)
    assert x.grad is not None
    assert x.grad.abs().max() < 1e3


def test_usual_data_are_not_done_again() -> None:
    for shift in (0.0, 1e8):
        z = points(200, 10) + shift
        assert not half_squares(z - z.mean(0), None)[1]


def test_far_points_are_spoken_of() -> None:
    kernel = RBFKernel().double()
    x = points(30)
    x[0] = 1e15
    with pytest.warns(NumericalWarning, match=r"lengthscales from zero, where torch.float64 cannot tell"):
        ke.kernels.gram(kernel, x)
    refused = pytest.raises(NanError, match=r"too many lengthscales apart.*Rescale x")
    with pytest.warns(NumericalWarning), refused:
        ke.kernels.gram(kernel, x * 1e170)


def test_one_far_row_does_not_decide_a_test() -> None:
    x, y = points(60, 2), points(120, 2)[60:] + 1.5
    clean = ke.two_sample_test(x, y, num_permutations=199, seed=0).pvalue
    y[0] = 1e15
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        assert ke.two_sample_test(x, y, num_permutations=199, seed=0).pvalue == clean == 0.005


def test_span_beside_a_far_point() -> None:
    x = points(100, 2)
    shortest = scan_span(x)[0]
    x[0] = 1e9
    assert scan_span(x)[0] == pytest.approx(max(shortest, 1e-6 * scan_span(x)[1] / 2), rel=0.2)
