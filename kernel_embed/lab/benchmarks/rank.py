"""The work of one rank, started by torchrun: ``-m kernel_embed.lab.benchmarks.rank WORK ROWS FILE``."""

from __future__ import annotations

import json
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor

from ...embeddings import MulticlassEmbedding
from ...kernels import FeatureKernel
from ...learning import Adam, fit
from ...objectives import EmpiricalRisk, RademacherComplexity
from ...scale import ShardedEmbedding, accumulate, reduce_statistics
from .scale import D, M, data, embedding_for

NUM_EPOCHS, REPEATS = 3, 2


def statistics(x: Tensor, y: Tensor) -> None:
    """Statistics of this rank's rows, summed over ranks, and the weights from them."""
    with torch.no_grad():
        reduce_statistics(accumulate(embedding_for(), x, y)).condition()


def learning(x: Tensor, y: Tensor) -> None:
    """Steps of learning a network on a quarter of the rows."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(D, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.ReLU()
    ).double()
    sharded = ShardedEmbedding(MulticlassEmbedding(FeatureKernel(network), M, 1e-4))
    objective = EmpiricalRisk(below="linear") + RademacherComplexity("4e/n")
    rows = slice(0, len(y) // 4)
    adam = Adam(NUM_EPOCHS, learning_rate=1e-3)
    fit(sharded, objective, x[rows], y[rows], optimizer=adam, progress=False)


WORK = {"statistics": statistics, "learning": learning}


def main(work: str, n: int, file: pathlib.Path) -> None:
    """Run the work on this rank's share of the rows; the first rank writes the least time."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    me, world = dist.get_rank(), dist.get_world_size()
    x, y = data(n)
    share = slice(me * n // world, (me + 1) * n // world)
    x, y = x[share].clone(), y[share].clone()
    seconds = []
    for _ in range(REPEATS):
        dist.barrier()
        started = time.perf_counter()
        WORK[work](x, y)
        seconds.append(time.perf_counter() - started)
    if me == 0:
        file.write_text(json.dumps(min(seconds)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]))
