"""Time and memory against the number of rows, for each way to learn and to answer.

Every point is measured in a process of its own, on one thread: seconds, and how far the resident set rose above what
data and libraries take. Learning is one objective with its gradient; answering is conditioning and the labels of 1000
new points.
"""

from __future__ import annotations

import pathlib
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ...embeddings import MulticlassEmbedding, MulticlassPredictor
from ...kernels import FeatureKernel
from ...objectives import LeaveOneOutRisk, RademacherComplexity
from ...plots import free_figure, save_picture, styled
from ...plots.style import line_style, marker
from ...results import Record, column
from ...scale import ConjugateGradients, Nystrom, accumulate, approximate
from .cases import Case, Scope, in_own_process
from .scale import D, M, P, data, embedding_for

PART = "time and memory by rows"
POINTS = 512
"""Of Nyström's method."""
FEW, SOME, MANY = (500, 1000, 2000, 4000), (1000, 2000, 4000, 8000), (1000, 4000, 16_000, 64_000, 256_000)

Way = Callable[[Tensor, Tensor, Tensor], object]


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
def _answer_exactly(x: Tensor, y: Tensor, x_new: Tensor) -> None:
    _implicit().condition(x, y).predict(x_new)


@torch.no_grad()
def _answer_by_features(x: Tensor, y: Tensor, x_new: Tensor) -> None:
    answers = accumulate(embedding_for(1e-4), x, y).condition()
    assert isinstance(answers, MulticlassPredictor)
    answers.predict(x_new)


@torch.no_grad()
def _approximately(method: Nystrom | ConjugateGradients, x: Tensor, y: Tensor, x_new: Tensor) -> None:
    answers = approximate(_implicit(), x, y, method=method)[0]
    assert isinstance(answers, MulticlassPredictor)
    answers.predict(x_new)


WAYS: dict[str, tuple[tuple[int, ...], Way]] = {
    "learning, n × n": (FEW, _learn_grams),
    f"learning, p = {P}": ((*FEW, 16_000, 64_000), _learn_network),
    "exact": ((*FEW, 8000), _answer_exactly),
    "conjugate gradients": (SOME, partial(_approximately, ConjugateGradients())),
    f"Nyström, {POINTS} points": (MANY, partial(_approximately, Nystrom(POINTS))),
    f"features, p = {P}": (MANY, _answer_by_features),
}


def _measure(way: str, n: int) -> Record:
    """One point of one curve, in this process alone."""
    torch.set_num_threads(1)
    call = WAYS[way][1]
    small = data(100)
    if "Nyström" not in way:
        call(*small, small[0])  # libraries are loaded before the clock starts
    x, y = data(n)
    x_new = data(1000)[0]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started, processor = time.perf_counter(), time.process_time()
    call(x, y, x_new)
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "processor_seconds": processor, "peak_megabytes": (peak - before) * 1024 / 1e6}


def cases(scope: Scope) -> Iterator[Case]:
    """Time and memory by rows, for every way to learn and to answer."""
    for way, (sizes, _) in WAYS.items():
        for n in sizes[:1] if scope.quick else sizes:
            yield Case(PART, way, n, partial(in_own_process, _measure, way, n), against=way)


def draw(records: Sequence[Record], path: pathlib.Path) -> None:
    """Seconds and memory over rows, a curve for each way."""
    with styled():
        figure = free_figure(7.2, 4.6)
        left, right = figure.subplots(1, 2)
    for place, way in enumerate(WAYS):
        chosen = [r for r in records if r["name"] == way]
        look = {"label": way, "marker": marker(place), "markersize": 4, **line_style(place)}
        for axes, name in ((left, "seconds"), (right, "peak_megabytes")):
            axes.plot(column(chosen, "n"), column(chosen, name), **look)
    left.set(xlabel="rows n", ylabel="time (s)", xscale="log", yscale="log")
    right.set(xlabel="rows n", ylabel="peak memory (MB)", xscale="log", yscale="log")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_picture(figure, path, 100)
