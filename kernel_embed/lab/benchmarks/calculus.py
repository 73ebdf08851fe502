"""Bayes' rule on embeddings where the answer is known: the linear Gaussian posterior mean, and the rows it takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from ...embeddings import ConditionalEmbedding, MeanEmbedding, bayes_rule
from ...kernels.features import nystrom_kernel
from ...results import Record
from .cases import OURS, Call, Case, Scope

PART = "Bayes' rule, linear Gaussian"
PRIOR_MEAN, PRIOR_SCALE, NOISE = 0.5, 0.7, 0.5
EXACT_ROWS, POINTS = 2000, 100
"""With more pairs, kernels have the features of Nyström at so many points."""


def relative_errors(n: int, seeds: int = 4) -> Tensor:
    """For each sample of n pairs, mean |m̂(y) − m(y)| over that of |m(y)|, m(y) = E[X | Y = y].

    X ~ N(½, 0.7²) by 300 of its quantiles, Y = X + ½ε from n pairs whose X is spread evenly over [−2.5, 3.5]; y within
    1.5 standard deviations of its mean. λ of the likelihood is 10⁻³, that of the posterior 1/n.
    """
    y = torch.linspace(-0.8, 1.8, 14, dtype=torch.float64).unsqueeze(-1)
    precision = PRIOR_SCALE**-2 + NOISE**-2
    exact = ((PRIOR_MEAN * PRIOR_SCALE**-2 + y * NOISE**-2) / precision).squeeze(-1)
    levels = (torch.arange(300, dtype=torch.float64) + 0.5) / 300
    u = (PRIOR_MEAN + PRIOR_SCALE * torch.special.ndtri(levels)).unsqueeze(-1)
    kernel, target = _kernel(0.5, n), _kernel(2.0, n)
    embedding = ConditionalEmbedding(kernel, 1e-3, target).double()
    x = torch.linspace(-2.5, 3.5, n, dtype=torch.float64).unsqueeze(-1)
    errors = []
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)
        pairs = embedding.condition(x, x + NOISE * torch.randn(n, 1, generator=generator, dtype=torch.float64))
        posterior = bayes_rule(pairs, MeanEmbedding(kernel).condition(u), 1.0 / n)
        errors.append((posterior.distribution(y).mean - exact).abs().mean() / exact.abs().mean())
    return torch.stack(errors)


def _kernel(lengthscale: float, n: int) -> Kernel:
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    if n <= EXACT_ROWS:
        return kernel
    return nystrom_kernel(kernel, torch.linspace(-4.5, 5.5, POINTS, dtype=torch.float64).unsqueeze(-1))


def _measured(n: int) -> Call:
    def call() -> Record:
        errors = relative_errors(n)
        return {"relative_error": float(errors.mean()), "largest_error": float(errors.max())}

    return call


def cases(scope: Scope) -> Iterator[Case]:
    """The error of Bayes' rule with more and more pairs."""
    for n in (200,) if scope.quick else (500, 2000, 8000, 32_000, 100_000):
        # By a name of its own: through features the time grows with n, not with n³.
        name = OURS if n <= EXACT_ROWS else f"{OURS}, {POINTS} features, {n} pairs"
        yield Case(PART, name, n, partial(_measured, n), against=name)
