"""Times of the tests: permutation tests against hyppo and dcor, conditional tests against causal-learn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from numpy.typing import NDArray

from ...hypothesis import conditional_independence_test, independence_test, two_sample_test
from ...hypothesis.conditional import Method
from ...kernels import set_lengthscales_by_median
from .measurement import OURS, Call, Measurement, Scope, part

TITLES = {False: "two-sample test", True: "independence test"}
"""By whether the rows are pairs."""
CONDITIONAL = "conditional independence test"
FIXED, TRANSFORMS = f"{OURS}, median kernel", f"{OURS}, transforms"
METHODS: dict[str, Method] = {TRANSFORMS: "transforms", f"{OURS}, kernel": "kernel", f"{OURS}, residuals": "residuals"}
Array = NDArray[np.float64]


def _triples(n: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 1))
    return z + rng.normal(size=(n, 1)), np.sin(2 * z) + rng.normal(size=(n, 1)), z


def _data(n: int, paired: bool) -> tuple[Array, ...]:
    if paired:
        return _triples(n)[:2]
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)), rng.normal(size=(n, 2)) + 0.2


def _median(*samples: Array) -> RBFKernel:
    x = torch.as_tensor(np.concatenate(samples))
    return set_lengthscales_by_median(RBFKernel().to(x), x)


def _ours(n: int, permutations: int, paired: bool, learned: bool) -> Call:
    x, y = _data(n, paired)
    a, b = torch.as_tensor(x), torch.as_tensor(y)
    if not paired:
        kernel = None if learned else _median(x, y)
        return lambda: {"pvalue": two_sample_test(a, b, kernel, permutations, seed=0).pvalue}
    k, l = (None, None) if learned else (_median(x), _median(y))
    return lambda: {"pvalue": independence_test(a, b, k, permutations, seed=0, kernel_y=l).pvalue}


def _bare(n: int, permutations: int, paired: bool) -> Call:
    """The Gram matrices and their product with one column per permutation: a lower bound for any test."""
    x, y = (torch.as_tensor(array) for array in _data(n, paired))
    samples = (x, y) if paired else (torch.cat([x, y]),)
    W = torch.rand(len(samples[0]), permutations, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def call() -> None:
        K, *L = (torch.exp(-0.5 * torch.cdist(one, one).square()) for one in samples)
        _ = (W * ((K * L[0] if L else K) @ W)).sum(0)

    return call


def _hyppo(n: int, permutations: int, paired: bool) -> Call:
    from hyppo.independence import Hsic
    from hyppo.ksample import MMD

    test: Any = Hsic if paired else MMD
    x, y = _data(n, paired)
    test().test(x[:5], y[:5], reps=1, auto=False)  # compile it before the timing starts
    return lambda: {"pvalue": float(test().test(x, y, reps=permutations, auto=False, random_state=0)[1])}


def _dcor(n: int, permutations: int, paired: bool) -> Call:
    import dcor

    x, y = _data(n, paired)
    test = dcor.independence.distance_covariance_test if paired else dcor.homogeneity.energy_test
    return lambda: {"pvalue": float(test(x, y, num_resamples=permutations, random_state=0).pvalue)}


def _ours_conditional(n: int, method: Method) -> Call:
    x, y, z = (torch.as_tensor(array) for array in _triples(n))
    return lambda: {"pvalue": conditional_independence_test(x, y, z, seed=0, method=method).pvalue}


def _causal_learn(n: int) -> Call:
    from causallearn.utils.cit import CIT

    data = np.column_stack(_triples(n))
    return lambda: {"pvalue": float(CIT(data, "kci")(0, 1, [2]))}


@part("hypothesis")
def hypothesis_cases(scope: Scope) -> Iterator[Measurement]:
    """Permutation tests against hyppo and dcor, conditional tests against causal-learn."""
    n, b = (60, 100) if scope.quick else (500, 1000)
    for paired, title in TITLES.items():
        yield Measurement(title, FIXED, n, partial(_ours, n, b, paired, False), against=FIXED, repeats=25)
        yield Measurement(title, f"{OURS}, kernel learned", n, partial(_ours, n, b, paired, True), against=FIXED)
        bare = partial(_bare, n, b, paired)
        yield Measurement(title, "bare Gram and product", n, bare, against=FIXED, repeats=25)
        for name, other in (("hyppo", _hyppo), ("dcor", _dcor)):
            yield Measurement(title, name, n, partial(other, n, b, paired), package=name, against=FIXED)
    for n in (60,) if scope.quick else (300, 1500):
        for name, method in METHODS.items():
            prepare = partial(_ours_conditional, n, method)
            repeats = 5 if name == TRANSFORMS else 1
            yield Measurement(CONDITIONAL, name, n, prepare, against=TRANSFORMS, repeats=repeats)
        yield Measurement(CONDITIONAL, "causal-learn", n, partial(_causal_learn, n), "causallearn", TRANSFORMS, 5)
