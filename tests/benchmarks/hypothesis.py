"""Time and memory of the kernel tests beside their peers; needs ``kernel-embed[bench]``.

    python tests/benchmarks/hypothesis.py                 # everything
    python tests/benchmarks/hypothesis.py samples pairs   # some of: samples, pairs, given, large

One process and one thread. Times are of the processor, minima over alternating repetitions, so that what else the
machine does counts little. hyppo and KCI are slow enough to be timed once; hyppo with a tenth of the permutations.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Callable

import gpytorch
import numpy as np
import torch

import kernel_embed as ke

NUM_PERMUTATIONS = 1000


def seconds(*actions: Callable[[], object], repetitions: int = 5) -> list[float]:
    """The least processor time of each action over alternating repetitions."""
    best = [math.inf] * len(actions)
    for _ in range(repetitions):
        for i, action in enumerate(actions):
            start = time.process_time()
            action()
            best[i] = min(best[i], time.process_time() - start)
    return best


def normal(n: int, d: int, seed: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rbf(lengthscale: float = 1.0) -> gpytorch.kernels.RBFKernel:
    kernel = gpytorch.kernels.RBFKernel().double()
    kernel.lengthscale = lengthscale
    return kernel


def samples() -> None:
    """n = m = 500 in two dimensions, 1000 permutations."""
    from hyppo.ksample import MMD

    x, y, kernel = normal(500, 2, 0), normal(500, 2, 1), rbf()
    pooled = torch.cat([x, y])
    W = torch.rand(1000, NUM_PERMUTATIONS, dtype=torch.float64)

    def bare() -> torch.Tensor:
        K = torch.exp(-0.5 * torch.cdist(pooled, pooled).square())
        return (W * (K @ W)).sum(0)

    ours, plain, learned = seconds(
        lambda: ke.two_sample_test(x, y, kernel, NUM_PERMUTATIONS, seed=0),
        bare,
        lambda: ke.two_sample_test(x, y, None, NUM_PERMUTATIONS, seed=0),
    )
    start = time.process_time()
    MMD().test(x.numpy(), y.numpy(), reps=NUM_PERMUTATIONS // 10, auto=False, random_state=0)
    theirs = 10.0 * (time.process_time() - start)
    print(
        f"two samples, n = m = 500, 1000 permutations: kernel given {ours:.3f} s, bare Gram and product {plain:.3f} s "
        f"(ratio {ours / plain:.2f}, at most 3), hyppo {theirs:.0f} s (ratio {theirs / ours:.0f}, at least 20); "
        f"kernel learned {learned:.3f} s"
    )


def pairs() -> None:
    """n = 500, 1000 permutations."""
    from hyppo.independence import Hsic

    x, y, kernel = normal(500, 2, 0), normal(500, 2, 1), rbf()
    W = torch.rand(500, NUM_PERMUTATIONS, dtype=torch.float64)

    def bare() -> torch.Tensor:
        K, L = (torch.exp(-0.5 * torch.cdist(data, data).square()) for data in (x, y))
        return (W * ((K * L) @ W)).sum(0)

    ours, plain, learned = seconds(
        lambda: ke.independence_test(x, y, kernel, NUM_PERMUTATIONS, seed=0, kernel_y=kernel),
        bare,
        lambda: ke.independence_test(x, y, None, NUM_PERMUTATIONS, seed=0),
    )
    start = time.process_time()
    Hsic().test(x.numpy(), y.numpy(), reps=NUM_PERMUTATIONS // 10, auto=False, random_state=0)
    theirs = 10.0 * (time.process_time() - start)
    print(
        f"independence, n = 500, 1000 permutations: kernels given {ours:.3f} s, bare Grams and product {plain:.3f} s "
        f"(ratio {ours / plain:.2f}, at most 5), hyppo {theirs:.0f} s (ratio {theirs / ours:.0f}); kernels learned "
        f"{learned:.3f} s"
    )


def given() -> None:
    """n = 1500, one condition."""
    from causallearn.utils.KCI.KCI import KCI_CInd

    z, e, f = (normal(1500, 1, seed) for seed in range(3))
    x, y = z + e, z.square() + f
    residuals, kernel = (
        seconds(
            lambda method=method: ke.conditional_independence_test(x, y, z, seed=0, method=method),  # type: ignore[misc]
            repetitions=2,
        )[0]
        for method in ("residuals", "kernel")
    )
    start = time.process_time()
    KCI_CInd().compute_pvalue(*(np.asarray(data) for data in (x, y, z)))
    theirs = time.process_time() - start
    print(
        f"conditional, n = 1500: residuals {residuals:.1f} s, kernel {kernel:.1f} s, causal-learn's KCI {theirs:.1f} s "
        f"(ratios {theirs / residuals:.1f} and {theirs / kernel:.1f}, at least 2)"
    )


def large() -> None:
    """n = m = 20,000 in two dimensions, 1000 permutations, kernel given."""
    x, y = normal(20_000, 2, 0), normal(20_000, 2, 1)
    start, wall = time.process_time(), time.perf_counter()
    p = ke.two_sample_test(x, y, rbf(), NUM_PERMUTATIONS, seed=0).pvalue
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"two samples, n = m = 20000, 1000 permutations, kernel given: {time.process_time() - start:.0f} s of the "
        f"processor, {time.perf_counter() - wall:.0f} s on the clock, peak of the process {peak:.2f} GiB (under 2), "
        f"p = {p:.3f}"
    )


PARTS = {"samples": samples, "pairs": pairs, "given": given, "large": large}


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="some of them")
    chosen = parser.parse_args().parts or list(PARTS)
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread")
    for name in chosen:
        PARTS[name]()


if __name__ == "__main__":
    main()
