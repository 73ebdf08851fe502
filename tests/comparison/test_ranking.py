"""Standard errors, paired comparisons and the recommendation, by hand and by SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from kernel_embed.comparison.ranking import holm, paired, rows_of
from kernel_embed.comparison.recommendation import recommend, tally, verdict


def record(method, fold, nll, accuracy=0.8, seconds=1.0, folds=4, **more):
    return {
        "method": method, "fold": fold, "folds": folds, "nll": nll, "accuracy": accuracy, "brier": nll / 2,
        "calibration_error": 0.1, "num_train": 75, "num_available": 75, "num_test": 25, "fit_seconds": seconds,
        "processor_seconds": seconds,
        "tight_bound": None, "num_evaluations": None, "peak_megabytes": None, **more,
    }  # fmt: skip


def records(method, values, **more):
    return [record(method, fold, value, **more) for fold, value in enumerate(values)]


def no_arrays(_):
    return {}


def test_paired_differences_by_hand():
    a, b = np.array([0.4, 0.5, 0.45, 0.6]), np.array([0.3, 0.45, 0.3, 0.5])
    best, other = rows_of([*records("a", a), *records("b", b)], no_arrays)
    assert (best.method, other.method) == ("b", "a")
    difference, pvalue = paired(other, best)
    d = a - b
    assert difference.mean == pytest.approx(d.mean())
    # Nadeau and Bengio: (1/k + n_test/n_train) var
    assert difference.error == pytest.approx(math.sqrt((1 / 4 + 25 / 75) * d.var(ddof=1)))
    assert pvalue == pytest.approx(2 * stats.t.sf(difference.mean / difference.error, 3))
    assert other.nll.error == pytest.approx(stats.sem(a))


def test_folds_are_matched_where_some_are_missing():
    rows = rows_of([*records("a", [0.1, 0.2, 0.3, 0.4]), *records("b", [0.2, 0.3, 0.4, 0.5])[1:]], no_arrays)
    difference, _ = paired(*[row for name in "ba" for row in rows if row.method == name])
    assert difference.mean == pytest.approx(0.1)
    assert difference.error == pytest.approx(0.0, abs=1e-12)


def test_holm_against_its_definition():
    rng = np.random.default_rng(0)
    p = rng.uniform(0, 0.2, 7)
    order = np.argsort(p)
    expected = np.empty(7)
    for rank, i in enumerate(order):
        expected[i] = min(1.0, max((7 - r) * p[order[r]] for r in range(rank + 1)))
    np.testing.assert_allclose(holm(list(p)), expected)
    assert holm([0.01, math.nan])[0] == 0.01


def test_one_test_table_is_compared_row_by_row():
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=50)
    arrays = {}
    for name, sharp in (("a", 2.0), ("b", 1.0)):
        p = 1 / (1 + np.exp(-sharp * (2 * truth - 1) + rng.normal(size=50)))
        arrays[name] = {"probabilities": np.column_stack([1 - p, p]), "truth": truth}
    chosen = [record(name, 0, 0.0, folds=1) for name in "ab"]
    _, other = rows_of(chosen, lambda r: arrays[r["method"]])
    losses = {n: -np.log(a["probabilities"][np.arange(50), truth]) for n, a in arrays.items()}
    assert other.nll.error == pytest.approx(stats.sem(losses["b"]))
    assert other.pvalue == pytest.approx(stats.ttest_rel(losses["b"], losses["a"]).pvalue)


def test_recommendation_is_the_fastest_within_one_standard_error():
    base = np.array([0.30, 0.34, 0.28, 0.32])
    noise = np.array([0.01, -0.01, 0.005, 0.0])
    table = [
        *records("best", base, seconds=9.0),
        *records("near and fast", base + noise, seconds=1.0),
        *records("fast but blunt", base + 2 * noise, accuracy=0.5, seconds=0.1),
        *records("far", base + 0.2, seconds=0.01),
    ]
    rows = rows_of(table, no_arrays)
    advice = recommend(rows)
    assert advice.method == "near and fast"
    assert advice.best == "best"
    assert set(advice.level) == {"best", "near and fast", "fast but blunt"}
    assert "faster: 1 s" in advice.why
    far = next(row for row in rows if row.method == "far")
    assert verdict(far, rows[0]) == "worse"


@pytest.mark.parametrize("seed", range(20))
def test_recommendation_is_never_beyond_one_standard_error(seed):
    rng = np.random.default_rng(seed)
    table = []
    for name in "abcdef":
        table += records(name, rng.gamma(2.0, size=5), accuracy=rng.uniform(), seconds=rng.uniform(), folds=5)
    rows = rows_of(table, no_arrays)
    chosen = next(row for row in rows if row.method == recommend(rows).method)
    assert chosen.nll.mean <= rows[0].nll.mean + rows[0].nll.error


def test_learners_that_were_left_out_or_cut_say_so():
    left = [{"method": "slow", "fold": fold, "folds": 4, "left_out": "takes too long"} for fold in range(4)]
    cut = records("cut", [0.3, 0.3, 0.3, 0.3], num_train=20)
    short = [*records("short", [0.3, 0.3]), {"method": "short", "fold": 2, "folds": 4, "left_out": "no time"}]
    rows = {row.method: row for row in rows_of([*left, *cut, *short], no_arrays)}
    assert not rows["slow"].finished
    assert rows["slow"].note == "left out: takes too long"
    assert rows["cut"].note == "on 20 of 75 rows, to keep to the time"
    assert rows["short"].note == "2 of 3 folds (no time)"
    with pytest.raises(ValueError, match="Expected at least one learner"):
        recommend([rows["slow"]])


def test_tally_counts_tables():
    ahead = rows_of([*records("a", [0.1, 0.11, 0.1]), *records("b", [0.3, 0.31, 0.32])], no_arrays)
    level = rows_of([*records("a", [0.1, 0.3, 0.2]), *records("b", [0.3, 0.1, 0.21])], no_arrays)
    assert tally([ahead, level, ahead], "a", ["b"]) == [("b", 2, 1, 0)]
    assert tally([ahead, level], "b", ["a"]) == [("a", 0, 1, 1)]
