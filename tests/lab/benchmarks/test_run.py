"""Ratios are taken in one run; absent peers are named and skipped, broken ones named, and nothing is lost."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from kernel_embed.cli import main
from kernel_embed.lab.benchmarks import classifiers, distributions, objectives, potentials, summary, votes
from kernel_embed.lab.benchmarks import run as benchmark
from kernel_embed.lab.benchmarks.measurement import OURS, PARTS, Measurement, Scope, exponent, measure
from kernel_embed.lab.benchmarks.workloads import WORK
from kernel_embed.results import Results
from kernel_embed.voting import ColumnGeneration


def failing(error):
    def prepare():
        raise error

    return prepare


def instant():
    return lambda: {"nll": 0.5}


@pytest.fixture
def run_only(monkeypatch):
    """Run these measurements alone, into these results."""

    def run(results, *cases, **settings):
        monkeypatch.setitem(PARTS, "objective", lambda scope: iter(cases))
        return benchmark.run(results, parts=["objective"], progress=False, **settings)

    return run


def test_absent_packages_are_skipped_and_broken_ones_named(run_only):
    results = Results(None, benchmark.KEY)
    outcome = run_only(
        results,
        Measurement("p", OURS, 10, instant),
        Measurement("p", "absent", 10, instant, package="no_such_package_anywhere"),
        Measurement("p", "broken", 10, failing(ImportError("its numpy is too old")), package="json"),
        Measurement("p", "crashing", 10, failing(TypeError("changed arguments")), package="json"),
        Measurement("p", "fine", 10, instant, package="json"),
    )
    assert [r["name"] for r in results.records] == [OURS, "fine"]
    (skipped,) = outcome.skipped
    assert "no_such_package_anywhere is not installed" in skipped
    assert [line.split(" ")[0] for line in outcome.failed] == ["broken", "crashing"]
    text = summary.summary(results.records, outcome)
    assert "its numpy is too old" in text
    assert "skipped:" in text


def test_a_package_that_fails_to_import_is_one_line_and_the_rest_is_kept(monkeypatch, tmp_path, capsys):
    (tmp_path / "MKLpy").mkdir()
    (tmp_path / "MKLpy" / "__init__.py").write_text("raise ImportError('built for another Python')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "MKLpy"]:
        monkeypatch.delitem(sys.modules, name)
    out = tmp_path / "out"
    assert main(["benchmark", "--quick", "--parts", "votes", "--out", str(out)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "built for another Python" in captured.err
    assert "the whole program" in captured.out
    assert {r["name"] for r in json.loads((out / "results.json").read_text())} == {OURS, "the whole program (HiGHS)"}


def test_a_second_run_computes_nothing_again(run_only):
    calls, results = [], Results(None, benchmark.KEY)
    for _ in range(2):
        run_only(results, Measurement("p", OURS, 10, lambda: lambda: calls.append(1)))
    assert len(calls) == 1


def test_a_case_that_would_take_too_long_is_skipped(run_only):
    results = Results(None, benchmark.KEY)
    results.add({"part": "p", "name": "slow", "n": 10, "seconds": 100.0})
    outcome = run_only(results, Measurement("p", "slow", 20, failing(AssertionError())), limit=300.0)
    assert "would take about 985 s" in outcome.skipped[0]  # 100 s · 2^3.3


def test_ratio_is_against_the_row_of_the_same_size():
    rows = [(OURS, 10, 1.0), (OURS, 20, 4.0), ("other", 20, 12.0), ("other", 40, 1.0)]
    records = [{"part": "p", "name": name, "n": n, "against": OURS, "seconds": s} for name, n, s in rows]
    np.testing.assert_equal([summary.ratio(r, records) for r in records], [1.0, 1.0, 3.0, np.nan])


def test_the_least_time_of_several_counts_and_figures_are_recorded():
    record = measure(Measurement("p", OURS, 1, instant, repeats=3))
    assert record["nll"] == 0.5
    assert 0.0 <= record["seconds"] < 1.0


def test_exponents_of_exact_powers():
    sizes = np.array([100, 200, 400, 800])
    for power in (1.0, 2.5):
        assert exponent(sizes, 1e-7 * sizes**power) == pytest.approx(power)
    assert np.isnan(exponent([10], [1.0]))


def test_both_ways_to_the_vote_reach_one_optimum():
    """The whole program and column generation, from the benchmark's own problem."""
    problem, bounds = votes.problem(40)
    penalties = votes.LAM * bounds + votes.BETA
    assert votes.whole_program(problem, penalties) == pytest.approx(
        ColumnGeneration().solve(problem, penalties, tolerance=1e-9).objective, abs=1e-7
    )


def test_the_test_points_of_the_classifiers_do_not_depend_on_the_size():
    x, y, x_test, _ = classifiers.problem(200)
    assert (x.shape, x_test.shape, set(y)) == ((200, 8), (classifiers.NUM_TEST, 8), {0, 1})
    np.testing.assert_array_equal(classifiers.problem(400)[2], x_test)


def test_the_command_measures_objectives_and_draws(tmp_path, capsys):
    assert main(["benchmark", "--quick", "--parts", "objective", "--out", str(tmp_path)]) == 0
    assert "over Cholesky" in capsys.readouterr().out
    assert (tmp_path / "benchmark.png").stat().st_size > 5_000
    figures = json.loads((tmp_path / "results.json").read_text())
    ours = [r["peak_squares"] for r in figures if "peak_squares" in r]
    assert len(ours) == 2 * len(WORK) + 1  # with one thread and two, and plain autograd
    assert all(2.5 < peak < 12 for peak in ours)


def test_few_rows_and_growth_measure_themselves():
    assert [work.counted for work in WORK.values()] == [1, 6, 6, 3, 12], "limits in Cholesky factorizations"
    record = objectives.measure_step("LeaveOneOutScore", 20, repeats=3)
    assert 0.0 < record["overhead_milliseconds"] < record["evaluation_milliseconds"]
    record = objectives.measure_single("ConditionalEvidence", 20, rounds=1)
    assert 0.0 < record["value_error"] < 1e-4
    assert 0.0 < record["gradient_error"] < 1e-3
    records = [
        {"name": name, "n": n, **objectives.measure_growth(name, n)}
        for name in ("ConditionalEvidence", "LeaveOneOutScore")
        for n in (20, 40)
    ]
    text = objectives.growth_note(records)
    assert [line.split()[3] for line in text.splitlines()[2:]] == ["3", "12"]


@pytest.mark.parametrize("part", list(PARTS))
def test_every_part_names_its_cases_once_and_is_smaller_when_quick(part):
    quick, whole = (list(PARTS[part](Scope(quick))) for quick in (True, False))
    for found in (quick, whole):
        names = [(case.part, case.name, case.n) for case in found]
        assert len(set(names)) == len(names)
        assert all((case.part, case.against, case.n) in names for case in found), "every ratio has its row"
    assert sum(case.n for case in quick) <= sum(case.n for case in whole)


def test_a_profile_says_where_the_time_goes(tmp_path, capsys):
    ours = ["benchmark", "--quick", "--parts", "profile", "--out", str(tmp_path)]
    assert main(ours) == 0
    records = json.loads((tmp_path / "results.json").read_text())
    assert len(records) == 6
    for record in records:
        parts = [value for field, value in record.items() if field.startswith("ms ") and field != "ms all"]
        assert sum(parts) == pytest.approx(record["ms all"])
        assert min(parts) >= 0.0
        assert min(record["ms factor"], record["ms kernel and its gradient"], record[f"ms {potentials.REST}"]) > 0.0
    assert "CPU milliseconds" in capsys.readouterr().out


def test_repetitions_are_kept_apart_and_shown_as_medians(tmp_path, capsys):
    ours = ["benchmark", "--quick", "--parts", "small", "--out", str(tmp_path), "--names", "ours: ConditionalEvidence"]
    assert main([*ours, "--repeats", "3"]) == 0
    assert "median of 3" in capsys.readouterr().out
    records = json.loads((tmp_path / "results.json").read_text())
    assert [record.get("repetition") for record in records] == [None, 1, 2]
    (middle,) = summary.medians(records)
    assert middle["seconds"] == sorted(record["seconds"] for record in records)[1]
    assert main([*ours, "--repeats", "3"]) == 0, "nothing is run twice"
    assert json.loads((tmp_path / "results.json").read_text()) == records
    assert main([*ours, "--repeats", "0"]) == 2


@pytest.mark.parametrize("part", ["evidence", "recipe", "chains", "million"])
def test_parts_of_one_study_measure_themselves(part, tmp_path, capsys):
    assert main(["benchmark", "--quick", "--parts", part, "--out", str(tmp_path)]) == 0
    records = json.loads((tmp_path / "results.json").read_text())
    assert {r["name"] for r in records} == {case.name for case in PARTS[part](Scope(True))}
    if part == "evidence":
        line = [r["value"] for r in records if r["part"] == potentials.LINE]
        assert line[0] == pytest.approx(line[1], rel=1e-9), "plain autograd has the same value"
    if part == "recipe":
        assert "agree within" in capsys.readouterr().out


def test_a_point_of_the_curves_is_measured_in_a_process_of_its_own():
    case = next(case for case in PARTS["sizes"](Scope(True)) if case.name == "exact")
    record = measure(case)
    assert record["peak_megabytes"] >= 0
    assert record["seconds"] > 0


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
        part = f"{distributions.TABLES}: t"
        folds = {f"crps_{k}": value for k, value in enumerate(crps)}
        return {"part": part, "name": name, "crps": float(np.mean(crps)), "width": width, **folds}

    ours, other = [0.1, 0.2, 0.3, 0.2, 0.2], [0.2, 0.2, 0.3, 0.3, 0.2]
    text = distributions.table_note(
        [
            record(OURS, ours, 1.1),
            record("ours: one kernel by the score", [0.0] * 5, 1.0),  # not another's
            record("far", [9.0] * 5, 1.0),
            record("near", other, 1.0),
            record("MAPIE CV+, random forest", [np.nan] * 5, 1.0),
        ]
    )
    difference = np.subtract(ours, other)
    error = np.sqrt(((difference - difference.mean()) ** 2).sum() / 4 / 5)
    assert f"ours less near, the best of the others: {difference.mean():+.4f} ± {error:.4f}" in text
    assert "width of ours over that of MAPIE CV+, random forest: 1.100" in text
