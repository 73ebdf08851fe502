"""The command: tables, results files, resuming, and one clear line where something is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kernel_embed.cli import main

needs_data = pytest.mark.skipif("KERNEL_EMBED_DATA" not in os.environ, reason="KERNEL_EMBED_DATA is not set")


def test_compare_prints_a_table_and_writes_flat_records(tmp_path, capsys):
    arguments = ["compare", "--quick", "--methods", "rademacher 4e/n", "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert "rademacher 4e/n" in capsys.readouterr().out
    records = json.loads((tmp_path / "results.json").read_text())
    assert len(records) == 4, "two data sets, two folds"
    assert all(isinstance(value, str | int | float | None) for record in records for value in record.values())
    assert min(record["accuracy"] for record in records) > 0.6

    stamp = (tmp_path / "results.json").stat().st_mtime_ns
    assert main(arguments) == 0
    assert (tmp_path / "results.json").stat().st_mtime_ns == stamp, "nothing is computed twice"


def test_reproduce_iris(tmp_path, capsys):
    assert main(["reproduce", "iris", "--quick", "--out", str(tmp_path)]) == 0
    assert "overfitted" in capsys.readouterr().out
    assert (tmp_path / "figure1.png").stat().st_size > 10_000
    before, after = (
        [r["complexity"] for r in json.loads((tmp_path / "results.json").read_text()) if r["when"] == when]
        for when in ("before", "after")
    )
    assert abs(after[0] - after[1]) < abs(before[0] - before[1]), "both starts move towards one model"


@pytest.mark.data
@needs_data
def test_reproduce_uci(tmp_path, capsys):
    arguments = ["reproduce", "uci", "--quick", "--datasets", "wine", "--folds", "1", "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert "97.2 ± 3.7" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reproduce", "uci", "--data", "no-such-directory"], "does not exist"),
        (["compare", "--out", "/proc/forbidden"], "kernel-embed:"),
    ],
)
def test_errors_are_one_line(arguments, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "--methods", "median heuristic"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_results_file_of_something_else(tmp_path, capsys):
    (tmp_path / "results.json").write_text("{}")
    assert main(["compare", "--out", str(tmp_path)]) == 2
    assert "Expected a list of records" in capsys.readouterr().err


def test_module_is_the_command():
    answer = subprocess.run(
        [sys.executable, "-m", "kernel_embed", "--help"], capture_output=True, text=True, check=True
    )
    assert "compare" in answer.stdout


@pytest.mark.data
@needs_data
def test_reproduce_voted(tmp_path, capsys):
    arguments = ["reproduce", "voted", "--quick", "--datasets", "vertebral", "--folds", "3", "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert "vertebral" in capsys.readouterr().out
    records = json.loads((tmp_path / "results.json").read_text())
    assert {record["method"] for record in records} == {"L2-SVM", "L1-SVM", "VKR dimension", "VKR trace"}
    assert all(0.0 <= record["error"] <= 60.0 for record in records)
