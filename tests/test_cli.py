"""The command: tables, results files, resuming, and one clear line where something is wrong."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from kernel_embed import runtime
from kernel_embed.cli import main
from kernel_embed.lab.compare import figures, predictions, report

needs_data = pytest.mark.skipif("KERNEL_EMBED_DATA" not in os.environ, reason="KERNEL_EMBED_DATA is not set")


def test_compare_prints_a_table_and_writes_flat_records(tmp_path, capsys):
    arguments = ["compare", "--quick", "--methods", "rademacher 4e/n", "--no-report", "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert "rademacher 4e/n" in capsys.readouterr().out
    records = json.loads((tmp_path / "results.json").read_text())
    assert len(records) == 4, "two data sets, two folds"
    assert all(isinstance(value, str | int | float | None) for record in records for value in record.values())
    assert min(record["accuracy"] for record in records) > 0.6

    stamp = (tmp_path / "results.json").stat().st_mtime_ns
    assert main(arguments) == 0
    assert (tmp_path / "results.json").stat().st_mtime_ns == stamp, "nothing is computed twice"


@pytest.mark.parametrize("command", ["compare", "reproduce", "benchmark"])
def test_help_has_examples_groups_and_every_name_once_in_eighty_columns(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    out = capsys.readouterr().out
    assert out.count(f"  kernel-embed {command}") >= 2, "two examples"
    assert "\nthe run:\n" in out
    listed = re.findall(r"^ [ +](\S(?:[\w(),/ -]*\S)?)  ", out.partition("\n  --debug")[2], flags=re.MULTILINE)
    assert len(listed) >= 9
    prose = [line for line in out.splitlines() if not line.startswith("  kernel-embed")]
    assert max(map(len, prose)) <= 120


def test_reproduce_iris(tmp_path, capsys):
    assert main(["reproduce", "iris", "--quick", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "overfitted" in out
    assert out.splitlines()[-1] == f"--quick runs are too short for conclusions. Pictures: {tmp_path / 'figure1.png'}."
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


@pytest.fixture
def tables(tmp_path):
    """CSV files by name, one good and the others not."""
    labels = ["yes", "no"] * 10
    texts = {
        "good": [f"{i},{i % 7},{label}" for i, label in enumerate(labels)],
        "one-class": [f"{i},{i % 7},yes" for i in range(20)],
        "all-different": [f"{i},{i % 7},{i}" for i in range(20)],
        "useless": [f"1,,{label}" for label in labels],
    }
    for name, lines in texts.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,target", *lines, ""]))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("reproduce uci --data no-such-directory", "File not found"),
        ("compare --out /proc/forbidden", "kernel-embed:"),
        ("compare --out good.csv", "good.csv"),
        ("compare --data none.csv", "File not found"),
        ("compare --data good.csv --target none", "no column 'none'"),
        ("compare --data one-class.csv", "only one class"),
        ("compare --data all-different.csv --task classification", "20 classes in 20 rows"),
        ("compare --data useless.csv", "constant: a; a column dropped, no values: b"),
        ("compare --data good.csv --drop none", "Its columns: a, b"),
        ("compare --data good.csv --drop target", "among the columns to drop"),
        ("compare --data good.csv --test none.csv", "File not found"),
        ("compare --data good.csv --test all-different.csv", "labels that the training table does not have"),
        ("compare --data . --datasets none", "Tables there: all-different, good, one-class, useless"),
        ("compare --target b", "Give --data FILE"),
        ("compare --data good.csv --folds 1", "--folds must be at least 2"),
        ("compare --data good.csv --budget 0", "--budget must be positive"),
    ],
)
def test_errors_are_one_line(arguments, words, tables, capsys, monkeypatch):
    monkeypatch.chdir(tables)
    assert main([*arguments.split(), "--methods", "median heuristic"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_compare_on_a_table_with_a_test_file_and_a_traceback_with_debug(tables, capsys, monkeypatch):
    monkeypatch.chdir(tables)
    with pytest.raises(FileNotFoundError):
        main(["compare", "--data", "none.csv", "--debug"])
    arguments = ["compare", "--data", "good.csv", "--test", "good.csv", "--target", "target", "--out", "out"]
    assert main([*arguments, "--methods", "median heuristic", "svc grid"]) == 0
    assert "good: 20 rows, 2 features, 2 classes" in capsys.readouterr().out
    assert "Scored on 20 rows of good" in (tables / "out" / "report.html").read_text()
    assert len(json.loads((tables / "out" / "results.json").read_text())) == 2


def test_a_bad_table_of_a_directory_does_not_stop_the_others(tables, capsys, monkeypatch):
    monkeypatch.chdir(tables)
    (tables / "notes.md").write_text("no table")
    arguments = ["compare", "--data", ".", "--out", "out", "--quick", "--no-report", "--methods", "median heuristic"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "good: 20 rows" in shown
    assert "Left out: one-class.csv: The target of one-class has only one class" in shown
    assert "Left out: useless.csv: useless has no useful column" in shown
    assert main([*arguments, "--datasets", "good", "useless"]) == 2
    assert "1 of 2 tables could not be used" in capsys.readouterr().err


def test_what_was_computed_survives_a_bad_call(tables, capsys, monkeypatch):
    monkeypatch.chdir(tables)
    good = ["compare", "--data", "good.csv", "--out", "out", "--no-report", "--methods", "median heuristic"]
    assert main(good) == 0
    before = (tables / "out" / "results.json").read_text()
    assert main(["compare", "--data", "useless.csv", "--out", "out"]) == 2
    assert (tables / "out" / "results.json").read_text() == before
    other = before.replace('"version": "0.1.0"', '"version": "9.9"')
    (tables / "out" / "results.json").write_text(other)
    assert main(good) == 2
    assert "kernel_embed 9.9" in capsys.readouterr().err
    assert (tables / "out" / "results.json").read_text() == other


def test_a_pipe_that_is_closed_early_is_no_error():
    run = [sys.executable, "-m", "kernel_embed", "reproduce", "--list"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        assert command.stdout is not None
        command.stdout.close()
        _, error = command.communicate()
    assert (command.returncode, error) == (0, b"")


def test_the_module_is_the_command_and_its_help_loads_no_lab():
    code = (
        "import runpy, sys\n"
        "sys.argv = ['kernel-embed', '--help']\n"
        "try: runpy.run_module('kernel_embed', run_name='__main__')\n"
        "except SystemExit: pass\n"
        "loaded = {tuple(name.split('.')[:3]) for name in sys.modules}\n"
        "assert not loaded & {('kernel_embed', 'lab', name) for name in ('compare', 'papers', 'benchmarks')}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "compare" in done.stdout


def test_names_with_markup_formulas_and_control_characters_do_no_harm(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(report, "SECTIONS", (predictions.confusion, figures.importance))
    monkeypatch.setattr(runtime.ProgressLog, "FIRST", 0.0)
    names = ["<script>alert(1)</script>", "$\\frac{$", "=cmd|' /C calc'!A0", "\x1b[2J\x1b]0;title\x07"]
    names += ["\u202egnp", "{method}"]
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 6)), columns=names)
    frame["empty <b>\x1b[31m"] = np.nan
    frame["target"] = np.where(frame.iloc[:, 0] > 0, "<img src=x onerror=alert(1)>", "$\\alpha {method} \x1b[1m")
    path, out = tmp_path / "\x1b[5m<i>t.csv", tmp_path / "out"
    frame.to_csv(path, index=False)
    assert main(["compare", "--data", str(path), "--methods", "default", "--folds", "2", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "empty <b>" in printed.out
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", printed.out + printed.err)
    page = (out / "report.html").read_text()
    assert not re.search(r"<(script|img src=x|i>|b>\x1b)", page)
    assert "script-src" not in page
    assert "Content-Security-Policy\" content=\"default-src 'none'" in page
    assert 'class="note">No ' not in page, "every figure is drawn"
    (picture, *_) = (out / "pictures").iterdir()
    picture.write_text('[["a", 1]]')
    with pytest.raises(ValueError, match=rf"{picture.name} is damaged: .*Delete it"):
        report.read_cache(picture)


def test_a_log_file_gets_a_line_now_and_then(capsys, monkeypatch):
    clock = iter(range(0, 10_000, 4))
    monkeypatch.setattr(runtime.time, "monotonic", lambda: next(clock))
    with runtime.progress_bar(100, "compare", log=True) as bar:
        for _ in range(100):
            bar.set_postfix_str("wine, logistic")
            bar.update()
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["compare: 3 of 100 (wine, logistic), 12 s", "compare: 6 of 100 (wine, logistic), 24 s"]
    assert 25 < len(lines) < 34, "later ones are further apart"
    with runtime.progress_bar(100, "fit") as bar:
        bar.update()
    assert capsys.readouterr().err == "", "only commands write to a log"
