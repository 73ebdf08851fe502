"""Figure 2, right: one convolutional network on MNIST with a conditional embedding and with softmax as its head.

The heads take turns, an epoch each, from the same weights and with the same batches, and resume from checkpoints in the
output directory. The learning rate of the paper is 0.01, and its λ starts at 10.
"""

from __future__ import annotations

import functools
import gzip
import pathlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ...archive import load_checkpoint, save_checkpoint
from ...embeddings import MulticlassEmbedding
from ...kernels import FeatureKernel
from ...plots import save_picture
from ...plots.style import legend_outside, line_style, marker
from ...results import Record, column, group, number, table
from ...scale import MulticlassFeaturePredictor, accumulate
from ..compare.embedding_classifiers import NETWORK_OBJECTIVE, paper_initialization
from ..datasets import Directory, data_folder
from ..experiment import Experiment, Settings, new_figure
from ..runner import Case

FILES = tuple(f"mnist/{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
PUBLISHED = {"cen": 99.48, "softmax": 99.26}
"""Test accuracy in percent after 800 epochs, as published."""
NUM_EPOCHS = 800
MINUTES = 30.0
"""After this long no epoch is started, unless the number of epochs or all of them are requested."""
REGULARIZATION = 0.1
"""The start of λ. From the paper's 10 it takes hundreds of epochs to decrease, while untrained features do best with
far less."""


def load_mnist(directory: Directory = None) -> tuple[Tensor, ...]:
    """(x, y, x_test, y_test): 60000 and 10000 images as rows of 784 numbers in [0, 1], float32, and their digits."""
    return _load(data_folder(", ".join(FILES), directory))


@functools.lru_cache(maxsize=1)
def _load(folder: pathlib.Path) -> tuple[Tensor, ...]:
    parts = []
    for path in (folder / name for name in FILES):
        if not path.exists():
            raise FileNotFoundError(f"File not found: {path}. Download MNIST to there, or give --data.")
        is_images = "images" in path.name
        values = np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8, offset=16 if is_images else 8)
        part = torch.tensor(values, dtype=torch.float32 if is_images else torch.int64)
        parts.append(part.reshape(-1, 784) / 255.0 if is_images else part)
    return tuple(parts)


def convolutional() -> nn.Sequential:
    """Two 5 × 5 convolutions of 32 and 64 channels, each with pooling, then 1024 units with dropout ½."""
    return nn.Sequential(
        nn.Unflatten(-1, (1, 28, 28)),
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(7 * 7 * 64, 1024), nn.ReLU(), nn.Dropout(0.5),
    )  # fmt: skip


class Head:
    """A network with a head, trained by Adam: ``"cen"``, whose only weight is λ, or ``"softmax"``, a linear layer.

    The first weights of the network depend on ``seed`` alone.
    """

    def __init__(self, name: str, seed: int, learning_rate: float, regularization: float = REGULARIZATION) -> None:
        network, generator = convolutional(), torch.Generator().manual_seed(int(seed))
        paper_initialization(network, generator)
        if name == "cen":
            self.module: Any = MulticlassEmbedding(FeatureKernel(network), 10, regularization)
        elif name == "softmax":
            last = nn.Linear(1024, 10)
            paper_initialization(last, generator)
            self.module = nn.Sequential(network, last)
        else:
            raise ValueError(f"Unknown head {name!r}. Choose 'cen' or 'softmax'.")
        self.is_embedding, self.epoch = name == "cen", 0
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=learning_rate)
        self.last: Record = {}

    def learn_epoch(self, x: Tensor, y: Tensor, batches: Sequence[Tensor], seed: int) -> None:
        """One step for each batch; the mean loss, the seconds and the share of the head in them go to ``last``."""
        self.module.train()
        total, start = 0.0, time.perf_counter()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(seed))  # of dropout, inside the fork
            for batch in batches:
                self.optimizer.zero_grad()
                if self.is_embedding:
                    loss = NETWORK_OBJECTIVE(self.module, x[batch], y[batch])
                else:
                    loss = cross_entropy(self.module(x[batch]), y[batch])
                loss.backward()
                self.optimizer.step()
                total += loss.item() / len(batches)
        seconds = time.perf_counter() - start
        share = self._seconds(y[batches[0]]) * len(batches) / seconds if self.is_embedding else None
        self.epoch += 1
        self.last = {"loss": total, "seconds": seconds, "head_share": share}

    def _seconds(self, y: Tensor) -> float:
        """Of the head in one step, from p = 1024 features of each row to the gradient there."""
        features = torch.rand(len(y), 1024, dtype=torch.float32, requires_grad=True)
        head = MulticlassEmbedding(FeatureKernel(nn.Identity()), 10, self.module.regularization.item())
        start = time.perf_counter()
        NETWORK_OBJECTIVE(head, features, y).backward()
        return time.perf_counter() - start

    @torch.no_grad()
    def accuracy(self, x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor) -> float:
        """The share of test images whose digit is right."""
        self.module.eval()
        if self.is_embedding:
            predictor = accumulate(self.module, x, y).condition()  # on all rows, through their statistics
            assert isinstance(predictor, MulticlassFeaturePredictor)
            labels = predictor.predict(x_test)
        else:
            labels = torch.cat([self.module(rows).argmax(-1) for rows in x_test.split(2000)])
        return (labels == y_test).double().mean().item()

    def save(self, file: pathlib.Path | None) -> None:
        """Write a checkpoint; none without a file."""
        if file is not None:
            content = {"module": self.module.state_dict(), "optimizer": self.optimizer.state_dict()}
            save_checkpoint(file, {**content, "epoch": self.epoch, "last": self.last})

    def resume(self, file: pathlib.Path | None) -> None:
        """Load a checkpoint; without one the head starts from its first weights."""
        content = None if file is None else load_checkpoint(file)
        if content is not None:
            self.module.load_state_dict(content["module"])
            self.optimizer.load_state_dict(content["optimizer"])
            self.epoch, self.last = int(content["epoch"]), content.get("last", {})


def _cases(settings: Settings, batch_size: int | None, learning_rate: float, regularization: float) -> Iterator[Case]:
    """One case for each epoch and head."""
    x, y, x_test, y_test = load_mnist(settings.data)
    if settings.quick:
        x, y, x_test, y_test = x[:1500], y[:1500], x_test[:500], y_test[:500]
    seed, size = settings.seed, batch_size or (500 if settings.quick else 6000)
    key: Record = {"experiment": "mnist", "regularization": regularization, "seed": seed, "batch_size": size}
    key["num_train"] = len(y)

    @functools.cache
    def resumed(name: str) -> tuple[Head, pathlib.Path | None]:
        head = Head(name, seed, learning_rate, regularization)
        run = f"mnist_{name}_{regularization:g}_{seed}_{size}_{len(y)}.pt"
        file = None if settings.out is None else settings.out / run
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
        for name in PUBLISHED:
            yield Case({**key, "head": name, "epoch": epoch}, functools.partial(learn, name, epoch))


def _summarize(records: Sequence[Record]) -> str:
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


def _draw(records: Sequence[Record], out: pathlib.Path) -> None:
    """``figure2_right.png``: test error against epochs, on a logarithmic scale."""
    figure, axes = new_figure(6.6, 4)
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
    ("experiment", "head", "regularization", "seed", "batch_size", "num_train", "epoch"), _cases,
    _summarize, _draw, options="data epochs full seed", paper="Hsu et al.",
    part="Figure 2 (right)", tag=("mnist",), files=FILES,
    parameters={"batch_size": None, "learning_rate": 0.001, "regularization": REGULARIZATION},
    time_limit=lambda settings: None if settings.full or settings.epochs else 60.0 * MINUTES,
)  # fmt: skip
