"""A comparison with groups: folds never split one, learners that take groups get them, and bad groups are refused."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kernel_embed as ke
from kernel_embed.cli import main
from kernel_embed.lab.compare.learners import learners
from kernel_embed.lab.compare.tasks import TASKS
from kernel_embed.lab.runner import fit_model, groups_parameter

SETTINGS = {"methods": ["logistic"], "folds": 3, "progress": False}


@pytest.fixture(scope="module")
def frame():
    """Twelve patients of five visits each; the measurements of a patient are close to each other."""
    rng = np.random.default_rng(0)
    patient = rng.permutation(np.repeat(np.arange(12), 5))
    u, v = (rng.normal(size=12)[patient] + 0.1 * rng.normal(size=60) for _ in range(2))
    label = np.where(u + 0.5 * rng.normal(size=60) > 0, "yes", "no")
    return pd.DataFrame({"u": u, "v": v, "patient": [f"p{k}" for k in patient], "label": label})


@pytest.mark.parametrize("target", ["label", "v"])
def test_folds_keep_groups_together_however_they_are_given(frame, target, tmp_path):
    frame.to_csv(tmp_path / "visits.csv", index=False)
    settings = {**SETTINGS, "methods": ["logistic" if target == "label" else "ridge"]}
    X, groups = frame.drop(columns=[target, "patient"]), frame["patient"]
    results = [
        ke.compare(frame, target, groups="patient", **settings),
        ke.compare(X, frame[target], groups=groups, **settings),
        ke.compare(tmp_path / "visits.csv", target, groups="patient", **settings),
        ke.compare(tmp_path / "visits.csv", target, groups=list(groups), drop=["patient"], **settings),
    ]
    assert len({result.table.fingerprint for result in results}) == 1
    first = results[0]
    assert "patient" not in first.table.features
    for result in results:
        np.testing.assert_array_equal(result.ranking["seconds"].notna(), [True])
    numbers = first.table.groups
    held_out = []
    for fold in range(3):
        split = first.comparison.split(fold)
        test = numbers[split.x_test.index]
        assert not set(test) & set(split.groups)
        np.testing.assert_array_equal(split.groups, numbers[split.x.index])
        held_out.append(len(set(test)))
    assert held_out == [4, 4, 4]


class Remembering:
    """Takes groups and remembers them."""

    def fit(self, X, y, groups=None):
        self.groups_ = groups
        return self


def test_learners_that_take_groups_get_those_of_their_rows(frame):
    groups = np.arange(60)
    for model in (Remembering(), make_pipeline(StandardScaler(), Remembering())):
        fitted = fit_model(model, frame[["u", "v"]], frame["label"].to_numpy(), groups)
        np.testing.assert_array_equal(getattr(fitted, "steps", [("", fitted)])[-1][1].groups_, groups)
    assert groups_parameter(StandardScaler()) is None
    takes = {name for name, one in learners().items() if groups_parameter(one.for_tables())}
    assert {"default", "one kernel", "evidence", "rademacher 4e/n", "median heuristic"} <= takes
    assert "logistic" not in takes


@pytest.mark.parametrize(("target", "methods"), [("label", ["default", "one kernel"]), ("v", ["default"])])
def test_fitted_models_and_their_code_use_the_groups(frame, target, methods):
    compared = ke.compare(frame, target, groups="patient", **{**SETTINGS, "methods": methods, "folds": 2})
    plain = ke.compare(frame.drop(columns="patient"), target, **{**SETTINGS, "methods": methods, "folds": 2})
    assert compared.comparison.task is TASKS["classification" if target == "label" else "regression"]
    assert not compared.ranking["note"].any()
    X = compared.table.x
    names = {"X": X, "y": compared.table.y, "groups": compared.table.groups, "X_new": X[:3]}
    for method in methods:
        assert "groups=groups" in compared.code(method)
        assert "groups" not in plain.code(method)
        exec(compared.code(method), names)
        model = names["classifier" if target == "label" else "regressor"]
        expected = compared.fitted(method)
        predict = "predict_proba" if target == "label" else "predict"
        np.testing.assert_allclose(getattr(model, predict)(X), getattr(expected, predict)(X), atol=1e-10)
        other = plain.fitted(method)
        assert np.abs(getattr(other, predict)(X) - getattr(expected, predict)(X)).max() > 1e-6


def test_report_and_records_name_the_groups_and_others_are_not_reused(frame, tmp_path, capsys):
    frame.to_csv(tmp_path / "visits.csv", index=False)
    arguments = ["compare", "--data", str(tmp_path / "visits.csv"), "--out", str(tmp_path / "out"), "--folds", "3"]
    arguments += ["--methods", "logistic"]
    assert main([*arguments, "--groups", "patient"]) == 0
    assert "12 groups of rows by patient" in capsys.readouterr().out
    page = (tmp_path / "out" / "report.html").read_text()
    assert "12 groups of rows by patient" in page
    assert "3 folds of whole groups" in page

    def records():
        return json.loads((tmp_path / "out" / "results.json").read_text())

    assert [record["groups"] for record in records()] == [12] * 3
    assert main([*arguments, "--groups", "patient", "--no-report"]) == 0
    assert len(records()) == 3, "nothing is computed twice"
    X, y = frame[["u", "v"]], frame["label"]
    ke.compare(X, y, name="visits", out=tmp_path / "out", **SETTINGS)
    assert [record.get("groups") for record in records()] == [12] * 3 + [None] * 3
    ke.compare(X, y, groups=np.arange(60) // 5, name="visits", out=tmp_path / "out", **SETTINGS)
    assert len(records()) == 9, "other groups are another comparison"


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([1, 2, 3], r"one label for each of the 60 rows.*\(3,\)"),
        (np.zeros((60, 2)), "one label for each of the 60 rows"),
        (["a", None, "b", np.nan] * 15, "30 of 60 rows of table have no group in groups"),
        ("doctor", r"no column 'doctor' of groups\. Its columns: u, v, patient"),
        ([1, 2] * 30, "2 groups in groups, too few for 3 folds"),
    ],
)
def test_bad_groups_are_refused(frame, groups, words):
    with pytest.raises(ValueError, match=words):
        ke.compare(frame, "label", groups=groups, **SETTINGS)


def test_the_column_of_groups_cannot_be_dropped(frame):
    with pytest.raises(ValueError, match="groups 'v' are among the columns to drop"):
        ke.compare(frame, "label", groups="v", drop=["v"], **SETTINGS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--data visits.csv --groups doctor", "no column 'doctor' of groups"),
        ("--data visits.csv --groups label", "cannot be the groups as well"),
        ("--data visits.csv --groups patient --folds 13", "12 groups in patient, too few for 13 folds"),
        ("--data . --groups patient --folds 13", "too few for 13 folds"),
        ("--groups patient", "Give --data FILE"),
    ],
)
def test_bad_groups_of_the_command_are_one_line(frame, options, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame.to_csv("visits.csv", index=False)
    assert main(["compare", *options.split(), "--methods", "logistic"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
