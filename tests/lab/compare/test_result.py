"""The comparison from Python: what goes in, what it prints, plots and hands over."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

import kernel_embed as ke
from kernel_embed.archive import names
from kernel_embed.lab import runner
from kernel_embed.lab.compare import figures, report, tasks
from kernel_embed.lab.compare.tasks import log_losses

METHODS = ["median heuristic", "logistic"]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"u": rng.normal(size=60), "t": np.array(["a", "b"])[np.arange(60) % 2], "name": "x"})
    made["label"] = np.where(made["u"] + (made["t"] == "a") + 0.5 * rng.normal(size=60) > 0.5, "yes", "no")
    return made


@pytest.fixture(scope="module")
def compared(frame):
    return ke.compare(frame, "label", methods=METHODS, folds=3, name="people", progress=False)


def test_it_prints_within_80_columns_and_says_what_to_use(compared):
    text = str(compared)
    assert max(map(len, text.splitlines())) <= 80
    assert "people: 60 rows, 2 features, 2 classes" in text
    assert "constant: name" in text
    assert f"Use '{compared.recommendation.method}' on these data." in text
    assert repr(compared) == "<ComparisonResult people: 2 learners>"


def test_it_ranks_and_hands_over_models(compared, frame):
    ranking = compared.ranking
    assert ranking["nll"].is_monotonic_increasing
    assert compared.recommendation.method in set(ranking.loc[ranking["tied"], "learner"])
    model = compared.fitted()
    assert model.predict(frame[["u", "t"]].assign(t="new")).shape == (60,), "a new category is no error"


def test_held_out_predictions_give_the_figures(compared):
    truth, p = compared.predictions("logistic")
    nll = log_losses(p, np.unique(truth, return_inverse=True)[1]).mean()
    row = next(row for row in compared.rows if row.method == "logistic")
    assert nll == pytest.approx(row.loss.mean)  # folds of equal size
    with pytest.raises(ValueError, match="no finished folds"):
        compared.predictions("gpc")
    pytest.importorskip("matplotlib")
    assert len(compared.plot().get_yticklabels()) == 2


def test_paths_matrices_and_test_rows(frame, tmp_path):
    frame.to_csv(tmp_path / "people.csv", index=False)
    settings = {"methods": ["logistic"], "progress": False}
    by_path = ke.compare(tmp_path / "people.csv", "label", folds=2, out=tmp_path / "out", **settings)
    by_frame = ke.compare(frame, "label", folds=2, **settings)
    assert by_path.table.fingerprint == by_frame.table.fingerprint
    assert (tmp_path / "out" / "results.json").exists()
    assert "among the others" not in str(by_path)
    assert "no other" not in str(by_path), "with one learner no sentence about others"
    x, y = frame[["u"]].to_numpy(), frame["label"].to_numpy()
    tested = ke.compare(x[:40], y[:40], test=(x[40:], y[40:]), **settings)
    assert len(tested.predictions("logistic")[0]) == 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.eye(20),), "There are no labels"),
        ((pd.DataFrame({"a": range(20)}), "b"), "X has no column 'b'. Its columns are a"),
        (("file.csv", [1, 2]), "must be the name of the target column"),
        ((np.eye(20), ["a"] * 20), "only one class"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_words(arguments, words):
    with pytest.raises(ValueError, match=words):
        ke.compare(*arguments)


def test_a_model_that_load_would_refuse_is_not_promised(compared, tmp_path, monkeypatch):
    monkeypatch.setitem(names.OWN, "lab", "")
    with pytest.raises(ValueError, match=r"would refuse 'logistic'.*ReferenceClassifier"):
        compared.save(tmp_path, "logistic")
    assert not list(tmp_path.iterdir())


def test_a_finished_comparison_is_not_fitted_or_drawn_again(frame, tmp_path, monkeypatch):
    """Neither what was drawn nor what failed is tried again: a figure, or a model that cannot be saved."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(report, "SECTIONS", [figures.importance])
    monkeypatch.setitem(names.OWN, "lab", "")

    @report.section()
    def shares(result, method):
        yield str(float("<few>"))

    def run():
        result = ke.compare(frame, "label", methods=["logistic"], folds=2, out=tmp_path, progress=False)
        return result.report(tmp_path / "report.html", progress=False).read_text()

    before = run()
    assert "No shares: could not convert string to float: &#x27;&lt;few&gt;&#x27;" in before
    assert "it could not be saved" in before
    monkeypatch.setattr(report, "_drawn", lambda *_: pytest.fail("drawn again"))
    monkeypatch.setattr(runner, "fit_model", lambda *_: pytest.fail("fitted again"))
    monkeypatch.setattr(ke.lab.compare.ComparisonResult, "fitted", lambda *_: pytest.fail("fitted again"))
    assert run() == before


def test_a_target_type_is_one_task_with_results_of_its_own(tmp_path, monkeypatch):
    counts = dataclasses.replace(tasks.REGRESSION, name="counts", describe=lambda y: "counts of something")
    monkeypatch.setitem(tasks.TASKS, "counts", counts)
    x = np.random.default_rng(0).normal(size=(30, 2))
    y = np.round(np.exp(x[:, 0]))
    for task in ("regression", "counts"):
        result = ke.compare(x, y, methods=["ridge"], folds=2, task=task, out=tmp_path, progress=False)
    assert "counts of something" in str(result)
    assert {(r["task"], r["fold"]) for r in result.comparison.results.records} == {
        (task, fold) for task in ("regression", "counts") for fold in (0, 1)
    }
