"""Sections of a report about learners and their parameters, and about the inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.preprocessing import MinMaxScaler, minmax_scale

from ...embeddings import BayesianMeanEmbedding, Witness
from ...kernels import median_distance
from ...learning import local_maxima
from ...plots import plot_convergence, plot_draws, plot_evidence_curve, plot_probability_map, plot_witness
from ...plots.style import ACCENT, OTHER
from ...splits import proportional_sample
from ...tabular import TableEncoder
from ..experiment import new_figure
from ..runner import take
from .embedding_classifiers import inputs_model, kernel_class
from .predictions import importances
from .report import REFIT_SECONDS, Content, html_table, picture, section
from .result import ComparisonResult
from .tables import UserTable

CURVE_SECONDS = 10.0
"""A learner that took longer for a fit has no learning curve, which takes five fits."""
MOST_FEATURES, MOST_NUMBERS = 15, 6
MAP_ROWS = 300
"""Rows that are drawn, and learned for a map."""
LONGEST_NAME = 16
"""Letters of a class in the legend of a map."""


def plain(text: str) -> str:
    """``text`` with escaped dollar signs, because matplotlib reads what is between two of them as a formula."""
    return text.replace("$", r"\$")


@section()
def learned_numbers(result: ComparisonResult, method: str | None) -> Content:
    """λ, lengthscales and weights of every learner that has them."""
    lines = []
    for row in result.rows:
        folds = result.folds(row.method)
        cells = [_typical([fold.get(name) for fold in folds]) for name in ("regularization", "lengthscale")]
        cells.append(_typical([fold.get("weights") for fold in folds], geometric=False))
        if any(cells):
            lines.append([row.method, *cells])
    if lines:
        width = 4 if any(line[3] for line in lines) else 3
        yield "<p>What each learner found: ridge, and lengthscales of scaled features; geometric means over folds.</p>"
        yield html_table(["learner", "λ", "lengthscales", "weights"][:width], [line[:width] for line in lines])


def _typical(values: Sequence[NDArray[np.float64] | None], geometric: bool = True) -> str:
    arrays = [value for value in values if value is not None and (not geometric or (value > 0).all())]
    if not arrays or len({array.shape for array in arrays}) > 1:
        return ""
    means = np.exp(np.mean(np.log(arrays), axis=0)) if geometric else np.mean(arrays, axis=0)
    text = ", ".join(f"{value:.2g}" for value in means[:MOST_NUMBERS])
    return text if len(means) <= MOST_NUMBERS else f"{text}, … ({len(means)})"


@section()
def importance(result: ComparisonResult, method: str | None) -> Content:
    """The importance of each column."""
    names, increase = importances(result)
    if len(names) < 2:
        return
    most = np.argsort(-increase)[:MOST_FEATURES]
    figure, axes = new_figure(5.0, 1.0 + 0.26 * len(most))
    axes.barh([plain(str(names[j])) for j in most], increase[most], color=OTHER)
    axes.invert_yaxis()
    axes.set_xlabel("increase in loss if the column is permuted")
    words = (
        f"Of {len(increase)} columns, for the default learner: how much worse it predicts rows that it was not fitted "
        "to when the values of the column are exchanged between rows. Averaged over folds."
    )
    yield picture(figure, f"{result.task.depends} on", words, "half")


@section()
def learning_curve(result: ComparisonResult, method: str | None) -> Content:
    """The loss on the held-out rows of the first fold, for the recommended learner on a growing part of the others."""
    row = next((row for row in result.finished_rows if row.method == method), None)
    if row is None or row.seconds > CURVE_SECONDS or row.folds is None:
        return
    split = result.comparison.split(0)
    make, sizes, values = result.learners[row.method].for_tables, [], []
    for share in (0.1, 0.2, 0.4, 0.7, 1.0):
        rows = proportional_sample(split.y, max(int(share * len(split.y)), 10), result.settings.seed)
        measured = result.task.measure(make, split.part(rows), result.table.y)
        sizes.append(len(rows))
        values.append(measured.record[result.task.loss])
    loss, (figure, axes) = result.task.loss_name, new_figure(5.0, 3.2)
    axes.plot(sizes, np.array(values, dtype=np.float64), "o-", color=ACCENT, ms=4)
    axes.set(xlabel="rows to learn from", ylabel=f"{loss} on held-out rows", xscale="log", ylim=(0, None))
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    words = (
        f"{loss} of “{row.method}” on the held-out rows of the first fold, learned on a growing part of the others. If "
        "the curve still falls at its end, more rows would help; if it is flat, they would not."
    )
    yield picture(figure, "Would more rows help?", words, "half")


@section(task="classification")
def convergence(result: ComparisonResult, method: str | None) -> Content:
    """The objective by evaluation."""
    histories = {row.method: result.folds(row.method)[0].get("history") for row in result.finished_rows}
    lines = {name: values for name, values in histories.items() if values is not None and len(values) > 2}
    if lines:
        figure, axes = new_figure(5.0, 3.4)
        plot_convergence(lines, ax=axes)
        words = (
            "The objective of each learner above its final value, in the first fold. A line that ends early has "
            "converged early; objectives differ, so only the shapes compare."
        )
        yield picture(figure, "How learning converges", words, "half")


def _some_rows(table: UserTable) -> tuple[NDArray[np.float64], NDArray[Any], pd.DataFrame]:
    """Some rows, of every class its share, as numbers in [0, 1], their labels, and the rows themselves."""
    rows = proportional_sample(table.y, MAP_ROWS)
    part = take(table.x, rows)
    return minmax_scale(TableEncoder().fit_transform(part)), table.y[rows], part


class Plane(NamedTuple):
    """Points (n, 2) to draw, their labels, the names of the axes, and whether these are principal axes."""

    points: NDArray[np.float64]
    y: NDArray[Any]
    names: dict[str, str]
    is_projected: bool


def _plane(table: UserTable) -> Plane | None:
    """Two numeric columns without missing cells, or two principal components of others; ``None`` for one column."""
    x, y, part = _some_rows(table)
    if x.shape[1] < 2:
        return None
    are_numbers = all(dtype == np.float64 for dtype in table.x.dtypes)
    if table.x.shape[1] == 2 and are_numbers and table.x.notna().to_numpy().all():
        first, second = map(plain, table.features)
        return Plane(part.to_numpy(), y, {"xlabel": first, "ylabel": second}, False)
    names = {"xlabel": "first principal axis", "ylabel": "second principal axis"}
    return Plane(PCA(2, svd_solver="full").fit_transform(x), y, names, True)


@section(
    "What was learned, in two dimensions",
    "The color says which class is most probable; it is pale where the learner is unsure. Points are data.",
    task="classification",
)
def probability_maps(result: ComparisonResult, method: str | None) -> Content:
    """Class probabilities over two columns or two projections."""
    plane = _plane(result.table)
    if plane is None:
        return
    if plane.is_projected:
        yield (
            "<p>These data are more than two numbers, so each learner was learned again on their two principal axes: "
            "the maps show its character, not its accuracy.</p>"
        )
    classes, numbers = np.unique(plane.y, return_inverse=True)
    names = [name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in map(str, classes)]
    scaler = MinMaxScaler().fit(plane.points)

    def scaled(points: NDArray[np.float64]) -> pd.DataFrame:
        return pd.DataFrame(scaler.transform(points), columns=["u", "v"])

    seconds = {row.method: row.seconds for row in result.finished_rows}
    candidates = dict.fromkeys([method, "default", "median heuristic", "rademacher 4e/n", "svc grid", "evidence"])
    for name in [m for m in candidates if m is not None and seconds.get(m, math.inf) < REFIT_SECONDS][:4]:
        model = result.learners[name].for_tables().fit(scaled(plane.points), plane.y)

        def probabilities(points: NDArray[Any], model: Any = model) -> NDArray[np.float64]:
            p = np.zeros((len(points), len(classes)))
            p[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(scaled(points))
            return p

        figure, axes = new_figure(4.2, 3.1)
        class_names = list(map(plain, names))
        plot_probability_map(probabilities, plane.points, numbers, len(classes), class_names=class_names, ax=axes)
        axes.set(**plane.names)
        yield picture(figure, name, "", "quarter")


@section(task="classification")
def evidence_curve(result: ComparisonResult, method: str | None) -> Content:
    """The evidence of the rows over the lengthscale."""
    x = torch.as_tensor(_some_rows(result.table)[0])
    embedding, objective = inputs_model(x, kernel_class(result.settings.kernel))
    median, values = float(median_distance(x)), []
    lengthscales = np.geomspace(median / 20, median * 5, 30)
    for lengthscale in lengthscales:
        embedding.kernel.lengthscale = lengthscale
        with torch.no_grad():
            values.append(-objective(embedding, x).item())
    maxima = local_maxima(embedding, objective, x, num_points=15, progress=False)
    tops = [maximum.parameters["kernel.lengthscale"].item() for maximum in maxima]
    figure, axes = new_figure(5.0, 3.2)
    plot_evidence_curve(lengthscales, np.array(values), median=median, maxima=tops, ax=axes)
    words = (
        "How well a Bayesian kernel embedding explains the inputs alone, for every common lengthscale. The learner "
        "“evidence of inputs” takes the highest maximum; the median heuristic takes the dashed line."
    )
    yield picture(figure, "Lengthscale by evidence, labels unseen", words, "half")


@section(task="classification")
def posterior_draws(result: ComparisonResult, method: str | None) -> Content:
    """Draws of the hyperparameters."""
    folds = result.folds("nuts average")
    draws = {name.removeprefix("draws "): v for name, v in (folds or [{}])[0].items() if name.startswith("draws ")}
    if not draws:
        return
    figure, axes = new_figure(5.0, 1.0 + 1.3 * len(draws), len(draws), sharex=True, squeeze=False)
    for ax, (name, values) in zip(axes[:, 0], draws.items(), strict=True):
        plot_draws(values, name, ax=ax)
    axes[-1, 0].set_xlabel("draw")
    words = (
        "NUTS in the first fold: one line for each parameter. A trace without trend has forgotten its start; its width "
        "is what the data leave open."
    )
    yield picture(figure, "Draws of the hyperparameters", words, "half")


@section(task="classification")
def witness(result: ComparisonResult, method: str | None) -> Content:
    """The witness function of two classes."""
    plane = _plane(result.table)
    points, y = _some_rows(result.table)[:2] if plane is None else plane[:2]
    x = torch.as_tensor(points)
    classes, counts = np.unique(y, return_counts=True)
    first, second = classes[np.argsort(-counts, kind="stable")[:2]]
    embedding, objective = inputs_model(x, kernel_class(result.settings.kernel))
    maxima = local_maxima(embedding, objective, x, num_points=15, progress=False)
    kernel = maxima[0].embedding.kernel if maxima else embedding.kernel
    model = BayesianMeanEmbedding(kernel, noise="central-limit" if x.shape[1] == 1 else 0.1)
    p, q = (x[torch.as_tensor(y == label)] for label in (first, second))
    figure, axes = new_figure(5.0, 3.4)
    plot_witness(Witness(model, p, q), ax=axes)
    if plane is not None:
        for sample, marker in ((p, "o"), (q, "x")):
            axes.scatter(*sample.T.numpy(), s=9, c="black", marker=marker, linewidths=0.5)
        axes.set(**plane.names)
    words = (
        f"The witness function between the two largest classes: orange where {first} (circles) is denser, purple where "
        f"{second} (crosses) is. Its lengthscale was chosen by evidence, without the labels."
    )
    yield picture(figure, f"Where {first} and {second} differ", words, "half")
