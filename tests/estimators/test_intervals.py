"""One predictive distribution: its calibration, and intervals that agree with its quantiles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import kstest

import kernel_embed as ke
from kernel_embed.embeddings import Distribution
from kernel_embed.embeddings.conformal import Recalibration


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
    assert 60 <= split.outputs_[0].calibration.num_rows < 64
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
