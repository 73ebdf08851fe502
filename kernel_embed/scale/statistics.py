r"""Inference from sufficient statistics, in one pass over data of any length.

With explicit features the embedding depends on the data through :math:`G = Z^\top Z`, :math:`C = Z^\top Y` and n alone:

.. math::  W = (G + n\lambda I)^{-1} C, \qquad \hat{\mathbf p}(x) = W^\top \varphi(x) .

They are sums over rows, so that batches, files and machines each contribute their own.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError
from torch import Tensor
from torch.utils.data import DataLoader

from ..embeddings import ConditionalEmbedding, MulticlassEmbedding
from ..embeddings.representation import FEATURE_NUMBERS
from ..kernels import check_width, explicit_features, has_explicit_features
from ..kernels.parameters import frozen
from ..learning.data import as_pair
from ..linalg import DenseSystem
from ..linalg.products import blocks_of, mirrored_
from .predictors import FEW, FeaturePredictor, MulticlassFeaturePredictor


class FeatureStatistics:
    """n, G = ZᵀZ and C = ZᵀY of an embedding whose kernel has explicit features; summed in float64.

    Args:
        embedding: the embedding, of which a frozen copy is kept: its kernel as it is now decides the features. Call
            ``embedding.eval()`` first where its network has dropout or batch normalization.

    Raises:
        ValueError: if the kernel has no explicit features, or the embedding a batch shape.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RFFKernel(16, num_dims=2), num_classes=2)
        >>> statistics = FeatureStatistics(embedding)
        >>> for _ in range(3):
        ...     x = torch.randn(1000, 2)
        ...     _ = statistics.update(x, (x[:, 0] > 0).long())
        >>> predictor = statistics.condition()
        >>> predictor.num_data, predictor.predict(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
        (3000, tensor([1, 0]))
    """

    def __init__(self, embedding: ConditionalEmbedding) -> None:
        if not has_explicit_features(embedding.kernel):
            raise ValueError(
                f"Expected a kernel with explicit features, got {type(embedding.kernel).__name__}. "
                "Approximate it: approximate(embedding, x, y, method=RandomFeatures(512)) or method=Nystrom(500)."
            )
        if len(embedding.batch_shape) > 0:
            raise ValueError(
                f"Expected an embedding without batch shape, got {tuple(embedding.batch_shape)}. "
                "Accumulate each kernel of the batch alone."
            )
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
        """Z of new rows."""
        kernel: Kernel = self.embedding.kernel
        Z = explicit_features(kernel, x)
        if Z is None:
            raise ValueError(f"{type(kernel).__name__} has too many features. Use scale.Nystrom.")
        return Z

    @torch.no_grad()
    def update(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> FeatureStatistics:
        """Add rows ``x`` ``(n, d)`` with targets ``y``, each ``weights`` times; gone through in blocks."""
        x, y, weights = self.embedding.checked(x, y, weights)
        start = 0
        try:
            while start < x.shape[0]:
                # At first a few rows, which show how many features there are.
                rows = FEW if self.G is None else max(FEW, FEATURE_NUMBERS // self.G.shape[0])
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
            raise NanError(
                f"Expected finite features, got NaN or infinite ones among rows {self.num_data:.0f} to "
                f"{self.num_data + x.shape[0] - 1:.0f}. Look for weights of the feature map that overflowed."
            )
        if self.G is None or self.C is None:
            self.G = Z.new_zeros(Z.shape[-1], Z.shape[-1], dtype=torch.float64)
            self.C = Z.new_zeros(Z.shape[-1], Y.shape[-1], dtype=torch.float64)
        check_width(Z, self.G.shape[0])
        for block in blocks_of(Z.shape[-1]):  # above the diagonal; update mirrors it
            _add_product(self.G[block, block.start :], left[:, block], Z[:, block.start :])
        _add_product(self.C, left, Y)
        self.num_data += x.shape[0] if weights is None else float(weights.sum())
        self.largest_diagonal = max(self.largest_diagonal, diagonal.amax().item())

    def __add__(self, other: FeatureStatistics) -> FeatureStatistics:
        """The statistics of both sets of rows together, which must be of the same kernel."""
        total = FeatureStatistics(self.embedding)
        for part in (self, other):
            total.merge(part.G, part.C, part.num_data, part.largest_diagonal)
        return total

    def merge(self, G: Tensor | None, C: Tensor | None, num_data: float, largest_diagonal: float) -> None:
        """Add the statistics of other rows.

        Raises:
            ValueError: if the other statistics have other numbers of features or targets.
        """
        if G is None or C is None:
            return
        if self.G is None or self.C is None:
            self.G, self.C = torch.zeros_like(G), torch.zeros_like(C)
        if self.G.shape != G.shape or self.C.shape != C.shape:
            raise ValueError(
                f"Expected statistics of {self.G.shape[0]} features and {self.C.shape[1]} targets, got "
                f"{G.shape[0]} and {C.shape[1]}. Both must come from the same kernel."
            )
        self.G, self.C = self.G + G, self.C + C
        self.num_data += num_data
        self.largest_diagonal = max(self.largest_diagonal, largest_diagonal)

    def condition(self, x: Tensor | None = None, y: Tensor | None = None) -> FeaturePredictor:
        """Factorize G + nλI; the predictor stores the coefficients and never changes this object.

        Args:
            x: all rows that were seen, if available: the predictor then also has the expectation of any g(Y).
            y: their targets.

        Raises:
            ValueError: if no rows have been counted yet.
        """
        if self.G is None or self.C is None:
            raise ValueError("There are no rows yet. Call update(x, y) before condition().")
        # W = (G + nλI)⁻¹ C
        ridge = self.num_data * self.embedding.regularization.to(self.G)
        system = DenseSystem(self.G.clone(), ridge)  # later rows are added to G in place
        kind = MulticlassFeaturePredictor if isinstance(self.embedding, MulticlassEmbedding) else FeaturePredictor
        data = None if x is None or y is None else (x, y)
        return kind(self.embedding, system, self.C.clone(), self.num_data, self.largest_diagonal, data)


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """``total`` + leftᵀright in its place, where dtypes agree without a matrix between."""
    if left.dtype == total.dtype:
        total.addmm_(left.mT, right)
    else:
        total += left.mT @ right


def accumulate(
    embedding: ConditionalEmbedding, x: Tensor | DataLoader[object], y: Tensor | None = None
) -> FeatureStatistics:
    """The statistics of all rows of ``x`` and ``y``, or of one pass through a loader that yields ``(x, y)``.

    Args:
        embedding: an embedding whose kernel has explicit features.
        x: inputs, ``(n, d)``, or a loader.
        y: targets, with a tensor ``x``.

    Returns:
        The statistics; their ``condition()`` predicts as ``embedding.condition(x, y)`` does.

    Raises:
        TypeError: if the loader yields ``x`` alone.
        ValueError: if ``x`` is a tensor and ``y`` is missing.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> x, y = torch.randn(100, 2), torch.randint(3, (100,))
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RFFKernel(8, num_dims=2), num_classes=3)
        >>> by_batches = accumulate(embedding, DataLoader(TensorDataset(x, y), batch_size=32)).condition()
        >>> exact = embedding.condition(x, y)
        >>> bool(torch.allclose(by_batches.probabilities(x), exact.probabilities(x), atol=1e-4))
        True
    """
    statistics = FeatureStatistics(embedding)
    if not isinstance(x, DataLoader):
        if y is None:
            raise ValueError("Targets y are missing: pass x and y.")
        return statistics.update(x, y)
    like = next(embedding.parameters())
    for batch in x:
        rows, targets = as_pair(batch, like)
        if targets is None:
            raise TypeError("The loader yields only x. It must yield pairs (x, y).")
        statistics.update(rows, targets)
    return statistics
