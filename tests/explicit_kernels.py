"""Kernels with explicit features, by name, and their implicit twins."""

import gpytorch
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, LinearKernel, PolynomialKernel, RFFKernel, ScaleKernel
from torch import nn

from kernel_embed.kernels.classes import FeatureKernel


def network(d: int = 3, p: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(d, 8), nn.Tanh(), nn.Linear(8, p)).double()


class Implicit(Kernel):
    """A kernel that hides the structure of another, so that only its Gram matrix is known."""

    def __init__(self, inner: Kernel) -> None:
        super().__init__(batch_shape=inner.batch_shape)
        self.inner = inner

    def forward(self, x1, x2, diag=False, **params):
        return self.inner(x1, x2, diag=diag, **params)


def explicit_kernels() -> dict[str, Kernel]:
    """On three input columns; every one has fewer than 24 features."""
    torch.manual_seed(3)
    ard = LinearKernel(ard_num_dims=3)
    ard.variance = torch.tensor([[0.5, 1.0, 2.0]])
    scaled = ScaleKernel(RFFKernel(6, num_dims=3))
    scaled.outputscale = 1.7
    kernels = {
        "network": FeatureKernel(network()),
        "network, linear": FeatureKernel(network(), LinearKernel()),
        "network, fourier": FeatureKernel(network(p=2), RFFKernel(5, num_dims=2)),
        "network, polynomial": FeatureKernel(network(p=2), PolynomialKernel(2)),
        "linear": ard,
        "linear, columns": LinearKernel(active_dims=[0, 2]),
        "fourier": scaled,
        "polynomial 1": PolynomialKernel(1),
        "polynomial 3": ScaleKernel(PolynomialKernel(3, active_dims=[1, 2])),
        "sum": AdditiveKernel(LinearKernel(), ScaleKernel(FeatureKernel(network())), gpytorch.kernels.ConstantKernel()),
        "product": LinearKernel(active_dims=[0, 1]) * FeatureKernel(network(p=3)),
    }
    return {name: kernel.double() for name, kernel in kernels.items()}
