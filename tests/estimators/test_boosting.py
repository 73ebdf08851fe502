"""Trees that are grown where those before them are wrong."""

import dataclasses

import numpy as np
import torch

from kernel_embed.estimators import member_models
from kernel_embed.estimators.candidates import Rows, relevances
from kernel_embed.estimators.member_models import boosted_embedding, boosted_trees
from kernel_embed.tabular import Partitions


def checkerboard(n, seed=0):
    """A product of two signs, a column that says nothing, and three classes."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, size=(n, 3))
    y = (np.sign(x[:, 0]) * np.sign(x[:, 2]) > 0).astype(int) + (x[:, 2] > 0.6)
    return Rows(torch.tensor(x), torch.tensor(y), None, torch.tensor([0, 1, 1]), 3)


def test_its_embedding_sees_an_interaction():
    rows, new = checkerboard(300), checkerboard(200, seed=1)
    embedding = boosted_embedding(rows, 0)
    embedding.regularization = 1.0 / 300
    predicted = embedding.condition(rows.x, rows.y).predict(new.x)
    assert (predicted == new.y).double().mean() > 0.9
    splits = embedding.kernel.feature_map.splits(3)
    assert splits[1] < splits[0] + splits[2]
    assert relevances(embedding, rows.groups).tolist() == [splits[0], splits[1] + splits[2]]


def test_weights_are_repeated_rows_and_labels_may_be_soft():
    generator = np.random.default_rng(0)
    soft = torch.tensor(generator.dirichlet(np.ones(3), 60))  # no two splits are equally good
    rows = dataclasses.replace(checkerboard(60), y=soft)
    times = torch.arange(60) % 3 + 1
    repeated = rows.subset(torch.arange(60).repeat_interleave(times))
    weighted = dataclasses.replace(rows, weights=times.double())
    first, second = (Partitions(boosted_trees(found, 0)[:5])(rows.x) for found in (repeated, weighted))
    torch.testing.assert_close(first @ first.T, second @ second.T)


def test_the_first_tree_fits_the_residuals_of_the_shares():
    """One split, by hand: the sum of squared residuals after it is the least of all splits."""
    rows = checkerboard(80).subset(torch.arange(30))
    tree = boosted_trees(rows, 0)[0]
    x, Y = rows.x.numpy(), rows.Y.numpy()

    def loss(below):
        return sum(((Y[side] - Y[side].mean(0)) ** 2).sum() for side in (below, ~below))

    own = loss(x[:, int(tree.columns[0])] <= float(tree.thresholds[0]))
    every = [x[:, j] <= value for j in range(3) for value in x[:, j]]
    assert np.isclose(own, min(loss(below) for below in every if 3 <= below.sum() <= 27))


def test_wide_tables_are_split_on_a_part_of_their_columns(monkeypatch):
    rows = checkerboard(60)
    monkeypatch.setattr(member_models, "COLUMNS_OF_A_SPLIT", 1)
    assert len({int(tree.columns[0]) for tree in boosted_trees(rows, 0)}) == 3
