"""Time and memory of one objective with its gradient, as ratios to one ``torch.linalg.cholesky`` of the same size.

    python tests/benchmarks/objective.py [--n 2000] [--d 20] [--m 7] [--repeats 7]

Everything is measured in one run, in turn, and the smallest of the repeats is taken. Memory is the peak of tensor
storage above what was there before, in units of n² doubles, from the allocator's own record.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable

import gpytorch
import torch
from torch.profiler import ProfilerActivity, profile

import kernel_embed as ke

OBJECTIVES = {
    "EmpiricalRisk + RademacherComplexity": ke.EmpiricalRisk() + ke.RademacherComplexity("4e/n"),
    "LeaveOneOutRisk + RademacherComplexity": ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"),
    "CalibratedLeaveOneOutRisk": ke.CalibratedLeaveOneOutRisk(),
    "ConditionalEvidence": ke.ConditionalEvidence(),
}


def plain_autograd(embedding: ke.MulticlassEmbedding, x: torch.Tensor, y: torch.Tensor, m: int) -> None:
    """The first objective as one would write it: GPyTorch's Gram matrix, and autograd through the factor."""
    n = len(y)
    K = embedding.kernel(x).to_dense()
    L = torch.linalg.cholesky(K + n * embedding.regularization * torch.eye(n, dtype=x.dtype))
    Y = torch.nn.functional.one_hot(y, m).to(x.dtype)
    V = torch.cholesky_solve(Y, L)
    P = K @ V
    risk = -P.gather(1, y[:, None]).clamp(1e-15, 1.0).log().mean()
    (risk + 4 * math.e / n * (V * P).sum().sqrt()).backward()


def smallest(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def peak_doubles(call: Callable[[], object]) -> float:
    """The highest sum of live allocations during ``call``, in doubles."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        call()
    live = peak = 0
    for event in sorted(record.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak / 8.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("n", 2000), ("d", 20), ("m", 7), ("repeats", 7)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    n, d, m = options.n, options.d, options.m

    torch.manual_seed(0)
    x = torch.rand(n, d, dtype=torch.float64)
    y = (x[:, 0] * m).long().clamp_max(m - 1)
    kernel = gpytorch.kernels.RBFKernel(ard_num_dims=d).double()
    kernel.lengthscale = 1.5
    embedding = ke.MulticlassEmbedding(kernel, m, regularization=1e-3)
    A = ke.gram(kernel, x).detach() + 1e-3 * n * torch.eye(n, dtype=x.dtype)

    calls: dict[str, Callable[[], object]] = {"cholesky": lambda: torch.linalg.cholesky(A)}
    for name, objective in OBJECTIVES.items():
        calls[name] = lambda objective=objective: objective(embedding, x, y).backward()
    calls["plain autograd"] = lambda: plain_autograd(embedding, x, y, m)
    best = dict.fromkeys(calls, math.inf)
    for _ in range(options.repeats):
        for name, call in calls.items():
            best[name] = min(best[name], smallest(call))

    print(f"n = {n}, d = {d}, m = {m}, float64, {torch.get_num_threads()} threads")
    print(f"one Cholesky: {1e3 * best['cholesky']:.1f} ms")
    print(f"{'objective with gradient':40s} {'/ Cholesky':>10s} {'autograd / this':>16s} {'peak memory / n²':>17s}")
    for name in list(calls)[1:]:
        ratio, gain = best[name] / best["cholesky"], best["plain autograd"] / best[name]
        print(f"{name:40s} {ratio:10.2f} {gain:16.1f} {peak_doubles(calls[name]) / n**2:17.1f}")


if __name__ == "__main__":
    main()
