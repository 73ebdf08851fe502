"""One calling convention: every experiment is named and described, and rejects what it would ignore."""

from __future__ import annotations

import dataclasses
import json
import urllib.error

import pytest

from kernel_embed.cli import experiments, main
from kernel_embed.lab.papers import Settings, reproduce

NAMES = [
    *("iris", "uci", "mnist-cen", "mnist-pixels", "two-sample", "witness", "type-two", "ozone", "voted"),
    *("averaged", "test-level", "test-power", "coverage", "posterior-ranks", "repeats", "intervals", "importances"),
]
EXPERIMENTS = experiments()
IRIS = EXPERIMENTS["iris"]


def test_every_experiment_is_registered_and_described():
    assert list(EXPERIMENTS) == NAMES
    settings = {field.name for field in dataclasses.fields(Settings)}
    for experiment in EXPERIMENTS.values():
        assert set(experiment.options.split()) <= settings - {"out", "quick"}
        assert experiment.key
        assert experiment.duration
        assert "\n" not in experiment.title


def test_the_help_lists_them_all(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    text = capsys.readouterr().out
    assert all(f"  {name} " in text and EXPERIMENTS[name].duration in " ".join(text.split()) for name in NAMES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("iris --folds 3", "'iris' does not support --folds. It supports --out, --quick."),
        ("coverage --jobs 2 --data .", "support --data, --jobs. It supports --out, --quick, --repetitions, --seed."),
        ("coverage --repetitions 0", "--repetitions"),
        ("uci --data . --methods none", "Unknown methods: none. Choose among: default"),
        ("averaged --methods none", "Unknown methods: none. Choose among: evidence: point"),
        ("averaged --datasets none", "Unknown datasets: none. Choose among: iris; wine; digits; cancer"),
        ("type-two --methods none", "No test matches --methods and --datasets. Choose among: evidence"),
        ("voted --data . --methods none", "Unknown methods: none. Choose among: L2-SVM"),
    ],
)
def test_what_an_experiment_does_not_support_is_rejected(arguments, words, tmp_path, capsys):
    assert main(["reproduce", *arguments.split(), "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "results.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("uci", "that holds banknote.csv with --data or in KERNEL_EMBED_DATA"),
        ("voted --datasets wine", "that holds wine.csv with --data or in KERNEL_EMBED_DATA"),
        ("ozone", "ozone.csv with --data"),
        ("mnist-cen", "mnist/train-images-idx3-ubyte.gz, mnist/train-labels-idx1-ubyte.gz"),
    ],
)
def test_without_a_network_the_error_names_the_files(arguments, words, tmp_path, capsys, monkeypatch):
    def fetch(*_, **__):
        raise urllib.error.URLError("no network")

    monkeypatch.delenv("KERNEL_EMBED_DATA", raising=False)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    assert main(["reproduce", *arguments.split(), "--out", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err
    assert main(["reproduce", "--list"]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    assert all(", ".join(one.files) in listed for one in EXPERIMENTS.values())


def test_a_variant_is_another_value(tmp_path):
    text = reproduce(IRIS.variant(rate="4e", num_epochs=3), Settings(out=tmp_path))
    assert text.count(" 4e ") == 4
    records = json.loads((tmp_path / "results.json").read_text())
    assert {record["rate"] for record in records} == {"4e"}
    with pytest.raises(TypeError, match="'iris' has no parameter speed"):
        IRIS.variant(speed=1)


def test_experiments_share_a_directory(tmp_path, capsys):
    assert main(["reproduce", "coverage", "--repetitions", "1", "--out", str(tmp_path)]) == 0
    assert "coverage of 80 %" in capsys.readouterr().out
    text = reproduce(IRIS.variant(num_epochs=2), Settings(out=tmp_path))
    assert text.count("\n") == 5, "a header, a line and four models: the records of the other are not its own"
