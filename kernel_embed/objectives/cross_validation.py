r"""Validation in the objective: k folds (Grünewälder et al. 2012, with Song's norm penalty) and one split, eq. (13).

.. math::  \frac1J \sum_j \lVert l(y_j, \cdot) - \hat{\mathcal U} k(x_j, \cdot) \rVert^2_{\mathcal H_l}
           \; \big( + \lambda \lVert \hat{\mathcal U} \rVert^2_{HS} \big)
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..embeddings import ConditionedEmbedding, ConditionedMulticlass, MulticlassEmbedding
from ..kernels import gram, gram_diagonal
from ..validation import check_count, check_number, check_seed
from .base import Objective
from .risk import Below, ClippedRisk, RademacherComplexity, require_classes


class CrossValidationRisk(Objective[ConditionedEmbedding]):
    """The mean squared distance in H_l between held-out targets and their embedding, over k folds.

    Args:
        num_folds: k; each fold is predicted by the embedding of the others, with ridge n_T λ for n_T training rows.
        norm_penalty: add λ‖U‖²_HS of each fold's embedding, as Song et al. (2013) do.
        seed: of the permutation that makes the folds.

    For a :class:`~kernel_embed.MulticlassEmbedding` H_l is ℝᵐ and the distance is ‖y − f(x)‖². Other embeddings need
    a ``target_kernel``, which ``fit`` does not learn: scores under different target kernels cannot be compared.

    Raises:
        TypeError: if ``num_folds`` or ``seed`` is not a whole number.
        ValueError: if ``num_folds`` is below 2.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.rand(20, 2), torch.arange(20) % 2
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> ke.CrossValidationRisk(num_folds=5)(embedding, x, y).dim()
        0
    """

    def __init__(self, num_folds: int = 10, norm_penalty: bool = False, seed: int = 0) -> None:
        if check_count("num_folds", num_folds, -(2**31)) < 2:
            raise ValueError(f"Expected at least 2 folds, got {num_folds}. Ten are usual.")
        check_seed(seed)
        self.num_folds = num_folds
        self.norm_penalty = norm_penalty
        self.seed = seed

    def evaluate(self, attached: ConditionedEmbedding) -> Tensor:
        """The objective above; one factorization for each fold.

        Raises:
            ValueError: if there are fewer rows than folds.
        """
        folds = self._folds(attached)
        total = attached.x.new_zeros(attached.regularization.shape)
        for k, held_out in enumerate(folds):
            total = total + self._fold(attached, torch.cat([*folds[:k], *folds[k + 1 :]]), held_out)
        return total / attached.num_data

    def _folds(self, attached: ConditionedEmbedding) -> list[Tensor]:
        """The rows of each fold; those of one group are in one fold."""
        place, num_units = random_places(attached, self.seed)
        if num_units < self.num_folds:
            raise ValueError(
                f"Expected at least as many rows or groups as folds ({self.num_folds}), got {num_units}. Give more "
                "rows, or fewer folds."
            )
        return [(place % self.num_folds == k).nonzero().squeeze(-1) for k in range(self.num_folds)]

    def _fold(self, attached: ConditionedEmbedding, training: Tensor, held_out: Tensor) -> Tensor:
        """Σ over the held-out rows of the squared distance (and of the penalty)."""
        part = attached.restricted(training)
        if isinstance(attached.embedding, MulticlassEmbedding):
            F = attached.fitted_by(part, training, held_out)
            distances = (attached.Y[held_out] - F).square().sum((-2, -1))
        else:
            distances = _distances(attached, part, attached.system.block(held_out, training), held_out)
        if self.norm_penalty:
            distances = distances + len(held_out) * attached.regularization * _squared_norm(part)
        return distances

    def __repr__(self) -> str:
        return f"CrossValidationRisk(num_folds={self.num_folds}, norm_penalty={self.norm_penalty}, seed={self.seed})"


def _distances(attached: ConditionedEmbedding, part: ConditionedEmbedding, cross: Tensor, held_out: Tensor) -> Tensor:
    """Σ ‖l(y) − Σ w_i l(y_i)‖² = Σ l(y, y) − 2 Σ w_i l(y_i, y) + wᵀLw over the held-out rows."""
    kernel = _target_kernel(attached)
    y, y_part = (_numbers(each) for each in (attached, part))
    w = part.system.solve(cross.mT)
    L, l_cross = gram(kernel, y_part), gram(kernel, y_part, y[held_out])
    return gram_diagonal(kernel, y[held_out]).sum(-1) + ((L @ w - 2.0 * l_cross) * w).sum((-2, -1))


def _squared_norm(part: ConditionedEmbedding) -> Tensor:
    """‖U‖² = tr(A⁻¹KA⁻¹L)."""
    if isinstance(part, ConditionedMulticlass):
        return part.squared_norm
    _, P = part.system.regress(gram(_target_kernel(part), _numbers(part)))  # P = K A⁻¹ L
    return part.system.solve(P).diagonal(dim1=-2, dim2=-1).sum(-1)


def _numbers(attached: ConditionedEmbedding) -> Tensor:
    """The targets, one row each."""
    return attached.y.to(attached.x).reshape(attached.num_data, -1)


def _target_kernel(attached: ConditionedEmbedding) -> Kernel:
    kernel = attached.embedding.target_kernel
    if kernel is None:
        raise ValueError(
            "CrossValidationRisk needs a target_kernel, which measures distances between targets. "
            "Pass one to ConditionalEmbedding(kernel, target_kernel=...)."
        )
    return kernel


class BatchValidationRisk(ClippedRisk):
    """Eq. (13): the batch is split; one part trains the embedding, the other measures its risk.

    Args:
        validation_fraction: the share of rows that validate.
        complexity: a term τ r of eq. (13), evaluated on the training part.
        seed: of the permutation that splits the rows, the same for every call with as many rows.
        epsilon: ε of eq. (7).
        below: the loss below ε, see :func:`clipped_cross_entropy`.

    Raises:
        TypeError: if ``validation_fraction`` is not a number, or ``seed`` not a whole number.
        ValueError: if ``validation_fraction`` is not between 0 and 1.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.rand(20, 2), torch.arange(20) % 2
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> ke.BatchValidationRisk(validation_fraction=0.3)(embedding, x, y).dim()
        0
    """

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
        check_seed(seed)
        self.validation_fraction = validation_fraction
        self.complexity = complexity
        self.seed = seed

    def evaluate(self, attached: ConditionedMulticlass) -> Tensor:
        """q^(V) of eq. (13).

        Raises:
            ValueError: if there are fewer than two rows to split.
        """
        require_classes(self, attached)
        place, n = random_places(attached, self.seed)
        if n < 2:
            raise ValueError(
                f"A split into training and validation rows needs at least 2 rows or groups, got {n}. Use larger "
                "batches."
            )
        num_validation = min(max(round(self.validation_fraction * n), 1), n - 1)
        validation, training = (
            part.nonzero().squeeze(-1) for part in (place < num_validation, place >= num_validation)
        )
        part = attached.restricted(training)
        losses = self.losses(attached.fitted_by(part, training, validation), attached.y[validation])
        weighted = attached.row_weights is not None
        risk = attached.restricted(validation).weighted_mean(losses) if weighted else losses.mean(-1)
        return risk if self.complexity is None else risk + self.complexity.evaluate(part)

    def __repr__(self) -> str:
        below = "" if self.below == "flat" else f", below={self.below!r}"
        return (
            f"BatchValidationRisk(validation_fraction={self.validation_fraction:g}, complexity={self.complexity!r}, "
            f"seed={self.seed}, epsilon={self.epsilon:g}{below})"
        )


def random_places(attached: ConditionedEmbedding, seed: int) -> tuple[Tensor, int]:
    """The place of each row, or of its group, in a random order, and the number of rows or groups."""
    labels = None if attached.units is None else attached.units.labels
    n = attached.num_data if labels is None else int(labels.max()) + 1
    place = permutation(n, seed).argsort().to(attached.x.device)
    return place if labels is None else place[labels], n


def permutation(n: int, seed: int) -> Tensor:
    """A permutation of 0 … n − 1 that depends on ``seed`` alone and leaves the global generators unchanged."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(int(seed)))
