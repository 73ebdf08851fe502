"""Time and memory against the number of rows, for each way to learn and to answer.

    python tests/benchmarks/sizes.py --out DIR

Every point is measured in a process of its own, on one thread: seconds, and how far the resident set rose above what
data and libraries take. Learning is one objective with its gradient; answering is conditioning and the labels of 1000
new points. Writes ``sizes.json`` and ``sizes.png``.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import time
from collections.abc import Callable
from multiprocessing import get_context

import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed.scale import ConjugateGradients, Nystrom, accumulate, approximate, random_feature_kernel

D, M, P, POINTS = 20, 10, 256, 512
"""Columns, classes, features, and points of Nyström's method."""


def data(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.rand(n, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, (x[:, 0] * M).long().clamp_max(M - 1)


def implicit() -> ke.MulticlassEmbedding:
    kernel = RBFKernel().double()
    kernel.lengthscale = 1.0
    return ke.MulticlassEmbedding(kernel, M, 1e-4).double()


def explicit() -> ke.MulticlassEmbedding:
    return ke.MulticlassEmbedding(random_feature_kernel(implicit().kernel, D, P), M, 1e-4).double()


def network() -> ke.MulticlassEmbedding:
    return ke.MulticlassEmbedding(ke.FeatureKernel(torch.nn.Linear(D, P).double()), M, 1e-4).double()


def learn(embedding: ke.MulticlassEmbedding, x: torch.Tensor, y: torch.Tensor) -> None:
    (ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"))(embedding, x, y).backward()


@torch.no_grad()
def answer(way: str, x: torch.Tensor, y: torch.Tensor, x_new: torch.Tensor) -> None:
    if way == "exact":
        implicit().condition(x, y).predict(x_new)
    elif way == "features":
        accumulate(explicit(), x, y).condition().predict(x_new)  # type: ignore[union-attr]
    else:
        method = Nystrom(POINTS) if way == "Nyström" else ConjugateGradients()
        approximate(implicit(), x, y, method=method)[0].predict(x_new)


WAYS: dict[str, tuple[tuple[int, ...], Callable[..., None]]] = {
    "learning, n × n": ((500, 1000, 2000, 4000), lambda x, y, _: learn(implicit(), x, y)),
    f"learning, p = {P}": ((500, 1000, 2000, 4000, 16_000, 64_000), lambda x, y, _: learn(network(), x, y)),
    "exact": ((500, 1000, 2000, 4000, 8000), lambda *a: answer("exact", *a)),
    "conjugate gradients": ((1000, 2000, 4000, 8000), lambda *a: answer("conjugate gradients", *a)),
    f"Nyström, {POINTS} points": ((1000, 4000, 16_000, 64_000, 256_000), lambda *a: answer("Nyström", *a)),
    f"features, p = {P}": ((1000, 4000, 16_000, 64_000, 256_000), lambda *a: answer("features", *a)),
}


def measure(task: tuple[str, int]) -> dict[str, float | str]:
    """One point of one curve, in this process alone."""
    way, n = task
    torch.set_num_threads(1)
    call = WAYS[way][1]
    small = data(100)
    if "Nyström" not in way:
        call(*small, small[0])  # libraries are loaded before the clock starts
    x, y = data(n)
    x_new = data(1000)[0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    call(x, y, x_new)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"way": way, "n": n, "seconds": seconds, "mebibytes": (peak - before) / 2**10}


def draw(records: list[dict[str, float | str]], path: pathlib.Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for way in WAYS:
        chosen = [r for r in records if r["way"] == way]
        style = "--o" if way.startswith("learning") else "-o"
        for axes, name in ((left, "seconds"), (right, "mebibytes")):
            axes.plot([r["n"] for r in chosen], [r[name] for r in chosen], style, markersize=4, label=way)
    left.set(xlabel="rows n", ylabel="seconds", xscale="log", yscale="log")
    right.set(xlabel="rows n", ylabel="peak memory in MiB", xscale="log", yscale="log")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), help="only these curves")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    tasks = [(way, n) for way in options.ways for n in WAYS[way][0]]
    records = []
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for task in tasks:
            found = [pool.map(measure, [task])[0] for _ in range(options.repeats)]
            best = min(found, key=lambda record: record["seconds"])
            records.append(best)
            print(f"{best['way']:24s} {best['n']:8d} {best['seconds']:9.3f} s {best['mebibytes']:9.1f} MiB", flush=True)
    (options.out / "sizes.json").write_text(json.dumps(records, indent=1))
    draw(records, options.out / "sizes.png")


if __name__ == "__main__":
    main()
