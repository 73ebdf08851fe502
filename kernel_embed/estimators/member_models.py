r"""Further members of the default classifier: logistic regression on transformed rows, and boosted trees.

For the features :math:`z_i` of the kernel :math:`c + \sum_j x_j x'_j`, with a large c, logistic regression is

.. math::  \min_B \; \sum_i w_i \big( \log \textstyle\sum_c e^{F_{ic}} - y_i^\top F_i \big)
           + \frac{\eta}{2} \lVert B \rVert^2, \qquad F = Z B .

At the minimum :math:`\eta B = Z^\top W (Y - P)`, and therefore

.. math::  (Z^\top W Z + \eta I) \, B = Z^\top W (F + Y - P) :

a least-squares embedding of the working targets :math:`F + Y - P`, which is stored as their sums. New rows add their
own working targets; this is one descent step on the loss of all rows, because 1 is an upper bound on the curvature of
the log-sum-exp. The ridge is chosen by cross validation, and left-out values come from fits without the row.

The partition kernel comes from boosting by Newton steps on the cross-entropy (Friedman 2001), with one tree for all
classes. From scores :math:`F_0 = \log \hat\pi` on, tree t splits rows by the residuals :math:`R = Y -
\operatorname{softmax}(F)`, and a leaf moves the scores of its rows by

.. math::  \rho \, \frac{\sum_i w_i R_{ic}}{1 + \sum_i w_i P_{ic} (1 - P_{ic})}, \qquad P = \operatorname{softmax}(F) .

Only the partitions are kept: their kernel is conditioned like every other kernel. Leave-one-out values of the rows that
the trees were grown on are too optimistic; use those of other rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from sklearn import config_context
from sklearn.tree import DecisionTreeRegressor
from torch import Tensor

from ..embeddings import ConditionalEmbedding, LinearPredictor, MulticlassEmbedding, Representation
from ..embeddings.calibration import smoothed
from ..kernels import FeatureKernel, explicit_features
from ..scale.statistics import FeaturePredictor, FeatureStatistics
from ..softmax import softmax_regression
from ..splits import stratified_folds
from ..tabular import Partitions, Tree
from .candidates import linear_kernel
from .conditioning import Table

Array = NDArray[np.float64]

RIDGES = tuple(float(ridge) for ridge in 10.0 ** np.arange(2.0, -3.26, -0.75))  # η, from strong to weak
PATIENCE = 2  # ridges without an improved left-out loss after which smaller ones are not tried
NUM_FOLDS = 5
CONSTANT = 1e4  # c: class offsets are hardly regularized
MOST_NUMBERS = 1000  # the largest number of encoded columns for which logistic regression is used

NUM_TREES, LEAVES = 50, 16
RATE = 0.3  # ρ
COLUMNS_OF_A_SPLIT = 200  # columns considered for a split at most; with more, a random subset is used to save time
FEWEST_IN_LEAF = 3  # the smallest total weight of the rows in a leaf


class LogisticPredictor(LinearPredictor):
    """Logits of the classes, linear in transformed rows: ``logits`` is the embedding of the working targets."""

    def __init__(self, logits: FeaturePredictor) -> None:
        self.logits = logits

    @property
    def representation(self) -> Representation:
        """z, a function of new rows."""
        return self.logits.representation

    @property
    def coefficients(self) -> Tensor:
        """B, ``(p, m)``."""
        return self.logits.coefficients

    @property
    def ridge(self) -> float:
        """η."""
        return float(self.logits.num_data * self.logits.embedding.regularization.item())

    def relevances(self, groups: Tensor) -> Tensor:
        """The change of the logits by one standard deviation of each column, ``(G,)``."""
        B = self.coefficients[: len(groups)]
        return B.new_zeros(int(groups.max()) + 1).scatter_add_(0, groups, B.square().sum(-1)).sqrt()

    def statistics_of(self, table: Table) -> FeatureStatistics:
        """The statistics of rows with their working targets at the current logits."""
        F = self.mean(table.x)
        return FeatureStatistics(self.logits.embedding).update(table.x, F + table.Y() - F.softmax(-1), table.weights)

    def joined(self, sums: FeatureStatistics) -> LogisticPredictor:
        """Add the statistics of other rows, with the same ridge: one descent step on the loss of all rows."""
        whole = self.logits.statistics + sums
        whole.embedding.regularization = self.ridge / whole.num_data
        return LogisticPredictor(whole.condition())

    def refitted(self, table: Table) -> LogisticPredictor:
        """The minimum for the rows of ``table``, with the same kernel and ridge."""
        return _predictor(self.logits.embedding, table, self.ridge)


def fit_logistic(
    table: Table, transform: torch.nn.Module, validation_rows: Tensor, training_rows: Tensor | None, seed: int
) -> tuple[MulticlassEmbedding, LogisticPredictor, Tensor]:
    """Logistic regression on the ``training_rows``, or on all rows with cross-fitting if they are ``None``.

    The embedding of transformed rows, its predictor, and logits of the validation rows from fits without them.
    """
    kernel = linear_kernel(table.x, table.x.shape[1])
    kernel.kernels[0].variance = 1.0
    kernel.kernels[1].constant = table.x.new_full((1,), CONSTANT)
    embedding = ConditionalEmbedding(FeatureKernel(transform, kernel)).to(table.x).requires_grad_(False)
    Z, Y, w = _arrays(embedding, table)
    number = stratified_folds(table.labels, NUM_FOLDS, np.random.default_rng(seed), table.places)
    if training_rows is None:
        left_out_of = number[None, :] == np.arange(NUM_FOLDS)[:, None]
    else:
        left_out_of = np.ones((1, len(Z)), dtype=bool)
        left_out_of[0, training_rows.cpu().numpy()] = False
    ridge, left_out = _path(Z, Y, w, left_out_of, validation_rows.cpu().numpy())
    fitted = table if training_rows is None else table.subset(training_rows)
    learned = MulticlassEmbedding(kernel, table.num_classes, ridge / table.total_weight).to(table.x)
    return learned, _predictor(embedding, fitted, ridge), table.x.new_tensor(left_out)


def _arrays(embedding: ConditionalEmbedding, table: Table) -> Iterator[Array]:
    """Z, Y and w."""
    w = torch.ones_like(table.x[:, 0]) if table.weights is None else table.weights
    for part in (explicit_features(embedding.kernel, table.x), table.Y(), w):
        assert part is not None
        yield part.detach().cpu().double().numpy()


def _predictor(embedding: ConditionalEmbedding, table: Table, ridge: float) -> LogisticPredictor:
    """The minimum, as a least-squares embedding of working targets."""
    Z, Y, w = _arrays(embedding, table)
    (B,) = softmax_regression(Z, Y, w[None, :], ridge, np.zeros((1, Z.shape[1], Y.shape[1])), 1e-12)
    F = Z @ B
    statistics = FeatureStatistics(embedding)
    statistics.embedding.regularization = ridge / table.total_weight
    working = table.x.new_tensor(F + Y - np.exp(log_softmax(F, axis=1)))
    return LogisticPredictor(statistics.update(table.x, working, table.weights).condition())


def _path(
    Z: Array, Y: Array, w: Array, left_out_of: NDArray[np.bool_], validation_rows: NDArray[np.int64]
) -> tuple[float, Array]:
    """The ridge of smallest left-out loss and the logits of the validation rows there."""
    own = left_out_of[:, validation_rows].argmax(0)  # the fit without the row
    Z_v, w_v = Z[validation_rows], w[validation_rows]
    T = smoothed(torch.from_numpy(Y[validation_rows]), float(w_v.sum())).numpy()
    B = np.zeros((len(left_out_of), Z.shape[1], Y.shape[1]))
    losses: list[float] = []
    solutions: list[tuple[float, Array]] = []
    for ridge in RIDGES:
        B = softmax_regression(Z, Y, np.where(left_out_of, 0.0, w), ridge, B)
        F = np.einsum("np,npm->nm", Z_v, B[own]) if len(B) > 1 else Z_v @ B[0]
        losses.append(-float(w_v @ (T * log_softmax(F, axis=1)).sum(1)))
        solutions.append((ridge, F))
        if len(losses) - int(np.argmin(losses)) > PATIENCE:
            break
    return solutions[int(np.argmin(losses))]


def boosted_embedding(rows: Table, seed: int) -> MulticlassEmbedding:
    """An embedding with the kernel of trees that were grown on these rows."""
    kernel = FeatureKernel(Partitions(boosted_trees(rows, seed)))
    return MulticlassEmbedding(kernel, rows.num_classes).to(rows.x)


def boosted_trees(rows: Table, seed: int) -> list[Tree]:
    """:data:`NUM_TREES` trees of :data:`LEAVES` leaves at most."""
    generator = np.random.RandomState(seed % 2**32)
    x, Y = np.ascontiguousarray(rows.x.cpu().numpy(), dtype=np.float32), rows.Y().cpu().numpy()
    n, m = Y.shape
    w = np.ones(n) if rows.weights is None else rows.weights.cpu().numpy()
    F = np.tile(np.log((w @ Y + 1.0) / (w.sum() + m)), (n, 1))
    trees = []
    for _ in range(NUM_TREES):
        P = softmax(F, axis=1)
        tree = DecisionTreeRegressor(
            max_leaf_nodes=LEAVES,
            min_weight_fraction_leaf=min(FEWEST_IN_LEAF * (1.0 - 1e-9) / w.sum(), 0.5),  # 3 rows, however rounded
            max_features=min(x.shape[1], COLUMNS_OF_A_SPLIT),
            random_state=generator,
        )
        with config_context(skip_parameter_validation=True):  # which would take longer than a small tree
            tree.fit(x, Y - P, sample_weight=w, check_input=False)
        nodes = tree.tree_
        leaf = nodes.apply(x)
        at = np.eye(leaf.max() + 1)[leaf]
        steps = (at.T @ (w[:, None] * (Y - P))) / (1.0 + at.T @ (w[:, None] * P * (1.0 - P)))
        F += RATE * steps[leaf]
        parts = (nodes.feature, nodes.threshold, nodes.children_left, nodes.children_right)
        trees.append(Tree(*(torch.as_tensor(part, device=rows.x.device) for part in parts)))
    return trees
