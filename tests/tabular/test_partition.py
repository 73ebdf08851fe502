"""The kernel of partitions, against scikit-learn's own leaves."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesClassifier

import kernel_embed as ke
from kernel_embed.kernels import FeatureKernel, explicit_features, gram
from kernel_embed.tabular import Partitions, Tree


def test_it_is_the_share_of_trees_in_which_two_rows_have_one_leaf():
    generator = np.random.default_rng(0)
    x = generator.integers(20, size=(40, 3)) / 4.0  # exact in single precision, in which scikit-learn compares
    forest = ExtraTreesClassifier(7, min_samples_leaf=3, random_state=0).fit(x, x[:, 0] > x[:, 1])
    trees = [
        Tree(*map(torch.as_tensor, (t.feature, t.threshold, t.children_left, t.children_right)))
        for t in (one.tree_ for one in forest.estimators_)
    ]
    phi = Partitions(trees)
    leaves = forest.apply(x)
    expected = (leaves[:, None, :] == leaves[None, :, :]).mean(-1)
    rows = torch.tensor(x)
    np.testing.assert_allclose(gram(FeatureKernel(phi), rows).numpy(), expected)
    assert explicit_features(FeatureKernel(phi), rows).shape == (40, phi.num_cells)
    assert phi.num_cells == sum(one.get_n_leaves() for one in forest.estimators_)
    splits = np.concatenate([one.tree_.feature for one in forest.estimators_])
    assert phi.splits(3).tolist() == [int((splits == j).sum()) for j in range(3)]


def test_a_tree_without_splits_is_one_cell():
    root = Tree(torch.tensor([-2]), torch.tensor([-2.0]), torch.tensor([-1]), torch.tensor([-1]))
    assert Partitions([root, root])(torch.zeros(3, 1)).square().sum(-1).allclose(torch.ones(3))


def test_it_is_saved_without_pickle(tmp_path):
    x, y = torch.tensor([[0.0], [1.0], [0.2]]), torch.tensor([0, 1, 0])
    conditioned = ke.MulticlassEmbedding(FeatureKernel(Partitions([Tree(**PARTS)])), 2).condition(x, y)
    ke.save(conditioned, tmp_path / "model.ke")
    assert torch.equal(ke.load(tmp_path / "model.ke").probabilities(x), conditioned.probabilities(x))


PARTS = {
    "columns": torch.tensor([0, 0, 0]),
    "thresholds": torch.tensor([0.5, 0.0, 0.0]),
    "below": torch.tensor([1, -1, -1]),
    "above": torch.tensor([2, -1, -1]),
}
REFUSED = [
    (r"Expected .* got .*", lambda: Tree(**{**PARTS, "columns": torch.tensor([0.0, 0.0, 0.0])})),
    (r"Expected .* got .*", lambda: Tree(**{**PARTS, "below": torch.tensor([1.0, -1.0, -1.0])})),
    (r"Expected .* got .*", lambda: Tree(**{**PARTS, "above": torch.tensor([True, False, False])})),
    (r"Expected .* got .*", lambda: Tree(**{**PARTS, "thresholds": torch.tensor([float("nan"), 0.0, 0.0])})),
    ("below to lead to nodes of larger numbers", lambda: Tree(**{**PARTS, "below": torch.tensor([0, -1, -1])})),
    ("must have the same length", lambda: Tree(**{**PARTS, "thresholds": torch.zeros(2)})),
    ("at least one node", lambda: Tree(**{name: part[:0] for name, part in PARTS.items()})),
    ("Expected a list of trees", lambda: Partitions([])),
    ("with d above 0", lambda: Partitions([Tree(**PARTS)])(torch.zeros(3, 0))),
    ("Expected num_columns as a whole number", lambda: Partitions([Tree(**PARTS)]).splits("2")),
]


@pytest.mark.parametrize(("message", "call"), REFUSED)
def test_trees_that_are_none_are_refused(message, call):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
