r"""Other penalties than those of Table 1, through the same cross validation, on the same folds.

- Lemma 4 bounds the complexity by :math:`12 \kappa^2 \sqrt{\pi d_k / m}`, and the paper then takes
  :math:`r_k = \kappa^2 \sqrt{d_k}` as penalty. One is :math:`12 \sqrt{\pi / m}` times the other: the second on a grid
  of λ is the first on that grid divided by the constant, m being the size of the training part, 3n/5. ``"lighter λ"``
  goes on with that grid, which ends at :math:`10^{-6}`, down to :math:`10^{-12}`.
- The elastic penalty adds :math:`\frac\mu2 \sum_{k,j} (\Lambda_k \alpha_{k,j})^2`; validation selects μ with λ and β,
  μ = 0 among its values.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence

from ...results import Record, number
from ...voting.cross_validation import CrossValidation, cross_validate_votes
from ...voting.families import polynomial_kernels
from ...voting.path import GRID
from ..experiment import Experiment, Settings
from ..papers.cortes2015.voted import SCALERS, SIZES, figures_of, load_two_classes
from ..runner import Case

MANY_FEATURES = ("musk", "ocr49", "phishing")
"""Where Lemma 4 is worse than the published figures."""

SMALL = ("vertebral", "ionosphere", "musk", "breastcancer", "diabetes")

LIGHTER = tuple(10.0**-i for i in range(13))
ELASTIC = (0.0, 10.0, 1000.0)
"""Values of μ. A vote costs a few thousandths at the optimum, so smaller ones change nothing."""

COARSE = {"lams": (1e-1, 1e-2, 1e-3), "betas": (1e-2, 1e-4)}
"""The grid for the elastic penalty, whose solver is the slower one, most of all where penalties are light."""

Validate = Callable[..., CrossValidation]


def _shifted(lams: Sequence[float], n: int) -> list[float]:
    """The grid for r_k = κ²√d_k, written as one for Lemma 4."""
    return [lam / (12.0 * math.sqrt(math.pi / (0.6 * n))) for lam in lams]


VARIANTS: dict[str, Callable[[Validate, int], list[tuple[float, CrossValidation]]]] = {
    "Lemma 4": lambda run, n: [(0.0, run(complexity="dimension"))],
    "κ²√d": lambda run, n: [(0.0, run(complexity="dimension", lams=_shifted(GRID, n)))],
    "κ²√d, lighter λ": lambda run, n: [(0.0, run(complexity="dimension", lams=_shifted(LIGHTER, n)))],
    "Lemma 3": lambda run, n: [(0.0, run())],
    "Lemma 3, coarse": lambda run, n: [(0.0, run(**COARSE))],
    "elastic": lambda run, n: [(mu, run(**COARSE, elastic=mu)) for mu in ELASTIC],
}
"""Results for each of its values of μ; validation selects one."""

DATA_OF = {name: SMALL if name in ("Lemma 3, coarse", "elastic") else MANY_FEATURES for name in VARIANTS}


def cases(settings: Settings, scaling: str) -> Iterator[Case]:
    """Every penalty on its data sets, degrees 1 to 10; ``quick`` takes one data set."""
    key: Record = {"experiment": "voted-penalties", "scaling": scaling}
    for penalty in settings.selected("methods", VARIANTS, tuple(VARIANTS)):
        for dataset in sorted(settings.datasets or DATA_OF[penalty], key=lambda name: SIZES.get(name, 0)):
            if not settings.quick or dataset == (settings.datasets or ["musk"])[0]:
                yield Case({**key, "dataset": dataset, "penalty": penalty},
                           functools.partial(_measure, penalty, dataset, scaling, settings))  # fmt: skip


def _measure(penalty: str, dataset: str, scaling: str, settings: Settings) -> Record:
    start = time.perf_counter()
    x, y = load_two_classes(dataset, settings.data)
    if settings.quick:
        x, y = x[::10], y[::10]
    run = functools.partial(
        cross_validate_votes,
        polynomial_kernels(range(1, 3) if settings.quick else range(1, 11)),
        x,
        y,
        scaler=SCALERS[scaling](),
        num_folds=settings.num_folds or 5,
        seed=settings.seed,
        tolerance=1e-6,
        progress=False,
    )
    runs = VARIANTS[penalty](run, len(x))
    # Of equals the smaller μ, which comes first.
    elastic, best = min(runs, key=lambda pair: round(pair[1].validation_error, 12))
    return {
        **figures_of(best),
        "elastic": elastic,
        "max_gap": max(result.max_gap for _, result in runs),
        "folds": settings.num_folds or 5,
        "quick": settings.quick,
        "seed": settings.seed,
        "seconds": round(time.perf_counter() - start, 2),
    }


def summary(records: Sequence[Record]) -> str:
    """Error ± its deviation over the folds / votes, and the values with the least validation error."""
    lines = ["| data set | penalty | error / votes | validation error | λ | β | μ |", "|---" * 7 + "|"]
    lines += [
        f"| {row['dataset']} | {row['penalty']} | {number(row, 'error'):.2f} ± {number(row, 'std'):.2f} / "
        f"{number(row, 'votes'):.1f} | {number(row, 'validation_error'):.2f} | {number(row, 'lam'):.1e} | "
        f"{number(row, 'beta'):.0e} | {number(row, 'elastic'):g} |"
        for row in sorted(records, key=lambda row: SIZES.get(str(row["dataset"]), 0))
    ]
    return "\n".join(lines)


PENALTIES = Experiment(
    "voted-penalties", "what the constant of Lemma 4, lighter λ and an elastic penalty do to the vote",
    "half an hour", ("experiment", "scaling", "dataset", "penalty"), cases, summary,
    options=frozenset({"data", "num_folds", "datasets", "methods", "seed"}), parameters={"scaling": "unit norm"},
)  # fmt: skip
