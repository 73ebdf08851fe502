r"""The leave-one-out score: a proper score of the predictive distribution at every row it has not seen, in closed form.

With φ the features of a target kernel l, L its Gram matrix at the targets, and :math:`\hat\mu_{-i}` the embedding of
P(Y | X = x_i) learned without row i (ridge nλ held),

.. math::
    \phi(y_i) - \hat\mu_{-i} &= \sum_j \frac{[A^{-1}]_{ij}}{[A^{-1}]_{ii}}\, \phi(y_j) ,
    \qquad A = K + n\lambda I ,                                                                     \\
    S_i = \lVert \phi(y_i) - \hat\mu_{-i} \rVert^2 &= [A^{-1} L A^{-1}]_{ii} \,/\, [A^{-1}]_{ii}^2 ,
    \qquad q = \tfrac1n \sum_i S_i .

With :math:`l(y, y') = -\tfrac12 \lvert y - y' \rvert` and L centered it is the CRPS of the predictive measure with
weights :math:`v = 1/n + w - (\sum w)/n`; in several dimensions, with the norm, the energy score; with the delta kernel
the Brier score; with the linear kernel the squared error of the mean. The theory page has the proofs.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError
from torch import Tensor

from ..embeddings import ConditionedEmbedding, ConditionedMulticlass
from ..kernels import DeltaKernel, explicit_features, gram
from ..kernels.features import MAX_WIDTH
from ..linalg import DenseForm, DistanceForm, QuadraticForm
from ..validation import check_memory
from .base import Objective

MEMORY_REMEDY = "Score one real target, whose matrix is never formed, or learn from a part of the rows."


class LeaveOneOutScore(Objective[ConditionedEmbedding]):
    """(1/n) Σ S_i, the mean score of each row's predictive distribution by the embedding that has not seen the row.

    The value has the units of the target kernel: those of y for the CRPS. Rows with weights count with them.

    Args:
        target_kernel: l. ``None`` takes the target kernel of the embedding, and where that has none the kernel of
            distances −½‖y − y′‖: the CRPS for real targets, the energy score for vectors. Its parameters are held.
        centered: whether L is centered, so that missing mass goes to the marginal distribution of the targets.
            ``None`` centers except for class labels, whose decision probabilities (5) leave it missing.

    Raises:
        TypeError: if ``target_kernel`` is neither ``None`` nor a kernel.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.linspace(0, 1, 30, dtype=torch.float64).unsqueeze(-1)
        >>> y = torch.sin(6 * x.squeeze(-1))
        >>> embedding = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel().double())
        >>> before = ke.LeaveOneOutScore()(embedding, x, y)
        >>> result = ke.fit(embedding, ke.LeaveOneOutScore(), x, y)
        >>> result.value < before.item()
        True
    """

    def __init__(self, target_kernel: Kernel | None = None, centered: bool | None = None) -> None:
        if target_kernel is not None and not isinstance(target_kernel, Kernel):
            raise TypeError(
                f"Expected a gpytorch.kernels.Kernel on the targets, got {type(target_kernel).__name__}. "
                "Pass RBFKernel(), say, or None for the CRPS."
            )
        self.target_kernel = target_kernel
        self.centered = centered

    @property
    def is_crps(self) -> bool:
        """Whether real targets of an embedding without a target kernel are scored by the CRPS."""
        return self.target_kernel is None and self.centered is not False

    def evaluate(self, bound: ConditionedEmbedding) -> Tensor:
        """(1/n) Σ [A⁻¹LA⁻¹]_ii / [A⁻¹]_ii²."""
        S = leave_one_out_scores(bound, self.target_kernel, self.centered)
        w = bound.system.weights
        return S.mean(-1) if w is None else (w * S).sum(-1) / w.sum(-1)

    def __repr__(self) -> str:
        kernel = "" if self.target_kernel is None else type(self.target_kernel).__name__
        centered = "" if self.centered is None else f"centered={self.centered}"
        return f"LeaveOneOutScore({', '.join(part for part in (kernel, centered) if part)})"


def leave_one_out_scores(
    bound: ConditionedEmbedding, target_kernel: Kernel | None = None, centered: bool | None = None
) -> Tensor:
    """S_i of each row by the embedding without it, ``(*batch, n)``; see :class:`kernel_embed.LeaveOneOutScore`.

    Args:
        bound: an embedding with its data, from ``attach`` or ``condition``.
        target_kernel: l; ``None`` takes that of the embedding.
        centered: whether the mean of the targets is taken out first; ``None`` decides by the target.

    Returns:
        The scores, lower is better.

    Raises:
        linear_operator.utils.errors.NanError: if the ridge nλ is so large that the square of its inverse vanishes.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.rand(20, 1, dtype=torch.float64)
        >>> conditioned = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).double().condition(x, x.squeeze(-1))
        >>> ke.objectives.leave_one_out_scores(conditioned).shape
        torch.Size([20])
    """
    kernel = bound.embedding.target_kernel if target_kernel is None else target_kernel
    centered = not isinstance(bound, ConditionedMulticlass) if centered is None else centered
    features = target_features(bound, kernel, centered)
    if features is not None:
        residuals = bound.system.solve(features) / bound.system.inverse_diagonal().unsqueeze(-1)
        return residuals.square().sum(-1)
    q, c = bound.system.inverse_forms(target_form(bound, kernel, centered))
    if bool((c.detach().square() == 0.0).any()):
        raise NanError(
            f"Expected a ridge nλ whose inverse has a square, got {float(bound.system.ridge.detach().max()):.3g}. "
            "Give a smaller regularization."
        )
    # Rounding alone can bring a squared norm below zero.
    return q.clamp_min(0.0) / c.square()


@torch.no_grad()
def target_features(bound: ConditionedEmbedding, kernel: Kernel | None, centered: bool) -> Tensor | None:
    """φ(y_i) as rows, where ``kernel`` has few explicit features: L has their rank, and is not formed."""
    if isinstance(bound, ConditionedMulticlass) and isinstance(kernel, DeltaKernel):
        features: Tensor | None = bound.Y
    else:
        y = bound.y.to(bound.x).reshape(len(bound.y), -1)
        features = None if kernel is None else explicit_features(kernel, y, limit=min(MAX_WIDTH, len(y)))
    if features is None or not centered:
        return features
    w = bound.system.weights
    return features - (features.mean(0) if w is None else (w / w.sum()) @ features)


@torch.no_grad()
def target_form(bound: ConditionedEmbedding, kernel: Kernel | None, centered: bool) -> QuadraticForm:
    """L, the Gram matrix of the targets: of ``kernel``, or of −½‖y − y′‖ without one."""
    Y, w = bound.embedding.targets(bound.y, bound.x), bound.system.weights
    if kernel is None:
        if not centered:
            raise ValueError(
                "Expected centered=True with the kernel of distances, which is positive definite only on differences "
                "of distributions, got False. Give a positive definite target_kernel."
            )
        if Y.shape[-1] == 1:
            return DistanceForm(Y.squeeze(-1), w)
        check_memory(len(Y), Y, 1, MEMORY_REMEDY)
        return DenseForm.centered(-0.5 * torch.cdist(Y, Y, compute_mode="donot_use_mm_for_euclid_dist"), w)
    check_memory(len(Y), Y, 1, MEMORY_REMEDY)
    y = bound.y.to(Y)
    L = gram(kernel, y.reshape(len(y), -1)).to(Y)
    return DenseForm.centered(L, w) if centered else DenseForm(L)
