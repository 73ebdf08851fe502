"""The doors that people come through first: estimators, the comparison, files, pictures and the command."""

from __future__ import annotations

import contextlib
import io
import pathlib
import tempfile

import numpy as np
import torch

import kernel_embed as ke
from kernel_embed import plots
from kernel_embed.cli import main

from .entries import Probabilities, array, conditional, entry
from .inputs import SEEDS, Inputs, M, N, clean_x

SHARES = (0.5, 0.0, 1.0, -0.1, 1.5, float("nan"), None, "0.9", [0.1, 0.9], torch.tensor([0.2, 0.8]))


@entry
def leave_one_out_score(i: Inputs) -> object:
    return ke.LeaveOneOutScore()(conditional(i), i.x(), i.targets())


@entry
def distribution(i: Inputs) -> object:
    conditioned = conditional(i).condition(i.x(), torch.linspace(-1, 1, N, dtype=torch.float64))
    law = conditioned.distribution(i.x("query", 1))
    drawn = law.sample(i.setting("k", 2), seed=i.setting("seed", 0, SEEDS))
    quantile, interval = law.quantile(i.setting("q", 0.5, SHARES)), law.interval(i.setting("coverage", 0.9, SHARES))
    return Probabilities(law.cdf(i.setting("t", 0.0))), law.mean, law.variance, quantile, interval, drawn


@entry
def regressor(i: Inputs) -> object:
    model = ke.ConditionalEmbeddingRegressor(random_state=i.setting("random_state", 0, SEEDS))
    model.fit(array(i.x()), array(i.targets()))
    query = array(i.x("query", 1))
    return (
        model.predict(query),
        model.predict_quantile(query, i.setting("q", (0.1, 0.9), SHARES)),
        model.predict_interval(query, i.setting("coverage", 0.9, SHARES)),
    )


@entry
def compare(i: Inputs) -> object:
    x, y = array(i.x()), array(i.labels())
    found = ke.compare(
        np.tile(x, (3, 1)) if isinstance(x, np.ndarray) and x.ndim == 2 else x,
        np.tile(y, 3) if isinstance(y, np.ndarray) and y.ndim == 1 else y,
        methods=i.setting("methods", ("logistic",), (("no such",), (), "logistic", None)),
        folds=i.setting("folds", 2, (0, 1, -1, 1.5, 10**6, "2")),
        seed=i.setting("seed", 0, SEEDS),
        budget=i.setting("budget", 5.0, (0.0, -1.0, float("nan"), "1")),
        progress=False,
    )
    return [row.loss for row in found.rows if row.note is None]


@entry
def save_and_load(i: Inputs) -> object:
    model = ke.MulticlassEmbedding(i.kernel(), i.setting("num_classes", M))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model"
        ke.save(model, i.setting("path", path, (None, 3, folder, "")))
        if i.broken in ("settings", "all"):
            whole = path.read_bytes()
            path.write_bytes(i.pick((b"", whole[:50], whole[:-30], b"PK" + whole[2:40], b"pickle")))
        return len(list(ke.load(path).parameters()))  # NaN that was saved is loaded


@entry
def pictures(i: Inputs) -> object:
    axes = plots.free_figure(2.0, 2.0).subplots()
    kind = i.pick(("null", "relevance", "map", "witness", "embedding"))
    i.chosen["kind"] = kind
    x = i.x()
    if kind == "null":
        plots.plot_null(x, i.setting("statistic", 0.5), ax=axes)
    elif kind == "relevance":
        plots.plot_relevance(x, ax=axes)
    elif kind == "map":
        conditioned = ke.MulticlassEmbedding(i.kernel(), M).condition(clean_x(), torch.arange(N) % M)
        plots.plot_decision_map(conditioned, ax=axes)
    elif kind == "witness":
        plots.plot_witness(ke.Witness(ke.BayesianMeanEmbedding(i.kernel()), clean_x(), x), ax=axes)
    else:
        plots.plot_embedding(ke.BayesianMeanEmbedding(i.kernel()).condition(x), ax=axes)
    return None


CELLS = ("1", "nan", "inf", "-1.7e308", "9e30", "", "?", "x" * 200, '"a,b"', "<b>", "é", "1e-320", "2020-01-01", "3,5")


@entry
def command_line(i: Inputs) -> object:
    """One line on the error stream and 2, or a table and 0, whatever stands in the file."""
    odd, other = i.pick(CELLS), i.pick(CELLS)
    label = i.pick(("yes", "1", "9e30", "", "<script>", "0.5"))
    head = i.pick(("a,b,target", "a,a,target", ",,", "a;b;target", "a,b", ""))
    i.chosen.update(odd=odd, other=other, label=label, head=head)
    rows = [
        f"{odd if t == 3 else t % 7},{other if t % 5 == 0 else t * t % 11},{label if t % 2 else 'no'}"
        for t in range(24)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "table.csv"
        path.write_text("\n".join([head, *rows, ""]), encoding="utf-8")
        arguments = ["compare", "--data", str(path), "--out", f"{folder}/out", "--folds", "2", "--no-report"]
        told = io.StringIO()
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
            code = main([*arguments, "--methods", "logistic", "median heuristic"])
    words = told.getvalue().strip()
    assert (code == 0) == (words == ""), f"Expected words with code 2 and none with 0, got {code} and {words!r}."
    assert code in (0, 2)
    assert "\n" not in words, words
    return None
