"""The level of every test, over null data sets on which the evidence has several maxima."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ...hypothesis import conditional_independence_test, independence_test, k_sample_test, two_sample_test
from ...hypothesis.result import KernelTestResult
from ...results import Record, table
from ..experiment import Settings
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


def conditional(kind: str, repetition: int, n: int = 80) -> tuple[Tensor, ...]:
    """x and y independent given z, in several ways."""
    generator = torch.Generator().manual_seed(repetition)
    e, f, z = (torch.randn(n, 1, generator=generator, dtype=torch.float64) for _ in range(3))
    if kind == "linear":
        return z + e, z + f, z
    if kind == "nonlinear":
        return torch.sin(3 * z) + 0.3 * e, z.square() + 0.3 * f, z
    if kind == "three causes":
        z = torch.randn(n, 3, generator=generator, dtype=torch.float64)
        return z.sum(1, keepdim=True) + e, torch.tanh(z[:, :1] * z[:, 1:2]) + 0.5 * f, z
    if kind == "not additive":
        return torch.tanh(z + e), (z + 0.5 * f).pow(3), z
    return z * e, z * f, z  # "common variance"


CONDITIONAL = ("linear", "nonlinear", "three causes", "not additive", "common variance")


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


def _conditional(
    x: Tensor, y: Tensor, z: Tensor, seed: int, method: Literal["residuals", "kernel"]
) -> KernelTestResult:
    return conditional_independence_test(x, y, z, None, NUM_PERMUTATIONS, seed, method=method)


@dataclass(frozen=True)
class LevelStudy(RejectionExperiment):
    """One design for each test, and one of the conditional tests on a fifth as many data sets."""

    name = "test-level"
    shows = "how often each test rejects where the null hypothesis holds, beside the interval of an exact test"
    duration = "hours"

    def designs(self, settings: Settings) -> list[Design]:
        """Every test of :data:`PLAN` on its own data; both conditional tests on the same."""
        count = settings.repetitions or (5 if settings.quick else 1000)
        single = [Design({name: test}, {"null": simulator}, count) for name, (simulator, test) in PLAN.items()]
        methods: tuple[Literal["residuals", "kernel"], ...] = ("residuals", "kernel")
        tests: dict[str, Test] = {method: functools.partial(_conditional, method=method) for method in methods}
        models = {kind: functools.partial(conditional, kind) for kind in CONDITIONAL}
        return [*single, Design(tests, models, max(2, count // 5))]

    def summary(self, records: Sequence[Record]) -> str:
        """Rejection rates at 0.05 beside the interval of an exact test, and the uniformity of the p-values."""
        studies = self.studies(records)
        rows = []
        for study in studies[:-1]:
            (name,) = study.tests
            low, high = study.interval("null", name)
            count = None if "gamma" in name or "linear" in name else NUM_PERMUTATIONS
            uniformity = study.uniformity("null", name, count)
            rows.append([name, f"{study.rate('null', name):.3f}", f"{low:.3f} … {high:.3f}", f"{uniformity:.3f}"])
        head = [f"{len(studies[0].records)} null data sets", "rejected", "99.9 % interval", "uniform, p"]
        return f"{table(head, rows)}\n\nConditional tests, level 0.05, as found:\n{studies[-1].table()}"
