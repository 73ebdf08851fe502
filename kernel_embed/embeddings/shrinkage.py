r"""The spectral shrinkage estimator of a mean embedding, eq. (9).

.. math::
    \check\mu_\lambda = \hat\Sigma (\hat\Sigma + \lambda I)^{-1} \hat\mu = \sum_i \beta_i k(\cdot, x_i), \qquad
    \beta = (K + n\lambda I)^{-1} [\hat\mu(x_1), \dots, \hat\mu(x_n)]^\top .

It is the posterior mean of :class:`kernel_embed.BayesianMeanEmbedding` with prior covariance k in place of r and noise
σ² = nλ.
"""

from __future__ import annotations

from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from ..kernels import gram
from ..kernels.frozen import frozen
from ..kernels.structure import check_columns
from ..linalg import DenseSystem
from ..validation import check_memory, check_sample
from .base import RegularizedEmbedding
from .mean import WeightedEmbedding


class ShrinkageMeanEmbedding(RegularizedEmbedding):
    """The estimator μ̌_λ of eq. (9), which shrinks μ̂ along the directions in which the data vary least.

    Args:
        kernel: k, any GPyTorch kernel.
        regularization: λ.
        regularization_prior: a GPyTorch prior on λ.
        regularization_constraint: a GPyTorch constraint on λ.

    Example:
        >>> import gpytorch
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
        super().__init__(kernel, regularization, regularization_prior, regularization_constraint)

    def attach(self, x: Tensor) -> WeightedEmbedding:
        """μ̌_λ for the sample ``x`` of shape ``(n, d)``, differentiable in the parameters as they are."""
        x = check_sample(x, self.kernel.parameters())
        check_columns(self.kernel, x.shape[-1])
        check_memory(x.shape[-2], x, self.batch_shape.numel(), "Shrink the embedding of a part of the rows.")
        K = gram(self.kernel, x)
        ridge = (x.shape[-2] * self.regularization.to(K)).expand(K.shape[:-2])
        # eq. (9): β = (K + nλI)⁻¹ μ̂(x)
        beta = DenseSystem(K, ridge).solve(K.mean(dim=-1, keepdim=True))
        return WeightedEmbedding(self.kernel, x, beta.squeeze(-1))

    def condition(self, x: Tensor) -> WeightedEmbedding:
        """μ̌_λ for the sample ``x`` of shape ``(n, d)``, with a frozen copy of the kernel."""
        return frozen(self).attach(x)
