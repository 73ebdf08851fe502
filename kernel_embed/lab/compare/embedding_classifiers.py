"""Classifiers of this library: how their kernel starts, the paper's procedures, and an average over a posterior."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from gpytorch.priors import LogNormalPrior
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor, nn

from ... import objectives
from ...embeddings import BayesianMeanEmbedding, ConditionedMulticlass, MulticlassEmbedding
from ...estimators import MulticlassEmbeddingClassifier
from ...kernels import DiscreteMeasure, FeatureKernel, default_kernel, log_scaled, set_lengthscales_by_median
from ...learning import Adam, fit, local_maxima
from ...objectives import EmpiricalRisk, Objective, RademacherComplexity

if TYPE_CHECKING:
    from ...posteriors.sample import Settings

Make = Callable[..., Kernel]
Array = NDArray[np.float64]
SMOOTHNESS: dict[str, float | None] = {"rbf": None, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
"""Names for ``--kernel``: the squared exponential, and the Matérn kernels."""
EVIDENCE_ROWS = 400
"""With more rows, the evidence of the inputs is that of a part of them, on 256 atoms."""


def kernel_class(name: str = "rbf") -> Make:
    """The GPyTorch kernel class of a name in :data:`SMOOTHNESS`."""
    if name not in SMOOTHNESS:
        raise ValueError(f"There is no kernel {name!r}. Choose among {', '.join(SMOOTHNESS)}.")
    smoothness = SMOOTHNESS[name]
    return RBFKernel if smoothness is None else partial(MaternKernel, smoothness)


def scaled_kernel(x: Tensor, make: Make = RBFKernel) -> Kernel:
    """A kernel with the ARD lengthscales and their prior of :func:`default_kernel`."""
    template = default_kernel(x)
    options = {"lengthscale_prior": template.lengthscale_prior, "lengthscale_constraint": log_scaled()}
    kernel = make(ard_num_dims=x.shape[-1], **options).to(x)
    kernel.lengthscale = template.lengthscale.detach()
    return kernel


def paper_kernel(x: Tensor, make: Make = RBFKernel) -> Kernel:
    """ARD with all lengthscales 1, as section 5 of the paper starts it, and no prior."""
    kernel = make(ard_num_dims=x.shape[-1], lengthscale_constraint=log_scaled()).to(x)
    kernel.lengthscale = 1.0
    return kernel


def median_kernel(x: Tensor, make: Make = RBFKernel) -> Kernel:
    """Isotropic, fixed at the median distance."""
    return set_lengthscales_by_median(make().to(x), x).requires_grad_(False)


def evidence_kernel(x: Tensor, make: Make = RBFKernel) -> Kernel:
    """Isotropic, fixed at the highest maximum of the evidence of the inputs alone, eq. (13) of the BKL paper."""
    embedding, objective = inputs_model(x, make)
    maxima = local_maxima(embedding, objective, x, num_points=20, progress=False)
    if not maxima:
        raise ValueError("The evidence of the inputs has no maximum. Scale the columns alike.")
    kernel: Kernel = maxima[0].embedding.kernel
    return kernel.requires_grad_(False)


def inputs_model(x: Tensor, make: Make = RBFKernel) -> tuple[BayesianMeanEmbedding, objectives.EmbeddingEvidence]:
    """The Bayesian embedding of the inputs and its evidence, on a part of the rows if there are many."""
    kernel = make(lengthscale_constraint=log_scaled()).to(x)
    if len(x) <= EVIDENCE_ROWS:
        return BayesianMeanEmbedding(kernel), objectives.EmbeddingEvidence()
    measure = DiscreteMeasure.from_sample(x, 256)
    return BayesianMeanEmbedding(kernel, measure=measure), objectives.EmbeddingEvidence(num_locations=EVIDENCE_ROWS)


def paper(objective: Objective[ConditionedMulticlass], make: Make = RBFKernel) -> MulticlassEmbeddingClassifier:
    """The paper's model under ``objective``: λ starts at 1, probabilities are those of eq. (6)."""
    return MulticlassEmbeddingClassifier(
        partial(paper_kernel, make=make), objective, regularization=1.0, calibrated=False, progress=False
    )


def tensor(values: ArrayLike) -> Tensor:
    """Numbers in float64, copied."""
    return torch.tensor(np.asarray(values, dtype=np.float64))


class MostProbable(ClassifierMixin, BaseEstimator):
    """A classifier whose ``predict`` follows from ``classes_`` and ``predict_proba``."""

    classes_: NDArray[Any]

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable labels."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


NETWORK_OBJECTIVE = EmpiricalRisk(epsilon=1e-3, below="linear") + RademacherComplexity("4e/n")
"""The paper's objective, extrapolated below ε so that every row keeps a gradient."""
CEN_1, CEN_2 = (16, 32, 8), (96, 32)
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
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise([d, *hidden]):
        layers += [nn.Linear(before, after, dtype=torch.float32), nn.ReLU()]  # the same weights with any default dtype
    return nn.Sequential(*layers)


class PaperClassifier(MostProbable):
    """A multiclass embedding learned as in section 5 of the paper, by Adam.

    With ``hidden`` units it is a conditional embedding network, a perceptron with a linear kernel on top, and its
    probabilities are calibrated. Without them it has a lengthscale for each column, from ones, and the probabilities of
    eq. (6). An epoch has ``batches`` steps: 1 for all rows at every step (GMCE), 10 for a tenth of them (GMCE-SGD).
    """

    def __init__(
        self, hidden: Sequence[int] = (), num_steps: int = 1000, learning_rate: float = 0.1, batches: int = 1
    ) -> None:
        self.hidden, self.num_steps, self.learning_rate, self.batches = hidden, num_steps, learning_rate, batches

    def fit(self, X: ArrayLike, y: ArrayLike) -> PaperClassifier:
        """Learn kernel and λ jointly."""
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        x, labels = tensor(X), torch.as_tensor(numbers)
        options: dict[str, Any] = {"seed": 0}
        if self.hidden:
            network = perceptron(x.shape[1], self.hidden).double()
            paper_initialization(network, torch.Generator().manual_seed(0))
            # From the paper's λ = 1 the complexity outweighs the risk of the first features, which are small, and on
            # some data learning ends where they are zero.
            embedding = MulticlassEmbedding(FeatureKernel(network), len(self.classes_), 0.01).double()
            objective = NETWORK_OBJECTIVE
            options["early_stopping"] = False  # learned from all rows, as in the paper
        else:
            embedding = MulticlassEmbedding(paper_kernel(x), len(self.classes_), regularization=1.0).to(x)
            objective = EmpiricalRisk() + RademacherComplexity("4e/n")
        size = None if self.batches == 1 else max(len(x) // self.batches, 2)
        optimizer = Adam(max(self.num_steps // self.batches, 1), self.learning_rate, batch_size=size)
        self.result_ = fit(embedding, objective, x, labels, optimizer=optimizer, progress=False, **options)
        embedding.eval()
        with torch.no_grad():
            self.conditioned_ = embedding.condition(x, labels)
            if self.hidden:
                self.calibration_ = objectives.calibrate(self.conditioned_.leave_one_out(), self.conditioned_.Y)
        return self

    @torch.no_grad()
    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities of ``classes_``."""
        if not self.hidden:
            return self.conditioned_.probabilities(tensor(X)).numpy()
        return self.calibration_.probabilities(self.conditioned_.decision_probabilities(tensor(X))).numpy()


FLAT = 6.0
"""Standard deviation of log λ for a nearly flat prior: a factor of 400 in both directions."""


class PosteriorAverageClassifier(MostProbable):
    """Learns by optimization, then runs NUTS from there; calibrated probabilities are averaged over ``draws_``.

    The posterior is that of :class:`kernel_embed.ConditionalEvidence` by default, in one chain. With ``powers``, one of
    these powers of the density is chosen by :func:`kernel_embed.posteriors.choose_power`.
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

        objective = objectives.ConditionalEvidence() if self.objective is None else self.objective
        start = MulticlassEmbeddingClassifier(self.kernel, objective, progress=False).fit(X, y)
        self.classes_ = start.classes_
        learned = start.embedding_.regularization.detach().clone()
        # λ has no registered prior. The default prior is centered at its current value: use that before learning.
        start.embedding_.regularization = start.regularization
        sampler = NUTS(max_tree_depth=self.max_tree_depth, parallel=False)
        settings: Settings = {"num_samples": self.num_samples, "warmup_steps": self.warmup_steps, "num_chains": 1}
        settings |= {"seed": 0, "initial": {"regularization": learned}, "sampler": sampler, "progress": False}
        data = tensor(X), torch.tensor(np.searchsorted(start.classes_, np.asarray(y)))
        if self.powers:
            # The point estimate has no prior on λ. A prior that the power sharpens would move the mode away from it.
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

    @torch.no_grad()
    def predict_proba(self, X: ArrayLike) -> Array:
        """Probabilities calibrated for each draw and averaged."""
        return np.asarray(self.posterior_.probabilities(tensor(X), calibrated=True).cpu().numpy())
