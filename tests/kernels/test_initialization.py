"""Kernels that complete themselves when they first see data, the median heuristic and the default kernel."""

import math

import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, RFFKernel, ScaleKernel

import kernel_embed as ke
from kernel_embed.kernels import FeatureKernel, Initialization, has_explicit_features, initialize_from_data, register
from kernel_embed.kernels.supremum import gram_diagonal

from .. import oracles
from ..explicit_kernels import network

INCOMPLETE = {
    "alone": (lambda: RFFKernel(5), 3),
    "columns": (lambda: ScaleKernel(RFFKernel(5, active_dims=[0, 2])), 2),
    "sum": (lambda: RBFKernel() + RFFKernel(5, active_dims=[1]), 1),
    "product": (lambda: LinearKernel() * RFFKernel(5), 3),
    "features": (lambda: FeatureKernel(network(p=4), RFFKernel(5)), 4),
    "batch": (lambda: RFFKernel(5, batch_shape=torch.Size([2])), 3),
}


def fourier(kernel: Kernel) -> RFFKernel:
    return next(module for module in kernel.modules() if isinstance(module, RFFKernel))


@pytest.mark.parametrize("name", INCOMPLETE)
def test_the_step_completes_what_evaluation_refuses(name):
    make, width = INCOMPLETE[name]
    kernel, x = make().double(), torch.randn(6, 3, dtype=torch.float64)
    for evaluate in (ke.gram, gram_diagonal, ke.kernels.sup_diagonal):
        with pytest.raises(ValueError, match=r"RFFKernel must be initialized from data.*num_dims"):
            evaluate(kernel, x)
    if has_explicit_features(kernel):
        with pytest.raises(ValueError, match="initialize_from_data"):
            ke.kernels.explicit_features(kernel, x)
    assert not hasattr(fourier(kernel), "randn_weights")
    assert initialize_from_data(kernel, x) is kernel
    weights = fourier(kernel).randn_weights
    assert weights.shape == (*fourier(kernel).batch_shape, width, 5)
    assert weights.dtype == torch.float64
    initialize_from_data(kernel, torch.randn(6, 3, dtype=torch.float64))
    assert fourier(kernel).randn_weights is weights
    assert ke.gram(kernel, x).shape[-2:] == (6, 6)


def test_features_are_evaluated_without_learning_from_them():
    norm = torch.nn.BatchNorm1d(4).double()
    kernel = FeatureKernel(torch.nn.Sequential(network(), norm), RFFKernel(5)).double()
    initialize_from_data(kernel, torch.randn(6, 3, dtype=torch.float64))
    assert norm.num_batches_tracked.item() == 0
    assert norm.training


def test_condition_refuses_and_fit_does_it(problem):
    embedding = ke.MulticlassEmbedding(RFFKernel(10).double(), problem.m)
    with pytest.raises(ValueError, match="RFFKernel must be initialized from data"):
        embedding.condition(problem.x, problem.y)
    ke.fit(embedding, ke.LeaveOneOutRisk(), problem.x, problem.y, max_evaluations=3)
    assert embedding.condition(problem.x, problem.y).predict(problem.x).shape == problem.y.shape


def test_a_kernel_of_ones_own():
    class Centred(Kernel):
        centre = None

        def forward(self, x1, x2, diag=False, **params):
            K = (x1 - self.centre) @ (x2 - self.centre).mT
            return K.diagonal(dim1=-2, dim2=-1) if diag else K

    def complete(kernel, x):
        kernel.centre = x.mean(0)

    register(
        Centred,
        initialize=Initialization(lambda kernel: kernel.centre is not None, complete),
    )
    kernel, x = ScaleKernel(Centred(active_dims=[1])), torch.randn(5, 2)
    with pytest.raises(ValueError, match="Centred must be initialized from data"):
        ke.gram(kernel, x)
    initialize_from_data(kernel, x)
    torch.testing.assert_close(kernel.base_kernel.centre, x[:, 1:].mean(0))
    assert torch.isfinite(ke.gram(kernel, x)).all()


@pytest.mark.parametrize("n", [3, 4, 5, 8, 11])
def test_median_distance_equals_loops(n):
    x = torch.randn(n, 3, dtype=torch.float64)
    assert ke.kernels.median_distance(x).item() == pytest.approx(oracles.median_distance(x.numpy()), rel=1e-12)


def test_median_distance_of_duplicates_and_of_integers():
    assert ke.kernels.median_distance(torch.tensor([[0], [1], [3]])).item() == 2.0
    assert ke.kernels.median_distance(torch.zeros(5, 2)).item() == 1.0
    mostly = torch.zeros(6, 1)
    mostly[0] = 3.0
    assert ke.kernels.median_distance(mostly).item() == 3.0
    assert ke.kernels.median_distance(torch.zeros(1, 2)).item() == 1.0
    with pytest.raises(ValueError, match=r"Expected x of shape \(n, d\), got \(2, 3, 1\)"):
        ke.kernels.median_distance(torch.zeros(2, 3, 1))
    with pytest.raises(ValueError, match=r"Expected a kernel with a lengthscale, got LinearKernel.*fit"):
        ke.set_lengthscales_by_median(LinearKernel(), torch.randn(4, 2))
    with pytest.raises(ValueError, match=r"leaves the range of torch\.float32: inf\. Standardize x"):
        ke.kernels.median_distance(3e38 * torch.eye(3))


@pytest.mark.parametrize("x", [3e38 * torch.eye(3), 1e60 * torch.eye(3).double(), 1e-60 * torch.eye(3).double()])
def test_a_lengthscale_outside_of_the_range_is_refused(x):
    kernel = RBFKernel()
    with pytest.raises(ValueError, match=r"median distance leaves the range of torch\.float32.*Standardize x"):
        ke.set_lengthscales_by_median(kernel, x)
    assert kernel.lengthscale.item() == pytest.approx(math.log(2))
    assert ke.set_lengthscales_by_median(kernel, 1e20 * torch.eye(3)).lengthscale.item() == pytest.approx(2**0.5 * 1e20)


def test_median_distance_of_many_rows_is_close():
    x = torch.randn(4001, 2, dtype=torch.float64)
    # For Gaussian differences ‖x − x'‖²/2 is χ² with 2 degrees of freedom: median √(4 log 2).
    assert ke.kernels.median_distance(x).item() == pytest.approx(math.sqrt(4 * math.log(2)), rel=0.03)


def test_every_lengthscale_is_set_from_its_own_columns_also_those_of_an_outer_scale():
    x = torch.tensor([[0.0, 0.0], [1.0, 100.0], [3.0, 300.0]], dtype=torch.float64)
    kernel = (ScaleKernel(RBFKernel(active_dims=[0])) + MaternKernel(active_dims=[1])).double()
    assert ke.set_lengthscales_by_median(kernel, x) is kernel
    assert kernel.kernels[0].base_kernel.lengthscale.item() == pytest.approx(2.0)
    assert kernel.kernels[1].lengthscale.item() == pytest.approx(200.0)
    kernel = ScaleKernel(RBFKernel(), active_dims=torch.tensor([0])).double()
    ke.set_lengthscales_by_median(kernel, x)
    assert kernel.base_kernel.lengthscale.item() == pytest.approx(2.0)


def test_ard_and_batch_lengthscales_are_all_set():
    x = torch.randn(9, 3, dtype=torch.float64)
    kernel = RBFKernel(ard_num_dims=3, batch_shape=torch.Size([2])).double()
    ke.set_lengthscales_by_median(kernel, x)
    expected = oracles.median_distance(x.numpy())
    torch.testing.assert_close(kernel.lengthscale.detach(), torch.full((2, 1, 3), expected, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_default_kernel_is_in_the_units_of_the_data(dtype):
    x = torch.rand(20, 3, dtype=dtype) * torch.tensor([1.0, 100.0, 0.0], dtype=dtype)
    kernel = ke.default_kernel(x)
    spread = x.amax(0) - x.amin(0)
    spread[2] = 1.0  # a constant column
    torch.testing.assert_close(kernel.lengthscale.detach()[0], 0.15 * spread * math.sqrt(3))
    torch.testing.assert_close(ke.default_kernel(x, lengthscale=2.0).lengthscale.detach()[0], 2.0 * spread)
    assert kernel.lengthscale.dtype == dtype
    # The prior is highest where it says: at the start.
    at = [(0.15 * spread * math.sqrt(3) * factor).unsqueeze(0) for factor in (0.99, 1.0, 1.01)]
    low, top, high = (kernel.lengthscale_prior.log_prob(value).sum().item() for value in at)
    assert top > max(low, high)
