r"""The theorems for all margins at once, so that ρ may be chosen after the data are seen.

Appendix B says that Theorem 1 holds uniformly in ρ at the price of a term in :math:`\sqrt{\log\log(2/\rho) / m}`, and
gives no constant. Here it is a union bound over the margins :math:`\rho_i = 2^{-i/8}`, each with its share

.. math::  \delta_i = \frac{\delta}{(i+1)(i+2)}, \qquad \sum_{i \ge 0} \delta_i = \delta,

so that :math:`\log(2/\delta_i) = \log(2/\delta) + \log (i+1)(i+2)` with :math:`i = 8 \log_2 (1/\rho_i)`. A margin ρ is
rounded down to the next :math:`\rho_i`, by 9 % at most.

The proof of the theorem splits a margin into three parts of :math:`\varrho/2`: from f to a sampled g, down the slope of
the loss, and from g back to f. It ends with the margin error at :math:`3\varrho/2`, where the theorem prints
:math:`\varrho`. So the terms below are those of :math:`\varrho = 2\rho_i/3`, and the margin error is at
:math:`\rho_i`.
"""

from __future__ import annotations

import dataclasses
import math

from ..validation import check_array, check_number, check_share
from .families import Array
from .guarantee import Guarantee, margin_error, theorem_1, theorem_2

STEPS = 8
"""Margins of the grid per factor of two."""

PART = 2.0 / 3.0
"""ϱ / ρ, the published margin relative to that of the margin error."""

LOST_FACTOR = (
    "the proof of Theorem 2 ends with (2n − 1) log p where the paper has n log p, so its constants are not proved; "
    "use theorem=1"
)
"""Why Theorem 2 gives no certificate."""


def margin_grid(rho: float) -> tuple[float, float]:
    """The largest ρ_i ≤ ρ, and its share δ_i / δ.

    Every ρ_i has its share, so which of them is taken is free, and rounding does no harm.

    Example:
        >>> margin_grid(0.5), margin_grid(3.0)
        ((0.5, 0.011111111111111112), (1.0, 0.5))
    """
    i = max(0, math.ceil(-STEPS * math.log2(rho) - 1e-9))
    return float(2.0 ** (-i / STEPS)), 1.0 / ((i + 1) * (i + 2))


def uniform_theorem_1(
    margins: Array, mean_complexity: float, p: int, rho: float, confidence: float = 0.95
) -> Guarantee:
    r"""Theorem 1 for all :math:`\rho > 0` at once, with :math:`\varrho = 2\rho_i/3`.

    .. math::  \hat R_{S,\rho_i}(f) + \frac{4}{\varrho} \sum_t \alpha_t r_t + \frac{2}{\varrho} \sqrt{\frac{\log p}{m}}
               + \sqrt{\frac{n \log p}{m}
               + \frac{\log (2/\delta_i)}{2m}}

    with n the least integer that is not below :math:`\frac{4}{\varrho^2} \log \frac{\varrho^2 m}{\log p}`.

    It is a certificate if the caller answers for functions that lie in [−1, 1] on all inputs, for
    ``mean_complexity`` made of expected complexities :math:`\mathfrak R_m(H_k)` or bounds of them, and for kernels and
    scales that were fixed before the sample.

    Args:
        margins: y_i f(x_i), shape (m,).
        mean_complexity: Σ_t α_t r_t, weights of sum one.
        p: the number of kernels, at least 2.
        rho: the margin ρ > 0, chosen as you like, also from the data.
        confidence: 1 − δ, the probability with which the bound holds for all ρ.

    Returns:
        The right-hand side with its terms.

    Raises:
        TypeError: if ``margins`` are not real numbers.

    Example:
        >>> import numpy as np
        >>> result = uniform_theorem_1(np.full(100_000, 0.5), 0.001, p=2, rho=0.4)
        >>> result.kind, round(result.rho, 4), round(result.value, 4)
        ('certificate', 0.3856, 0.0984)
    """
    _check(rho, confidence)
    margin, share = margin_grid(rho)
    terms = theorem_1(margins, mean_complexity, p, PART * margin, 1.0 - share * (1.0 - confidence))
    error = margin_error(check_array(margins, "margins"), margin)
    return dataclasses.replace(terms, margin_error=error, rho=margin, confidence=confidence, reasons=())


def uniform_theorem_2(
    margins: Array, mean_complexity: float, p: int, rho: float, confidence: float = 0.95, K: float = 2.0
) -> Guarantee:
    """Theorem 2 in the same way; always an estimate, as its published constants are not those of its proof.

    Args are those of :func:`uniform_theorem_1`, and K > 1.

    Example:
        >>> import numpy as np
        >>> uniform_theorem_2(np.full(1_000_000, 0.5), 0.001, p=2, rho=0.4).kind
        'estimate'
    """
    _check(rho, confidence)
    margin, share = margin_grid(rho)
    terms = theorem_2(margins, mean_complexity, p, PART * margin, 1.0 - share * (1.0 - confidence), K)
    error = K / (K - 1.0) * margin_error(check_array(margins, "margins"), margin)
    return dataclasses.replace(terms, margin_error=error, rho=margin, confidence=confidence, reasons=(LOST_FACTOR,))


def _check(rho: float, confidence: float) -> None:
    if not 0.0 < check_number("rho", rho) < math.inf:
        raise ValueError(f"Expected a margin ρ > 0, got {rho}. Give a positive margin.")
    check_share("confidence", confidence, "Give 0.95, which is usual.")
