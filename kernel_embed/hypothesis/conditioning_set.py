"""Conditioning variables, preprocessed once for all variables tested given them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .checks import Encoding
from .smoothers import LENGTHSCALES, Smoothers
from .transforms import KINDS, ColumnFeatures, category_features, normal_scores, real_features

WEIGHT_KERNEL = 2
"""The index of the lengthscale whose eigenfunctions weight the rows."""
MAX_WEIGHTS = 8
SMALL_WEIGHT = 0.04
"""The share of the largest eigenvalue below which an eigenfunction is dropped."""
MAX_PRODUCT_COLUMNS = 5
"""The most columns for which products of features of two columns are used."""
ALIKE = 0.99
"""The correlation of the values of z with their normal scores above which the scores alone are used."""
DETERMINED = 1e-6
"""A column is a function of z where its residual has less than this share of its variance."""


class ConditionalFeatures(NamedTuple):
    """Features of x with mean zero given z.

    Attributes:
        kinds: features by kind, ``(n, m)``.
        orders: k of each feature, by kind, ``(m,)``.
        U: the probability transforms of the real columns, ``(n, d)``.
        gain: the share of the CRPS that z explains, the mean over columns.
        freedom: the largest degrees of freedom of the regressions on z.
        ties: the largest share of values of a column that repeat another.
        is_determined: whether every column is a function of z on these rows.
    """

    kinds: dict[str, Tensor]
    orders: dict[str, Tensor]
    U: Tensor
    gain: float
    freedom: float
    ties: float
    is_determined: bool


class ConditioningSet:
    r"""The conditioning variables z ``(n, p)``.

    Attributes:
        points: normal scores of the real columns and coordinates of the categories, in which neighbors are found.
        smoothers: the regressions on z: on these points, and on standardized values instead of scores.
        weights: :math:`\psi(z)`, the leading eigenvectors of a kernel of z times the roots of their eigenvalues,
            ``(n, r)``; they detect dependence whose sign varies with z.
        constant: the weight of the constant among them, the mean of that kernel over normal points.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> z, e = torch.randn(2, 100, 1, generator=generator, dtype=torch.float64)
        >>> features = ConditioningSet(z, (), generator).features_of(z + 0.1 * e, (), generator)
        >>> features.gain > 0.8, features.kinds["transform"].shape
        (True, torch.Size([100, 6]))
    """

    @torch.inference_mode()
    def __init__(self, z: Tensor, categories: Sequence[int], generator: torch.Generator) -> None:
        numbers = [j for j in range(z.shape[1]) if j not in categories]
        varying = [j for j in numbers if bool((z[:, j] != z[0, j]).any())]
        coordinates = Encoding(z, categories)(z)[:, len(numbers) :]
        versions = [coordinates]
        if varying:
            values = z[:, varying]
            scores, standard = normal_scores(values), (values - values.mean(dim=0)) / values.std(dim=0)
            alike = bool((torch.nn.functional.cosine_similarity(scores, standard, dim=0) > ALIKE).all())
            versions = [torch.cat([real, coordinates], dim=1) for real in ([scores] if alike else [scores, standard])]
        self.versions = [version if version.shape[1] else z.new_zeros(len(z), 1) for version in versions]
        self.points = self.versions[0]
        self.smoothers = Smoothers(self.versions, generator)
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
        orders = {kind: [_orders(part, j in categories) for j, part in enumerate(kinds[kind])] for kind in KINDS}
        if 1 < len(columns) <= MAX_PRODUCT_COLUMNS:
            for kind in ("ranks", "transform"):
                products = _products(kinds[kind])
                kinds[kind].append(self.smoothers.select([products])[0].residuals(products))
                orders[kind].append(products.new_full((products.shape[1],), 2.0))
        U = [column.U for j, column in enumerate(columns) if j not in categories]
        return ConditionalFeatures(
            {kind: torch.cat(parts, dim=1) for kind, parts in kinds.items()},
            {kind: torch.cat(parts) for kind, parts in orders.items()},
            torch.stack(U, dim=1) if U else x.new_zeros(len(x), 0),
            sum(column.gain for column in columns) / len(columns),
            max(column.freedom for column in columns),
            max(column.ties for column in columns),
            all(self._determines(x[:, j], column) for j, column in enumerate(columns)),
        )

    def _determines(self, x: Tensor, features: ColumnFeatures) -> bool:
        """Whether x ``(n,)`` has no residual, or the order of a column of z, ascending or descending."""
        if float(features.kinds["residual"].square().mean()) < DETERMINED:
            return True
        score = normal_scores(x.unsqueeze(-1))
        return bool(torch.minimum((self.points - score).abs(), (self.points + score).abs()).amax(0).min() < 1e-9)


def _orders(features: Tensor, is_category: bool) -> Tensor:
    m = features.shape[1]
    return features.new_ones(m) if is_category else torch.arange(1, m + 1).to(features)


def _products(parts: Sequence[Tensor]) -> Tensor:
    """Products of the first two features of one column with those of another."""
    products = [
        (a[:, :2].unsqueeze(-1) * b[:, :2].unsqueeze(-2)).flatten(1)
        for i, a in enumerate(parts)
        for b in parts[i + 1 :]
    ]
    return torch.cat(products, dim=1)
