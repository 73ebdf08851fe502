r"""The Gaussian-process evidence of the targets: the Bayesian way to learn the same embedding.

Each column of Y has the prior :math:`\mathcal N(0, K + n\lambda I)`, so that the posterior mean at x is
:math:`\mathbf Y^\top (K + n\lambda I)^{-1} \mathbf k(x)`, the embedding of eq. (5) itself:

.. math::  -\log p(Y) = \tfrac12 \operatorname{tr}(Y^\top A^{-1} Y) + \tfrac m2 \log |A| + \tfrac{nm}2 \log 2\pi,
           \qquad A = K + n\lambda I .
"""

from __future__ import annotations

from ..embeddings import ConditionedEmbedding
from .base import Array, Objective, Targets


class ConditionalEvidence(Objective[ConditionedEmbedding]):
    """−log p(Y), the negative log evidence of the (one-hot) targets in nats, summed over data.

    Unlike the risks it identifies the kernel's outputscale: the prior variance of the targets.

    Example:
        >>> import torch, gpytorch, kernel_embed as ke
        >>> x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 1, 1])
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> ke.ConditionalEvidence()(embedding, x, y).backward()
    """

    per_datum = False
    identifies_scale = True
    is_log_likelihood = True
    inputs = ("negative_log_density",)

    def value_and_gradient(self, data: Targets, *inputs: Array) -> tuple[Array, tuple[Array, ...]]:
        """The density itself."""
        (value,) = inputs
        return value * 1.0, (value * 0.0 + 1.0,)

    def __repr__(self) -> str:
        return "ConditionalEvidence()"
