"""Permutation tests with a fixed kernel, beside hyppo and dcor, and the conditional test beside causal-learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from numpy.typing import NDArray

from ...hypothesis import conditional_independence_test, independence_test, two_sample_test
from ...hypothesis.conditional import Method
from ...kernels import set_lengthscales_by_median
from ...results import Record
from ..compare.resources import peak_memory
from .measurement import OURS, Call, Measurement, Scope, part

TWO_SAMPLE, INDEPENDENCE, CONDITIONAL = "two-sample test", "independence test", "conditional independence test"
LARGE = "two-sample test of large samples"
FIXED = f"{OURS}, median kernel"
Array = NDArray[np.float64]


def _samples(n: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
    return x, y + 0.2


def _triples(n: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 1))
    return z + rng.normal(size=(n, 1)), np.sin(2 * z) + rng.normal(size=(n, 1)), z


def _pairs(n: int) -> tuple[Array, Array]:
    x, y, _ = _triples(n)
    return x, y


def _median(*samples: Array) -> RBFKernel:
    x = torch.as_tensor(np.concatenate(samples))
    return set_lengthscales_by_median(RBFKernel().to(x), x)


def _ours_two_sample(n: int, permutations: int, learned: bool) -> Call:
    x, y = _samples(n)
    kernel = None if learned else _median(x, y)
    a, b = torch.as_tensor(x), torch.as_tensor(y)
    return lambda: {"pvalue": two_sample_test(a, b, kernel, permutations, seed=0).pvalue}


def _ours_independence(n: int, permutations: int, learned: bool) -> Call:
    x, y = _pairs(n)
    a, b = torch.as_tensor(x), torch.as_tensor(y)
    k, l = (None, None) if learned else (_median(x), _median(y))
    return lambda: {"pvalue": independence_test(a, b, k, permutations, seed=0, kernel_y=l).pvalue}


def _bare(n: int, permutations: int, paired: bool) -> Call:
    """The Gram matrices and the product with as many columns as permutations: the least that any test takes."""
    data = [torch.as_tensor(one) for one in _pairs(n)] if paired else [torch.as_tensor(np.concatenate(_samples(n)))]
    W = torch.rand(len(data[0]), permutations, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def call() -> None:
        K, *L = (torch.exp(-0.5 * torch.cdist(x, x).square()) for x in data)
        _ = (W * ((K * L[0] if L else K) @ W)).sum(0)

    return call


def _hyppo(n: int, permutations: int, paired: bool) -> Call:
    from hyppo.independence import Hsic
    from hyppo.ksample import MMD

    test, (x, y) = (Hsic, _pairs(n)) if paired else (MMD, _samples(n))
    test().test(x[:5], y[:5], reps=1, auto=False)  # which compiles it, outside the clock
    return lambda: {"pvalue": float(test().test(x, y, reps=permutations, auto=False, random_state=0)[1])}


def _dcor(n: int, permutations: int, paired: bool) -> Call:
    import dcor

    x, y = _pairs(n) if paired else _samples(n)
    test = dcor.independence.distance_covariance_test if paired else dcor.homogeneity.energy_test
    return lambda: {"pvalue": float(test(x, y, num_resamples=permutations, random_state=0).pvalue)}


def _ours_conditional(n: int, method: Method) -> Call:
    x, y, z = (torch.as_tensor(one) for one in _triples(n))
    return lambda: {"pvalue": conditional_independence_test(x, y, z, seed=0, method=method).pvalue}


def _causal_learn(n: int) -> Call:
    from causallearn.utils.cit import CIT

    data = np.column_stack(_triples(n))
    return lambda: {"pvalue": float(CIT(data, "kci")(0, 1, [2]))}


def _large(n: int, permutations: int, num_features: int | None) -> Call:
    x, y = _samples(n)
    kernel = _median(x[:1000], y[:1000])

    def call() -> Record:
        with peak_memory() as peak:
            result = two_sample_test(x, y, kernel, permutations, seed=0, num_features=num_features)
        return {"pvalue": result.pvalue, "peak_megabytes": peak.megabytes}

    return call


@part("hypothesis")
def small_cases(scope: Scope) -> Iterator[Measurement]:
    """Permutation tests beside hyppo and dcor, the conditional test beside causal-learn."""
    n, b = (60, 100) if scope.quick else (500, 1000)
    ours: Callable[[int, int, bool], Call]
    for title, ours, paired in ((TWO_SAMPLE, _ours_two_sample, False), (INDEPENDENCE, _ours_independence, True)):
        yield Measurement(title, FIXED, n, partial(ours, n, b, False), against=FIXED, repeats=25)
        yield Measurement(title, f"{OURS}, kernel learned", n, partial(ours, n, b, True), against=FIXED)
        bare = partial(_bare, n, b, paired)
        yield Measurement(title, "bare Gram and product", n, bare, against=FIXED, repeats=25)
        for name, other in (("hyppo", _hyppo), ("dcor", _dcor)):
            yield Measurement(title, name, n, partial(other, n, b, paired), package=name, against=FIXED)
    yield from _conditional_cases(60 if scope.quick else 300)


def _conditional_cases(n: int) -> Iterator[Measurement]:
    ours = f"{OURS}, transforms"
    methods: dict[str, tuple[Method, int]] = {
        "transforms": ("transforms", 5),
        "kernel test": ("kernel", 1),
        "residuals": ("residuals", 1),
    }
    for name, (method, repeats) in methods.items():
        prepare = partial(_ours_conditional, n, method)
        yield Measurement(CONDITIONAL, f"{OURS}, {name}", n, prepare, against=ours, repeats=repeats)
    yield Measurement(CONDITIONAL, "causal-learn", n, partial(_causal_learn, n), "causallearn", ours, 5)


@part("large-tests")
def large_cases(scope: Scope) -> Iterator[Measurement]:
    """The conditional tests on 1500 rows, and two samples of 20,000 points and, by features, of 100,000."""
    yield from _conditional_cases(100 if scope.quick else 1500)
    n, b = (500, 100) if scope.quick else (20_000, 1000)
    yield Measurement(LARGE, FIXED, n, partial(_large, n, b, None), against=FIXED)
    n, s = (1000, 50) if scope.quick else (100_000, 500)
    name = f"{OURS}, {s} features"
    yield Measurement(LARGE, name, n, partial(_large, n, b, s), against=name)
