"""Permutation importance from held-out rows: what counts, what does not, and that scikit-learn agrees."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.inspection import permutation_importance

import kernel_embed as ke

NOISE = ("day", "kind", "blank")


def columns(n: int, seed: int):
    """Two numbers that may matter, and a date, a category and a constant that do not."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(1000, size=n), "D"),
            "signal": rng.normal(size=n),
            "kind": rng.choice(["a", "b", "c", "d"], size=n),
            "other": rng.normal(size=n),
            "town": rng.choice(["x", "y"], size=n),
            "blank": "same",
        }
    )
    return X, rng


def simulation(name: str, n: int):
    """A table, a score of which labels and targets are noisy versions, and the columns that matter."""
    X, rng = columns(n, {"one": 0, "sum": 1, "product": 3}[name])
    town = 2.0 * (X["town"] == "x").to_numpy()
    score = {
        "one": 2.0 * X["signal"].to_numpy(),
        "sum": (2.0 * X["signal"] + 0.8 * X["other"]).to_numpy() + 1.5 * town,
        "product": (1.5 * X["signal"] * X["other"] + 0.7 * X["other"]).to_numpy() + town,
    }[name]
    useful = {"one": ("signal",), "sum": ("signal", "other", "town"), "product": ("signal", "other", "town")}[name]
    return X, score + 0.4 * rng.normal(size=n), useful


def crps(model, X, y):
    (distribution,) = model.distribution(X)
    return -float(distribution.crps(torch.as_tensor(y)).mean()) / np.std(y)


@pytest.mark.parametrize("name", ["one", "sum", "product"])
@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_the_ranking_is_that_of_scikit_learn_on_new_rows(kind, name):
    """Noise within two standard errors of 0; with a fixed seed, since one noise column in twenty exceeds them."""
    X, y, useful = simulation(name, 400)
    if kind == "classifier":
        model, y, scoring = ke.MulticlassEmbeddingClassifier(random_state=0, progress=False), y > 1, "neg_log_loss"
    else:
        model, scoring = ke.ConditionalEmbeddingRegressor(max_evaluations=20, random_state=0, progress=False), crps
    model.fit(X[:200], y[:200])
    ours = model.permutation_importance()
    theirs = permutation_importance(model, X[200:], y[200:], scoring=scoring, n_repeats=2, random_state=0)
    assert ours.names == tuple(X.columns)
    mean, error = dict(zip(ours.names, ours.mean, strict=True)), ours.standard_error
    unused = [j for j, column in enumerate(X.columns) if column not in useful]
    assert (np.abs(ours.mean[unused]) <= 2 * error[unused] + 1e-12).all()
    assert mean["blank"] == 0.0
    assert list(ours.as_dict())[: len(useful)] == sorted(useful, key=lambda column: -mean[column])
    assert all(mean[column] > 3 * error[ours.names.index(column)] for column in useful)
    if len(useful) > 1:
        places = [ours.names.index(column) for column in useful]
        assert spearmanr(ours.mean[places], theirs.importances_mean[places]).statistic >= 0.9
    # The numbers themselves agree, too: two samples of 200 rows.
    np.testing.assert_allclose(ours.mean[ours.mean.argmax()], theirs.importances_mean.max(), rtol=0.5)


def test_the_array_of_scikit_learn():
    X, y, _ = simulation("one", 120)
    model = ke.ConditionalEmbeddingRegressor(max_evaluations=3, random_state=0, progress=False)
    with pytest.raises(NotFittedError):
        _ = model.feature_importances_
    model.fit(X, np.stack([y, -y], axis=1))
    array = model.feature_importances_
    assert array.shape == (6,)
    assert model.feature_importances_ is array, "computed once"
    assert set(model.inverse_lengthscales_) == {*X.columns} - {"blank"}
    chosen = SelectFromModel(model, prefit=True, threshold=0.1).get_support()
    assert X.columns[chosen].tolist() == ["signal"]
    assert "signal" in str(model.permutation_importance(num_repeats=1, max_rows=40)).splitlines()[1]
    model.fit(X[["signal"]], y)
    assert model.feature_importances_.shape == (1,)


def test_one_kernel_matrices_and_tiny_tables():
    X, y, _ = simulation("sum", 120)
    matrix = X[["signal", "other"]].to_numpy()
    one = ke.MulticlassEmbeddingClassifier(objective=ke.default_objective(), random_state=0, progress=False)
    importances = one.fit(matrix, y > 1).permutation_importance(num_repeats=2)
    assert importances.names == ("x0", "x1")
    assert importances.mean[0] > 3 * importances.standard_error[0] > 0
    for n in (1, 2, 12):
        few = ke.MulticlassEmbeddingClassifier(random_state=0, progress=False).fit(matrix[:n], np.arange(n) % 2)
        assert np.isfinite(few.feature_importances_).all()


def test_rows_are_not_predicted_by_their_copies():
    """Every row twice, and labels of pure noise: a column of row numbers would predict its copy."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.integers(2, size=60)
    model = ke.ConditionalEmbeddingRegressor(max_evaluations=5, random_state=0, progress=False)
    importances = model.fit(np.repeat(X, 2, axis=0), np.repeat(y, 2) + 1e-3 * rng.normal(size=120))
    importances = importances.permutation_importance()
    assert (importances.mean < 3 * importances.standard_error).all()
