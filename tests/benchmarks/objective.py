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

import torch
from torch.profiler import ProfilerActivity, profile

from kernel_embed.benchmarks.objective import OBJECTIVES, cholesky, plain_autograd, problem


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

    embedding, x, y = problem(n, d, m)
    calls: dict[str, Callable[[], object]] = {"cholesky": cholesky(embedding, x)}
    for name, objective in OBJECTIVES.items():
        calls[name] = lambda objective=objective: objective(embedding, x, y).backward()
    calls["plain autograd"] = lambda: plain_autograd(embedding, x, y)
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
