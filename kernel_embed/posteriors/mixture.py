"""Mixtures of Gaussians, one for each draw: quantiles at each point, and the first two moments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor

from ..validation import check_share
from .potential import quiet_numbers


class GaussianMixture(NamedTuple):
    r"""Gaussians with weights w, and the Gaussian with their first two moments.

    .. math::  m = \sum_s w_s m_s, \qquad C = \sum_s w_s (C_s + m_s m_s^\top) - m m^\top .

    Attributes:
        means: ``(S, t)``.
        variances: ``(S, t)``.
        weights: ``(S,)``.
        matched: the Gaussian with mean m and covariance C.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> x = torch.randn(20, 1, dtype=torch.float64)
        >>> posterior = ke.sample_posterior(embedding, ke.EmbeddingEvidence(), x, num_samples=10, sampler=ke.Laplace())
        >>> mixture = posterior.mixture(x[:3])
        >>> bool((mixture.quantile(0.1) < mixture.quantile(0.9)).all())
        True
    """

    means: Tensor
    variances: Tensor
    weights: Tensor
    matched: MultivariateNormal

    def band(self, level: float = 0.8) -> tuple[Tensor, Tensor]:
        """The lower and upper end of the central interval of probability ``level`` at each point.

        Raises:
            TypeError: if ``level`` is not a number.
            ValueError: if it is not between 0 and 1.
        """
        check_share("level", level, "Give 0.8, for example.")
        return self.quantile(0.5 - 0.5 * level), self.quantile(0.5 + 0.5 * level)

    def quantile(self, probability: float) -> Tensor:
        """The quantile of the mixture at each point, by bisection.

        Raises:
            TypeError: if ``probability`` is not a number.
            ValueError: if it is not between 0 and 1.
        """
        check_share("probability", probability, "Give 0.5 for the median.")
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
