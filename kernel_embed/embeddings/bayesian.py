r"""The Bayesian kernel embedding: a Gaussian process prior over the mean embedding.

.. math::
    \mu \mid \theta &\sim GP(0, r_\theta), \qquad r(x, y) = \int k(x, u) k(u, y) \nu(du)                    & (3, 4) \\
    \hat\mu(x) \mid \mu(x) &\sim \mathcal N(\mu(x), \sigma^2)                                               & (5)
"""

from __future__ import annotations

from typing import get_args

from gpytorch.constraints import Interval
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from linear_operator import to_linear_operator
from torch import Tensor

from ..kernels import Measure, SmoothedKernel, gram
from ..kernels.frozen import frozen
from ..kernels.gram import check_columns
from ..kernels.parameters import positive, register_positive, set_positive
from ..validation import check_features
from .base import KernelEmbedding
from .conditioned_mean import ConditionedMeanEmbedding
from .noise import NoiseKind


class BayesianMeanEmbedding(KernelEmbedding):
    r"""A posterior over the mean embedding of a sample.

    Args:
        kernel: k, any GPyTorch kernel. Its ``batch_shape`` is the batch shape of every answer.
        noise: σ² of the likelihood (5), held at this value unless ``learn_noise``. Or what the central limit theorem
            says of μ̂, eq. (6): ``"heteroscedastic"`` for its variance Var_j[k(x_j, x)] / n at each location, as the
            paper suggests, or ``"central-limit"`` for the joint covariance Cov_j[k(x_j, x), k(x_j, y)] / n, which
            knows that the errors at all locations are one smooth error.
        measure: ν of the prior covariance r; see :class:`SmoothedKernel`. By default Lebesgue measure where k has a
            closed form under it, else a discrete measure at rows of the data.
        covariance: a prior covariance in place of r, any GPyTorch kernel.
        learn_noise: learn σ² with the kernel.
        noise_prior: a GPyTorch prior on σ².
        noise_constraint: a GPyTorch constraint on σ²; positive, learned on a logarithmic scale, by default.

    Example:
        >>> import gpytorch
        >>> x = torch.randn(50, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> embedding = BayesianMeanEmbedding(gpytorch.kernels.RBFKernel().double())
        >>> posterior = embedding.condition(x)
        >>> posterior(torch.tensor([[0.0], [9.0]], dtype=torch.float64)).mean.round(decimals=2)
        tensor([0.5200, 0.0000], dtype=torch.float64)
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
            raise ValueError("Expected a measure or a covariance, got both. The covariance stands in place of r.")
        self.measure = measure
        self.prior_covariance = covariance
        self.noise_kind: NoiseKind | None = noise if isinstance(noise, str) else None
        if isinstance(noise, str):
            if noise not in get_args(NoiseKind):
                raise ValueError(f"Expected noise to be a number or one of {get_args(NoiseKind)}, got {noise!r}.")
            if learn_noise or noise_prior is not None:
                raise ValueError(f"Expected nothing to learn in noise={noise!r}: the data and k determine it.")
            return
        learn = learn_noise or noise_prior is not None
        register_positive(self, "noise", kernel, noise_prior, noise_constraint, learn=learn)
        self.noise = noise

    @property
    def noise(self) -> Tensor:
        """σ², of shape ``batch_shape``."""
        if self.noise_kind is not None:
            raise RuntimeError(f"With noise={self.noise_kind!r} it is known for a sample only: condition(x).noise.")
        return positive(self, "noise")

    @noise.setter
    def noise(self, value: float | Tensor) -> None:
        set_positive(self, "noise", value)

    @property
    def covariance(self) -> Kernel:
        """The prior covariance: r of eq. (4), sharing the parameters of ``kernel``, or the one given."""
        return SmoothedKernel(self.kernel, self.measure) if self.prior_covariance is None else self.prior_covariance

    def bind(self, x: Tensor, *, locations: Tensor | None = None) -> ConditionedMeanEmbedding:
        """The posterior given the sample ``x``, differentiable in the parameters as they are.

        Args:
            x: the sample, ``(n, d)``.
            locations: as of :meth:`condition`.
        """
        x = check_features(x)
        check_columns(self.kernel, x.shape[-1])
        return ConditionedMeanEmbedding(self, x, locations)

    def condition(self, x: Tensor, *, locations: Tensor | None = None) -> ConditionedMeanEmbedding:
        """The posterior given the sample ``x``, with a frozen copy of this embedding; it factorizes when first asked.

        Args:
            x: the sample, ``(n, d)``.
            locations: where μ̂ is observed: row numbers of ``x``, or points ``(t, d)``; every row by default. The
                likelihood (5) holds at any x, so a large sample may be observed at a part of its points.
        """
        return frozen(self).bind(x, locations=locations)

    def prior(self, x: Tensor) -> MultivariateNormal:
        """GP(0, r) at the points ``x`` of shape ``(t, d)``, eq. (3)."""
        x = check_features(x)
        covariance = self.covariance
        R = gram(covariance.resolved(x) if isinstance(covariance, SmoothedKernel) else covariance, x)
        return MultivariateNormal(R.new_zeros(R.shape[:-1]), to_linear_operator(R))
