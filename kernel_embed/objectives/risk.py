r"""Risks, means over data of the clipped cross-entropy, eq. (7), and the Rademacher complexity of Theorem 4.

.. math::
    \mathcal L_\epsilon(y, \mathbf f(x)) &= -\log [f_y(x)]_\epsilon^1, \qquad
           [u]_\epsilon^1 = \min\{\max\{u, \epsilon\}, 1\}                                             \tag{7} \\
    r(\theta, \lambda) &= \alpha(\theta) \sqrt{\operatorname{tr}(V^\top K V)}, \qquad
           \alpha(\theta)^2 = \sup_x k_\theta(x, x)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..embeddings import ConditionedEmbedding, ConditionedMulticlass, MulticlassEmbedding, MulticlassPredictor
from ..validation import check_number
from .base import Array, Objective, Targets
from .score import target_features, target_form

Below = Literal["flat", "linear"]


def clipped_cross_entropy(f: Tensor, epsilon: float, below: Below = "flat") -> Tensor:
    """L_ε of eq. (7) for the decision probabilities ``f`` of the true classes; flat below ε.

    ``below="linear"`` continues it along its tangent, −log ε + (ε − f)/ε, so that such points have a gradient.
    """
    loss = -f.clamp(epsilon, 1.0).log()
    return loss if below == "flat" else loss + (epsilon - f).clamp_min(0.0) / epsilon


class ClassObjective(Objective[ConditionedMulticlass]):
    """An objective for class labels only."""

    def evaluate(self, attached: ConditionedMulticlass) -> Tensor:
        """The loss; raises a ``TypeError`` if the embedding has no classes."""
        require_classes(self, attached)
        return super().evaluate(attached)

    def is_direct(self, embedding: Any) -> bool:
        """True for class labels, if ``inputs`` are listed."""
        return bool(self.inputs) and isinstance(embedding, MulticlassEmbedding)


class ClippedRisk(ClassObjective):
    """A mean of clipped cross-entropies: the threshold ε and the extrapolation below it."""

    _settings: tuple[str, ...] = ("epsilon", "below")

    def __init__(self, epsilon: float, below: Below) -> None:
        if not 0.0 < check_number("epsilon", epsilon) < 1.0:
            raise ValueError(f"epsilon must lie between 0 and 1, got {epsilon}. A usual value is 1e-3.")
        if below not in ("flat", "linear"):
            raise ValueError(f"below must be 'flat' or 'linear', got {below!r}.")
        self.epsilon, self.below = epsilon, below

    def losses(self, F: Tensor, y: Tensor) -> Tensor:
        """L_ε(y_i, F_i) for decision probabilities ``F`` ``(*batch, n, m)``; its mean under a soft label."""
        if y.dim() == 2:
            return (y * clipped_cross_entropy(F, self.epsilon, self.below)).sum(-1)
        f_y = F.gather(-1, y.expand(F.shape[:-1]).unsqueeze(-1)).squeeze(-1)
        return clipped_cross_entropy(f_y, self.epsilon, self.below)

    def value_and_gradient(self, data: Targets, *inputs: Array) -> tuple[Array, tuple[Array, ...]]:
        """(1/n) Σ Y ∘ L_ε(F), and its derivative −(1/n) Y / F where F is not clipped."""
        (F,), xp, epsilon = inputs, data.xp, self.epsilon
        clipped = F.clip(epsilon, 1.0)
        loss, slope = -xp.log(clipped), xp.where(clipped == F, -1.0 / clipped, 0.0)
        if self.below == "linear":
            loss = loss + (epsilon - F).clip(0.0) / epsilon
            slope = slope - xp.where(epsilon >= F, 1.0 / epsilon, 0.0)
        return data.inner(data.shared_Y, loss), (data.shared_Y * slope,)


class EmpiricalRisk(ClippedRisk):
    """The first term of eq. (12), (1/n) Σ L_ε(y_i, f(x_i)), at the training points themselves.

    Args:
        epsilon: ε of eq. (7).
        below: the loss below ε, ``"flat"`` or ``"linear"``.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=1, regularization=1.0)
        >>> round(EmpiricalRisk()(embedding, torch.zeros(1, 1), torch.tensor([0])).item(), 4)      # log 2
        0.6931
    """

    inputs = ("fitted",)

    def __init__(self, epsilon: float = 1e-15, below: Below = "flat") -> None:
        super().__init__(epsilon, below)


class LeaveOneOutRisk(ClippedRisk):
    """(1/n) Σ L_ε(y_i, f₋ᵢ(x_i)), each point predicted by the embedding without it, in closed form.

    ε is larger than in :class:`EmpiricalRisk`, so that a few outliers do not dominate the mean.

    Args:
        epsilon: ε of eq. (7).
        below: the loss below ε, ``"flat"`` or ``"linear"``.

    Example:
        >>> LeaveOneOutRisk(below="linear")
        LeaveOneOutRisk(epsilon=0.001, below='linear')
    """

    inputs = ("leave_one_out",)

    def __init__(self, epsilon: float = 1e-3, below: Below = "flat") -> None:
        super().__init__(epsilon, below)


def require_classes(caller: object, attached: object) -> None:
    """Raise unless ``attached`` is a multiclass embedding with its data."""
    if isinstance(attached, ConditionedMulticlass):
        return
    name = caller if isinstance(caller, str) else type(caller).__name__
    if isinstance(attached, MulticlassPredictor):
        raise TypeError(f"{name} needs the training data. Pass the result of embedding.condition(x, y).")
    kind = type(getattr(attached, "embedding", attached)).__name__
    raise TypeError(
        f"{name} needs a MulticlassEmbedding, got {kind}. Use ConditionalEvidence or CrossValidationRisk instead."
    )


RATES: dict[str, Callable[[float], float]] = {
    "4e": lambda n: 4.0 * math.e,
    "4e/sqrt(n)": lambda n: 4.0 * math.e / math.sqrt(n),
    "2e/sqrt(n)": lambda n: 2.0 * math.e / math.sqrt(n),
    "e/sqrt(n)": lambda n: math.e / math.sqrt(n),
    "4e/n": lambda n: 4.0 * math.e / n,
    "1/n": lambda n: 1.0 / n,
}
"""The named multipliers; ``"4e/n"`` is that of the paper's code, which sums the cross-entropy over data."""


class RademacherComplexity(Objective[ConditionedEmbedding]):
    """τ·r, with r the bound of Theorem 4, for any target kernel, and τ a number or one of the named rates.

    Args:
        rate: τ. ``RademacherComplexity()`` is r itself. Named rates are ``"4e"`` (eq. 12 as published),
            ``"4e/sqrt(n)"`` (the tight bound), ``"2e/sqrt(n)"`` (the sharp one), ``"e/sqrt(n)"``, ``"4e/n"`` (the
            paper's released code) and ``"1/n"`` (in the default objective).

    Raises:
        ValueError: if ``rate`` is an unknown name, negative or not finite.

    Example:
        >>> RademacherComplexity(), 0.5 * RademacherComplexity("4e/sqrt(n)")
        (RademacherComplexity(rate=1), 0.5 * RademacherComplexity(rate='4e/sqrt(n)'))
    """

    def __init__(self, rate: float | str = 1.0) -> None:
        if isinstance(rate, str):
            rate = rate.replace("√n", "sqrt(n)")
            if rate not in RATES:
                raise ValueError(f"Unknown rate {rate!r}. Use a number or one of {', '.join(RATES)}.")
        elif not 0.0 <= check_number("rate", rate) < math.inf:
            raise ValueError(f"The rate must be finite and not negative, got {rate}. The default 1.0 is r itself.")
        self.rate = rate

    def multiplier(self, n: float) -> float:
        """τ for n data."""
        return RATES[self.rate](n) if isinstance(self.rate, str) else float(self.rate)

    inputs = ("squared_norm", "sup_diagonal")
    _settings = ("rate",)

    def evaluate(self, attached: ConditionedEmbedding) -> Tensor:
        """τ √(α² s), with s the squared norm of the embedding, in the RKHS of its target kernel if it has one."""
        return self.differentiable(attached, (squared_norm(attached), attached.sup_diagonal.value.to(attached.x)))

    def is_direct(self, embedding: Any) -> bool:
        """True if the norm is tr VᵀKV, without a target kernel."""
        return isinstance(embedding, MulticlassEmbedding) or embedding.target_kernel is None

    def value_and_gradient(self, data: Targets, *inputs: Array) -> tuple[Array, tuple[Array, ...]]:
        """τ √(α² s), with the derivatives half of it divided by s and by α²."""
        (s, alpha2), xp = inputs, data.xp
        tiny = float(xp.finfo(s.dtype).tiny)  # kept above zero, where the square root has no derivative
        positive = s.clip(tiny)
        value = self.multiplier(data.num_data) * xp.sqrt(alpha2 * positive)
        half = 0.5 * value
        return value, (half / positive * (s >= tiny), half / alpha2)


def rademacher_complexity(attached: ConditionedEmbedding) -> Tensor:
    """r(θ, λ) = α √tr(VᵀKV), of shape ``batch``; α √tr(A⁻¹KA⁻¹L) for an embedding with a target kernel of its own."""
    norm = squared_norm(attached)
    norm = norm.clamp_min(torch.finfo(norm.dtype).tiny)
    return (attached.sup_diagonal.value.to(norm) * norm).sqrt()


def squared_norm(attached: ConditionedEmbedding) -> Tensor:
    """The squared norm of the embedding, into the RKHS of its own target kernel if it has one."""
    if isinstance(attached, MulticlassPredictor):  # the targets are one-hot rows
        return attached.squared_norm
    kernel = getattr(getattr(attached, "embedding", None), "target_kernel", None)
    return attached.squared_norm if kernel is None else target_squared_norm(attached, kernel)


def target_squared_norm(attached: ConditionedEmbedding, kernel: Kernel) -> Tensor:
    """ρ² = tr(A⁻¹KA⁻¹L), the squared norm into the RKHS of the target ``kernel``, of shape ``batch``."""
    features = target_features(attached, kernel, centered=False)
    if features is not None:
        V, P = attached.system.regress(features)
        return (V * P).sum((-2, -1))
    L = target_form(attached, kernel, centered=False).apply(
        torch.eye(attached.num_data, dtype=attached.x.dtype, device=attached.x.device)
    )
    return attached.system.solve(attached.system.regress(L)[1]).diagonal(dim1=-2, dim2=-1).sum(-1)
