"""The regressor where the law of the target is known: the CRPS it reaches over that of the law itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from ...results import Record, number
from ..compare.tasks import REGRESSION
from .cases import OURS, Call, Case, Scope, in_own_process
from .distributions import LEARNERS, Learner

Array = NDArray[np.float64]
LAWS, LARGE = "distributions: known laws", "distributions: many rows"
MANY_ROWS = 100_000
Law = Callable[[Array], tuple[Array, Array, Array]]
"""From inputs to the weights, means and scales of a mixture of Gaussians, ``(n, c)`` each."""


def bimodal(x: Array) -> tuple[Array, Array, Array]:
    """Two branches ±(½ + x₁) of scale 0.2, the upper one with probability x₂."""
    centre = 0.5 + x[:, :1]
    p = x[:, 1:2]
    return np.hstack([p, 1 - p]), np.hstack([centre, -centre]), np.full((len(x), 2), 0.2)


def heteroscedastic(x: Array) -> tuple[Array, Array, Array]:
    """sin 6x₁ with a scale from 0.1 to 0.9 along x₂."""
    return np.ones((len(x), 1)), np.sin(6 * x[:, :1]), 0.1 + 0.8 * x[:, 1:2]


KNOWN: dict[str, Law] = {"bimodal": bimodal, "heteroscedastic": heteroscedastic}


def mixture_crps(law: tuple[Array, Array, Array], y: Array) -> Array:
    """E|Y − y| − ½E|Y − Y′| of Gaussian mixtures, in closed form (Grimit et al. 2006)."""
    weights, means, scales = law

    def absolute(mean: Array, scale: Array) -> Array:
        z = mean / scale
        answer: Array = mean * (2 * norm.cdf(z) - 1) + 2 * scale * norm.pdf(z)
        return answer

    first = (weights * absolute(y[:, None] - means, scales)).sum(1)
    pairs = weights[:, :, None] * weights[:, None, :]
    spread = np.sqrt(scales[:, :, None] ** 2 + scales[:, None, :] ** 2)
    second = (pairs * absolute(means[:, :, None] - means[:, None, :], spread)).sum((1, 2))
    crps: Array = first - 0.5 * second
    return crps


def draw(law: Law, n: int, seed: int) -> tuple[Array, Array]:
    """Inputs in the unit square, and targets by the law."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 2))
    weights, means, scales = law(x)
    chosen = (weights.cumsum(1) < rng.uniform(size=(n, 1))).sum(1)
    rows = np.arange(n)
    return x, means[rows, chosen] + scales[rows, chosen] * rng.normal(size=n)


def _on_law(learner: Learner, law: Law, n: int) -> Call:
    x, y = draw(law, n, 0)
    new, outcomes = draw(law, 4000, 1)

    def call() -> Record:
        answer = learner(pd.DataFrame(x), y, pd.DataFrame(new), outcomes)
        inside = (answer.interval[:, 0] <= outcomes) & (outcomes <= answer.interval[:, 1])
        best = mixture_crps(law(new), outcomes).mean()
        return {
            "crps": float(answer.crps.mean()),
            "over_law": float(answer.crps.mean() / best),
            "coverage": float(inside.mean()),
            "width": float((answer.interval[:, 1] - answer.interval[:, 0]).mean()),
        }

    return call


def cases(scope: Scope) -> Iterator[Case]:
    """Ours, one kernel by the score and by the evidence, and three others on both laws."""
    names = [name for name in LEARNERS if name.startswith(OURS)]
    names += ["quantile forest", "NGBoost", "Gaussian process, ARD"]
    for name, law in KNOWN.items():
        for n in (100,) if scope.quick else (500, 2000):
            for learner in (OURS,) if scope.quick else names:
                call, package = LEARNERS[learner]
                yield Case(f"{LAWS}: {name}", learner, n, partial(_on_law, call, law, n), package)


def _on_many(learner: str, name: str, n: int) -> Record:
    """One learner on n rows of one law, in this process alone; 4000 new rows judge it."""
    law = KNOWN[name]
    x, y = draw(law, n, 0)
    new, outcomes = draw(law, 4000, 1)
    split = (pd.DataFrame(x), y, pd.DataFrame(new), outcomes)
    record = REGRESSION.measure(REGRESSION.learners()[learner].for_tables, split, y).record
    crps = number(record, "crps") * y.std()
    kept = ("fit_seconds", "processor_seconds", "predict_seconds", "peak_megabytes", "coverage")
    over_law = crps / mixture_crps(law(new), outcomes).mean()
    return {"crps": float(crps), "over_law": float(over_law), **{field: record[field] for field in kept}}


def many_cases(scope: Scope) -> Iterator[Case]:
    """A hundred thousand rows: ours through features, and histogram boosting of quantiles."""
    n, name = 200 if scope.quick else MANY_ROWS, "heteroscedastic"
    for label, learner in {OURS: "default", "histogram boosting, quantiles": "boosting"}.items():
        yield Case(f"{LARGE}: {name}", label, n, partial(in_own_process, _on_many, learner, name, n))
