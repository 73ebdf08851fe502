"""Many rows: a million beside the bare matrix products, two ranks beside one, and time and memory by rows.

The module is also the program of one rank: ``torchrun -m kernel_embed.lab.benchmarks.scale WORK ROWS FILE``.
"""

from __future__ import annotations

import json
import os
import pathlib
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ...embeddings import MulticlassEmbedding, MulticlassPredictor
from ...kernels import FeatureKernel
from ...learning import Adam, fit
from ...objectives import EmpiricalRisk, LeaveOneOutRisk, RademacherComplexity
from ...plots import free_figure, save_picture, styled
from ...plots.style import line_style, marker
from ...results import Record, column
from ...scale import (
    ConjugateGradients,
    MulticlassFeaturePredictor,
    Nystrom,
    ShardedEmbedding,
    accumulate,
    approximate,
    random_feature_kernel,
    reduce_statistics,
)
from ..compare.resources import peak_memory
from .measurement import OURS, Call, Measurement, Scope, in_own_process, part

MILLION = "statistics and prediction of every row, 20 columns, 256 features, 10 classes"
RANKS = "{}, one rank and two"
BARE, ONE, TWO = "bare matrix products", f"{OURS}, one rank", f"{OURS}, two ranks"
BLOCK = 2**15
D, M, P = 20, 10, 256
"""Columns, classes, features."""
BY_ROWS = "time and memory by rows"
POINTS = 512
"""Of Nyström's method."""
FEW, SOME, MANY = (500, 1000, 2000, 4000), (1000, 2000, 4000, 8000), (1000, 4000, 16_000, 64_000, 256_000)


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
            predictor = accumulate(embedding, x, y).condition()
            assert isinstance(predictor, MulticlassFeaturePredictor)
            fitted = time.perf_counter()
            labels = predictor.predict(x)
        accuracy = (labels == y).double().mean().item()
        return {"fit_seconds": fitted - started, "accuracy": accuracy, "peak_megabytes": peak.megabytes}

    return call


@part("million")
def million_cases(scope: Scope) -> Iterator[Measurement]:
    """Statistics and prediction of a million rows, beside the bare matrix products."""
    n = 20_000 if scope.quick else 1_000_000
    yield Measurement(MILLION, BARE, n, partial(_bare, n), against=BARE, repeats=2)
    yield Measurement(MILLION, OURS, n, partial(_ours, n), against=BARE, repeats=2)


def _on_ranks(work: str, n: int, world: int) -> Call:
    """The seconds of a piece of work on ``world`` ranks with one thread each, as the first of them measures."""

    def call() -> Record:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "seconds.json"
            command = [
                *(sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}"),
                *("--master-addr=127.0.0.1", f"--master-port={port}", "-m", __spec__.name if __spec__ else __name__),
                *(work, str(n), str(file)),
            ]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
            subprocess.run(command, check=True, env=environment, capture_output=True)
            seconds = json.loads(file.read_text())
        return {"seconds": seconds, "processor_seconds": None}

    return call


@part("ranks")
def rank_cases(scope: Scope) -> Iterator[Measurement]:
    """Two ranks beside one: statistics, and steps of learning on a quarter of the rows."""
    n = 4_000 if scope.quick else 400_000
    for work in ("statistics", "learning"):
        for name, world in ((ONE, 1), (TWO, 2)):
            yield Measurement(RANKS.format(work), name, n, partial(_on_ranks, work, n, world), against=TWO)


def _statistics(x: Tensor, y: Tensor) -> None:
    """Statistics of this rank's rows, summed over ranks, and the weights from them."""
    with torch.no_grad():
        reduce_statistics(accumulate(embedding_for(), x, y)).condition()


def _learning(x: Tensor, y: Tensor) -> None:
    """Steps of learning a network on a quarter of the rows."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(D, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64), torch.nn.ReLU()
    ).double()
    sharded = ShardedEmbedding(MulticlassEmbedding(FeatureKernel(network), M, 1e-4))
    objective = EmpiricalRisk(below="linear") + RademacherComplexity("4e/n")
    rows = slice(0, len(y) // 4)
    adam = Adam(3, learning_rate=1e-3)
    fit(sharded, objective, x[rows], y[rows], optimizer=adam, progress=False)


WORK = {"statistics": _statistics, "learning": _learning}


def run_rank(work: str, n: int, file: pathlib.Path) -> None:
    """Run the work on this rank's share of the rows; the first rank writes the least time."""
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    x, y = data(n)
    share = slice(rank * n // world, (rank + 1) * n // world)
    x, y = x[share].clone(), y[share].clone()
    seconds = []
    for _ in range(2):
        dist.barrier()
        started = time.perf_counter()
        WORK[work](x, y)
        seconds.append(time.perf_counter() - started)
    if rank == 0:
        file.write_text(json.dumps(min(seconds)))
    dist.destroy_process_group()


def _implicit() -> MulticlassEmbedding:
    kernel = RBFKernel().double()
    kernel.lengthscale = 1.0
    embedding = MulticlassEmbedding(kernel, M, 1e-4)
    embedding.double()
    return embedding


def _learn(embedding: MulticlassEmbedding, x: Tensor, y: Tensor) -> None:
    (LeaveOneOutRisk() + RademacherComplexity("4e/n"))(embedding, x, y).backward()


def _learn_grams(x: Tensor, y: Tensor, _: Tensor) -> None:
    _learn(_implicit(), x, y)


def _learn_network(x: Tensor, y: Tensor, _: Tensor) -> None:
    network = FeatureKernel(torch.nn.Linear(D, P).double())
    _learn(MulticlassEmbedding(network, M, 1e-4).double(), x, y)


@torch.no_grad()
def _predict_exactly(x: Tensor, y: Tensor, x_new: Tensor) -> None:
    _implicit().condition(x, y).predict(x_new)


@torch.no_grad()
def _predict_by_features(x: Tensor, y: Tensor, x_new: Tensor) -> None:
    predictor = accumulate(embedding_for(1e-4), x, y).condition()
    assert isinstance(predictor, MulticlassPredictor)
    predictor.predict(x_new)


@torch.no_grad()
def _approximately(method: Nystrom | ConjugateGradients, x: Tensor, y: Tensor, x_new: Tensor) -> None:
    predictor = approximate(_implicit(), x, y, method=method)[0]
    assert isinstance(predictor, MulticlassPredictor)
    predictor.predict(x_new)


WAYS: dict[str, tuple[tuple[int, ...], Callable[[Tensor, Tensor, Tensor], object]]] = {
    "learning, n × n": (FEW, _learn_grams),
    f"learning, p = {P}": ((*FEW, 16_000, 64_000), _learn_network),
    "exact": ((*FEW, 8000), _predict_exactly),
    "conjugate gradients": (SOME, partial(_approximately, ConjugateGradients())),
    f"Nyström, {POINTS} points": (MANY, partial(_approximately, Nystrom(POINTS))),
    f"features, p = {P}": (MANY, _predict_by_features),
}


def _measure(way: str, n: int) -> Record:
    """Seconds, and how far the resident set rose above data and libraries, of one point in this process alone.

    Learning is one objective with its gradient; predicting is conditioning and the labels of 1000 new points.
    """
    torch.set_num_threads(1)
    call = WAYS[way][1]
    small = data(100)
    if "Nyström" not in way:
        call(*small, small[0])  # loads libraries before the clock starts
    x, y = data(n)
    x_new = data(1000)[0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, processor = time.perf_counter(), time.process_time()
    call(x, y, x_new)
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "processor_seconds": processor, "peak_megabytes": (peak - before) * 1024 / 1e6}


@part("sizes")
def size_cases(scope: Scope) -> Iterator[Measurement]:
    """Time and memory by rows, for every way to learn and to predict."""
    for way, (sizes, _) in WAYS.items():
        for n in sizes[:1] if scope.quick else sizes:
            yield Measurement(BY_ROWS, way, n, partial(in_own_process, _measure, way, n), against=way)


def draw_sizes(records: Sequence[Record], path: pathlib.Path) -> None:
    """Seconds and memory over rows, a curve for each way."""
    with styled():
        figure = free_figure(7.2, 4.6)
        left, right = figure.subplots(1, 2)
    for i, way in enumerate(WAYS):
        own = [r for r in records if r["name"] == way]
        style = {"label": way, "marker": marker(i), "markersize": 4, **line_style(i)}
        for axes, name in ((left, "seconds"), (right, "peak_megabytes")):
            axes.plot(column(own, "n"), column(own, name), **style)
    left.set(xlabel="rows n", ylabel="time (s)", xscale="log", yscale="log")
    right.set(xlabel="rows n", ylabel="peak memory (MB)", xscale="log", yscale="log")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_picture(figure, path, 100)


if __name__ == "__main__":
    run_rank(sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]))
