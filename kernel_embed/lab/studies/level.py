"""Level of the tests: how often each rejects where the null hypothesis holds.

Of the conditional models, ten were known while the test was designed, on other draws of them. Six took no part in any
decision.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ...hypothesis import LevelWarning, conditional_independence_test, independence_test, k_sample_test, two_sample_test
from ...hypothesis.conditional import Method
from ...hypothesis.result import KernelTestResult
from ...results import Record, table
from ..experiment import Settings
from ..rejections import NUM_PERMUTATIONS, Design, Simulator, Test, rejection_experiment, rejection_studies

MODELS = ("linear", "nonlinear", "three causes", "not additive", "common variance", "hidden scale", "five columns",
          "heavy tails", "discrete x", "strong nonlinearity")  # fmt: skip
HELD_OUT = ("kinks", "skewed z", "saturation", "two categories", "rounded z", "ratio of causes")
"""Models that were run only after the test was final."""
SIZES = (80, 200)
FIRST_SEED = 1_000_000
"""Different from the seeds with which the test was designed."""


def clustered(generator: torch.Generator, n: int, d: int = 1) -> Tensor:
    """Points of three clusters, of which one is far away."""
    centres = torch.tensor([0.0, 3.0, 30.0], dtype=torch.float64)[torch.randint(3, (n, 1), generator=generator)]
    return centres + torch.randn(n, d, generator=generator, dtype=torch.float64)


def samples(repetition: int, count: int, n: int = 25, d: int = 2) -> tuple[Tensor, ...]:
    """Several samples of one clustered distribution, of different sizes."""
    generator = torch.Generator().manual_seed(repetition)
    return tuple(clustered(generator, n + 5 * g, d) for g in range(count))


def categories(repetition: int, n: int = 25) -> tuple[Tensor, ...]:
    """Two samples of a number and a category that go together."""
    generator, pair = torch.Generator().manual_seed(repetition), []
    for _ in range(2):
        group = torch.randint(3, (n, 1), generator=generator).double()
        pair.append(torch.cat([group + torch.randn(n, 1, generator=generator, dtype=torch.float64), group], dim=1))
    return tuple(pair)


def independent(repetition: int, n: int = 30) -> tuple[Tensor, ...]:
    """Clustered x in the plane and y with heavy tails."""
    generator = torch.Generator().manual_seed(repetition)
    x, y = clustered(generator, n, 2), torch.randn(n, 1, generator=generator, dtype=torch.float64)
    chi = torch.randn(n, 3, generator=generator, dtype=torch.float64).square().sum(1, keepdim=True)
    return x, y / (chi / 3.0).sqrt()


def conditional(kind: str, repetition: int, n: int = 80) -> tuple[Tensor, ...]:
    """x, y and z, ``n`` rows, of one of :data:`MODELS` or :data:`HELD_OUT`."""
    generator = torch.Generator().manual_seed(FIRST_SEED + repetition)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    e, f, z = (normal(n, 1) for _ in range(3))
    if kind == "linear":
        return z + e, z + f, z
    if kind == "nonlinear":
        return torch.sin(3 * z) + 0.3 * e, z.square() + 0.3 * f, z
    if kind == "three causes":
        z = normal(n, 3)
        return z.sum(1, keepdim=True) + e, torch.tanh(z[:, :1] * z[:, 1:2]) + 0.5 * f, z
    if kind == "not additive":
        return torch.tanh(z + e), (z + 0.5 * f).pow(3), z
    if kind == "common variance":
        return z * e, z * f, z
    if kind == "hidden scale":  # unobserved noise scales and one that z determines
        s = torch.exp(torch.sin(2 * z))
        return z + s * normal(n, 1).abs() * e, s * torch.exp(0.5 * normal(n, 1)) * f, z
    if kind == "five columns":
        z = normal(n, 5)
        x = z.sum(1, keepdim=True) / 5**0.5 + 0.5 * e
        return x, torch.sin(z[:, :1]) + 0.5 * z[:, 1:2].square() + 0.3 * z[:, 2:3] + 0.5 * f, z
    if kind == "heavy tails":  # Student's t with two degrees of freedom
        x, y, z = (v / normal(n, 2).square().mean(1, keepdim=True).sqrt() for v in (e, f, z))
        return z + x, z + y, z
    if kind == "discrete x":
        return torch.poisson(torch.exp(0.7 * z), generator=generator), torch.sin(2 * z) + 0.5 * f, z
    if kind == "strong nonlinearity":
        z = 6.0 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 3.0
        return torch.sin(4 * z) + 0.2 * e, torch.cos(4 * z) + torch.sin(4 * z) + 0.2 * f, z
    if kind == "kinks":
        return z.abs() + 0.3 * e, z.clamp_min(0.0) + 0.3 * f, z
    if kind == "skewed z":
        z = z.exp()
        return torch.log1p(5 * z) + 0.3 * e, z.sqrt() + 0.3 * z * f, z
    if kind == "saturation":
        return torch.sigmoid(5 * z) + 0.1 * e, torch.sigmoid(-4 * z) + 0.2 * f, z
    if kind == "two categories":
        u = torch.rand(n, 1, 2, generator=generator, dtype=torch.float64)
        return (u[..., 0] < torch.sigmoid(2 * z)).long(), (u[..., 1] < torch.sigmoid(2 * z)).long(), z
    if kind == "rounded z":
        z = (2 * z).round() / 2
        return torch.sin(2 * z) + 0.5 * e, z.square() + z * f, z
    z = normal(n, 3)  # the ratio of causes
    a, b, c = z[:, :1], z[:, 1:2], z[:, 2:]
    return a / (1 + b.square()) + 0.4 * e, a * c / (1 + b.abs()) + 0.4 * f, z


_kernel = RBFKernel()
_kernel.lengthscale = 2.0
_two = partial(two_sample_test, num_permutations=NUM_PERMUTATIONS)
_independence = partial(independence_test, num_permutations=NUM_PERMUTATIONS)
_pair = partial(samples, count=2)

PLAN: dict[str, tuple[Simulator, Test]] = {
    "two samples": (_pair, _two),
    "two samples, kernel given": (_pair, partial(_two, kernel=_kernel)),
    "two samples, gamma": (_pair, partial(_two, kernel=_kernel, null="gamma")),
    "two samples, linear time": (partial(_pair, n=200), partial(_two, kernel=_kernel, statistic="linear")),
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


def _designs(settings: Settings) -> list[Design]:
    """Every test of :data:`PLAN` on its own data; the conditional ones all on the same, slow ones on fewer sets."""
    count = settings.repetitions or (5 if settings.quick else 1000)
    designs = [Design({name: test}, {"null": simulator}, count) for name, (simulator, test) in PLAN.items()]
    for n in SIZES:
        kinds = (*MODELS, *HELD_OUT)
        models: dict[str, Simulator] = {f"{kind}, n = {n}": partial(conditional, kind, n=n) for kind in kinds}
        for method in METHODS if n == SIZES[0] else METHODS[:1]:
            few = count if method == METHODS[0] else max(2, count // 5)
            designs.append(Design({method: partial(_conditional, method=method)}, models, few))
    return designs


def _summarize(records: Sequence[Record]) -> str:
    """Rejection rates at 0.05 with the interval of an exact test, and the uniformity of the p-values."""
    rows, conditional_tables = [], []
    for study in rejection_studies(_designs, records):
        (name,) = study.tests
        if name in METHODS:
            conditional_tables.append(study.table())
            continue
        low, high = study.interval("null", name)
        uniformity = study.uniformity("null", name, None if "gamma" in name else NUM_PERMUTATIONS)
        rows.append([name, f"{study.rate('null', name):.3f}", f"{low:.3f} … {high:.3f}", f"{uniformity:.3f}"])
    tables = [table(["null data sets", "rejected", "99.9 % interval", "uniform, p"], rows)] if rows else []
    return "\n\n".join(tables + conditional_tables)


LEVEL = rejection_experiment(
    _designs, name="test-level",
    shows="how often each test rejects where the null hypothesis holds, with the interval of an exact test",
    duration="hours; the default conditional test alone, --methods transforms, half an hour", summary=_summarize,
)  # fmt: skip
