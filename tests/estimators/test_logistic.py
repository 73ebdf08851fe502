"""Logistic regression as a member of the default, against scikit-learn's and against its own definition."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from kernel_embed.estimators import member_models
from kernel_embed.estimators.conditioning import Table
from kernel_embed.estimators.member_models import RIDGES, fit_logistic
from kernel_embed.kernels import explicit_features
from kernel_embed.softmax import softmax_regression
from kernel_embed.tabular import make_input_transform


@pytest.fixture(scope="module")
def table() -> Table:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((90, 3))
    logits = x @ np.array([[2.0, -2.0, 0.0], [0.0, 1.0, -1.0], [0.0, 0.0, 0.0]])
    y = (logits + generator.gumbel(size=logits.shape)).argmax(1)
    return Table(torch.tensor(x), torch.tensor(y), None, torch.arange(3), torch.ones(3, dtype=torch.bool), 3)


def everything(table: Table) -> torch.Tensor:
    return torch.arange(len(table.x))


def found(table: Table, learned: torch.Tensor | None = None) -> member_models.Logistic:
    validation_rows = everything(table) if learned is None else torch.tensor(np.setdiff1d(everything(table), learned))
    return fit_logistic(
        table, make_input_transform("squash", table.x, table.numbers, table.weights), validation_rows, learned, 0
    )


def loss(table: Table, answers: member_models.LogisticPredictor) -> float:
    """What is minimized."""
    F, Y = answers.mean(table.x), table.Y(everything(table))
    ridge = answers.logits.num_data * answers.logits.embedding.regularization.item()
    losses = -(Y * F.log_softmax(-1)).sum(-1)
    weights = torch.ones_like(losses) if table.weights is None else table.weights
    return float(weights @ losses + 0.5 * ridge * answers.coefficients.square().sum())


@pytest.mark.parametrize("ridge", [10.0, 0.1])
def test_the_minimum_is_that_of_scikit_learn(table, ridge):
    Z, labels, w = table.x.numpy(), table.labels, 1.0 + (np.arange(90) % 3)
    (B,) = softmax_regression(Z, np.eye(3)[labels], w[None], ridge, np.zeros((1, 3, 3)), 1e-14)
    theirs = LogisticRegression(C=1.0 / ridge, fit_intercept=False, tol=1e-10, max_iter=1000).fit(Z, labels, w)
    np.testing.assert_allclose(B.T, theirs.coef_, atol=1e-5)


def test_several_fits_are_each_their_own(table):
    Z, Y = table.x.numpy(), np.eye(3)[table.labels]
    W = np.stack([np.arange(90) % 2 == 0, np.arange(90) % 3 > 0]).astype(float)
    both = softmax_regression(Z, Y, W, 1.0, np.zeros((2, 3, 3)), 1e-14)
    for B, w in zip(both, W, strict=True):
        kept = w > 0
        (alone,) = softmax_regression(Z[kept], Y[kept], w[None, kept], 1.0, np.zeros((1, 3, 3)), 1e-14)
        np.testing.assert_allclose(B, alone, atol=1e-5)


def test_the_answers_are_the_minimum(table):
    """The least-squares embedding of working targets has the gradient zero."""
    answers = found(table).predictor
    B = answers.coefficients.clone().requires_grad_()
    Z = explicit_features(answers.logits.embedding.kernel, table.x)
    ridge = answers.logits.num_data * answers.logits.embedding.regularization.item()
    value = -(table.Y(everything(table)) * (Z @ B).log_softmax(-1)).sum() + 0.5 * ridge * B.square().sum()
    (gradient,) = torch.autograd.grad(value, B)
    scale = Z.abs().sum(0, keepdim=True).T
    assert float((gradient / scale).abs().max()) < 1e-5


def test_validation_rows_are_not_used_for_training(table, monkeypatch):
    """Another label of such a row may move the choice of the ridge; with one ridge it moves nothing."""
    monkeypatch.setattr(member_models, "RIDGES", (1.0,))
    y = table.y.clone()
    y[7] = (y[7] + 1) % 3
    one, two = (found(rows, torch.arange(0, 90, 2)) for rows in (table, dataclasses.replace(table, y=y)))
    assert torch.equal(one.left_out, two.left_out)
    assert torch.equal(one.predictor.coefficients, two.predictor.coefficients)
    torch.testing.assert_close(one.left_out, one.predictor.mean(table.x[1::2]), rtol=0.0, atol=0.03)


def test_folds_leave_rows_out_by_hand(table):
    one = found(table)
    Z = explicit_features(one.predictor.logits.embedding.kernel, table.x).numpy()
    Y, number = np.eye(3)[table.labels], member_models.stratified_folds(table.labels, 5, np.random.default_rng(0))
    ridge = 90 * one.embedding.regularization.item()
    assert min(abs(np.log(np.array(RIDGES) / ridge))) < 1e-6
    for k in range(5):
        kept = number != k
        (B,) = softmax_regression(Z[kept], Y[kept], np.ones((1, kept.sum())), ridge, np.zeros((1, 4, 3)), 1e-14)
        np.testing.assert_allclose(one.left_out.numpy()[~kept], Z[~kept] @ B, atol=0.03)


def test_a_weight_is_a_number_of_rows(table):
    weights = 1.0 + (torch.arange(90) % 3).double()
    twice = torch.repeat_interleave(everything(table), weights.long())
    weighted = dataclasses.replace(table, weights=weights)
    answers = found(weighted).predictor
    again = answers.refitted(table.subset(twice))
    torch.testing.assert_close(again.coefficients, answers.coefficients, rtol=1e-3, atol=1e-4)


def test_soft_labels_are_labels(table):
    soft = dataclasses.replace(table, y=table.Y(everything(table)))
    torch.testing.assert_close(found(soft).predictor.coefficients, found(table).predictor.coefficients)


def test_more_rows_are_a_step_towards_the_minimum_of_all(table):
    first, rest = table.subset(torch.arange(60)), table.subset(torch.arange(60, 90))
    before = found(first).predictor
    after = before.updated(rest.x, rest.Y(torch.arange(30)), None)
    best = before.refitted(table)
    assert after.logits.num_data == 90
    losses = [loss(table, answers) for answers in (before, after, best)]
    assert losses[0] > losses[1] > losses[2] - 1e-9


def test_the_column_that_says_nothing_counts_least(table):
    relevances = found(table).predictor.relevances(table.groups)
    assert int(relevances.argmin()) == 2
    assert relevances.shape == (3,)
