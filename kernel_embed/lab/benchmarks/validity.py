"""Guarantees where the truth is known: bounds and conformal intervals over many samples, and Bayes' rule."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from ...embeddings import (
    ConditionalEmbedding,
    ConditionedMulticlass,
    MeanEmbedding,
    MulticlassEmbedding,
    bayes_rule,
    jackknife_plus_interval,
)
from ...kernels.features import nystrom_kernel
from ...objectives import RiskBound, generalization_bound, pac_bayes_bound, score_bound
from ...objectives.risk import clipped_cross_entropy
from ...results import Record
from .measurement import OURS, Measurement, Scope, part

BOUNDS, COVERAGE = "bounds over samples", "conformal coverage over samples"
BAYES = "Bayes' rule, linear Gaussian"
BETA = 0.2
PRIOR_MEAN, PRIOR_SCALE, NOISE = 0.5, 0.7, 0.5
EXACT_ROWS, POINTS = 2000, 100
"""With more pairs, kernels have the features of Nyström at so many points."""
FORMS = ("tight", "sharp", "peeled", "grid", "holdout", "pac-bayes", "score")
"""The theorem's form, the sharp one for one norm, for all, and for the best of a grid of kernels, held-out rows, Gibbs
posteriors, and any target."""


def label_probability(x: Tensor) -> Tensor:
    """P(Y = 1 | X = x)."""
    return torch.where(x.squeeze(-1) < 0.5, 0.9, 0.15)


def labels(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """X uniform on [0, 1], Y by :func:`label_probability`."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    return x, (torch.rand(n, generator=generator) < label_probability(x)).long()


def embedding(regularization: float = 0.3, lengthscale: float = 0.3) -> MulticlassEmbedding:
    """With a kernel that does not depend on the data."""
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    return MulticlassEmbedding(kernel, 2, regularization).double().requires_grad_(False)


def true_risk(conditioned: ConditionedMulticlass, brier: bool = False) -> float:
    """The exact expected loss: clipped at 1/e, or the Brier score of decision probabilities."""
    grid = (torch.arange(400, dtype=torch.float64).unsqueeze(-1) + 0.5) / 400
    p, F = label_probability(grid), conditioned.decision_probabilities(grid)
    one_hot = torch.eye(2, dtype=torch.float64)
    losses = [
        (F - one_hot[c]).square().sum(-1) if brier else clipped_cross_entropy(F[:, c], 1.0 / math.e) for c in (0, 1)
    ]
    return float((p * losses[1] + (1 - p) * losses[0]).mean())


def exceeded(draws: int, n: int = 40, beta: float = BETA) -> dict[str, float]:
    """The share of samples with a true risk above each bound of confidence 1 − β; n rows train, n rows validate."""
    grid = [embedding(regularization) for regularization in (0.01, 0.1, 1.0)]
    kernels = [embedding(0.1, lengthscale) for lengthscale in (0.1, 0.3, 1.0)]
    objective = RiskBound(1 - beta, len(kernels))
    failures = dict.fromkeys(FORMS, 0)
    for seed in range(draws):
        x, y = labels(2 * n, seed)
        validation = (x[n:], y[n:])
        fitted = [one.condition(x[:n], y[:n]) for one in grid]
        risks = [true_risk(c) for c in fitted]
        for form in ("tight", "sharp", "peeled"):
            failures[form] += risks[1] > generalization_bound(fitted[1], 1 - beta, form, epsilon=1.0 / math.e).value
        values = [objective(one, x[:n], y[:n]).item() for one in kernels]
        least = min(range(len(kernels)), key=values.__getitem__)
        failures["grid"] += true_risk(kernels[least].condition(x[:n], y[:n])) > values[least]
        bounds = [generalization_bound(c, 1 - beta, "holdout", holdout=validation, candidates=3).value for c in fitted]
        best = min(range(3), key=bounds.__getitem__)
        failures["holdout"] += risks[best] > bounds[best]
        right = [c.decision_probabilities(validation[0]).gather(-1, validation[1][:, None])[:, 0] for c in fitted]
        gibbs = pac_bayes_bound(torch.stack([clipped_cross_entropy(p, 1.0 / math.e) for p in right]), 1 - beta)
        failures["pac-bayes"] += float(gibbs.weights @ torch.tensor(risks, dtype=torch.float64)) > gibbs.value
        failures["score"] += true_risk(fitted[1], brier=True) > score_bound(fitted[1], 1 - beta).value
    return {form: count / draws for form, count in failures.items()}


def covered(n: int, draws: int, coverage: float = 0.9) -> float:
    """The share of samples whose jackknife+ interval, kernel and ridge fixed, contains the target of one new row."""
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.2
    model = ConditionalEmbedding(kernel, 1.0 / n).double()
    hits = 0
    for seed in range(draws):
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(n + 1, 1, generator=generator, dtype=torch.float64)
        noise = torch.randn(n + 1, generator=generator, dtype=torch.float64)
        y = torch.sin(6 * x.squeeze(-1)) + (0.1 + 0.4 * x.squeeze(-1)) * noise
        low, high = jackknife_plus_interval(model.condition(x[:n], y[:n]), x[n:], coverage)[0].tolist()
        hits += low <= float(y[n]) <= high
    return hits / draws


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


def _bound_figures(draws: int) -> Record:
    shares = exceeded(draws)
    return {"draws": draws, "beta": BETA, **{f"exceeded_{form}": share for form, share in shares.items()}}


def _coverage_figures(n: int, draws: int) -> Record:
    return {"draws": draws, "coverage": covered(n, draws)}


@part("bounds")
def bound_cases(scope: Scope) -> Iterator[Measurement]:
    """How often a risk exceeds its bound and an interval misses, over 500 samples each.

    The standard error of a share of β is 0.018, that of a coverage of 0.9 is 0.013.
    """
    draws = 20 if scope.quick else 500
    yield Measurement(BOUNDS, OURS, 40, partial(partial, _bound_figures, draws))
    for n in (20,) if scope.quick else (50, 200):
        yield Measurement(COVERAGE, OURS, n, partial(partial, _coverage_figures, n, draws))


def _bayes_figures(n: int) -> Record:
    errors = relative_errors(n)
    return {"relative_error": float(errors.mean()), "largest_error": float(errors.max())}


@part("calculus")
def bayes_cases(scope: Scope) -> Iterator[Measurement]:
    """The error of Bayes' rule with more and more pairs."""
    for n in (200,) if scope.quick else (500, 2000, 8000, 32_000, 100_000):
        # By a name of its own: through features the time grows with n, not with n³.
        name = OURS if n <= EXACT_ROWS else f"{OURS}, {POINTS} features, {n} pairs"
        yield Measurement(BAYES, name, n, partial(partial, _bayes_figures, n), against=name)
