"""A frozen kernel: the values, modes and dtype of now, no gradient, and nothing shared."""

from concurrent.futures import ThreadPoolExecutor

import gpytorch
import pytest
import torch
from gpytorch.kernels import InducingPointKernel, Kernel, LinearKernel, MaternKernel, RBFKernel, RFFKernel, ScaleKernel

from kernel_embed.kernels import FeatureKernel, GaussianMeasure, SmoothedKernel, frozen, gram

from ..explicit_kernels import network


class Remembering(RBFKernel):
    """Keeps what it computed, with its history, which copy.deepcopy refuses."""

    def forward(self, x1, x2, diag=False, **params):
        self.last = {"K": [super().forward(x1, x2, diag=diag, **params)]}
        return self.last["K"][0]


def inducing(d=2):
    points = torch.randn(5, d, dtype=torch.float64)
    return InducingPointKernel(ScaleKernel(RBFKernel()), points, gpytorch.likelihoods.GaussianLikelihood()).double()


KERNELS = {
    "rbf": lambda: RBFKernel(ard_num_dims=2, lengthscale_prior=gpytorch.priors.GammaPrior(2.0, 1.0)),
    "batch": lambda: ScaleKernel(MaternKernel(batch_shape=torch.Size([3])), batch_shape=torch.Size([3])),
    "sum": lambda: ScaleKernel(RBFKernel(active_dims=[0])) + LinearKernel(),
    "network": lambda: FeatureKernel(
        torch.nn.Sequential(network(d=2), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4)), RBFKernel()
    ),
    "smoothed": lambda: SmoothedKernel(RBFKernel(), GaussianMeasure(2.0, learn=True)),
    "fourier": lambda: RFFKernel(6, num_dims=2),
    "inducing": inducing,
    "scaled inducing": lambda: ScaleKernel(inducing()) + RBFKernel(),
    "remembering": Remembering,
}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", KERNELS)
def test_a_frozen_kernel_stays_as_it_was(name, training):
    kernel = KERNELS[name]().double().train(training)
    x = torch.randn(7, 2, dtype=torch.float64)
    if name != "network":
        gram(kernel, x)  # leaves behind what the kernel remembers
    copied = frozen(kernel)
    assert type(copied) is type(kernel)
    assert all(not parameter.requires_grad for parameter in copied.parameters())
    assert all(parameter.requires_grad for parameter in kernel.parameters())
    assert [m.training for m in copied.modules()] == [m.training for m in kernel.modules()]
    assert copied.batch_shape == kernel.batch_shape
    for one, other in zip(copied.state_dict().items(), kernel.state_dict().items(), strict=True):
        assert one[0] == other[0]
        assert one[1].dtype == other[1].dtype
        assert torch.equal(one[1], other[1])
    before = {key: value.clone() for key, value in copied.state_dict().items()}
    for parameter in kernel.parameters():
        parameter.data.add_(1.0)
    kernel.float()
    assert all(torch.equal(before[key], value) for key, value in copied.state_dict().items())
    assert not gram(copied.eval(), x).requires_grad


def test_what_is_remembered_in_evaluation_mode_is_not_taken_along():
    kernel, x = inducing().eval(), torch.randn(7, 2, dtype=torch.float64)
    kernel(x).to_dense()
    assert hasattr(kernel, "_cached_kernel_mat")
    copied = frozen(kernel)
    assert not hasattr(copied, "_cached_kernel_mat")
    assert hasattr(kernel, "_cached_kernel_mat")
    torch.testing.assert_close(gram(copied, x), gram(kernel, x).detach())


def test_after_a_step_of_training_with_an_added_loss():
    kernel, x = inducing().train(), torch.randn(7, 2, dtype=torch.float64)
    kernel(x, x).to_dense()
    assert any(term is not None for term in kernel.added_loss_terms())
    assert not list(frozen(kernel).added_loss_terms())
    assert list(kernel.added_loss_terms())
    assert kernel.likelihood.raw_noise.requires_grad


def test_parameters_that_are_no_leaves():
    kernel, x = RBFKernel().double(), torch.randn(4, 2, dtype=torch.float64)

    class Frozen(torch.nn.Module):
        def __init__(self, kernel: Kernel) -> None:
            super().__init__()
            self.kernel = kernel

        def forward(self):
            return frozen(self.kernel)

    raw = torch.ones(1, 1, dtype=torch.float64, requires_grad=True)
    copied = torch.func.functional_call(Frozen(kernel), {"kernel.raw_lengthscale": 2.0 * raw}, ())
    assert copied.raw_lengthscale.item() == 2.0
    assert not gram(copied, x).requires_grad


def test_inducing_points_are_evaluated_by_many_threads():
    kernel, x = inducing(3), torch.randn(24, 3, dtype=torch.float64)
    assert kernel.training
    expected = gram(kernel, x, x[:7]).detach()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: gram(kernel, x, x[:7]).detach(), range(40)))
    assert all(torch.equal(answer, expected) for answer in answers)
    assert kernel.training
