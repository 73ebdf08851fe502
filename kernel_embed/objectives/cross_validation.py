r"""Validation in the objective: k folds (Grünewälder et al. 2012, with Song's norm penalty) and one split, eq. (13).

.. math::  \frac1J \sum_j \lVert l(y_j, \cdot) - \hat{\mathcal U} k(x_j, \cdot) \rVert^2_{\mathcal H_l}
           \; \big( + \lambda \lVert \hat{\mathcal U} \rVert^2_{HS} \big)
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..embeddings import ConditionedEmbedding, ConditionedMulticlass
from ..kernels import gram, gram_diagonal
from ..validation import check_count, check_number, generator_of
from .base import Objective
from .risk import Below, ClippedRisk, RademacherComplexity, require_classes, squared_norm


class CrossValidationRisk(Objective[ConditionedEmbedding]):
    """The mean squared distance in H_l between held-out targets and their embedding, over k folds.

    For class labels it is ‖y − f(x)‖². Other embeddings need a ``target_kernel``, which ``fit`` does not learn.

    Args:
        num_folds: k; each fold is predicted by the embedding of the others, with ridge n_T λ for n_T training rows.
        norm_penalty: add λ‖U‖²_HS of each fold's embedding, as Song et al. (2013) do.
        seed: of the permutation that makes the folds.

    Raises:
        ValueError: if ``num_folds`` is below 2.

    Example:
        >>> CrossValidationRisk(num_folds=5)
        CrossValidationRisk(num_folds=5, norm_penalty=False, seed=0)
    """

    _settings = ("num_folds", "norm_penalty", "seed")

    def __init__(self, num_folds: int = 10, norm_penalty: bool = False, seed: int = 0) -> None:
        if check_count("num_folds", num_folds, -(2**31)) < 2:
            raise ValueError(f"Expected at least 2 folds, got {num_folds}. Ten are usual.")
        self.num_folds, self.norm_penalty = num_folds, norm_penalty
        self.seed = check_count("seed", seed, 0, 2**64 - 1)

    def evaluate(self, attached: ConditionedEmbedding) -> Tensor:
        """The objective above; one factorization for each fold."""
        place, num_units = random_places(attached, self.seed)
        if num_units < self.num_folds:
            folds = f"as folds ({self.num_folds}), got {num_units}"
            raise ValueError(f"Expected at least as many rows or groups {folds}. Give more rows, or fewer folds.")
        total = attached.x.new_zeros(attached.regularization.shape)
        for k in range(self.num_folds):
            held_out, training = _rows(place % self.num_folds == k), _rows(place % self.num_folds != k)
            part = attached.restricted(training)
            if isinstance(attached, ConditionedMulticlass):
                F = attached.fitted_by(part, training, held_out)
                distances = (attached.Y[held_out] - F).square().sum((-2, -1))
            else:
                cross = attached.system.block(held_out, training)
                distances = _distances(part, cross, attached.y[held_out])
            if self.norm_penalty:
                distances = distances + len(held_out) * attached.regularization * squared_norm(part)
            total = total + distances
        return total / attached.num_data


def _distances(part: ConditionedEmbedding, cross: Tensor, y: Tensor) -> Tensor:
    """Σ ‖l(y) − Σ w_i l(y_i)‖² = Σ l(y, y) − 2 Σ w_i l(y_i, y) + wᵀLw over held-out targets ``y``."""
    kernel = part.embedding.target_kernel
    if kernel is None:
        raise ValueError("CrossValidationRisk needs a target_kernel. Pass one to ConditionalEmbedding.")
    y_part, y = (values.to(part.x).reshape(len(values), -1) for values in (part.y, y))
    w = part.system.solve(cross.mT)
    L, l_cross = gram(kernel, y_part), gram(kernel, y_part, y)
    return gram_diagonal(kernel, y).sum(-1) + ((L @ w - 2.0 * l_cross) * w).sum((-2, -1))


class BatchValidationRisk(ClippedRisk):
    """Eq. (13): the batch is split; one part trains the embedding, the other measures its risk.

    Args:
        validation_fraction: the share of rows that validate.
        complexity: a term τ r of eq. (13), evaluated on the training part.
        seed: of the permutation that splits the rows, the same for every call with as many rows.
        epsilon: ε of eq. (7).
        below: the loss below ε, ``"flat"`` or ``"linear"``.

    Raises:
        ValueError: if ``validation_fraction`` is not between 0 and 1.

    Example:
        >>> BatchValidationRisk(validation_fraction=0.3)
        BatchValidationRisk(validation_fraction=0.3, seed=0, epsilon=1e-15)
    """

    _settings = ("validation_fraction", "complexity", "seed", "epsilon", "below")

    def __init__(
        self,
        validation_fraction: float = 0.5,
        complexity: RademacherComplexity | None = None,
        seed: int = 0,
        epsilon: float = 1e-15,
        below: Below = "flat",
    ) -> None:
        super().__init__(epsilon, below)
        if not 0.0 < check_number("validation_fraction", validation_fraction) < 1.0:
            raise ValueError(f"validation_fraction must lie between 0 and 1, got {validation_fraction}.")
        self.validation_fraction, self.complexity = validation_fraction, complexity
        self.seed = check_count("seed", seed, 0, 2**64 - 1)

    def evaluate(self, attached: ConditionedMulticlass) -> Tensor:
        """q^(V) of eq. (13)."""
        require_classes(self, attached)
        place, n = random_places(attached, self.seed)
        if n < 2:
            raise ValueError(f"A split needs at least 2 rows or groups, got {n}. Use larger batches.")
        num_validation = min(max(round(self.validation_fraction * n), 1), n - 1)
        validation, training = _rows(place < num_validation), _rows(place >= num_validation)
        part = attached.restricted(training)
        losses = self.losses(attached.fitted_by(part, training, validation), attached.y[validation])
        weighted = attached.row_weights is not None
        risk = attached.restricted(validation).weighted_mean(losses) if weighted else losses.mean(-1)
        return risk if self.complexity is None else risk + self.complexity.evaluate(part)


def random_places(attached: ConditionedEmbedding, seed: int) -> tuple[Tensor, int]:
    """The place of each row, or of its group, in a random order, and the number of rows or groups."""
    labels = None if attached.units is None else attached.units.labels
    n = attached.num_data if labels is None else int(labels.max()) + 1
    place = permutation(n, seed).argsort().to(attached.x.device)
    return place if labels is None else place[labels], n


def permutation(n: int, seed: int) -> Tensor:
    """A permutation of 0 … n − 1 that depends on ``seed`` alone."""
    return torch.randperm(n, generator=generator_of(seed), device="cpu")


def _rows(mask: Tensor) -> Tensor:
    return mask.nonzero().squeeze(-1)
