"""One calling convention: every experiment is named, described, quick, refuses what it would ignore, and resumes."""

from __future__ import annotations

import dataclasses
import json

import pytest

from kernel_embed.cli import main
from kernel_embed.lab.papers import EXPERIMENTS, Settings, reproduce
from kernel_embed.lab.papers.flaxman2016.coverage import BandCoverage
from kernel_embed.lab.papers.flaxman2016.posterior_coverage import PosteriorCoverage
from kernel_embed.lab.papers.hsu2018.iris import IrisStarts

NAMES = [
    *("iris", "uci", "mnist-cen", "mnist-pixels", "averaged", "two-sample", "witness", "type-two", "ozone"),
    *(
        "causal-graphs",
        "test-level",
        "test-power",
        "coverage",
        "posterior-coverage",
        "posterior-ranks",
        "prior-chains",
        "voted",
        "voted-penalties",
    ),
]


def test_every_experiment_is_registered_and_described():
    assert list(EXPERIMENTS) == NAMES
    settings = {field.name for field in dataclasses.fields(Settings)}
    for experiment in EXPERIMENTS.values():
        assert experiment.options <= settings - {"out", "quick"}
        assert experiment.key
        assert experiment.duration
        assert "\n" not in experiment.shows


def test_the_help_lists_them_all(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    text = capsys.readouterr().out
    assert all(f"  {name} " in text and EXPERIMENTS[name].duration in " ".join(text.split()) for name in NAMES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("iris --folds 3", "Expected options that 'iris' understands (--out, --quick), got --folds."),
        ("coverage --jobs 2 --data .", "understands (--out, --quick, --repetitions, --seed), got --data, --jobs."),
        ("uci --data . --methods none", "Expected methods among default"),
        ("averaged --methods none", "Expected methods among evidence: point"),
        ("averaged --datasets none", "Expected data sets among iris, wine, digits, cancer, got none"),
        ("voted --data . --methods none", "Expected methods among L2-SVM"),
    ],
)
def test_what_an_experiment_does_not_understand_is_refused(arguments, words, tmp_path, capsys):
    assert main(["reproduce", *arguments.split(), "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "results.json").exists()


@pytest.mark.parametrize(
    "experiment", [BandCoverage(sizes=(20,)), PosteriorCoverage(num_samples=4, warmup_steps=4)], ids=lambda e: e.name
)
def test_studies_run_and_resume(experiment, tmp_path):
    settings = Settings(out=tmp_path, repetitions=2)
    text = reproduce(experiment, settings)
    assert "coverage of 80 %" in text
    stamp = (tmp_path / "results.json").stat().st_mtime_ns
    assert reproduce(experiment, settings) == text
    assert (tmp_path / "results.json").stat().st_mtime_ns == stamp, "nothing is computed twice"


def test_the_command_runs_a_study(tmp_path, capsys):
    assert main(["reproduce", "coverage", "--quick", "--out", str(tmp_path)]) == 0
    assert "coverage of 80 %" in capsys.readouterr().out


def test_a_variant_is_another_value(tmp_path):
    text = reproduce(IrisStarts(rate="4e", num_epochs=3), Settings(out=tmp_path))
    assert text.count(" 4e ") == 4
    records = json.loads((tmp_path / "results.json").read_text())
    assert {record["rate"] for record in records} == {"4e"}


def test_experiments_share_a_directory(tmp_path):
    reproduce(EXPERIMENTS["coverage"], Settings(out=tmp_path, repetitions=1))
    text = reproduce(IrisStarts(num_epochs=2), Settings(out=tmp_path))
    assert text.count("\n") == 5, "a header, a line and four models: the records of the other are not its own"
