"""Studies run and resume; averaged classifiers are compared with point estimates on the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_embed.lab.compare.tasks import calibration_error
from kernel_embed.lab.studies import EXPERIMENTS, Settings, averaging, reproduce
from kernel_embed.lab.studies.chains import FAMILIES
from kernel_embed.results import Results


@pytest.mark.parametrize(
    "study",
    [EXPERIMENTS["coverage"].variant(sizes=(20,)),
     EXPERIMENTS["posterior-coverage"].variant(num_samples=4, warmup_steps=4)],
    ids=lambda study: study.name,
)  # fmt: skip
def test_studies_run_and_resume(study, tmp_path):
    settings = Settings(out=tmp_path, repetitions=2)
    text = reproduce(study, settings)
    assert "coverage of 80 %" in text
    stamp = (tmp_path / "results.json").stat().st_mtime_ns
    assert reproduce(study, settings) == text
    assert (tmp_path / "results.json").stat().st_mtime_ns == stamp, "nothing is computed twice"


def test_chains_from_the_prior_end_without_an_error():
    study = EXPERIMENTS["prior-chains"].variant(num_samples=2, warmup_steps=2)
    results = Results(None, study.key)
    assert "Matérn ½" in reproduce(study, Settings(repetitions=1), results)
    assert len(results.records) == len(FAMILIES) == 5
    assert all(record.get("sound") for record in results.records), results.records


@pytest.fixture(scope="module")
def averaged():
    study = EXPERIMENTS["averaged"].variant(num_rows=75)
    results = Results(None, study.key)
    study.run(results, Settings(quick=True))
    return results.records


def test_point_and_average_predict_the_same_rows(averaged):
    point, average = averaged
    assert len(point["calibrated confidence"].split()) == len(average["calibrated confidence"].split()) == 15
    assert point["calibrated nll"] != average["calibrated nll"]
    # Both are decent probabilities of three classes: log 3 is the NLL of equal ones.
    assert max(point["calibrated nll"], average["calibrated nll"]) < np.log(3)


def test_differences_of_averages_are_those_of_the_records(averaged):
    row = next(line for line in averaging.differences(averaged, 50).splitlines() if "calibrated" in line)
    gap = averaged[1]["calibrated nll"] - averaged[0]["calibrated nll"]
    assert f"{gap:+.4f}" in row
    errors = [calibration_error(*averaging._predictions(record, "calibrated")) for record in averaged]
    assert f"{errors[1] - errors[0]:+.4f} ±" in row
    assert "evidence: averaged, eq. (6)" in averaging.summary(averaged)
