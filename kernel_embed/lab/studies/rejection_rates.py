"""How often every test rejects: its level on null data sets, and its power beside other libraries.

On the null data sets the evidence has several maxima. The other libraries come with ``kernel-embed[bench]``.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from types import ModuleType

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from numpy.typing import NDArray
from torch import Tensor

from ...hypothesis import (
    LevelWarning,
    conditional_independence_test,
    independence_test,
    k_sample_test,
    two_sample_test,
)
from ...hypothesis.conditional import Method
from ...hypothesis.result import KernelTestResult
from ...results import Record, table
from ..experiment import Settings
from ..rejections import NUM_PERMUTATIONS, Design, Simulator, Test, rejection_experiment, rejection_studies
from .alternatives import families
from .null_models import HELD_OUT, MODELS, SIZES, categories, conditional, independent, samples

OURS, MEDIAN = "kernel_embed", "median heuristic"


def _kernel() -> RBFKernel:
    kernel = RBFKernel()
    kernel.lengthscale = 2.0
    return kernel


_two = partial(two_sample_test, num_permutations=NUM_PERMUTATIONS)
_independence = partial(independence_test, num_permutations=NUM_PERMUTATIONS)
_pair = partial(samples, count=2)

PLAN: dict[str, tuple[Simulator, Test]] = {
    "two samples": (_pair, _two),
    "two samples, kernel given": (_pair, partial(_two, kernel=_kernel())),
    "two samples, gamma": (_pair, partial(_two, kernel=_kernel(), null="gamma")),
    "two samples, linear time": (partial(_pair, n=200), partial(_two, kernel=_kernel(), statistic="linear")),
    "three samples": (partial(samples, count=3, n=15), partial(k_sample_test, num_permutations=NUM_PERMUTATIONS)),
    "independence": (independent, _independence),
    "two samples, mixed columns": (categories, partial(_two, categorical=[1])),
    "independence, gamma": (independent, partial(_independence, kernel="best", null="gamma")),
    "two samples, unbiased": (_pair, partial(_two, statistic="unbiased")),
    "two samples, highest evidence": (_pair, partial(_two, kernel="best")),
    "two samples, split": (_pair, partial(_two, kernel="split")),
    "independence, unbiased": (independent, partial(_independence, statistic="unbiased")),
}
"""By name: the null data sets, and the test."""


def _conditional(x: Tensor, y: Tensor, z: Tensor, seed: int, method: Method) -> KernelTestResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelWarning)  # the study is to find out
        return conditional_independence_test(x, y, z, None, NUM_PERMUTATIONS, seed, method=method)


METHODS: tuple[Method, ...] = ("transforms", "residuals", "kernel")


def level_designs(settings: Settings) -> list[Design]:
    """Every test of :data:`PLAN` on its own data; the conditional ones all on the same, slow ones on fewer sets."""
    count = settings.repetitions or (5 if settings.quick else 1000)
    designs = [Design({name: test}, {"null": simulator}, count) for name, (simulator, test) in PLAN.items()]
    for n in SIZES:
        models: dict[str, Simulator] = {f"{kind}, n = {n}": partial(conditional, kind, n=n)
                                        for kind in (*MODELS, *HELD_OUT)}  # fmt: skip
        for method in METHODS if n == SIZES[0] else METHODS[:1]:
            few = count if method == METHODS[0] else max(2, count // 5)
            designs.append(Design({method: partial(_conditional, method=method)}, models, few))
    return designs


def level_summary(records: Sequence[Record]) -> str:
    """Rejection rates at 0.05 beside the interval of an exact test, and the uniformity of the p-values."""
    rows, by_model = [], {}
    for study in rejection_studies(level_designs, records):
        (name,) = study.tests
        if name in METHODS:
            by_model.update({(model, name): study for model in study.simulators})
            continue
        low, high = study.interval("null", name)
        count = None if "gamma" in name else NUM_PERMUTATIONS
        uniformity = study.uniformity("null", name, count)
        rows.append([name, f"{study.rate('null', name):.3f}", f"{low:.3f} … {high:.3f}", f"{uniformity:.3f}"])
    parts = [table(["null data sets", "rejected", "99.9 % interval", "uniform, p"], rows)] if rows else []
    if by_model:
        models = list(dict.fromkeys(model for model, _ in by_model))
        tests = [name for name in METHODS if any((model, name) in by_model for model in models)]
        cells = [
            [model, *(f"{by_model[model, t].rate(model, t):.3f}" if (model, t) in by_model else "" for t in tests)]
            for model in models
        ]
        count = len(by_model[models[0], tests[0]].pvalues(models[0], tests[0]))
        head = f"Conditional tests, level 0.05, {count} sets"
        parts.append(f"{head}:\n{table(['rejection rate', *tests], cells)}")
    return "\n\n".join(parts)


def _arrays(*tensors: Tensor) -> list[NDArray[np.float64]]:
    return [tensor.numpy() for tensor in tensors]


def hyppo_mmd(x: Tensor, y: Tensor, seed: int) -> float:
    """hyppo's MMD with its defaults: one bandwidth by the median, a chi-square approximation."""
    from hyppo.ksample import MMD

    return float(MMD().test(*_arrays(x, y), random_state=seed)[1])


def hyppo_hsic(x: Tensor, y: Tensor, seed: int) -> float:
    """hyppo's HSIC with its defaults."""
    from hyppo.independence import Hsic

    return float(Hsic().test(*_arrays(x, y), random_state=seed)[1])


def _dcor() -> ModuleType:
    """dcor 0.7, whose import changes the number of threads of torch; it is restored."""
    threads = torch.get_num_threads()
    import dcor

    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    module: ModuleType = dcor
    return module


def dcor_energy(x: Tensor, y: Tensor, seed: int) -> float:
    """dcor's energy test, by permutations: without any its p-value is 1."""
    test = _dcor().homogeneity.energy_test
    return float(test(*_arrays(x, y), num_resamples=NUM_PERMUTATIONS, random_state=seed).pvalue)


def dcor_covariance(x: Tensor, y: Tensor, seed: int) -> float:
    """dcor's test of distance covariance, by permutations."""
    test = _dcor().independence.distance_covariance_test
    return float(test(*_arrays(x, y), num_resamples=NUM_PERMUTATIONS, random_state=seed).pvalue)


def causal_learn_kci(x: Tensor, y: Tensor, z: Tensor | None = None, *, seed: int) -> float:
    """causal-learn's KCI with its defaults, with or without a condition."""
    from causallearn.utils.KCI.KCI import KCI_CInd, KCI_UInd

    if z is None:
        return float(KCI_UInd().compute_pvalue(*_arrays(x, y))[0])
    return float(KCI_CInd().compute_pvalue(*_arrays(x, y, z))[0])


TESTS: dict[str, dict[str, Test]] = {
    "samples": {
        OURS: lambda x, y, seed: two_sample_test(x, y, None, NUM_PERMUTATIONS, seed),
        MEDIAN: lambda x, y, seed: two_sample_test(x, y, "median", NUM_PERMUTATIONS, seed),
        "hyppo MMD": hyppo_mmd,
        "dcor energy": dcor_energy,
    },
    "pairs": {
        OURS: lambda x, y, seed: independence_test(x, y, None, NUM_PERMUTATIONS, seed),
        MEDIAN: lambda x, y, seed: independence_test(x, y, "median", NUM_PERMUTATIONS, seed),
        "hyppo HSIC": hyppo_hsic,
        "dcor": dcor_covariance,
        "KCI": causal_learn_kci,
    },
    "given": {
        OURS: lambda x, y, z, seed: conditional_independence_test(x, y, z, None, NUM_PERMUTATIONS, seed),
        MEDIAN: lambda x, y, z, seed: conditional_independence_test(x, y, z, "median", NUM_PERMUTATIONS, seed),
        "KCI": causal_learn_kci,
    },
}


def power_designs(settings: Settings) -> list[Design]:
    """The tests of each kind on the families of :mod:`~kernel_embed.lab.studies.alternatives`."""
    every = families(settings.data)
    count = settings.repetitions or (3 if settings.quick else 100)
    return [Design(TESTS[kind], every[kind], count) for kind in TESTS]


def power_summary(records: Sequence[Record]) -> str:
    """Rejection rates; how often this library is ahead of all others; and where it is behind any other test.

    Differences are compared with two standard errors in two ways: of two independent rates, and of the difference on
    the same data sets, which is smaller where tests agree on most of them.
    """
    studies = rejection_studies(power_designs, records)
    ahead = clearly = total = 0
    behind: list[str] = []
    behind_paired: list[str] = []
    for study in studies:
        for simulator in study.simulators:
            gaps = {other: study.difference(simulator, OURS, other) for other in study.tests if other != OURS}
            libraries = [gap for other, gap in gaps.items() if other != MEDIAN]
            total += 1
            ahead += all(gap > 0.0 for gap, _ in libraries)
            clearly += all(gap > 2.0 * error for gap, error in libraries)
            for other, (gap, error) in gaps.items():
                apart = np.hypot(study.standard_error(simulator, OURS), study.standard_error(simulator, other))
                behind += [f"{simulator} ({other})"] if gap < -2.0 * apart else []
                behind_paired += [f"{simulator} ({other})"] if gap < -2.0 * error else []
    count = len(studies[0].pvalues(studies[0].simulators[0], OURS))
    lines = [
        f"{count} repetitions, level 0.05.",
        f"Ahead of every other library: {ahead} of {total}, by more than two paired standard errors {clearly}.",
        f"Behind another test by more than two standard errors: {', '.join(behind) or 'none'}.",
        f"By more than two paired standard errors: {', '.join(behind_paired) or 'none'}.",
    ]
    return "\n\n".join([*(study.table() for study in studies), "\n".join(lines)])


LEVEL = rejection_experiment(
    level_designs, name="test-level",
    shows="how often each test rejects where the null hypothesis holds, beside the interval of an exact test",
    duration="hours; the default conditional test alone, --methods transforms, half an hour", summary=level_summary,
)  # fmt: skip
POWER = rejection_experiment(
    power_designs, frozenset({"data"}), name="test-power",
    shows="how often each test rejects where the null hypothesis is false, beside hyppo, dcor and causal-learn",
    duration="an hour", summary=power_summary,
)  # fmt: skip
