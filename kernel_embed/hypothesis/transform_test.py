r"""The test of conditional independence by what is left of x and y when z is known.

Let :math:`\phi_k(x)`, :math:`\phi_l(y)` be features with a mean of zero given z (:mod:`.transforms`). If x and y are
independent given z, the mean of :math:`\phi_k(x)\, \phi_l(y)\, \psi(z)` is zero for every ψ, and

.. math::  T = \sum_{kl} \frac1{kl} \Big[ c \Big( \sum_i \phi_k(x_i) \phi_l(y_i) \Big)^2
               + \sum_s \Big( \sum_i \phi_k(x_i) \phi_l(y_i) \psi_s(z_i) \Big)^2 \Big]

over k l ≤ 8 is small. With ψ = 1 alone (c = 1) and one feature, the residual, it is the generalized covariance measure
(Shah and Peters, 2020); with ψ the weighted one (Scheidegger et al., 2022); with the transforms a test of the partial
copula; ψ sees what either averages out over z. The largest of five such statistics, on one scale, is compared with
that of permutations of y among neighbors in z (:mod:`.neighbors`).

It is enough that one of x and y is predicted well: a feature of x that is independent of z has mean zero whatever
function of z is left in that of y.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import FeatureKernel
from .conditioning_set import ConditioningSet, Variable
from .neighbors import are_groups, block_size, local_permutations
from .pvalues import NullScale, by_permutations, gamma_pvalue
from .result import KernelTestResult
from .transforms import KINDS, NUM_COSINES, NUM_SHAPES, TIES, cosines

CHUNK = 2**17
"""Entries of permuted columns that are held at once: as many as stay near the processor."""
ENOUGH_ROWS = 5
"""Rows for each column of z, and for the constant, below which the level is not to be trusted."""
NEARLY_ALL = 0.9
"""The share of x and of y above which what z does not explain may be the error of the regressions."""
DEPENDENT = 0.001
"""The p-value below which transforms count as dependent on z."""


class Statistic(NamedTuple):
    """T of one kind of features, weighted by ψ(z) or not."""

    kind: str
    weighted: bool = True

    def __str__(self) -> str:
        return f"{self.kind}, weighted by z" if self.weighted else self.kind


STATISTICS = (Statistic("residual", weighted=False), *map(Statistic, KINDS))
"""The ones that take part. Of the others the unweighted ones add little to those weighted by z, which hold them."""
CROSS = 8.0
"""k·l at most: products of two fast cosines add noise and time, and little else."""
COUNTS = {"residual": 0, "shape": NUM_SHAPES, "ranks": NUM_COSINES, "transform": NUM_COSINES}
"""Cosines of each kind."""


class LevelWarning(UserWarning):
    """The level of a conditional test cannot be trusted on these data.

    Example:
        >>> from kernel_embed.hypothesis import LevelWarning
        >>> issubclass(LevelWarning, UserWarning)
        True
    """


class Diagnosis(NamedTuple):
    """How well the regressions on z did for one variable.

    Attributes:
        explained: the share of the leave-one-out CRPS that z explains.
        uniform: a p-value for uniform transforms, by Kolmogorov's distribution; the least over columns.
        independent: a p-value for transforms that are independent of z, by a gamma approximation.
        ties: the largest share of values of a column that repeat another.

    Example:
        >>> from kernel_embed.hypothesis import Diagnosis
        >>> Diagnosis(explained=0.4, uniform=0.3, independent=0.6, ties=0.0).explained
        0.4
    """

    explained: float
    uniform: float
    independent: float
    ties: float


@dataclasses.dataclass(frozen=True, repr=False)
class ConditionalTestResult(KernelTestResult):
    """The answer of the test by transforms, with what it rests on.

    Attributes:
        names: of the statistics, in the order of ``statistics`` and ``pvalues``.
        diagnostics: of ``"x"`` and ``"y"``, how well z predicts them and what is left.
        transforms: U of x and of y, ``(n, d)`` and ``(n, d')``.
        warnings: in words, why the level may not hold.

    Example:
        >>> import kernel_embed as ke
        >>> z = torch.randn(60, 1)
        >>> x, y = z + torch.randn(60, 1), z + torch.randn(60, 1)
        >>> result = ke.conditional_independence_test(x, y, z, num_permutations=99, seed=0)
        >>> sorted(result.diagnostics)
        ['x', 'y']
    """

    names: tuple[str, ...] = ()
    diagnostics: dict[str, Diagnosis] = dataclasses.field(default_factory=dict)
    transforms: tuple[Tensor, ...] = ()
    warnings: tuple[str, ...] = ()

    def summary(self) -> str:
        """One line: what was tested, p, the strongest statistic, how well z predicts; then the warnings."""
        told = ", ".join(f"{name} {d.explained:.0%}" for name, d in self.diagnostics.items())
        line = (
            f"{self.test} (n = {', '.join(map(str, self.sizes))}): p = {self.pvalue:.4g}, "
            f"statistic {self.statistic:.4g} ({self.kernel_choice}), {self.null_kind}; z explains of {told}"
        )
        return "\n".join([line, *(f"warning: {text}" for text in self.warnings)])


class Weighted(torch.nn.Module):
    """k^{−½}-weighted cosines of numbers in [0, 1], or the numbers themselves."""

    def __init__(self, statistic: Statistic) -> None:
        super().__init__()
        self.count = COUNTS[statistic.kind]

    def forward(self, u: Tensor) -> Tensor:
        """The features of ``u`` ``(n, 1)``."""
        if not self.count:
            return u
        k = torch.arange(1, self.count + 1, dtype=u.dtype, device=u.device)
        return cosines(u.squeeze(-1), self.count) * k.rsqrt()


def transform_test(
    x: Variable, y: Variable, given: ConditioningSet, num_permutations: int, generator: torch.Generator
) -> ConditionalTestResult:
    """The answer for what is left of x and of y."""
    n = given.points.shape[0]
    wanted = list(STATISTICS)
    if not given.weights.shape[1]:  # z does not vary, and there is nothing to weigh by
        wanted = [Statistic(kind, weighted=False) for kind in KINDS]
    T = statistics(x, y, given, wanted, num_permutations, generator).clone()
    determined = [name for name, one in (("x", x), ("y", y)) if one.is_determined]
    if determined:
        T = torch.zeros_like(T)
    verdict = by_permutations(T, NullScale(T.mean(-1), T.var(-1), T.new_full((len(wanted),), float(n))))
    diagnostics = {name: diagnose(one, given, generator) for name, one in (("x", x), ("y", y))}
    words = doubts(diagnostics, given, determined)
    for text in words[len(determined) :]:  # a p-value of 1 is no threat to the level
        warnings.warn(text, LevelWarning, stacklevel=4)
    kernels: tuple[tuple[Kernel, Kernel], ...] = tuple((_kernel(s), _kernel(s)) for s in wanted)
    answer = verdict.on(kernels, "", "conditional independence test", (n,), ConditionalTestResult)
    return dataclasses.replace(
        answer,
        kernel_choice=str(wanted[verdict.best]),
        null_kind=f"{num_permutations} permutations among neighbors",
        names=tuple(map(str, wanted)),
        diagnostics=diagnostics,
        transforms=(x.U.clone(), y.U.clone()),
        warnings=words,
    )


@functools.cache
def _kernel(statistic: Statistic) -> Kernel:
    return FeatureKernel(Weighted(statistic))


@torch.inference_mode()
def statistics(
    x: Variable,
    y: Variable,
    given: ConditioningSet,
    wanted: list[Statistic],
    num_permutations: int,
    generator: torch.Generator,
) -> Tensor:
    """T ``(J, 1 + B)``, the observed pairing first."""
    n, p = given.points.shape
    size = block_size(n, p, min(x.freedom, y.freedom))
    moved = local_permutations(given.points, num_permutations, generator, size)
    orders = torch.cat([torch.arange(n, device=moved.device).unsqueeze(0), moved])
    psi = torch.cat([given.points.new_full((n, 1), given.constant**0.5), given.weights], dim=1)
    found: dict[Statistic, Tensor] = {}
    for kind in dict.fromkeys(s.kind for s in wanted):
        own = [s for s in wanted if s.kind == kind]
        r = psi.shape[1] if any(s.weighted for s in own) else 1
        total = _sums(x.kinds[kind], psi[:, :r], y.kinds[kind], x.orders[kind], y.orders[kind], orders)
        for s in own:
            found[s] = total.sum(0) if s.weighted else total[0] / given.constant
    return torch.stack([found[s] for s in wanted])


def _sums(a: Tensor, psi: Tensor, b: Tensor, k: Tensor, l: Tensor, orders: Tensor) -> Tensor:
    """Σ_kl (Σ_i φ_k(x_i) ψ_s(z_i) φ_l(y_{π i}))² / kl over kl ≤ :data:`CROSS`, ``(r, 1 + B)``."""
    k, place = k.sort()
    left = (a[:, place].unsqueeze(-1) * psi.unsqueeze(1) * k.rsqrt().unsqueeze(-1)).flatten(1)
    few = [int((k * order <= CROSS).sum()) * psi.shape[1] for order in l.tolist()]
    right = b.mT * l.rsqrt().unsqueeze(-1)
    total = a.new_zeros(len(orders), left.shape[1])
    width = max(1, CHUNK // len(a))
    for some, sums in zip(orders.split(width), total.split(width), strict=True):
        index = some.flatten()
        for column, count in zip(right, few, strict=True):
            if count:
                product = column.index_select(0, index).reshape(some.shape) @ left[:, :count]
                sums[:, :count] += product.square_()
    return total.reshape(len(orders), len(k), -1).sum(1).mT


def diagnose(variable: Variable, given: ConditioningSet, generator: torch.Generator) -> Diagnosis:
    """Are the transforms uniform, and independent of z?"""
    from scipy.special import kolmogorov

    n = given.points.shape[0]
    uniform = 1.0
    for U in variable.U.unbind(-1) if variable.ties <= TIES else ():
        ordered = U.sort().values
        steps = torch.arange(n + 1).to(U) / n
        distance = max(float((steps[1:] - ordered).max()), float((ordered - steps[:-1]).max()))
        uniform = min(uniform, float(kolmogorov(n**0.5 * distance)))
    independent = 1.0
    if given.weights.shape[1] and variable.U.shape[-1]:  # a constant x has no transform
        features = variable.kinds["transform"]
        if variable.ties <= TIES:  # U as it is, not its ranks
            features = torch.cat([cosines(U, 3) for U in variable.U.unbind(-1)], dim=1)
        features = features - features.mean(dim=0)
        lam, C = given.weights.square().sum(0), features.mT @ features / (n - 1)
        # Σ_s ‖Σ_i √λ_s q_s(z_i) φ(x_i)‖² is near a gamma distribution with the mean and variance of permutations
        S = (given.weights.mT @ features).square().sum()
        independent = gamma_pvalue(float(S), lam.sum() * C.trace(), 2.0 * lam.square().sum() * C.square().sum())
    return Diagnosis(variable.gain, uniform, independent, variable.ties)


def doubts(diagnostics: dict[str, Diagnosis], given: ConditioningSet, determined: list[str]) -> tuple[str, ...]:
    """Why the level may not hold, in words."""
    n, p = given.points.shape
    words = [
        f"{name} is a function of z on these rows, so that nothing of it is left to depend on anything. "
        "The p-value is 1; leave one of them out of the question."
        for name in determined
    ]
    if are_groups(given.points):  # permutations among equal z need no regression
        return tuple(words)
    if n < ENOUGH_ROWS * (p + 1):
        words.append(
            f"{n} rows are few for {p} columns and categories of z: what z explains of x and y cannot be "
            "learned from them, and may be taken for dependence. Use fewer columns, or more rows."
        )
    if not determined and all(d.explained > NEARLY_ALL for d in diagnostics.values()):
        words.append(
            f"z explains more than {NEARLY_ALL:.0%} of both x and y: what is left may be the error of the regressions, "
            "which is of one making on both sides, and a small p-value may come from it. Use more rows, or ask whether "
            "x and y are functions of z."
        )
    if not determined and all(d.independent <= DEPENDENT for d in diagnostics.values()):
        words.append(
            "What is left of x and of y still depends on z, on both sides: a small p-value may come from z alone. "
            "Use more rows, or columns of z on which x or y depends more smoothly."
        )
    return tuple(words)
