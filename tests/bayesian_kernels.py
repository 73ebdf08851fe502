"""Kernels of the tests of Bayesian embeddings."""

import gpytorch
import torch
from gpytorch.kernels import Kernel, RBFKernel


def rbf(*lengthscale: float) -> RBFKernel:
    """A squared exponential in float64 with these lengthscales."""
    kernel = RBFKernel(ard_num_dims=len(lengthscale) if len(lengthscale) > 1 else None).double()
    kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return kernel


def shaken(kernel: Kernel, seed: int = 0) -> Kernel:
    """The kernel in float64 with parameters that are all different."""
    generator = torch.Generator().manual_seed(seed)
    kernel = kernel.double()
    for parameter in kernel.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(0.6 + 0.3 * noise)
    return kernel


class ExactGP(gpytorch.models.ExactGP):
    """GPyTorch's own Gaussian process with mean zero."""

    def __init__(self, x, y, likelihood, covariance):
        super().__init__(x, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), covariance

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))
