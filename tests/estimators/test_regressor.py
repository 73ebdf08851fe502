"""The regressor: scikit-learn's checks, what it predicts, how it covers, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from scipy.stats import kstest
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernel_embed as ke
from kernel_embed.embeddings import Distribution
from kernel_embed.embeddings.conformal import Recalibration
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
    assert len(calibration.below) == 50
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


# --- calibration and intervals ----------------------------------------------------------------------------------------


def mixed_table(n: int, seed: int, noise: float = 0.1):
    """Numbers, a category, a date, missing cells, and skewed noise."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "dose": rng.normal(size=n),
            "age": rng.uniform(size=n),
            "clinic": rng.choice(["a", "b", "c", "d"], size=n),
            "visit": pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(1500, size=n), "D"),
        }
    )
    y = np.sin(2 * X["dose"]) + 1.5 * (X["clinic"] == "a") + noise * (rng.exponential(size=n) - 1)
    X.loc[rng.uniform(size=n) < 0.05, "dose"] = np.nan
    X.loc[rng.uniform(size=n) < 0.05, "clinic"] = None
    return X, y.to_numpy(copy=True)


def regressor(**options):
    return ke.ConditionalEmbeddingRegressor(max_evaluations=10, random_state=0, progress=False, **options)


@pytest.fixture(scope="module")
def simulations():
    """Six mixed tables, and the predictions of 500 new rows each."""
    models = []
    for seed in range(6):
        X, y = mixed_table(650, seed)
        models.append((regressor().fit(X[:150], y[:150]), X[150:], y[150:]))
    return models


def test_intervals_agree_with_quantiles(simulations):
    for model, X, _ in simulations[:2]:
        X = X[:60]
        levels = np.array([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])
        quantiles = model.predict_quantile(X, levels)
        widest = model.predict_interval(X, 0.9)
        assert (widest[:, :1] <= quantiles[:, 1:-1]).all()
        assert (widest[:, 1:] >= quantiles[:, 1:-1]).all()
        np.testing.assert_array_equal(model.predict_interval(X, 0.5), quantiles[:, [2, 4]])
        (distribution,) = model.distribution(X)
        np.testing.assert_allclose(distribution.quantile(torch.as_tensor(levels)), quantiles)
        np.testing.assert_allclose(distribution.mean, model.predict(X))


@pytest.mark.parametrize("conformal", ["leave-one-out", "split"])
def test_intervals_of_larger_coverage_contain_the_others(conformal):
    X, y = mixed_table(180, 0)
    model = regressor(conformal=conformal).fit(X[:120], y[:120])
    (distribution,), (output,) = model.distribution(X), model.outputs_
    median = distribution.quantile(0.5)
    inner = torch.stack([median, median], dim=1)
    for coverage in np.linspace(0.02, 0.98, 25):
        outer, tails = output.interval(distribution, coverage), distribution.interval(coverage)
        for contained in (inner, tails):
            assert bool((outer[:, 0] <= contained[:, 0]).all())
            assert bool((outer[:, 1] >= contained[:, 1]).all())
        inner = outer
    np.testing.assert_array_equal(model.predict_interval(X[:9], 0.98), inner[:9])


def test_quantiles_cover_at_their_level_and_pit_is_uniform(simulations):
    """Pooled over six simulations. With a fixed seed; for other seeds it fails for less than one in a hundred.

    Calibration on 150 rows and 500 new rows make a standard error of √(q(1 − q)(1/900 + 1/3000)) for a level q.
    """
    pit, below = [], []
    rng = np.random.default_rng(0)
    for model, X, y in simulations:
        (distribution,) = model.distribution(X)
        a, b = distribution.pit(torch.as_tensor(y)).numpy().T
        pit.append(a + rng.uniform(size=len(y)) * (b - a))
        below.append(y[:, None] <= distribution.quantile(torch.tensor([0.1, 0.5, 0.9])).numpy())
    effective = 1 / (1 / 900 + 1 / 3000)
    for q, share in zip([0.1, 0.5, 0.9], np.concatenate(below).mean(0), strict=True):
        assert abs(share - q) < 3 * np.sqrt(q * (1 - q) / effective)
    assert kstest(np.concatenate(pit), "uniform").statistic < 1.63 / np.sqrt(effective)  # the 1 % point


def test_quantiles_of_counts_are_the_smallest_values_that_reach_their_level():
    """P(Y < Q(q)) ≤ q ≤ P(Y ≤ Q(q)) on 2,000 new rows, within three standard errors, and F itself is close."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2200, 2))
    y = rng.poisson(np.exp(0.5 * X[:, 0] + 0.5)).astype(float)
    model = regressor().fit(X[:200], y[:200])
    (distribution,) = model.distribution(X[200:])
    for q in (0.1, 0.5, 0.9):
        error = 3 * np.sqrt(q * (1 - q) * (1 / 200 + 1 / 2000))
        quantile = distribution.quantile(q)
        levels = distribution.pit(quantile)
        assert bool((levels[:, 0] < q).all() & (levels[:, 1] >= q).all())
        quantile = quantile.numpy()
        assert (y[200:] < quantile).mean() <= q + error
        assert (y[200:] <= quantile).mean() >= q - error


def test_the_calibration_is_its_formula():
    generator = torch.Generator().manual_seed(0)
    a = 0.6 * torch.rand(40, generator=generator, dtype=torch.float64)
    b = a + 0.4  # wide intervals are not smoothed
    w = torch.rand(40, generator=generator, dtype=torch.float64) + 0.5
    w = w / w.mean()
    u = torch.linspace(0, 1, 101, dtype=torch.float64)
    clipped = ((u[:, None] - a) / (b - a)).clamp(0, 1)
    torch.testing.assert_close(Recalibration(a, b)(u), (u + clipped.sum(1)) / 41)
    torch.testing.assert_close(Recalibration(a, b, w)(u), (u + clipped @ w) / 41)
    # Exact zeros and ones, and one row alone
    zero = torch.zeros(5, dtype=torch.float64)
    for edge in (zero, zero + 1.0, zero[:1]):
        G = Recalibration(edge, edge)(u)
        assert bool((G.diff() > 0).all())
        assert (G[0].item(), G[-1].item()) == (0.0, pytest.approx(1.0))


def test_rows_of_one_group_do_not_calibrate_each_other():
    """Sixty patients with four nearly equal rows each, and no signal beside the patient: rows alone would predict it.

    Without groups, intervals are calibrated on rows whose patient is known, and cover new patients too rarely.
    """
    rng = np.random.default_rng(0)
    level, place = rng.normal(size=110), rng.normal(size=(110, 2))
    patient = np.repeat(np.arange(110), 4)
    X = place[patient] + 0.01 * rng.normal(size=(440, 2))
    y = level[patient] + 0.1 * rng.normal(size=440)
    train, new = patient < 60, patient >= 60
    cover, options = {}, {"by rows": {}, "by groups": {"groups": patient[train]}}
    for name, arguments in options.items():
        low, high = regressor().fit(X[train], y[train], **arguments).predict_interval(X[new], 0.8).T
        cover[name] = ((low <= y[new]) & (y[new] <= high)).mean()
    # Three standard errors of a share with 60 patients for calibration and 50 new ones
    assert abs(cover["by groups"] - 0.8) < 3 * np.sqrt(0.16 * (1 / 60 + 1 / 50))
    assert cover["by rows"] < 0.5 < cover["by groups"]
    split = regressor(conformal="split").fit(X[train], y[train], groups=patient[train])
    kept = patient[train][split.outputs_[0].numbers.numpy()]
    assert not np.isin(kept, np.setdiff1d(patient[train], kept)).any()
    assert 60 <= len(split.outputs_[0].calibration.below) < 64
    assert "no theorem for rows with weights, copies or groups" in split.outputs_[0].guarantee
    with pytest.raises(ValueError, match="groups must be one label"):
        regressor().fit(X, y, groups=[1])


@pytest.mark.parametrize("step", [0.0, 1.0])
def test_held_out_rows_guarantee_the_coverage_of_intervals(step):
    """A model that is far off, and 39 held-out rows: P(Y ∈ C(X)) ≥ 0.8, in 1,000 repetitions within 3 errors of 0.013.

    With ``step`` the targets are whole numbers. Below 19 rows an interval of coverage 0.9 is infinite.
    """
    rng = np.random.default_rng(0)
    y = rng.normal(size=(1000, 40)) * 1.5 + 0.5
    y = np.round(y) if step else y
    support = torch.linspace(-8, 8, 17 if step else 801, dtype=torch.float64)
    F = torch.distributions.Normal(0.0, 1.0).cdf(support + 0.5 * step).unsqueeze(0).double()
    model = Distribution(support, F)
    inside = []
    for row in torch.as_tensor(y):
        calibration = Recalibration.from_rows(model, row[:-1])
        low, high = calibration.interval(calibration.recalibrated(model), 0.8, guaranteed=True)[0]
        inside.append(bool(low <= row[-1] <= high))
    assert np.mean(inside) >= 0.8 - 3 * np.sqrt(0.16 / 1000)
    assert step or np.mean(inside) <= 0.85 + 3 * np.sqrt(0.16 / 1000)
    few = Recalibration.from_rows(model, torch.as_tensor(y[0, :18]))
    assert np.isinf(few.interval(few.recalibrated(model), 0.9, guaranteed=True).numpy()).all()
