"""How many rows a learner can take in its time, and how much memory a fit needs."""

from __future__ import annotations

import os
import platform

import numpy as np
import pytest

from kernel_embed.lab import runner
from kernel_embed.lab.runner import RESET, affordable_rows, peak_growth, reset_peak
from kernel_embed.splits import cross_validation_folds, proportional_sample


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
