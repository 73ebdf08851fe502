r"""What is known: z, prepared once for all variables that are tested given it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .encoding import Encoding
from .smoothers import LENGTHSCALES, Smoothers
from .transforms import KINDS, Column, category_column, normal_scores, real_column

WEIGHT = 2
"""The lengthscale, of those of the regressions, whose eigenfunctions weigh the rows."""
NUM_WEIGHTS = 8
"""Of them at most."""
SMALL_WEIGHT = 0.04
"""The share of the largest eigenvalue below which an eigenfunction does not count."""
MAX_PAIRED = 5
"""Above so many columns products of features of two columns are left out."""
ALIKE = 0.99
"""The correlation of the values of z with their normal scores above which one of the two is enough."""
DETERMINED = 1e-6
"""A column is a function of z where its residual has less than this share of its variance."""


class Variable(NamedTuple):
    """What is left of x when z is known.

    Attributes:
        kinds: features by name, ``(n, m)``, each with a mean of zero given z.
        orders: k of each feature, by name, ``(m,)``.
        columns: the same column by column.
        U: the probability transforms of the real columns, ``(n, d)``.
        is_determined: whether every column is a function of z on these rows.
    """

    kinds: dict[str, Tensor]
    orders: dict[str, Tensor]
    columns: tuple[Column, ...]
    U: Tensor
    is_determined: bool

    @property
    def gain(self) -> float:
        """How much of the CRPS z explains, the mean over columns."""
        return sum(column.gain for column in self.columns) / len(self.columns)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the regressions on z, the most over columns."""
        return max(column.freedom for column in self.columns)

    @property
    def ties(self) -> float:
        """The largest share of values of a column that repeat another."""
        return max(column.ties for column in self.columns)


class ConditioningSet:
    r"""The points z ``(n, p)`` and what tests given z ask of them.

    Attributes:
        points: normal scores of the real columns and coordinates of the categories, in which neighbors are found.
        smoothers: the regressions on z: on those points, and on standardized values in place of scores.
        weights: :math:`\psi(z)`, the leading eigenvectors of a kernel of z times the roots of their eigenvalues,
            ``(n, r)``; a dependence that has different signs at different z is seen with them.
        constant: what the constant counts beside them, the mean of that kernel over normal points.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> z, e = torch.randn(2, 100, 1, generator=generator, dtype=torch.float64)
        >>> left = ConditioningSet(z, (), generator).variable(z + 0.1 * e, (), generator)
        >>> left.gain > 0.8, left.kinds["transform"].shape
        (True, torch.Size([100, 6]))
    """

    @torch.inference_mode()
    def __init__(self, z: Tensor, categories: Sequence[int], generator: torch.Generator) -> None:
        numbers = [j for j in range(z.shape[1]) if j not in categories]
        varying = [j for j in numbers if bool((z[:, j] != z[0, j]).any())]
        coordinates = Encoding(z, categories)(z)[:, len(numbers) :]
        values = z[:, varying]
        versions = [coordinates]
        if varying:
            scores, standard = normal_scores(values), (values - values.mean(dim=0)) / values.std(dim=0)
            alike = bool((torch.nn.functional.cosine_similarity(scores, standard, dim=0) > ALIKE).all())
            versions = [torch.cat([real, coordinates], dim=1) for real in ([scores] if alike else [scores, standard])]
        self.versions = [version if version.shape[1] else z.new_zeros(z.shape[0], 1) for version in versions]
        self.points = self.versions[0]
        self.smoothers = Smoothers(self.versions, generator)
        self.weights = z.new_zeros(z.shape[0], 0)
        p, ell = self.points.shape[1], LENGTHSCALES[WEIGHT]
        self.constant = math.pow(1.0 + 2.0 / (p * ell**2), -0.5 * p)
        if len(self.smoothers.parts) > WEIGHT:
            lam, Q = self.smoothers.parts[WEIGHT]
            count = min(NUM_WEIGHTS, int((lam > SMALL_WEIGHT * lam[-1]).sum()))
            self.weights = Q[:, -count:] * lam[-count:].sqrt()

    @torch.inference_mode()
    def variable(self, x: Tensor, categories: Sequence[int], generator: torch.Generator) -> Variable:
        """What is left of x ``(n, d)``: of every column, and for transforms of each given those before it."""
        columns, before = [], []
        for j in range(x.shape[1]):
            if j in categories:
                coordinates = Encoding(x[:, [j]], [0])(x[:, [j]])
                columns.append(category_column(x[:, j], coordinates, self.smoothers))
                before.append(coordinates)
                continue
            more = self.smoothers
            if before:
                more = Smoothers([torch.cat([version, *before], dim=1) for version in self.versions], generator)
            columns.append(real_column(x[:, j], self.smoothers, more))
            before.append(normal_scores(x[:, [j]]))
        U = [column.U for j, column in enumerate(columns) if j not in categories]
        kinds = {kind: [column.kinds[kind] for column in columns] for kind in KINDS}
        orders = {kind: [_order(part, j in categories) for j, part in enumerate(kinds[kind])] for kind in KINDS}
        if 1 < len(columns) <= MAX_PAIRED:
            for kind in ("ranks", "transform"):
                products = _products(kinds[kind])
                kinds[kind].append(self.smoothers.choose(products).residuals(products))
                orders[kind].append(products.new_full((products.shape[1],), 2.0))
        return Variable(
            {kind: torch.cat(parts, dim=1) for kind, parts in kinds.items()},
            {kind: torch.cat(parts) for kind, parts in orders.items()},
            tuple(columns),
            torch.stack(U, dim=1) if U else x.new_zeros(x.shape[0], 0),
            all(self._determines(x[:, j], column) for j, column in enumerate(columns)),
        )

    def _determines(self, x: Tensor, left: Column) -> bool:
        """Whether nothing of x ``(n,)`` is left, or it has the order of a column of z, forward or backward."""
        if float(left.kinds["residual"].square().mean()) < DETERMINED:
            return True
        score = normal_scores(x.unsqueeze(-1))
        return bool(torch.minimum((self.points - score).abs(), (self.points + score).abs()).amax(0).min() < 1e-9)


def _order(features: Tensor, is_category: bool) -> Tensor:
    m = features.shape[1]
    return features.new_ones(m) if is_category else torch.arange(1, m + 1).to(features)


def _products(parts: Sequence[Tensor]) -> Tensor:
    """Products of the first two features of one column with those of another."""
    found = [
        (a[:, :2].unsqueeze(-1) * b[:, :2].unsqueeze(-2)).flatten(1)
        for i, a in enumerate(parts)
        for b in parts[i + 1 :]
    ]
    return torch.cat(found, dim=1)
