"""What a posterior answers: the questions of each kind of embedding, with the hyperparameters integrated out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor

from ..embeddings import MulticlassAnswers, Witness, clip_normalize
from ..objectives import calibrate
from ..validation import check_features
from .posterior import Posterior
from .samplers.nuts import quiet_numbers


class EntropyParts(NamedTuple):
    """The entropy of Y given X = x in nats, ``(t,)`` each; ``total`` is the sum of the other two.

    Attributes:
        total: of the averaged probabilities.
        aleatoric: the mean over draws of each draw's entropy: what would remain were the kernel known.
        epistemic: the information that y would give about the hyperparameters, never negative.
    """

    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor


class ConditionalPosterior(Posterior):
    """A posterior over the hyperparameters of a :class:`kernel_embed.ConditionalEmbedding`."""

    def expectation(self, g: Callable[[Tensor], Tensor] | Tensor, x: Tensor) -> Tensor:
        """E[g(Y) | X = x], eq. (2), averaged over draws; see :meth:`kernel_embed.ConditionedEmbedding.expectation`."""
        return self.average(lambda conditioned: conditioned.expectation(g, x))


class MulticlassPosterior(MulticlassAnswers, ConditionalPosterior):
    """A posterior over the hyperparameters of a :class:`kernel_embed.MulticlassEmbedding`: an averaged classifier."""

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        """m."""
        return int(self.potential.embedding.num_classes)

    def decision_probabilities(self, x: Tensor) -> Tensor:
        """Eq. (5) averaged over draws: ``(t, m)``."""
        return self.average(lambda conditioned: conditioned.decision_probabilities(x))

    def probabilities_of_draws(self, x: Tensor, calibrated: bool = False) -> Tensor:
        """The probabilities of every draw: ``(S, t, m)``.

        Args:
            x: points of shape ``(t, d)``.
            calibrated: those of :func:`kernel_embed.calibrate`, fitted on each draw's leave-one-out values, in place
                of the clip-normalised ones of eq. (6).
        """

        def question(conditioned: Any) -> Tensor:
            F = conditioned.decision_probabilities(x)
            if not calibrated:
                return clip_normalize(F)
            return calibrate(conditioned.leave_one_out(), conditioned.Y).probabilities(F)

        return self.each(question)

    def probabilities(self, x: Tensor, calibrated: bool = False) -> Tensor:
        """The probabilities averaged over draws: ``(t, m)``; see :meth:`probabilities_of_draws`."""
        return self.weighed(self.probabilities_of_draws(x, calibrated))

    def predict(self, x: Tensor) -> Tensor:
        """The class with the largest averaged probability: ``(t,)``."""
        return self.probabilities(x).argmax(dim=-1)

    def entropy_parts(self, x: Tensor, calibrated: bool = False) -> EntropyParts:
        """The entropy split into what is in the data and what is in not knowing the kernel."""
        p = self.probabilities_of_draws(x, calibrated)
        total = torch.special.entr(self.weighed(p)).sum(-1)
        aleatoric = self.weighed(torch.special.entr(p).sum(-1))
        return EntropyParts(total, aleatoric, total - aleatoric)


class MeanPosterior(Posterior):
    """A posterior over the hyperparameters of a :class:`kernel_embed.BayesianMeanEmbedding`."""

    def mixture(self, x: Tensor) -> GaussianMixture:
        """The posterior of μ at the points ``x`` ``(t, d)``: one Gaussian for each draw."""
        return gaussian_mixture((c(x) for c in self._conditioned()), self.weights)

    def __call__(self, x: Tensor) -> MultivariateNormal:
        """The Gaussian with the mean and the covariance of :meth:`mixture`."""
        return self.mixture(x).matched

    def posterior_mean(self, x: Tensor) -> Tensor:
        """The mean of μ at ``x``, averaged over draws: ``(t,)``."""
        return self.average(lambda conditioned: conditioned.mean(x))

    def band(self, x: Tensor, level: float = 0.8) -> tuple[Tensor, Tensor]:
        """The central interval of probability ``level`` of the mixture, at each point."""
        return self.mixture(x).band(level)

    def witness(self, x: Tensor, y: Tensor) -> WitnessPosterior:
        """μ_P − μ_Q for samples ``x`` of P and ``y`` of Q, with the hyperparameters integrated out."""
        return WitnessPosterior(self, x, y)


class WitnessPosterior:
    """The witness function averaged over draws; made by :meth:`kernel_embed.MeanPosterior.witness`."""

    def __init__(self, posterior: MeanPosterior, x: Tensor, y: Tensor) -> None:
        self.posterior, self.x, self.y = posterior, check_features(x, "x"), check_features(y, "y")

    def mixture(self, points: Tensor) -> GaussianMixture:
        """The witness at ``points`` ``(t, d)``: one Gaussian for each draw."""
        witnesses = (Witness(embedding, self.x, self.y)(points) for embedding in self.posterior.embeddings())
        return gaussian_mixture(witnesses, self.posterior.weights)

    def __call__(self, points: Tensor) -> MultivariateNormal:
        """The Gaussian with the mean and the covariance of :meth:`mixture`."""
        return self.mixture(points).matched

    def band(self, points: Tensor, level: float = 0.8) -> tuple[Tensor, Tensor]:
        """The central interval of probability ``level`` of the mixture, at each point."""
        return self.mixture(points).band(level)


class GaussianMixture(NamedTuple):
    r"""Gaussians with weights w: at each point, and together by their first two moments.

    .. math::  m = \sum_s w_s m_s, \qquad C = \sum_s w_s (C_s + m_s m_s^\top) - m m^\top .

    Attributes:
        means: ``(S, t)``.
        variances: ``(S, t)``.
        weights: ``(S,)``.
        matched: the Gaussian with mean m and covariance C.
    """

    means: Tensor
    variances: Tensor
    weights: Tensor
    matched: MultivariateNormal

    def band(self, level: float = 0.8) -> tuple[Tensor, Tensor]:
        """The lower and upper end of the central interval of probability ``level`` at each point."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"Expected a level between 0 and 1, got {level}.")
        return self.quantile(0.5 - 0.5 * level), self.quantile(0.5 + 0.5 * level)

    def quantile(self, probability: float) -> Tensor:
        """Where the distribution function of the mixture reaches ``probability``, at each point, by bisection."""
        deviations = self.variances.clamp_min(torch.finfo(self.means.dtype).tiny).sqrt()
        reach = abs(torch.special.ndtri(torch.tensor(probability, dtype=torch.float64)).item())
        low, high = ((self.means + sign * reach * deviations) for sign in (-1.0, 1.0))
        low, high = low.amin(dim=0), high.amax(dim=0)
        w = self.weights.to(self.means)
        for _ in range(60):
            middle = 0.5 * (low + high)
            above = torch.tensordot(w, torch.special.ndtr((middle - self.means) / deviations), dims=1) > probability
            low, high = torch.where(above, low, middle), torch.where(above, middle, high)
        quantile: Tensor = 0.5 * (low + high)
        return quantile


def gaussian_mixture(parts: Iterable[MultivariateNormal], weights: Tensor) -> GaussianMixture:
    """The mixture of the Gaussians of all draws, which come in batches."""
    means, variances, start = [], [], 0
    m = second = torch.zeros(())
    with torch.no_grad(), quiet_numbers():
        for part in parts:
            mean, covariance = part.mean, part.covariance_matrix
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
