r"""Embedded distributions: mean embeddings of samples, their shrinkage, and the rules of probability on them.

.. math::
    \mu_P &= \int k(\cdot, x)\, P(dx), \qquad \hat\mu = \sum_i \beta_i\, k(\cdot, x_i), \quad \beta_i = 1/n
        & (1, 2) \\
    \check\mu_\lambda &= \hat\Sigma (\hat\Sigma + \lambda I)^{-1} \hat\mu = \sum_i \beta_i k(\cdot, x_i), \quad
        \beta = (K + n\lambda I)^{-1} [\hat\mu(x_1), \dots, \hat\mu(x_n)]^\top                               & (9)

Let P(Y | X) be embedded from pairs :math:`(x_i, y_i)`, and a new distribution π of X from points :math:`u_j` with
weights :math:`\gamma_j`. With :math:`\alpha = A^{-1} K_{xu} \gamma`, the weight of each pair under π,

.. math::
    \text{sum}   &: \quad \mu_Y = \int P(Y \mid x)\, \pi(dx) \approx \sum_i \alpha_i\, l(\cdot, y_i) \\
    \text{chain} &: \quad \mu_{YX} \approx \sum_{i, j} B_{ij}\, l(\cdot, y_i) \otimes k(\cdot, u_j), \quad
                    B = A^{-1} K_{xu} \operatorname{diag}(\gamma) \\
    \text{Bayes} &: \quad \mu_{X \mid y} \approx \sum_i w_i\, k(\cdot, x_i), \qquad
                    w = (L + \eta D^{-1})^{-1} \mathbf l(y), \quad D = \operatorname{diag}(\alpha_+)

(Song et al. 2013). Fukumizu et al. 2013 square the operator in the third; here α is clipped at zero instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import gram
from ..kernels.parameters import frozen
from ..kernels.structure import check_kernel
from ..linalg import DenseSystem
from ..validation import check_features, check_memory, check_number, check_query_points, check_tensor
from .conditional import ConditionalEmbedding, KernelEmbedding, RegularizedEmbedding
from .conditioned import ConditionedEmbedding
from .representation import by_rows

BLOCK_ENTRIES = 2**24  # entries of a block of the Gram matrix where only its row sums are needed


class MeanEmbedding(KernelEmbedding):
    """The empirical mean embedding μ̂ of eq. (2).

    Args:
        kernel: k, any GPyTorch kernel.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> MeanEmbedding(RBFKernel()).condition(torch.zeros(2, 1))(torch.zeros(1, 1))
        tensor([1.])
    """

    def attach(self, x: Tensor) -> WeightedEmbedding:
        """The embedding of the sample ``x`` of shape ``(n, d)``, differentiable in the parameters as they are."""
        x = self.checked_sample(x)
        return WeightedEmbedding(self.kernel, x, x.new_full((len(x),), 1.0 / len(x)))

    def condition(self, x: Tensor) -> WeightedEmbedding:
        """The embedding of the sample ``x`` of shape ``(n, d)``, with a frozen copy of the kernel."""
        return frozen(self).attach(x)


class WeightedEmbedding:
    """Σ_i β_i k(·, x_i), an element of the RKHS of k: a function that is called on points.

    Attributes:
        kernel: k.
        x: the sample, ``(n, d)``.
        weights: β, ``(*batch, n)``.

    Raises:
        ValueError: if there is not one weight for each row; when called, if the points have other columns.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> WeightedEmbedding(RBFKernel(), torch.zeros(2, 1), torch.tensor([0.5, 0.25]))(torch.zeros(1, 1)).item()
        0.75
    """

    def __init__(self, kernel: Kernel, x: Tensor, weights: Tensor) -> None:
        check_kernel(kernel)
        check_tensor(x, "x")
        check_tensor(weights, "weights")
        if x.dim() != 2 or weights.dim() == 0 or weights.shape[-1] != x.shape[0]:
            shapes = f"{tuple(x.shape)} and {tuple(weights.shape)}"
            raise ValueError(f"Expected x of shape (n, d) and n weights, got shapes {shapes}.")
        self.kernel, self.x, self.weights = kernel, x, weights.to(x) if x.is_floating_point() else weights

    def __call__(self, x: Tensor) -> Tensor:
        """The values at ``x`` (``(t, d)``): ``(*batch, t)``."""
        x, rows = check_query_points(x, self.x), max(1, BLOCK_ENTRIES // len(self.x))
        return by_rows(lambda block: gram(self.kernel, block, self.x) @ self.weights.unsqueeze(-1), x, rows).squeeze(-1)

    def expectation(self, g: Callable[[Tensor], Tensor] | Tensor) -> Tensor:
        """Σ_i β_i g(x_i), the estimate of E[g(X)], for values ``(n,)`` or ``(n, q)``; exact for g in the RKHS."""
        values = torch.as_tensor(g(self.x) if callable(g) else g, device=self.x.device).to(self.weights)
        if values.dim() not in (1, 2) or len(values) != len(self.x):
            raise ValueError(f"Expected the values of g at the {len(self.x)} points, got shape {tuple(values.shape)}.")
        return self.weights @ values

    def inner(self, other: WeightedEmbedding) -> Tensor:
        """⟨f, f'⟩ in the RKHS of k: ``batch``."""
        if other.x.shape[-1] != self.x.shape[-1]:
            raise ValueError(f"Expected samples of one width, got {self.x.shape[-1]} and {other.x.shape[-1]} columns.")
        return (self(other.x) * other.weights).sum(-1)

    def squared_distance(self, other: WeightedEmbedding) -> Tensor:
        """‖f − f'‖² in the RKHS of k, the (biased) MMD² of two samples: ``batch``."""
        return self.inner(self) - 2.0 * self.inner(other) + other.inner(other)


class ShrinkageMeanEmbedding(MeanEmbedding, RegularizedEmbedding):
    """The estimator μ̌_λ of eq. (9), which shrinks μ̂ along the directions in which the data vary least.

    It is the posterior mean of :class:`kernel_embed.BayesianMeanEmbedding` with ``covariance=kernel`` and noise nλ.

    Args:
        kernel: k, any GPyTorch kernel.
        regularization: the starting value of λ.
        regularization_prior: a GPyTorch prior on λ.
        regularization_constraint: a GPyTorch constraint on λ; positive, on a logarithmic scale, by default.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> ShrinkageMeanEmbedding(RBFKernel(), regularization=1.0).condition(torch.zeros(2, 1))(torch.zeros(1, 1))
        tensor([0.5000])
    """

    def attach(self, x: Tensor) -> WeightedEmbedding:
        """μ̌_λ for the sample ``x`` of shape ``(n, d)``, differentiable in the parameters as they are."""
        x = self.checked_sample(x)
        check_memory(len(x), x, self.batch_shape.numel(), "Shrink the embedding of a part of the rows.")
        K = gram(self.kernel, x)
        ridge = (len(x) * self.regularization.to(K)).expand(K.shape[:-2])
        beta = DenseSystem(K, ridge).solve(K.mean(dim=-1, keepdim=True))  # eq. (9)
        return WeightedEmbedding(self.kernel, x, beta.squeeze(-1))


class JointEmbedding:
    """Σ_ij B_ij l(·, y_i) ⊗ k(·, u_j), of ``y`` ``(n, q)`` and ``u`` ``(m, d)`` with ``weights`` B ``(n, m)``."""

    def __init__(self, y: Tensor, u: Tensor, weights: Tensor) -> None:
        self.y, self.u, self.weights = y, u, weights

    def expectation(self, g: Callable[[Tensor, Tensor], Tensor] | Tensor) -> Tensor:
        """E[g(Y, X)] = Σ_ij B_ij g(y_i, u_j), for g of ``y`` ``(n, 1, q)`` and ``x`` ``(1, m, d)``, or its values."""
        values = g(self.y.unsqueeze(1), self.u.unsqueeze(0)) if callable(g) else g
        values = torch.as_tensor(values, device=self.y.device).to(self.weights)
        if values.dim() == 3 and values.shape[-1] == 1:
            values = values.squeeze(-1)
        if values.shape != self.weights.shape:
            shape = tuple(self.weights.shape)
            raise ValueError(f"Expected one value of g for each pair, of shape {shape}, got {tuple(values.shape)}.")
        return (self.weights * values).sum()


def sum_rule(conditioned: ConditionedEmbedding, prior: WeightedEmbedding) -> WeightedEmbedding:
    """The distribution of Y when X has the distribution ``prior``: Σ α_i l(·, y_i).

    Args:
        conditioned: the embedding of P(Y | X) with its data; its ``target_kernel`` is l.
        prior: an embedded distribution of X, such as ``MeanEmbedding(kernel).condition(u)``.

    Raises:
        TypeError: if ``conditioned`` holds no data, or ``prior`` is not an embedded distribution.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> x, embedding = torch.linspace(-3, 3, 200)[:, None], ConditionalEmbedding(RBFKernel(), 1e-6, RBFKernel())
        >>> prior = MeanEmbedding(embedding.kernel).condition(torch.tensor([[0.5], [1.5]]))
        >>> round(sum_rule(embedding.condition(x, 2 * x), prior).expectation(lambda y: y[:, 0]).item(), 2)      # Y = 2X
        2.0
    """
    _check_rule(conditioned, prior)
    kernel, alpha = _transported(conditioned, prior)
    return WeightedEmbedding(kernel, _columns(conditioned), alpha)


def chain_rule(conditioned: ConditionedEmbedding, prior: WeightedEmbedding) -> JointEmbedding:
    """The joint distribution of Y and X when X has the distribution ``prior``; its ``expectation(g)`` is E[g(Y, X)].

    Args:
        conditioned: the embedding of P(Y | X) with its data.
        prior: an embedded distribution of X.

    Raises:
        TypeError: if ``conditioned`` holds no data, or ``prior`` is not an embedded distribution.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> x, doubled = torch.linspace(0, 1, 100)[:, None], ConditionalEmbedding(RBFKernel(), 1e-6)
        >>> pairs = chain_rule(doubled.condition(x, 2 * x), MeanEmbedding(RBFKernel()).condition(x))
        >>> round(pairs.expectation(lambda y, x: y * x).item(), 2)      # 2 E[X²]
        0.67
    """
    _check_rule(conditioned, prior)
    return JointEmbedding(_columns(conditioned), prior.x, conditioned.weights(prior.x) * prior.weights)


def bayes_rule(
    conditioned: ConditionedEmbedding, prior: WeightedEmbedding, regularization: float = 1e-3
) -> ConditionedEmbedding:
    """P(X | Y) under the distribution ``prior`` of X: an embedding that predicts X from observations y.

    Args:
        conditioned: the embedding of P(Y | X) with its data; its ``target_kernel`` is l.
        prior: an embedded distribution of X.
        regularization: λ of the embedding of X given Y; η is λ times the total weight.

    Raises:
        ValueError: if ``regularization`` is not positive and finite, or no pair counts under the prior.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> x, embedding = 6 * torch.rand(400, 1) - 3, ConditionalEmbedding(RBFKernel(), 1e-3, RBFKernel())
        >>> prior = MeanEmbedding(embedding.kernel).condition(torch.randn(400, 1))
        >>> posterior = bayes_rule(embedding.condition(x, x + 0.5 * torch.randn(400, 1)), prior)
        >>> abs(posterior.distribution(torch.ones(1, 1)).mean.item() - 1 / (1 + 0.25)) < 0.15      # E[X | Y = 1]
        True
    """
    _check_rule(conditioned, prior)
    if not 0.0 < check_number("regularization", regularization) < math.inf:
        raise ValueError(f"Expected a positive, finite regularization, got {regularization}. Give 1e-3, say.")
    kernel, alpha = _transported(conditioned, prior)
    counts = (alpha > 0).nonzero().squeeze(-1)
    if len(counts) == 0:
        raise ValueError("No training pair has a positive weight under this prior. Use one with mass near the data.")
    y, x, weights = _columns(conditioned)[counts], conditioned.x[counts], alpha[counts]
    weights = weights * (len(counts) / weights.sum())  # they add up to the number of rows, as in every system
    embedding = ConditionalEmbedding(kernel, regularization, conditioned.embedding.kernel).to(y)
    return embedding.condition(y, x.squeeze(-1) if x.shape[-1] == 1 else x, weights)


@torch.no_grad()
def _transported(conditioned: ConditionedEmbedding, prior: WeightedEmbedding) -> tuple[Kernel, Tensor]:
    """l, and α = A⁻¹K_xu γ, the weight of each pair (x_i, y_i) when X has the distribution ``prior``: ``(n,)``."""
    kernel = conditioned.embedding.target_kernel
    if kernel is None:
        raise ValueError("The embedding has no target kernel l. Pass target_kernel=l to ConditionalEmbedding.")
    conditioned.embedding.check_single()
    if prior.weights.dim() != 1:
        raise ValueError("Expected a distribution of X without batch shape. Use one element of the batch.")
    return kernel, conditioned.weights(prior.x) @ prior.weights.to(conditioned.x)


def _columns(conditioned: ConditionedEmbedding) -> Tensor:
    """The targets as columns, ``(n, q)``."""
    y = conditioned.y.to(conditioned.x)
    return check_features(y.reshape(len(y), -1), "y")


def _check_rule(conditioned: ConditionedEmbedding, prior: WeightedEmbedding) -> None:
    if not isinstance(conditioned, ConditionedEmbedding):
        kind = type(conditioned).__name__
        raise TypeError(f"Expected P(Y | X) with its data, got {kind}. Give ConditionalEmbedding(…).condition(x, y).")
    if not isinstance(prior, WeightedEmbedding):
        kind = type(prior).__name__
        raise TypeError(f"Expected an embedded distribution of X, got {kind}. Give MeanEmbedding(kernel).condition(u).")
