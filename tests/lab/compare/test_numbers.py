"""Comparisons of numeric targets: what a target is, how distributions are scored, the table and the report."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.metrics import mean_pinball_loss

import kernel_embed as ke
from kernel_embed.embeddings import Distribution
from kernel_embed.lab.compare.predictions import group_column, pit
from kernel_embed.lab.compare.regressors import Normal, ReferenceRegressor
from kernel_embed.lab.compare.tables import table_of
from kernel_embed.lab.compare.tasks import LEVELS, REGRESSION, pinball
from kernel_embed.tabular import NumberEncoder, register_column_type
from kernel_embed.tabular.column_encoders import COLUMN_TYPES


@pytest.fixture(scope="module")
def houses():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"area": rng.lognormal(size=80), "town": rng.choice(["a", "b"], size=80)})
    frame["price"] = np.log1p(frame["area"]) + (frame["town"] == "a") + 0.2 * rng.normal(size=80)
    frame.loc[3, "area"] = np.nan
    return frame


@pytest.fixture(scope="module")
def compared(houses):
    methods = ["default", "evidence", "ridge"]
    return ke.compare(houses, "price", methods=methods, folds=2, name="houses", progress=False)


def test_the_table_says_what_to_use(compared):
    text = str(compared)
    assert max(map(len, text.splitlines())) <= 80
    assert "houses: 80 rows, 2 features, target from" in text
    assert "CRPS" in text
    assert "NLL" not in text
    ranking = compared.ranking
    assert ranking["crps"].is_monotonic_increasing
    assert {"rmse", "pinball", "coverage", "width", "crps_error"} <= set(ranking.columns)
    assert ranking["coverage"].between(0.7, 1.0).all()
    truth, quantiles = compared.predictions("ridge")
    assert quantiles.shape == (80, 100)
    assert sorted(truth) == sorted(compared.table.y)


@pytest.mark.parametrize("name", list(REGRESSION.learners()))
def test_the_snippet_of_the_report_predicts_intervals(name, houses):
    learner = REGRESSION.learners()[name]
    if not learner.is_installed:
        pytest.skip(f"{learner.package} is not installed")
    table = table_of(houses.drop(columns="price"), houses["price"])
    head, _, last = learner.code().rpartition("\n")
    names = {"X": table.x[:60], "y": table.y[:60], "X_new": table.x[60:]}
    exec(head, names)
    low, high = eval(last, names).T
    assert (low < high).all()
    assert low.shape == (20,)


def test_the_pinball_loss_is_that_of_scikit_learn():
    y, quantiles = np.random.default_rng(0).normal(size=(2, 20))
    losses = pinball(quantiles[:, None], np.array([0.1, 0.5, 0.9]), y).mean(axis=0)
    expected = [mean_pinball_loss(y, quantiles, alpha=level) for level in (0.1, 0.5, 0.9)]
    np.testing.assert_allclose(losses, expected)


def test_the_report_shows_fans_groups_and_rows(compared, tmp_path):
    pytest.importorskip("matplotlib")
    page = compared.report(tmp_path / "report.html", progress=False).read_text()
    for words in (
        "What was predicted, and what happened", "Are the distributions calibrated?", "cover every kind of row?",
        "Which rows one prediction rests on", "What the target depends on", "Would more rows help?",
    ):  # fmt: skip
        assert words in page
    assert "confus" not in page


def test_groups_are_named_in_order_and_count_every_row():
    labels, member = group_column(pd.Series([10.0, 2.0, 2.0, 33.5, 10.0, 2.0]))
    assert labels == ["2", "10", "33.5", "others"]
    np.testing.assert_array_equal(member, [1, 0, 0, 2, 1, 0])

    values = pd.Series(1000.0 * np.arange(1, 91))
    values[0] = np.nan
    labels, member = group_column(values)
    low, high = np.quantile(values.fillna(values.median()), [1 / 3, 2 / 3])
    assert labels == [f"up to {round(low, -1):,.0f}", "between", f"above {round(high, -1):,.0f}"]
    assert np.bincount(member).tolist() == [30, 30, 30]

    days = pd.Series(pd.date_range("2024-01-01", periods=90))
    labels, member = group_column(days)
    assert labels == ["up to 2024-01-30", "between", "above 2024-02-29"]
    assert (member == 0).sum() == (days < "2024-01-31").sum()


def test_columns_of_a_type_of_your_own_are_grouped_by_their_numbers(monkeypatch):
    class Percent(NumberEncoder):
        @classmethod
        def accepts(cls, column):
            return column.dtype == object and all(str(cell).endswith("%") for cell in column)

        @classmethod
        def values(cls, column, name):
            return np.array([float(cell[:-1]) for cell in column])

    monkeypatch.setattr("kernel_embed.tabular.column_encoders.COLUMN_TYPES", list(COLUMN_TYPES))
    register_column_type(Percent)
    labels, member = group_column(pd.Series([f"{j}%" for j in range(90)], dtype=object))
    assert labels[1] == "between"
    assert np.bincount(member).tolist() == [30, 30, 30]
    labels, member = group_column(pd.Series(["5%", "10%", "5%"], dtype=object))
    assert labels == ["5%", "10%", "others"]
    np.testing.assert_array_equal(member, [0, 1, 0])


def test_what_a_target_is():
    x = pd.DataFrame({"a": np.arange(100.0) ** 2})
    rng = np.random.default_rng(0)
    assert table_of(x, rng.normal(size=100)).task == "regression"
    assert table_of(x, np.arange(100) // 2 * 3).task == "classification"
    assert table_of(x, rng.permutation(100)).task == "regression"
    assert table_of(x, ["yes", "no"] * 50).task == "classification"
    assert table_of(x, np.arange(100) % 7, task="regression").y.dtype == np.float64
    assert table_of(x, np.arange(100) % 7).task == "classification"
    infinite = np.append(np.arange(99.0), np.inf)
    for y, words in (
        (["yes", "no"] * 50, "number in every row: 'yes'"),
        ([2.0] * 100, "is 2 in"),
        (infinite, "infinite"),
    ):
        with pytest.raises(ValueError, match=words):
            table_of(x, y, task="regression")
    with pytest.raises(ValueError, match="'classification' or 'regression'"):
        table_of(x, np.arange(100) % 7, task="ranks")


def test_crps_of_a_normal_distribution_by_integration():
    normal, y = Normal(np.array([0.3, -1.0]), np.array([2.0, 0.5])), np.array([1.5, -2.0])
    for mean, scale, outcome, value in zip(*normal, y, normal.crps(y), strict=True):
        below = quad(lambda t, m=mean, s=scale: norm.cdf(t, m, s) ** 2, -30, outcome)[0]
        above = quad(lambda t, m=mean, s=scale: norm.sf(t, m, s) ** 2, outcome, 30)[0]
        assert value == pytest.approx(below + above, rel=1e-6)


def test_scores_by_row_and_pit_by_hand():
    rng = np.random.default_rng(0)
    y = rng.normal(size=2000)
    quantiles = np.tile(norm.ppf(LEVELS), (2000, 1))
    normal = Distribution(torch.as_tensor(quantiles[0]), torch.as_tensor(LEVELS).expand(2000, -1))
    arrays = {
        "truth": y, "quantiles": quantiles, "mean": np.zeros(2000), "scale": np.array(1.0),
        "interval": np.tile(norm.ppf([0.05, 0.95]), (2000, 1)), "crps": normal.crps(torch.as_tensor(y)).numpy(),
    }  # fmt: skip
    scores = REGRESSION.score_rows(arrays)
    assert scores["coverage"].mean() == pytest.approx(0.9, abs=0.03)
    assert scores["squared_error"].mean() == pytest.approx(np.mean(y**2))
    assert scores["crps"].mean() == pytest.approx(1 / np.sqrt(np.pi), abs=0.04)  # E CRPS of N(0, 1) is 1/√π
    counts = np.histogram(pit(arrays), bins=10, range=(0, 1))[0]
    assert ((counts - 200) ** 2 / 200).sum() < 27.9  # χ² with nine degrees of freedom: one seed in a thousand


@pytest.mark.parametrize("name", ["ridge", "random forest", "boosting", "gaussian process"])
def test_references_share_one_interface(name):
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    model = ReferenceRegressor(name).fit(X, y)
    quantiles = model.predict_quantile(X, [0.05, 0.5, 0.95])
    assert (np.diff(quantiles, axis=1) >= 0).all()
    np.testing.assert_allclose(model.predict_interval(X, 0.9), quantiles[:, [0, 2]])
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.8
    assert (model.distribution(X).crps(y) >= 0).all()
