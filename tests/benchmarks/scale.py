"""One million rows in one process, and the speed of two ranks against one.

    python tests/benchmarks/scale.py million [--n 1000000] [--p 256] [--d 20] [--m 10] [--dtype float64]
    python tests/benchmarks/scale.py ranks [--n 400000] [--p 256] [--epochs 3]

``million`` accumulates the statistics and predicts every row, and compares with the bare matrix products of the same
sizes, block by block, in the same run. ``ranks`` runs the same work on one rank and on two, one thread each, started
by torchrun: statistics over all rows, and steps of learning.  Memory is the peak of the resident set.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed.kernels.classes.feature import FeatureKernel
from kernel_embed.scale import ShardedEmbedding, accumulate, random_feature_kernel, reduce_statistics

BLOCK = 2**15


def peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def seconds(call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def data(n: int, d: int, m: int, dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, d, generator=generator, dtype=dtype)
    return x, (x[:, 0] * m).long().clamp_max(m - 1)


def embedding_for(d: int, p: int, m: int, dtype: torch.dtype) -> ke.MulticlassEmbedding:
    kernel = RBFKernel().to(dtype)
    kernel.lengthscale = 1.0
    return ke.MulticlassEmbedding(random_feature_kernel(kernel, d, p), m, 1e-6).to(dtype)


def bare_products(x: torch.Tensor, p: int, m: int) -> None:
    """XΩ, ZᵀZ and ZᵀY for the fit, XΩ and ZW for the prediction."""
    d = x.shape[1]
    Omega, Z, W = x.new_ones(d, p // 2), x.new_ones(BLOCK, p), x.new_ones(p, m)
    Y = x.new_ones(BLOCK, m)
    for rows in x.split(BLOCK):
        _ = rows @ Omega
        z = Z[: len(rows)]
        _ = z.mT @ z
        _ = z.mT @ Y[: len(rows)]
    for rows in x.split(BLOCK):
        _ = rows @ Omega
        _ = Z[: len(rows)] @ W


@torch.no_grad()
def million(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype)
    x, y = data(options.n, options.d, options.m, dtype)
    embedding = embedding_for(options.d, options.p, options.m, dtype)
    found = {}

    def fit() -> None:
        found["answers"] = accumulate(embedding, x, y).condition()

    def predict() -> None:
        found["labels"] = found["answers"].predict(x)

    bare, ours = [], []
    for _ in range(options.repeats):
        bare.append(seconds(lambda: bare_products(x, options.p, options.m)))
        ours.append((seconds(fit), seconds(predict)))
    fitted, predicted = min(ours, key=sum)
    print(f"n = {options.n}, p = {options.p}, d = {options.d}, m = {options.m}, {options.dtype}", end=", ")
    print(f"{options.threads} threads")
    print(f"statistics {fitted:.2f} s, prediction {predicted:.2f} s, bare products {min(bare):.2f} s")
    print(f"ratio {(fitted + predicted) / min(bare):.2f}, peak memory {peak_gib():.2f} GiB")
    print(f"training accuracy {(found['labels'] == y).double().mean().item():.4f}")


def rank(options: argparse.Namespace) -> None:
    """The work of one rank: its share of the rows."""
    file = options.file
    options = argparse.Namespace(**json.loads(pathlib.Path(file).read_text()))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    me, world = dist.get_rank(), dist.get_world_size()
    x, y = data(options.n, options.d, options.m, torch.float64)
    share = slice(me * options.n // world, (me + 1) * options.n // world)
    x, y = x[share].clone(), y[share].clone()
    embedding = embedding_for(options.d, options.p, options.m, torch.float64)
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(options.d, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.ReLU()
    ).double()
    sharded = ShardedEmbedding(ke.MulticlassEmbedding(FeatureKernel(network), options.m, 1e-4))
    rows = slice(0, len(y) // 4)
    learn = {"num_epochs": options.epochs, "learning_rate": 1e-3}
    objective = ke.EmpiricalRisk(below="linear") + ke.RademacherComplexity("4e/n")
    times = {"statistics": [], "learning": []}
    for _ in range(options.repeats):
        dist.barrier()
        with torch.no_grad():
            times["statistics"].append(seconds(lambda: reduce_statistics(accumulate(embedding, x, y)).condition()))
        dist.barrier()
        times["learning"].append(seconds(lambda: ke.fit(sharded, objective, x[rows], y[rows], **learn)))
    if me == 0:
        pathlib.Path(file).write_text(json.dumps({name: min(t) for name, t in times.items()}))
    dist.destroy_process_group()


def ranks(options: argparse.Namespace) -> None:
    found = {}
    for world in (1, 2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with tempfile.TemporaryDirectory() as place:
            file = f"{place}/times.json"
            command = [
                *(sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}"),
                *("--master-addr=127.0.0.1", f"--master-port={port}", __file__, "rank", file),
            ]
            # in the file: torchrun takes options of the script for its own
            pathlib.Path(file).write_text(json.dumps(vars(options)))
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
            subprocess.run(command, check=True, env=environment)
            found[world] = json.loads(pathlib.Path(file).read_text())
    for name in found[1]:
        one, two = found[1][name], found[2][name]
        print(f"{name:12s} one rank {one:6.2f} s, two ranks {two:6.2f} s: {one / two:.2f} times as fast")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("million", "ranks", "rank"))
    settings = {"n": None, "p": 256, "d": 20, "m": 10, "epochs": 3, "repeats": 2, "threads": 1}
    for name, value in settings.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("file", nargs="?", help="of the settings and times of a rank")
    options = parser.parse_args()
    options.n = options.n or (1_000_000 if options.task == "million" else 400_000)
    {"million": million, "ranks": ranks, "rank": rank}[options.task](options)


if __name__ == "__main__":
    main()
