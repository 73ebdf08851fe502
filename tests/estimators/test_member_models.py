"""Logistic regression against scikit-learn's and its own definition; trees grown where those before them are wrong."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from kernel_embed.estimators import member_models
from kernel_embed.estimators.candidates import relevances
from kernel_embed.estimators.conditioning import Table
from kernel_embed.estimators.member_models import RIDGES, boosted_embedding, boosted_trees, fit_logistic
from kernel_embed.kernels import explicit_features
from kernel_embed.softmax import softmax_regression
from kernel_embed.tabular import Partitions, make_input_transform


@pytest.fixture(scope="module")
def table() -> Table:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((90, 3))
    logits = x @ np.array([[2.0, -2.0, 0.0], [0.0, 1.0, -1.0], [0.0, 0.0, 0.0]])
    y = (logits + generator.gumbel(size=logits.shape)).argmax(1)
    return Table(torch.tensor(x), torch.tensor(y), None, torch.arange(3), torch.ones(3, dtype=torch.bool), 3)


def logistic(table: Table, learned: torch.Tensor | None = None):
    """Embedding, predictor and left-out logits."""
    rows = torch.tensor(np.setdiff1d(np.arange(len(table.x)), [] if learned is None else learned))
    transform = make_input_transform("squash", table.x, table.numbers, table.weights)
    return fit_logistic(table, transform, rows, learned, 0)


def loss(table: Table, answers: member_models.LogisticPredictor) -> float:
    """What is minimized."""
    losses = -(table.Y() * answers.mean(table.x).log_softmax(-1)).sum(-1)
    return float(losses.sum() + 0.5 * answers.ridge * answers.coefficients.square().sum())


@pytest.mark.parametrize("ridge", [10.0, 0.1])
def test_the_minimum_is_that_of_scikit_learn_for_each_of_several_fits(table, ridge):
    Z, labels = table.x.numpy(), table.labels
    W = np.stack([1.0 + np.arange(90) % 3, np.arange(90) % 2])
    both = softmax_regression(Z, np.eye(3)[labels], W, ridge, np.zeros((2, 3, 3)), 1e-14)
    for B, w in zip(both, W, strict=True):
        theirs = LogisticRegression(C=1.0 / ridge, fit_intercept=False, tol=1e-10, max_iter=1000).fit(Z, labels, w)
        np.testing.assert_allclose(B.T, theirs.coef_, atol=1e-5)


def test_the_answers_are_the_minimum(table):
    """The least-squares embedding of working targets has the gradient zero."""
    answers = logistic(table)[1]
    B = answers.coefficients.clone().requires_grad_()
    Z = explicit_features(answers.logits.embedding.kernel, table.x)
    value = -(table.Y() * (Z @ B).log_softmax(-1)).sum() + 0.5 * answers.ridge * B.square().sum()
    (gradient,) = torch.autograd.grad(value, B)
    scale = Z.abs().sum(0, keepdim=True).T
    assert float((gradient / scale).abs().max()) < 1e-5


def test_validation_rows_are_not_used_for_training(table, monkeypatch):
    """Another label of such a row may move the choice of the ridge; with one ridge it moves nothing."""
    monkeypatch.setattr(member_models, "RIDGES", (1.0,))
    y = table.y.clone()
    y[7] = (y[7] + 1) % 3
    one, two = (logistic(rows, torch.arange(0, 90, 2))[1:] for rows in (table, dataclasses.replace(table, y=y)))
    assert torch.equal(one[1], two[1])
    assert torch.equal(one[0].coefficients, two[0].coefficients)
    torch.testing.assert_close(one[1], one[0].mean(table.x[1::2]), rtol=0.0, atol=0.03)


def test_folds_leave_rows_out_by_hand(table):
    embedding, predictor, left_out = logistic(table)
    Z = explicit_features(predictor.logits.embedding.kernel, table.x).numpy()
    Y, number = np.eye(3)[table.labels], member_models.stratified_folds(table.labels, 5, np.random.default_rng(0))
    ridge = 90 * embedding.regularization.item()
    assert min(abs(np.log(np.array(RIDGES) / ridge))) < 1e-6
    for k in range(5):
        kept = number != k
        (B,) = softmax_regression(Z[kept], Y[kept], np.ones((1, kept.sum())), ridge, np.zeros((1, 4, 3)), 1e-14)
        np.testing.assert_allclose(left_out.numpy()[~kept], Z[~kept] @ B, atol=0.03)


def test_weights_are_numbers_of_rows_and_labels_may_be_soft(table):
    weights = 1.0 + (torch.arange(90) % 3).double()
    answers = logistic(dataclasses.replace(table, weights=weights))[1]
    again = answers.refitted(table.subset(torch.repeat_interleave(torch.arange(90), weights.long())))
    torch.testing.assert_close(again.coefficients, answers.coefficients, rtol=1e-3, atol=1e-4)
    soft = dataclasses.replace(table, y=table.Y())
    torch.testing.assert_close(logistic(soft)[1].coefficients, logistic(table)[1].coefficients)


def test_more_rows_are_a_step_towards_the_minimum_of_all(table):
    first, rest = table.subset(torch.arange(60)), table.subset(torch.arange(60, 90))
    before = logistic(first)[1]
    after = before.joined(before.statistics_of(rest))
    best = before.refitted(table)
    assert after.logits.num_data == 90
    losses = [loss(table, answers) for answers in (before, after, best)]
    assert losses[0] > losses[1] > losses[2] - 1e-9


def test_the_column_that_says_nothing_counts_least(table):
    relevances = logistic(table)[1].relevances(table.groups)
    assert int(relevances.argmin()) == 2
    assert relevances.shape == (3,)


def checkerboard(n, seed=0):
    """A product of two signs, a column that says nothing, and three classes."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(-1, 1, size=(n, 3))
    y = (np.sign(x[:, 0]) * np.sign(x[:, 2]) > 0).astype(int) + (x[:, 2] > 0.6)
    return Table(torch.tensor(x), torch.tensor(y), None, torch.tensor([0, 1, 1]), torch.ones(3, dtype=torch.bool), 3)


def test_its_embedding_sees_an_interaction():
    rows, new = checkerboard(300), checkerboard(200, seed=1)
    embedding = boosted_embedding(rows, 0)
    embedding.regularization = 1.0 / 300
    predicted = embedding.condition(rows.x, rows.y).predict(new.x)
    assert (predicted == new.y).double().mean() > 0.9
    splits = embedding.kernel.feature_map.splits(3)
    assert splits[1] < splits[0] + splits[2]
    assert relevances(embedding, rows.groups).tolist() == [splits[0], splits[1] + splits[2]]


def test_weights_of_trees_are_repeated_rows_and_labels_may_be_soft():
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
    x, Y = rows.x.numpy(), rows.Y().numpy()

    def loss(below):
        return sum(((Y[side] - Y[side].mean(0)) ** 2).sum() for side in (below, ~below))

    own = loss(x[:, int(tree.columns[0])] <= float(tree.thresholds[0]))
    every = [x[:, j] <= value for j in range(3) for value in x[:, j]]
    assert np.isclose(own, min(loss(below) for below in every if 3 <= below.sum() <= 27))


def test_wide_tables_are_split_on_a_part_of_their_columns(monkeypatch):
    rows = checkerboard(60)
    monkeypatch.setattr(member_models, "COLUMNS_OF_A_SPLIT", 1)
    assert len({int(tree.columns[0]) for tree in boosted_trees(rows, 0)}) == 3
