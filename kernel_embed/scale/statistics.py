r"""Inference from sufficient statistics, in one pass over data of any length.

With explicit features the embedding depends on the data through :math:`G = Z^\top Z`, :math:`C = Z^\top Y` and n alone:

.. math::  W = (G + n\lambda I)^{-1} C, \qquad \hat{\mathbf p}(x) = W^\top \varphi(x) .
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import cast

import torch
from linear_operator.utils.errors import NanError
from torch import Tensor
from typing_extensions import Self

from ..embeddings import ConditionalEmbedding, Distribution, LinearPredictor, MulticlassEmbedding, MulticlassPredictor
from ..embeddings.distribution import indicators
from ..embeddings.representation import FEATURE_NUMBERS, Representation
from ..kernels import SupDiagonal, check_width, explicit_features, has_explicit_features
from ..kernels.parameters import frozen
from ..linalg import DenseSystem, Units, repeated_rows
from ..linalg.factorization import blocks_of
from ..linalg.forms import mirrored_
from ..linalg.ridge_path import left_out_blocks, left_out_from_leverage

FEW = 256  # the smallest block of rows


class FeatureStatistics:
    """n, G = ZᵀZ and C = ZᵀY of an embedding whose kernel has explicit features; summed in float64.

    Args:
        embedding: the embedding, of which a frozen copy is kept: its kernel as it is now decides the features. Call
            ``embedding.eval()`` first where its network has dropout or batch normalization.

    Raises:
        ValueError: if the kernel has no explicit features, or the embedding a batch shape.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> statistics = FeatureStatistics(ke.ConditionalEmbedding(gpytorch.kernels.LinearKernel()))
        >>> statistics.update(torch.eye(2), torch.ones(2)).update(torch.eye(2), torch.zeros(2)).condition().num_data
        4
    """

    def __init__(self, embedding: ConditionalEmbedding) -> None:
        if not has_explicit_features(embedding.kernel):
            kind = type(embedding.kernel).__name__
            raise ValueError(
                f"Expected a kernel with explicit features, got {kind}. Approximate it: scale.approximate."
            )
        embedding.check_single()
        self.embedding = frozen(embedding)
        self.num_data: float = 0
        """n, the weights of all rows added up."""
        self.G: Tensor | None = None
        """ZᵀZ, ``(p, p)``; ``None`` before the first row."""
        self.C: Tensor | None = None
        """ZᵀY, ``(p, m)``."""
        self.largest_diagonal = 0.0
        """The largest k(x_i, x_i) so far."""

    def features(self, x: Tensor) -> Tensor:
        """Z = φ(x), ``(n, p)``; raises if there are too many features."""
        Z = explicit_features(self.embedding.kernel, x)
        if Z is None:
            raise ValueError(f"{type(self.embedding.kernel).__name__} has too many features. Use scale.Nystrom.")
        return Z

    @torch.no_grad()
    def update(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> FeatureStatistics:
        """Add rows ``x`` ``(n, d)`` with targets ``y``, each counted ``weights`` times, a block at a time."""
        x, y, weights = self.embedding.checked(x, y, weights)
        start = 0
        try:
            while start < x.shape[0]:
                # At first a few rows, which show how many features there are.
                rows = FEW if self.G is None else _block_rows(len(self.G))
                part = slice(start, start + rows)
                self._add(x[part], y[part], None if weights is None else weights[part])
                start += rows
        finally:
            if self.G is not None:
                mirrored_(self.G)
        return self

    def _add(self, x: Tensor, y: Tensor, weights: Tensor | None) -> None:
        Z = self.features(x)
        Y = self.embedding.targets(y, Z)
        left = Z if weights is None else weights.unsqueeze(-1) * Z
        diagonal = torch.linalg.vector_norm(Z, dim=-1).square()
        # |[ZᵀZ]_ij| ≤ Σ ‖z‖²: where this is finite, so is every sum.
        if not bool(torch.isfinite(diagonal.sum())):
            rows = f"{self.num_data:.0f} to {self.num_data + len(x) - 1:.0f}"
            raise NanError(f"Expected finite features, got NaN or infinite ones among rows {rows}. Look for overflow.")
        p = Z.shape[-1]
        if self.G is None or self.C is None:
            self.G, self.C = (Z.new_zeros(p, width, dtype=torch.float64) for width in (p, Y.shape[-1]))
        check_width(Z, len(self.G))
        for block in blocks_of(p):  # above the diagonal; update mirrors it
            _add_product(self.G[block, block.start :], left[:, block], Z[:, block.start :])
        _add_product(self.C, left, Y)
        self.num_data += len(x) if weights is None else float(weights.sum())
        self.largest_diagonal = max(self.largest_diagonal, diagonal.amax().item())

    def __add__(self, other: FeatureStatistics) -> FeatureStatistics:
        """The statistics of both sets of rows together, which must be of the same kernel."""
        total = FeatureStatistics(self.embedding)
        for part in (self, other):
            total.merge(part.G, part.C, part.num_data, part.largest_diagonal)
        return total

    def merge(self, G: Tensor | None, C: Tensor | None, num_data: float, largest_diagonal: float) -> None:
        """Add the statistics of other rows."""
        if G is None or C is None:
            return
        if self.G is None or self.C is None:
            self.G, self.C = torch.zeros_like(G), torch.zeros_like(C)
        if self.G.shape != G.shape or self.C.shape != C.shape:
            (p, m), (other_p, other_m) = self.C.shape, C.shape
            raise ValueError(f"Expected statistics of {p} features and {m} targets, got {other_p} and {other_m}.")
        self.G, self.C = self.G + G, self.C + C
        self.num_data += num_data
        self.largest_diagonal = max(self.largest_diagonal, largest_diagonal)

    def condition(self, x: Tensor | None = None, y: Tensor | None = None) -> FeaturePredictor:
        """Factorize G + nλI; with all rows ``x`` and targets ``y`` for the expectation of any g(Y), too.

        Raises:
            ValueError: if no rows have been counted yet.
        """
        if self.G is None or self.C is None:
            raise ValueError("There are no rows yet. Call update(x, y) before condition().")
        kind = MulticlassFeaturePredictor if isinstance(self.embedding, MulticlassEmbedding) else FeaturePredictor
        sums = copy.copy(self)
        sums.G, sums.C = self.G.clone(), self.C.clone()  # later rows are added to G in place
        return kind(sums, x, y)


def _block_rows(num_features: int) -> int:
    return max(FEW, FEATURE_NUMBERS // num_features)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add leftᵀright to ``total`` in place; if the dtypes agree, the product is not formed separately."""
    if left.dtype == total.dtype:
        total.addmm_(left.mT, right)
    else:
        total += left.mT @ right


class FeaturePredictor(LinearPredictor):
    """An embedding conditioned on statistics. It stores W and the feature map, and the data only where passed."""

    def __init__(self, statistics: FeatureStatistics, x: Tensor | None = None, y: Tensor | None = None) -> None:
        assert statistics.G is not None
        assert statistics.C is not None
        self.embedding, self.num_data, self.x, self.y = statistics.embedding, statistics.num_data, x, y
        self._sums = statistics
        self._system = DenseSystem(statistics.G, self.num_data * self.embedding.regularization.to(statistics.G))
        self._W = self._system.solve(statistics.C)  # (G + nλI)⁻¹ C

    @property
    def representation(self) -> Representation:
        """φ, the explicit features of new points."""
        return Representation(self.embedding.kernel, num_features=len(self._W))

    @property
    def coefficients(self) -> Tensor:
        """W, ``(p, m)``."""
        return self._W

    def _blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """The features of the stored rows, a block at a time."""
        if self.x is None or self.y is None:
            raise self._without_data()
        size = _block_rows(len(self._W))
        for start in range(0, len(self.x), size):
            rows = slice(start, start + size)
            yield rows, self.representation(self.x[rows])

    @torch.no_grad()
    def coefficients_of(self, values: Tensor) -> Tensor:
        """(G + nλI)⁻¹ Zᵀ ``values``, by one more pass over the data."""
        C = torch.stack([Z.mT @ values[rows].to(Z) for rows, Z in self._blocks()]).sum(0)
        return self._system.solve(C.to(self._W))

    @torch.no_grad()
    def weights(self, x: Tensor) -> Tensor:
        """w(x) = Z(G + nλI)⁻¹φ(x), the weights of the stored rows in the prediction at ``x``: ``(n, t)``."""
        blocks = self._blocks()
        B = self._system.solve(self.representation(x).mT.to(self._W))
        return torch.cat([Z.to(B) @ B for _, Z in blocks])

    @property
    def statistics(self) -> FeatureStatistics:
        """A copy of the sums behind this predictor, to which rows can be added."""
        return FeatureStatistics(self.embedding) + self._sums

    def updated(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Self:
        """The same with more rows and the same ridge nλ: their sums are added. The data themselves are not stored."""
        statistics = self.statistics.update(x, y, weights)
        regularization = statistics.embedding.regularization
        statistics.embedding.regularization = regularization.detach() * (self.num_data / statistics.num_data)
        return cast(Self, statistics.condition())

    def leave_one_out_at(
        self, x: Tensor, y: Tensor, weights: Tensor | None = None, units: Units | None = None
    ) -> Tensor:
        """Leave-one-out values at training rows ``x``: ``(t, m)``; groups of ``units`` must be there as a whole."""
        return self._left_out(x, self.embedding.targets(y, self._W), self._W, weights, units)

    @torch.no_grad()
    def leave_one_out_distribution(self) -> Distribution:
        """P(Y | X = x_i) of a real target without row i, at every stored row; nλ and F̄ stay the same."""
        y = self.real_targets()
        support, F, coefficients = self._cumulative
        G, _ = indicators(y, support)
        assert self.x is not None
        return Distribution(support, F + self._left_out(self.x, G, coefficients, None, repeated_rows(self.x, y)))

    def _left_out(
        self, x: Tensor, Y: Tensor, coefficients: Tensor, weights: Tensor | None, units: Units | None
    ) -> Tensor:
        size, values = _block_rows(len(self._W)), torch.empty_like(Y)
        grouped = units is not None and units.labels is not None
        all_rows = units.rows if grouped and units else (torch.arange(len(x), device=x.device).unsqueeze(-1),)
        parts = [part.flatten() for rows in all_rows for part in rows.split(max(1, size // rows.shape[1]))]
        for rows in parts:
            Z, own = self.representation(x[rows]).to(self._W), None if weights is None else weights[rows]
            U, P, part = self._system.solve(Z.mT).mT, Z @ coefficients, None if units is None else units.subset(rows)
            if grouped and part:
                values[rows] = Y[rows] - left_out_blocks(Y[rows] - P, U, Z, part, own)
            else:
                norms, leverage, ridge = Z.square().sum(-1), (Z * U).sum(-1), float(self._system.ridge)
                values[rows] = left_out_from_leverage(P, leverage, norms, Y[rows], ridge, own, part)
        return values

    @property
    def squared_norm(self) -> Tensor:
        """tr WᵀW, the squared norm of the embedding."""
        # Algorithm 2, line 10
        return self._W.square().sum((-2, -1))

    @property
    def sup_diagonal(self) -> SupDiagonal:
        """α², the largest k(x_i, x_i) over all training rows."""
        return SupDiagonal(self._W.new_tensor(self._sums.largest_diagonal), "maximum over the data")


class MulticlassFeaturePredictor(MulticlassPredictor, FeaturePredictor):
    """The same for class labels, with the methods of :class:`kernel_embed.embeddings.ConditionedMulticlass`."""

    embedding: MulticlassEmbedding
