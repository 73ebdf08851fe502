"""One classifier from the rows of several processes, on one machine or on many.

    torchrun --nproc-per-node 4 docs/examples/several_processes.py                      # rows that it draws itself
    torchrun --nproc-per-node 4 docs/examples/several_processes.py people.parquet churned

On several machines, add ``--nnodes`` and ``--rdzv-endpoint`` as for any program under ``torchrun``. Each process reads
its own row groups of the file; at most 20,000 rows are sent to the first one, which learns the kernels, and otherwise
only sums over rows are exchanged. All processes end with the same classifier. Without ``torchrun`` there is one.
"""

from __future__ import annotations

import os
import sys

import numpy as np
import pandas as pd
import torch.distributed as dist

import kernel_embed as ke


def draw_rows(rank: int, n: int = 400) -> tuple[pd.DataFrame, np.ndarray]:
    """Rows of one process: two numbers, a text, and labels."""
    rng = np.random.default_rng(rank)
    X = pd.DataFrame({"u": rng.normal(size=n), "v": rng.normal(size=n), "town": rng.choice(["A", "B", "C"], size=n)})
    score = np.sin(3 * X["u"]) + X["v"] * (X["town"] == "A") + 0.2 * rng.normal(size=n)
    return X, np.where(score > 0, "yes", "no")


def read_rows(path: str, label: str, rank: int, size: int) -> tuple[pd.DataFrame, np.ndarray]:
    """The row groups ``rank``, ``rank + size``, … of a Parquet file."""
    from pyarrow import parquet

    file = parquet.ParquetFile(path)
    if file.num_row_groups < size:
        raise SystemExit(f"{path} has {file.num_row_groups} row groups, fewer than the {size} processes.")
    frame = file.read_row_groups(list(range(rank, file.num_row_groups, size))).to_pandas()
    return frame.drop(columns=label), frame[label].to_numpy()


def main() -> None:
    """Learn from all rows but a tenth of each process, and print the accuracy on those."""
    if "RANK" in os.environ:  # set by torchrun
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank, size = dist.get_rank(), dist.get_world_size()
    X, y = read_rows(sys.argv[1], sys.argv[2], rank, size) if len(sys.argv) == 3 else draw_rows(rank)
    held_out = np.random.default_rng(rank).uniform(size=len(y)) < 0.1

    classifier = ke.MulticlassEmbeddingClassifier(distributed=True, random_state=0, progress=False)
    classifier.fit(X[~held_out], y[~held_out])

    correct = [None] * size
    dist.all_gather_object(correct, classifier.predict(X[held_out]) == y[held_out])
    if rank == 0:
        accuracy, n = np.concatenate(correct).mean(), sum(map(len, correct))
        print(f"{size} processes, accuracy {accuracy:.3f} on {n:,} rows that were held out")
    dist.barrier()  # a process that leaves first can abort the others
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
