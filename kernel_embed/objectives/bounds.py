r"""Generalization bounds on the clipped cross-entropy of a multiclass embedding.

With probability at least :math:`1 - \beta`,

.. math::
    \mathbb E[\mathcal L_{e^{-1}}(Y, \mathbf f(X))] &\le \frac1n \sum_i \mathcal L_\epsilon(y_i, \mathbf f(x_i))
        + 4e\, r(\theta, \lambda) + \sqrt{\tfrac8n \log \tfrac2\beta}                                \tag{11} \\
    &\le \dots + \frac{2e\, \alpha\rho}{\sqrt n} + \sqrt{\tfrac1{2n} \log \tfrac1\beta}              \tag{sharp}

The loss on the left is at most 1.

==============  ====================================================  ================================================
form            complexity term                                       certificate?
==============  ====================================================  ================================================
``"paper"``     4e·r                                                  no: r takes its norm from the sample
``"tight"``     4e·r/√n                                               no, for the same reason
``"sharp"``     2e·r/√n                                               no, for the same reason
``"peeled"``    2e·(r rounded up on a geometric grid)/√n              yes, for a kernel chosen without these rows, α
                                                                      that bounds it everywhere, and no weights
``"holdout"``   0; held-out rows                                      yes
==============  ====================================================  ================================================

The documentation has the proofs. If you can hold rows out, do: that bound is usually by far the smallest.

:class:`RiskBound` is the peeled bound as an objective. With :math:`r_j = r_0 \cdot 1.1^j` the smallest grid value that
is at least r, and J kernels that were named beforehand,

.. math::
    q = \frac1n \sum_i \mathcal L_{e^{-1}}(y_i, \mathbf f(x_i)) + \frac{2e\, r_j}{\sqrt n} +
        \sqrt{\frac1{2n} \log \frac{J (j + 1)(j + 2)}{\beta}} .

All J bounds hold at once with probability :math:`1 - \beta`, so the smallest one does, too.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

from torch import Tensor

from ..bounds import Bound, check_confidence, log_share, round_up
from ..embeddings import ConditionedMulticlass
from ..embeddings.conditional import check_labels
from ..validation import check_count, check_query_points
from .base import Objective
from .holdout import holdout_bound
from .risk import EmpiricalRisk, RademacherComplexity, clipped_cross_entropy, rademacher_complexity, require_classes

Form = Literal["paper", "tight", "sharp", "peeled", "holdout"]
_RATE = {"paper": "4e", "tight": "4e/sqrt(n)", "sharp": "2e/sqrt(n)", "peeled": "2e/sqrt(n)"}

STEP = 1.1
"""Ratio of the geometric grid of norms: a certificate costs at most this factor on the complexity term."""

SMALLEST_TERM = 0.01
"""The complexity term at the first norm of the grid."""

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
    """Bound the risk of a conditioned multiclass embedding; the module docstring lists the forms.

    Args:
        conditioned: the result of ``embedding.condition(x, y)``, without batch dimensions.
        confidence: 1 − β.
        form: ``"paper"``, ``"tight"``, ``"sharp"``, ``"peeled"`` or ``"holdout"``.
        epsilon: ε of the empirical risk, in (0, 1/e]. The default is 1e-15 in the first two forms, as published, and
            1/e, where the bound is tightest, in the others.
        candidates: J, how many kernels were compared on the rows of the bound; each spends β/J.
        holdout: inputs and class numbers of held-out rows, for ``form="holdout"``.

    Returns:
        The bound with its terms. ``details`` has ``complexity`` (r), its ``multiplier`` and ``sup_diagonal_source``,
        which says where α in r comes from.

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
        raise ValueError(f"Unknown form {form!r}. Choose one of {', '.join(map(repr, get_args(Form)))}.")
    epsilon = (1e-15 if form in ("paper", "tight") else 1.0 / math.e) if epsilon is None else epsilon
    if not 0.0 < epsilon <= 1.0 / math.e:
        raise ValueError(f"Theorem 4 requires epsilon between 0 and 1/e; got {epsilon}.")
    if candidates < 1:
        raise ValueError(f"candidates is the number of kernels that were compared, at least 1; got {candidates}.")
    require_classes("generalization_bound", conditioned)
    if len(conditioned.embedding.batch_shape) > 0:
        raise ValueError(
            f"The embedding has batch shape {tuple(conditioned.embedding.batch_shape)}. Bound each kernel of the batch "
            "separately."
        )
    source = conditioned.sup_diagonal.source
    if form == "holdout":
        losses = _held_out_losses(conditioned, holdout)
        bound = holdout_bound(losses, confidence, candidates)
        details = {"complexity": 0.0, "multiplier": 0.0, "sup_diagonal_source": source}
        return Bound(
            bound.empirical_risk, 0.0, bound.confidence_term, confidence, form, LOSS, HELD_OUT, details=details
        )
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
    details = {"complexity": r, "multiplier": multiplier, "sup_diagonal_source": source}
    return Bound(risk, multiplier * r, last, confidence, form, LOSS, FIXED_KERNEL, reasons, details)


def _held_out_losses(conditioned: ConditionedMulticlass, holdout: tuple[Tensor, Tensor] | None) -> Tensor:
    if holdout is None:
        raise ValueError("form='holdout' needs holdout=(x, y): rows that were not used for learning.")
    x = check_query_points(holdout[0], conditioned.x)
    y = check_labels(x, holdout[1], conditioned.num_classes)
    F = conditioned.decision_probabilities(x)
    return clipped_cross_entropy(F.gather(-1, y.unsqueeze(-1)).squeeze(-1), 1.0 / math.e)


class RiskBound(Objective[ConditionedMulticlass]):
    """The value of ``generalization_bound(…, form="peeled", candidates=J)``, to choose among J kernels by.

    It is a certificate for each of J candidates that were fixed before the rows were seen; λ may be learned from them.
    For a kernel that is learned by minimizing it, it is not a certificate. Between the norms of the grid its gradient
    is that of r, scaled to r_j.

    Args:
        confidence: 1 − β.
        candidates: J, how many kernels are compared.

    Raises:
        ValueError: if the confidence is not between 0 and 1, both excluded, or J is less than 1.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.linspace(0, 1, 200, dtype=torch.float64).unsqueeze(-1)
        >>> y = (x.squeeze(-1) > 0.5).long()
        >>> grid = []
        >>> for lengthscale in (0.01, 0.3, 30.0):
        ...     kernel = gpytorch.kernels.RBFKernel().double()
        ...     kernel.lengthscale = lengthscale
        ...     grid.append(ke.MulticlassEmbedding(kernel, num_classes=2, regularization=0.1))
        >>> objective = RiskBound(candidates=len(grid))
        >>> best = min(grid, key=lambda embedding: objective(embedding, x, y).item())
        >>> round(best.kernel.lengthscale.item(), 1)
        0.3
        >>> bound = ke.generalization_bound(best.condition(x, y), form="peeled", candidates=len(grid))
        >>> bound.is_certificate, abs(bound.value - objective(best, x, y).item()) < 1e-9
        (True, True)
    """

    def __init__(self, confidence: float = 0.95, candidates: int = 1) -> None:
        check_confidence(confidence)
        self.confidence = confidence
        self.candidates = check_count("candidates", candidates)

    def evaluate(self, bound: ConditionedMulticlass) -> Tensor:
        """q of the module docstring."""
        require_classes(self, bound)
        n, beta = bound.total_weight, (1.0 - self.confidence) / self.candidates
        r, multiplier = rademacher_complexity(bound), RademacherComplexity("2e/sqrt(n)").multiplier(n)
        grid = [round_up(value, SMALLEST_TERM / multiplier, STEP) for value in r.detach().flatten().tolist()]
        rounded = r.new_tensor([value for value, _ in grid]).reshape(r.shape)
        terms = [math.sqrt((log_share(j) - math.log(beta)) / (2.0 * n)) for _, j in grid]
        last = r.new_tensor(terms).reshape(r.shape)
        r_j = rounded * (1.0 + (r - r.detach()) / r.detach().clamp_min(1e-300))  # r_j in value, with the gradient of r
        return EmpiricalRisk(1.0 / math.e).evaluate(bound) + multiplier * r_j + last

    def __repr__(self) -> str:
        return f"RiskBound(confidence={self.confidence:g}, candidates={self.candidates})"
