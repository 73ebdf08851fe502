"""Studies run and resume; averaged classifiers are compared with point estimates on the same rows."""

from __future__ import annotations

import json
import os

import matplotlib.pyplot
import numpy as np
import pytest
import torch

import kernel_embed as ke
from kernel_embed.cli import main
from kernel_embed.lab.compare.tasks import calibration_error
from kernel_embed.lab.papers import flaxman2016_grid as grid
from kernel_embed.lab.papers import flaxman2016_ozone as ozone
from kernel_embed.lab.studies import EXPERIMENTS, Settings, level, posteriors, rejection_study, reproduce
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


# --- rejections -------------------------------------------------------------------------------------------------------


matplotlib.use("Agg")
needs_data = pytest.mark.skipif("KERNEL_EMBED_DATA" not in os.environ, reason="KERNEL_EMBED_DATA is not set")


def simulator(repetition):
    x, y = torch.randn(2, 20, 1, generator=torch.Generator().manual_seed(repetition), dtype=torch.float64)
    return x, y


def median(x, y, seed):
    return ke.two_sample_test(x, y, "median", 19, seed)


@pytest.mark.parametrize(
    ("test", "null", "count"),
    [
        (ke.two_sample_test, lambda repetition: level.samples(repetition, 2, n=12, d=1), 200),
        (ke.independence_test, level.independent, 100),
    ],
    ids=["samples of three clusters", "pairs"],
)
def test_level_of_learned_kernels(test, null, count):
    """A rate outside 99.99 % of the binomial distribution is a fault."""
    tests = {"learned": lambda x, y, seed: test(x, y, None, 39, seed)}
    study = rejection_study(tests, {"null": null}, count)
    low, high = study.interval("null", "learned", 0.9999)
    assert low <= study.rate("null", "learned") <= high
    assert study.uniformity("null", "learned", 39) > 1e-4


def test_an_interrupted_study_goes_on(tmp_path):
    calls = []

    def counted(x, y, seed):
        calls.append(seed)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return median(x, y, seed)

    path = tmp_path / "results.json"
    with pytest.raises(KeyboardInterrupt):
        rejection_study({"median": counted}, {"null": simulator}, 6, path=path)
    assert len(json.loads(path.read_text())) == 3, "what was finished is kept"
    study = rejection_study({"median": counted}, {"null": simulator}, 6, path=path)
    assert calls == [0, 1, 2, 3, 3, 4, 5]
    whole = rejection_study({"median": median}, {"null": simulator}, 6)
    assert np.array_equal(study.pvalues("null", "median"), whole.pvalues("null", "median"))
    assert "median" in study.table()
    with pytest.raises(KeyError, match="No test 'mean'"):
        study.pvalues("null", "mean")
    with pytest.raises(ValueError, match="Expected num_repetitions"):
        rejection_study({"median": median}, {"null": simulator}, 0)


def test_differences_are_paired():
    tests = {"always": lambda x, y, seed: 0.01, "even": lambda x, y, seed: 0.01 if seed % 2 == 0 else 0.5}
    study = rejection_study(tests, {"null": simulator}, 10)
    gap, error = study.difference("null", "always", "even")
    assert gap == 0.5
    assert error == pytest.approx(np.std([0, 1] * 5, ddof=1) / np.sqrt(10))
    assert study.standard_error("null", "always") == 0.0


def test_commands(tmp_path, capsys):
    before = matplotlib.pyplot.get_fignums()
    assert main(["reproduce", "type-two", "--quick", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ratio", "ε", "0.5", "1", "1.5", "2", "3", "4", "8", "15"]
    names = [test + kind for kind in ("", grid.RANDOM) for test in grid.TESTS]
    assert all(line.startswith(name + " ") for line, name in zip(lines[2:], names, strict=False))
    assert (tmp_path / "figure2c.png").stat().st_size > 1000
    records = json.loads((tmp_path / "results.json").read_text())
    assert len(records) == 2 * len(names) * len(grid.RATIOS)
    assert matplotlib.pyplot.get_fignums() == before


@pytest.mark.data
@needs_data
def test_ozone(tmp_path, capsys):
    pytest.importorskip("causallearn")
    assert main(["reproduce", "ozone", "--quick", "--out", str(tmp_path)]) == 0
    assert "residuals, median" in capsys.readouterr().out
    assert (tmp_path / "ozone.png").stat().st_size > 1000


def test_marks_of_a_graph():
    graph = np.zeros((9, 9), dtype=int)
    graph[3, 8], graph[8, 3] = -1, 1
    graph[1, 2] = graph[2, 1] = -1
    assert ozone.edges(graph) == [("Wind", "–", "Hum"), ("Temp", "→", "Ozone")]


@pytest.mark.parametrize("kind", [*level.MODELS, *level.HELD_OUT])
def test_models_of_the_level_study(kind):
    x, y, z = level.conditional(kind, 0, 50)
    assert x.shape == y.shape == (50, 1)
    assert z.shape[0] == 50
    assert torch.equal(x, level.conditional(kind, 0, 50)[0])
