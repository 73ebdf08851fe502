"""The level of every test, over null data sets on which the evidence has several maxima."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ....hypothesis import (
    LevelWarning,
    conditional_independence_test,
    independence_test,
    k_sample_test,
    two_sample_test,
)
from ....hypothesis.conditional import Method
from ....hypothesis.result import KernelTestResult
from ....results import Record, table
from ..experiment import Settings
from .conditional_nulls import HELD_APART, MODELS, SIZES, conditional
from .rejections import NUM_PERMUTATIONS, Design, RejectionExperiment, Simulator, Test


def clustered(generator: torch.Generator, n: int, d: int = 1) -> Tensor:
    """Points of three clusters, of which one is far away."""
    centres = torch.tensor([0.0, 3.0, 30.0])[torch.randint(3, (n, 1), generator=generator)]
    return centres + torch.randn(n, d, generator=generator, dtype=torch.float64)


def samples(repetition: int, count: int, n: int = 25, d: int = 2) -> tuple[Tensor, ...]:
    """Several samples of one clustered distribution, of different sizes."""
    generator = torch.Generator().manual_seed(repetition)
    return tuple(clustered(generator, n + 5 * g, d) for g in range(count))


def categories(repetition: int, n: int = 25) -> tuple[Tensor, ...]:
    """Two samples of a number and a category that go together."""
    generator = torch.Generator().manual_seed(repetition)
    answer = []
    for _ in range(2):
        group = torch.randint(3, (n, 1), generator=generator).double()
        answer.append(torch.cat([group + torch.randn(n, 1, generator=generator, dtype=torch.float64), group], dim=1))
    return tuple(answer)


def independent(repetition: int, n: int = 30) -> tuple[Tensor, ...]:
    """Clustered x in the plane and y with heavy tails."""
    generator = torch.Generator().manual_seed(repetition)
    x, y = clustered(generator, n, 2), torch.randn(n, 1, generator=generator, dtype=torch.float64)
    chi = torch.randn(n, 3, generator=generator, dtype=torch.float64).square().sum(1, keepdim=True)
    return x, y / (chi / 3.0).sqrt()


def _kernel() -> RBFKernel:
    kernel = RBFKernel()
    kernel.lengthscale = 2.0
    return kernel


_two = functools.partial(two_sample_test, num_permutations=NUM_PERMUTATIONS)
_independence = functools.partial(independence_test, num_permutations=NUM_PERMUTATIONS)

PLAN: dict[str, tuple[Simulator, Test]] = {
    "two samples": (functools.partial(samples, count=2), _two),
    "two samples, kernel given": (functools.partial(samples, count=2), functools.partial(_two, kernel=_kernel())),
    "two samples, gamma": (
        functools.partial(samples, count=2),
        functools.partial(_two, kernel=_kernel(), null="gamma"),
    ),
    "two samples, linear time": (
        functools.partial(samples, count=2, n=200),
        functools.partial(_two, kernel=_kernel(), statistic="linear"),
    ),
    "three samples": (
        functools.partial(samples, count=3, n=15),
        functools.partial(k_sample_test, num_permutations=NUM_PERMUTATIONS),
    ),
    "independence": (independent, _independence),
    "two samples, mixed columns": (categories, functools.partial(_two, categorical=[1])),
    "independence, gamma": (independent, functools.partial(_independence, kernel="best", null="gamma")),
    "two samples, unbiased": (functools.partial(samples, count=2), functools.partial(_two, statistic="unbiased")),
    "two samples, highest evidence": (functools.partial(samples, count=2), functools.partial(_two, kernel="best")),
    "two samples, split": (functools.partial(samples, count=2), functools.partial(_two, kernel="split")),
    "independence, unbiased": (independent, functools.partial(_independence, statistic="unbiased")),
}
"""By name: the null data sets, and the test."""


def _conditional(x: Tensor, y: Tensor, z: Tensor, seed: int, method: Method) -> KernelTestResult:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LevelWarning)  # the study is to find out
        return conditional_independence_test(x, y, z, None, NUM_PERMUTATIONS, seed, method=method)


METHODS: tuple[Method, ...] = ("transforms", "residuals", "kernel")


@dataclass(frozen=True)
class LevelStudy(RejectionExperiment):
    """One design for each test; the conditional ones all see the same data, but the default more of them.

    ``methods=("transforms",)`` runs the default conditional test alone.
    """

    name = "test-level"
    shows = "how often each test rejects where the null hypothesis holds, beside the interval of an exact test"
    duration = "hours; the default conditional test alone, --methods transforms, half an hour"

    def designs(self, settings: Settings) -> list[Design]:
        """Every test of :data:`PLAN` on its own data; slow conditional tests on fewer sets."""
        count = settings.repetitions or (5 if settings.quick else 1000)
        single = [Design({name: test}, {"null": simulator}, count) for name, (simulator, test) in PLAN.items()]
        given = []
        for n in SIZES:
            models: dict[str, Simulator] = {
                f"{kind}, n = {n}": functools.partial(conditional, kind, n=n) for kind in (*MODELS, *HELD_APART)
            }
            for method in METHODS if n == SIZES[0] else METHODS[:1]:
                test: Test = functools.partial(_conditional, method=method)
                given.append(Design({method: test}, models, count if method == METHODS[0] else max(2, count // 5)))
        return [*single, *given]

    def summary(self, records: Sequence[Record]) -> str:
        """Rejection rates at 0.05 beside the interval of an exact test, and the uniformity of the p-values."""
        rows, found = [], {}
        for study in self.studies(records):
            (name,) = study.tests
            if name in METHODS:
                found.update({(model, name): study for model in study.simulators})
                continue
            low, high = study.interval("null", name)
            count = None if "gamma" in name else NUM_PERMUTATIONS
            uniformity = study.uniformity("null", name, count)
            rows.append([name, f"{study.rate('null', name):.3f}", f"{low:.3f} … {high:.3f}", f"{uniformity:.3f}"])
        parts = [table(["null data sets", "rejected", "99.9 % interval", "uniform, p"], rows)] if rows else []
        if found:
            models = list(dict.fromkeys(model for model, _ in found))
            tests = [name for name in METHODS if any((model, name) in found for model in models)]
            cells = [
                [model, *(f"{found[model, t].rate(model, t):.3f}" if (model, t) in found else "" for t in tests)]
                for model in models
            ]
            head = f"Conditional tests, level 0.05, {len(found[models[0], tests[0]].pvalues(models[0], tests[0]))} sets"
            parts.append(f"{head}:\n{table(['rejection rate', *tests], cells)}")
        return "\n\n".join(parts)
