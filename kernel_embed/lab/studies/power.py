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


def _clusters(r: RandomState) -> tuple[Array, ...]:
    """Two clusters 40 apart, each moved by 0.6, in opposite directions."""
    first, second = r.randint(2, size=(2, 100, 1))
    return 40.0 * first + r.randn(100, 1), 40.0 * second + 0.6 * (1 - 2 * second) + r.randn(100, 1)


def _wave(r: RandomState) -> tuple[Array, ...]:
    """Uniform, and with the density 1 + 0.7 sin(8πx)."""
    candidates = r.rand(1200, 1)
    accepted = candidates[1.7 * r.rand(1200) < 1 + 0.7 * np.sin(8 * np.pi * candidates[:, 0])]
    return r.rand(150, 1), accepted[:150]


def _pair(x: Array, y: Callable[[Array], Array]) -> tuple[Array, ...]:
    return x, y(x)


def _circle(r: RandomState) -> tuple[Array, ...]:
    """A noisy circle."""
    angle = 2 * np.pi * r.rand(60, 1)
    return np.cos(angle) + 0.35 * r.randn(60, 1), np.sin(angle) + 0.35 * r.randn(60, 1)


def _local(r: RandomState) -> tuple[Array, ...]:
    """Four independent pairs of clusters; inside each, x and y are correlated by 0.7."""
    x, noise = r.randn(2, 100, 1)
    y = 0.7 * x + np.sqrt(1 - 0.49) * noise
    return 30.0 * r.randint(2, size=(100, 1)) + x, 30.0 * r.randint(2, size=(100, 1)) + y


def _given(r: RandomState, weight: float, y: Callable[[Array, Array, Array], Array]) -> tuple[Array, ...]:
    """x = weight · z + noise, and y of x, z and another noise."""
    z, e, f = r.randn(3, 80, 1)
    x = weight * z + e
    return x, y(x, z, f), z


def _given_product(r: RandomState) -> tuple[Array, ...]:
    """The noises of x and y share their size."""
    z, e, f, s = r.randn(4, 80, 1)
    return np.sin(2 * z) + s * e, z**2 + s * f, z


def _classes(name: str, n: int, data: Directory, r: RandomState) -> tuple[Array, ...]:
    """Rows of the classes 0 and 1 of a real table, ``n`` of each, without replacement."""
    x, y = load_table(name, data)
    return tuple(x[r.permutation(np.flatnonzero(y == label))[:n]] for label in ("0", "1"))


def _ozone(columns: tuple[int, ...], n: int, data: Directory, r: RandomState) -> tuple[Array, ...]:
    """Columns of the ozone table on ``n`` of its days: x, y, and z if there is a third.

    They are: pressure height, wind, humidity, temperature, inversion height, gradient, inversion, visibility, ozone.
    """
    x, y = load_table("ozone", data)
    values = np.concatenate([x[:, :8], y.astype(float)[:, None]], axis=1)
    values = values[r.permutation(len(values))[:n]]
    return tuple(values[:, [column]] for column in columns)


def _families(data: Directory) -> dict[str, dict[str, Simulator]]:
    """All of them, by the kind of test."""
    draws: dict[str, dict[str, Callable[[RandomState], tuple[Array, ...]]]] = {
        "samples": {
            "means": lambda r: (r.randn(100, 5), r.randn(100, 5) + 0.2),
            "scales": lambda r: (r.randn(100, 5), 1.2 * r.randn(100, 5)),
            "correlation": lambda r: (r.randn(150, 2), r.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 150)),
            "clusters": _clusters,
            "wave": _wave,
            "diabetes": partial(_classes, "diabetes", 20, data),
            "retinopathy": partial(_classes, "retinopathy", 60, data),
        },
        "pairs": {
            "line": lambda r: _pair(r.randn(80, 1), lambda x: 0.3 * x + np.sqrt(1 - 0.09) * r.randn(80, 1)),
            "line, y × 100": lambda r: _pair(r.randn(80, 1), lambda x: 30 * x + 100 * np.sqrt(0.91) * r.randn(80, 1)),
            "sine": lambda r: _pair(r.rand(80, 1), lambda x: np.sin(4 * np.pi * x) + 0.6 * r.randn(80, 1)),
            "circle": _circle,
            "variance": lambda r: _pair(r.randn(80, 1), lambda x: (0.5 + np.abs(x)) * r.randn(80, 1)),
            "local": _local,
            "ozone and wind": partial(_ozone, (8, 1), 100, data),
            "humidity and height": partial(_ozone, (2, 0), 80, data),
        },
        "given": {
            "line | z": lambda r: _given(r, 1.0, lambda x, z, f: z + 0.4 * x + f),
            "sine | z": lambda r: _given(r, 0.5, lambda x, z, f: z + np.sin(3 * x) + 0.7 * f),
            "common size | z": _given_product,
            "ozone and temperature | inversion": partial(_ozone, (8, 3, 6), 60, data),
            "ozone and humidity | temperature": partial(_ozone, (8, 2, 3), 100, data),
        },
    }

    def simulate(draw: Callable[[RandomState], tuple[Array, ...]], repetition: int) -> tuple[Tensor, ...]:
        return tuple(map(torch.as_tensor, draw(RandomState(repetition))))

    simulators: dict[str, dict[str, Simulator]] = {
        kind: {name: partial(simulate, draw) for name, draw in by_name.items()} for kind, by_name in draws.items()
    }
    # Figure 2 of the paper with 30 points in each blob and a ratio of 6
    simulators["samples"]["grid of Gaussians"] = lambda repetition: grid_samples(6.0, 30, seed=repetition)
    return simulators


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
    count = settings.repetitions or (3 if settings.quick else 100)
    return [Design(TESTS[kind], simulators, count) for kind, simulators in _families(settings.data).items()]


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
