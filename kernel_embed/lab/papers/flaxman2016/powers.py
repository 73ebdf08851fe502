"""Power at level 0.05 beside hyppo, dcor, causal-learn and the median heuristic; needs ``kernel-embed[bench]``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....hypothesis import conditional_independence_test, independence_test, two_sample_test
from ....results import Record
from ..experiment import Settings
from .alternatives import families
from .rejections import NUM_PERMUTATIONS, Design, RejectionExperiment, Test

OURS, MEDIAN = "kernel_embed", "median heuristic"


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
    """dcor 0.7, whose import sets the number of threads that torch may use; it is set back."""
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


@dataclass(frozen=True)
class PowerStudy(RejectionExperiment):
    """One design for each kind of test."""

    name = "test-power"
    shows = "how often each test rejects where the null hypothesis is false, beside hyppo, dcor and causal-learn"
    duration = "an hour"
    options = RejectionExperiment.options | {"data"}

    def designs(self, settings: Settings) -> list[Design]:
        """The tests of each kind on the families of :mod:`~kernel_embed.lab.papers.flaxman2016.alternatives`."""
        every = families(settings.data)
        count = settings.repetitions or (3 if settings.quick else 100)
        return [Design(TESTS[kind], every[kind], count) for kind in TESTS]

    def summary(self, records: Sequence[Record]) -> str:
        """Rejection rates; how often this library is ahead of all others; and where it is behind any other test.

        Two standard errors are asked for in two ways: of the difference of two rates, and of the difference on the same
        data sets, which is smaller where tests agree on most of them.
        """
        studies = self.studies(records)
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
