"""The networks of section 5 of the paper, as feature maps, and a scikit-learn classifier that learns them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from ...embeddings import ConditionedMulticlass, MulticlassEmbedding
from ...kernels import FeatureKernel
from ...learning import Adam, fit
from ...objectives import CalibratedLeaveOneOutRisk, EmpiricalRisk, Objective, RademacherComplexity, calibrate
from .trees import MostProbable

CEN_1 = (16, 32, 8)
CEN_2 = (96, 32)
"""Hidden units of the two networks that the paper tries on UCI data."""


def paper_initialization(network: nn.Module, generator: torch.Generator) -> None:
    """Weights from a normal distribution of deviation 0.1 cut off at two deviations, biases 0.1."""
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(layer.weight, std=0.1, a=-0.2, b=0.2, generator=generator)
                if layer.bias is not None:
                    layer.bias.fill_(0.1)


def perceptron(d: int, hidden: Sequence[int]) -> nn.Sequential:
    """Fully connected layers with ReLU after each; the last hidden layer is the features.

    Example:
        >>> perceptron(4, CEN_1)(torch.zeros(5, 4)).shape
        torch.Size([5, 8])
    """
    widths = [d, *hidden]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers)


def convolutional() -> nn.Sequential:
    """Two 5 × 5 convolutions of 32 and 64 channels, each with pooling, then 1024 units with dropout ½; for MNIST.

    Example:
        >>> convolutional()(torch.zeros(2, 784)).shape
        torch.Size([2, 1024])
    """
    return nn.Sequential(
        nn.Unflatten(-1, (1, 28, 28)),
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(7 * 7 * 64, 1024), nn.ReLU(), nn.Dropout(0.5),
    )  # fmt: skip


class NetworkClassifier(MostProbable):
    """A conditional embedding network: a perceptron with a linear kernel on top, learned with all rows at each step.

    Args:
        hidden: units of the layers.
        objective: ``"paper"`` (empirical risk and 4e/n · r) or ``"leave-one-out"`` (calibrated, the library's own),
            which sees the last layer only and lets the others overfit small data.
        num_epochs: steps of Adam; the paper's 1000 overfit small data here.
        learning_rate: of Adam; the paper has 0.1.
        regularization: the initial λ. From the paper's 1 the complexity outweighs the risk of the first features,
            which are small, and on some data learning ends where they are zero.
        seed: of the weights.
    """

    def __init__(
        self,
        hidden: Sequence[int] = CEN_1,
        objective: str = "paper",
        num_epochs: int = 300,
        learning_rate: float = 0.01,
        regularization: float = 0.01,
        seed: int = 0,
    ) -> None:
        self.hidden = hidden
        self.objective = objective
        self.num_epochs = num_epochs
        self.learning_rate = learning_rate
        self.regularization = regularization
        self.seed = seed

    def fit(self, X: ArrayLike, y: ArrayLike) -> NetworkClassifier:
        """Learn weights and λ jointly."""
        x = torch.as_tensor(np.asarray(X, dtype=np.float64))
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        labels = torch.as_tensor(numbers)
        network = perceptron(x.shape[1], self.hidden).double()
        paper_initialization(network, torch.Generator().manual_seed(self.seed))
        embedding = MulticlassEmbedding(FeatureKernel(network), len(self.classes_), self.regularization).double()
        optimizer = Adam(self.num_epochs, self.learning_rate)
        self.result_ = fit(embedding, self._objective(), x, labels, optimizer=optimizer, progress=False)
        embedding.eval()
        with torch.no_grad():
            self.conditioned_ = embedding.condition(x, labels)
            self.calibration_ = calibrate(self.conditioned_.leave_one_out(), self.conditioned_.Y)
        return self

    def _objective(self) -> Objective[ConditionedMulticlass]:
        if self.objective == "paper":
            return EmpiricalRisk(below="linear", epsilon=1e-3) + RademacherComplexity("4e/n")
        return CalibratedLeaveOneOutRisk() + RademacherComplexity("1/n")

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Calibrated probabilities of ``classes_``."""
        x = torch.as_tensor(np.asarray(X, dtype=np.float64))
        with torch.no_grad():
            probabilities = self.calibration_.probabilities(self.conditioned_.decision_probabilities(x))
        return probabilities.numpy()
