r"""Upper bounds on a risk: one result type, and the union bound over a geometric grid.

A theorem that holds at one value :math:`v` fixed beforehand holds at all :math:`v_j = v_0 q^j` at once when
:math:`v_j` spends the share :math:`1 / ((j + 1)(j + 2))` of the failure probability, because these shares sum to one.
A value that depends on the data is then rounded up to the grid.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

from .validation import check_share

ROUNDING = 1e-9  # values this close to a point of the grid count as that point


@dataclasses.dataclass(frozen=True)
class Bound:
    """An upper bound on a risk: a *certificate*, or an *estimate* of the same form where a condition fails.

    Attributes:
        empirical_risk: the term that is measured on rows.
        complexity_term: the term that grows with the complexity of the functions.
        confidence_term: the term that grows with the confidence.
        confidence: 1 − β, the probability with which a certificate holds.
        form: the name of the bound.
        loss: the loss whose expectation is bounded.
        conditions: what must hold for a certificate.
        reasons: which conditions fail, so that the value is an estimate; empty for a certificate.
        details: further quantities of this form, which are attributes too.

    Example:
        >>> bound = Bound(0.1, 0.2, 0.05, confidence=0.95, form="example", details={"rho": 0.5})
        >>> round(bound.value, 2), bound.kind, bound.rho
        (0.35, 'certificate', 0.5)
    """

    empirical_risk: float
    complexity_term: float
    confidence_term: float
    confidence: float
    form: str
    loss: str = "a loss with values in [0, 1]"
    conditions: str = ""
    reasons: tuple[str, ...] = ()
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def value(self) -> float:
        """The sum of the three terms."""
        return self.empirical_risk + self.complexity_term + self.confidence_term

    @property
    def is_certificate(self) -> bool:
        """Whether a theorem covers the value."""
        return not self.reasons

    @property
    def kind(self) -> Literal["certificate", "estimate"]:
        """``"certificate"`` or ``"estimate"``."""
        return "certificate" if self.is_certificate else "estimate"

    @property
    def is_vacuous(self) -> bool:
        """Whether the value is 1 or more."""
        return self.value >= 1.0

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["details"][name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}") from None


def round_up(value: float, first: float, ratio: float) -> tuple[float, int]:
    """The smallest ``first``·``ratio``^j that is at least ``value``, and j ≥ 0."""
    j = max(0, math.ceil(math.log(max(value, 1e-300) / first, ratio) - ROUNDING))
    return max(first * ratio**j, value), j


def log_share(j: int) -> float:
    """log (j + 1)(j + 2): what the union bound over the grid adds to log 1/β at its j-th value."""
    return math.log((j + 1) * (j + 2))


def check_confidence(confidence: float) -> None:
    """Raise unless ``confidence`` is between 0 and 1."""
    check_share("confidence", confidence, "0.95 is usual.")
