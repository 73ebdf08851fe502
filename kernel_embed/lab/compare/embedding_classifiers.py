"""Further classifiers of this library: the paper's networks, and an average over a posterior."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.priors import LogNormalPrior
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ...embeddings import ConditionedMulticlass, MulticlassEmbedding
from ...estimators import MulticlassEmbeddingClassifier
from ...kernels import FeatureKernel
from ...learning import Adam, fit
from ...objectives import (
    CalibratedLeaveOneOutRisk,
    ConditionalEvidence,
    EmpiricalRisk,
    Objective,
    RademacherComplexity,
    calibrate,
)
from .classifiers import MostProbable

if TYPE_CHECKING:
    from ...posteriors.sample import Settings

NETWORK_OBJECTIVES: dict[str, Objective[ConditionedMulticlass]] = {
    "paper": EmpiricalRisk(epsilon=1e-3, below="linear") + RademacherComplexity("4e/n"),
    "leave-one-out": CalibratedLeaveOneOutRisk() + RademacherComplexity("1/n"),
}
"""The paper's objective, extrapolated below ε so that every row keeps a gradient, and that of the library."""
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
    """Fully connected layers with ReLU after each; the last hidden layer is the features."""
    widths = [d, *hidden]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after, dtype=torch.float32), nn.ReLU()]  # the same weights with any default dtype
    return nn.Sequential(*layers)


def convolutional() -> nn.Sequential:
    """Two 5 × 5 convolutions of 32 and 64 channels, each with pooling, then 1024 units with dropout ½; for MNIST."""
    return nn.Sequential(
        nn.Unflatten(-1, (1, 28, 28)),
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(7 * 7 * 64, 1024), nn.ReLU(), nn.Dropout(0.5),
    )  # fmt: skip


class NetworkClassifier(MostProbable):
    """A conditional embedding network: a perceptron with a linear kernel on top, learned with all rows at each step.

    λ starts at 0.01. From the paper's 1 the complexity outweighs the risk of the first features, which are small; on
    some data learning ends where they are zero.

    Args:
        hidden: units of the layers.
        num_epochs: steps of Adam; the paper's 1000 overfit small data here.
        learning_rate: of Adam; the paper has 0.1.
    """

    def __init__(self, hidden: Sequence[int] = CEN_1, num_epochs: int = 300, learning_rate: float = 0.01) -> None:
        self.hidden, self.num_epochs, self.learning_rate = hidden, num_epochs, learning_rate

    def fit(self, X: ArrayLike, y: ArrayLike) -> NetworkClassifier:
        """Learn weights and λ jointly."""
        x = torch.as_tensor(np.asarray(X, dtype=np.float64))
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        labels = torch.as_tensor(numbers)
        network = perceptron(x.shape[1], self.hidden).double()
        paper_initialization(network, torch.Generator().manual_seed(0))
        embedding = MulticlassEmbedding(FeatureKernel(network), len(self.classes_), 0.01).double()
        optimizer = Adam(self.num_epochs, self.learning_rate)
        objective = NETWORK_OBJECTIVES["paper"]  # learned from all rows, as in the paper
        self.result_ = fit(embedding, objective, x, labels, optimizer=optimizer, early_stopping=False, progress=False)
        embedding.eval()
        with torch.no_grad():
            self.conditioned_ = embedding.condition(x, labels)
            self.calibration_ = calibrate(self.conditioned_.leave_one_out(), self.conditioned_.Y)
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Calibrated probabilities of ``classes_``."""
        x = torch.as_tensor(np.asarray(X, dtype=np.float64))
        with torch.no_grad():
            probabilities = self.calibration_.probabilities(self.conditioned_.decision_probabilities(x))
        return probabilities.numpy()


FLAT = 6.0
"""Standard deviation of log λ for a nearly flat prior: a factor of 400 in both directions."""


class PosteriorAverageClassifier(MostProbable):
    """Learns by optimization, then runs NUTS from there; calibrated probabilities are averaged over the draws.

    Args:
        kernel: see :class:`kernel_embed.MulticlassEmbeddingClassifier`.
        objective: of the posterior; :class:`kernel_embed.ConditionalEvidence` by default.
        num_samples: draws, of one chain.
        warmup_steps: draws before them, in which the sampler finds its step size.
        max_tree_depth: of NUTS; a draw takes at most 2 to this power evaluations.
        powers: choose among these powers of the density by :func:`kernel_embed.posteriors.choose_power`; none
            for the density itself.

    Attributes:
        posterior_: the posterior.
        draws_: the draws by name, as arrays.
        num_evaluations_: of the evidence with its gradient.
    """

    def __init__(
        self,
        kernel: Kernel | Callable[[Tensor], Kernel] | None = None,
        objective: Objective[ConditionedMulticlass] | None = None,
        *,
        num_samples: int = 30,
        warmup_steps: int = 30,
        max_tree_depth: int = 3,
        powers: Sequence[float] = (),
    ) -> None:
        self.kernel, self.objective, self.num_samples, self.warmup_steps = kernel, objective, num_samples, warmup_steps
        self.max_tree_depth, self.powers = max_tree_depth, powers

    def fit(self, X: ArrayLike, y: ArrayLike) -> PosteriorAverageClassifier:
        """Learn, then sample."""
        from ...posteriors import NUTS, choose_power, sample_posterior

        objective = ConditionalEvidence() if self.objective is None else self.objective
        start = MulticlassEmbeddingClassifier(self.kernel, objective, progress=False).fit(X, y)
        self.classes_ = start.classes_
        learned = start.embedding_.regularization.detach().clone()
        # λ has no prior of its own. The default one is around the value it has: that before learning, not after.
        start.embedding_.regularization = start.regularization
        settings: Settings = {
            "num_samples": self.num_samples,
            "warmup_steps": self.warmup_steps,
            "num_chains": 1,
            "seed": 0,
            "initial": {"regularization": learned},
            "sampler": NUTS(max_tree_depth=self.max_tree_depth, parallel=False),
            "progress": False,
        }
        data = (
            torch.tensor(np.asarray(X, dtype=np.float64)),
            torch.tensor(np.searchsorted(start.classes_, np.asarray(y))),
        )
        if self.powers:
            # The point estimate has no prior on λ. One that sharpens with the rest would move the mode away from it.
            flat = LogNormalPrior(math.log(start.regularization), FLAT)
            start.embedding_.register_prior("regularization_prior", flat, "regularization")
            choice = choose_power(start.embedding_, objective, *data, powers=self.powers, **settings)
            self.posterior_ = choice.posterior
        else:
            self.posterior_ = sample_posterior(start.embedding_, objective, *data, **settings)
        self.draws_ = {
            f"draws {name.rpartition('.')[-1]}": draws.detach().cpu().reshape(len(draws), -1).numpy()
            for name, draws in self.posterior_.samples.items()
        }
        learning = 0 if start.result_ is None else start.result_.num_evaluations
        self.num_evaluations_ = learning + self.posterior_.num_evaluations
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities calibrated for each draw and averaged."""
        with torch.no_grad():
            x = torch.tensor(np.asarray(X, dtype=np.float64))
            return np.asarray(self.posterior_.probabilities(x, calibrated=True).cpu().numpy())
