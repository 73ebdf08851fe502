"""Ratios are taken in one run; absent peers are named and skipped, broken ones named, and nothing is lost."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kernel_embed.cli import main
from kernel_embed.lab import benchmarks
from kernel_embed.lab.benchmarks import (
    KEY,
    OURS,
    PARTS,
    Measurement,
    Settings,
    inference,
    measure,
    medians,
    objectives,
    ratio,
    run,
    summary,
    tables,
)  # fmt: skip
from kernel_embed.results import Results


def failing(error):
    def prepare():
        raise error

    return prepare


def instant():
    return lambda: {"nll": 0.5}


@pytest.fixture
def run_only(monkeypatch):
    """Run these measurements alone, into these results."""

    def run_cases(results, *cases, **settings):
        monkeypatch.setitem(PARTS, "objective", lambda settings: iter(cases))
        return run(results, parts=["objective"], progress=False, **settings)

    return run_cases


def test_absent_packages_are_skipped_and_broken_ones_named(run_only):
    results, calls = Results(None, KEY), []
    cases = [
        Measurement("p", OURS, 10, lambda: lambda: calls.append(1)),
        Measurement("p", "absent", 10, instant, package="no_such_package_anywhere"),
        Measurement("p", "broken", 10, failing(ImportError("its numpy is too old")), package="json"),
        Measurement("p", "crashing", 10, failing(TypeError("changed arguments")), package="json"),
        Measurement("p", "fine", 10, instant, package="json"),
    ]
    for _ in range(2):
        outcome = run_only(results, *cases)
        (skipped,) = outcome.skipped
        assert "no_such_package_anywhere is not installed" in skipped
        assert [line.split(" ")[0] for line in outcome.failed] == ["broken", "crashing"]
    assert [r["name"] for r in results.records] == [OURS, "fine"]
    assert len(calls) == 1, "a second run computes nothing again"
    text = summary(results.records, outcome)
    assert "its numpy is too old" in text
    assert "skipped:" in text


def test_a_failure_is_one_line_and_the_rest_is_kept(monkeypatch, tmp_path, capsys):
    def part(settings):
        """A part."""
        yield Measurement("p", OURS, 10, instant)
        yield Measurement("p", "broken", 10, failing(ImportError("old")), "json")

    monkeypatch.setitem(PARTS, "small", part)
    small = ["benchmark", "--quick", "--parts", "small", "--out", str(tmp_path)]
    assert main(small) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "old" in captured.err
    assert [r["name"] for r in json.loads((tmp_path / "results.json").read_text())] == [OURS]
    assert main([*small, "--sizes", "7"]) == 2
    assert "Leave them out" in capsys.readouterr().err


def test_a_case_that_would_take_too_long_is_skipped(run_only):
    results = Results(None, KEY)
    results.add({"part": "p", "name": "slow", "n": 10, "seconds": 100.0})
    outcome = run_only(results, Measurement("p", "slow", 20, failing(AssertionError())), limit=300.0)
    assert "would take about 985 s" in outcome.skipped[0]  # 100 s · 2^3.3


@pytest.mark.parametrize("options", ["--sizes -3", "--sizes 500 0", "--limit nan", "--limit 0", "--repeats 0"])
def test_sizes_and_limits_below_the_least_are_refused_at_once(options, tmp_path, capsys, monkeypatch):
    def part(settings):
        """A part."""
        pytest.fail("cases are made")

    monkeypatch.setattr(benchmarks, "PARTS", dict.fromkeys(PARTS, part))
    assert main(["benchmark", *options.split(), "--out", str(tmp_path)]) == 2
    assert options.split()[0].removeprefix("--") in capsys.readouterr().err


def test_ratio_is_against_the_row_of_the_same_size():
    rows = [(OURS, 10, 1.0), (OURS, 20, 4.0), ("other", 20, 12.0), ("other", 40, 1.0)]
    records = [{"part": "p", "name": name, "n": n, "against": OURS, "seconds": s} for name, n, s in rows]
    np.testing.assert_equal([ratio(r, records) for r in records], [1.0, 1.0, 3.0, np.nan])


def test_the_least_time_of_several_counts_and_figures_are_recorded():
    record = measure(Measurement("p", OURS, 1, instant, repeats=3))
    assert record["nll"] == 0.5
    assert 0.0 <= record["seconds"] < 1.0


def test_the_test_points_of_the_classifiers_do_not_depend_on_the_size():
    x, y, x_test, _ = tables.problem(200)
    assert (x.shape, x_test.shape, set(y)) == ((200, 8), (tables.NUM_TEST, 8), {0, 1})
    np.testing.assert_array_equal(tables.problem(400)[2], x_test)


def test_the_command_measures_objectives(tmp_path, capsys):
    names = [objectives.FIRST, "EmbeddingEvidence", "plain autograd, first objective"]
    assert main(["benchmark", "--quick", "--parts", "objective", "--out", str(tmp_path), "--names", *names]) == 0
    assert "over cholesky" in capsys.readouterr().out
    figures = json.loads((tmp_path / "results.json").read_text())
    assert len(figures) == 2 * 2 + 1  # with one thread and two, and plain autograd
    assert all(2.5 < record["peak_squares"] < 12 for record in figures)


@pytest.mark.parametrize("part", list(PARTS))
def test_every_part_names_its_cases_once_and_is_smaller_when_quick(part):
    quick, whole = (list(PARTS[part](Settings(quick=quick))) for quick in (True, False))
    for found in (quick, whole):
        names = [(case.part, case.name, case.n) for case in found]
        assert len(set(names)) == len(names)
        assert all((case.part, case.against, case.n) in names for case in found), "every ratio has its row"
    assert sum(case.n for case in quick) <= sum(case.n for case in whole)


def test_repetitions_are_kept_apart_and_shown_as_medians(tmp_path, capsys):
    ours = ["benchmark", "--quick", "--parts", "small", "--out", str(tmp_path), "--names", "own kernel"]
    assert main([*ours, "--repeats", "3"]) == 0
    assert "runs 3" in capsys.readouterr().out
    records = json.loads((tmp_path / "results.json").read_text())
    assert [record.get("repetition") for record in records] == [None, 1, 2]
    (middle,) = medians(records)
    assert middle["seconds"] == sorted(record["seconds"] for record in records)[1]
    assert main([*ours, "--repeats", "3"]) == 0, "nothing is run twice"
    assert json.loads((tmp_path / "results.json").read_text()) == records
    assert main([*ours, "--repeats", "0"]) == 2


def test_posteriors_are_sampled_and_compared():
    results = Results(None, KEY)
    outcome = run(
        results, parts=["posterior"], settings=Settings(quick=True), names=[OURS, inference.RECIPE], progress=False
    )
    assert outcome == ([], [])
    parts = ["labels", "a sample", "labels"]
    assert [r["part"] for r in results.records] == [f"posterior of {name}" for name in parts]
    assert min(r["n_eff"] for r in results.records) >= 1.0


def test_a_saved_model_is_loaded_before_its_predictions_are_timed():
    record = measure(next(PARTS["latency"](Settings(quick=True)))._replace(repeats=2))
    assert record["load_seconds"] > 0.0 < record["seconds"]


def test_crps_of_the_true_distribution():
    """The mean of |Y − y| less half of that of |Y − Y'|, by draws of the same rows."""
    x, y, crps = tables.heteroscedastic(50)
    draws, others = np.random.default_rng(1).normal(size=(2, 20_000, 50))
    center, scale = np.sin(6 * x[0].to_numpy()), 0.1 + 0.8 * x[1].to_numpy()
    first = np.abs(center + scale * draws - y).mean(0)
    np.testing.assert_allclose(first - 0.5 * scale * np.abs(draws - others).mean(0), crps, atol=0.02)
    record = tables._measure(tables.HETEROSCEDASTIC, "boosting", 100, None)
    assert record["over_truth"] > 1.0


def test_distributions_read_any_table_and_only_the_names_asked_for(tmp_path, capsys):
    rng = np.random.default_rng(0)
    x, kind = rng.normal(size=60), rng.choice(["a", "b"], size=60)
    lines = [f"{a},{k},{a + (k == 'b') + 0.1 * rng.normal()}" for a, k in zip(x, kind, strict=True)]
    (tmp_path / "mine.csv").write_text("\n".join(["x,kind,target", *lines]))
    ours = ["benchmark", "--parts", "distributions", "--data", str(tmp_path), "--tables", "mine"]
    names = ["ours: one kernel by the score", "Gaussian process, ARD", "MAPIE CV+, histogram boosting"]
    assert main([*ours, "--names", *names, "--out", str(tmp_path / "out")]) == 0
    records = json.loads((tmp_path / "out" / "results.json").read_text())
    found = {r["name"] for r in records}
    assert names[:2] == [name for name in names if name in found and "MAPIE" not in name]
    assert all(0.7 < r["coverage"] <= 1.0 for r in records)


def test_paired_differences_and_widths_are_those_of_the_folds():
    def record(name, crps, width):
        part = f"{tables.TABLES}: t"
        folds = {f"crps_{k}": value for k, value in enumerate(crps)}
        return {"part": part, "name": name, "crps": float(np.mean(crps)), "width": width, **folds}

    ours, other = [0.1, 0.2, 0.3, 0.2, 0.2], [0.2, 0.2, 0.3, 0.3, 0.2]
    rows = [(OURS, ours, 1.1), ("ours: one kernel by the score", [0.0] * 5, 1.0), ("far", [9.0] * 5, 1.0)]
    rows += [("near", other, 1.0), ("MAPIE CV+, random forest", [np.nan] * 5, 1.0)]
    text = tables.distribution_note([record(*row) for row in rows])
    difference = np.subtract(ours, other)
    error = np.sqrt(((difference - difference.mean()) ** 2).sum() / 4 / 5)
    assert f"ours less near, the best of the others: {difference.mean():+.4f} ± {error:.4f}" in text
    assert "width of ours over that of MAPIE CV+, random forest: 1.100" in text
