r"""The Bayesian kernel embedding: a Gaussian process prior over the mean embedding, and its posterior.

.. math::
    \mu \mid \theta &\sim GP(0, r_\theta), \qquad r(x, y) = \int k(x, u) k(u, y) \nu(du)                    & (3, 4) \\
    \hat\mu(x) \mid \mu(x) &\sim \mathcal N(\mu(x), \sigma^2)                                               & (5) \\
    \mu(x_*) \mid \hat\mu &\sim \mathcal N\big(R_*^\top A^{-1} \hat\mu,\; r_{**} - R_*^\top A^{-1} R_*\big),
        \qquad A = R + \sigma^2 I                                                                           & (7, 8)
"""

from __future__ import annotations

import functools
from typing import Literal, get_args

import torch
from gpytorch.constraints import Interval
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from linear_operator import to_linear_operator
from torch import Tensor

from ..kernels import Measure, SmoothedKernel, gram
from ..kernels.parameters import frozen, positive, register_positive, set_positive
from ..linalg import DenseSystem, FeatureSystem, LinearSystem
from ..validation import check_features, check_memory, check_query_points, check_share
from .conditional import KernelEmbedding
from .empirical import EmpiricalEmbedding, empirical_embedding, sampling_error
from .mean import WeightedEmbedding

NoiseKind = Literal["heteroscedastic", "central-limit"]
NUGGET = 1e-4  # independent noise relative to that of the central limit theorem, whose covariance alone is singular
MEMORY_REMEDY = (
    "Observe μ̂ at fewer locations, EmbeddingEvidence(num_locations=2000) or condition(x, locations=rows), or pass "
    "measure=DiscreteMeasure.from_sample(x)."
)


class BayesianMeanEmbedding(KernelEmbedding):
    """A posterior over the mean embedding of a sample.

    Args:
        kernel: k, any GPyTorch kernel. Its ``batch_shape`` is the batch shape of every prediction.
        noise: σ² of the likelihood (5), fixed unless ``learn_noise``; or by eq. (6) the variance of the sampling error
            of μ̂ at each location, ``"heteroscedastic"``, or its joint covariance, ``"central-limit"``.
        measure: ν of the prior covariance r; by default Lebesgue measure where k has a closed form under it, else a
            discrete measure at rows of the data.
        covariance: a prior covariance in place of r, any GPyTorch kernel.
        learn_noise: learn σ² with the kernel.
        noise_prior: a GPyTorch prior on σ².
        noise_constraint: a GPyTorch constraint on σ²; positive, learned on a logarithmic scale, by default.

    Raises:
        ValueError: if both a measure and a covariance are given, or ``noise`` is another name or cannot be learned.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> posterior = BayesianMeanEmbedding(RBFKernel()).condition(torch.linspace(-1, 1, 50).unsqueeze(-1))
        >>> posterior(torch.tensor([[0.0], [9.0]])).mean.round(decimals=1)
        tensor([0.7000, -0.0000])
    """

    def __init__(
        self,
        kernel: Kernel,
        noise: float | Tensor | NoiseKind = 0.1,
        *,
        measure: Measure | None = None,
        covariance: Kernel | None = None,
        learn_noise: bool = False,
        noise_prior: Prior | None = None,
        noise_constraint: Interval | None = None,
    ) -> None:
        super().__init__(kernel)
        if covariance is not None and measure is not None:
            raise ValueError("Pass a measure or a covariance, not both: the covariance replaces r.")
        self.measure, self.prior_covariance = measure, covariance
        self.noise_kind: NoiseKind | None = noise if isinstance(noise, str) else None
        learn = learn_noise or noise_prior is not None
        if not isinstance(noise, str):
            register_positive(self, "noise", kernel, noise_prior, noise_constraint, learn=learn)
            self.noise = noise
        elif noise not in get_args(NoiseKind):
            raise ValueError(f"noise must be a number or one of {get_args(NoiseKind)}, but is {noise!r}.")
        elif learn:
            raise ValueError(f"noise={noise!r} follows from the sample and cannot be learned. Pass a number.")

    @property
    def noise(self) -> Tensor:
        """σ², of shape ``batch_shape``."""
        if self.noise_kind is not None:
            raise RuntimeError(f"With noise={self.noise_kind!r} it depends on the sample: use condition(x).noise.")
        return positive(self, "noise")

    @noise.setter
    def noise(self, value: float | Tensor) -> None:
        """Set σ², a number or a tensor that broadcasts to ``batch_shape``."""
        set_positive(self, "noise", value)

    @property
    def covariance(self) -> Kernel:
        """The prior covariance: r of eq. (4), sharing the parameters of ``kernel``, or its replacement."""
        return SmoothedKernel(self.kernel, self.measure) if self.prior_covariance is None else self.prior_covariance

    def attach(self, x: Tensor, *, locations: Tensor | None = None) -> ConditionedMeanEmbedding:
        """As :meth:`condition`, but differentiable in the parameters of this embedding."""
        return ConditionedMeanEmbedding(self, self.checked_sample(x), locations)

    def condition(self, x: Tensor, *, locations: Tensor | None = None) -> ConditionedMeanEmbedding:
        """The posterior given the sample ``x`` ``(n, d)``, with a frozen copy; it factorizes at the first prediction.

        ``locations``, where μ̂ is observed, are row numbers of ``x`` or points ``(t, d)``; every row by default.
        """
        return frozen(self).attach(x, locations=locations)

    def prior(self, x: Tensor) -> MultivariateNormal:
        """GP(0, r) at the points ``x`` of shape ``(t, d)``, eq. (3)."""
        attached = self.attach(x)
        R = gram(attached.covariance, attached.x)
        return MultivariateNormal(R.new_zeros(R.shape[:-1]), to_linear_operator(R))


class ConditionedMeanEmbedding:
    """The posterior over the mean embedding of a sample; called on points it is a ``MultivariateNormal``.

    Attributes:
        embedding: the model; from ``condition`` a frozen copy.
        x: the sample, ``(n, d)``.
        locations: the points at which μ̂ is observed, ``(t, d)``; ``rows`` are their numbers, if they are rows of x.
        covariance: the prior covariance in use, with its measure.

    Raises:
        ValueError: when called, if the points have other columns than the sample, or values that are not finite.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> BayesianMeanEmbedding(RBFKernel(), noise=0.01).condition(torch.zeros(9, 1)).mean(torch.zeros(1, 1))
        tensor([0.9991])
    """

    def __init__(
        self,
        embedding: BayesianMeanEmbedding,
        x: Tensor,
        locations: Tensor | None = None,
        covariance: Kernel | None = None,
    ) -> None:
        self.embedding, self.x = embedding, x
        self.rows, self.locations = _observation_points(x, locations)
        covariance = embedding.covariance if covariance is None else covariance
        self.covariance = covariance.resolved(x) if isinstance(covariance, SmoothedKernel) else covariance

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {type(self.embedding.kernel).__name__} on {self.num_data} points>"

    @property
    def num_data(self) -> int:
        """n, the size of the sample."""
        return self.x.shape[-2]

    def at(self, rows: Tensor) -> ConditionedMeanEmbedding:
        """The same, observed at these rows only."""
        return ConditionedMeanEmbedding(self.embedding, self.x, rows, self.covariance)

    @functools.cached_property
    def empirical(self) -> EmpiricalEmbedding:
        """μ̂ of eq. (2) and log γ of eq. (12) at the locations."""
        return empirical_embedding(self.embedding.kernel, self.x, self.locations, self.rows)

    @functools.cached_property
    def observed(self) -> Tensor:
        """μ̂(x_i) at the locations, ``(*batch, t)``; not every sample has the slope that :attr:`empirical` adds."""
        n = self.num_data
        return WeightedEmbedding(self.embedding.kernel, self.x, self.x.new_full((n,), 1.0 / n))(self.locations)

    @functools.cached_property
    def noise(self) -> Tensor:
        """σ² at the locations: ``(*batch, 1)`` if it is one number, otherwise ``(*batch, t)``."""
        if self.embedding.noise_kind is None:
            return self.embedding.noise.to(self.x).unsqueeze(-1)
        return sampling_error(self.embedding.kernel, self.x, self.locations)[1]

    def _noise_matrix(self, points: Tensor) -> Tensor:
        """The covariance of the noise at ``points``: ``(*batch, t, t)``."""
        if self.embedding.noise_kind is None:
            return torch.diag_embed(self.noise.expand(*self.noise.shape[:-1], points.shape[-2]))
        D, variance = sampling_error(self.embedding.kernel, self.x, points)
        if self.embedding.noise_kind == "heteroscedastic":
            return torch.diag_embed(variance)
        nugget = NUGGET * variance.mean(dim=-1, keepdim=True)
        return D @ D.mT + torch.diag_embed(nugget.expand(variance.shape))

    @property
    def has_finite_rank(self) -> bool:
        """Whether the prior is that of a discrete measure."""
        return isinstance(self.covariance, SmoothedKernel) and self.covariance.is_low_rank

    @property
    def is_low_rank(self) -> bool:
        """Whether the system A is solved through the features of a prior of finite rank."""
        return self.has_finite_rank and self.embedding.noise_kind != "central-limit"

    def representation(self, x: Tensor) -> Tensor:
        """r(x, x_i) for the locations x_i, or the features Φ(x) of a prior of finite rank: ``(*batch, t, p)``."""
        return self.covariance.features(x) if self.is_low_rank else gram(self.covariance, x, self.locations)

    def check_size(self) -> None:
        """Raise if the matrix R of the locations does not fit in memory, before any of it is computed."""
        if not self.is_low_rank:
            check_memory(len(self.locations), self.x, self.embedding.kernel.batch_shape.numel(), MEMORY_REMEDY)

    @functools.cached_property
    def system(self) -> LinearSystem:
        """The factorized A, the prior covariance of what is observed: R + σ²I where σ² is one number."""
        self.check_size()
        kind = FeatureSystem if self.is_low_rank else DenseSystem
        R = self.covariance.features(self.locations) if self.is_low_rank else gram(self.covariance, self.locations)
        if self.embedding.noise_kind is None:
            return kind(R, self.noise.squeeze(-1).expand(R.shape[:-2]))
        if self.is_low_rank:
            return kind(R, R.new_ones(R.shape[:-2]), weights=self.noise.reciprocal())
        return kind(R + self._noise_matrix(self.locations), R.new_zeros(R.shape[:-2]))

    def negative_log_density(self, observed: Tensor | None = None) -> Tensor:
        """−log N(μ̂; 0, A) in nats, the Gaussian part of eq. (13): ``batch``."""
        return self.system.negative_log_densities((self.observed if observed is None else observed).unsqueeze(-1))

    def mean(self, x: Tensor) -> Tensor:
        """The mean of the posterior at ``x`` (``(t, d)``): ``(*batch, t)``."""
        return self._mean(self.representation(check_query_points(x, self.x)))

    def _mean(self, representation: Tensor) -> Tensor:
        # eq. (8): R*ᵀA⁻¹μ̂
        return (representation @ self.system.coefficients(self.observed.unsqueeze(-1))).squeeze(-1)

    def __call__(self, x: Tensor) -> MultivariateNormal:
        """The posterior of μ at the points ``x`` of shape ``(t, d)``, eqs. (7) and (8)."""
        x = check_query_points(x, self.x)
        representation = self.representation(x)
        # eq. (8): r** − R*ᵀA⁻¹R*
        spread = self.system.conditional_covariance(representation, lambda: gram(self.covariance, x))
        return MultivariateNormal(self._mean(representation), to_linear_operator(spread))

    def predictive(self, x: Tensor) -> MultivariateNormal:
        """The distribution of an observed μ̂ at ``x``: the posterior of μ plus the noise of eq. (5)."""
        posterior, noise = self(x), self._noise_matrix(check_query_points(x, self.x))
        return MultivariateNormal(posterior.mean, to_linear_operator(posterior.covariance_matrix + noise))

    def band(self, x: Tensor, level: float = 0.8) -> tuple[Tensor, Tensor]:
        """The lower and upper end, at each point, of the central interval of probability ``level``."""
        return credible_band(self(x), level)


def credible_band(posterior: MultivariateNormal, level: float) -> tuple[Tensor, Tensor]:
    """The ends of pointwise central intervals."""
    check_share("level", level)
    half = torch.special.ndtri(torch.tensor(0.5 + 0.5 * level, dtype=torch.float64, device="cpu")).item()
    deviation = posterior.covariance_matrix.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt()
    return posterior.mean - half * deviation, posterior.mean + half * deviation


def _observation_points(x: Tensor, locations: Tensor | None) -> tuple[Tensor | None, Tensor]:
    """Row numbers (``None`` for points that are not rows) and points at which the embedding is observed."""
    n = x.shape[-2]
    if locations is None:
        return torch.arange(n, device=x.device), x
    if locations.is_floating_point():
        return None, check_features(locations, "locations", width=x.shape[-1]).to(x)
    if locations.dim() != 1 or not locations.numel() or int(locations.min()) < 0 or int(locations.max()) >= n:
        got = f"shape {tuple(locations.shape)} and type {locations.dtype}"
        raise ValueError(f"Expected locations as points, or a vector of row numbers from 0 to {n - 1}, got {got}.")
    locations = locations.to(x.device)
    return locations, x[..., locations, :]
