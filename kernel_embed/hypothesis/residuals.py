r"""Residuals of Gaussian-process regressions on z, and the test of their independence (Flaxman et al., 2016).

The posterior mean of a Gaussian process is the conditional embedding of eq. (2), so both are fitted the same way, with
the kernel learned by the evidence of x:

.. math::  r = x - K_z A^{-1} x = n\lambda A^{-1} x, \qquad A = K_z + n\lambda I .
"""

from __future__ import annotations

import dataclasses
import warnings

import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from ..embeddings import ConditionalEmbedding
from ..kernels import log_scaled, median_distance
from ..learning import fit
from ..objectives import ConditionalEvidence
from .independence import independence_test
from .kernel_choice import KernelChoice
from .result import KernelTestResult

MAX_ROWS = 300
"""Rows from which the kernel is learned; the regression itself uses all."""
MAX_EVALUATIONS = 30


def residuals(x: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
    """Each standardized column of ``x`` (``(n, d)``) minus its regression on the points ``z`` (``(n, p)``).

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> z = torch.rand(200, 1, generator=generator, dtype=torch.float64)
        >>> noise = 0.1 * torch.randn(200, 1, generator=generator, dtype=torch.float64)
        >>> r = residuals(torch.sin(6 * z) + noise, z, generator)
        >>> float(torch.corrcoef(torch.cat([r, noise], dim=1).T)[0, 1]) > 0.95
        True
    """
    deviation = x.std(dim=0, keepdim=True)
    x = (x - x.mean(dim=0, keepdim=True)) / torch.where(deviation > 0, deviation, 1.0)
    rows = torch.randperm(len(x), generator=generator)[:MAX_ROWS].to(x.device)
    kernel = ScaleKernel(RBFKernel(lengthscale_constraint=log_scaled()), outputscale_constraint=log_scaled()).to(x)
    kernel.base_kernel.lengthscale = median_distance(z[rows])
    kernel.outputscale = 0.5
    embedding = ConditionalEmbedding(kernel, regularization=0.5 / len(rows))
    embedding.to(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        fit(embedding, ConditionalEvidence(), z[rows], x[rows], max_evaluations=MAX_EVALUATIONS, progress=False)
        # The noise of the process is nλ, the same number for any n.
        embedding.regularization = embedding.regularization.detach() * len(rows) / len(x)
        with torch.no_grad():
            conditioned = embedding.condition(z, x)
            return conditioned.Y - conditioned.P


def residual_test(
    residuals_x: Tensor,
    residuals_y: Tensor,
    kernel: KernelChoice = None,
    num_permutations: int = 1000,
    seed: int | None = None,
    kernel_y: KernelChoice = None,
    progress: bool | None = None,
) -> KernelTestResult:
    """The test of conditional independence from the residuals of x and y."""
    result = independence_test(
        residuals_x, residuals_y, kernel, num_permutations, seed, kernel_y=kernel_y, progress=progress
    )
    return dataclasses.replace(result, test="conditional independence test (residuals)")
