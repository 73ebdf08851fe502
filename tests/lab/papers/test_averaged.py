"""The study of averaged classifiers: it runs, resumes, and its differences are those of its records."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_embed.lab.compare.data import Table
from kernel_embed.lab.compare.evaluate import calibration_error
from kernel_embed.lab.papers.hsu2018 import averaged
from kernel_embed.results import Results

METHODS = ("evidence: point", "evidence: averaged")


@pytest.fixture(scope="module")
def records():
    iris = averaged.tables()["iris (2 attributes)"]
    results = Results(None, averaged.AveragedClassifiers.key)
    averaged.run_tables(results, {"iris": Table(iris.x[::2], iris.y[::2])}, METHODS, num_folds=1)
    return results.records


def test_point_and_average_have_the_same_rows(records):
    point, average = records
    assert len(point["calibrated confidence"].split()) == len(average["calibrated confidence"].split()) == 15
    assert point["calibrated nll"] != average["calibrated nll"]
    # Both are decent probabilities of three classes, of which log 3 is what no knowledge costs.
    assert max(point["calibrated nll"], average["calibrated nll"]) < np.log(3)


def test_differences_are_those_of_the_records(records):
    row = next(line for line in averaged.differences(records, 50).splitlines() if "calibrated" in line)
    gap = records[1]["calibrated nll"] - records[0]["calibrated nll"]
    assert f"{gap:+.4f}" in row
    errors = [calibration_error(*averaged._judged(record, "calibrated")) for record in records]
    assert f"{errors[1] - errors[0]:+.4f} ±" in row
    assert "iris, evidence: averaged, eq. (6)" in averaged.AveragedClassifiers().summary(records)
