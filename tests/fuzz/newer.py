"""Numbers as targets, rows that come in parts, trees, samplers of other packages, and what is asked of an answer."""

from __future__ import annotations

import contextlib
import io
import pathlib
import tempfile

import numpy as np
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed import posteriors, tabular
from kernel_embed.cli import main

from .entries import Probabilities, array, conditional, entry, multiclass
from .inputs import NAN, NUMBERS, SEEDS, Inputs, M, N, clean_x
from .modules import SHARES, frame, line

WEIGHTS = (np.ones(N), np.zeros(N), -np.ones(N), np.ones(3), np.full(N, NAN), np.full(N, 1e300), "1", 2.0)


@entry
def compare_numbers(i: Inputs) -> object:
    x, y = array(i.x()), array(i.targets())
    found = ke.compare(
        np.tile(x, (3, 1)) if isinstance(x, np.ndarray) and x.ndim == 2 else x,
        np.tile(y, 3) if isinstance(y, np.ndarray) and y.ndim == 1 else y,
        methods=i.setting("methods", ("ridge",), (("logistic",), ("no such",), (), "ridge")),
        folds=i.setting("folds", 2, (0, 1, 1.5, 10**6)),
        task=i.setting("task", "regression", (None, "classification", "no", 3)),
        progress=False,
    )
    return [row.loss.mean for row in found.rows if row.note is None]


@entry
def regressor_of_tables(i: Inputs) -> object:
    model = ke.ConditionalEmbeddingRegressor(
        conformal=i.setting("conformal", "auto", ("split", "leave-one-out", "no", None)),
        max_rows=i.setting("max_rows", 2000, (5, *NUMBERS)),
        subset_size=i.setting("subset_size", 1000, (5, *NUMBERS)),
        num_features=i.setting("num_features", None, (5, 100, *NUMBERS)),
        max_evaluations=2,
        random_state=0,
    )
    y = line().numpy() if i.broken not in ("y", "all") else array(i.targets())
    model.fit(frame(i, "frame"), y, sample_weight=i.setting("sample_weight", None, WEIGHTS))
    new = frame(i, "new frame")
    return i.pick(
        (
            lambda: model.predict(new),
            lambda: Probabilities(model.predict_cdf(new, i.setting("t", 0.0))),
            lambda: model.sample(new, i.setting("k", 2)),
            lambda: [[row.weight for row in rows] for rows in model.influential_rows(new, i.setting("k", 2))],
            lambda: model.predict_interval(new, i.setting("coverage", 0.8, SHARES)),
        )
    )()


@entry
def rows_in_parts(i: Inputs) -> object:
    model = ke.MulticlassEmbeddingClassifier(
        i.pick((None, RBFKernel().double())), calibrated=i.pick((True, False)), max_evaluations=2, random_state=0
    )
    classes = i.setting("classes", np.arange(M), (None, [], [0], [0, 0, 1], np.arange(9), "012", 3, [NAN, 1.0]))
    model.partial_fit(array(i.x()), array(i.labels()), classes=classes)
    weights = i.setting("sample_weight", None, WEIGHTS)
    model.partial_fit(clean_x(1).numpy(), np.arange(N) % M, sample_weight=weights)
    query = array(i.x("query", 1))
    return Probabilities(model.predict_proba(query)), model.predict_set(query, i.setting("coverage", 0.9, SHARES))


NODES = (
    torch.tensor([1, -1, -1]), torch.tensor([1, 2, -1]), torch.tensor([-1, -1, -1]), torch.tensor([1.0, -1.0, -1.0]),
    torch.tensor([True, False, False]), torch.tensor([]), torch.tensor([1, -1]), torch.tensor([-5, -1, -1]), None,
)  # fmt: skip


@entry
def trees(i: Inputs) -> object:
    """Nodes of every kind, and points beyond all thresholds."""
    above, thresholds = torch.tensor([2, -1, -1]), torch.tensor([0.5, 0.0, 0.0])
    tree = tabular.Tree(
        i.setting("columns", torch.tensor([0, 0, 0]), (*NODES, torch.tensor([2**40, 0, 0]))),
        i.setting("thresholds", thresholds, (thresholds * NAN, thresholds / 0, thresholds.long(), *NODES)),
        i.setting("below", torch.tensor([1, -1, -1]), NODES),
        i.setting("above", above, NODES),
    )
    found = tabular.Partitions([tree])
    kernel = ke.FeatureKernel(found)
    conditioned = ke.MulticlassEmbedding(kernel, M).condition(i.x(), torch.arange(N) % M)
    return (
        Probabilities(conditioned.probabilities(i.x("query", 1))), ke.gram(kernel, i.x()),
        found.splits(i.setting("num_columns", 2)),
    )  # fmt: skip


@entry
def nutpie(i: Inputs) -> object:
    sampler = posteriors.Nutpie(
        target_accept_prob=i.setting("target_accept_prob", 0.8),
        max_tree_depth=i.setting("max_tree_depth", 3, (1, *NUMBERS)),
        full_mass=i.setting("full_mass", False, (True, None, "yes")),
    )
    posterior = ke.sample_posterior(
        multiclass(i), ke.ConditionalEvidence(), i.x(), i.labels(), sampler=sampler,
        num_samples=i.setting("num_samples", 3, (1, 0, -1, 1.5)),
        warmup_steps=i.setting("warmup_steps", 3, (0, 1, -1, 1.5)),
        num_chains=i.setting("num_chains", 1, (0, -1, 1.5, 2)), seed=i.setting("seed", 0, SEEDS),
    )  # fmt: skip
    return list(posterior.samples.values()), Probabilities(posterior.probabilities(i.x("query", 1)))


@entry
def answers(i: Inputs) -> object:
    conditioned = multiclass(i).condition(i.x(), i.labels())
    query = i.x("query", 1)
    return i.pick(
        (
            lambda: conditioned.calibrated().band(query, i.setting("coverage", 0.9, SHARES), 20, seed=0),
            lambda: conditioned.calibrated().band(query, 0.9, i.setting("num_draws", 20), i.setting("seed", 0, SEEDS)),
            lambda: conditioned.expectation(i.setting("g", torch.ones(M).double(), (None, torch.ones(2), "g")), query),
            lambda: conditioned.entropy(query, i.setting("kind", "clip-normalized", ("no", None, 3))),
            lambda: conditioned.updated(query, torch.arange(N) % M, i.setting("weights", None, WEIGHTS)).V,
        )
    )()


@entry
def further_distribution(i: Inputs) -> object:
    y = line() if i.broken not in ("y", "all") else i.targets()
    law = conditional(i).condition(i.x(), y).distribution(i.x("query", 1))
    return law.crps(i.setting("at", line(), (0.0, None, torch.ones(3), line() * NAN, "0"))), law.quantile(0.5)


@entry
def settings_of_commands(i: Inputs) -> object:
    """One line on the error stream and 2, argparse's own words and 2, or a table and 0."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "table.csv"
        cells = [
            f"{t % 7},{t * t % 11},{i.pick(('0.5', '1e9', '-3', '1e-300', '7')) if t == 5 else t / 3}\n"
            for t in range(24)
        ]
        path.write_text("a,b,target\n" + "".join(cells), encoding="utf-8")
        out = ["--out", f"{folder}/out"]
        compare = ["compare", "--data", str(path), *out, "--no-report", "--methods", "ridge", "--folds"]
        number = str(i.pick((2, 0, -1, 1.5, "nan", "", 10**20, "x")))
        i.chosen["number"] = number
        arguments = i.pick(
            (
                [*compare, number], [*compare, "2", "--seed", number], [*compare, "2", "--budget", number],
                [*compare, "2", "--task", number], [*compare, "2", "--target", number],
                [*compare, "2", "--drop", number], [*compare, "2", "--test", f"{folder}/{number}"],
                ["reproduce", number, *out], ["reproduce", "iris", *out, "--quick", "--folds", "-1"],
                ["reproduce", "iris", *out, "--quick", "--seed", "-1"], ["benchmark", "--parts", number, *out],
                ["benchmark", "--parts", "classifier", "--quick", "--sizes", "0", *out],
            )
        )  # fmt: skip
        i.chosen["arguments"] = arguments[3:]
        told = io.StringIO()
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
            try:
                code = main(arguments)
            except SystemExit as left:  # argparse, which has said why
                if left.code != 2:
                    raise AssertionError(f"left with {left.code}") from left
                return None
    words = told.getvalue().strip()
    assert (code == 0) == (words == ""), f"Expected words with code 2 and none with 0, got {code} and {words!r}."
    assert "\n" not in words, words
    return None
