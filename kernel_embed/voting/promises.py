r"""What is known of the functions that vote, and which promise that allows: a certificate or an estimate.

On the sample, :math:`B_k = \max |K_k|` and :math:`r_k` as in the penalties. On all inputs, where
:math:`\kappa_k^2 = \sup_x K_k(x, x)` of a positive semidefinite kernel is known,

.. math::  |K_k| \le \kappa_k^2 = B_k, \qquad
           \mathfrak R_m(H_k) \le E\, \kappa_k \sqrt{\operatorname{Tr} K_k} / m \le \kappa_k^2 / \sqrt m ,

by Cauchy and Schwarz and by Lemma 3: functions :math:`h / B_k` have values in [−1, 1] and complexities of at most
:math:`1/\sqrt m`, whatever the sample.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike

from ..kernels import sup_diagonal
from .families import Array, KernelFamily, KernelLike, Points
from .guarantee import Guarantee, Theorem, theorem_1, theorem_2
from .penalties import Complexities
from .problem import Votes
from .uniform import uniform_theorem_1, uniform_theorem_2

ON_THE_MARGIN = 1.0 - 1e-6
"""The default margin of a guarantee, relative to that of the hinge."""

ON_THE_SAMPLE = "B_k = max |K_k| and the complexities r_k are those of the sample, not of all inputs"


@dataclasses.dataclass(frozen=True)
class BaseFunctions:
    """What is known of the functions of every kernel.

    Attributes:
        names: of the kernels.
        sup: B_k = max |K_k| on the sample.
        complexities: r_k, the rules they came from and the radii of local ones.
        kappa_squared: κ_k² over all inputs; NaN where it is not known.
    """

    names: list[str]
    sup: Array
    complexities: Complexities
    kappa_squared: Array

    @classmethod
    def of(cls, family: KernelFamily, x: Points, grams: Sequence[Array], r: Complexities) -> BaseFunctions:
        """From the Grams, and from the closed forms of GPyTorch kernels that have one."""
        kappa_squared = [_closed_form(kernel, x, K) for kernel, K in zip(family.kernels, grams, strict=True)]
        sup = np.array([np.abs(K).max() for K in grams])
        return cls(family.names(), sup, r, np.array(kappa_squared))

    def with_bounds(self, bounds: ArrayLike | None) -> BaseFunctions:
        """The same with κ_k² as the caller knows them, checked against the sample."""
        if bounds is None:
            return self
        values = np.asarray(bounds, dtype=np.float64)
        if values.shape != self.sup.shape or not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(
                f"Expected sup_diagonal to be one positive number per kernel, {len(self.sup)} in all, got {bounds!r}. "
                "Give such a vector, or None."
            )
        for name, value, highest in zip(self.names, values, self.sup, strict=True):
            if highest > value * (1.0 + 1e-6):
                raise ValueError(
                    f"Expected |K| ≤ {value:g} of {name}, the given sup_diagonal, got {highest:.6g} on the sample. "
                    "Give the supremum of K(x, x) over all inputs of a positive semidefinite kernel."
                )
        indefinite = np.array([rule == "Massart" for rule in self.complexities.rules])
        return dataclasses.replace(self, kappa_squared=np.where(indefinite, np.nan, values))


def vote_guarantee(
    margins: Array,
    norms: Array,
    base: BaseFunctions,
    rho: float | None = None,
    *,
    theorem: Theorem = 1,
    confidence: float = 0.95,
    K: float = 2.0,
    uniform: bool = False,
    num_outside_radius: int = 0,
) -> Guarantee:
    """The right-hand side of a theorem for one vote, named by what is known of its functions.

    Args:
        margins: y_i f(x_i), shape (m,).
        norms: Σ_j |α_{k,j}| per kernel.
        base: what is known of the functions.
        rho: the margin of f / A; ``None`` for just below that of the hinge.
        theorem: 1 or 2.
        confidence: 1 − δ.
        K: the constant K > 1 of Theorem 2.
        uniform: whether ρ may come from the data.
        num_outside_radius: votes that the local complexities do not cover.
    """
    if theorem not in (1, 2):
        raise ValueError(f"Expected theorem 1 or 2, got {theorem}. Choose one of the two.")
    if not norms.any():
        raise ValueError("Expected a vote with at least one function, got none. Lower lam or beta.")
    missing = [base.names[k] for k in np.flatnonzero(norms) if np.isnan(base.kappa_squared[k])]
    certified = uniform and theorem == 1 and not missing
    A = float(norms @ (np.nan_to_num(base.kappa_squared) if certified else base.sup))
    mean = 1.0 / math.sqrt(len(margins)) if certified else float(norms @ base.complexities.values) / A
    reasons = () if certified else _reasons(missing if uniform else [], num_outside_radius)
    margin, p = ON_THE_MARGIN / A if rho is None else rho, len(norms)
    if theorem == 1:
        bound = uniform_theorem_1 if uniform else theorem_1
        result = bound(margins / A, mean, p, margin, confidence)
    else:
        result = (uniform_theorem_2 if uniform else theorem_2)(margins / A, mean, p, margin, confidence, K)
    outside = 0 if certified else num_outside_radius
    return dataclasses.replace(result, reasons=(*result.reasons, *reasons), num_outside_radius=outside)


def num_outside_radius(votes: Votes, grams: Sequence[Array], radii: Array) -> int:
    """How many votes have a mean square on the sample, for E[h²], above the radius r of their kernel.

    Example:
        >>> import numpy as np
        >>> votes = Votes(np.array([0, 0]), np.array([0, 1]), np.array([1.0, -1.0]))
        >>> num_outside_radius(votes, [np.diag([2.0, 1.0])], np.array([1.0]))
        1
    """
    squares = [float((grams[k][:, j] ** 2).mean()) for k, j in zip(votes.kernel, votes.point, strict=True)]
    return int((np.array(squares) > radii[votes.kernel]).sum())


def _reasons(missing: list[str], outside: int) -> tuple[str, ...]:
    reasons = [ON_THE_SAMPLE]
    if missing:
        reasons.append(f"sup K(x, x) over all inputs is not known of {', '.join(missing)}; give sup_diagonal")
    if outside:
        reasons.append(
            f"E[h²] ≤ r, on which local complexities rest, fails on the sample for {outside} of the functions that "
            'vote; use complexity="trace"'
        )
    return tuple(reasons)


def _closed_form(kernel: KernelLike, x: Points, K: Array) -> float:
    """κ² of a GPyTorch kernel that has it in closed form, else NaN."""
    if not isinstance(kernel, Kernel) or (np.diag(K) < 0).any():
        return math.nan
    with torch.no_grad():
        found = sup_diagonal(kernel, torch.tensor(x, dtype=torch.float64), diagonal=torch.tensor(np.diag(K)))
    return float(found.value) if found.source == "closed form" else math.nan
