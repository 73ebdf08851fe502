r"""Generalization bounds: on the clipped cross-entropy of a multiclass embedding, and on the score of any targets.

With probability at least :math:`1 - \beta`,

.. math::
    \mathbb E[\mathcal L_{e^{-1}}(Y, \mathbf f(X))] &\le \frac1n \sum_i \mathcal L_\epsilon(y_i, \mathbf f(x_i))
        + 4e\, r(\theta, \lambda) + \sqrt{\tfrac8n \log \tfrac2\beta}                                \tag{11} \\
    &\le \dots + \frac{2e\, \alpha\rho}{\sqrt n} + \sqrt{\tfrac1{2n} \log \tfrac1\beta}              \tag{sharp}

with a loss on the left of at most 1. For any target kernel with :math:`l(y, y) \le B^2`, at once for all
:math:`\mathbf f = W \phi(x)` with :math:`\lVert W \rVert_{HS} \le \rho`, and :math:`k(x, x) \le \alpha^2`,

.. math::
    \mathbb E \lVert \psi(Y) - \mathbf f(X) \rVert^2 \le \frac1n \sum_i \lVert \psi(y_i) - \mathbf f(x_i) \rVert^2
        + \frac{2 (2 B \alpha\rho + \alpha^2\rho^2)}{\sqrt n} + (B + \alpha\rho)^2 \sqrt{\tfrac1{2n}\log\tfrac1\beta} ,
        \qquad \rho^2 = \operatorname{tr}(A^{-1} K A^{-1} L) .

:class:`RiskBound` rounds r up to :math:`r_j = r_0 \cdot 1.1^j` and holds for J kernels that were named beforehand:

.. math::
    q = \frac1n \sum_i \mathcal L_{e^{-1}}(y_i, \mathbf f(x_i)) + \frac{2e\, r_j}{\sqrt n} +
        \sqrt{\frac1{2n} \log \frac{J (j + 1)(j + 2)}{\beta}} .
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError
from torch import Tensor

from ..bounds import Bound, check_confidence, log_share, round_up
from ..embeddings import ConditionedEmbedding, ConditionedMulticlass
from ..embeddings.conditional import check_labels
from ..kernels import DeltaKernel, SupDiagonal, sup_diagonal
from ..validation import check_count, check_query_points
from .base import Objective
from .holdout import holdout_bound
from .risk import (
    ClassObjective,
    EmpiricalRisk,
    RademacherComplexity,
    clipped_cross_entropy,
    rademacher_complexity,
    require_classes,
    target_squared_norm,
)
from .score import target_features, target_form

Form = Literal["paper", "tight", "sharp", "peeled", "holdout"]
_RATE = {"paper": "4e", "tight": "4e/sqrt(n)", "sharp": "2e/sqrt(n)", "peeled": "2e/sqrt(n)"}
STEP = 1.1  # ratio of the geometric grid of norms: a certificate costs at most this factor on the complexity term
SMALLEST_TERM = 0.01  # the complexity term at the first norm of the grid
LOSS = "cross-entropy clipped at 1/e, at most 1"
NORM_FROM_THE_DATA = "the theorem needs a norm that is fixed before the rows are drawn; this one was computed from them"
NOT_A_BOUND_EVERYWHERE = "α bounds k(x, x) on the data only, or the rows have weights"
FIXED_KERNEL = (
    "a kernel, or one of the candidates, chosen without these rows; λ may be learned from them. A bound of k(x, x) for "
    "every x, and rows without weights"
)
HELD_OUT = "rows that were held out: neither learned nor conditioned on"


def generalization_bound(
    conditioned: ConditionedMulticlass,
    confidence: float = 0.95,
    form: Form = "paper",
    epsilon: float | None = None,
    *,
    candidates: int = 1,
    holdout: tuple[Tensor, Tensor] | None = None,
) -> Bound:
    """Bound the risk of a conditioned multiclass embedding; ``"holdout"`` is usually by far the smallest bound.

    Args:
        conditioned: the result of ``embedding.condition(x, y)``, without batch dimensions.
        confidence: 1 − β.
        form: ``"paper"``, ``"tight"`` or ``"sharp"``, with 4e·r, 4e·r/√n or 2e·r/√n, no certificates, because r takes
            its norm from the sample; ``"peeled"``, sharp with r rounded up, a certificate for a kernel chosen without
            these rows, α that bounds it everywhere and no weights; or ``"holdout"``, a certificate.
        epsilon: ε of the empirical risk, in (0, 1/e]; 1e-15 in the first two forms, as published, else 1/e.
        candidates: J, how many kernels were compared on the rows of the bound; each spends β/J.
        holdout: inputs and class numbers of held-out rows, for ``form="holdout"``.

    Raises:
        ValueError: if ``form`` is unknown, a number is out of its range, or the embedding has a batch shape.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y, embedding = torch.eye(2), torch.zeros(2), ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), 1)
        >>> generalization_bound(embedding.condition(x, y), form="holdout", holdout=(x, y)).is_certificate
        True
    """
    check_confidence(confidence)
    if form not in get_args(Form):
        raise ValueError(f"Unknown form {form!r}. Choose one of {', '.join(map(repr, get_args(Form)))}.")
    epsilon = (1e-15 if form in ("paper", "tight") else 1.0 / math.e) if epsilon is None else epsilon
    if not 0.0 < epsilon <= 1.0 / math.e:
        raise ValueError(f"Theorem 4 requires epsilon between 0 and 1/e; got {epsilon}.")
    if candidates < 1:
        raise ValueError(f"candidates is the number of kernels that were compared, at least 1; got {candidates}.")
    require_classes("generalization_bound", conditioned)
    conditioned.embedding.check_single()
    details: dict[str, object] = {"complexity": 0.0, "multiplier": 0.0}
    details["sup_diagonal_source"] = conditioned.sup_diagonal.source
    if form == "holdout":
        if holdout is None:
            raise ValueError("form='holdout' needs holdout=(x, y): rows that were not used for learning.")
        x = check_query_points(holdout[0], conditioned.x)
        y = check_labels(x, holdout[1], conditioned.num_classes)
        f_y = conditioned.decision_probabilities(x).gather(-1, y.unsqueeze(-1)).squeeze(-1)
        plain = holdout_bound(clipped_cross_entropy(f_y, 1.0 / math.e), confidence, candidates)
        risk, last = plain.empirical_risk, plain.confidence_term
        return Bound(risk, 0.0, last, confidence, form, LOSS, HELD_OUT, details=details)
    n, beta = conditioned.total_weight, (1.0 - confidence) / candidates  # a row of weight 3 stands for three rows
    r, multiplier = rademacher_complexity(conditioned).item(), RademacherComplexity(_RATE[form]).multiplier(n)
    risk = EmpiricalRisk(epsilon).evaluate(conditioned).item()
    reasons: tuple[str, ...] = (NORM_FROM_THE_DATA,)
    if form == "peeled":
        r, j = round_up(r, SMALLEST_TERM / multiplier, STEP)
        last = math.sqrt((log_share(j) - math.log(beta)) / (2.0 * n))
        is_covered = conditioned.sup_diagonal.is_bound and conditioned.row_weights is None
        reasons = () if is_covered else (NOT_A_BOUND_EVERYWHERE,)
    else:
        last = math.sqrt(math.log(1.0 / beta) / (2.0 * n) if form == "sharp" else 8.0 / n * math.log(2.0 / beta))
    details |= {"complexity": r, "multiplier": multiplier}
    return Bound(risk, multiplier * r, last, confidence, form, LOSS, FIXED_KERNEL, reasons, details)


class RiskBound(ClassObjective):
    """The value of ``generalization_bound(…, form="peeled", candidates=J)``, to choose among J kernels by.

    It is a certificate for J kernels that were fixed before the rows were seen, but not for one learned by minimizing
    it. Between the norms of the grid its gradient is that of r, scaled to r_j.

    Args:
        confidence: 1 − β.
        candidates: J, how many kernels are compared.

    Raises:
        ValueError: if the confidence is not between 0 and 1, both excluded, or J is less than 1.

    Example:
        >>> RiskBound(candidates=3)
        RiskBound(confidence=0.95, candidates=3)
    """

    _settings = ("confidence", "candidates")

    def __init__(self, confidence: float = 0.95, candidates: int = 1) -> None:
        check_confidence(confidence)
        self.confidence = confidence
        self.candidates = check_count("candidates", candidates)

    def evaluate(self, attached: ConditionedMulticlass) -> Tensor:
        """q = (1/n) Σ L_ε(y_i, f(x_i)) + 2e r_j/√n + √(log(J(j + 1)(j + 2)/β)/2n) with ε = 1/e."""
        require_classes(self, attached)
        n, beta = attached.total_weight, (1.0 - self.confidence) / self.candidates
        r, multiplier = rademacher_complexity(attached), RademacherComplexity("2e/sqrt(n)").multiplier(n)
        grid = [round_up(value, SMALLEST_TERM / multiplier, STEP) for value in r.detach().flatten().tolist()]
        rounded = r.new_tensor([value for value, _ in grid]).reshape(r.shape)
        terms = [math.sqrt((log_share(j) - math.log(beta)) / (2.0 * n)) for _, j in grid]
        last = r.new_tensor(terms).reshape(r.shape)
        r_j = rounded * (1.0 + (r - r.detach()) / r.detach().clamp_min(1e-300))  # r_j in value, with the gradient of r
        return EmpiricalRisk(1.0 / math.e).evaluate(attached) + multiplier * r_j + last


class EmpiricalScore(Objective[ConditionedEmbedding]):
    """(1/n) Σ ‖ψ(y_i) − μ̂(x_i)‖², the score at the training rows, the first term of :func:`score_bound`.

    Args:
        target_kernel: l; ``None`` takes that of the embedding.

    Example:
        >>> EmpiricalScore() + RademacherComplexity("4e/n")
        EmpiricalScore() + RademacherComplexity(rate='4e/n')
    """

    _settings = ("target_kernel",)

    def __init__(self, target_kernel: Kernel | None = None) -> None:
        self.target_kernel = target_kernel

    def evaluate(self, attached: ConditionedEmbedding) -> Tensor:
        """η²[A⁻¹LA⁻¹]_ii averaged, for the residual at row i is η[A⁻¹ψ(y)]_i."""
        return _training_scores(attached, _target_kernel(attached, self.target_kernel)).mean(-1)


@torch.no_grad()
def score_bound(
    conditioned: ConditionedEmbedding, confidence: float = 0.95, target_kernel: Kernel | None = None
) -> Bound:
    """The bound of the expected kernel score for an embedding of targets of any kind, a certificate.

    ``details`` has ``empirical_score``, ``complexity`` (αρ), ``rounded`` (αρ on a grid) and ``target_sup`` (B).

    Args:
        conditioned: what ``embedding.condition(x, y)`` returned, without batch dimensions or weights.
        confidence: 1 − β.
        target_kernel: l; ``None`` takes that of the embedding. For class labels: the Brier score.

    Raises:
        ValueError: if ``confidence`` is not between 0 and 1, there is a batch shape, or the rows have weights.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel(), 1.0, gpytorch.kernels.RBFKernel())
        >>> score_bound(embedding.condition(torch.zeros(1, 1), torch.zeros(1))).is_certificate
        True
    """
    check_confidence(confidence)
    conditioned.embedding.check_single()
    if conditioned.system.weights is not None:
        raise ValueError("score_bound takes rows without weights. Repeat rows instead.")
    kernel = _target_kernel(conditioned, target_kernel)
    if isinstance(conditioned, ConditionedMulticlass) and isinstance(kernel, DeltaKernel):
        sup = SupDiagonal(conditioned.x.new_ones(()), "closed form", True)
    else:
        sup = sup_diagonal(kernel, conditioned.y.to(conditioned.x).reshape(len(conditioned.y), -1))
    n, B, alpha = conditioned.num_data, float(sup.value) ** 0.5, float(conditioned.sup_diagonal.value) ** 0.5
    complexity = alpha * target_squared_norm(conditioned, kernel).clamp_min(0.0).sqrt().item()
    rounded, j = round_up(complexity, 0.01 * B, STEP)
    score = _training_scores(conditioned, kernel).mean().item()
    return Bound(
        score,
        2.0 * (2.0 * B * rounded + rounded**2) / math.sqrt(n),
        (B + rounded) ** 2 * math.sqrt((log_share(j) - math.log(1.0 - confidence)) / (2.0 * n)),
        confidence,
        "score",
        "the kernel score ‖ψ(y) − f(x)‖²",
        "kernels chosen without these rows; λ may be learned from them",
        () if conditioned.sup_diagonal.is_bound and sup.is_bound else (NOT_A_BOUND_EVERYWHERE,),
        {"empirical_score": score, "complexity": complexity, "rounded": rounded, "target_sup": B},
    )


def _training_scores(attached: ConditionedEmbedding, kernel: Kernel) -> Tensor:
    """‖ψ(y_i) − μ̂(x_i)‖² at the training rows, not centered: ``(*batch, n)``."""
    system = attached.system
    noise = system.ridge.unsqueeze(-1) if system.weights is None else system.ridge.unsqueeze(-1) / system.weights
    if not bool(torch.isfinite(noise.square()).all()):
        ridge = float(noise.detach().max())
        raise NanError(f"Expected a ridge whose square is a number, got nλ = {ridge:g}. Give a smaller regularization.")
    features = target_features(attached, kernel, centered=False)
    if features is not None:
        return noise.square() * system.solve(features).square().sum(-1)
    forms, _ = system.inverse_forms(target_form(attached, kernel, centered=False))
    assert isinstance(forms, Tensor)  # without groups
    return noise.square() * forms.clamp_min(0.0)


def _target_kernel(attached: ConditionedEmbedding, kernel: Kernel | None) -> Kernel:
    """The target kernel given, or that of the embedding."""
    kernel = attached.embedding.target_kernel if kernel is None else kernel
    if kernel is None:
        raise ValueError("The score needs a bounded target kernel. Pass one, such as target_kernel=RBFKernel().")
    return kernel
