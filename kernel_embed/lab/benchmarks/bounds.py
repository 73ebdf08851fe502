"""How often a risk exceeds its bound, and how often a conformal interval misses, over many samples of a known law."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ...embeddings import ConditionalEmbedding, ConditionedMulticlass, MulticlassEmbedding, jackknife_plus_interval
from ...objectives import RiskBound, generalization_bound, pac_bayes_bound, score_bound
from ...objectives.risk import clipped_cross_entropy
from ...results import Record
from .cases import OURS, Call, Case, Scope

PART, COVERAGE = "bounds over samples", "conformal coverage over samples"
BETA = 0.2
FORMS = ("tight", "sharp", "peeled", "grid", "holdout", "pac-bayes", "score")
"""The theorem's form, the sharp one for one norm, for all, and for the best of a grid of kernels, held-out rows, Gibbs
posteriors, and any target."""


def label_probability(x: Tensor) -> Tensor:
    """P(Y = 1 | X = x) of the law."""
    return torch.where(x.squeeze(-1) < 0.5, 0.9, 0.15)


def labels(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """X uniform on [0, 1], Y by :func:`label_probability`."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    return x, (torch.rand(n, generator=generator) < label_probability(x)).long()


def embedding(regularization: float = 0.3, lengthscale: float = 0.3) -> MulticlassEmbedding:
    """On a kernel that is fixed before the data are seen."""
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    return MulticlassEmbedding(kernel, 2, regularization).double().requires_grad_(False)


def true_risk(conditioned: ConditionedMulticlass, brier: bool = False) -> float:
    """The expected loss by the law itself: clipped at 1/e, or the Brier score of decision probabilities."""
    grid = (torch.arange(400, dtype=torch.float64).unsqueeze(-1) + 0.5) / 400
    p, F = label_probability(grid), conditioned.decision_probabilities(grid)
    one_hot = torch.eye(2, dtype=torch.float64)
    losses = [
        (F - one_hot[c]).square().sum(-1) if brier else clipped_cross_entropy(F[:, c], 1.0 / math.e) for c in (0, 1)
    ]
    return float((p * losses[1] + (1 - p) * losses[0]).mean())


def exceeded(draws: int, n: int = 40, beta: float = BETA) -> dict[str, float]:
    """The share of samples in which the true risk is above each bound of confidence 1 − β; n rows learn, n judge."""
    grid = [embedding(regularization) for regularization in (0.01, 0.1, 1.0)]
    kernels = [embedding(0.1, lengthscale) for lengthscale in (0.1, 0.3, 1.0)]
    objective = RiskBound(1 - beta, len(kernels))
    failures = dict.fromkeys(FORMS, 0)
    for seed in range(draws):
        x, y = labels(2 * n, seed)
        held = (x[n:], y[n:])
        known = [made.condition(x[:n], y[:n]) for made in grid]
        risks = [true_risk(c) for c in known]
        for form in ("tight", "sharp", "peeled"):
            failures[form] += risks[1] > generalization_bound(known[1], 1 - beta, form, epsilon=1.0 / math.e).value
        values = [objective(made, x[:n], y[:n]).item() for made in kernels]
        chosen = min(range(len(kernels)), key=values.__getitem__)
        failures["grid"] += true_risk(kernels[chosen].condition(x[:n], y[:n])) > values[chosen]
        bounds = [generalization_bound(c, 1 - beta, "holdout", holdout=held, candidates=3).value for c in known]
        best = min(range(3), key=bounds.__getitem__)
        failures["holdout"] += risks[best] > bounds[best]
        right = [c.decision_probabilities(held[0]).gather(-1, held[1][:, None])[:, 0] for c in known]
        gibbs = pac_bayes_bound(torch.stack([clipped_cross_entropy(p, 1.0 / math.e) for p in right]), 1 - beta)
        failures["pac-bayes"] += float(gibbs.weights @ torch.tensor(risks, dtype=torch.float64)) > gibbs.value
        failures["score"] += true_risk(known[1], brier=True) > score_bound(known[1], 1 - beta).value
    return {form: count / draws for form, count in failures.items()}


def covered(n: int, draws: int, coverage: float = 0.9) -> float:
    """The share of samples whose jackknife+ interval, kernel and ridge fixed, holds the target of one new row."""
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.2
    made = ConditionalEmbedding(kernel, 1.0 / n).double()
    hits = 0
    for seed in range(draws):
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(n + 1, 1, generator=generator, dtype=torch.float64)
        noise = torch.randn(n + 1, generator=generator, dtype=torch.float64)
        y = torch.sin(6 * x.squeeze(-1)) + (0.1 + 0.4 * x.squeeze(-1)) * noise
        low, high = jackknife_plus_interval(made.condition(x[:n], y[:n]), x[n:], coverage)[0].tolist()
        hits += low <= float(y[n]) <= high
    return hits / draws


def _bounds(draws: int) -> Call:
    def call() -> Record:
        shares = exceeded(draws)
        return {"draws": draws, "beta": BETA, **{f"exceeded_{form}": share for form, share in shares.items()}}

    return call


def _coverage(n: int, draws: int) -> Call:
    def call() -> Record:
        return {"draws": draws, "coverage": covered(n, draws)}

    return call


def cases(scope: Scope) -> Iterator[Case]:
    """How often a risk exceeds its bound and an interval misses, over 500 samples each.

    The standard error of a share of β is 0.018, that of a coverage of 0.9 is 0.013.
    """
    draws = 20 if scope.quick else 500
    yield Case(PART, OURS, 40, partial(_bounds, draws))
    for n in (20,) if scope.quick else (50, 200):
        yield Case(COVERAGE, OURS, n, partial(_coverage, n, draws))
