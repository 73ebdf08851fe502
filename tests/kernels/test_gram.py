"""``gram`` against GPyTorch, against loops, and its gradient against finite differences."""

import itertools

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
from torch.autograd import gradcheck

import kernel_embed as ke
from kernel_embed.kernels.radial import SQUARED_EXPONENTIAL, radial_gram
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


@pytest.mark.parametrize(("name", "ard"), RADIAL)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_radial_kernels_equal_gpytorch(name, ard, batch, points):
    kernel = base(name, ard, batch)
    assert_equals_gpytorch(kernel, points[0])
    assert_equals_gpytorch(kernel, *points)


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


@pytest.mark.parametrize(("name", "ard"), RADIAL)
def test_duplicated_rows_are_at_distance_zero(name, ard, points):
    K = ke.gram(base(name, ard), points[0][[0, 1, 0, 2, 1, 0]])
    # √ of a rounding error of ‖z‖²: what any formula by matrix products can promise for Matérn ½
    atol = 1e-7 if name == "0.5" else 1e-14
    for i, j in [(0, 2), (0, 5), (2, 5), (1, 4)]:
        assert K[i, j].item() == pytest.approx(1.0, abs=atol)
    assert torch.equal(K.diagonal(), torch.ones(6, dtype=torch.float64))


@pytest.mark.parametrize("name", ["rbf", "0.5", "1.5", "2.5"])
def test_distances_do_not_suffer_from_an_offset(name, points):
    """Features such as years: far from zero, close to each other."""
    kernel = base(name, True)
    torch.testing.assert_close(
        ke.gram(kernel, points[0] + 2.0**20, points[1] + 2.0**20), ke.gram(kernel, *points), rtol=0, atol=1e-7
    )


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
