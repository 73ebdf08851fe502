"""Studies run and resume; averaged classifiers are compared with point estimates on the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_embed.lab.compare.tasks import calibration_error
from kernel_embed.lab.studies import EXPERIMENTS, Settings, posteriors, reproduce
from kernel_embed.results import Results


@pytest.mark.parametrize(
    ("study", "words"),
    [
        (EXPERIMENTS["coverage"].variant(sizes=(20,)), "coverage of 80 %"),
        (EXPERIMENTS["posterior-ranks"].variant(warmup_steps=4), "scaled Matérn, kernel.outputscale 0"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_studies_run_and_resume(study, words, tmp_path):
    settings = Settings(out=tmp_path, repetitions=2)
    text = reproduce(study, settings)
    assert words in text
    stamp = (tmp_path / "results.json").stat().st_mtime_ns
    assert reproduce(study, settings) == text
    assert (tmp_path / "results.json").stat().st_mtime_ns == stamp, "nothing is computed twice"


def test_averages_are_compared_with_the_point_estimate_on_the_same_rows():
    study = EXPERIMENTS["averaged"].variant(num_rows=75)
    results = Results(None, study.key)
    study.run(results, Settings(quick=True))
    point, average = results.records
    assert len(point["confidence"].split()) == len(average["confidence"].split()) == 15
    assert point["nll"] != average["nll"]
    # Both are decent probabilities of three classes: log 3 is the NLL of equal ones.
    assert max(point["nll"], average["nll"]) < np.log(3)
    row = next(line for line in posteriors.summarize_averages(results.records).splitlines() if "averaged" in line)
    assert f"{average['nll'] - point['nll']:+.4f}" in row
    confidence, correct = (np.array(average[field].split(), float) for field in ("confidence", "correct"))
    assert f"{calibration_error(confidence, correct == 1):.4f}" in row


def test_rows_of_weight_two_and_repeated_rows_are_the_same_problem():
    """The quick study: equal NLL for weight 2 and doubled rows, close to it for some repeats and for groups."""
    study = EXPERIMENTS["repeats"]
    results = Results(None, study.key)
    study.run(results, Settings(quick=True))
    nll = {record["change"]: record["nll"] for record in results.records}
    assert nll["weight 2"] == pytest.approx(nll["as they are"], abs=1e-8)
    assert nll["doubled"] == pytest.approx(nll["as they are"], abs=1e-8)
    assert max(nll.values()) < 1.25 * nll["as they are"]


def test_intervals_and_importances_in_a_quick_run():
    text = reproduce(EXPERIMENTS["intervals"], Settings(quick=True))
    crossed = next(line for line in text.splitlines() if line.startswith("80% intervals"))
    assert crossed.count("0.000 ± 0.000") == 2
    lines = reproduce(EXPERIMENTS["importances"], Settings(quick=True)).splitlines()
    assert "rank correlation" in lines[0]
    assert float(lines[2].split()[3]) > 0.5
