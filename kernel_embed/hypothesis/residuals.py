r"""What is left of x when z is known: Gaussian-process regression, its kernel learned by the evidence of x.

The posterior mean of a Gaussian process is the conditional embedding of eq. (2), so both are fitted the same way:

.. math::  r = x - K_z A^{-1} x = n\lambda A^{-1} x, \qquad A = K_z + n\lambda I .
"""

from __future__ import annotations

import warnings

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from ..embeddings import ConditionalEmbedding
from ..kernels import log_scaled, median_distance
from ..learning import fit
from ..objectives import ConditionalEvidence

NUM_LEARN = 300
"""Rows from which the kernel is learned; the regression itself uses all."""
MAX_EVALUATIONS = 30


def residuals(x: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
    """Each column of ``x`` (``(n, d)``) minus its regression on the points ``z`` (``(n, p)``), standardized columns.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> z = torch.rand(200, 1, generator=generator, dtype=torch.float64)
        >>> noise = 0.1 * torch.randn(200, 1, generator=generator, dtype=torch.float64)
        >>> rest = residuals(torch.sin(6 * z) + noise, z, generator)
        >>> float(torch.corrcoef(torch.cat([rest, noise], dim=1).T)[0, 1]) > 0.95
        True
    """
    deviation = x.std(dim=0, keepdim=True)
    x = (x - x.mean(dim=0, keepdim=True)) / torch.where(deviation > 0, deviation, 1.0)
    n = x.shape[0]
    rows = torch.randperm(n, generator=generator)[:NUM_LEARN].to(x.device)
    kernel = ScaleKernel(RBFKernel(lengthscale_constraint=log_scaled()), outputscale_constraint=log_scaled()).to(x)
    kernel.base_kernel.lengthscale = median_distance(z[rows])
    kernel.outputscale = 0.5
    m = len(rows)
    embedding = ConditionalEmbedding(kernel, regularization=0.5 / m)
    embedding.to(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        fit(embedding, ConditionalEvidence(), z[rows], x[rows], max_evaluations=MAX_EVALUATIONS, progress=False)
        # The noise of the process is nλ, the same number for any n.
        embedding.regularization = embedding.regularization.detach() * m / n
        with torch.no_grad():
            conditioned = embedding.condition(z, x)
            return conditioned.Y - conditioned.P
