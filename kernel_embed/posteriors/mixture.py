r"""Mixtures over draws: quantiles and moments of Gaussian mixtures, and the weights of chains in different modes.

The weight of a mode is its evidence Z, by bridge sampling (Meng and Wong, 1996). With draws :math:`u_i` of a mode of
the unnormalized density q and :math:`\tilde u_j` of a Gaussian g fitted to other draws of it, Z solves

.. math::  Z = \frac{\frac1{N_2} \sum_j h(\tilde u_j)\, q(\tilde u_j)}{\frac1{N_1} \sum_i h(u_i)\, g(u_i)}, \qquad
           h = \frac{1}{N_1 q / Z + N_2 g} .
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor

from ..learning.parameters import Vector
from ..validation import check_share
from .diagnostics import modes
from .potential import Potential, quiet_numbers


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


def mode_weights(potential: Potential, u: Tensor, log_density: Tensor, seed: int = 0) -> Tensor:
    """Weights ``(num_chains * num_samples,)`` of draws ``u`` ``(num_chains, num_samples, dimension)``.

    Chains that overlap share a mode; the weight of a mode is its evidence, shared equally by its draws.
    """
    groups = modes(u)
    evidences = [log_evidence(potential, u[g].flatten(0, 1), log_density[g].flatten(), seed) for g in groups]
    shares = torch.tensor(evidences, dtype=torch.float64).softmax(0)
    weights = torch.zeros(u.shape[:2], dtype=torch.float64)
    for share, group in zip(shares, groups, strict=True):
        weights[group] = share / (len(group) * u.shape[1])
    return weights.reshape(-1)


def log_evidence(potential: Potential, u: Tensor, log_density: Tensor, seed: int = 0) -> float:
    """log Z, Z = ∫ exp(−U) du over the mode that the draws ``u`` ``(S, dimension)`` come from.

    As in ``Posterior.log_evidence``, priors are not renormalized.
    """
    if u.shape[0] < 8:
        raise ValueError(f"The evidence of a mode needs at least 8 draws, got {u.shape[0]}. Raise num_samples.")
    # Every other draw fits the Gaussian, the rest are compared with it.
    fitting, points, q1 = u[::2].numpy(), u[1::2].numpy(), log_density[1::2].numpy()
    mean = fitting.mean(axis=0)
    covariance = np.atleast_2d(np.cov(fitting.T))
    covariance = covariance + 1e-9 * max(np.trace(covariance), 1e-9) * np.eye(len(mean))
    factor = np.linalg.cholesky(covariance)
    z = np.random.default_rng(seed).standard_normal(points.shape)
    proposals = mean + z @ factor.T
    q2 = np.array([-potential.value(point) for point in proposals])
    return _bridge(q1 - _log_gaussian(points, mean, factor), q2 - _log_gaussian(proposals, mean, factor))


def _bridge(l1: Vector, l2: Vector) -> float:
    """The fixed point in log Z, for log q/g at draws of q (``l1``) and of g (``l2``)."""
    log_n1, log_n2 = math.log(len(l1)), math.log(len(l2))
    log_z = float(np.median(l1))
    for _ in range(1000):
        upper = np.logaddexp.reduce(l2 - np.logaddexp(log_n1 + l2 - log_z, log_n2)) - log_n2
        lower = np.logaddexp.reduce(-np.logaddexp(log_n1 + l1 - log_z, log_n2)) - log_n1
        before, log_z = log_z, float(upper - lower)
        if abs(log_z - before) < 1e-10:
            break
    return log_z


def _log_gaussian(u: Vector, mean: Vector, factor: Vector) -> Vector:
    z = np.linalg.solve(factor, (u - mean).T)
    constant = np.log(np.diag(factor)).sum() + 0.5 * len(mean) * math.log(2.0 * math.pi)
    density: Vector = -0.5 * np.square(z).sum(axis=0) - constant
    return density
