r"""The leave-one-out score: a proper score of the leave-one-out predictive distribution at every row, in closed form.

With φ the features of a target kernel l, L its Gram matrix at the targets, and :math:`\hat\mu_{-i}` the embedding of
P(Y | X = x_i) without row i and with the same ridge nλ,

.. math::
    \phi(y_i) - \hat\mu_{-i} &= \sum_j \frac{[A^{-1}]_{ij}}{[A^{-1}]_{ii}}\, \phi(y_j) ,
    \qquad A = K + n\lambda I ,                                                                     \\
    S_i = \lVert \phi(y_i) - \hat\mu_{-i} \rVert^2 &= [A^{-1} L A^{-1}]_{ii} \,/\, [A^{-1}]_{ii}^2 ,
    \qquad q = \tfrac1n \sum_i S_i .

for a group :math:`S_i = [C_{GG}^{-1} (C L C)_{GG} C_{GG}^{-1}]_{ii}` with :math:`C = A^{-1}`. With
:math:`l(y, y') = -\tfrac12 \lvert y - y' \rvert` and L centered it is the CRPS of the predictive measure with weights
:math:`v = 1/n + w - (\sum w)/n`; with the norm the energy score, with the delta kernel the Brier score.
"""

from __future__ import annotations

from typing import Any

import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError
from torch import Tensor

from ..embeddings import ConditionalEmbedding, ConditionedEmbedding, ConditionedMulticlass
from ..kernels import DeltaKernel, explicit_features, gram
from ..kernels.features import MAX_WIDTH
from ..linalg import DenseForm, DistanceForm, QuadraticForm, Units
from ..validation import check_memory
from .base import Array, Objective, Targets

MEMORY_REMEDY = "Score one real target, whose matrix is never formed, or learn from fewer rows."


class LeaveOneOutScore(Objective[ConditionedEmbedding]):
    """(1/n) Σ S_i, the mean score of each row's predictive distribution by the embedding without that row.

    Args:
        target_kernel: l. ``None`` takes the target kernel of the embedding or, if there is none, the kernel of
            distances −½‖y − y′‖: the CRPS for real targets, the energy score for vectors. Its parameters are fixed.
        centered: whether L is centered, so that missing mass goes to the marginal distribution of the targets.
            ``None`` centers except for class labels.

    Raises:
        TypeError: if ``target_kernel`` is neither ``None`` nor a kernel.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> LeaveOneOutScore()(ConditionalEmbedding(RBFKernel()), torch.tensor([[0.0], [9.0]]), torch.eye(2)[0]).item()
        0.25
    """

    def __init__(self, target_kernel: Kernel | None = None, centered: bool | None = None) -> None:
        if target_kernel is not None and not isinstance(target_kernel, Kernel):
            kind = type(target_kernel).__name__
            raise TypeError(f"target_kernel must be a gpytorch.kernels.Kernel, got {kind}. Pass None for the CRPS.")
        self.target_kernel = target_kernel
        self.centered = centered

    inputs = ("scores",)
    _settings = ("target_kernel", "centered")

    def evaluate(self, attached: ConditionedEmbedding) -> Tensor:
        """Σ w_i S_i / n."""
        return attached.weighted_mean(leave_one_out_scores(attached, self.target_kernel, self.centered))

    def is_direct(self, embedding: Any) -> bool:
        """True for the CRPS, whose Gram matrix L is never formed."""
        plain = type(embedding) is ConditionalEmbedding and embedding.target_kernel is None
        return plain and self.target_kernel is None and self.centered is not False

    def value_and_gradient(self, data: Targets, *inputs: Array) -> tuple[Array, tuple[Array, ...]]:
        """Σ w_i S_i / n, with the derivatives w_i / n."""
        (S,) = inputs
        return (data.share * S).sum(-1), (data.share * data.xp.ones_like(S),)


def leave_one_out_scores(
    attached: ConditionedEmbedding, target_kernel: Kernel | None = None, centered: bool | None = None
) -> Tensor:
    """S_i of each row by the embedding without it, ``(*batch, n)``; see :class:`kernel_embed.LeaveOneOutScore`.

    Args:
        attached: an embedding with its data, from ``attach`` or ``condition``.
        target_kernel: l; ``None`` takes that of the embedding.
        centered: whether L is centered; ``None`` decides by the kind of target.

    Raises:
        linear_operator.utils.errors.NanError: if the ridge nλ is so large that the square of its inverse vanishes.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> embedding, x = ConditionalEmbedding(RBFKernel()), torch.tensor([[0.0], [9.0]])
        >>> leave_one_out_scores(embedding.condition(x, torch.tensor([0.0, 1.0])))
        tensor([0.2500, 0.2500])
    """
    kernel = attached.embedding.target_kernel if target_kernel is None else target_kernel
    centered = not isinstance(attached, ConditionedMulticlass) if centered is None else centered
    features = target_features(attached, kernel, centered)
    if features is not None:
        return attached.left_out_residuals(features).square().sum(-1)
    q, c = attached.system.inverse_forms(target_form(attached, kernel, centered), attached.units)
    diagonals = [c] if isinstance(c, Tensor) else [block.diagonal(dim1=-2, dim2=-1) for block in c]
    if any(bool((part.detach().square() == 0.0).any()) for part in diagonals):
        ridge = float(attached.system.ridge.detach().max())
        raise NanError(f"The ridge nλ = {ridge:.3g} is so large that the square of its inverse is 0. Lower λ.")
    return (attached.units or Units()).norms(q, c, attached.system.noise)


@torch.no_grad()
def target_features(attached: ConditionedEmbedding, kernel: Kernel | None, centered: bool) -> Tensor | None:
    """φ(y_i) as rows, where ``kernel`` has few explicit features: L has their rank, and is not formed."""
    if isinstance(attached, ConditionedMulticlass) and isinstance(kernel, DeltaKernel):
        features: Tensor | None = attached.Y
    else:
        y = attached.y.to(attached.x).reshape(len(attached.y), -1)
        features = None if kernel is None else explicit_features(kernel, y, limit=min(MAX_WIDTH, len(y)))
    if features is None or not centered:
        return features
    w = attached.system.weights
    return features - (features.mean(0) if w is None else (w / w.sum()) @ features)


@torch.no_grad()
def target_form(attached: ConditionedEmbedding, kernel: Kernel | None, centered: bool) -> QuadraticForm:
    """L, the Gram matrix of the targets: of ``kernel``, or of −½‖y − y′‖ without one."""
    Y, w = attached.embedding.targets(attached.y, attached.x), attached.system.weights
    if kernel is None:
        if not centered:
            raise ValueError(
                "The kernel of distances is not positive definite, so centered=False is not possible with it. Pass "
                "another target_kernel."
            )
        if Y.shape[-1] == 1:
            return DistanceForm(Y.squeeze(-1), w)
        check_memory(len(Y), Y, 1, MEMORY_REMEDY)
        return DenseForm.centered(-0.5 * torch.cdist(Y, Y, compute_mode="donot_use_mm_for_euclid_dist"), w)
    check_memory(len(Y), Y, 1, MEMORY_REMEDY)
    y = attached.y.to(Y)
    L = gram(kernel, y.reshape(len(y), -1)).to(Y)
    return DenseForm.centered(L, w) if centered else DenseForm(L)
