"""α² = sup k(x, x): its value, and where it says it comes from."""

import numpy as np
import pytest
import torch
from gpytorch import kernels as gk

import kernel_embed as ke

from .. import oracles


@pytest.fixture
def x():
    return torch.randn(8, 3, dtype=torch.float64)


def scaled(kernel, outputscale):
    kernel = gk.ScaleKernel(kernel).double()
    kernel.outputscale = outputscale
    return kernel


def constant(value):
    kernel = gk.ConstantKernel().double()
    kernel.constant = torch.tensor(value, dtype=torch.float64)
    return kernel


def mixture():
    kernel = gk.SpectralMixtureKernel(num_mixtures=2, ard_num_dims=3).double()
    kernel.mixture_weights = torch.tensor([0.3, 1.1], dtype=torch.float64)
    return kernel


CLOSED = {
    "rbf": (gk.RBFKernel, 1.0),
    "rbf ard": (lambda: gk.RBFKernel(ard_num_dims=3), 1.0),
    "matern": (lambda: gk.MaternKernel(0.5), 1.0),
    "rq": (gk.RQKernel, 1.0),
    "periodic": (gk.PeriodicKernel, 1.0),
    "piecewise": (gk.PiecewisePolynomialKernel, 1.0),
    "rff": (lambda: gk.RFFKernel(num_samples=20, num_dims=3), 1.0),
    "constant": (lambda: constant(0.7), 0.7),
    "spectral mixture": (mixture, 1.4**3),  # GPyTorch multiplies one mixture for each feature
    "scaled": (lambda: scaled(gk.RBFKernel(), 2.5), 2.5),
    "scaled twice": (lambda: scaled(scaled(gk.MaternKernel(), 2.0), 3.0), 6.0),
    "sum": (lambda: scaled(gk.RBFKernel(), 2.0) + scaled(gk.MaternKernel(), 0.5) + gk.RQKernel(), 3.5),
    "product": (lambda: scaled(gk.RBFKernel(), 2.0) * scaled(gk.MaternKernel(), 0.5) * constant(3.0), 3.0),
    "scaled sum": (lambda: scaled(gk.RBFKernel() + scaled(gk.RQKernel(), 4.0), 0.1), 0.5),
    "columns": (lambda: scaled(gk.RBFKernel(active_dims=[0]), 2.0) + gk.MaternKernel(active_dims=[1, 2]), 3.0),
    "scale with columns": (lambda: gk.ScaleKernel(gk.RBFKernel(), active_dims=torch.tensor([1])), None),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms(name, x):
    make, value = CLOSED[name]
    kernel = make().double()
    bound = ke.kernels.sup_diagonal(kernel, x)
    assert bound.source == "closed form"
    assert bound.value.shape == ()
    value = kernel.outputscale.item() if value is None else value
    assert bound.value.item() == pytest.approx(value, rel=1e-6)  # float32 literals inside GPyTorch
    assert bound.alpha.item() == pytest.approx(value**0.5, rel=1e-6)
    # It is the supremum: reached at the data, and at any other place.
    elsewhere = kernel(100.0 * x, diag=True)
    elsewhere = elsewhere if isinstance(elsewhere, torch.Tensor) else elsewhere.to_dense()
    torch.testing.assert_close(elsewhere, bound.value.expand(8), rtol=1e-6, atol=1e-9)


OPEN = {
    "linear": lambda: gk.LinearKernel(),
    "polynomial": lambda: gk.PolynomialKernel(2),
    "scaled": lambda: scaled(gk.LinearKernel(), 3.0),
    "sum": lambda: gk.RBFKernel() + gk.LinearKernel(),
    "product": lambda: gk.RBFKernel() * gk.LinearKernel(),
}


@pytest.mark.parametrize("name", OPEN)
def test_maximum_over_the_data_where_there_is_no_closed_form(name, x):
    kernel = OPEN[name]().double()
    bound = ke.kernels.sup_diagonal(kernel, x)
    assert bound.source == "maximum over the data"
    expected = max(kernel(x[i : i + 1]).to_dense().item() for i in range(8))
    assert bound.value.item() == pytest.approx(expected, rel=1e-12)


def test_a_given_bound_must_be_positive_and_finite_and_hold_on_the_data(x):
    bound = ke.kernels.sup_diagonal(gk.LinearKernel().double(), x, bound=25.0)
    assert (bound.source, bound.value.item(), bound.alpha.item()) == ("given", 25.0, 5.0)
    assert bound.value.dtype == torch.float64
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"Expected a positive, finite bound.*got"):
            ke.kernels.sup_diagonal(gk.RBFKernel(), x, bound=bad)
    kernel = scaled(gk.RBFKernel(), 4.0)
    assert ke.kernels.sup_diagonal(kernel, x, bound=4.0).source == "given"
    with pytest.raises(ValueError, match=r"Expected k\(x, x\) ≤ 3.*got 4 on the data"):
        ke.kernels.sup_diagonal(kernel, x, bound=3.0)


@pytest.mark.parametrize("make", [lambda **o: gk.RBFKernel(**o), lambda **o: gk.LinearKernel(**o)])
def test_batch_shape(make, x):
    kernel = gk.ScaleKernel(make(batch_shape=torch.Size([3])), batch_shape=torch.Size([3])).double()
    kernel.outputscale = torch.tensor([0.5, 1.0, 4.0], dtype=torch.float64)
    bound = ke.kernels.sup_diagonal(kernel, x)
    expected = kernel(x).to_dense().diagonal(dim1=-2, dim2=-1).amax(-1)
    torch.testing.assert_close(bound.value, expected)
    assert ke.kernels.sup_diagonal(kernel, x, bound=1e3).value.tolist() == [1e3, 1e3, 1e3]


def test_delta_kernel_equals_loops_and_is_one_on_its_diagonal():
    y, kernel = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 1.0], [3.0, 1.0]]), ke.kernels.DeltaKernel()
    for other in (y, y[[1, 3]]):
        expected = oracles.gram(oracles.delta, y.numpy(), other.numpy())
        np.testing.assert_array_equal(ke.gram(kernel, y, other), expected)
    np.testing.assert_array_equal(ke.gram(kernel, y), oracles.gram(oracles.delta, y.numpy()))
    assert kernel(y, diag=True).tolist() == [1.0] * 4
    assert ke.kernels.sup_diagonal(kernel, y).value.item() == 1.0
