"""Bayes' rule on embeddings where the answer is known: the linear Gaussian posterior mean, and the rows it takes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from gpytorch.kernels import RBFKernel

from ..embeddings import ConditionalEmbedding, MeanEmbedding, bayes_rule
from ..results import Record
from .cases import OURS, Call, Case, Scope

PART = "Bayes' rule, linear Gaussian"
PRIOR_MEAN, PRIOR_SCALE, NOISE = 0.5, 0.7, 0.5


def relative_error(n: int, seeds: int = 4) -> float:
    """Mean |m̂(y) − m(y)| over that of |m(y)|, m(y) = E[X | Y = y], for y within 1.5 standard deviations.

    X ~ N(½, 0.7²) by 300 of its quantiles, Y = X + ½ε from n pairs whose X is spread evenly over [−2.5, 3.5].
    """
    y = torch.linspace(-0.8, 1.8, 14, dtype=torch.float64).unsqueeze(-1)
    precision = PRIOR_SCALE**-2 + NOISE**-2
    exact = ((PRIOR_MEAN * PRIOR_SCALE**-2 + y * NOISE**-2) / precision).squeeze(-1)
    levels = (torch.arange(300, dtype=torch.float64) + 0.5) / 300
    u = (PRIOR_MEAN + PRIOR_SCALE * torch.special.ndtri(levels)).unsqueeze(-1)
    kernel, target = RBFKernel().double(), RBFKernel().double()
    kernel.lengthscale, target.lengthscale = 0.5, 2.0
    embedding = ConditionalEmbedding(kernel, 1e-3, target).double()
    errors = []
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)
        x = torch.linspace(-2.5, 3.5, n, dtype=torch.float64).unsqueeze(-1)
        pairs = embedding.condition(x, x + NOISE * torch.randn(n, 1, generator=generator, dtype=torch.float64))
        posterior = bayes_rule(pairs, MeanEmbedding(kernel).condition(u), 1e-3)
        errors.append((posterior.distribution(y).mean - exact).abs().mean() / exact.abs().mean())
    return float(torch.stack(errors).mean())


def _measured(n: int) -> Call:
    def call() -> Record:
        return {"relative_error": relative_error(n)}

    return call


def cases(scope: Scope) -> Iterator[Case]:
    """The error with more and more pairs."""
    for n in (200,) if scope.quick else (500, 2000, 8000):
        yield Case(PART, OURS, n, partial(_measured, n))
