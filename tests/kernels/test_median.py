"""The median heuristic and the default kernel."""

import math

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel

import kernel_embed as ke

from .. import oracles


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


def test_bad_input():
    with pytest.raises(ValueError, match=r"Expected a kernel with a lengthscale, got LinearKernel.*fit"):
        ke.set_lengthscales_by_median(LinearKernel(), torch.randn(4, 2))
    with pytest.raises(ValueError, match=r"Expected x of shape \(n, d\), got \(2, 3, 1\)"):
        ke.kernels.median_distance(torch.zeros(2, 3, 1))
    with pytest.raises(ValueError, match=r"Expected finite values in x"):
        ke.kernels.median_distance(torch.tensor([[0.0], [1.0], [float("nan")]]))


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
