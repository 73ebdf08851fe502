r"""Generalization bounds of a vote: Theorems 1 and 2, as published and uniformly in the margin.

Both theorems bound convex combinations of functions with values in [−1, 1]. A vote :math:`f = \sum_t \alpha_t h_t` is
first rewritten: with :math:`B_t = \sup |h_t|`, the functions are :math:`h_t / B_t`, the weights
:math:`|\alpha_t| B_t / A` with :math:`A = \sum_t |\alpha_t| B_t`, and the complexities :math:`r_t / B_t`. A margin of
:math:`\rho` for :math:`f / A` is one of :math:`\rho A` for :math:`f`, and :math:`\sum_t \alpha_t r_t` becomes
:math:`\sum_t |\alpha_t| r_t / A`.

*As published* both are estimates: ρ is fixed before the data, and the proofs give the margin error at 3ρ/2.

*Uniformly in ρ*: Appendix B claims this at the price of a term in :math:`\sqrt{\log\log(2/\rho) / m}`, without a
constant. We use a union bound over the margins :math:`\rho_i = 2^{-i/8}` (:mod:`kernel_embed.bounds`), so that ρ may
depend on the data. The proof splits a margin into three parts of :math:`\varrho/2`, and ends with the margin error at
:math:`3\varrho/2`. So the terms are those of :math:`\varrho = 2\rho_i/3`, and the margin error is at :math:`\rho_i`.
This form of Theorem 1 is a certificate where :math:`\kappa_k^2 = \sup_x K_k(x, x)` is known: then

.. math::  |K_k| \le \kappa_k^2 = B_k, \qquad
           \mathfrak R_m(H_k) \le E\, \kappa_k \sqrt{\operatorname{Tr} K_k} / m \le \kappa_k^2 / \sqrt m

by Cauchy-Schwarz and Lemma 3, so the functions :math:`h / B_k` have complexities of at most :math:`1/\sqrt m`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike

from ..bounds import Bound, check_confidence, log_share, round_up
from ..kernels import sup_diagonal
from ..validation import check_array, check_at_least, check_count, check_number
from .complexity import Complexities
from .families import Array, KernelFamily, KernelLike, Points
from .problem import Votes

Theorem: TypeAlias = Literal[1, 2]

BELOW_THE_HINGE = 1.0 - 1e-6  # the default margin of a guarantee, relative to the margin of the hinge loss
MARGIN_RATIO = 2.0**0.125  # ratio of neighboring margins of the grid

CONDITIONS = "kernels and scales fixed before the sample; i.i.d. rows"
AS_PUBLISHED = (
    "the theorem fixes ρ before the data, and its proof has the margin error at 3ρ/2, not ρ; use uniform=True"
)
UNPROVED_CONSTANTS = "the proof of Theorem 2 ends with (2n − 1) log p where the paper has n log p; use theorem=1"
ON_THE_SAMPLE = "B_k = max |K_k| and the complexities r_k are those of the sample, not of all inputs"


def margin_bound(
    margins: Array,
    mean_complexity: float,
    p: int,
    rho: float,
    confidence: float = 0.95,
    *,
    theorem: Theorem = 1,
    K: float = 2.0,
    uniform: bool = False,
) -> Bound:
    r"""Theorem 1 or 2 for a convex combination with margins :math:`y_i f(x_i)`.

    .. math::  \hat R_{S,\rho}(f) + \frac4\varrho \sum_t \alpha_t r_t + \frac2\varrho \sqrt{\frac{\log p}{m}}
               + \sqrt{\left\lceil \frac{4}{\varrho^2} \log \frac{\varrho^2 m}{\log p} \right\rceil \frac{\log p}{m}
               + \frac{\log (2/\delta)}{2m}}                                                            \tag{Theorem 1}

    .. math::  \frac{K}{K-1} \hat R_{S,\rho}(f) + \frac{6K}{\varrho} \sum_t \alpha_t r_t
               + \frac{40K}{\varrho^2} \frac{\log p}{m} + 5K \frac{\log(2/\delta)}{m}
               + 5K \left\lceil \frac{8}{\varrho^2} \log \frac{\varrho^2 (1 + \frac{K}{K-1}) m}{40 K \log p}
               \right\rceil \frac{\log p}{m}                                                          \tag{Theorem 2}

    As published :math:`\varrho = \rho`, an estimate. With ``uniform=True`` ρ may depend on the data: it is rounded down
    to :math:`\rho_i`, :math:`\varrho = 2\rho_i/3`, and δ is :math:`\delta / ((i + 1)(i + 2))`. Theorem 1 is then a
    certificate if the functions lie in [−1, 1] on all inputs, ``mean_complexity`` is made of expected complexities
    :math:`\mathfrak R_m(H_k)` or bounds of them, and kernels and scales were fixed before the sample.

    Args:
        margins: y_i f(x_i), shape (m,).
        mean_complexity: Σ_t α_t r_t, with weights that sum to one.
        p: the number of kernels, at least 2.
        rho: the margin ρ > 0.
        confidence: 1 − δ.
        theorem: 1 or 2.
        K: the constant K > 1 of Theorem 2.
        uniform: whether the bound holds for all ρ at once.

    Returns:
        The bound with its terms; ``details`` has ``margin_error``, for Theorem 2 multiplied by K / (K − 1), ``rho`` and
        ``theorem``.

    Raises:
        TypeError: if ``margins`` are not real numbers.
        ValueError: if an argument is out of range.

    Example:
        >>> result = margin_bound(np.full(100_000, 0.5), 0.001, p=2, rho=0.4, uniform=True)
        >>> result.kind, round(result.rho, 4), round(result.value, 4)
        ('certificate', 0.3856, 0.0984)
    """
    if theorem not in (1, 2):
        raise ValueError(f"theorem must be 1 or 2, not {theorem}.")
    check_at_least(0.0, mean_complexity=mean_complexity)
    check_confidence(confidence)
    if check_count("p", p) < 2:
        raise ValueError(f"Both theorems assume at least two kernels; got p = {p}.")
    if not 1e-100 < check_number("rho", rho) < 1e100:
        raise ValueError(f"The margin rho must be between 1e-100 and 1e100, got {rho}. Give a positive margin.")
    if theorem == 2 and not 1.0 < check_number("K", K) < math.inf:
        raise ValueError(f"Theorem 2 needs K > 1, for example K=2; got {K}.")
    margins = check_array(margins, "margins", 1)
    if not len(margins) or np.isnan(margins).any():
        raise ValueError("margins must have at least one entry, and no NaN.")
    part, log_2_delta, reasons = rho, math.log(2.0 / (1.0 - confidence)), [AS_PUBLISHED]
    if uniform:
        inverse, i = round_up(1.0 / rho, 1.0, MARGIN_RATIO)
        rho, part = 1.0 / inverse, 2.0 / (3.0 * inverse)
        log_2_delta += log_share(i)
        reasons = [] if theorem == 1 else [UNPROVED_CONSTANTS]
    m, log_p, error = len(margins), math.log(p), float((margins <= rho).mean())
    if theorem == 1:
        n = max(0, math.ceil(4.0 / part**2 * math.log(part**2 * m / log_p)))
        term = 4.0 / part * mean_complexity
        last = 2.0 / part * math.sqrt(log_p / m) + math.sqrt(n * log_p / m + log_2_delta / (2.0 * m))
    else:
        ratio = K / (K - 1.0)
        n = max(0, math.ceil(8.0 / part**2 * math.log(part**2 * (1.0 + ratio) * m / (40.0 * K * log_p))))
        error, term = ratio * error, 6.0 * K / part * mean_complexity
        last = (40.0 * K / part**2 * log_p + 5.0 * K * log_2_delta + 5.0 * K * n * log_p) / m
    details = {"margin_error": error, "rho": rho, "theorem": theorem, "num_outside_radius": 0}
    return Bound(
        error, term, last, confidence, f"theorem {theorem}", "zero-one loss", CONDITIONS, tuple(reasons), details
    )


@dataclasses.dataclass(frozen=True)
class BaseFunctions:
    """Bounds and complexities of the base functions of every kernel."""

    names: list[str]
    sup: Array  # B_k = max |K_k| on the sample
    complexities: Complexities  # r_k, their rules and radii
    kappa_squared: Array  # κ_k² over all inputs; NaN where it is unknown

    @classmethod
    def of(cls, family: KernelFamily, x: Points, grams: Sequence[Array], r: Complexities) -> BaseFunctions:
        """From the Gram matrices, and from the closed forms of GPyTorch kernels."""
        kappa_squared = [_sup_in_closed_form(kernel, x, K) for kernel, K in zip(family.kernels, grams, strict=True)]
        sup = np.array([np.abs(K).max() for K in grams])
        return cls(family.names(), sup, r, np.array(kappa_squared))

    def with_bounds(self, bounds: ArrayLike | None) -> BaseFunctions:
        """The same with κ_k² from the user, checked against the sample."""
        if bounds is None:
            return self
        values = np.asarray(bounds, dtype=np.float64)
        if values.shape != self.sup.shape or not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(f"sup_diagonal takes one positive number per kernel, {len(self.sup)} in all.")
        for name, value, highest in zip(self.names, values, self.sup, strict=True):
            if highest > value * (1.0 + 1e-6):
                problem = f"|K| ≤ {value:g} for {name}, but |K| is {highest:.6g} on the sample"
                raise ValueError(f"sup_diagonal says {problem}. Give the supremum of K(x, x) over all inputs.")
        indefinite = np.array([rule == "Massart" for rule in self.complexities.rules])
        return dataclasses.replace(self, kappa_squared=np.where(indefinite, np.nan, values))


def vote_guarantee(
    margins: Array, norms: Array, base: BaseFunctions, rho: float | None, theorem: Theorem, confidence: float, K: float,
    uniform: bool, num_outside_radius: int,
) -> Bound:  # fmt: skip
    """The bound of a theorem for one vote with margins y_i f(x_i) and norms Σ_j |α_{k,j}|; ``rho`` is that of f / A."""
    if not norms.any():
        raise ValueError("The vote is empty: no base function has a weight. Lower lam or beta.")
    missing = [base.names[k] for k in np.flatnonzero(norms) if np.isnan(base.kappa_squared[k])]
    is_covered = uniform and theorem == 1 and not missing
    A = float(norms @ (np.nan_to_num(base.kappa_squared) if is_covered else base.sup))
    mean = 1.0 / math.sqrt(len(margins)) if is_covered else float(norms @ base.complexities.values) / A
    margin = BELOW_THE_HINGE / A if rho is None else rho
    bound = margin_bound(margins / A, mean, len(norms), margin, confidence, theorem=theorem, K=K, uniform=uniform)
    if is_covered:
        return bound
    reasons = [*bound.reasons, ON_THE_SAMPLE]
    if uniform and missing:
        reasons.append(f"sup K(x, x) over all inputs is unknown for {', '.join(missing)}; give sup_diagonal")
    if num_outside_radius:
        which = f"fails on the sample for {num_outside_radius} of the functions that vote"
        reasons.append(f'local complexities need E[h²] ≤ r, which {which}; use complexity="trace"')
    details = {**bound.details, "num_outside_radius": num_outside_radius}
    return dataclasses.replace(bound, reasons=tuple(reasons), details=details)


def num_outside_radius(votes: Votes, grams: Sequence[Array], radii: Array) -> int:
    """How many votes have a mean square on the sample, for E[h²], above the radius r of their kernel."""
    squares = [float((grams[k][:, j] ** 2).mean()) for k, j in zip(votes.kernel, votes.point, strict=True)]
    return int((np.array(squares) > radii[votes.kernel]).sum())


def _sup_in_closed_form(kernel: KernelLike, x: Points, K: Array) -> float:
    """κ² of a GPyTorch kernel that has it in closed form, else NaN."""
    if not isinstance(kernel, Kernel) or (np.diag(K) < 0).any():
        return math.nan
    with torch.no_grad():
        points, diagonal = (torch.tensor(part, dtype=torch.float64, device="cpu") for part in (x, np.diag(K)))
        sup = sup_diagonal(kernel, points, diagonal=diagonal)
    return float(sup.value) if sup.source == "closed form" else math.nan
