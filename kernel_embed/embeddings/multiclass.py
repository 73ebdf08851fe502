r"""The multiclass conditional embedding: a conditional embedding with the Kronecker delta on class labels.

.. math::
    \hat{\mathbf p}(x) &= \mathbf Y^\top (K + n\lambda I)^{-1} \mathbf k(x)                             & (5) \\
    \tilde p_c(x) &= \max\{\hat p_c(x), 0\} \Big/ \sum_j \max\{\hat p_j(x), 0\}                         & (6)
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Callable
from typing import Literal

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from ..kernels import DeltaKernel, DiagonalBound
from ..validation import check_features, check_labels
from .conditional import ConditionalEmbedding, ConditionedEmbedding

Entropy = Literal["clip-normalized", "expected-information"]


class MulticlassEmbedding(ConditionalEmbedding):
    """A probabilistic multiclass classifier: the conditional embedding of class labels 0 … m − 1.

    Args:
        kernel: k, any GPyTorch kernel on the inputs.
        num_classes: m.
        regularization: the starting value of λ.
        regularization_prior: a GPyTorch prior on λ.
        regularization_constraint: a GPyTorch constraint on λ.
        sup_diagonal: α², a bound of k(x, x) where the kernel has none in closed form: a number, or a function.

    Example:
        >>> import gpytorch
        >>> x = torch.tensor([[0.0], [0.1], [1.0], [1.1]])
        >>> y = torch.tensor([0, 0, 1, 1])
        >>> embedding = MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> conditioned = embedding.condition(x, y)
        >>> conditioned.predict(torch.tensor([[0.2], [0.9]]))
        tensor([0, 1])
    """

    def __init__(
        self,
        kernel: Kernel,
        num_classes: int,
        regularization: float = 0.01,
        *,
        regularization_prior: Prior | None = None,
        regularization_constraint: Interval | None = None,
        sup_diagonal: float | DiagonalBound | None = None,
    ) -> None:
        try:
            num_classes = operator.index(num_classes)
        except TypeError:
            raise TypeError(f"Expected num_classes as a whole number, got {num_classes!r}.") from None
        if num_classes < 1:
            raise ValueError(f"Expected num_classes of at least 1, got {num_classes}.")
        super().__init__(
            kernel,
            regularization,
            DeltaKernel(),
            regularization_prior=regularization_prior,
            regularization_constraint=regularization_constraint,
            sup_diagonal=sup_diagonal,
        )
        self.num_classes = num_classes

    def condition(self, x: Tensor, y: Tensor) -> ConditionedMulticlass:
        """Factorise K + nλI for inputs ``x`` (n, d) and class numbers ``y`` (n,)."""
        x = check_features(x)
        return ConditionedMulticlass(self, x, check_labels(x, y, self.num_classes))

    def targets(self, y: Tensor, like: Tensor) -> Tensor:
        """Y ∈ {0, 1}^{n×m}, the one-hot labels of eq. (5)."""
        return torch.nn.functional.one_hot(y, self.num_classes).to(like)


class MulticlassAnswers(abc.ABC):
    """The questions one can ask of anything that knows decision probabilities."""

    num_classes: int

    @abc.abstractmethod
    def decision_probabilities(self, x: Tensor) -> Tensor:
        """p̂(x) = f(x), eq. (5): ``(*batch, t, m)``. Estimates of probabilities that may leave [0, 1]."""

    def probabilities(self, x: Tensor) -> Tensor:
        """p̃(x), eq. (6): clipped at zero and normalised. Uniform where no decision probability is positive."""
        return clip_normalize(self.decision_probabilities(x))

    def predict(self, x: Tensor) -> Tensor:
        """The most probable class number: ``(*batch, t)``."""
        return self.decision_probabilities(x).argmax(dim=-1)

    def entropy(self, x: Tensor, kind: Entropy = "clip-normalized") -> Tensor:
        """The entropy of Y given X = x in nats: ``(*batch, t)``.

        Args:
            x: points of shape ``(t, d)``.
            kind: ``"clip-normalized"`` is h̃ of eq. (33), never negative; ``"expected-information"`` is ĥ of eq. (37),
                the embedding's own expectation of −log p̂, which may fall slightly below zero.
        """
        if kind == "clip-normalized":
            return _information(self.probabilities(x)).sum(dim=-1)
        if kind == "expected-information":
            # eqs. (36), (37): Σ_i û_x(y_i) w_i(x) = Σ_c û_x(c) p̂_c(x), û_x(c) = −log p̂_c(x) where p̂_c(x) > 0, else 0
            return _information(self.decision_probabilities(x)).sum(dim=-1)
        raise ValueError(f"Expected kind 'clip-normalized' or 'expected-information', got {kind!r}.")

    def class_expectation(self, values: Tensor, x: Tensor) -> Tensor:
        """E[g(Y) | X = x], eq. (2), for the ``values`` ``(m,)`` or ``(m, q)`` of g at the classes."""
        F = self.decision_probabilities(x)
        return F @ values.to(F)


class ConditionedMulticlass(MulticlassAnswers, ConditionedEmbedding):
    """A multiclass embedding with its data, ready to answer; see :class:`MulticlassEmbedding`."""

    embedding: MulticlassEmbedding

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        """m."""
        return self.embedding.num_classes

    def decision_probabilities(self, x: Tensor) -> Tensor:
        """p̂(x) = f(x), eq. (5): ``(*batch, t, m)``. Estimates of probabilities that may leave [0, 1]."""
        return self.answer(x, self.coefficients)

    def expectation(self, g: Callable[[Tensor], Tensor] | Tensor, x: Tensor) -> Tensor:
        """E[g(Y) | X = x], eq. (2).

        Args:
            g: a function of class numbers, or its values ``(m,)`` or ``(m, q)`` at the classes, or as in
                :meth:`ConditionedEmbedding.expectation` its values at the training labels.
            x: points of shape ``(t, d)``.
        """
        classes = torch.arange(self.num_classes, device=self.x.device)
        values = torch.as_tensor(g(classes) if callable(g) else g, dtype=self.x.dtype, device=self.x.device)
        if values.dim() not in (1, 2) or values.shape[0] != self.num_classes:
            return super().expectation(values, x)
        return self.class_expectation(values, x)


def _information(p: Tensor) -> Tensor:
    """−p log p where p > 0, else 0, with a finite derivative everywhere."""
    return torch.where(p > 0, -p * p.clamp_min(torch.finfo(p.dtype).tiny).log(), 0.0)


def clip_normalize(p: Tensor) -> Tensor:
    """eq. (6): max{p_c, 0} / Σ_j max{p_j, 0}; uniform where no entry is positive."""
    positive = p.clamp_min(0.0)
    total = positive.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, positive / total.clamp_min(torch.finfo(p.dtype).tiny), 1.0 / p.shape[-1])
