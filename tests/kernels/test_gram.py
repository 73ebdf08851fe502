"""``gram`` against GPyTorch, against loops, and its gradient against finite differences."""

import itertools
import warnings

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import (
    ConstantKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    PolynomialKernel,
    RBFKernel,
    RFFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from linear_operator.utils.errors import NanError
from linear_operator.utils.warnings import NumericalWarning
from torch.autograd import gradcheck

import kernel_embed as ke
from kernel_embed.embeddings.slopes import radial_slope
from kernel_embed.kernels.lengthscales import scan_span
from kernel_embed.kernels.radial import SQUARED_EXPONENTIAL, radial_gram, square_distances
from kernel_embed.kernels.registration import matern
from kernel_embed.kernels.supremum import gram_diagonal

from .. import oracles

D = 4


def base(name: str, ard: bool, batch: tuple[int, ...] = (), **options):
    """An RBF or Matérn kernel in float64 with lengthscales away from their start."""
    options |= {"ard_num_dims": options.pop("ard_num_dims", D) if ard else None, "batch_shape": torch.Size(batch)}
    kernel = RBFKernel(**options) if name == "rbf" else MaternKernel(float(name), **options)
    kernel = kernel.double()
    generator = torch.Generator().manual_seed(len(batch) + 1)
    shape = kernel.lengthscale.shape
    kernel.lengthscale = 0.7 + torch.rand(shape, generator=generator, dtype=torch.float64)
    return kernel


RADIAL = list(itertools.product(["rbf", "0.5", "1.5", "2.5"], [False, True]))


@pytest.fixture
def points():
    generator = torch.Generator().manual_seed(3)
    return (
        torch.randn(9, D, generator=generator, dtype=torch.float64),
        torch.randn(6, D, generator=generator, dtype=torch.float64),
    )


def assert_equals_gpytorch(kernel, x1, x2=None):
    expected = (kernel(x1) if x2 is None else kernel(x1, x2)).to_dense()
    answer = ke.gram(kernel, x1, x2)
    assert answer.shape == expected.shape
    assert answer.dtype == expected.dtype
    if x2 is None:
        # GPyTorch's Matérn ½ has 1 − 3e-8 on its diagonal, the root of a rounding error; the loops say who is right.
        torch.testing.assert_close(*(K.diagonal(dim1=-2, dim2=-1) for K in (answer, expected)), rtol=0, atol=1e-7)
        apart = ~torch.eye(len(x1), dtype=torch.bool)
        answer, expected = answer[..., apart], expected[..., apart]
    torch.testing.assert_close(answer, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("name", "ard"), RADIAL)
def test_radial_kernels_equal_loops(name, ard, points):
    kernel = base(name, ard)
    lengthscale = kernel.lengthscale.detach().numpy()
    k = oracles.rbf(lengthscale) if name == "rbf" else oracles.matern(float(name), lengthscale)
    x1, x2 = (p.numpy() for p in points)
    np.testing.assert_allclose(ke.gram(kernel, points[0]).detach(), oracles.gram(k, x1), rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(ke.gram(kernel, *points).detach(), oracles.gram(k, x1, x2), rtol=1e-11, atol=1e-13)


def with_columns(kernel, columns):
    kernel.active_dims = torch.tensor(columns)
    return kernel


def composed():
    batch = ScaleKernel(base("rbf", True, (2,)), batch_shape=torch.Size([2])).double()
    batch.outputscale = torch.tensor([0.5, 3.0], dtype=torch.float64)
    scaled = ScaleKernel(base("1.5", True)).double()
    scaled.outputscale = 2.5
    first, rest = base("rbf", False, active_dims=[0]), base("2.5", True, active_dims=[1, 3], ard_num_dims=2)
    second, pair = base("rbf", False, active_dims=[1]), base("rbf", True, active_dims=[2, 0], ard_num_dims=2)
    return {
        "scaled": scaled,
        "scaled twice": ScaleKernel(scaled).double(),
        "scaled batch": batch,
        "scale batch over plain base": ScaleKernel(base("rbf", True), batch_shape=torch.Size([3])).double(),
        "sum": scaled + base("rbf", True),
        "product": scaled * base("0.5", False),
        "sum of products": scaled * first + rest,
        "scaled sum": ScaleKernel(first + rest).double(),
        "active": pair,
        "scaled active": ScaleKernel(pair).double(),
        "active of the scale": ScaleKernel(base("rbf", False), active_dims=torch.tensor([1, 2])).double(),
        "columns of columns": with_columns(second + base("1.5", False), [3, 2]),
        "scale of columns of columns": ScaleKernel(with_columns(second * base("rbf", False), [3, 2])).double(),
        "product over columns": first * rest,
        "sum with batch": base("rbf", True, (2,)) + base("1.5", False),
        "with linear": scaled + LinearKernel().double(),
        "with periodic": first * PeriodicKernel(active_dims=[2]).double(),
    }


class DeepKernel(gpytorch.kernels.Kernel):
    """A network with a kernel on top, as a user would write it."""

    def __init__(self):
        super().__init__()
        self.network, self.base_kernel = torch.nn.Sequential(torch.nn.Linear(D, 2), torch.nn.Tanh()), RBFKernel()

    def forward(self, x1, x2, diag=False, **params):
        return self.base_kernel(self.network(x1), self.network(x2), diag=diag)


def others():
    kernels = {
        "linear": LinearKernel(),
        "linear ard": LinearKernel(ard_num_dims=D),
        "polynomial": PolynomialKernel(3),
        "rq": RQKernel(ard_num_dims=D),
        "periodic": PeriodicKernel(),
        "piecewise": PiecewisePolynomialKernel(q=2, ard_num_dims=D),
        "spectral mixture": SpectralMixtureKernel(num_mixtures=2, ard_num_dims=D),
        "rff": RFFKernel(num_samples=30, num_dims=D),
        "constant": ConstantKernel(),
        "deep": DeepKernel(),
        "scaled rq": ScaleKernel(RQKernel()),
        "batch rq": RQKernel(batch_shape=torch.Size([2])),
    }
    return {name: kernel.double() for name, kernel in kernels.items()}


def test_far_points_have_no_denormal_numbers():
    x = torch.tensor([[0.0], [20.0], [30.0], [39.0]], dtype=torch.float64)
    kernel = RBFKernel().double()
    kernel.lengthscale = 1.0
    K = ke.gram(kernel, x)
    smallest = torch.finfo(torch.float64).tiny ** 0.5
    assert K[0, 1].item() == pytest.approx(np.exp(-200.0), rel=1e-12)
    assert bool(((K == 0) | (0.99 * smallest <= K)).all())
    torch.testing.assert_close(K, kernel(x).to_dense(), rtol=1e-12, atol=1e-150)


def test_nan_hyperparameters_are_not_hidden(points):
    kernel = RBFKernel().double()
    with torch.no_grad():
        kernel.raw_lengthscale.fill_(float("nan"))
    with pytest.raises(NanError, match=r"too many lengthscales apart.*Rescale"):
        ke.gram(kernel, points[0])


PROFILES = {"rbf": SQUARED_EXPONENTIAL, "0.5": matern(0.5), "1.5": matern(1.5), "2.5": matern(2.5)}


@pytest.mark.parametrize("name", PROFILES)
def test_radial_gradients_pass_gradcheck(name):
    generator = torch.Generator().manual_seed(0)
    z1, z2, batched = (
        torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((4, 2), (3, 2), (2, 4, 2))
    )
    for pair in ((z1, None), (z1, z2), (batched, None), (batched, z2), (z1.detach(), z2)):
        assert gradcheck(lambda a, b: radial_gram(a, b, PROFILES[name]), pair)


@pytest.mark.parametrize("name", composed())
def test_hyperparameter_gradients_equal_autograd(name, points):
    kernel = composed()[name]
    parameters = list(kernel.parameters())
    weights = torch.randn(ke.gram(kernel, points[0]).shape, dtype=torch.float64)  # not symmetric
    ours = torch.autograd.grad((ke.gram(kernel, points[0]) * weights).sum(), parameters)
    theirs = torch.autograd.grad((kernel(points[0]).to_dense() * weights).sum(), parameters)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["rbf", "0.5", "1.5", "2.5"])
def test_matern_gradients_at_duplicates_equal_those_without_them(name, points):
    """A duplicated pair contributes nothing: the gradient is that of the other entries."""
    kernel = base(name, True)
    x = torch.cat([points[0], points[0][:1]])
    weights = torch.zeros(10, 10, dtype=torch.float64)
    weights[:9, :9] = torch.randn(9, 9, dtype=torch.float64)
    weights[9, 0] = weights[0, 9] = 5.0
    ours = torch.autograd.grad((ke.gram(kernel, x) * weights).sum(), kernel.raw_lengthscale)[0]
    plain = torch.autograd.grad((ke.gram(kernel, points[0]) * weights[:9, :9]).sum(), kernel.raw_lengthscale)[0]
    torch.testing.assert_close(ours, plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [*composed(), *others()])
def test_kernels_and_their_diagonals_equal_gpytorch(name, points):
    kernel = (composed() | others())[name]
    assert_equals_gpytorch(kernel, points[0])
    assert_equals_gpytorch(kernel, *points)
    expected = ke.gram(kernel, points[0]).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(gram_diagonal(kernel, points[0]), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["rbf", "0.5", "1.5", "2.5"])
def test_single_precision_agrees_with_double(name, points):
    K = ke.gram(base(name, True).float(), points[0].float())
    assert K.dtype == torch.float32
    torch.testing.assert_close(K.double(), ke.gram(base(name, True), points[0]), rtol=1e-4, atol=1e-4)


# --- near points with others far away ---------------------------------------------------------------------------------


def normal_points(n: int = 60, d: int = 3) -> torch.Tensor:
    return torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def far_apart(name: str, n: int = 60) -> torch.Tensor:
    """Points of which most have near ones, with others far away."""
    x = normal_points(n)
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


@pytest.mark.parametrize("kernel", [RBFKernel(), MaternKernel(0.5), MaternKernel(1.5), RQKernel()], ids=repr)
def test_copies_at_tiny_lengthscales(kernel: gpytorch.kernels.Kernel) -> None:
    kernel = kernel.double()
    kernel.raw_lengthscale_constraint = gpytorch.constraints.Positive()
    kernel.initialize(lengthscale=1e-12)
    x = normal_points(40)
    assert torch.equal(ke.kernels.gram(kernel, x, x.clone()).diagonal(), torch.ones(40, dtype=x.dtype))


@pytest.mark.parametrize("name", ["two clusters", "clusters of clusters"])
def test_slope_of_the_embedding(name: str) -> None:
    """μ̂, v and their gradients in the log domain, beside autograd through differences."""
    x = far_apart(name)
    gradients, values = [], []
    h = normal_points(60).mul_(0.1)
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


def test_far_points_are_spoken_of() -> None:
    kernel = RBFKernel().double()
    x = normal_points(30)
    x[0] = 1e15
    with pytest.warns(NumericalWarning, match=r"lengthscales from zero, where torch.float64 cannot tell"):
        ke.kernels.gram(kernel, x)
    refused = pytest.raises(NanError, match=r"too many lengthscales apart.*Rescale x")
    with pytest.warns(NumericalWarning), refused:
        ke.kernels.gram(kernel, x * 1e170)


def test_one_far_row_does_not_decide_a_test() -> None:
    x, y = normal_points(60, 2), normal_points(120, 2)[60:] + 1.5
    clean = ke.two_sample_test(x, y, num_permutations=199, seed=0).pvalue
    y[0] = 1e15
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        assert ke.two_sample_test(x, y, num_permutations=199, seed=0).pvalue == clean == 0.005


def test_span_beside_a_far_point() -> None:
    x = normal_points(100, 2)
    shortest = scan_span(x)[0]
    x[0] = 1e9
    assert scan_span(x)[0] == pytest.approx(max(shortest, 1e-6 * scan_span(x)[1] / 2), rel=0.2)
