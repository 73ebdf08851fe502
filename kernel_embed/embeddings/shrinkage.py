r"""The spectral shrinkage estimator of a mean embedding, eq. (9).

.. math::
    \check\mu_\lambda = \hat\Sigma (\hat\Sigma + \lambda I)^{-1} \hat\mu = \sum_i \beta_i k(\cdot, x_i), \qquad
    \beta = (K + n\lambda I)^{-1} [\hat\mu(x_1), \dots, \hat\mu(x_n)]^\top .

It is the posterior mean of :class:`kernel_embed.BayesianMeanEmbedding` with prior covariance k in place of r and noise
σ² = nλ.
"""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from ..kernels import gram
from ..linalg import RidgeSystem
from ..validation import check_features
from .mean import WeightedEmbedding


class ShrinkageMeanEmbedding(gpytorch.Module):
    """The estimator μ̌_λ of eq. (9), which shrinks μ̂ along the directions in which the data vary least.

    Args:
        kernel: k, any GPyTorch kernel.
        regularization: λ.
        regularization_prior: a GPyTorch prior on λ.
        regularization_constraint: a GPyTorch constraint on λ.

    Example:
        >>> x = torch.randn(20, 1, generator=torch.Generator().manual_seed(0))
        >>> shrunk = ShrinkageMeanEmbedding(gpytorch.kernels.RBFKernel(), regularization=0.1).condition(x)
        >>> bool(shrunk.inner(shrunk) < 1)
        True
    """

    def __init__(
        self,
        kernel: Kernel,
        regularization: float = 0.01,
        *,
        regularization_prior: Prior | None = None,
        regularization_constraint: Interval | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(kernel, Kernel):
            raise TypeError(f"Expected a gpytorch.kernels.Kernel, got {type(kernel).__name__}.")
        self.kernel = kernel
        like = next(iter(kernel.parameters()), torch.empty(()))
        self.register_parameter("raw_regularization", torch.nn.Parameter(like.new_zeros(kernel.batch_shape)))
        constraint = regularization_constraint or Positive(transform=torch.exp, inv_transform=torch.log)
        self.register_constraint("raw_regularization", constraint)
        if regularization_prior is not None:
            self.register_prior("regularization_prior", regularization_prior, _get, _set)
        self.regularization = regularization

    @property
    def regularization(self) -> Tensor:
        """λ, of shape ``batch_shape``."""
        value: Tensor = self.raw_regularization_constraint.transform(self.raw_regularization)
        return value

    @regularization.setter
    def regularization(self, value: float | Tensor) -> None:
        value = torch.as_tensor(value, dtype=self.raw_regularization.dtype, device=self.raw_regularization.device)
        if not bool((torch.isfinite(value) & (value > 0)).all()):
            raise ValueError(f"Expected a positive, finite regularization, got {value.tolist()}.")
        # Draws of a posterior come with one more dimension.
        value = value.expand(torch.broadcast_shapes(value.shape, self.raw_regularization.shape))
        self.initialize(raw_regularization=self.raw_regularization_constraint.inverse_transform(value))

    def condition(self, x: Tensor) -> WeightedEmbedding:
        """μ̌_λ for the sample ``x`` of shape ``(n, d)``."""
        x = check_features(x)
        K = gram(self.kernel, x)
        ridge = (x.shape[-2] * self.regularization.to(K)).expand(K.shape[:-2])
        # eq. (9): β = (K + nλI)⁻¹ μ̂(x)
        beta = RidgeSystem(K, ridge).solve(K.mean(dim=-1, keepdim=True))
        return WeightedEmbedding(self.kernel, x, beta.squeeze(-1))


# Named functions, where lambdas would keep the embedding from being pickled.
def _get(embedding: ShrinkageMeanEmbedding) -> Tensor:
    return embedding.regularization


def _set(embedding: ShrinkageMeanEmbedding, value: Tensor) -> None:
    embedding.regularization = value
