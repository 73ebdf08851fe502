"""Predictions of each kind of embedding, with the hyperparameters integrated out."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor

from ..embeddings import (
    ConditionalPredictor,
    ConditionedEmbedding,
    ConditionedMeanEmbedding,
    ConditionedMulticlass,
    MulticlassPredictor,
    Witness,
    clip_normalize,
)
from ..embeddings.distribution import Distribution, resampled_rows, support_of
from ..objectives import Objective, calibrate
from ..validation import check_features, check_share
from .posterior import Posterior
from .potential import quiet_numbers

MulticlassObjective: TypeAlias = Objective[ConditionedMulticlass]
ConditionalObjective: TypeAlias = Objective[ConditionedEmbedding]
MeanObjective: TypeAlias = Objective[ConditionedMeanEmbedding]


class ConditionalPosterior(Posterior, ConditionalPredictor):
    """A posterior over the hyperparameters of a :class:`kernel_embed.ConditionalEmbedding`.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, embedding = torch.rand(20, 1).double(), ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel())
        >>> posterior = ke.sample_posterior(embedding, ke.LeaveOneOutScore(), x, x[:, 0], sampler=ke.Laplace())
        >>> posterior.mean(x[:3]).shape
        torch.Size([3, 1])
    """

    def mean(self, x: Tensor) -> Tensor:
        """E[Y | X = x], averaged over draws: ``(t, m)``."""
        return self.average(lambda conditioned: conditioned.mean(x))

    def distribution(self, x: Tensor) -> Distribution:
        """P(Y | X = x) of a real target: the distribution functions averaged over draws."""
        return Distribution(self._support, self.average(lambda conditioned: conditioned.distribution(x).F))

    def expectation(self, g: Callable[[Tensor], Tensor] | Tensor, x: Tensor) -> Tensor:
        """E[g(Y) | X = x], eq. (2), averaged over draws; g as for one conditioned embedding."""
        return self.average(lambda conditioned: conditioned.expectation(g, x))

    def row_weights(self, x: Tensor) -> Tensor:
        """w(x) = A⁻¹k(x), the weights of the training rows, averaged over draws: ``(n, t)``."""
        return self.average(lambda conditioned: conditioned.weights(x))

    def sample_rows(self, k: int, x: Tensor, seed: int | None = None) -> Tensor:
        """k training rows for each point, ``(t, k)``, drawn as by one embedding; ``y[rows]`` are draws of Y."""
        return resampled_rows(self.row_weights(x), k, seed)

    def leave_one_out_distribution(self) -> Distribution:
        """P(Y | X = x_i) of a real target without row i, averaged over draws, which themselves depend on all rows."""
        F = self.average(lambda conditioned: conditioned.leave_one_out_distribution().F)
        return Distribution(self._support, F)

    @property
    def _support(self) -> Tensor:
        y = self.potential.y
        assert y is not None  # a conditional embedding has targets
        return support_of(y.reshape(-1).to(self.potential.x))


class EntropyParts(NamedTuple):
    """The entropy of Y given X = x in nats, ``(t,)`` each; ``total`` is the sum of the other two."""

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor


class MulticlassPosterior(MulticlassPredictor, ConditionalPosterior):
    """A posterior over the hyperparameters of a :class:`kernel_embed.MulticlassEmbedding`: an averaged classifier.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.rand(20, 1, dtype=torch.float64), torch.arange(20) % 2
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> posterior = ke.sample_posterior(embedding, ke.LeaveOneOutRisk(), x, y, num_samples=10, sampler=ke.Laplace())
        >>> posterior.probabilities(x[:3]).shape
        torch.Size([3, 2])
    """

    @property
    def num_classes(self) -> int:
        """m, the number of classes."""
        return int(self.potential.embedding.num_classes)

    def probabilities_of_draws(self, x: Tensor, calibrated: bool = False) -> Tensor:
        """The probabilities of every draw: ``(S, t, m)``.

        By eq. (6), or if ``calibrated`` by :func:`kernel_embed.objectives.calibrate` on leave-one-out values.
        """

        def predict(conditioned: ConditionedMulticlass) -> Tensor:
            F = conditioned.decision_probabilities(x)
            if not calibrated:
                return clip_normalize(F)
            return calibrate(conditioned.leave_one_out(), conditioned.Y).probabilities(F)

        return self.each(predict)

    def probabilities(self, x: Tensor, calibrated: bool = False) -> Tensor:
        """The probabilities averaged over draws: ``(t, m)``; see :meth:`probabilities_of_draws`."""
        return self.weighted_average(self.probabilities_of_draws(x, calibrated))

    def predict(self, x: Tensor) -> Tensor:
        """The class with the largest averaged probability: ``(t,)``."""
        return self.probabilities(x).argmax(dim=-1)

    def entropy_parts(self, x: Tensor, calibrated: bool = False) -> EntropyParts:
        """The entropy in nats, ``(t,)`` each: ``total`` is that of the averaged probabilities.

        ``aleatoric``, the mean over draws of each draw's entropy, would remain if the kernel were known; ``epistemic``,
        the rest, is the information that y would give about the hyperparameters.
        """
        p = self.probabilities_of_draws(x, calibrated)
        total = torch.special.entr(self.weighted_average(p)).sum(-1)
        aleatoric = self.weighted_average(torch.special.entr(p).sum(-1))
        return EntropyParts(total, aleatoric, total - aleatoric)


class GaussianMixture(NamedTuple):
    r"""Gaussians ``(S, t)`` with weights w, and ``matched``, the Gaussian with their first two moments.

    .. math::  m = \sum_s w_s m_s, \qquad C = \sum_s w_s (C_s + m_s m_s^\top) - m m^\top .
    """

    means: Tensor
    variances: Tensor
    weights: Tensor
    matched: MultivariateNormal

    def band(self, level: float = 0.8) -> tuple[Tensor, Tensor]:
        """The lower and upper end of the central interval of probability ``level`` at each point."""
        check_share("level", level, "Give 0.8, for example.")
        return self.quantile(0.5 - 0.5 * level), self.quantile(0.5 + 0.5 * level)

    def quantile(self, probability: float) -> Tensor:
        """The quantile of the mixture at each point, by bisection."""
        check_share("probability", probability, "Give 0.5 for the median.")
        deviations = self.variances.clamp_min(torch.finfo(self.means.dtype).tiny).sqrt()
        reach = (
            abs(torch.special.ndtri(torch.tensor(probability, dtype=torch.float64, device="cpu")).item()) * deviations
        )
        low, high, w = (self.means - reach).amin(dim=0), (self.means + reach).amax(dim=0), self.weights.to(self.means)
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = torch.tensordot(w, torch.special.ndtr((middle - self.means) / deviations), dims=1) > probability
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        quantile: Tensor = 0.5 * (low + high)
        return quantile


def gaussian_mixture(parts: Iterable[MultivariateNormal], weights: Tensor) -> GaussianMixture:
    """The mixture of the Gaussians of all draws, which come in batches."""
    means, variances, start = [], [], 0
    m = second = torch.zeros((), device="cpu")
    with torch.no_grad(), quiet_numbers():
        for part in parts:
            mean, covariance = part.mean, part.covariance_matrix
            if mean.dim() > 2:
                shape = tuple(mean.shape[1:-1])
                raise ValueError(f"The kernel has the batch shape {shape}. Sample one kernel at a time.")
            if mean.dim() == 1:
                mean, covariance = mean[None], covariance[None]
            w = weights[start : start + len(mean)].to(mean)
            start += len(mean)
            means.append(mean)
            variances.append(covariance.diagonal(dim1=-2, dim2=-1))
            m = m + torch.tensordot(w, mean, dims=1)
            second = second + torch.tensordot(w, covariance, dims=1) + mean.mT @ (w.unsqueeze(-1) * mean)
    matched = MultivariateNormal(m, to_linear_operator(second - torch.outer(m, m)))
    return GaussianMixture(torch.cat(means), torch.cat(variances), weights, matched)


class FunctionPosterior(abc.ABC):
    """A function with a Gaussian for each draw: a mean embedding, or a witness function."""

    @abc.abstractmethod
    def mixture(self, x: Tensor) -> GaussianMixture:
        """The function at the points ``x`` ``(t, d)``: one Gaussian for each draw."""

    def __call__(self, x: Tensor) -> MultivariateNormal:
        """The Gaussian with the mean and the covariance of :meth:`mixture`."""
        return self.mixture(x).matched

    def band(self, x: Tensor, level: float = 0.8) -> tuple[Tensor, Tensor]:
        """The central interval of probability ``level`` of the mixture, at each point."""
        return self.mixture(x).band(level)


class MeanPosterior(FunctionPosterior, Posterior):
    """A posterior over the hyperparameters of a :class:`kernel_embed.BayesianMeanEmbedding`.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> x = torch.randn(20, 1, dtype=torch.float64)
        >>> posterior = ke.sample_posterior(embedding, ke.EmbeddingEvidence(), x, num_samples=10, sampler=ke.Laplace())
        >>> posterior.witness(x[:10], x[10:])(x[:3]).mean.shape
        torch.Size([3])
    """

    def mixture(self, x: Tensor) -> GaussianMixture:
        """The posterior of μ at the points ``x`` ``(t, d)``: one Gaussian for each draw."""
        return gaussian_mixture((c(x) for c in self.conditioned()), self.weights)

    def mean(self, x: Tensor) -> Tensor:
        """The mean of μ at ``x``, averaged over draws: ``(t,)``."""
        return self.average(lambda conditioned: conditioned.mean(x))

    def witness(self, x: Tensor, y: Tensor) -> FunctionPosterior:
        """μ_P − μ_Q for samples ``x`` of P and ``y`` of Q, with the hyperparameters integrated out.

        Raises:
            TypeError: if a sample is not a tensor of real numbers.
            ValueError: if a sample is empty or not finite.
        """
        return WitnessPosterior(self, check_features(x, "x"), check_features(y, "y"))


class WitnessPosterior(FunctionPosterior):
    """The witness of samples x of P and y of Q."""

    def __init__(self, posterior: MeanPosterior, x: Tensor, y: Tensor) -> None:
        self.posterior, self.x, self.y = posterior, x, y

    def mixture(self, x: Tensor) -> GaussianMixture:
        """The witness at the points ``x`` ``(t, d)``: one Gaussian for each draw."""
        witnesses = (Witness(embedding, self.x, self.y)(x) for embedding in self.posterior.embeddings())
        return gaussian_mixture(witnesses, self.posterior.weights)
