r"""The generalisation bound of Theorem 4, with all its parts.

With probability at least :math:`1 - \beta`,

.. math::  \mathbb E[\mathcal L_{e^{-1}}(Y, \mathbf f(X))] \le \frac1n \sum_i \mathcal L_\epsilon(y_i, \mathbf f(x_i))
           + 4e\, r(\theta, \lambda) + \sqrt{\tfrac8n \log \tfrac2\beta} .                                 \tag{11}

The loss on the left is at most 1. In the tight form the middle term is :math:`4e\, r / \sqrt n`; the documentation has
its proof, and says for which kernels each form holds. Both are proved for a norm named before the sample is drawn, and
the tight form for such a kernel; :math:`r` takes its norm from the sample, so what is computed here is a measure of
complexity rather than a certificate. With kernel and λ from other data, :math:`\alpha / (2 \sqrt\lambda)` in place of
:math:`r` makes the tight form a certificate.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from ..embeddings import ConditionedMulticlass
from .rademacher import RademacherComplexity, rademacher_complexity
from .risk import EmpiricalRisk, require_classes

Form = Literal["paper", "tight"]
_RATE = {"paper": "4e", "tight": "4e/sqrt(n)"}


@dataclasses.dataclass(frozen=True)
class GeneralizationBound:
    """The right-hand side of eq. (11) and its parts.

    Attributes:
        empirical_risk: (1/n) Σ L_ε(y_i, f(x_i)).
        complexity: r(θ, λ).
        multiplier: 4e, or 4e/√n in the tight form.
        confidence_term: √(8/n · log 2/β).
        confidence: 1 − β.
        form: ``"paper"`` or ``"tight"``.
        sup_diagonal_source: where α in r comes from.
    """

    empirical_risk: float
    complexity: float
    multiplier: float
    confidence_term: float
    confidence: float
    form: Form
    sup_diagonal_source: str

    @property
    def complexity_term(self) -> float:
        """The middle term of eq. (11)."""
        return self.multiplier * self.complexity

    @property
    def value(self) -> float:
        """The right-hand side of eq. (11)."""
        return self.empirical_risk + self.complexity_term + self.confidence_term

    @property
    def is_vacuous(self) -> bool:
        """True where the bound exceeds 1, the largest value the bounded loss can take."""
        return self.value >= 1.0


def generalization_bound(
    conditioned: ConditionedMulticlass, confidence: float = 0.95, form: Form = "paper", epsilon: float = 1e-15
) -> GeneralizationBound:
    """The bound of eq. (11) for an embedding with its data, at the norm those data gave; see the module's text.

    Args:
        conditioned: what ``embedding.condition(x, y)`` returned, without batch dimensions.
        confidence: 1 − β.
        form: ``"paper"`` for 4e·r as printed, ``"tight"`` for 4e·r/√n.
        epsilon: ε of the empirical risk, in (0, 1/e).

    Example:
        >>> import torch, gpytorch, kernel_embed as ke
        >>> x, y = torch.rand(200, 1), torch.randint(2, (200,))
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), 2, regularization=1.0)
        >>> bound = ke.generalization_bound(embedding.condition(x, y), form="tight")
        >>> bound.value == bound.empirical_risk + bound.complexity_term + bound.confidence_term
        True
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"Expected confidence between 0 and 1, got {confidence}.")
    if form not in _RATE:
        raise ValueError(f"Expected form 'paper' or 'tight', got {form!r}.")
    if not 0.0 < epsilon < 1.0 / math.e:
        raise ValueError(f"Expected epsilon between 0 and 1/e, as Theorem 4 requires, got {epsilon}.")
    require_classes("generalization_bound", conditioned)
    if len(conditioned.embedding.batch_shape) > 0:
        raise ValueError(f"Expected an embedding without batch shape, got {tuple(conditioned.embedding.batch_shape)}.")
    n = conditioned.num_data
    return GeneralizationBound(
        empirical_risk=EmpiricalRisk(epsilon).evaluate(conditioned).item(),
        complexity=rademacher_complexity(conditioned).item(),
        multiplier=RademacherComplexity(_RATE[form]).multiplier(n),
        confidence_term=math.sqrt(8.0 / n * math.log(2.0 / (1.0 - confidence))),
        confidence=confidence,
        form=form,
        sup_diagonal_source=conditioned.sup_diagonal.source,
    )
