"""Permutation tests with a given kernel, against hyppo and dcor, and the conditional test against causal-learn."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from numpy.typing import NDArray

from ...hypothesis.conditional import Method
from ...kernels import set_lengthscales_by_median
from ...results import Record
from ..compare.resources import peak_memory
from .cases import OURS, Call, Case, Scope

TWO_SAMPLE, INDEPENDENCE, CONDITIONAL = "two-sample test", "independence test", "conditional independence test"
LARGE = "two-sample test of large samples"


def _samples(n: int, shift: float = 0.2) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
    return x, y + shift


def _pairs(n: int) -> tuple[NDArray[np.float64], ...]:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 1))
    return z + rng.normal(size=(n, 1)), np.sin(2 * z) + rng.normal(size=(n, 1)), z


def _median(*samples: NDArray[np.float64]) -> RBFKernel:
    x = torch.as_tensor(np.concatenate(samples))
    return set_lengthscales_by_median(RBFKernel().to(x), x)


def _ours_two_sample(n: int, permutations: int, learned: bool) -> Call:
    from ...hypothesis import two_sample_test

    x, y = _samples(n)
    kernel = None if learned else _median(x, y)
    a, b = torch.as_tensor(x), torch.as_tensor(y)
    return lambda: {"pvalue": two_sample_test(a, b, kernel, permutations, seed=0).pvalue}


def _hyppo_two_sample(n: int, permutations: int) -> Call:
    from hyppo.ksample import MMD

    x, y = _samples(n)
    MMD().test(x[:5], y[:5], reps=1, auto=False)  # which compiles it, outside the clock
    return lambda: {"pvalue": float(MMD().test(x, y, reps=permutations, auto=False, random_state=0)[1])}


def _dcor_two_sample(n: int, permutations: int) -> Call:
    import dcor

    x, y = _samples(n)
    return lambda: {
        "pvalue": float(dcor.homogeneity.energy_test(x, y, num_resamples=permutations, random_state=0).pvalue)
    }


def _ours_independence(n: int, permutations: int, learned: bool) -> Call:
    from ...hypothesis import independence_test

    x, y, _ = _pairs(n)
    a, b = torch.as_tensor(x), torch.as_tensor(y)
    given, given_y = (None, None) if learned else (_median(x), _median(y))
    return lambda: {"pvalue": independence_test(a, b, given, permutations, seed=0, kernel_y=given_y).pvalue}


def _hyppo_independence(n: int, permutations: int) -> Call:
    from hyppo.independence import Hsic

    x, y, _ = _pairs(n)
    Hsic().test(x[:5], y[:5], reps=1, auto=False)
    return lambda: {"pvalue": float(Hsic().test(x, y, reps=permutations, auto=False, random_state=0)[1])}


def _dcor_independence(n: int, permutations: int) -> Call:
    import dcor

    x, y, _ = _pairs(n)
    test = dcor.independence.distance_covariance_test
    return lambda: {"pvalue": float(test(x, y, num_resamples=permutations, random_state=0).pvalue)}


def _ours_conditional(n: int, method: Method) -> Call:
    from ...hypothesis import conditional_independence_test

    x, y, z = (torch.as_tensor(part) for part in _pairs(n))
    return lambda: {"pvalue": conditional_independence_test(x, y, z, seed=0, method=method).pvalue}


def _causal_learn(n: int) -> Call:
    from causallearn.utils.cit import CIT

    data = np.column_stack(_pairs(n))
    return lambda: {"pvalue": float(CIT(data, "kci")(0, 1, [2]))}


def _bare_two_sample(n: int, permutations: int) -> Call:
    """One Gram matrix of the pooled sample and the product with as many columns: the least that any test takes."""
    pooled = torch.as_tensor(np.concatenate(_samples(n)))
    W = torch.rand(2 * n, permutations, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def call() -> None:
        K = torch.exp(-0.5 * torch.cdist(pooled, pooled).square())
        _ = (W * (K @ W)).sum(0)

    return call


def _bare_independence(n: int, permutations: int) -> Call:
    x, y = (torch.as_tensor(part) for part in _pairs(n)[:2])
    W = torch.rand(n, permutations, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def call() -> None:
        K, L = (torch.exp(-0.5 * torch.cdist(data, data).square()) for data in (x, y))
        _ = (W * ((K * L) @ W)).sum(0)

    return call


def _large(n: int, permutations: int, num_features: int | None) -> Call:
    from ...hypothesis import two_sample_test

    x, y = _samples(n)
    kernel = _median(x[:1000], y[:1000])

    def call() -> Record:
        with peak_memory() as peak:
            answer = two_sample_test(x, y, kernel, permutations, seed=0, num_features=num_features)
        return {"pvalue": answer.pvalue, "peak_megabytes": peak.megabytes}

    return call


def cases(scope: Scope) -> Iterator[Case]:
    """Permutation tests beside hyppo and dcor, the conditional test beside causal-learn."""
    n, b = (60, 100) if scope.quick else (500, 1000)
    given = f"{OURS}, median kernel"
    for part, ours, bare, peers in (
        (TWO_SAMPLE, _ours_two_sample, _bare_two_sample, {"hyppo": _hyppo_two_sample, "dcor": _dcor_two_sample}),
        (
            INDEPENDENCE,
            _ours_independence,
            _bare_independence,
            {"hyppo": _hyppo_independence, "dcor": _dcor_independence},
        ),
    ):
        yield Case(part, given, n, partial(ours, n, b, False), against=given, repeats=25)
        yield Case(part, f"{OURS}, kernel learned", n, partial(ours, n, b, True), against=given)
        yield Case(part, "bare Gram and product", n, partial(bare, n, b), against=given, repeats=25)
        for peer, prepare in peers.items():
            yield Case(part, peer, n, partial(prepare, n, b), package=peer, against=given)
    yield from _conditional_cases(60 if scope.quick else 300)


def _conditional_cases(n: int) -> Iterator[Case]:
    ours = f"{OURS}, transforms"
    yield Case(CONDITIONAL, ours, n, partial(_ours_conditional, n, "transforms"), against=ours, repeats=5)
    yield Case(CONDITIONAL, f"{OURS}, kernel test", n, partial(_ours_conditional, n, "kernel"), against=ours)
    yield Case(CONDITIONAL, f"{OURS}, residuals", n, partial(_ours_conditional, n, "residuals"), against=ours)
    yield Case(
        CONDITIONAL, "causal-learn", n, partial(_causal_learn, n), package="causallearn", against=ours, repeats=5
    )


def large_cases(scope: Scope) -> Iterator[Case]:
    """The conditional tests on 1500 rows, and two samples of 20,000 points and, by features, of 100,000."""
    yield from _conditional_cases(100 if scope.quick else 1500)
    n, b = (500, 100) if scope.quick else (20_000, 1000)
    yield Case(LARGE, f"{OURS}, median kernel", n, partial(_large, n, b, None), against=f"{OURS}, median kernel")
    n, s = (1000, 50) if scope.quick else (100_000, 500)
    yield Case(LARGE, f"{OURS}, {s} features", n, partial(_large, n, b, s), against=f"{OURS}, {s} features")
