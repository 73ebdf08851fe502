"""The regressor: scikit-learn's checks, what it predicts, how it covers, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernel_embed as ke
from kernel_embed.embeddings import Distribution
from kernel_embed.estimators.mixture import shifted, stacking_weights


def quick(**options) -> ke.ConditionalEmbeddingRegressor:
    return ke.ConditionalEmbeddingRegressor(max_evaluations=8, random_state=0, progress=False, **options)


@parametrize_with_checks([ke.ConditionalEmbeddingRegressor(max_evaluations=2, random_state=0)])
def test_it_is_an_estimator_of_scikit_learn(estimator, check):
    check(estimator)


def waves(n: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    return X, np.sin(6 * X[:, 0]) + (0.05 + 0.5 * X[:, 1]) * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    X, y = waves(200)
    return quick().fit(X, y)


def test_answers_have_their_shapes_and_agree(fitted):
    X, y = waves(150, seed=1)
    q = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    quantiles = fitted.predict_quantile(X, q)
    assert quantiles.shape == (150, 5)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    cdf = fitted.predict_cdf(X, [0.0, 0.5])
    assert ((cdf[:, 0] <= cdf[:, 1]) & (cdf >= 0).all(1) & (cdf <= 1).all(1)).all()
    np.testing.assert_array_equal(fitted.predict_interval(X, 0.9), quantiles[:, [0, 4]])
    draws = fitted.sample(X[:3], 4000)
    assert draws.shape == (3, 4000)
    np.testing.assert_allclose(draws.mean(1), fitted.predict(X[:3]), atol=0.06)
    np.testing.assert_array_equal(draws, fitted.sample(X[:3], 4000))
    assert fitted.score(X, y) > 0.75
    interval = fitted.predict_interval(X, 0.9)
    # 150 new rows: three standard errors
    assert abs(((y >= interval[:, 0]) & (y <= interval[:, 1])).mean() - 0.9) < 3 * np.sqrt(0.09 / 150)
    wide, narrow = np.diff(interval)[X[:, 1] > 0.7].mean(), np.diff(interval)[X[:, 1] < 0.3].mean()
    assert wide > 1.5 * narrow


def test_several_outputs_have_a_distribution_each(fitted):
    X, y = waves(60)
    both = quick().fit(X, np.stack([y, -2.0 * y], axis=1))
    assert both.predict(X).shape == (60, 2)
    assert both.predict_interval(X[:5]).shape == (5, 2, 2)
    assert both.sample(X[:5], 3).shape == (5, 3, 2)
    np.testing.assert_allclose(both.predict(X)[:, 1], -2.0 * both.predict(X)[:, 0], atol=0.5)


def test_scale_and_place_of_the_target_do_not_matter(fitted):
    X, y = waves(200)
    huge = quick().fit(X, 1e9 * y + 3e9)
    np.testing.assert_allclose(huge.predict(X[:20]), 1e9 * fitted.predict(X[:20]) + 3e9, rtol=1e-4, atol=1e7)


def test_split_conformal_holds_rows_out_and_says_so(fitted):
    X, y = waves(200)
    split = quick(conformal="split").fit(X, y)
    calibration = split.outputs_[0].calibration
    assert calibration.num_rows == 50
    assert "P(Y ∈ C(X)) ≥ coverage" in split.outputs_[0].guarantee
    assert "50 rows held out" in split.outputs_[0].guarantee
    assert "no theorem" in fitted.outputs_[0].guarantee
    assert len(split.outputs_[0].table.y) == 150


def test_rows_that_calibrate_are_used_for_nothing_else():
    """Whatever their columns and targets hold, the mixture stays; the theorem of split conformal prediction asks it."""
    X, y = waves(80)
    split = quick(conformal="split").fit(X, y)
    kept = np.isin(np.arange(80), split.outputs_[0].numbers.numpy())
    assert kept.sum() == 60
    other, targets = X.copy(), y.copy()
    other[~kept] = np.nan  # the columns would get marks of missing cells
    targets[~kept] = 1e3
    again = quick(conformal="split").fit(other, targets)
    np.testing.assert_array_equal(*(m.outputs_[0].mixture.at(m._points(X[kept])).F.numpy() for m in (again, split)))


def test_many_rows_go_through_features():
    X, y = waves(700)
    large = quick(subset_size=150, max_rows=150, num_features=40).fit(X, y)
    new, outcomes = waves(300, seed=2)
    assert large.score(new, outcomes) > 0.75
    assert "split conformal" in large.outputs_[0].guarantee
    interval = large.predict_interval(new, 0.9)
    # 300 rows, and a quantile of 175 held-out scores: both are counted in the standard error
    error = np.sqrt(0.09 / 300 + 0.09 / 175)
    assert abs(((outcomes >= interval[:, 0]) & (outcomes <= interval[:, 1])).mean() - 0.9) < 3 * error


def test_constant_targets_counts_and_one_row():
    X, _ = waves(40)
    constant = quick().fit(X, np.full(40, 7.0))
    np.testing.assert_allclose(constant.predict(X[:3]), 7.0)
    np.testing.assert_allclose(constant.predict_interval(X[:3]), 7.0)
    counts = np.random.default_rng(0).poisson(np.exp(2 * X[:, 0]))
    predicted = quick().fit(X, counts).predict_quantile(X, [0.1, 0.5, 0.9])
    assert np.isin(predicted, counts).all()
    alone = quick().fit(X[:1], [2.0])
    assert alone.predict(X[:1]).tolist() == [2.0]
    assert np.isinf(alone.predict_interval(X[:1])).all()


def test_ties_stay_ties_at_a_scale_of_1e9():
    X, y = waves(60)
    new, large = waves(10, seed=3)[0], 1e9 * np.round(2 * y)
    quantiles = quick().fit(X, large).predict_quantile(new, [0.05, 0.5, 0.95])
    assert np.isin(quantiles, large).all()
    assert len(np.unique(quantiles)) > 2


LINE, WORDS = np.linspace(0, 1, 20), np.array(["a", "b"] * 10)
BAD_TARGETS = [
    (r"got 1 rows without .*index 3: .*contains NaN.*Leave those rows out", np.where(np.arange(20) == 3, np.nan, LINE)),
    (r"got 1 rows without .*index 3: .*contains inf.*Leave those rows out", np.where(np.arange(20) == 3, np.inf, LINE)),
    (r"1 missing values\. Leave those rows out", [None, *LINE[1:]]),
    ("Choose a unit", np.datetime64("2020-01-01") + np.arange(20)),
    ("Expected real targets, got complex128", np.arange(20) + 1j),
    ("got text such as 'b'", np.array([1.0, "b"] * 10, dtype=object)),
    ("got text such as '1.5'. Give y.astype.float..", np.array(["1.5", "2"] * 10)),
    ("Use MulticlassEmbeddingClassifier for classes", WORDS),
    ("Use MulticlassEmbeddingClassifier for classes", WORDS.astype(object)),
    ("got a sparse matrix", csr_matrix(LINE)),
    (r"The squares of targets up to 1e\+160", LINE * 1e160),
]


@pytest.mark.parametrize(("message", "y"), BAD_TARGETS)
def test_targets_that_are_no_numbers_are_refused(message, y):
    with pytest.raises((ValueError, TypeError), match=message):
        quick().fit(waves(20)[0], y)


BAD_QUESTIONS = [
    *(("Expected coverage between 0 and 1", lambda m, X, c=c: m.predict_interval(X, c)) for c in (0.0, 1.0)),
    *(
        ("Expected quantile levels between 0 and 1", lambda m, X, q=q: m.predict_quantile(X, q))
        for q in (0.0, 1.0, [0.5, 2.0], [])
    ),
    ("Expected q as numbers, got str", lambda m, X: m.predict_quantile(X, "half")),
    ("as numbers, got str", lambda m, X: m.predict_cdf(X, "0.5")),
    ("Expected thresholds", lambda m, X: m.predict_cdf(X, np.nan)),
    ("Expected k of at least 1", lambda m, X: m.sample(X, 0)),
    ("Expected conformal 'auto'", lambda m, X: quick(conformal="full").fit(X, LINE)),
]


@pytest.mark.parametrize(("message", "ask"), BAD_QUESTIONS)
def test_bad_questions_and_settings_are_refused(fitted, message, ask):
    with pytest.raises((ValueError, TypeError), match=message):
        ask(fitted, waves(20)[0])


def test_weights_of_the_mixture_are_those_of_the_quadratic_program():
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    y = torch.as_tensor(rng.normal(size=30))
    support = y.sort().values
    functions = [torch.as_tensor(np.sort(rng.uniform(size=(30, 30)), axis=1)) for _ in range(4)]
    functions[2] = 0.7 * (y[:, None] <= support).double() + 0.3 * functions[2]
    laws = [Distribution(support, F) for F in functions]
    gaps = np.diff(support)
    indicator = (y[:, None] <= support).double()

    def crps(p):
        F = sum(w * f for w, f in zip(p, functions, strict=True))
        return float((((F - indicator) ** 2)[:, :-1].numpy() * gaps).sum(1).mean())

    simplex = {"type": "eq", "fun": lambda p: p.sum() - 1}
    best = minimize(crps, np.full(4, 0.25), bounds=[(0, 1)] * 4, constraints=simplex, tol=1e-12).x
    ours = stacking_weights(laws, y).numpy()
    np.testing.assert_allclose(ours, 0.5 * best + 0.125, atol=1e-4)


def test_moved_mass_goes_to_the_nearest_value():
    support = torch.tensor([0.0, 1.0, 3.0]).double()
    law = Distribution(torch.tensor([-0.4, 0.8]).double(), torch.tensor([[0.25, 1.0], [0.5, 1.0]]).double())
    moved = shifted(law, torch.tensor([0.0, 2.0]).double(), support)
    np.testing.assert_allclose(moved.probabilities.numpy(), [[0.25, 0.75, 0.0], [0.0, 0.5, 0.5]])


def people(n: int = 60, seed: int = 0):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "size": rng.lognormal(size=n),
            "town": rng.choice(["a", "b", "c"], size=n),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(900, size=n), "D"),
            "garden": rng.uniform(size=n) < 0.5,
            "same": "x",
        }
    )
    y = np.log1p(X["size"].to_numpy()) + (X["town"] == "a") + 0.1 * rng.normal(size=n)
    X.loc[3, "size"] = np.nan
    X.loc[5, "town"] = None
    return X, y.to_numpy()


def test_tables_with_text_dates_booleans_and_gaps_and_saving(tmp_path):
    X, y = people()
    model = quick().fit(X, y)
    assert list(model.feature_names_in_) == list(X.columns)
    assert model.encoder_.dropped_ == {"same": "constant"}
    relevances = model.inverse_lengthscales_
    assert set(relevances) == {"size", "town", "since", "garden"}
    assert sum(relevances.values()) == pytest.approx(1.0)
    assert min(relevances["size"], relevances["town"]) > relevances["garden"]
    assert model.score(X, y) > 0.7
    assert np.isfinite(model.predict(X.assign(town="new", size=np.nan))).all()
    again = ke.load(ke.save(model, tmp_path / "model.ke"))
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"size": "length"}))


@pytest.mark.parametrize("max_rows", [2000, 60])
def test_influential_rows_carry_the_mean(max_rows):
    X, y = waves(120)
    model = quick(max_rows=max_rows, subset_size=60, conformal="leave-one-out").fit(X, y)
    (found,) = model.influential_rows(X[:1], 120)
    assert sum(row.weight for row in found) == pytest.approx(1.0)
    assert all(row.target == pytest.approx(y[row.number]) for row in found)
    # experts that move residuals add their mean, and steps of a distribution function are put in order
    assert sum(row.weight * row.target for row in found) == pytest.approx(model.predict(X[:1])[0], abs=0.1)
