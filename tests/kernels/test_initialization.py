"""Kernels that complete themselves when they first see data: by name, once, and never while they are evaluated."""

import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, RBFKernel, RFFKernel, ScaleKernel

import kernel_embed as ke
from kernel_embed.kernels import FeatureKernel, Initialization, has_explicit_features, initialize_from_data, register
from kernel_embed.kernels.gram import gram_diagonal

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
        with pytest.raises(
            ValueError, match=r"Expected an RFFKernel with its weights drawn, got RFFKernel without.*num_dims"
        ):
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
    with pytest.raises(ValueError, match="Expected an RFFKernel with its weights drawn"):
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
        initialize=Initialization(
            lambda kernel: kernel.centre is not None, complete, "a Centred kernel with its centre"
        ),
    )
    kernel, x = ScaleKernel(Centred(active_dims=[1])), torch.randn(5, 2)
    with pytest.raises(ValueError, match="Expected a Centred kernel with its centre"):
        ke.gram(kernel, x)
    initialize_from_data(kernel, x)
    torch.testing.assert_close(kernel.base_kernel.centre, x[:, 1:].mean(0))
    assert torch.isfinite(ke.gram(kernel, x)).all()
