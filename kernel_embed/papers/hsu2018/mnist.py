"""Figure 2, right: one convolutional network on MNIST with a conditional embedding and with softmax as its head."""

from __future__ import annotations

import gzip
import os
import pathlib
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ...comparison.data import ENVIRONMENT_VARIABLE, data_directory
from ...comparison.networks import convolutional, paper_initialization
from ...embeddings import MulticlassEmbedding
from ...kernels import FeatureKernel
from ...learning.checkpoint import load_checkpoint, save_checkpoint
from ...objectives import CalibratedLeaveOneOutRisk, EmpiricalRisk, Objective, RademacherComplexity
from ...progress import progress_bar
from ...results import Record, Results, column, group, table
from ...scale import MulticlassFeatureAnswers, accumulate

KEY = ("experiment", "head", "objective", "regularization", "seed", "batch_size", "num_train", "epoch")
PRINTED = {"cen": 99.48, "softmax": 99.26}
"""Test accuracy in per cent after 800 epochs, as printed."""

OBJECTIVES: dict[str, Objective] = {
    "paper": EmpiricalRisk(epsilon=1e-3, below="linear") + RademacherComplexity("4e/n"),
    "leave-one-out": CalibratedLeaveOneOutRisk() + RademacherComplexity("1/n"),
}
"""Of the embedding: the paper's, continued below ε so that no image is given up, and the library's own."""

REGULARIZATION = 0.1
"""The start of λ. From the paper's 10 it takes hundreds of epochs to come down, while the first features, which nobody
has learned yet, do best with far less."""

Images = tuple[Tensor, Tensor, Tensor, Tensor]


def load_mnist(directory: str | os.PathLike[str] | None = None) -> Images:
    """(x, y, x_test, y_test): 60000 and 10000 images as rows of 784 numbers in [0, 1], float32, and their digits."""
    place = data_directory(directory)
    if place is None:
        raise FileNotFoundError(
            f"Expected the directory that holds mnist/, in --data or in {ENVIRONMENT_VARIABLE}, got none."
        )
    parts = []
    for name in ("train", "t10k"):
        images = _read_idx(place / "mnist" / f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 784)
        labels = _read_idx(place / "mnist" / f"{name}-labels-idx1-ubyte.gz", 8)
        parts += [torch.tensor(images, dtype=torch.float32) / 255.0, torch.tensor(labels, dtype=torch.int64)]
    return parts[0], parts[1], parts[2], parts[3]


def _read_idx(path: pathlib.Path, header: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    if not path.exists():
        raise FileNotFoundError(f"Expected {path}, which does not exist.")
    return np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8, offset=header)


class EmbeddingHead:
    """The conditional embedding network: the embedding is the head, and has no weights but λ."""

    name = "cen"

    def __init__(
        self, network: nn.Module, learning_rate: float, objective: Objective, regularization: float = REGULARIZATION
    ) -> None:
        self.embedding = MulticlassEmbedding(FeatureKernel(network), 10, regularization)
        self.objective = objective
        self.module: nn.Module = self.embedding
        self.optimizer = torch.optim.Adam(self.embedding.parameters(), lr=learning_rate)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """q of Algorithm 2 on a batch."""
        return self.objective(self.embedding, x, y)

    def predict(self, x: Tensor, y: Tensor, x_test: Tensor) -> Tensor:
        """Digits for ``x_test``, conditioned on all of ``x`` and ``y`` through their statistics."""
        answers = accumulate(self.embedding, x, y).condition()
        assert isinstance(answers, MulticlassFeatureAnswers)
        return answers.predict(x_test)


class SoftmaxHead:
    """The same network with a linear layer and softmax, learned by cross-entropy."""

    name = "softmax"

    def __init__(self, network: nn.Module, learning_rate: float, generator: torch.Generator) -> None:
        last = nn.Linear(1024, 10)
        paper_initialization(last, generator)
        self.module: nn.Module = nn.Sequential(network, last)
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=learning_rate)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean cross-entropy of a batch."""
        return cross_entropy(self.module(x), y)

    def predict(self, x: Tensor, y: Tensor, x_test: Tensor) -> Tensor:
        """Digits for ``x_test``; the training data are not needed."""
        return torch.cat([self.module(rows).argmax(-1) for rows in x_test.split(2000)])


def make_head(
    name: str, seed: int, learning_rate: float, objective: str = "paper", regularization: float = REGULARIZATION
) -> EmbeddingHead | SoftmaxHead:
    """A head on a network whose first weights depend on ``seed`` alone."""
    network = convolutional()
    generator = torch.Generator().manual_seed(seed)
    paper_initialization(network, generator)
    if name == "cen":
        return EmbeddingHead(network, learning_rate, OBJECTIVES[objective], regularization)
    if name == "softmax":
        return SoftmaxHead(network, learning_rate, generator)
    raise ValueError(f"Expected head 'cen' or 'softmax', got {name!r}.")


def run(
    results: Results,
    directory: str | os.PathLike[str] | None = None,
    *,
    out: pathlib.Path | None = None,
    quick: bool = False,
    heads: Sequence[str] = ("cen", "softmax"),
    epochs: int | None = None,
    minutes: float | None = 30.0,
    batch_size: int | None = None,
    learning_rate: float = 0.001,
    objective: str = "paper",
    regularization: float = REGULARIZATION,
    seed: int = 0,
    progress: bool | None = None,
) -> None:
    """Fill ``results`` with one record for each head and epoch, and draw ``figure2_right.png`` into ``out``.

    The heads take turns, an epoch each, from the same weights and with the same batches, until ``epochs`` (800 in the
    paper) or until ``minutes`` are over; ``minutes=None`` sets no limit. A checkpoint in ``out`` is resumed. The
    learning rate of the paper is 0.01, and its λ starts at 10. ``objective`` is one of ``OBJECTIVES``; leave-one-out
    needs about four times the products of the paper's in the head.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"Expected objective among {', '.join(OBJECTIVES)}, got {objective!r}.")
    x, y, x_test, y_test = load_mnist(directory)
    if quick:
        x, y, x_test, y_test = x[:1500], y[:1500], x_test[:500], y_test[:500]
    epochs = epochs or (2 if quick else 800)
    batch_size = batch_size or (500 if quick else 6000)
    key: Record = {
        "experiment": "mnist",
        "objective": objective,
        "regularization": regularization,
        "seed": seed,
        "batch_size": batch_size,
        "num_train": len(y),
    }
    learners = {name: make_head(name, seed, learning_rate, objective, regularization) for name in heads}
    run_name = f"{objective}_{regularization:g}_{seed}_{batch_size}_{len(y)}"
    files = {name: None if out is None else out / f"mnist_{name}_{run_name}.pt" for name in heads}
    started = {name: _resume(learner, files[name]) for name, learner in learners.items()}
    deadline = None if minutes is None else time.monotonic() + 60.0 * minutes
    with progress_bar(epochs * len(learners), "mnist", progress) as bar:
        for epoch in range(epochs):
            if deadline is not None and time.monotonic() > deadline:
                break
            order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1000 * seed + epoch))
            for name, learner in learners.items():
                record: Record = {**key, "head": name, "epoch": epoch}
                if epoch >= started[name]:
                    found = _epoch(learner, x, y, order.split(batch_size), seed + epoch)
                    found["test_accuracy"] = 100.0 * _accuracy(learner, x, y, x_test, y_test)
                    if record not in results:
                        results.add({**record, **found, "printed": PRINTED[name]})
                    _save(learner, files[name], epoch + 1)
                bar.update()
    if out is not None:
        draw_curves(results.records, out / "figure2_right.png")


def _epoch(learner: EmbeddingHead | SoftmaxHead, x: Tensor, y: Tensor, batches: Sequence[Tensor], seed: int) -> Record:
    learner.module.train()
    total, began = 0.0, time.perf_counter()
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # of dropout, inside the fork
        for batch in batches:
            learner.optimizer.zero_grad()
            loss = learner.loss(x[batch], y[batch])
            loss.backward()
            learner.optimizer.step()
            total += loss.item() / len(batches)
    seconds = time.perf_counter() - began
    share = None
    if isinstance(learner, EmbeddingHead):
        share = head_seconds(learner, y[batches[0]]) * len(batches) / seconds
    return {"loss": total, "seconds": seconds, "head_share": share}


def head_seconds(learner: EmbeddingHead, y: Tensor) -> float:
    """The time of the head in one step: from p = 1024 features of each row to the gradient there."""
    features = torch.rand(len(y), 1024, requires_grad=True)
    head = MulticlassEmbedding(FeatureKernel(nn.Identity()), 10, learner.embedding.regularization.item())
    return _seconds(lambda: learner.objective(head, features, y).backward())


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@torch.no_grad()
def _accuracy(learner: EmbeddingHead | SoftmaxHead, x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor) -> float:
    learner.module.eval()
    return (learner.predict(x, y, x_test) == y_test).double().mean().item()


def _resume(learner: EmbeddingHead | SoftmaxHead, file: pathlib.Path | None) -> int:
    content = None if file is None else load_checkpoint(file)
    if content is None:
        return 0
    learner.module.load_state_dict(content["module"])
    learner.optimizer.load_state_dict(content["optimizer"])
    return int(content["epoch"])


def _save(learner: EmbeddingHead | SoftmaxHead, file: pathlib.Path | None, epoch: int) -> None:
    if file is not None:
        content = {"module": learner.module.state_dict(), "optimizer": learner.optimizer.state_dict(), "epoch": epoch}
        save_checkpoint(file, content)


def draw_curves(records: Sequence[Record], path: pathlib.Path) -> None:
    """Test error against epochs, on a logarithmic scale."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for head, chosen in group(records, lambda record: record["head"]).items():
        axes.plot(column(chosen, "epoch") + 1, 100.0 - column(chosen, "test_accuracy"), label=str(head))
    axes.set(xlabel="epoch", ylabel="test error in per cent", yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def summary(records: Sequence[Record]) -> str:
    """The last epoch of each head, and how often the embedding was ahead."""
    rows = []
    for head, chosen in group(records, lambda record: record["head"]).items():
        last = max(chosen, key=lambda record: int(record["epoch"] or 0))
        shares = [float(r["head_share"]) for r in chosen if r["head_share"] is not None]
        rows.append([
            f"{head}", f"{int(last['epoch'] or 0) + 1}", f"{last['test_accuracy']:.2f}", f"{last['printed']:.2f}",
            f"{column(chosen, 'seconds').mean():.1f}", f"{100 * np.median(shares):.1f}" if shares else "",
        ])  # fmt: skip
    header = ["head", "epochs", "test accuracy", "printed (800)", "seconds an epoch", "head % of a step"]
    return f"{table(header, rows)}\n\n{_ahead(records)}"


def _ahead(records: Sequence[Record]) -> str:
    by_head = {
        head: {r["epoch"]: float(r["test_accuracy"] or 0.0) for r in records if r["head"] == head} for head in PRINTED
    }
    both = by_head["cen"].keys() & by_head["softmax"].keys()
    won = sum(by_head["cen"][epoch] > by_head["softmax"][epoch] for epoch in both)
    return f"The embedding was ahead after {won} of {len(both)} epochs."
