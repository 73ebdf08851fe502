"""Power of the tests compared with hyppo, dcor and causal-learn, on synthetic families and subsamples of real tables.

Sizes and distances were set so that no test is always right. The other libraries come with ``kernel-embed[bench]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.random import RandomState
from numpy.typing import NDArray
from torch import Tensor

from ...hypothesis import conditional_independence_test, independence_test, two_sample_test
from ...results import Record
from ..datasets import Directory, load_table
from ..experiment import Settings
from ..papers.flaxman2016_grid import grid_samples
from ..rejections import NUM_PERMUTATIONS, Design, Simulator, Test, rejection_experiment, rejection_studies

OURS, MEDIAN = "kernel_embed", "median heuristic"
Array = NDArray[np.float64]


FAMILIES = {
    "samples": ("means", "scales", "correlation", "clusters", "wave", "diabetes", "retinopathy", "grid of Gaussians"),
    "pairs": ("line", "line, y × 100", "sine", "circle", "variance", "local", "ozone and wind", "humidity and height"),
    "given": ("line | z", "sine | z", "common size | z", "ozone and temperature | inversion",
              "ozone and humidity | temperature"),
}  # fmt: skip
"""By the kind of test."""
CLASSES = {"diabetes": 20, "retinopathy": 60}
"""Rows of the classes 0 and 1 of real tables."""
OZONE = {
    "ozone and wind": ((8, 1), 100),
    "humidity and height": ((2, 0), 80),
    "ozone and temperature | inversion": ((8, 3, 6), 60),
    "ozone and humidity | temperature": ((8, 2, 3), 100),
}
"""Columns of the ozone table, as in ``papers.flaxman2016_ozone.NAMES``, and days."""


def _draw(family: str, data: Directory, r: RandomState) -> tuple[Array, ...]:
    """Two samples; x and y; or x, y and z."""
    if family == "means":
        return r.randn(100, 5), r.randn(100, 5) + 0.2
    if family == "scales":
        return r.randn(100, 5), 1.2 * r.randn(100, 5)
    if family == "correlation":
        return r.randn(150, 2), r.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 150)
    if family == "clusters":  # two clusters 40 apart, each moved by 0.6, in opposite directions
        first, second = r.randint(2, size=(2, 100, 1))
        return 40.0 * first + r.randn(100, 1), 40.0 * second + 0.6 * (1 - 2 * second) + r.randn(100, 1)
    if family == "wave":  # uniform, and with the density 1 + 0.7 sin(8πx)
        candidates = r.rand(1200, 1)
        accepted = candidates[1.7 * r.rand(1200) < 1 + 0.7 * np.sin(8 * np.pi * candidates[:, 0])]
        return r.rand(150, 1), accepted[:150]
    if family == "circle":
        angle = 2 * np.pi * r.rand(60, 1)
        return np.cos(angle) + 0.35 * r.randn(60, 1), np.sin(angle) + 0.35 * r.randn(60, 1)
    if family == "sine":
        x = r.rand(80, 1)
        return x, np.sin(4 * np.pi * x) + 0.6 * r.randn(80, 1)
    if family == "local":  # four independent pairs of clusters; inside each, x and y are correlated by 0.7
        x, noise = r.randn(2, 100, 1)
        y = 0.7 * x + np.sqrt(1 - 0.49) * noise
        return 30.0 * r.randint(2, size=(100, 1)) + x, 30.0 * r.randint(2, size=(100, 1)) + y
    if family == "common size | z":  # of the noises of x and y
        z, e, f, s = r.randn(4, 80, 1)
        return np.sin(2 * z) + s * e, z**2 + s * f, z
    if family.endswith("| z"):
        z, e, f = r.randn(3, 80, 1)
        x = z + e if family == "line | z" else 0.5 * z + e
        return x, z + 0.4 * x + f if family == "line | z" else z + np.sin(3 * x) + 0.7 * f, z
    if family in CLASSES:  # without replacement
        x, labels = load_table(family, data)
        return tuple(x[r.permutation(np.flatnonzero(labels == label))[: CLASSES[family]]] for label in ("0", "1"))
    if family in OZONE:
        x, ozone = load_table("ozone", data)
        columns, n = OZONE[family]
        values = np.concatenate([x[:, :8], ozone.astype(float)[:, None]], axis=1)
        values = values[r.permutation(len(values))[:n]]
        return tuple(values[:, [column]] for column in columns)
    x = r.randn(80, 1)
    if family == "line":
        return x, 0.3 * x + np.sqrt(1 - 0.09) * r.randn(80, 1)
    if family == "line, y × 100":
        return x, 30 * x + 100 * np.sqrt(0.91) * r.randn(80, 1)
    return x, (0.5 + np.abs(x)) * r.randn(80, 1)  # variance


def _simulate(family: str, data: Directory, repetition: int) -> tuple[Tensor, ...]:
    if family == "grid of Gaussians":  # Figure 2 of the paper with 30 points in each blob and a ratio of 6
        return grid_samples(6.0, 30, seed=repetition)
    return tuple(map(torch.as_tensor, _draw(family, data, RandomState(repetition))))


def _hyppo(x: Tensor, y: Tensor, seed: int, *, paired: bool) -> float:
    """hyppo's HSIC or MMD with its defaults: one bandwidth by the median, a chi-square approximation."""
    from hyppo.independence import Hsic
    from hyppo.ksample import MMD

    test: Any = Hsic() if paired else MMD()
    return float(test.test(x.numpy(), y.numpy(), random_state=seed)[1])


def _dcor(x: Tensor, y: Tensor, seed: int, *, paired: bool) -> float:
    """dcor's test of distance covariance, or its energy test, by permutations: without any the p-value is 1."""
    threads = torch.get_num_threads()
    import dcor

    if torch.get_num_threads() != threads:  # which its import changes
        torch.set_num_threads(threads)
    test = dcor.independence.distance_covariance_test if paired else dcor.homogeneity.energy_test
    return float(test(x.numpy(), y.numpy(), num_resamples=NUM_PERMUTATIONS, random_state=seed).pvalue)


def _kci(*data: Tensor, seed: int) -> float:
    """causal-learn's KCI with its defaults, with or without a condition."""
    from causallearn.utils.KCI.KCI import KCI_CInd, KCI_UInd

    test: Any = KCI_UInd() if len(data) == 2 else KCI_CInd()
    return float(test.compute_pvalue(*(tensor.numpy() for tensor in data))[0])


def _both(test: Callable[..., Any]) -> dict[str, Test]:
    ours = partial(test, num_permutations=NUM_PERMUTATIONS)
    return {OURS: ours, MEDIAN: partial(ours, kernel="median")}


TESTS: dict[str, dict[str, Test]] = {
    "samples": {
        **_both(two_sample_test),
        "hyppo MMD": partial(_hyppo, paired=False),
        "dcor energy": partial(_dcor, paired=False),
    },
    "pairs": {
        **_both(independence_test),
        "hyppo HSIC": partial(_hyppo, paired=True),
        "dcor": partial(_dcor, paired=True),
        "KCI": _kci,
    },
    "given": {**_both(conditional_independence_test), "KCI": _kci},
}


def _designs(settings: Settings) -> list[Design]:
    """The tests of each kind on their families."""
    count, designs = settings.repetitions or (3 if settings.quick else 100), []
    for kind, names in FAMILIES.items():
        simulators: dict[str, Simulator] = {name: partial(_simulate, name, settings.data) for name in names}
        designs.append(Design(TESTS[kind], simulators, count))
    return designs


def _summarize(records: Sequence[Record]) -> str:
    """Rejection rates, and where this library is ahead of all others or behind any test.

    Differences are paired by data set and compared with two of their standard errors.
    """
    studies = rejection_studies(_designs, records)
    ahead, behind, total = 0, list[str](), 0
    for study in studies:
        for simulator in study.simulators:
            gaps = {other: study.difference(simulator, OURS, other) for other in study.tests if other != OURS}
            total += 1
            ahead += all(gap > 0.0 for other, (gap, _) in gaps.items() if other != MEDIAN)
            behind += [f"{simulator} ({other})" for other, (gap, error) in gaps.items() if gap < -2.0 * error]
    lines = [
        f"Ahead of every other library: {ahead} of {total}.",
        f"Behind another test by more than two paired standard errors: {', '.join(behind) or 'none'}.",
    ]
    return "\n\n".join([*(study.table() for study in studies), "\n".join(lines)])


POWER = rejection_experiment(
    _designs, "data", name="test-power",
    shows="how often each test rejects where the null hypothesis is false, compared with hyppo, dcor and causal-learn",
    duration="an hour", summary=_summarize, files=("diabetes.csv", "ozone.csv", "retinopathy.csv"),
)  # fmt: skip
