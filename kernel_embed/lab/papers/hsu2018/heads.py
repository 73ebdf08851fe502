"""Two heads for one network, a conditional embedding and softmax, and their training epoch by epoch."""

from __future__ import annotations

import abc
import pathlib
import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ....embeddings import ConditionedMulticlass, MulticlassEmbedding
from ....kernels import FeatureKernel
from ....learning.checkpoint import load_checkpoint, save_checkpoint
from ....objectives import CalibratedLeaveOneOutRisk, EmpiricalRisk, Objective, RademacherComplexity
from ....results import Record
from ....scale import MulticlassFeaturePredictor, accumulate
from ...compare.embedding_classifiers import convolutional, paper_initialization

OBJECTIVES: dict[str, Objective[ConditionedMulticlass]] = {
    "paper": EmpiricalRisk(epsilon=1e-3, below="linear") + RademacherComplexity("4e/n"),
    "leave-one-out": CalibratedLeaveOneOutRisk() + RademacherComplexity("1/n"),
}
"""Of the embedding: the paper's, extrapolated below ε so that every image keeps a gradient, and the library's own."""

REGULARIZATION = 0.1
"""The start of λ. From the paper's 10 it takes hundreds of epochs to decrease, while untrained features do best with
far less."""


class Head(abc.ABC):
    """A network with a head, trained by Adam.

    Attributes:
        epoch: number of epochs so far.
        last: figures of the last epoch.
    """

    def __init__(self, module: nn.Module, learning_rate: float) -> None:
        self.module = module
        self.optimizer = torch.optim.Adam(module.parameters(), lr=learning_rate)
        self.epoch = 0
        self.last: Record = {}

    @abc.abstractmethod
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The loss of a batch."""

    @abc.abstractmethod
    def predict(self, x: Tensor, y: Tensor, x_test: Tensor) -> Tensor:
        """Digits for ``x_test``, given the training data."""

    def seconds(self, y: Tensor) -> float | None:
        """The time of the head in one step on labels ``y``; ``None`` where it is not measured."""
        return None

    def learn_epoch(self, x: Tensor, y: Tensor, batches: Sequence[Tensor], seed: int) -> None:
        """One step for each batch; the mean loss, the seconds and the share of the head in them go to ``last``."""
        self.module.train()
        total, start = 0.0, time.perf_counter()
        with torch.random.fork_rng():
            torch.manual_seed(seed)  # of dropout, inside the fork
            for batch in batches:
                self.optimizer.zero_grad()
                loss = self.loss(x[batch], y[batch])
                loss.backward()
                self.optimizer.step()
                total += loss.item() / len(batches)
        seconds = time.perf_counter() - start
        head = self.seconds(y[batches[0]])
        share = None if head is None else head * len(batches) / seconds
        self.epoch += 1
        self.last = {"loss": total, "seconds": seconds, "head_share": share}

    @torch.no_grad()
    def accuracy(self, x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor) -> float:
        """The share of test images whose digit is right."""
        self.module.eval()
        return (self.predict(x, y, x_test) == y_test).double().mean().item()

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


class EmbeddingHead(Head):
    """The conditional embedding network: the embedding is the head, and λ its only weight."""

    def __init__(
        self,
        network: nn.Module,
        learning_rate: float,
        objective: Objective[ConditionedMulticlass],
        regularization: float = REGULARIZATION,
    ) -> None:
        self.embedding = MulticlassEmbedding(FeatureKernel(network), 10, regularization)
        self.objective = objective
        super().__init__(self.embedding, learning_rate)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """q of Algorithm 2 on a batch."""
        return self.objective(self.embedding, x, y)

    def predict(self, x: Tensor, y: Tensor, x_test: Tensor) -> Tensor:
        """Conditioned on all of ``x`` and ``y`` through their statistics."""
        predictor = accumulate(self.embedding, x, y).condition()
        assert isinstance(predictor, MulticlassFeaturePredictor)
        return predictor.predict(x_test)

    def seconds(self, y: Tensor) -> float:
        """From p = 1024 features of each row to the gradient there."""
        features = torch.rand(len(y), 1024, requires_grad=True)
        head = MulticlassEmbedding(FeatureKernel(nn.Identity()), 10, self.embedding.regularization.item())
        start = time.perf_counter()
        self.objective(head, features, y).backward()
        return time.perf_counter() - start


class SoftmaxHead(Head):
    """The same network with a linear layer and softmax, trained by cross-entropy."""

    def __init__(self, network: nn.Module, learning_rate: float, generator: torch.Generator) -> None:
        last = nn.Linear(1024, 10)
        paper_initialization(last, generator)
        super().__init__(nn.Sequential(network, last), learning_rate)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean cross-entropy of a batch."""
        return cross_entropy(self.module(x), y)

    def predict(self, x: Tensor, y: Tensor, x_test: Tensor) -> Tensor:
        """The largest output."""
        return torch.cat([self.module(rows).argmax(-1) for rows in x_test.split(2000)])


def make_head(
    name: str, seed: int, learning_rate: float, objective: str = "paper", regularization: float = REGULARIZATION
) -> Head:
    """The head ``"cen"`` or ``"softmax"`` on a network whose first weights depend on ``seed`` alone."""
    network = convolutional()
    generator = torch.Generator().manual_seed(seed)
    paper_initialization(network, generator)
    if name == "cen":
        return EmbeddingHead(network, learning_rate, OBJECTIVES[objective], regularization)
    if name == "softmax":
        return SoftmaxHead(network, learning_rate, generator)
    raise ValueError(f"Unknown head {name!r}. Choose 'cen' or 'softmax'.")
