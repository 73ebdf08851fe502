r"""Generalization bounds, each with its parts, its loss, and whether it is a certificate.

With probability at least :math:`1 - \beta`,

.. math::
    \mathbb E[\mathcal L_{e^{-1}}(Y, \mathbf f(X))] &\le \frac1n \sum_i \mathcal L_\epsilon(y_i, \mathbf f(x_i))
        + 4e\, r(\theta, \lambda) + \sqrt{\tfrac8n \log \tfrac2\beta}                                \tag{11} \\
    &\le \dots + \frac{2e\, \alpha\rho}{\sqrt n} + \sqrt{\tfrac1{2n} \log \tfrac1\beta}              \tag{sharp}

The loss on the left is at most 1.

==============  ====================================================  ================================================
form            middle term                                           a certificate?
==============  ====================================================  ================================================
``"paper"``     4e·r                                                  no: r takes its norm from the sample
``"tight"``     4e·r/√n                                               no, for the same reason
``"sharp"``     2e·r/√n                                               no, for the same reason
``"peeled"``    2e·(r rounded up on a geometric grid)/√n              yes, for a kernel chosen without these rows, α
                                                                      that bounds it everywhere, and no weights
``"holdout"``   0; rows held out                                      yes
==============  ====================================================  ================================================

The documentation has the proofs. Who can hold rows out should: that bound is usually by far the smallest.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, get_args

from torch import Tensor

from ..embeddings import ConditionedMulticlass
from ..validation import check_labels, check_question
from .certificates import check_confidence, holdout_bound
from .rademacher import RademacherComplexity, rademacher_complexity
from .risk import EmpiricalRisk, clipped_cross_entropy, require_classes

Form = Literal["paper", "tight", "sharp", "peeled", "holdout"]
_RATE = {"paper": "4e", "tight": "4e/sqrt(n)", "sharp": "2e/sqrt(n)", "peeled": "2e/sqrt(n)"}

STEP = 1.1
"""Ratio of the geometric grid of norms: a certificate costs at most this factor on the middle term."""

SMALLEST_TERM = 0.01
"""The middle term at the first norm of the grid."""

LOSS = "cross-entropy clipped at 1/e, at most 1"
NAMED_BEFORE = "a norm named before the rows were drawn; this one was read off them"
FIXED_KERNEL = (
    "a kernel, or one of the candidates, chosen without these rows; λ may be learned from them. A bound of k(x, x) for "
    "every x, and rows without weights"
)
HELD_OUT = "rows that were held out: neither learned nor conditioned on"


@dataclasses.dataclass(frozen=True)
class GeneralizationBound:
    """A bound of the risk, and its parts.

    Attributes:
        empirical_risk: (1/n) Σ L_ε(y_i, f(x_i)), on the rows of the bound.
        complexity: r(θ, λ); 0 with rows held out.
        multiplier: of r: 4e, 4e/√n, or 2e/√n.
        confidence_term: what is added for the confidence.
        confidence: 1 − β.
        form: which bound it is.
        sup_diagonal_source: where α in r comes from.
        is_certificate: whether a theorem covers the value as it was computed, under ``conditions``.
        loss: whose expectation is bounded.
        conditions: what must hold.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> bound = ke.generalization_bound(embedding.condition(torch.rand(50, 1), torch.arange(50) % 2))
        >>> bound.is_vacuous
        True
    """

    empirical_risk: float
    complexity: float
    multiplier: float
    confidence_term: float
    confidence: float
    form: str
    sup_diagonal_source: str
    is_certificate: bool = False
    loss: str = LOSS
    conditions: str = NAMED_BEFORE

    @property
    def complexity_term(self) -> float:
        """The middle term."""
        return self.multiplier * self.complexity

    @property
    def value(self) -> float:
        """The right-hand side."""
        return self.empirical_risk + self.complexity_term + self.confidence_term

    @property
    def is_vacuous(self) -> bool:
        """True where the bound is 1 or more, the largest value the bounded loss can take."""
        return self.value >= 1.0


def generalization_bound(
    conditioned: ConditionedMulticlass,
    confidence: float = 0.95,
    form: Form = "paper",
    epsilon: float | None = None,
    *,
    candidates: int = 1,
    holdout: tuple[Tensor, Tensor] | None = None,
) -> GeneralizationBound:
    """A bound of the risk of an embedding with its data; see the module's text for the forms.

    Args:
        conditioned: what ``embedding.condition(x, y)`` returned, without batch dimensions.
        confidence: 1 − β.
        form: ``"paper"``, ``"tight"``, ``"sharp"``, ``"peeled"`` or ``"holdout"``.
        epsilon: ε of the empirical risk, in (0, 1/e]. By default 1e-15 in the first two forms, as published, and 1/e,
            where the bound is tightest, in the others.
        candidates: J, how many kernels were compared on the rows of the bound; β/J is spent on each.
        holdout: inputs and class numbers of rows held out, for ``form="holdout"``.

    Returns:
        The bound with its parts.

    Raises:
        ValueError: if ``form`` is unknown, ``confidence`` is not between 0 and 1, ``epsilon`` not between 0 and 1/e,
            ``candidates`` is below 1, or the embedding has a batch shape.

    Example:
        >>> import torch, gpytorch, kernel_embed as ke
        >>> x, y = torch.rand(400, 1), torch.randint(2, (400,))
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), 2, regularization=1.0)
        >>> conditioned = embedding.condition(x[:200], y[:200])
        >>> tight, sharp = (ke.generalization_bound(conditioned, form=form) for form in ("tight", "sharp"))
        >>> held_out = ke.generalization_bound(conditioned, form="holdout", holdout=(x[200:], y[200:]))
        >>> held_out.value < sharp.value < tight.value, held_out.is_certificate
        (True, True)
    """
    check_confidence(confidence)
    if form not in get_args(Form):
        raise ValueError(
            f"Expected form 'paper', 'tight', 'sharp', 'peeled' or 'holdout', got {form!r}. Choose one of these."
        )
    epsilon = (1e-15 if form in ("paper", "tight") else 1.0 / math.e) if epsilon is None else epsilon
    if not 0.0 < epsilon <= 1.0 / math.e:
        raise ValueError(
            f"Expected epsilon between 0 and 1/e, as Theorem 4 requires, got {epsilon}. Give another epsilon."
        )
    if candidates < 1:
        raise ValueError(
            f"Expected candidates of at least 1, got {candidates}. Give the number of kernels that were tried."
        )
    require_classes("generalization_bound", conditioned)
    if len(conditioned.embedding.batch_shape) > 0:
        raise ValueError(
            f"Expected an embedding without batch shape, got {tuple(conditioned.embedding.batch_shape)}. "
            "Bound each kernel of the batch alone."
        )
    if form == "holdout":
        return _held_out(conditioned, confidence, candidates, holdout)
    # A row of weight 3 stands for three.
    n, beta = conditioned.total_weight, (1.0 - confidence) / candidates
    r, source = rademacher_complexity(conditioned).item(), conditioned.sup_diagonal.source
    multiplier = RademacherComplexity(_RATE[form]).multiplier(n)
    risk = EmpiricalRisk(epsilon).evaluate(conditioned).item()
    if form == "peeled":
        r, j = peeled(r, multiplier)
        last = math.sqrt(math.log((j + 1) * (j + 2) / beta) / (2.0 * n))
        known = conditioned.sup_diagonal.is_bound and conditioned.row_weights is None
        return GeneralizationBound(risk, r, multiplier, last, confidence, form, source, known, LOSS, FIXED_KERNEL)
    last = math.sqrt(math.log(1.0 / beta) / (2.0 * n) if form == "sharp" else 8.0 / n * math.log(2.0 / beta))
    return GeneralizationBound(risk, r, multiplier, last, confidence, form, source)


def peeled(r: float, multiplier: float) -> tuple[float, int]:
    """The least r_j = r_0·1.1^j that is not below r, and j; β/((j + 1)(j + 2)) is spent on it, β in all."""
    first = SMALLEST_TERM / multiplier
    j = max(0, math.ceil(math.log(max(r, 1e-300) / first, STEP) - 1e-12))
    return first * STEP**j, j


def _held_out(
    conditioned: ConditionedMulticlass, confidence: float, candidates: int, holdout: tuple[Tensor, Tensor] | None
) -> GeneralizationBound:
    if holdout is None:
        raise ValueError(
            "Expected holdout=(x, y), rows that were held out, for form='holdout', got none. "
            "Give rows that learning has not seen."
        )
    x = check_question(holdout[0], conditioned.x)
    y = check_labels(x, holdout[1], conditioned.num_classes)
    F = conditioned.decision_probabilities(x)
    losses = clipped_cross_entropy(F.gather(-1, y.unsqueeze(-1)).squeeze(-1), 1.0 / math.e)
    bound = holdout_bound(losses, confidence, candidates)
    last = bound.value - bound.empirical_risk
    source = conditioned.sup_diagonal.source
    return GeneralizationBound(
        bound.empirical_risk, 0.0, 0.0, last, confidence, "holdout", source, True, LOSS, HELD_OUT
    )
