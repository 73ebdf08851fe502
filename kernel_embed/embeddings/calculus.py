r"""The calculus of embeddings: sums, products and Bayes' rule of probability, on embedded distributions.

Let P(Y | X) be embedded from pairs :math:`(x_i, y_i)`, and a new distribution π of X from points :math:`u_j` with
weights :math:`\gamma_j`. With :math:`\alpha = A^{-1} K_{xu} \gamma`, :math:`A = K + n\lambda I`,

.. math::
    \text{sum}   &: \quad \mu_Y = \int P(Y \mid x)\, \pi(dx) \approx \sum_i \alpha_i\, l(\cdot, y_i)              \\
    \text{chain} &: \quad \mu_{YX} \approx \sum_{i, j} B_{ij}\, l(\cdot, y_i) \otimes k(\cdot, u_j), \quad
                    B = A^{-1} K_{xu} \operatorname{diag}(\gamma) \\
    \text{Bayes} &: \quad \mu_{X \mid y} \approx \sum_i w_i\, k(\cdot, x_i), \qquad
                    w = (L + \eta D^{-1})^{-1} \mathbf l(y), \quad D = \operatorname{diag}(\alpha_+)

The first two are those of Song et al. 2013. In the third, α is the weight of each pair under π; the posterior is the
conditional embedding of X given Y with these row weights, clipped at zero so that it remains a least squares problem
(Fukumizu et al. 2013 square the operator instead). Being a conditional embedding, it has means, quantiles and draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..validation import check_features, check_number
from .conditional import ConditionalEmbedding, ConditionedEmbedding
from .mean import WeightedEmbedding


class JointEmbedding:
    """Σ_ij B_ij l(·, y_i) ⊗ k(·, u_j), the embedding of a joint distribution of Y and X.

    Attributes:
        y: the y_i, ``(n, q)``.
        u: the u_j, ``(m, d)``.
        weights: B, ``(n, m)``.

    Example:
        >>> from kernel_embed.embeddings import JointEmbedding
        >>> joint = JointEmbedding(torch.rand(3, 1), torch.rand(2, 1), torch.full((3, 2), 1 / 6))
        >>> round(joint.weights.sum().item(), 4)
        1.0
        >>> joint.expectation(lambda y, x: y * x).shape           # E[YX]
        torch.Size([])
    """

    def __init__(self, y: Tensor, u: Tensor, weights: Tensor) -> None:
        self.y, self.u, self.weights = y, u, weights

    def expectation(self, g: Callable[[Tensor, Tensor], Tensor] | Tensor) -> Tensor:
        """E[g(Y, X)] = Σ_ij B_ij g(y_i, u_j).

        Args:
            g: a function of ``y`` ``(n, 1, q)`` and ``x`` ``(1, m, d)``, or its values ``(n, m)``.

        Raises:
            ValueError: if g does not have one value for each pair.
        """
        values = torch.as_tensor(g(self.y.unsqueeze(1), self.u.unsqueeze(0)) if callable(g) else g).to(self.weights)
        if values.dim() == 3 and values.shape[-1] == 1:
            values = values.squeeze(-1)
        if values.shape != self.weights.shape:
            raise ValueError(
                f"Expected one value of g for each pair (y_i, u_j), of shape {tuple(self.weights.shape)}, got "
                f"{tuple(values.shape)}. Give lambda y, x: (y * x).sum(-1), say."
            )
        return (self.weights * values).sum()


def sum_rule(conditioned: ConditionedEmbedding, prior: WeightedEmbedding) -> WeightedEmbedding:
    """The distribution of Y when X has the distribution ``prior``: Σ α_i l(·, y_i).

    Args:
        conditioned: the embedding of P(Y | X) with its data; its ``target_kernel`` is l.
        prior: an embedded distribution of X, such as ``MeanEmbedding(kernel).condition(u)``.

    Returns:
        The embedded distribution of Y.

    Raises:
        TypeError: if ``conditioned`` holds no data, or ``prior`` is not an embedded distribution.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.linspace(-3, 3, 200, dtype=torch.float64).unsqueeze(-1)
        >>> kernel = gpytorch.kernels.RBFKernel().double()
        >>> embedding = ke.ConditionalEmbedding(kernel, 1e-6, gpytorch.kernels.RBFKernel().double())
        >>> prior = ke.MeanEmbedding(kernel).condition(torch.tensor([[0.5], [1.5]], dtype=torch.float64))
        >>> doubled = sum_rule(embedding.condition(x, 2 * x), prior)      # Y = 2X
        >>> round(doubled.expectation(lambda y: y.squeeze(-1)).item(), 3)
        2.0
    """
    _check(conditioned, prior)
    kernel = _target_kernel(conditioned)
    return WeightedEmbedding(kernel, _columns(conditioned), transported(conditioned, prior))


def chain_rule(conditioned: ConditionedEmbedding, prior: WeightedEmbedding) -> JointEmbedding:
    """The joint distribution of Y and X when X has the distribution ``prior``.

    Args:
        conditioned: the embedding of P(Y | X) with its data.
        prior: an embedded distribution of X.

    Returns:
        The embedded joint distribution.

    Raises:
        TypeError: if ``conditioned`` holds no data, or ``prior`` is not an embedded distribution.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.linspace(-3, 3, 100, dtype=torch.float64).unsqueeze(-1)
        >>> kernel = gpytorch.kernels.RBFKernel().double()
        >>> embedding = ke.ConditionalEmbedding(kernel, 1e-6, gpytorch.kernels.RBFKernel().double())
        >>> joint = ke.embeddings.chain_rule(embedding.condition(x, 2 * x), ke.MeanEmbedding(kernel).condition(x[:10]))
        >>> joint.weights.shape
        torch.Size([100, 10])
    """
    _check(conditioned, prior)
    return JointEmbedding(_columns(conditioned), prior.x, conditioned.weights(prior.x) * prior.weights)


def bayes_rule(
    conditioned: ConditionedEmbedding, prior: WeightedEmbedding, regularization: float = 1e-3
) -> ConditionedEmbedding:
    """P(X | Y) under the distribution ``prior`` of X: an embedding that predicts X from observations y.

    Args:
        conditioned: the embedding of the likelihood P(Y | X) with its data; its ``target_kernel`` is l.
        prior: an embedded distribution of X.
        regularization: λ of the embedding of X given Y; η is λ times the total weight.

    Returns:
        The posterior as a conditioned embedding: ``mean(y)``, ``distribution(y)``, ``expectation(g, y)``.

    Raises:
        TypeError: if ``conditioned`` holds no data, ``prior`` is not an embedded distribution, or ``regularization`` is
            not a number.
        ValueError: if ``regularization`` is not positive and finite, or no pair counts under the prior.
        MemoryError: if the n × n matrices do not fit.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = 6 * torch.rand(400, 1, generator=generator, dtype=torch.float64) - 3
        >>> y = x + 0.5 * torch.randn(400, 1, generator=generator, dtype=torch.float64)
        >>> kernel, target = gpytorch.kernels.RBFKernel().double(), gpytorch.kernels.RBFKernel().double()
        >>> target.lengthscale = 2.0
        >>> embedding = ke.ConditionalEmbedding(kernel, 1e-3, target)
        >>> u = torch.randn(400, 1, generator=generator, dtype=torch.float64)
        >>> posterior = bayes_rule(embedding.condition(x, y), ke.MeanEmbedding(embedding.kernel).condition(u))
        >>> exact = 1.0 / (1 + 0.25)                       # E[X | Y = 1] for X ~ N(0, 1) and noise of variance ¼
        >>> abs(posterior.distribution(torch.ones(1, 1, dtype=torch.float64)).mean.item() - exact) < 0.15
        True
    """
    _check(conditioned, prior)
    if not 0.0 < check_number("regularization", regularization) < math.inf:
        raise ValueError(f"Expected a positive, finite regularization, got {regularization}. Give 1e-3, say.")
    kernel, alpha = _target_kernel(conditioned), transported(conditioned, prior)
    counts = (alpha > 0).nonzero().squeeze(-1)
    if len(counts) == 0:
        raise ValueError(
            "No training pair has a positive weight under this prior of X. Use a prior with mass near the data."
        )
    y, x, weights = _columns(conditioned)[counts], conditioned.x[counts], alpha[counts]
    # Normalized to sum to the number of rows, as in every system.
    weights = weights * (len(counts) / weights.sum())
    embedding = ConditionalEmbedding(kernel, regularization, conditioned.embedding.kernel).to(y)
    targets = x.squeeze(-1) if x.shape[-1] == 1 else x
    return embedding.condition(y, targets, weights)


@torch.no_grad()
def transported(conditioned: ConditionedEmbedding, prior: WeightedEmbedding) -> Tensor:
    """α = A⁻¹K_xu γ, the weight of each pair (x_i, y_i) when X has the distribution ``prior``: ``(n,)``."""
    if prior.weights.dim() != 1 or len(conditioned.embedding.batch_shape) > 0:
        raise ValueError("Embeddings with a batch shape are not supported here. Use one element of the batch.")
    return conditioned.weights(prior.x) @ prior.weights.to(conditioned.x)


def _check(conditioned: object, prior: object) -> None:
    if not isinstance(conditioned, ConditionedEmbedding):
        raise TypeError(
            f"Expected P(Y | X) embedded with its data, got {type(conditioned).__name__}. Give "
            "ConditionalEmbedding(kernel, target_kernel=l).condition(x, y), before the distribution of X."
        )
    if not isinstance(prior, WeightedEmbedding):
        raise TypeError(
            f"Expected an embedded distribution of X, got {type(prior).__name__}. Give "
            "MeanEmbedding(kernel).condition(u) for a sample u of it."
        )


def _target_kernel(conditioned: ConditionedEmbedding) -> Kernel:
    kernel = conditioned.embedding.target_kernel
    if kernel is None:
        raise ValueError(
            "The embedding has no target kernel l. Pass target_kernel=RBFKernel() to ConditionalEmbedding."
        )
    return kernel


def _columns(conditioned: ConditionedEmbedding) -> Tensor:
    y = conditioned.y.to(conditioned.x)
    return check_features(y.reshape(len(y), -1), "y")
