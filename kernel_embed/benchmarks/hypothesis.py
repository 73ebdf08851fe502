"""Permutation tests with a given kernel, against hyppo and dcor, and the conditional test against causal-learn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from numpy.typing import NDArray

from ..kernels import set_lengthscales_by_median
from .cases import OURS, Case

TWO_SAMPLE, INDEPENDENCE, CONDITIONAL = "two-sample test", "independence test", "conditional independence test"


def _samples(n: int, shift: float = 0.2) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(n, 2)), rng.normal(size=(n, 2))
    return x, y + shift


def _pairs(n: int) -> tuple[NDArray[np.float64], ...]:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 1))
    return z + rng.normal(size=(n, 1)), np.sin(2 * z) + rng.normal(size=(n, 1)), z


def _median(*samples: NDArray[np.float64]) -> Any:
    x = torch.as_tensor(np.concatenate(samples))
    return set_lengthscales_by_median(RBFKernel().to(x), x)


def _ours_two_sample(n: int, permutations: int, learned: bool) -> Callable[[], Any]:
    from ..hypothesis import two_sample_test

    x, y = _samples(n)
    kernel = None if learned else _median(x, y)
    a, b = torch.as_tensor(x), torch.as_tensor(y)
    return lambda: {"pvalue": two_sample_test(a, b, kernel, permutations, seed=0).pvalue}


def _hyppo_two_sample(n: int, permutations: int) -> Callable[[], Any]:
    from hyppo.ksample import MMD

    x, y = _samples(n)
    MMD().test(x[:5], y[:5], reps=1, auto=False)  # which compiles it, outside the clock
    return lambda: {"pvalue": float(MMD().test(x, y, reps=permutations, auto=False, random_state=0)[1])}


def _dcor_two_sample(n: int, permutations: int) -> Callable[[], Any]:
    import dcor

    x, y = _samples(n)
    return lambda: {
        "pvalue": float(dcor.homogeneity.energy_test(x, y, num_resamples=permutations, random_state=0).pvalue)
    }


def _ours_independence(n: int, permutations: int, learned: bool) -> Callable[[], Any]:
    from ..hypothesis import independence_test

    x, y, _ = _pairs(n)
    a, b = torch.as_tensor(x), torch.as_tensor(y)
    kernels: dict[str, Any] = {} if learned else {"kernel": _median(x), "kernel_y": _median(y)}
    return lambda: {"pvalue": independence_test(a, b, num_permutations=permutations, seed=0, **kernels).pvalue}


def _hyppo_independence(n: int, permutations: int) -> Callable[[], Any]:
    from hyppo.independence import Hsic

    x, y, _ = _pairs(n)
    Hsic().test(x[:5], y[:5], reps=1, auto=False)
    return lambda: {"pvalue": float(Hsic().test(x, y, reps=permutations, auto=False, random_state=0)[1])}


def _dcor_independence(n: int, permutations: int) -> Callable[[], Any]:
    import dcor

    x, y, _ = _pairs(n)
    test = dcor.independence.distance_covariance_test
    return lambda: {"pvalue": float(test(x, y, num_resamples=permutations, random_state=0).pvalue)}


def _ours_conditional(n: int, method: str) -> Callable[[], Any]:
    from ..hypothesis import conditional_independence_test

    x, y, z = (torch.as_tensor(part) for part in _pairs(n))
    chosen: dict[str, Any] = {"method": method}
    return lambda: {"pvalue": conditional_independence_test(x, y, z, seed=0, **chosen).pvalue}


def _causal_learn(n: int) -> Callable[[], Any]:
    from causallearn.utils.cit import CIT

    data = np.column_stack(_pairs(n))
    return lambda: {"pvalue": float(CIT(data, "kci")(0, 1, [2]))}


def cases(quick: bool) -> Iterator[Case]:
    """Ours with the kernel of the median heuristic, as the others have it, and with a learned one; then the others."""
    n, b = (60, 100) if quick else (500, 1000)
    for part, ours, peers in (
        (TWO_SAMPLE, _ours_two_sample, {"hyppo": _hyppo_two_sample, "dcor": _dcor_two_sample}),
        (INDEPENDENCE, _ours_independence, {"hyppo": _hyppo_independence, "dcor": _dcor_independence}),
    ):
        given = f"{OURS}, median kernel"
        yield Case(part, given, n, lambda f=ours: f(n, b, False), against=given, repeats=3)  # type: ignore[misc]
        yield Case(part, f"{OURS}, kernel learned", n, lambda f=ours: f(n, b, True), against=given)  # type: ignore[misc]
        for peer, prepare in peers.items():
            yield Case(part, peer, n, lambda f=prepare: f(n, b), package=peer, against=given)  # type: ignore[misc]
    n = 60 if quick else 300
    ours_kernel = f"{OURS}, kernel test"
    yield Case(CONDITIONAL, ours_kernel, n, lambda: _ours_conditional(n, "kernel"), against=ours_kernel)
    yield Case(CONDITIONAL, f"{OURS}, residuals", n, lambda: _ours_conditional(n, "residuals"), against=ours_kernel)
    yield Case(CONDITIONAL, "causal-learn", n, lambda: _causal_learn(n), package="causallearn", against=ours_kernel)
