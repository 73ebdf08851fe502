r"""The multiclass conditional embedding: a conditional embedding with the Kronecker delta on class labels.

.. math::
    \hat{\mathbf p}(x) &= \mathbf Y^\top (K + n\lambda I)^{-1} \mathbf k(x)                             & (5) \\
    \tilde p_c(x) &= \max\{\hat p_c(x), 0\} \Big/ \sum_j \max\{\hat p_j(x), 0\}                         & (6)
"""

from __future__ import annotations

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from ..kernels import DeltaKernel, DiagonalBound
from ..kernels.parameters import frozen
from ..linalg import Groups, Units
from ..validation import check_count, check_features, check_finite, check_lengths, check_weights
from .calibration import CalibratedMulticlass
from .conditional import ConditionalEmbedding, ConditionedEmbedding
from .predictors import MulticlassPredictor


class MulticlassEmbedding(ConditionalEmbedding):
    """A probabilistic multiclass classifier: the conditional embedding of class labels 0 … m − 1.

    Args:
        kernel: k, any GPyTorch kernel on the inputs.
        num_classes: m. The other arguments are those of :class:`ConditionalEmbedding`.

    Raises:
        TypeError: if ``num_classes`` is not a whole number.
        ValueError: if it is below 1.

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
        num_classes = check_count("num_classes", num_classes)
        super().__init__(
            kernel,
            regularization,
            DeltaKernel(),
            regularization_prior=regularization_prior,
            regularization_constraint=regularization_constraint,
            sup_diagonal=sup_diagonal,
        )
        self.num_classes = num_classes

    def attach(
        self, x: Tensor, y: Tensor, weights: Tensor | None = None, groups: Groups = None
    ) -> ConditionedMulticlass:
        """The embedding with its data, differentiable in its parameters.

        Args:
            x: inputs of shape ``(n, d)``.
            y: class numbers ``(n,)``, or soft labels: one row of m probabilities each, ``(n, m)``.
            weights: how many rows each row stands for, ``(n,)`` and positive; 1 each by default.
            groups: a whole number for each row, ``(n,)``; rows of one group are left out together.
        """
        x, y, weights = self.checked(x, y, weights)
        return ConditionedMulticlass(self, x, y, weights=weights, units=Units.of(x, groups))

    def checked(self, x: Tensor, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Validate and convert the data of :meth:`attach`."""
        x = check_features(x)
        return x, check_labels(x, y, self.num_classes), check_weights(x, weights)

    def condition(
        self, x: Tensor, y: Tensor, weights: Tensor | None = None, groups: Groups = None
    ) -> ConditionedMulticlass:
        """Factorize K + nλW⁻¹ for the data that :meth:`attach` takes, with a frozen embedding."""
        return frozen(self).attach(x, y, weights, groups)

    def targets(self, y: Tensor, like: Tensor) -> Tensor:
        """Y ∈ [0, 1]^{n×m}, the one-hot labels of eq. (5), or the soft labels as they are."""
        if y.dim() == 2:
            return y.to(like)
        return torch.nn.functional.one_hot(y, self.num_classes).to(like)


class ConditionedMulticlass(MulticlassPredictor, ConditionedEmbedding):
    """A multiclass embedding with its data; the attributes are those of :class:`ConditionedEmbedding`.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1])
        >>> conditioned = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2).condition(x, y)
        >>> conditioned.predict(torch.tensor([[0.1], [0.8]]))
        tensor([0, 1])
    """

    embedding: MulticlassEmbedding

    def calibrated(self) -> CalibratedMulticlass:
        """The same with probabilities calibrated on leave-one-out values, as the classifier reports them."""
        return CalibratedMulticlass(self)


def check_labels(x: Tensor, y: Tensor | None, num_classes: int) -> Tensor:
    """``y`` as class numbers 0 … m − 1, one for each row of ``x``, or as soft labels, m probabilities each."""
    y = check_lengths(x, y)
    if y.dim() == 2 and y.shape[1] == 1:
        y = y.squeeze(1)
    if y.dim() == 2 and y.shape[1] == num_classes and y.is_floating_point():
        return _check_soft_labels(y).to(x)
    if y.dim() != 1:
        raise ValueError(
            f"Expected y as a vector of class numbers, or {num_classes} probabilities for each row, got shape "
            f"{tuple(y.shape)}."
        )
    if y.is_floating_point():
        if not bool((y == y.round()).all()):
            raise ValueError(
                "Expected class numbers in y, got values that are not whole numbers. "
                "For continuous targets use ConditionalEmbedding."
            )
    elif y.is_complex():
        raise TypeError(f"Expected class numbers in y, got {y.dtype}. Number the classes from 0.")
    y = y.long()
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"Expected class numbers from 0 to {num_classes - 1} (num_classes={num_classes}), got {low} to {high}. "
            "Number the classes from 0, or use MulticlassEmbeddingClassifier, which takes labels of any kind."
        )
    return y.to(x.device)


def _check_soft_labels(y: Tensor) -> Tensor:
    check_finite(y, "y")
    wrong = (y < 0).any(-1) | ((y.sum(-1) - 1.0).abs() > 1e-4)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"Expected rows of probabilities in y, not negative and adding up to 1, got {y[row].tolist()} in row "
            f"{row}. Divide each row by its sum."
        )
    return y
