"""Standard errors, paired comparisons and the recommendation, by hand and by SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from kernel_embed.lab.compare.learners import Structure, learners
from kernel_embed.lab.compare.ranking import is_tied, paired, recommend, rows_of, standing
from kernel_embed.lab.compare.tasks import calibration_error


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
    assert other.loss.error == pytest.approx(stats.sem(a))


def test_folds_are_matched_where_some_are_missing():
    rows = rows_of([*records("a", [0.1, 0.2, 0.3, 0.4]), *records("b", [0.2, 0.3, 0.4, 0.5])[1:]], no_arrays)
    difference, _ = paired(*[row for name in "ba" for row in rows if row.method == name])
    assert difference.mean == pytest.approx(0.1)
    assert difference.error == pytest.approx(0.0, abs=1e-12)


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
    assert other.loss.error == pytest.approx(stats.sem(losses["b"]))
    assert other.pvalue == pytest.approx(stats.ttest_rel(losses["b"], losses["a"]).pvalue)


BASE = np.array([0.30, 0.34, 0.28, 0.32])
NOISE = np.array([0.01, -0.01, 0.005, 0.0])


def test_the_simplest_of_the_tied_learners_is_recommended():
    table = [
        *records("catboost", BASE),
        *records("default", BASE + NOISE),
        *records("boosting", BASE + 2 * NOISE),
        *records("logistic", BASE + 0.2),
    ]
    rows = rows_of(table, no_arrays)
    advice = recommend(rows)
    assert (advice.best, advice.method) == ("catboost", "default")
    assert set(advice.tied) == {"catboost", "default", "boosting"}
    assert advice.why.startswith("Tied for the lowest negative log probability: catboost, default, boosting.")
    assert Structure.POOL.value in advice.why
    assert not is_tied(rows[-1], rows[0])


@pytest.mark.parametrize("seed", range(10))
def test_neither_time_nor_a_worse_learner_changes_the_recommendation(seed):
    rng = np.random.default_rng(seed)
    names = ("catboost", "default", "logistic", "gpc")
    losses = {name: rng.gamma(2.0, 0.1, size=5) + 0.5 for name in names}

    def advice(company=()):
        kept = {**losses, **{name: np.full(5, 9.0) + rng.uniform(size=5) for name in company}}
        table = [r for name, nll in kept.items() for r in records(name, nll, seconds=rng.uniform(), folds=5)]
        return recommend(rows_of(table, no_arrays))

    assert advice() == advice() == advice(["boosting", "cen-1", "empirical risk"])
    assert advice().method in advice().tied


def test_few_learners_and_simple_ones():
    advice = recommend(rows_of(records("gpc", BASE), no_arrays))
    assert (advice.method, advice.why) == ("gpc", ""), "one alone, without words about others"
    table = [*records("default", BASE), *records("leave-one-out", BASE + NOISE), *records("boosting", BASE + 0.2)]
    assert recommend(rows_of(table, no_arrays)).method == "leave-one-out", "one kernel is simpler than a pool"


def test_the_calibration_error_is_that_of_all_folds_together():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1.0, size=(4, 30))
    truth = (rng.uniform(size=(4, 30)) > p).astype(int)  # class 0 has probability p
    kept = [{"probabilities": np.column_stack([p[f], 1 - p[f]]), "truth": truth[f]} for f in range(4)]
    (row,) = rows_of(records("a", BASE), lambda r: kept[r["fold"]])
    expected = calibration_error(p.ravel(), truth.ravel() == 0)
    assert row.scores["calibration_error"].mean == pytest.approx(expected)


def test_learners_that_were_left_out_or_cut_say_so():
    left = [{"method": "slow", "fold": fold, "folds": 4, "left_out": "takes too long"} for fold in range(4)]
    cut = records("cut", [0.3, 0.3, 0.3, 0.3], num_train=20)
    short = [*records("short", [0.3, 0.3]), {"method": "short", "fold": 2, "folds": 4, "left_out": "no time"}]
    rows = {row.method: row for row in rows_of([*left, *cut, *short], no_arrays)}
    assert not rows["slow"].finished
    assert rows["slow"].note == "left out: takes too long"
    assert rows["cut"].note == "on 20 of 75 rows, to keep to the time"
    assert rows["short"].note == "2 of 3 folds (no time)"
    with pytest.raises(ValueError, match="No learner finished"):
        recommend([rows["slow"]])


def test_a_recommendation_says_what_the_budget_cut():
    equal = [*records("boosting", BASE), *records("logistic", BASE + 0.2)]
    advice = recommend(rows_of(equal, no_arrays))
    assert (advice.use, advice.is_fair) == ("Use", True)
    assert advice.why.endswith("and no other is tied with it.")
    reason = {"left_out": "takes far more than its share of the budget even on the fewest rows"}
    cut = [
        *records("boosting", BASE),
        *records("logistic", BASE + 0.2, num_train=127, num_available=2400),
        *({"method": "gpc", "fold": fold, "folds": 4, **reason} for fold in range(4)),
        *({"method": "ngboost", "fold": fold, "folds": 4, "left_out": "ImportError: ngboost"} for fold in range(4)),
    ]
    advice = recommend(rows_of(cut, no_arrays))
    assert (advice.method, advice.use) == ("boosting", "Within this budget, use")
    assert "tied" not in advice.why
    assert "part of the rows: logistic 127 of 2,400; gpc none. With all rows the order may be another" in advice.why


def test_the_standing_counts_tables():
    ahead = rows_of([*records("a", [0.1, 0.11, 0.1]), *records("b", [0.3, 0.31, 0.32])], no_arrays)
    level = rows_of([*records("a", [0.1, 0.3, 0.2]), *records("b", [0.3, 0.1, 0.21])], no_arrays)
    assert standing([ahead, level, ahead], "a", ["b"])[:1] == ({"b": (2, 1, 0)},)
    assert standing([ahead, level], "a", ["b"])[2:] == (2, 2, ())
    assert standing([ahead, level], "b", ["a"])[::2] == ({"a": (0, 1, 1)}, 2, (0,))
    assert standing([ahead, ahead], "b", ["a"]).ranks == {"a": 1.0, "b": 2.0}


def test_an_unknown_task_has_no_learners():
    with pytest.raises(ValueError, match="no learners for the task 'rbf'"):
        learners("rbf")
