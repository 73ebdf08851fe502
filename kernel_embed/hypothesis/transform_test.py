r"""The test of conditional independence by features of x and y with mean zero given z.

Let :math:`\phi_k(x)`, :math:`\phi_l(y)` be such features (:mod:`.conditioning_set`). If x, y are independent given z,
the mean of :math:`\phi_k(x)\, \phi_l(y)\, \psi(z)` is zero for every ψ, and

.. math::  T = \sum_{kl} \frac1{kl} \Big[ c \Big( \sum_i \phi_k(x_i) \phi_l(y_i) \Big)^2
               + \sum_s \Big( \sum_i \phi_k(x_i) \phi_l(y_i) \psi_s(z_i) \Big)^2 \Big]

over k l ≤ 8 is small. With ψ = 1 alone (c = 1) and one feature, the residual, it is the generalized covariance measure
(Shah and Peters, 2020); with ψ the weighted one (Scheidegger et al., 2022); with the transforms a test of the partial
copula. The largest of five such statistics, on one scale, is compared with that of permutations of y among neighbors in
z (:mod:`.smoothers`).
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import NamedTuple

import torch
from torch import Tensor

from .conditioning_set import KINDS, MAX_TIES, ConditionalFeatures, ConditioningSet, cosines
from .result import KernelTestResult, NullScale, by_permutations, gamma_pvalue
from .smoothers import block_size, is_grouped, local_permutations

CHUNK = 2**17  # entries of permuted columns at once: as many as fit in the processor's cache
ROWS_PER_COLUMN = 5  # rows for each column of z, and for the constant, below which the level may not hold
NEARLY_ALL = 0.9  # the explained share of x and y above which the residuals may be the error of the regressions
DEPENDENT = 0.001  # the p-value below which transforms count as dependent on z
MAX_ORDER = 8.0  # the largest k·l: products of two fast cosines add mostly noise and time


class Statistic(NamedTuple):
    """T of one kind of features, weighted by ψ(z) or not."""

    kind: str
    weighted: bool = True

    def __str__(self) -> str:
        return f"{self.kind}, weighted by z" if self.weighted else self.kind


STATISTICS = (Statistic("residual", weighted=False), *map(Statistic, KINDS))
"""The other unweighted statistics add little to the weighted ones, which contain them."""


class LevelWarning(UserWarning):
    """The level of a conditional test may not hold on these data.

    Example:
        >>> issubclass(LevelWarning, UserWarning)
        True
    """


class Diagnosis(NamedTuple):
    """The quality of the regressions of one variable on z."""

    explained: float  # the share of the leave-one-out CRPS that z explains
    uniform: float  # a p-value for uniform transforms, by Kolmogorov's distribution; the least over columns
    independent: float  # a p-value for transforms that are independent of z, by a gamma approximation
    ties: float  # the largest share of values of a column that repeat another


@dataclasses.dataclass(frozen=True, repr=False)
class ConditionalTestResult(KernelTestResult):
    """The result of the test by transforms, with diagnostics.

    Attributes:
        names: of the statistics, in the order of ``statistics`` and ``pvalues``.
        diagnostics: of ``"x"`` and ``"y"``: ``explained``, the share of the leave-one-out CRPS that z explains;
            ``uniform`` and ``independent``, p-values for transforms that are uniform and independent of z; and
            ``ties``, the largest share of values of a column that repeat another.
        transforms: U of x and of y, ``(n, d)`` and ``(n, d')``.
        warnings: reasons why the level may not hold.

    Example:
        >>> import kernel_embed as ke
        >>> z, a, b = torch.randn(3, 60, 1, generator=torch.Generator().manual_seed(0))
        >>> result = ke.conditional_independence_test(z + a, z + b, z, num_permutations=99, seed=0)
        >>> round(result.diagnostics["x"].explained, 2), result.warnings
        (0.41, ())
    """

    names: tuple[str, ...] = ()
    diagnostics: dict[str, Diagnosis] = dataclasses.field(default_factory=dict)
    transforms: tuple[Tensor, ...] = ()
    warnings: tuple[str, ...] = ()

    def summary(self) -> str:
        """One line: the test, its p-value, the largest statistic, how well z predicts; then the warnings."""
        shares = " and ".join(f"{d.explained:.0%} of {name}" for name, d in self.diagnostics.items())
        line = f"{self._headline()} ({self.kernel_choice}), {self.null_kind}; z explains {shares}"
        return "\n".join([line, *(f"warning: {text}" for text in self.warnings)])


def transform_test(
    x: ConditionalFeatures, y: ConditionalFeatures, z: ConditioningSet, num_permutations: int,
    generator: torch.Generator,
) -> ConditionalTestResult:  # fmt: skip
    """The test from the features of x and of y."""
    n = len(z.points)
    # A z that does not vary has no weights.
    used = STATISTICS if z.weights.shape[1] else tuple(Statistic(kind, weighted=False) for kind in KINDS)
    T = statistics(x, y, z, used, num_permutations, generator).clone()
    determined = [name for name, one in (("x", x), ("y", y)) if one.is_determined]
    if determined:
        T = torch.zeros_like(T)
    decision = by_permutations(T, NullScale(T.mean(-1), T.var(-1), T.new_full((len(used),), float(n))))
    diagnostics = {name: diagnose(one, z) for name, one in (("x", x), ("y", y))}
    messages = level_warnings(diagnostics, z, determined)
    for text in messages[len(determined) :]:  # a p-value of 1 does not threaten the level
        warnings.warn(text, LevelWarning, stacklevel=4)
    decision = decision._replace(null_kind=f"{num_permutations} permutations among neighbors")
    return decision.result(
        ConditionalTestResult,
        "conditional independence test",
        ((),) * len(used),
        str(used[decision.best]),
        sizes=(n,),
        names=tuple(map(str, used)),
        diagnostics=diagnostics,
        transforms=(x.U.clone(), y.U.clone()),
        warnings=messages,
    )


@torch.inference_mode()
def statistics(
    x: ConditionalFeatures, y: ConditionalFeatures, z: ConditioningSet, used: tuple[Statistic, ...],
    num_permutations: int, generator: torch.Generator,
) -> Tensor:  # fmt: skip
    """T ``(J, 1 + B)``: J statistics for the data as observed, then for B permutations of the rows of y."""
    n, p = z.points.shape
    size = block_size(n, p, min(x.freedom, y.freedom))
    moved = local_permutations(z.points, num_permutations, generator, size)
    orders = torch.cat([torch.arange(n, device=moved.device).unsqueeze(0), moved])
    psi = torch.cat([z.points.new_full((n, 1), z.constant**0.5), z.weights], dim=1)
    values: dict[Statistic, Tensor] = {}
    for kind in dict.fromkeys(s.kind for s in used):
        own = [s for s in used if s.kind == kind]
        r = psi.shape[1] if any(s.weighted for s in own) else 1
        sums = _squared_sums(x.kinds[kind], psi[:, :r], y.kinds[kind], x.orders[kind], y.orders[kind], orders)
        for s in own:
            values[s] = sums.sum(0) if s.weighted else sums[0] / z.constant
    return torch.stack([values[s] for s in used])


def _squared_sums(a: Tensor, psi: Tensor, b: Tensor, k: Tensor, l: Tensor, orders: Tensor) -> Tensor:
    """Σ_kl (Σ_i φ_k(x_i) ψ_s(z_i) φ_l(y_{π i}))² / kl over kl ≤ :data:`MAX_ORDER`, ``(r, 1 + B)``."""
    k, place = k.sort()
    left = (a[:, place].unsqueeze(-1) * psi.unsqueeze(1) * k.rsqrt().unsqueeze(-1)).flatten(1)
    counts = [int((k * order <= MAX_ORDER).sum()) * psi.shape[1] for order in l.tolist()]
    right = b.mT * l.rsqrt().unsqueeze(-1)
    total = a.new_zeros(len(orders), left.shape[1])
    width = max(1, CHUNK // len(a))
    for part, sums in zip(orders.split(width), total.split(width), strict=True):
        index = part.flatten()
        for column, count in zip(right, counts, strict=True):
            if count:
                product = column.index_select(0, index).reshape(part.shape) @ left[:, :count]
                sums[:, :count] += product.square_()
    return total.reshape(len(orders), len(k), -1).sum(1).mT


def diagnose(x: ConditionalFeatures, z: ConditioningSet) -> Diagnosis:
    """Whether the transforms are uniform, and independent of z."""
    from scipy.special import kolmogorov

    n = len(z.points)
    uniform = 1.0
    for U in x.U.unbind(-1) if x.ties <= MAX_TIES else ():
        ordered = U.sort().values
        steps = torch.arange(n + 1, dtype=U.dtype, device=U.device) / n
        distance = max(float((steps[1:] - ordered).max()), float((ordered - steps[:-1]).max()))
        uniform = min(uniform, float(kolmogorov(n**0.5 * distance)))
    independent = 1.0
    if z.weights.shape[1] and x.U.shape[-1]:  # a constant x has no transform
        features = x.kinds["transform"]
        if x.ties <= MAX_TIES:  # of U itself, not of its ranks
            features = torch.cat([cosines(U, 3) for U in x.U.unbind(-1)], dim=1)
        features = features - features.mean(dim=0)
        lam, C = z.weights.square().sum(0), features.mT @ features / (n - 1)
        # Σ_s ‖Σ_i √λ_s q_s(z_i) φ(x_i)‖² is near a gamma distribution with the mean and variance of permutations
        S = (z.weights.mT @ features).square().sum()
        independent = gamma_pvalue(float(S), lam.sum() * C.trace(), 2.0 * lam.square().sum() * C.square().sum())
    return Diagnosis(x.gain, uniform, independent, x.ties)


def level_warnings(diagnostics: dict[str, Diagnosis], z: ConditioningSet, determined: list[str]) -> tuple[str, ...]:
    """Reasons why the level may not hold; first one for each ``determined`` variable."""
    n, p = z.points.shape
    messages = [
        f"{name} is a function of z on these rows, so that nothing depends on it given z: the p-value is 1. Remove "
        f"{name} from the test, or the columns of z that determine it."
        for name in determined
    ]
    if is_grouped(z.points):  # permutations among equal z need no regression
        return tuple(messages)
    if n < ROWS_PER_COLUMN * (p + 1):
        messages.append(
            f"{n} rows are few for {p} columns and categories of z: its effect on x and y cannot be learned, and may "
            "appear as dependence. Use fewer columns of z, or more rows."
        )
    if not determined and all(d.explained > NEARLY_ALL for d in diagnostics.values()):
        messages.append(
            f"z explains more than {NEARLY_ALL:.0%} of both x and y: errors of the regressions, which x and y share, "
            "may cause a small p-value. Use more rows, or check if x and y are functions of z."
        )
    if not determined and all(d.independent <= DEPENDENT for d in diagnostics.values()):
        messages.append(
            "The residuals of both x and y still depend on z, which alone may cause a small p-value. "
            "Use more rows, or columns of z on which x or y depends more smoothly."
        )
    return tuple(messages)
