r"""Conditioning variables z, preprocessed once, and features of x whose mean given z is zero.

Let :math:`\mathcal R` be the studentized residual of a regression on z (:mod:`.smoothers`), and
:math:`c_k(u) = \sqrt2 \cos \pi k u`, k = 1, 2, …, a basis of the functions on [0, 1] with mean zero. A real column has

.. math::
    \text{residual:} &\quad r = \mathcal R[x] \\
    \text{shape:} &\quad \mathcal R\big[c_k(\tfrac12 + r / 6s)\big], \quad s^2 = \overline{r^2} \\
    \text{ranks:} &\quad \mathcal R\big[c_k(F(x))\big], \quad F \text{ the distribution of x} \\
    \text{transform:} &\quad c_k(U), \quad U = \hat F(r \mid z)

**The probability transform.** With :math:`G_{ji} = 1\{r_j < r_i\} + \tfrac12 1\{r_j = r_i\}` the regression of column i
of G on z without row i estimates the distribution function at r_i given z_i, for all i by one matrix product:

.. math::  U_i = G_{ii} - \frac{[G - SG]_{ii}}{1 - S_{ii}} .

Kernel and η minimize the leave-one-out CRPS of the ranks, whose Karhunen–Loève expansion is :math:`c_k / k`. If the
estimate is right, U is uniform and independent of z for any shape of the noise. The residuals of the normal scores of x
replace x, so that the distribution depends little on z.

**Ties.** Where x has few values, U is anywhere between :math:`a = F(x- \mid z)` and :math:`b = F(x \mid z)`, and c_k is
replaced by its mean over that interval, :math:`\sqrt2 (\sin \pi k b - \sin \pi k a) / \pi k (b - a)`. A category is one
coordinate for each value, minus its probability given z.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .checks import NORMAL_QUARTILES, Encoding
from .smoothers import LENGTHSCALES, Smoother, Smoothers

KINDS = ("residual", "shape", "ranks", "transform")
NUM_COSINES = 6
NUM_SHAPES = 4
NUM_RANK_TARGETS = 12  # cosines in the regression of ranks
NUM_NOISE_QUANTILES = 16
CLIP = 3.0
MAX_TIES = 0.3  # a column is discrete where more than this share of its values repeats another
CHUNK = 2**22  # entries of S in memory at once
WEIGHT_KERNEL = 2  # the index of the lengthscale whose eigenfunctions weight the rows
MAX_WEIGHTS = 8
SMALL_WEIGHT = 0.04  # the share of the largest eigenvalue below which an eigenfunction is dropped
MAX_PRODUCT_COLUMNS = 5  # the most columns for which products of features of two columns are used
SIMILAR = 0.99  # the correlation of the values of z with their normal scores above which the scores alone are used
DETERMINED = 1e-6  # a column is a function of z where its residual has less than this share of its variance


class ConditionalFeatures(NamedTuple):
    """Features of x, or of one column of it, with mean zero given z."""

    kinds: dict[str, Tensor]  # features by kind, (n, m)
    orders: dict[str, Tensor]  # k of each feature, by kind, (m,)
    U: Tensor  # the probability transforms of the real columns, (n, d)
    gain: float  # the share of the CRPS that z explains, the mean over columns
    ties: float  # the largest share of values of a column that repeat another
    freedom: float  # the largest degrees of freedom of the regressions on z
    is_determined: bool = False  # whether every column is a function of z on these rows


class ConditioningSet:
    """The conditioning variables z ``(n, p)``: where neighbors are found, regressions on z, and weights of the rows."""

    @torch.inference_mode()
    def __init__(self, z: Tensor, categories: Sequence[int], generator: torch.Generator) -> None:
        numbers = [j for j in range(z.shape[1]) if j not in categories]
        varying = [j for j in numbers if bool((z[:, j] != z[0, j]).any())]
        coordinates = Encoding(z, categories)(z)[:, len(numbers) :]
        versions = [coordinates]
        if varying:
            values = z[:, varying]
            scores, standard = normal_scores(values), (values - values.mean(dim=0)) / values.std(dim=0)
            similar = bool((torch.nn.functional.cosine_similarity(scores, standard, dim=0) > SIMILAR).all())
            versions = [torch.cat([real, coordinates], dim=1) for real in ([scores] if similar else [scores, standard])]
        # Regressions are on normal scores of the real columns, and on standardized values where these differ.
        self.versions = [version if version.shape[1] else z.new_zeros(len(z), 1) for version in versions]
        self.points = self.versions[0]
        self.smoothers = Smoothers(self.versions, generator)
        # ψ(z), (n, r): the leading eigenvectors of a kernel of z times the roots of their eigenvalues; and the weight
        # of the constant among them, the mean of that kernel
        self.weights = z.new_zeros(len(z), 0)
        p, ell = self.points.shape[1], LENGTHSCALES[WEIGHT_KERNEL]
        self.constant = math.pow(1.0 + 2.0 / (p * ell**2), -0.5 * p)
        if len(self.smoothers.paths) > WEIGHT_KERNEL:
            path, features, _ = self.smoothers.paths[WEIGHT_KERNEL]
            large = path.eigenvalues > SMALL_WEIGHT * path.eigenvalues[-1]
            self.weights = features[:, -min(MAX_WEIGHTS, int(large.sum())) :]

    @torch.inference_mode()
    def features_of(self, x: Tensor, categories: Sequence[int], generator: torch.Generator) -> ConditionalFeatures:
        """Features of x ``(n, d)``; the transform of each column is conditional on z and the columns before it."""
        columns, before = [], []
        for j in range(x.shape[1]):
            if j in categories:
                coordinates = Encoding(x[:, [j]], [0])(x[:, [j]])
                columns.append(category_features(x[:, j], coordinates, self.smoothers))
                before.append(coordinates)
                continue
            joint = self.smoothers
            if before:
                joint = Smoothers([torch.cat([version, *before], dim=1) for version in self.versions], generator)
            columns.append(real_features(x[:, j], self.smoothers, joint))
            before.append(normal_scores(x[:, [j]]))
        kinds = {kind: [column.kinds[kind] for column in columns] for kind in KINDS}
        orders = {kind: [column.orders[kind] for column in columns] for kind in KINDS}
        if 1 < len(columns) <= MAX_PRODUCT_COLUMNS:
            for kind in ("ranks", "transform"):
                products = _products(kinds[kind])
                kinds[kind].append(self.smoothers.select([products])[0].residuals(products))
                orders[kind].append(products.new_full((products.shape[1],), 2.0))
        return ConditionalFeatures(
            {kind: torch.cat(parts, dim=1) for kind, parts in kinds.items()},
            {kind: torch.cat(parts) for kind, parts in orders.items()},
            torch.cat([column.U for column in columns], dim=1),
            sum(column.gain for column in columns) / len(columns),
            max(column.ties for column in columns),
            max(column.freedom for column in columns),
            all(self._determines(x[:, j], column) for j, column in enumerate(columns)),
        )

    def _determines(self, x: Tensor, features: ConditionalFeatures) -> bool:
        """Whether x ``(n,)`` has no residual, or the order of a column of z, ascending or descending."""
        if float(features.kinds["residual"].square().mean()) < DETERMINED:
            return True
        score = normal_scores(x.unsqueeze(-1))
        return bool(torch.minimum((self.points - score).abs(), (self.points + score).abs()).amax(0).min() < 1e-9)


def _products(parts: Sequence[Tensor]) -> Tensor:
    """Products of the first two features of one column with those of another."""
    pairs = itertools.combinations(parts, 2)
    return torch.cat([(a[:, :2].unsqueeze(-1) * b[:, :2].unsqueeze(-2)).flatten(1) for a, b in pairs], dim=1)


def real_features(x: Tensor, smoothers: Smoothers, joint: Smoothers) -> ConditionalFeatures:
    """Features of a real column ``(n,)``; its transform is conditional on ``joint``: z, perhaps with other columns."""
    ties = 1.0 - len(x.unique()) / len(x)
    discrete = ties > MAX_TIES
    x = x - x.mean()
    x = x / x.std() if bool(x.abs().max() > 0) else x
    value, score = x.unsqueeze(-1), normal_scores(x.unsqueeze(-1))
    by_value, by_score = smoothers.select([value, score])
    r = by_value.residuals(value)
    s = r.square().mean().sqrt().clamp_min(torch.finfo(x.dtype).tiny)
    shape = cosines((0.5 + r.squeeze(-1) / (6.0 * s)).clamp(0.0, 1.0), NUM_SHAPES)
    rank = cosines(ranks(x), NUM_COSINES) - expected_cosines(x, r.squeeze(-1))
    if joint is not smoothers and not discrete:
        (by_score,) = joint.select([score])
    noise = x if discrete else by_score.residuals(score).squeeze(-1)
    columns = torch.cat([shape, rank], dim=1).split(1, dim=1)
    *by_column, by_noise = smoothers.select([*columns, karhunen_loeve(noise)])
    if joint is not smoothers:
        (by_noise,) = joint.select([karhunen_loeve(noise)])
    rest = torch.cat([one.residuals(column) for one, column in zip(by_column, columns, strict=True)], dim=1)
    a, b = conditional_distribution(noise, by_noise)
    U = 0.5 * (a + b)
    transform = mean_cosines(a, torch.maximum(b, a + 1e-6), NUM_COSINES) if discrete else cosines(ranks(U), NUM_COSINES)
    features = clipped(r), rest[:, :NUM_SHAPES], rest[:, NUM_SHAPES:], transform
    unexplained = 1.0 - by_noise.gain if discrete else (1.0 - by_score.gain) * (1.0 - by_noise.gain)
    freedom = max(one.freedom for one in (by_value, by_score, by_noise))
    kinds = dict(zip(KINDS, features, strict=True))
    orders = {kind: torch.arange(1, part.shape[1] + 1, dtype=x.dtype, device=x.device) for kind, part in kinds.items()}
    return ConditionalFeatures(kinds, orders, U.unsqueeze(-1), 1.0 - unexplained, ties, freedom)


def category_features(x: Tensor, coordinates: Tensor, smoothers: Smoothers) -> ConditionalFeatures:
    """Features of a category ``(n,)`` with coordinates ``(n, c)``: the coordinates minus their means given z."""
    (smoother,) = smoothers.select([coordinates])
    rest = smoother.residuals(coordinates)
    ties = 1.0 - len(x.unique()) / len(x)
    kinds, orders = dict.fromkeys(KINDS, rest), dict.fromkeys(KINDS, rest.new_ones(rest.shape[1]))
    return ConditionalFeatures(kinds, orders, x.new_zeros(len(x), 0), smoother.gain, ties, smoother.freedom)


def cosines(u: Tensor, count: int) -> Tensor:
    """c_k(u), k = 1, …, count: from ``(n,)`` to ``(n, count)``."""
    first = torch.cos(math.pi * u)
    terms = [torch.ones_like(u), first]
    while len(terms) <= count:  # cos (k+1)θ = 2 cos θ cos kθ − cos (k−1)θ
        terms.append(2.0 * first * terms[-1] - terms[-2])
    return math.sqrt(2.0) * torch.stack(terms[1 : count + 1], dim=-1)


def mean_cosines(a: Tensor, b: Tensor, count: int) -> Tensor:
    """The mean of c_k over the intervals [a, b]."""
    k = math.pi * torch.arange(1, count + 1, dtype=a.dtype, device=a.device)
    a, b = a.unsqueeze(-1), b.unsqueeze(-1)
    return math.sqrt(2.0) * (torch.sin(k * b) - torch.sin(k * a)) / (k * (b - a))


def ranks(x: Tensor, at: Tensor | None = None) -> Tensor:
    """(mid-rank − ½)/n of each value of ``x`` ``(n,)``, or the same distribution function of the numbers ``at``."""
    ordered, values = np.sort(x.numpy(force=True)), (x if at is None else at).numpy(force=True)
    low, high = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    return torch.from_numpy((low + high) / (2.0 * len(x))).to(x.device)


def normal_scores(x: Tensor) -> Tensor:
    """Φ⁻¹ of the ranks of each column of ``x`` ``(n, d)``."""
    return torch.stack([torch.special.ndtri(ranks(column)) for column in x.unbind(-1)], dim=-1)


def conditional_distribution(x: Tensor, smoother: Smoother) -> tuple[Tensor, Tensor]:
    """F(x_i− | z_i) and F(x_i | z_i) of a column ``(n,)``, each without row i."""
    n = len(x)
    below, above = torch.empty_like(x), torch.empty_like(x)
    step = max(1, CHUNK // n)
    for start in range(0, n, step):
        part = slice(start, min(start + step, n))
        S, own = smoother.rows(part), x[part].unsqueeze(-1)
        # [G − SG]_ii with G_ii = 0 for the open end and 1 for the closed one
        below[part] = (S * (x < own)).sum(-1)
        above[part] = 1.0 - (S * (x <= own)).sum(-1)
    free = 1.0 - smoother.leverage
    return (below / free).clamp(0.0, 1.0), (1.0 - above / free).clamp(0.0, 1.0)


def karhunen_loeve(x: Tensor) -> Tensor:
    """c_k/k of the ranks of ``x`` ``(n,)``, whose squared error is the CRPS of ranks."""
    k = torch.arange(1, NUM_RANK_TARGETS + 1, dtype=x.dtype, device=x.device)
    return cosines(ranks(x), NUM_RANK_TARGETS) / k


def expected_cosines(x: Tensor, r: Tensor) -> Tensor:
    """The mean of c_k(F(x)) given z if x is its prediction plus noise independent of z, ``(n, k)``.

    The prediction at row i is x_i − r_i, and the noise is any of :data:`NUM_NOISE_QUANTILES` quantiles of r.
    """
    levels = (torch.arange(NUM_NOISE_QUANTILES, dtype=x.dtype, device=x.device) + 0.5) / NUM_NOISE_QUANTILES
    prediction, place = (x - r).sort()  # sorted numbers are looked up faster
    at = r.quantile(levels).unsqueeze(-1) + prediction
    mean = cosines(ranks(x, at.flatten()), NUM_COSINES).reshape(*at.shape, -1).mean(0)
    return torch.empty_like(mean).index_copy_(0, place, mean)


def clipped(r: Tensor) -> Tensor:
    """Residuals clipped at three robust standard deviations, so that no single row dominates."""
    low, high = r.quantile(r.new_tensor([0.25, 0.75]))
    bound = CLIP * (high - low) / NORMAL_QUARTILES
    bound = torch.where(bound > 0, bound, r.abs().max())
    r = r.clamp(-bound, bound)
    return r - r.mean()
