r"""Two kinds of evidence: of the targets of a conditional embedding, and of a sample under the Bayesian mean embedding.

Each column of Y has the prior :math:`\mathcal N(0, A)`, whose posterior mean is the embedding of eq. (5) itself:

.. math::  -\log p(Y) = \tfrac12 \operatorname{tr}(Y^\top A^{-1} Y) + \tfrac m2 \log |A| + \tfrac{nm}2 \log 2\pi,
           \qquad A = K + n\lambda I .

The evidence of a sample, eq. (13), has the Jacobian of the link :math:`x \mapsto \hat\mu(x)` as a second term:

.. math::
    \log p(x_1, \dots, x_n \mid \theta)
        = \log \mathcal N\big([\hat\mu(x_1), \dots, \hat\mu(x_n)]; 0, R + \sigma^2 I\big) + \sum_i \log \gamma(x_i),
        \qquad \gamma(x) = \Big\lVert \frac{\partial \hat\mu}{\partial x} \Big\rVert .

For one squared exponential under Lebesgue measure, with :math:`k_{ij} = e^{-s_{ij}/2}`, :math:`t_i = \sum_j k_{ij}
(x_i - x_j)` and a dot for :math:`\partial/\partial \log \ell`,

.. math::
    \hat\mu_i &= \tfrac1n \sum_j k_{ij}, & \dot{\hat\mu}_i &= \tfrac1n \sum_j k_{ij} s_{ij}, \\
    \log \gamma_i &= \log \lVert t_i \rVert - 2 \log \ell - \log n, &
        \dot{\log \gamma_i} &= t_i^\top \dot t_i / \lVert t_i \rVert^2 - 2, \quad
        \dot t_i = \sum_j k_{ij} s_{ij} (x_i - x_j), \\
    R_{ij} &= \pi^{D/2} \ell^D e^{-s_{ij}/4}, & \dot R_{ij} &= R_{ij} (D + s_{ij} / 2) .
"""

from __future__ import annotations

import math

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ..embeddings import BayesianMeanEmbedding, ConditionedEmbedding, ConditionedMeanEmbedding
from ..kernels.radial import flushed_exp
from ..linalg.lapack import LapackFactorization
from ..validation import check_count, generator_of
from .base import Array, Objective, Targets


class ConditionalEvidence(Objective[ConditionedEmbedding]):
    """−log p(Y), the negative log evidence of the (one-hot) targets in nats, summed over data.

    Unlike the risks it identifies the kernel's outputscale: the prior variance of the targets.

    Example:
        >>> ConditionalEvidence()
        ConditionalEvidence()
    """

    per_datum = False
    identifies_scale = True
    is_log_likelihood = True
    inputs = ("negative_log_density",)

    def value_and_gradient(self, data: Targets, *inputs: Array) -> tuple[Array, tuple[Array, ...]]:
        """−log p(Y), which is the input itself, with derivative 1."""
        (value,) = inputs
        return value * 1.0, (value * 0.0 + 1.0,)


class EmbeddingEvidence(Objective[ConditionedMeanEmbedding]):
    """−log p(x₁, …, x_n | θ) in nats, eq. (13): the negative log evidence, summed over data.

    Args:
        num_locations: t, evaluate the likelihood at this many random rows of the sample, each against the whole sample;
            n/t times the value is unbiased for the evidence in which blocks of t rows are independent.
        seed: of the draw of these rows, by their numbers: shuffle pooled samples first.

    Raises:
        ValueError: if ``num_locations`` is below 2, or ``seed`` negative.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, embedding = torch.tensor([[0.0], [1.0]]), ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> round(EmbeddingEvidence()(embedding, x).item(), 3)
        4.166
    """

    per_datum = False
    identifies_scale = True
    is_log_likelihood = True
    _settings = ("num_locations", "seed")

    def __init__(self, num_locations: int | None = None, seed: int = 0) -> None:
        if num_locations is not None and num_locations < 2:
            raise ValueError(f"Expected num_locations of at least 2, got {num_locations}. Give None for all points.")
        self.num_locations = num_locations
        self.seed = check_count("seed", seed, 0, 2**64 - 1)  # a number: every evaluation takes the same rows

    def evaluate(self, attached: ConditionedMeanEmbedding) -> Tensor:
        """−log N(μ̂; 0, R + σ²I) − Σ log γ(x_i)."""
        if not isinstance(attached, ConditionedMeanEmbedding):
            kind = type(attached).__name__
            raise TypeError(f"Expected a BayesianMeanEmbedding conditioned on a sample, got {kind}.")
        if attached.num_data < 2:
            raise ValueError("Expected at least 2 points, got 1, whose density by eq. (13) is zero under every kernel.")
        if self.num_locations is not None and self.num_locations < len(attached.locations):
            order = torch.randperm(attached.num_data, generator=generator_of(self.seed), device="cpu")
            attached = attached.at(order[: self.num_locations].to(attached.x.device))
        attached.check_size()
        observed, log_slope = attached.empirical  # eq. (13); μ̂ comes with its slope
        return attached.negative_log_density(observed) - log_slope.sum(-1)

    def for_sample(self, embedding: BayesianMeanEmbedding, x: Tensor) -> SampleEvidence | None:
        """The same as a function of ℓ and σ² alone, for one lengthscale; ``None`` if it has no such form."""
        kernel = embedding.kernel
        plain = type(kernel) is RBFKernel and kernel.active_dims is None and kernel.lengthscale.numel() == 1
        lebesgue = embedding.measure is None and embedding.prior_covariance is None and embedding.noise_kind is None
        if not (plain and lebesgue) or self.num_locations is not None or len(x) < 2:
            return None
        evidence = SampleEvidence(x)
        return None if evidence.has_repeated_points else evidence


def prominent(values: list[float], prominence: float) -> list[int]:
    """The peaks of a curve with at least this ``prominence``: every path to a higher point descends by that much.

    Example:
        >>> prominent([0.0, 5.0, 4.0, 5.5, 0.0, 3.0, 1.0], prominence=2.0)
        [3, 5]
    """
    tops = []
    for i, value in enumerate(values):
        if not math.isfinite(value):
            continue
        drops = []
        for side in (values[i + 1 :], values[:i][::-1]):
            lowest = value
            for other in side:
                # of equal heights the first one counts
                if other > value or (other == value and values.index(value) < i):
                    drops.append(value - lowest)
                    break
                lowest = min(lowest, other)
        if all(drop >= prominence and drop > 0 for drop in drops):
            tops.append(i)
    return tops


FEWEST_DIGITS = 1e-10  # the smallest ‖t_i‖, relative to the terms of its sum, that is not rounding error
SMALLEST_WEIGHT = 1e-100  # the smallest Σ_j k_ij over the other points: below it sums of squares are near to underflow


class SampleEvidence:
    """q = −log p(x₁, …, x_n | ℓ, σ²) of eq. (13) for a sample without repeated points."""

    def __init__(self, x: Tensor) -> None:
        n, self._D = x.shape
        centered = x - x.mean(-2, keepdim=True)
        self._squares = torch.cdist(centered, centered, compute_mode="donot_use_mm_for_euclid_dist").square_()
        self._size = float(centered.abs().max())
        self._points, self._distances = centered.numpy(), self._squares.numpy()
        self._with_one = np.concatenate([self._points, np.ones((n, 1))], axis=1)
        self._K, self._M = np.empty((n, n)), np.empty((n, n))
        self._own = self._K.reshape(-1)[:: n + 1]
        self._system = LapackFactorization(n)

    @property
    def has_repeated_points(self) -> bool:
        """Whether two points coincide up to rounding, which needs the log domain."""
        squares = self._squares + torch.diag_embed(self._squares.diagonal() + 1.0)
        return not bool(squares.min() > 1e-20 * self._size * self._size)

    def __call__(
        self, lengthscale: float, noise: float, with_gradient: bool = True
    ) -> tuple[float, float, float] | None:
        """q, ∂q/∂log ℓ and ∂q/∂log σ²; ``None`` if a point is so far from all others that digits are lost."""
        n, D, points, K, M = len(self._points), self._D, self._points, self._K, self._M
        # One exponential serves both kernels: e^(−s/4), and its square.
        root = flushed_exp(self._squares * (-0.25 / lengthscale**2)).numpy()
        height = math.pi ** (0.5 * D) * lengthscale**D
        np.multiply(root, root, out=K)
        self._own.fill(0.0)
        sums = K @ self._with_one
        weight = sums[:, -1:]
        t = weight * points - sums[:, :-1]
        square = np.square(t).sum(-1)
        smallest = FEWEST_DIGITS * self._size * weight[:, 0]
        if not (weight.min() > SMALLEST_WEIGHT and (square > smallest**2).all()):
            return None
        system, observed = self._system, (sums[:, -1:] + 1.0) / n
        if not system.factorize(root * height, np.array([noise])):
            return None
        log_slope = 0.5 * float(np.log(square).sum()) - n * (2.0 * math.log(lengthscale) + math.log(n))
        value = float(system.negative_log_densities(observed)) - log_slope
        if not with_gradient:
            return value, 0.0, 0.0
        np.multiply(K, self._distances, out=K)
        turned = K @ self._with_one
        turned /= lengthscale**2
        t_dot = turned[:, -1:] * points - turned[:, :-1]
        slope = float(((t * t_dot).sum(-1) / square).sum()) - 2.0 * n
        # Ṙ = R (D + s/2)
        np.multiply(self._distances, 0.5 * height / lengthscale**2, out=M)
        np.add(M, D * height, out=M)
        np.multiply(M, root, out=M)
        # ∂q/∂R = ½(A⁻¹ − ααᵀ), whose inverse is one triangle; the diagonal of Ṙ is D times the height.
        alpha, (T, diagonal) = system.V[:, 0], system.triangle()
        trace = float(diagonal.sum())
        along = float(np.vdot(T, M)) - 0.5 * (D * height * trace + float(alpha @ (M @ alpha)))
        along += float(alpha @ turned[:, -1]) / n - slope
        return value, along, 0.5 * noise * (trace - float(alpha @ alpha))
