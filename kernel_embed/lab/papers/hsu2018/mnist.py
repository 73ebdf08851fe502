"""Figure 2, right: one convolutional network on MNIST with a conditional embedding and with softmax as its head.

The heads take turns, an epoch each, from the same weights and with the same batches, and resume from checkpoints in the
output directory. The learning rate of the paper is 0.01, and its λ starts at 10. The leave-one-out objective needs
about four times the matrix products of the paper's in the head.
"""

from __future__ import annotations

import functools
import gzip
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ....plots import free_figure, save_picture, styled
from ....plots.style import legend_outside, line_style, marker
from ....results import Record, column, group, number, table
from ...compare.data import ENVIRONMENT_VARIABLE, data_directory
from ...experiment import Experiment, Settings
from ...runner import Case
from .heads import OBJECTIVES, REGULARIZATION, Head, make_head

PUBLISHED = {"cen": 99.48, "softmax": 99.26}
"""Test accuracy in percent after 800 epochs, as published."""
NUM_EPOCHS = 800
MINUTES = 30.0
"""After this long no epoch is started, unless the number of epochs or all of them are requested."""

Images = tuple[Tensor, Tensor, Tensor, Tensor]


def load_mnist(directory: str | os.PathLike[str] | None = None) -> Images:
    """(x, y, x_test, y_test): 60000 and 10000 images as rows of 784 numbers in [0, 1], float32, and their digits."""
    folder = data_directory(directory)
    if folder is None:
        raise FileNotFoundError(f"No directory with mnist/. Name it with --data or in {ENVIRONMENT_VARIABLE}.")
    return _load(folder)


@functools.lru_cache(maxsize=1)
def _load(folder: pathlib.Path) -> Images:
    parts = []
    for name in ("train", "t10k"):
        images = _read_idx(folder / "mnist" / f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 784)
        labels = _read_idx(folder / "mnist" / f"{name}-labels-idx1-ubyte.gz", 8)
        parts += [torch.tensor(images, dtype=torch.float32) / 255.0, torch.tensor(labels, dtype=torch.int64)]
    return parts[0], parts[1], parts[2], parts[3]


def _read_idx(path: pathlib.Path, header: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    if not path.exists():
        raise FileNotFoundError(f"File not found: {path}. Download MNIST into that directory.")
    return np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8, offset=header)


def cases(
    settings: Settings,
    heads: tuple[str, ...],
    batch_size: int | None,
    learning_rate: float,
    objective: str,
    regularization: float,
) -> Iterator[Case]:
    """One case for each epoch and head."""
    if objective not in OBJECTIVES:
        raise ValueError(f"Unknown objective {objective!r}. Choose among: {', '.join(OBJECTIVES)}.")
    x, y, x_test, y_test = load_mnist(settings.data)
    if settings.quick:
        x, y, x_test, y_test = x[:1500], y[:1500], x_test[:500], y_test[:500]
    seed, size = settings.seed, batch_size or (500 if settings.quick else 6000)
    key: Record = {"experiment": "mnist", "objective": objective, "regularization": regularization}
    key |= {"seed": seed, "batch_size": size, "num_train": len(y)}

    @functools.cache
    def resumed(name: str) -> tuple[Head, pathlib.Path | None]:
        head = make_head(name, seed, learning_rate, objective, regularization)
        run = f"{objective}_{regularization:g}_{seed}_{size}_{len(y)}"
        file = None if settings.out is None else settings.out / f"mnist_{name}_{run}.pt"
        head.resume(file)
        return head, file

    def learn(name: str, epoch: int) -> Record:
        head, file = resumed(name)
        while head.epoch <= epoch:  # several where the records are ahead of the checkpoint
            order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1000 * seed + head.epoch))
            head.learn_epoch(x, y, order.split(size), seed + head.epoch)
        head.last["test_accuracy"] = 100.0 * head.accuracy(x, y, x_test, y_test)
        head.save(file)
        return {**head.last, "printed": PUBLISHED[name]}

    for epoch in range(settings.epochs or (2 if settings.quick else NUM_EPOCHS)):
        for name in heads:
            yield Case({**key, "head": name, "epoch": epoch}, functools.partial(learn, name, epoch))


def summary(records: Sequence[Record]) -> str:
    """The last epoch of each head, and how often the embedding was ahead."""
    rows = []
    for head, epochs in group(records, lambda record: record["head"]).items():
        last = max(epochs, key=lambda record: number(record, "epoch"))
        shares = [number(r, "head_share") for r in epochs if r["head_share"] is not None]
        rows.append([
            f"{head}", f"{number(last, 'epoch') + 1:.0f}", f"{last['test_accuracy']:.2f}", f"{last['printed']:.2f}",
            f"{column(epochs, 'seconds').mean():.1f}", f"{100 * np.median(shares):.1f}" if shares else "",
        ])  # fmt: skip
    header = ["head", "epochs", "test accuracy", "published (800)", "seconds an epoch", "head % of a step"]
    cen, softmax = (
        {r["epoch"]: number(r, "test_accuracy") for r in records if r["head"] == head} for head in PUBLISHED
    )
    both = cen.keys() & softmax.keys()
    ahead = sum(cen[epoch] > softmax[epoch] for epoch in both)
    return f"{table(header, rows)}\n\nThe embedding was ahead after {ahead} of {len(both)} epochs."


def draw(records: Sequence[Record], out: pathlib.Path) -> None:
    """``figure2_right.png``: test error against epochs, on a logarithmic scale."""
    with styled():
        figure = free_figure(6.6, 4)
        axes = figure.subplots()
    for i, (head, epochs) in enumerate(group(records, lambda record: record["head"]).items()):
        style = {"label": str(head), "marker": marker(i), **line_style(i)}
        axes.plot(column(epochs, "epoch") + 1, 100.0 - column(epochs, "test_accuracy"), **style)
    axes.set(xlabel="epoch", ylabel="test error (%)", yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    legend_outside(axes)
    save_picture(figure, out / "figure2_right.png", 110)


MNIST = Experiment(
    "mnist-cen", "MNIST by a network with an embedding and with softmax as its head",
    "30 minutes; all 800 epochs take days",
    ("experiment", "head", "objective", "regularization", "seed", "batch_size", "num_train", "epoch"), cases,
    summary, draw, options=frozenset({"data", "epochs", "full", "seed"}), paper="Hsu et al.",
    part="Figure 2 (right)", tag=("mnist",),
    parameters={"heads": ("cen", "softmax"), "batch_size": None, "learning_rate": 0.001, "objective": "paper",
                "regularization": REGULARIZATION},
    time_limit=lambda settings: None if settings.full or settings.epochs else 60.0 * MINUTES,
)  # fmt: skip
