"""Figure 2, right: one convolutional network on MNIST with a conditional embedding and with softmax as its head."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ....plots import free_figure, save_picture, styled
from ....plots.style import legend_outside, line_style, marker
from ....progress import progress_bar
from ....results import Record, Results, column, group, number, table
from ..experiment import Experiment, Settings
from .heads import OBJECTIVES, REGULARIZATION, accuracy_of, learn_epoch, make_head, resume, save
from .images import Images, load_mnist

PUBLISHED = {"cen": 99.48, "softmax": 99.26}
"""Test accuracy in per cent after 800 epochs, as published."""
NUM_EPOCHS = 800
MINUTES = 30.0
"""After so long no epoch is begun, unless the epochs are named or all are asked for."""


@dataclass(frozen=True)
class NetworkHeads(Experiment):
    """One record for each head and epoch.

    The heads take turns, an epoch each, from the same weights and with the same batches. A checkpoint in the directory
    of the results is resumed. The learning rate of the paper is 0.01, and its λ starts at 10. ``objective`` is one of
    :data:`OBJECTIVES`; leave-one-out needs about four times the products of the paper's in the head.
    """

    name = "mnist-cen"
    shows = "Figure 2 (right) of Hsu et al.: MNIST by a network with an embedding and with softmax as its head"
    duration = "30 minutes; all 800 epochs take days"
    key = ("experiment", "head", "objective", "regularization", "seed", "batch_size", "num_train", "epoch")
    tags = ("mnist",)
    options = frozenset({"data", "epochs", "full", "seed"})

    heads: tuple[str, ...] = ("cen", "softmax")
    batch_size: int | None = None
    learning_rate: float = 0.001
    objective: str = "paper"
    regularization: float = REGULARIZATION

    def run(self, results: Results, settings: Settings) -> None:
        """Learn until the epochs or the minutes are over."""
        if self.objective not in OBJECTIVES:
            raise ValueError(
                f"Expected objective among {', '.join(OBJECTIVES)}, got {self.objective!r}. Choose among these."
            )
        images = load_mnist(settings.data)
        if settings.quick:
            images = images[0][:1500], images[1][:1500], images[2][:500], images[3][:500]
        limited = not (settings.full or settings.epochs)
        deadline = time.monotonic() + 60.0 * MINUTES if limited else None
        self._learn(results, settings, images, deadline)

    def _learn(self, results: Results, settings: Settings, images: Images, deadline: float | None) -> None:
        x, y, *_ = images
        seed, batch_size = settings.seed, self.batch_size or (500 if settings.quick else 6000)
        epochs = settings.epochs or (2 if settings.quick else NUM_EPOCHS)
        key: Record = {"experiment": "mnist", "objective": self.objective, "regularization": self.regularization}
        key |= {"seed": seed, "batch_size": batch_size, "num_train": len(y)}
        learners = {
            name: make_head(name, seed, self.learning_rate, self.objective, self.regularization) for name in self.heads
        }
        run_name = f"{self.objective}_{self.regularization:g}_{seed}_{batch_size}_{len(y)}"
        out = settings.out
        files = {name: None if out is None else out / f"mnist_{name}_{run_name}.pt" for name in learners}
        started = {name: resume(learner, files[name]) for name, learner in learners.items()}
        with progress_bar(epochs * len(learners), "mnist") as bar:
            for epoch in range(epochs):
                if deadline is not None and time.monotonic() > deadline:
                    break
                order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1000 * seed + epoch))
                for name, learner in learners.items():
                    record: Record = {**key, "head": name, "epoch": epoch}
                    if epoch >= started[name]:
                        found = learn_epoch(learner, x, y, order.split(batch_size), seed + epoch)
                        found["test_accuracy"] = 100.0 * accuracy_of(learner, images)
                        if record not in results:
                            results.add({**record, **found, "printed": PUBLISHED[name]})
                        save(learner, files[name], epoch + 1)
                    bar.update()

    def summary(self, records: Sequence[Record]) -> str:
        """The last epoch of each head, and how often the embedding was ahead."""
        rows = []
        for head, chosen in group(records, lambda record: record["head"]).items():
            last = max(chosen, key=lambda record: number(record, "epoch"))
            shares = [number(r, "head_share") for r in chosen if r["head_share"] is not None]
            rows.append([
                f"{head}", f"{number(last, 'epoch') + 1:.0f}", f"{last['test_accuracy']:.2f}", f"{last['printed']:.2f}",
                f"{column(chosen, 'seconds').mean():.1f}", f"{100 * np.median(shares):.1f}" if shares else "",
            ])  # fmt: skip
        header = ["head", "epochs", "test accuracy", "published (800)", "seconds an epoch", "head % of a step"]
        return f"{table(header, rows)}\n\n{_ahead(records)}"

    def draw(self, records: Sequence[Record], out: pathlib.Path) -> None:
        """``figure2_right.png``: test error against epochs, on a logarithmic scale."""
        with styled():
            figure = free_figure(6.6, 4)
            axes = figure.subplots()
        for place, (head, chosen) in enumerate(group(records, lambda record: record["head"]).items()):
            look = {"label": str(head), "marker": marker(place), **line_style(place)}
            axes.plot(column(chosen, "epoch") + 1, 100.0 - column(chosen, "test_accuracy"), **look)
        axes.set(xlabel="epoch", ylabel="test error (%)", yscale="log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        legend_outside(axes)
        out.mkdir(parents=True, exist_ok=True)
        save_picture(figure, out / "figure2_right.png", 110)


def _ahead(records: Sequence[Record]) -> str:
    by_head = {
        head: {r["epoch"]: number(r, "test_accuracy") for r in records if r["head"] == head} for head in PUBLISHED
    }
    both = by_head["cen"].keys() & by_head["softmax"].keys()
    won = sum(by_head["cen"][epoch] > by_head["softmax"][epoch] for epoch in both)
    return f"The embedding was ahead after {won} of {len(both)} epochs."
