"""Standard errors, paired comparisons and the recommendation, by hand and by SciPy."""

from __future__ import annotations

import math
import os
import platform

import numpy as np
import pytest
from scipy import stats

from kernel_embed.lab import runner
from kernel_embed.lab.compare.learners import Structure, learners
from kernel_embed.lab.compare.ranking import is_tied, paired, recommend, rows_of, standing
from kernel_embed.lab.compare.tasks import calibration_error
from kernel_embed.lab.runner import RESET, affordable_rows, peak_growth, reset_peak
from kernel_embed.splits import cross_validation_folds, proportional_sample


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


# --- time and memory --------------------------------------------------------------------------------------------------


class Clock:
    """Time that passes only when a learner says so."""

    def __init__(self, exponent, scale, start=0.0, most=10_000):
        self.exponent, self.scale, self.start, self.most = exponent, scale, start, most
        self.now, self.sizes = 0.0, []

    def process_time(self):
        return self.now

    def fit(self, x, y):
        if len(y) > self.most:
            raise MemoryError
        self.sizes.append(len(y))
        self.now += self.start + self.scale * len(y) ** self.exponent
        return self


@pytest.fixture
def learner(monkeypatch):
    def make(*settings, **more):
        clock = Clock(*settings, **more)
        monkeypatch.setattr(runner, "time", clock)
        return clock

    return make


X, Y = np.zeros((4000, 2)), np.arange(4000) % 3


@pytest.mark.parametrize(
    ("exponent", "scale", "rows", "budget", "affordable", "trials"),
    [(2.0, 1e-9, 4000, 10.0, 4000, 1), (1.0, 1.0, 4000, 10.0, 0, 1), (1.0, 1e9, 200, 1.0, 200, 0)],
    ids=["fast: all rows after a small trial", "hopeless: none", "small table: never cut"],
)
def test_trials_and_affordable_rows(learner, exponent, scale, rows, budget, affordable, trials):
    clock = learner(exponent, scale)
    assert affordable_rows(lambda: clock, X[:rows], Y[:rows], budget) == affordable
    assert len(clock.sizes) == trials


@pytest.mark.parametrize(
    ("clock", "budget", "fewest", "most"),
    [
        # 10 s at n = 1000; 0.5 s + 1e-9 n³ is 4 s at n = 1518; trials end where memory does
        ({"exponent": 3.0, "scale": 1e-8}, 10.0, 700, 1000),
        ({"exponent": 3.0, "scale": 1e-9, "start": 0.5}, 4.0, 1000, 1518),
        ({"exponent": 1.0, "scale": 1e-3, "most": 300}, 3.0, 125, 3999),
    ],
    ids=["cubic", "cubic after a constant time", "out of memory"],
)
def test_a_learner_is_cut_near_its_budget(learner, clock, budget, fewest, most):
    made = learner(**clock)
    assert fewest <= affordable_rows(lambda: made, X, Y, budget) <= most
    assert made.now < budget, "trials take less than the fit itself"


def test_imports_in_the_first_trial_do_not_count(learner):
    clock = learner(1.0, 1e-5)

    def make():
        clock.start = 0.0 if clock.sizes else 4.0
        return clock

    assert affordable_rows(make, X, Y, 0.5) == 4000
    assert clock.sizes[:3] == [126, 126, 252]


def test_subset_keeps_every_class_and_the_shares():
    y = np.array([0] * 900 + [1] * 99 + [2])
    rows = proportional_sample(y, 100, seed=3)
    counts = np.bincount(y[rows])
    assert counts.tolist() == [90, 10, 1]
    np.testing.assert_array_equal(rows, proportional_sample(y, 100, seed=3))
    np.testing.assert_array_equal(proportional_sample(y, 5000), np.arange(1000))
    held_out = np.concatenate([test for _, test in cross_validation_folds(y, 4, 0)])
    np.testing.assert_array_equal(np.sort(held_out), np.arange(1000))


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc returns free memory")
@pytest.mark.skipif(not os.access(RESET, os.W_OK), reason="the system does not record the peak")
def test_memory_that_earlier_work_returned_is_counted_again():
    megabytes = []
    for _ in range(2):
        before = reset_peak()
        pieces = [np.ones(8_000) for _ in range(500)]  # 32 MB that the allocator keeps when they are freed
        del pieces
        megabytes.append(peak_growth(before))
    assert all(25.0 < value < 60.0 for value in megabytes)
