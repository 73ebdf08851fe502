"""Sample weights, class weights, repeated rows and groups of both estimators."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression

import kernel_embed as ke
from kernel_embed.estimators import conditioning, default, output
from kernel_embed.splits import distinct_rows, stratified_folds, stratified_sample


def sample(n, seed, offset=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    f = 1.5 * X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3] + offset
    return X, (rng.random(n) < 1.0 / (1.0 + np.exp(-1.5 * f))).astype(int)


def real_sample(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    return X, np.sin(5 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)


X, Y = sample(120, 1)
X_NEW, Y_NEW = sample(1000, 2)
X_REAL, Y_REAL = real_sample(60, 0)
X_REAL_NEW, Y_REAL_NEW = real_sample(500, 1)


def probabilities(X, y, new=X_NEW, class_weight=None, **rows):
    classifier = ke.MulticlassEmbeddingClassifier(class_weight=class_weight, random_state=0, progress=False)
    return classifier.fit(X, y, **rows).predict_proba(new)


def regressor(X, y, settings=(), **rows):
    model = ke.ConditionalEmbeddingRegressor(max_evaluations=15, random_state=0, progress=False, **dict(settings))
    return model.fit(X, y, **rows)


def intervals(X, y, **rows):
    model = regressor(X, y, **rows)
    return np.c_[model.predict(X_REAL_NEW[:50]), model.predict_interval(X_REAL_NEW[:50])]


def loss(p):
    return -np.log(p[np.arange(len(Y_NEW)), Y_NEW]).mean()


def crps(model):
    (distribution,) = model.distribution(X_REAL_NEW)
    return float(distribution.crps(torch.as_tensor(Y_REAL_NEW)).mean())


@pytest.fixture(scope="module")
def plain():
    return probabilities(X, Y)


@pytest.mark.parametrize(("predict", "X", "y"), [(probabilities, X, Y), (intervals, X_REAL, Y_REAL)])
def test_only_ratios_of_weights_matter_and_copies_are_weights(predict, X, y):
    n = len(X)
    plain = predict(X, y)
    np.testing.assert_allclose(predict(X, y, sample_weight=np.full(n, 2.0)), plain, atol=1e-10)
    twice = np.random.default_rng(0).permutation(np.repeat(np.arange(n), 2))
    np.testing.assert_allclose(predict(X[twice], y[twice]), plain, atol=1e-10)
    w = np.random.default_rng(0).integers(0, 4, n)  # a row of weight 0 is no row
    rows = np.repeat(np.arange(n), w)
    one, other = (predict(X, y, sample_weight=factor * w) for factor in (1.0, 0.37))
    np.testing.assert_allclose(one, other, atol=1e-10)
    np.testing.assert_allclose(predict(X[rows], y[rows]), one, atol=1e-10)
    with pytest.raises(ValueError, match="sample_weight is zero for every row"):
        predict(X, y, sample_weight=np.zeros(n))


def test_repeats_and_near_copies_hardly_change_the_loss(plain):
    """Without groups the near copies cost more than 0.1, and before, 30 % of repeats cost 0.05."""
    repeated = np.r_[np.arange(120), np.random.default_rng(3).choice(120, 36, replace=False)]
    assert loss(probabilities(X[repeated], Y[repeated])) < loss(plain) + 0.03
    near = np.repeat(X, 5, axis=0) + 1e-3 * np.random.default_rng(4).normal(size=(600, 4))
    grouped = probabilities(near, np.repeat(Y, 5), groups=np.repeat(np.arange(120), 5))
    assert loss(grouped) < loss(plain) + 0.03


def test_near_copies_in_groups_hardly_change_the_crps():
    near = np.repeat(X_REAL, 4, axis=0) + 1e-4 * np.random.default_rng(4).normal(size=(240, 3))
    y = np.repeat(Y_REAL, 4) + 1e-4 * np.random.default_rng(5).normal(size=240)
    alone, grouped = regressor(near, y), regressor(near, y, groups=np.repeat(np.arange(60), 4))
    assert crps(grouped) < crps(regressor(X_REAL, Y_REAL)) + 0.02
    assert crps(grouped) < crps(alone) - 0.01


def test_balanced_is_a_sample_weight_and_raises_the_rare_class():
    X, y = sample(200, 5, offset=-2.5)
    w = np.where(y == 1, 200 / (2 * (y == 1).sum()), 200 / (2 * (y == 0).sum()))
    balanced = probabilities(X, y, class_weight="balanced")
    np.testing.assert_allclose(probabilities(X, y, sample_weight=w), balanced, atol=1e-10)
    logistic = LogisticRegression(class_weight="balanced").fit(X, y).predict_proba(X_NEW)[:, 1].mean()
    rare = probabilities(X, y)[:, 1].mean()
    assert rare + 0.5 * (logistic - rare) < balanced[:, 1].mean()
    twice = probabilities(np.r_[X, X], np.r_[y, y], class_weight={0: 1.0, 1: w[y == 1][0] / w[y == 0][0]})
    np.testing.assert_allclose(twice, balanced, atol=1e-10)


def test_repeated_observations_of_few_inputs_are_learned_from():
    """If all rows with the same inputs were left out together, every prediction would be the mean, 0.48."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, 400)
    y = (rng.random(400) < np.where(x, 0.7, 0.2)).astype(int)
    new = np.array([[0.0], [1.0]])
    p = probabilities(x[:, None], y, new)[:, 1]
    np.testing.assert_allclose(p, [y[x == 0].mean(), y[x == 1].mean()], atol=0.05)
    np.testing.assert_allclose(probabilities(np.r_[x, x][:, None], np.r_[y, y], new)[:, 1], p, atol=1e-10)


def test_no_split_divides_a_group(monkeypatch):
    groups = np.random.default_rng(1).integers(0, 25, 120)
    parts, seen = default._parts, []

    def recorded(table, n, generator):
        of_kernels, of_partitions = parts(table, n, generator)
        seen.extend((table, part) for part in (*of_kernels, *of_partitions))
        return of_kernels, of_partitions

    monkeypatch.setattr(default, "_parts", recorded)
    probabilities(X, Y, groups=groups)
    assert len(seen) == 6
    for table, (training, validation) in seen:
        assert not set(table.places[training]) & set(table.places[validation])
    generator, labels = np.random.default_rng(0), Y
    for fold in range(4):
        number = stratified_folds(labels, 4, generator, groups)
        assert not set(groups[number == fold]) & set(groups[number != fold])
    kept = stratified_sample(labels, 40, generator, groups)
    assert set(np.flatnonzero(np.isin(groups, groups[kept]))) == set(kept)
    assert 20 < len(kept) < 60


def test_left_out_values_through_features_are_those_without_the_group(monkeypatch):
    monkeypatch.setattr(conditioning, "EXACT", 50)
    monkeypatch.setattr(conditioning, "FEWEST_POINTS", 40)
    groups = np.random.default_rng(1).integers(0, 25, 120)
    classifier = ke.MulticlassEmbeddingClassifier(random_state=0, progress=False).fit(X, Y, groups=groups)
    assert np.isfinite(classifier.conditioned_.left_out.numpy()).all()
    assert classifier.predict_set(X_NEW).mean() < 0.95


@pytest.mark.parametrize("settings", [{}, {"kernel": ke.kernels.default_kernel}], ids=["pool", "one kernel"])
def test_groups_of_any_label_are_taken_and_checked(settings):
    classifier = ke.MulticlassEmbeddingClassifier(random_state=0, progress=False, **settings)
    names = np.array([f"patient {k}" for k in np.arange(60) // 3], dtype=object)
    numbered = classifier.fit(X[:60], Y[:60], groups=np.arange(60) // 3).predict_proba(X_NEW[:5])
    np.testing.assert_allclose(
        classifier.fit(X[:60], Y[:60], groups=names).predict_proba(X_NEW[:5]), numbered, atol=0.2
    )
    with pytest.raises(ValueError, match="one label for each of the 60 rows"):
        classifier.fit(X[:60], Y[:60], groups=[1, 2])


def test_units_are_counted_by_the_largest_common_weight():
    x, Y = np.r_[np.arange(5.0), np.zeros(4) + 9.0][:, None], np.r_[np.zeros(5), 0.0, 1.0, 0.0, 1.0][:, None]
    counts = distinct_rows(x, Y, np.array([0.2] * 5 + [0.6, 0.4, 0.6, 0.4]))
    assert counts.weights.sum() == pytest.approx(10.0)
    np.testing.assert_allclose(counts.shares, [1.0] * 5 + [1 / 3, 1 / 2])
    real = distinct_rows(x, Y, np.r_[np.ones(5), 1.0, 2.0**0.5, 3.0**0.5, 5.0**0.5])
    np.testing.assert_allclose(real.shares, [1.0] * 5 + [0.5, 0.5])
    assert real.weights.sum() == pytest.approx(9.0)


def test_labels_that_follow_from_categories_are_learned():
    """Twelve categories with one label each: without its rows nothing is known of a category, but rows repeat."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 12, 300)
    labels = np.array([0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0])
    X, new = (np.array([f"kind {k}" for k in kinds], dtype=object)[:, None] for kinds in (kind, range(12)))
    p = probabilities(X, labels[kind], new)
    assert (p[np.arange(12), labels] > 0.9).all()
    np.testing.assert_allclose(probabilities(np.r_[X, X], np.r_[labels[kind], labels[kind]], new), p, atol=1e-10)


def test_repeated_doses_are_learned_from():
    rng = np.random.default_rng(2)
    dose = np.repeat(np.arange(4.0), 15)
    y = np.array([0.0, 3.0, 1.0, 5.0])[dose.astype(int)] + 0.3 * rng.normal(size=60)
    kinds = np.array([f"dose {value:.0f}" for value in dose], dtype=object)[:, None]
    means = [y[dose == value].mean() for value in range(4)]
    new = np.array([f"dose {value}" for value in range(4)], dtype=object)[:, None]
    np.testing.assert_allclose(regressor(kinds, y).predict(new), means, atol=0.4)


@pytest.mark.parametrize("kind", ["copies", "groups"])
def test_a_split_divides_neither_copies_nor_groups(kind, monkeypatch):
    held_out_rows, seen = output.held_out_rows, []

    def recorded(n, settings, places):
        seen.append((places, *held_out_rows(n, settings, places)))
        return seen[-1][1:]

    monkeypatch.setattr(output, "held_out_rows", recorded)
    split, number = {"conformal": "split"}, np.arange(120) % 60
    second = X_REAL if kind == "copies" else X_REAL + 0.01
    model = regressor(np.r_[X_REAL, second], np.r_[Y_REAL, Y_REAL], split, groups=None if kind == "copies" else number)
    (places, held_out, training) = seen[0]
    assert len(held_out) == 30
    assert not set(places[held_out]) & set(places[training])
    assert not model.outputs_[0].certified


def test_beyond_exact_sizes_groups_are_left_out_through_features():
    number = np.random.default_rng(0).integers(0, 20, 60)
    settings = {"max_rows": 40, "num_features": 20, "conformal": "leave-one-out"}
    model = regressor(X_REAL, Y_REAL, settings, groups=number)
    assert np.isfinite(model.predict_interval(X_REAL_NEW[:50])).all()
    assert crps(model) < 0.3


# --- importances ------------------------------------------------------------------------------------------------------


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


def scaled_crps(model, X, y):
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
        model, scoring = (
            ke.ConditionalEmbeddingRegressor(max_evaluations=20, random_state=0, progress=False),
            scaled_crps,
        )
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
