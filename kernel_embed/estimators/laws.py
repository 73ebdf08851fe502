"""How the experts of the regressor are learned: a common lengthscale first, then one for each input."""

from __future__ import annotations

import copy
import dataclasses
from typing import Literal

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from ..embeddings import ConditionalEmbedding, ConditionedEmbedding, LinearAnswers
from ..kernels import default_kernel, feature_ranges, log_scaled
from ..kernels.features import nystrom_kernel
from ..learning import fit
from ..objectives import LeaveOneOutScore, Objective
from ..scale import accumulate
from .experts import DirectExpert, Expert, ShiftedExpert

Family = Literal["rbf", "matern12"]

FAMILIES: tuple[Family, ...] = ("rbf", "matern12")
"""Smooth and rough: the mixture decides between them."""

ISOTROPIC_EVALUATIONS = 25
LAW_EVALUATIONS = 20
SIZE_EVALUATIONS, SIZE_ROWS = 10, 10_000

REGULARIZATION = (1e-9, 10.0)
"""Bounds of λ. Well below the upper one GPyTorch's interval is logarithmic in its raw parameter."""

DATA_WEIGHT = 0.3
"""Of the score against the priors of lengthscales. With 1 the score at left-out rows was up to 15 % below that at new
rows, and intervals corrected by it covered too little; between 0.1 and 1 the score at new rows hardly changed."""

START: dict[Family, float] = {"rbf": 1.0, "matern12": 3.0}
"""Of the default lengthscale: a rougher kernel reaches as far with a longer one."""


def family_kernel(family: Family, x: Tensor, lengthscale: float | None = None) -> Kernel:
    """The kernel of a family, one lengthscale for each input with the prior of :func:`kernel_embed.default_kernel`."""
    smooth = default_kernel(x, lengthscale)
    if family == "rbf":
        return smooth
    prior = copy.deepcopy(smooth.lengthscale_prior)
    rough = MaternKernel(0.5, ard_num_dims=x.shape[-1], lengthscale_prior=prior, lengthscale_constraint=log_scaled())
    rough.to(x).lengthscale = smooth.lengthscale.detach()
    return rough


def regularized(kernel: Kernel, regularization: float) -> ConditionalEmbedding:
    """An embedding whose λ stays inside bounds: on targets of pure noise it would otherwise run to infinity."""
    low, high = REGULARIZATION
    constraint = Interval(low, high)
    start = min(max(regularization, 2.0 * low), 0.5 * high)
    return ConditionalEmbedding(kernel, start, regularization_constraint=constraint).double()


@dataclasses.dataclass(frozen=True)
class Learned:
    """Embeddings of the targets, of the targets for their mean, and of the residuals of that mean.

    Attributes:
        num_rows: on how many rows they were learned.
    """

    law: ConditionalEmbedding
    mean: ConditionalEmbedding
    noise: ConditionalEmbedding
    num_rows: int

    @torch.no_grad()
    def experts(self, x: Tensor, y: Tensor) -> list[Expert]:
        """The direct and the shifted expert, conditioned on all rows of ``x`` and ``y``."""
        law, mean, noise = (self._at(embedding, len(y)) for embedding in (self.law, self.mean, self.noise))
        known = mean.condition(x, y)
        residuals = y - known.leave_one_out().squeeze(-1)
        return [DirectExpert(law.condition(x, y)), ShiftedExpert(known, noise.condition(x, residuals))]

    def _at(self, embedding: ConditionalEmbedding, n: int) -> ConditionalEmbedding:
        """With λ for n rows. A = K + nλI: the ridge found on fewer rows is a better guess for all than their λ."""
        return regularized(embedding.kernel, embedding.regularization.item() * self.num_rows / n)


@dataclasses.dataclass(frozen=True)
class Learner:
    """Learns experts of one family on one view of the inputs.

    Attributes:
        family: of the kernel.
        max_evaluations: of each stage.
        regularization: the λ from which learning starts.
        progress: show progress bars.
    """

    family: Family
    max_evaluations: int
    regularization: float = 0.01
    progress: bool | None = None

    def __call__(self, x: Tensor, y: Tensor) -> Learned:
        """What the direct and the shifted expert need, for targets ``y`` ``(n,)`` of mean 0 and scale 1."""
        crps, squares = LeaveOneOutScore(), LeaveOneOutScore(unit_linear(y))
        law = self.learned(x, y, crps, nats=1.0)
        mean = self.learned(x, y, squares, nats=0.5)
        with torch.no_grad():
            residuals = y - mean.condition(x, y).leave_one_out().squeeze(-1)
        return Learned(law, mean, self.relearned(law, x, residuals, crps), len(y))

    def learned(
        self, x: Tensor, y: Tensor, score: Objective[ConditionedEmbedding], nats: float
    ) -> ConditionalEmbedding:
        """An embedding that minimizes ``score``, from the best common lengthscale.

        The score is then divided by its value there: ``nats``·log score is what it is worth in nats for a datum, so
        that priors of lengthscales count as in a likelihood, but for :data:`DATA_WEIGHT`.
        """
        isotropic, value = self._isotropic(x, y, score)
        kernel = family_kernel(self.family, x, isotropic.kernel.lengthscale.item())
        embedding = regularized(kernel, isotropic.regularization.item())
        objective = score * (DATA_WEIGHT * nats / max(value, 1e-12))
        fit(embedding, objective, x, y, max_evaluations=self.max_evaluations, progress=self.progress)
        return embedding

    def _isotropic(
        self, x: Tensor, y: Tensor, score: Objective[ConditionedEmbedding]
    ) -> tuple[ConditionalEmbedding, float]:
        scaled = x / feature_ranges(x)
        centre = START[self.family] * default_kernel(scaled).lengthscale.detach().mean()
        prior = LogNormalPrior(centre.log() + 1.0, torch.ones_like(centre))
        options = {"lengthscale_prior": prior, "lengthscale_constraint": log_scaled()}
        kernel = RBFKernel(**options) if self.family == "rbf" else MaternKernel(0.5, **options)
        kernel.to(x).lengthscale = centre
        embedding = regularized(kernel, self.regularization)
        fit(
            embedding,
            score,
            scaled,
            y,
            max_evaluations=min(ISOTROPIC_EVALUATIONS, self.max_evaluations),
            tolerance=1e-3,
            progress=self.progress,
        )
        with torch.no_grad():
            return embedding, score(embedding, scaled, y).item()

    def relearned(
        self, embedding: ConditionalEmbedding, x: Tensor, y: Tensor, score: Objective[ConditionedEmbedding]
    ) -> ConditionalEmbedding:
        """The same relative lengthscales for other targets; their common size and λ are learned anew."""
        lengthscale = embedding.kernel.lengthscale.detach()
        kernel = RBFKernel(lengthscale_constraint=log_scaled(), lengthscale_prior=LogNormalPrior(1.0, 1.0))
        if self.family != "rbf":
            kernel = MaternKernel(0.5, lengthscale_constraint=log_scaled(), lengthscale_prior=LogNormalPrior(1.0, 1.0))
        kernel.to(x).lengthscale = 1.0
        common = regularized(kernel, embedding.regularization.item())
        fit(
            common,
            score,
            x / lengthscale,
            y,
            max_evaluations=min(LAW_EVALUATIONS, self.max_evaluations),
            tolerance=1e-3,
            progress=self.progress,
        )
        answer = regularized(copy.deepcopy(embedding.kernel), common.regularization.item())
        answer.kernel.lengthscale = lengthscale * kernel.lengthscale.detach()
        return answer


def unit_linear(like: Tensor) -> LinearKernel:
    """y·y′, with which the leave-one-out score is the squared error of the mean."""
    kernel = LinearKernel().to(like)
    kernel.variance = 1.0
    return kernel.requires_grad_(False)


def through_features(
    learned: Learned, x: Tensor, y: Tensor, part: Tensor, num_features: int, seed: int
) -> list[Expert]:
    """The experts conditioned on all rows through features of Nyström's method, learned on the rows ``part``.

    The distribution of residuals stays with those rows, whose mean is now the better one.
    """
    points = x[part[:num_features]]
    law = _through_features(learned.law, learned.num_rows, LeaveOneOutScore(), x, y, points, seed)
    squares = LeaveOneOutScore(unit_linear(y))
    mean = _through_features(learned.mean, learned.num_rows, squares, x, y, points, seed)
    with torch.no_grad():
        residuals = y[part] - mean.mean(x[part]).squeeze(-1)
        return [DirectExpert(law), ShiftedExpert(mean, learned.noise.condition(x[part], residuals))]


def _through_features(
    learned: ConditionalEmbedding,
    num_rows: int,
    score: Objective[ConditionedEmbedding],
    x: Tensor,
    y: Tensor,
    points: Tensor,
    seed: int,
) -> LinearAnswers:
    """All rows through features; λ is learned once more, on at most :data:`SIZE_ROWS` of them."""
    n = len(y)
    rows = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:SIZE_ROWS]
    kernel = nystrom_kernel(learned.kernel, points).requires_grad_(False)
    embedding = regularized(kernel, learned.regularization.item() * num_rows / len(rows))
    fit(embedding, score, x[rows], y[rows], max_evaluations=SIZE_EVALUATIONS, tolerance=1e-3, progress=False)
    embedding.regularization = embedding.regularization.detach() * (len(rows) / n)
    with torch.no_grad():
        return accumulate(embedding, x, y).condition(x, y)
