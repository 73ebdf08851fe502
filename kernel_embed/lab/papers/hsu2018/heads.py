"""Two heads for one network: a conditional embedding, and softmax; and one epoch of learning with either."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ....embeddings import ConditionedMulticlass, MulticlassEmbedding
from ....kernels import FeatureKernel
from ....learning.checkpoint import load_checkpoint, save_checkpoint
from ....objectives import CalibratedLeaveOneOutRisk, EmpiricalRisk, Objective, RademacherComplexity
from ....results import Record
from ....scale import MulticlassFeaturePredictor, accumulate
from ...compare.networks import convolutional, paper_initialization
from .images import Images

OBJECTIVES: dict[str, Objective[ConditionedMulticlass]] = {
    "paper": EmpiricalRisk(epsilon=1e-3, below="linear") + RademacherComplexity("4e/n"),
    "leave-one-out": CalibratedLeaveOneOutRisk() + RademacherComplexity("1/n"),
}
"""Of the embedding: the paper's, continued below ε so that no image is given up, and the library's own."""

REGULARIZATION = 0.1
"""The start of λ. From the paper's 10 it takes hundreds of epochs to come down, while the first features, which nobody
has learned yet, do best with far less."""


class EmbeddingHead:
    """The conditional embedding network: the embedding is the head, and has no weights but λ."""

    name = "cen"

    def __init__(
        self,
        network: nn.Module,
        learning_rate: float,
        objective: Objective[ConditionedMulticlass],
        regularization: float = REGULARIZATION,
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
        assert isinstance(answers, MulticlassFeaturePredictor)
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


Head = EmbeddingHead | SoftmaxHead


def make_head(
    name: str, seed: int, learning_rate: float, objective: str = "paper", regularization: float = REGULARIZATION
) -> Head:
    """A head on a network whose first weights depend on ``seed`` alone."""
    network = convolutional()
    generator = torch.Generator().manual_seed(seed)
    paper_initialization(network, generator)
    if name == "cen":
        return EmbeddingHead(network, learning_rate, OBJECTIVES[objective], regularization)
    if name == "softmax":
        return SoftmaxHead(network, learning_rate, generator)
    raise ValueError(f"Expected head 'cen' or 'softmax', got {name!r}. Choose one of the two.")


def learn_epoch(learner: Head, x: Tensor, y: Tensor, batches: Sequence[Tensor], seed: int) -> Record:
    """One step for each batch; the mean loss, the seconds, and the share of the head in them."""
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
def accuracy_of(learner: Head, images: Images) -> float:
    """The share of test images whose digit is right."""
    x, y, x_test, y_test = images
    learner.module.eval()
    return (learner.predict(x, y, x_test) == y_test).double().mean().item()


def resume(learner: Head, file: pathlib.Path | None) -> int:
    """The epochs that a checkpoint in ``file`` has behind it, loaded; 0 where there is none."""
    content = None if file is None else load_checkpoint(file)
    if content is None:
        return 0
    learner.module.load_state_dict(content["module"])
    learner.optimizer.load_state_dict(content["optimizer"])
    return int(content["epoch"])


def save(learner: Head, file: pathlib.Path | None, epoch: int) -> None:
    """Write a checkpoint after so many epochs."""
    if file is not None:
        content = {"module": learner.module.state_dict(), "optimizer": learner.optimizer.state_dict(), "epoch": epoch}
        save_checkpoint(file, content)
