r"""The Rademacher bound for any bounded target kernel, which generalizes the paper's bound for classes.

Let :math:`l(y, y) \le B^2` and :math:`\mathbf f = W \phi(x)`, :math:`\lVert W \rVert_{HS} \le \rho`, from the RKHS of
k into that of l, :math:`k(x, x) \le \alpha^2`. With probability at least :math:`1 - \beta`, for all such W at once,

.. math::
    \mathbb E \lVert \psi(Y) - \mathbf f(X) \rVert^2 \le \frac1n \sum_i \lVert \psi(y_i) - \mathbf f(x_i) \rVert^2
        + \frac{2 (2 B \alpha\rho + \alpha^2\rho^2)}{\sqrt n} + (B + \alpha\rho)^2 \sqrt{\tfrac1{2n}\log\tfrac1\beta} .

The theory page has the proof, which needs no contraction inequality and no dimension of the targets. The norm is
:math:`\rho^2 = \operatorname{tr}(A^{-1} K A^{-1} L)`; it is rounded up on a geometric grid, so that the value is a
certificate at the norm that the data gave.
"""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError
from torch import Tensor

from ..bounds import Bound, check_confidence, log_share, round_up
from ..embeddings import ConditionedEmbedding, ConditionedMulticlass
from ..kernels import DeltaKernel, SupDiagonal, sup_diagonal
from .base import Objective
from .bounds import NOT_A_BOUND_EVERYWHERE, STEP
from .risk import target_squared_norm
from .score import target_features, target_form


class EmpiricalScore(Objective[ConditionedEmbedding]):
    """(1/n) Σ ‖ψ(y_i) − μ̂(x_i)‖², the score at the training rows, the first term of the bound.

    Args:
        target_kernel: l; ``None`` takes that of the embedding.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.rand(20, 1).double(), torch.rand(20).double()
        >>> target = gpytorch.kernels.RBFKernel().double()
        >>> embedding = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel().double(), target_kernel=target)
        >>> risk = EmpiricalScore() + ke.RademacherComplexity("4e/n")
        >>> risk(embedding, x, y).backward()
    """

    def __init__(self, target_kernel: Kernel | None = None) -> None:
        self.target_kernel = target_kernel

    def evaluate(self, bound: ConditionedEmbedding) -> Tensor:
        """η²[A⁻¹LA⁻¹]_ii averaged, for the residual at row i is η[A⁻¹ψ(y)]_i."""
        return training_scores(bound, require_target_kernel(bound, self.target_kernel)).mean(-1)

    def __repr__(self) -> str:
        return f"EmpiricalScore({'' if self.target_kernel is None else type(self.target_kernel).__name__})"


def training_scores(bound: ConditionedEmbedding, kernel: Kernel) -> Tensor:
    """‖ψ(y_i) − μ̂(x_i)‖² at the training rows, not centered: ``(*batch, n)``."""
    system = bound.system
    noise = system.ridge.unsqueeze(-1) if system.weights is None else system.ridge.unsqueeze(-1) / system.weights
    if not bool(torch.isfinite(noise.square()).all()):
        raise NanError(
            f"Expected a ridge whose square is a number, got nλ = {float(noise.detach().max()):g}. "
            "Give a smaller regularization."
        )
    features = target_features(bound, kernel, centered=False)
    if features is not None:
        q = system.solve(features).square().sum(-1)
    else:
        forms, _ = system.inverse_forms(target_form(bound, kernel, centered=False))
        assert isinstance(forms, Tensor)  # without groups
        q = forms.clamp_min(0.0)
    return noise.square() * q


def require_target_kernel(bound: ConditionedEmbedding, kernel: Kernel | None) -> Kernel:
    """The target kernel given, or that of the embedding."""
    kernel = bound.embedding.target_kernel if kernel is None else kernel
    if kernel is None:
        raise ValueError(
            "The bound needs a positive definite, bounded target kernel. Pass target_kernel=RBFKernel(), here or to "
            "the ConditionalEmbedding."
        )
    return kernel


@torch.no_grad()
def score_bound(
    conditioned: ConditionedEmbedding, confidence: float = 0.95, target_kernel: Kernel | None = None
) -> Bound:
    """The bound of the expected kernel score for an embedding of targets of any kind; see the module docstring.

    Args:
        conditioned: what ``embedding.condition(x, y)`` returned, without batch dimensions or weights.
        confidence: 1 − β.
        target_kernel: l; ``None`` takes that of the embedding. For class labels: the Brier score.

    Returns:
        The bound with its terms. ``details`` has ``empirical_score``, ``complexity`` (αρ from the data), ``rounded``
        (αρ rounded up on the grid) and ``target_sup`` (B).

    Raises:
        ValueError: if ``confidence`` is not between 0 and 1, the embedding has a batch shape, or the rows have
            weights.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.rand(500, 1).double(), torch.randn(500, 3).double()  # a target of three dimensions
        >>> target = gpytorch.kernels.RBFKernel().double()
        >>> embedding = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel().double(), 1.0, target)
        >>> bound = score_bound(embedding.condition(x, y))
        >>> bound.is_certificate, bound.value > bound.empirical_score
        (True, True)
    """
    check_confidence(confidence)
    if len(conditioned.embedding.batch_shape) > 0 or conditioned.system.weights is not None:
        raise ValueError("score_bound takes embeddings without a batch shape, and rows without weights.")
    kernel = require_target_kernel(conditioned, target_kernel)
    n, beta = conditioned.num_data, 1.0 - confidence
    sup = _target_sup(conditioned, kernel)
    B, alpha = float(sup.value) ** 0.5, float(conditioned.sup_diagonal.value) ** 0.5
    complexity = alpha * target_squared_norm(conditioned, kernel).clamp_min(0.0).sqrt().item()
    rounded, j = round_up(complexity, 0.01 * B, STEP)
    score = training_scores(conditioned, kernel).mean().item()
    is_covered = conditioned.sup_diagonal.is_bound and sup.is_bound
    details = {"empirical_score": score, "complexity": complexity, "rounded": rounded, "target_sup": B}
    return Bound(
        score,
        2.0 * (2.0 * B * rounded + rounded**2) / math.sqrt(n),
        (B + rounded) ** 2 * math.sqrt((log_share(j) - math.log(beta)) / (2.0 * n)),
        confidence,
        "score",
        "the kernel score ‖ψ(y) − f(x)‖²",
        "kernels chosen without these rows; λ may be learned from them",
        () if is_covered else (NOT_A_BOUND_EVERYWHERE,),
        details,
    )


def _target_sup(bound: ConditionedEmbedding, kernel: Kernel) -> SupDiagonal:
    y = bound.y.to(bound.x).reshape(len(bound.y), -1)
    if isinstance(bound, ConditionedMulticlass) and isinstance(kernel, DeltaKernel):
        return SupDiagonal(torch.ones(()), "closed form", True)
    return sup_diagonal(kernel, y)
