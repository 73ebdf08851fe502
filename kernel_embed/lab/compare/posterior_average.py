"""Probabilities averaged over the posterior of the hyperparameters, as a scikit-learn classifier."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.priors import LogNormalPrior
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ...embeddings import ConditionedMulticlass
from ...estimators.classifier import MulticlassEmbeddingClassifier
from ...objectives import ConditionalEvidence, Objective
from .trees import MostProbable

if TYPE_CHECKING:
    from ...posteriors.sample import Settings

FLAT = 6.0
"""Standard deviation of log λ for a prior that does not matter: a factor of 400 either way."""


class PosteriorAverageClassifier(MostProbable):
    """Learned first, then NUTS from there; calibrated probabilities are averaged over the draws.

    Args:
        kernel: see :class:`kernel_embed.MulticlassEmbeddingClassifier`.
        objective: of the posterior; :class:`kernel_embed.ConditionalEvidence` by default.
        num_samples: draws, of one chain.
        warmup_steps: draws before them, in which the sampler finds its step size.
        max_tree_depth: of NUTS; a draw takes at most 2 to this power evaluations.
        temperature: of a Gibbs posterior.
        sharpnesses: choose among these powers of the density by :func:`kernel_embed.posteriors.choose_power`; none
            for the density itself.
        random_state: seed.

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
        temperature: float = 1.0,
        sharpnesses: Sequence[float] = (),
        random_state: int = 0,
    ) -> None:
        self.kernel = kernel
        self.objective = objective
        self.num_samples = num_samples
        self.warmup_steps = warmup_steps
        self.max_tree_depth = max_tree_depth
        self.temperature = temperature
        self.sharpnesses = sharpnesses
        self.random_state = random_state

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
            "seed": self.random_state,
            "initial": {"regularization": learned},
            "sampler": NUTS(max_tree_depth=self.max_tree_depth, parallel=False),
            "temperature": self.temperature,
            "progress": False,
        }
        data = (
            torch.tensor(np.asarray(X, dtype=np.float64)),
            torch.tensor(np.searchsorted(start.classes_, np.asarray(y))),
        )
        if self.sharpnesses:
            # What was learned has no prior on λ. One that sharpens with the rest would move the mode away from it.
            flat = LogNormalPrior(math.log(start.regularization), FLAT)
            start.embedding_.register_prior("regularization_prior", flat, "regularization")
            choice = choose_power(start.embedding_, objective, *data, sharpnesses=self.sharpnesses, **settings)
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
