"""One million rows in one process, against the bare matrix products; and two ranks against one."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ...embeddings import MulticlassEmbedding
from ...results import Record
from ...scale import MulticlassFeaturePredictor, accumulate, random_feature_kernel
from ..compare.resources import peak_memory
from .cases import OURS, Call, Case, Scope

MILLION = "statistics and prediction of every row, 20 columns, 256 features, 10 classes"
RANKS = "{}, one rank and two"
BARE, ONE, TWO = "bare matrix products", f"{OURS}, one rank", f"{OURS}, two ranks"
BLOCK = 2**15
D, M, P = 20, 10, 256
"""Columns, classes, features."""


def data(n: int, d: int = D, m: int = M) -> tuple[Tensor, Tensor]:
    """Uniform rows; the class follows the first column."""
    x = torch.rand(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, (x[:, 0] * m).long().clamp_max(m - 1)


def embedding_for(regularization: float = 1e-6) -> MulticlassEmbedding:
    """Random features of a squared exponential."""
    kernel = RBFKernel().double()
    kernel.lengthscale = 1.0
    embedding = MulticlassEmbedding(random_feature_kernel(kernel, D, P), M, regularization)
    embedding.double()
    return embedding


def _bare(n: int) -> Call:
    """XΩ, ZᵀZ and ZᵀY for the fit, XΩ and ZW for the prediction, block by block."""
    x, _ = data(n)
    Omega, Z, W, Y = x.new_ones(D, P // 2), x.new_ones(BLOCK, P), x.new_ones(P, M), x.new_ones(BLOCK, M)

    def call() -> None:
        for rows in x.split(BLOCK):
            z = Z[: len(rows)]
            _ = rows @ Omega, z.mT @ z, z.mT @ Y[: len(rows)]
        for rows in x.split(BLOCK):
            _ = rows @ Omega, Z[: len(rows)] @ W

    return call


def _ours(n: int) -> Call:
    x, y = data(n)
    embedding = embedding_for()

    @torch.no_grad()
    def call() -> Record:
        started = time.perf_counter()
        with peak_memory() as peak:
            answers = accumulate(embedding, x, y).condition()
            assert isinstance(answers, MulticlassFeaturePredictor)
            fitted = time.perf_counter()
            labels = answers.predict(x)
        accuracy = (labels == y).double().mean().item()
        return {"fit_seconds": fitted - started, "accuracy": accuracy, "peak_megabytes": peak.megabytes}

    return call


def million_cases(scope: Scope) -> Iterator[Case]:
    """Statistics and prediction of a million rows, beside the bare matrix products."""
    n = 20_000 if scope.quick else 1_000_000
    yield Case(MILLION, BARE, n, partial(_bare, n), against=BARE, repeats=2)
    yield Case(MILLION, OURS, n, partial(_ours, n), against=BARE, repeats=2)


def _on_ranks(work: str, n: int, world: int) -> Call:
    """The seconds of a piece of work on ``world`` ranks with one thread each, as the first of them measures it."""

    def call() -> Record:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with tempfile.TemporaryDirectory() as place:
            file = pathlib.Path(place) / "seconds.json"
            command = [
                *(sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}"),
                *("--master-addr=127.0.0.1", f"--master-port={port}", "-m", f"{__package__}.rank"),
                *(work, str(n), str(file)),
            ]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
            subprocess.run(command, check=True, env=environment, capture_output=True)
            seconds = json.loads(file.read_text())
        return {"seconds": seconds, "processor_seconds": None}

    return call


def ranks_cases(scope: Scope) -> Iterator[Case]:
    """Two ranks beside one: statistics, and steps of learning on a quarter of the rows."""
    n = 4_000 if scope.quick else 400_000
    for work in ("statistics", "learning"):
        for name, world in ((ONE, 1), (TWO, 2)):
            yield Case(RANKS.format(work), name, n, partial(_on_ranks, work, n, world), against=TWO)
