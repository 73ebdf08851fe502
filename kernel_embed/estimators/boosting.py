r"""The partition kernel of the default: trees grown one after another, each where those before it are still wrong.

Boosting by Newton steps on the cross-entropy (Friedman 2001), with one tree for all classes. From scores
:math:`F_0 = \log \hat\pi` on, tree t splits rows by the residuals :math:`R = Y - \operatorname{softmax}(F)`, and a leaf
moves the scores of its rows by

.. math::  \rho \, \frac{\sum_i w_i R_{ic}}{1 + \sum_i w_i P_{ic} (1 - P_{ic})}, \qquad P = \operatorname{softmax}(F) .

Only the partitions are kept: their kernel (:mod:`kernel_embed.tabular.partition`) is conditioned like every other, so
that coefficients come from all rows, with a ridge, leave-one-out values and sums that can grow. The trees have seen the
labels of the rows they were grown on, whose leave-one-out values flatter; those of other rows are honest.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn import config_context
from sklearn.tree import DecisionTreeRegressor

from ..embeddings import MulticlassEmbedding
from ..kernels import FeatureKernel
from ..tabular import Partitions, Tree
from .candidates import Rows

NUM_TREES = 50
LEAVES = 16
RATE = 0.3
"""ρ."""
COLUMNS_OF_A_SPLIT = 200
"""Numbers that a split chooses among; of more, a random part, so that wide tables do not take long."""
FEWEST_IN_LEAF = 3
"""Rows, by weight."""


def boosted_embedding(rows: Rows, seed: int) -> MulticlassEmbedding:
    """An embedding with the kernel of trees that were grown on these rows."""
    kernel = FeatureKernel(Partitions(boosted_trees(rows, seed)))
    return MulticlassEmbedding(kernel, rows.num_classes).to(rows.x)


def boosted_trees(rows: Rows, seed: int) -> list[Tree]:
    """:data:`NUM_TREES` trees of :data:`LEAVES` leaves at most."""
    generator = np.random.RandomState(seed % 2**32)
    x, Y = np.ascontiguousarray(rows.x.cpu().numpy(), dtype=np.float32), rows.Y.cpu().numpy()
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
        with config_context(skip_parameter_validation=True):  # which takes longer than a small tree
            tree.fit(x, Y - P, sample_weight=w, check_input=False)
        leaf = tree.tree_.apply(x)
        F += RATE * _newton_steps(leaf, w[:, None] * (Y - P), w[:, None] * P * (1.0 - P))[leaf]
        nodes = tree.tree_
        trees.append(
            Tree(
                *(
                    torch.as_tensor(of_nodes, device=rows.x.device)
                    for of_nodes in (nodes.feature, nodes.threshold, nodes.children_left, nodes.children_right)
                )
            )
        )
    return trees


def _newton_steps(
    leaf: NDArray[np.int64], residuals: NDArray[np.float64], curvatures: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What each node adds to the scores, ``(nodes, m)``."""
    at = np.eye(leaf.max() + 1)[leaf]
    steps: NDArray[np.float64] = (at.T @ residuals) / (1.0 + at.T @ curvatures)
    return steps
