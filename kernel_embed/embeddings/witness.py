r"""The witness function μ_P − μ_Q of two samples: where they differ, with a credible band.

Given θ, the two posteriors are independent: :math:`(\mu_P - \mu_Q)(x) \sim \mathcal N(m_P - m_Q,\; S_P + S_Q)`. Under
a discrete measure :math:`\mu = \sum_m c_m \sqrt{w_m}\, k(\cdot, u_m)` with :math:`c \sim \mathcal N(\hat c, C^{-1})` a
posteriori, and the squared RKHS distance is a quadratic form:

.. math::  \mathrm{MMD}^2 = \lVert \mu_P - \mu_Q \rVert^2 = d^\top G d, \quad G = W^{1/2} K_{uu} W^{1/2}, \quad
           d \sim \mathcal N(\delta, S) = \mathcal N(\hat c_P - \hat c_Q,\; C_P^{-1} + C_Q^{-1}) .

Under Lebesgue measure, which is not finite, draws of the prior lie outside the RKHS and that norm is infinite.
"""

from __future__ import annotations

import functools

import torch
from gpytorch.distributions import MultivariateNormal
from linear_operator import to_linear_operator
from torch import Tensor

from ..kernels import gram
from ..kernels.smoothed import NUM_ATOMS, DiscreteMeasure, SmoothedKernel
from ..validation import check_features, generator_of
from .bayesian import BayesianMeanEmbedding, ConditionedMeanEmbedding, credible_band


class Witness:
    """The posterior of μ_P − μ_Q for samples ``x`` of P and ``y`` of Q; called on points, a ``MultivariateNormal``.

    Args:
        embedding: the model of both; its kernel would be learned on the pooled sample.
        x: the sample of P, ``(n, d)``.
        y: the sample of Q, ``(m, d)``.

    Raises:
        ValueError: if the samples have different columns, no rows, or values that are not finite.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> witness = Witness(BayesianMeanEmbedding(RBFKernel(), noise=0.01), torch.zeros(9, 1), torch.ones(9, 1))
        >>> witness(torch.tensor([[0.0], [1.0]])).mean.sign()           # more of P at 0, more of Q at 1
        tensor([ 1., -1.])
    """

    def __init__(self, embedding: BayesianMeanEmbedding, x: Tensor, y: Tensor) -> None:
        x, y = check_features(x, "x"), check_features(y, "y")
        if x.shape[-1] != y.shape[-1]:
            raise ValueError(f"Expected samples of one width, got {x.shape[-1]} columns in x and {y.shape[-1]} in y.")
        y = y.to(x)
        self.embedding = embedding
        self.first, self.second = embedding.condition(x), embedding.condition(y)
        if self.first.has_finite_rank and embedding.measure is None and embedding.prior_covariance is None:
            # Both posteriors need one prior: the atoms of the pooled sample.
            measure = DiscreteMeasure.from_sample(torch.cat([x, y], dim=-2))
            self.first, self.second = _with_atoms(self.first, measure), _with_atoms(self.second, measure)

    def __call__(self, x: Tensor) -> MultivariateNormal:
        """The posterior of the witness at the points ``x`` of shape ``(t, d)``."""
        p, q = self.first(x), self.second(x)
        return MultivariateNormal(p.mean - q.mean, to_linear_operator(p.covariance_matrix + q.covariance_matrix))

    def band(self, x: Tensor, level: float = 0.8) -> tuple[Tensor, Tensor]:
        """The lower and upper end, at each point, of the central interval of probability ``level``."""
        return credible_band(self(x), level)

    def squared_distance(self, num_atoms: int = NUM_ATOMS) -> SquaredDistancePosterior:
        """The posterior of MMD² = ‖μ_P − μ_Q‖² in the RKHS of k, which exists where ν is finite.

        Any measure but a discrete one is replaced by ``num_atoms`` points of the pooled sample.
        """
        first, second = self.first, self.second
        if not first.has_finite_rank:
            measure = DiscreteMeasure.from_sample(torch.cat([first.x, second.x], dim=-2), num_atoms)
            first, second = _with_atoms(first, measure), _with_atoms(second, measure)
        return SquaredDistancePosterior(first, second)


def _with_atoms(conditioned: ConditionedMeanEmbedding, measure: DiscreteMeasure) -> ConditionedMeanEmbedding:
    covariance = SmoothedKernel(conditioned.embedding.kernel, measure)
    locations = conditioned.locations if conditioned.rows is None else conditioned.rows
    return ConditionedMeanEmbedding(conditioned.embedding, conditioned.x, locations, covariance)


class SquaredDistancePosterior:
    r"""The posterior of MMD² of samples whose embeddings, ``first`` and ``second``, have one discrete measure.

    .. math::  \mathbb E = \delta^\top G \delta + \operatorname{tr} GS, \qquad
               \operatorname{Var} = 4 \delta^\top G S G \delta + 2 \operatorname{tr} (GS)^2 .
    """

    def __init__(self, first: ConditionedMeanEmbedding, second: ConditionedMeanEmbedding) -> None:
        assert isinstance(first.covariance, SmoothedKernel)
        measure = first.covariance.measure
        assert isinstance(measure, DiscreteMeasure)
        root, atoms = measure.weights.to(first.x).sqrt(), measure.atoms.to(first.x)
        self.num_atoms = measure.num_atoms
        self._G: Tensor = gram(first.embedding.kernel, atoms) * root * root.unsqueeze(-1)
        (mean1, covariance1), (mean2, covariance2) = feature_weights(first), feature_weights(second)
        self._delta: Tensor = mean1 - mean2
        self._S: Tensor = covariance1 + covariance2

    @property
    def mean(self) -> Tensor:
        """E[MMD²]: ``batch``. Posterior uncertainty adds to it, so it is not zero where the samples agree."""
        return self.between_means + (self._G * self._S).sum((-2, -1))

    @property
    def between_means(self) -> Tensor:
        """δᵀGδ, the squared distance of the two posterior means: ``batch``. The rest of :attr:`mean` is uncertainty."""
        return _form(self._G, self._delta)

    @property
    def variance(self) -> Tensor:
        """Var[MMD²]: ``batch``."""
        GS = self._G @ self._S
        side = (self._G @ self._delta.unsqueeze(-1)).squeeze(-1)
        return 4.0 * _form(self._S, side) + 2.0 * (GS * GS.mT).sum((-2, -1))

    @functools.cached_property
    def _spectrum(self) -> tuple[Tensor, Tensor]:
        """MMD² = Σ λ_j (z_j + a_j)² with z standard normal: the eigenvalues of S^{1/2} G S^{1/2}, and a."""
        values, vectors = torch.linalg.eigh(self._S)
        root = (vectors * values.clamp_min(0.0).sqrt().unsqueeze(-2)) @ vectors.mT
        lam, U = torch.linalg.eigh(root @ self._G @ root)
        inverse = torch.where(values > 0, values.clamp_min(torch.finfo(values.dtype).tiny).rsqrt(), 0.0)
        a = (U.mT @ vectors @ (inverse.unsqueeze(-1) * (vectors.mT @ self._delta.unsqueeze(-1)))).squeeze(-1)
        return lam.clamp_min(0.0), a

    def sample(self, num_samples: int, seed: int | None = None) -> Tensor:
        """Draws of MMD²: ``(num_samples, *batch)``."""
        lam, a = self._spectrum
        generator = generator_of(seed, lam.device)
        z = torch.randn(num_samples, *a.shape, generator=generator, dtype=a.dtype, device=a.device)
        return (lam * (z + a).square()).sum(-1)

    def interval(self, level: float = 0.8, num_samples: int = 4000, seed: int | None = 0) -> tuple[Tensor, Tensor]:
        """The central interval of probability ``level``, from draws: each of shape ``batch``."""
        draws = self.sample(num_samples, seed)
        tail = 0.5 * (1.0 - level)
        return draws.quantile(tail, dim=0), draws.quantile(1.0 - tail, dim=0)

    def __repr__(self) -> str:
        return f"SquaredDistancePosterior(discrete measure with {self.num_atoms} atoms)"


def _form(A: Tensor, v: Tensor) -> Tensor:
    return (v * (A @ v.unsqueeze(-1)).squeeze(-1)).sum(-1)


def feature_weights(posterior: ConditionedMeanEmbedding) -> tuple[Tensor, Tensor]:
    """Mean ``(*batch, M)`` and covariance of c a posteriori, for a prior of finite rank: μ = Φ(·)c, c ~ N(0, I)."""
    if not posterior.has_finite_rank:
        raise ValueError(f"Expected a prior of finite rank, got {posterior.covariance}. Use a DiscreteMeasure.")
    Phi = posterior.covariance.features(posterior.locations)
    eye = torch.eye(Phi.shape[-1], dtype=Phi.dtype, device=Phi.device)
    # c is represented by itself where A is solved through Φ, else by its covariance Φᵀ with the observations
    representation = eye if posterior.is_low_rank else Phi.mT
    mean = representation @ posterior.system.coefficients(posterior.observed.unsqueeze(-1))
    return mean.squeeze(-1), posterior.system.conditional_covariance(representation, lambda: eye)
