"""The kernel used where the caller names none: ARD squared exponential, its scale taken from the data."""

from __future__ import annotations

import math

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor

PRIOR_SCALE = 1.0


def default_kernel(x: Tensor) -> RBFKernel:
    r"""An ARD squared exponential kernel with a weak prior on its lengthscales, in the units of the data.

    With :math:`s_j` the range of feature j, every :math:`\log \ell_j` has a Gaussian prior around
    :math:`\log (s_j \sqrt d)` with standard deviation 1, where distances over all d features are of order one; the
    search starts at half that. On a few hundred rows the prior keeps irrelevant features from being fitted to noise;
    its weight falls with 1/n.

    Example:
        >>> x = torch.tensor([[0.0, 10.0], [1.0, 30.0]], dtype=torch.float64)
        >>> default_kernel(x).lengthscale.detach().round(decimals=2)
        tensor([[ 0.7100, 14.1400]], dtype=torch.float64)
    """
    d = x.shape[-1]
    spread = x.amax(dim=-2) - x.amin(dim=-2)
    spread = torch.where(spread > 0, spread, 1.0)
    centre = (spread * math.sqrt(d)).unsqueeze(0)
    # A LogNormal(μ, σ) density in ℓ is highest at exp(μ − σ²): this puts its mode, and that of a MAP fit, at `centre`.
    prior = LogNormalPrior(centre.log() + PRIOR_SCALE**2, torch.full_like(centre, PRIOR_SCALE))
    # The exponential keeps lengthscales positive at equal effort over orders of magnitude.
    constraint = Positive(transform=torch.exp, inv_transform=torch.log)
    kernel = RBFKernel(ard_num_dims=d, lengthscale_prior=prior, lengthscale_constraint=constraint)
    kernel = kernel.to(x)
    kernel.lengthscale = 0.5 * centre
    return kernel
