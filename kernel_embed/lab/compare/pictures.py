"""The pictures of a comparison report: what is drawn, of which data, with the words under it."""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ...embeddings import BayesianMeanEmbedding, Witness
from ...kernels import median_distance
from ...learning import local_maxima
from ...plots import (
    free_figure,
    plot_convergence,
    plot_draws,
    plot_evidence_curve,
    plot_probability_map,
    plot_ranking,
    plot_reliability,
    plot_witness,
    styled,
)
from ...plots.style import CHOSEN, OTHER
from ...results import Record
from .budget import subset, take
from .evaluate import Classifier
from .initialization import inputs_model, kernel_class
from .projection import line_of, name_axes, plane_of, some_rows
from .ranking import Row
from .runner import FAILURES, Comparison
from .tables import UserTable
from .task import CLASSIFICATION, Task

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAP_SECONDS = 20.0
"""A map is not drawn of a learner that took longer than this for a fit."""
CURVE_SECONDS = 10.0
"""Nor a learning curve, which takes five fits, of one that took longer than this."""
MOST_FEATURES = 15
LONGEST_NAME = 16
"""Letters of a class in the legend of a map; more would leave no room for the map."""


class Picture(NamedTuple):
    """A picture ready for a page: ``data`` is a PNG in base64; ``kind`` says how wide it is."""

    title: str
    caption: str
    data: str
    kind: str


def drawings(
    comparison: Comparison, table: UserTable, rows: Sequence[Row], chosen: str | None
) -> dict[str, Callable[[], Iterator[Picture]]]:
    """The pictures of one table by section, each drawn when called."""
    done = [row for row in rows if row.finished]
    records = {str(r["method"]): r for r in reversed(comparison.records(table)) if "left_out" not in r}
    return {
        "ranking": lambda: ranking(done, chosen),
        "reliability": lambda: _reliability(comparison, table, done),
        "maps": lambda: _maps(comparison, table, done, chosen),
        "relevance": lambda: relevance(comparison, table),
        "curve": lambda: curve(comparison, table, done, chosen),
        "learning": lambda: _learning(comparison, records),
        "evidence": lambda: _evidence(comparison, table),
        "posterior": lambda: _posterior(comparison, records),
        "witness": lambda: _witness(comparison, table),
    }


def pictures(
    sections: dict[str, Callable[[], Iterator[Picture]]],
    comparison: Comparison,
    table: UserTable,
    chosen: str | None,
    drawn: Callable[[str], object],
) -> dict[str, list[Picture]]:
    """The pictures of ``sections`` of one table; a section whose picture cannot be drawn for these data has none.

    What was drawn of the same figures before is taken from beside them; ``drawn`` is told the name of each section.
    """
    found: dict[str, list[Picture]] = {}
    figures = [*comparison.records(table), chosen]
    for name, section in sections.items():
        kept = comparison.kept_pictures(name, figures)
        if kept is not None:
            found[name] = [Picture(*picture) for picture in kept]
        else:
            found[name] = _drawn(section)
            comparison.keep_pictures(name, figures, found[name])
        drawn(name)
    return found


def _drawn(section: Callable[[], Iterator[Picture]]) -> list[Picture]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with styled():
                return list(section())
    except FAILURES:
        return []  # a picture less is no reason to lose the report


def ranking(done: Sequence[Row], chosen: str | None, task: Task = CLASSIFICATION) -> Iterator[Picture]:
    figure = free_figure(5.6, 0.9 + 0.27 * len(done))
    losses = [row.loss for row in done]
    names, means, errors = [row.method for row in done], [e.mean for e in losses], [e.error for e in losses]
    axes = plot_ranking(names, means, errors, chosen=chosen, ax=figure.subplots())
    axes.set_xlabel(task.axis)
    yield picture(
        figure,
        "Who predicts best",
        f"Each point is a learner: its {task.loss_name} on rows it had not seen, with one standard error. "
        "The gray band is one standard error of the best: what lies beyond it is not tied.",
        "wide",
    )


def _reliability(comparison: Comparison, table: UserTable, done: Sequence[Row]) -> Iterator[Picture]:
    records = comparison.records(table)
    for row in done:
        arrays = [comparison.arrays(r) for r in records if r["method"] == row.method and "left_out" not in r]
        if not all(arrays):
            continue
        p = np.concatenate([a["probabilities"] for a in arrays])
        truth = np.concatenate([a["truth"] for a in arrays])
        figure = free_figure(2.6, 2.6)
        plot_reliability(p.max(axis=1), p.argmax(axis=1) == truth, ax=figure.subplots())
        yield picture(figure, row.method, f"calibration error {row.calibration_error.mean:.3f}", "small")


def _maps(comparison: Comparison, table: UserTable, done: Sequence[Row], chosen: str | None) -> Iterator[Picture]:
    plane = plane_of(table)
    if plane is None:
        return
    classes, numbers = np.unique(plane.y, return_inverse=True)
    names = [name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in map(str, classes)]
    seconds = {row.method: row.seconds for row in done}
    wanted = dict.fromkeys([chosen, "default", "median heuristic", "rademacher 4e/n", "svc grid", "evidence"])
    shown = [m for m in wanted if m is not None and seconds.get(m, math.inf) < MAP_SECONDS][:4]
    for method in shown:
        frame = pd.DataFrame(plane.inner(plane.points), columns=["u", "v"])
        learner = comparison.learners[method].for_tables().fit(frame, plane.y)

        def probabilities(points: NDArray[Any], learner: Classifier = learner) -> NDArray[np.float64]:
            p = np.zeros((len(points), len(classes)))
            p[:, np.searchsorted(classes, learner.classes_)] = learner.predict_proba(
                pd.DataFrame(plane.inner(points), columns=["u", "v"])
            )
            return p

        figure = free_figure(4.2, 3.1)
        axes = figure.subplots()
        plot_probability_map(probabilities, plane.points, numbers, len(classes), class_names=names, ax=axes)
        name_axes(axes, table)
        yield picture(figure, method, "", "quarter")


def relevance(comparison: Comparison, table: UserTable, what: str = "labels depend") -> Iterator[Picture]:
    records = [r for r in comparison.records(table) if r["method"] == "default" and "left_out" not in r]
    kept = [arrays for arrays in map(comparison.arrays, records) if "relevance" in arrays]
    names = kept[0]["relevance_names"] if kept else np.array([])
    known = [arrays["relevance"] for arrays in kept if arrays["relevance_names"].tolist() == names.tolist()]
    if not known or len(names) < 2:
        return
    share = np.mean(known, axis=0)
    most = np.argsort(-share)[:MOST_FEATURES]
    figure = free_figure(5.0, 1.0 + 0.26 * len(most))
    axes = figure.subplots()
    axes.barh([str(names[j]) for j in most], share[most], color=OTHER)
    axes.invert_yaxis()
    axes.set_xlabel("relevance, the share of a column")
    yield picture(
        figure,
        f"What the {what} on",
        f"Of {len(share)} columns, by the default learner: the faster its kernels change along one, the longer its "
        "bar; bars of one length count alike. Averaged over kernels by weight, and over folds.",
        "half",
    )


def curve(comparison: Comparison, table: UserTable, done: Sequence[Row], chosen: str | None) -> Iterator[Picture]:
    """The loss on the held-out rows of the first fold, for the chosen learner on a growing part of the others."""
    row = next((row for row in done if row.method == chosen), None)
    if row is None or row.seconds > CURVE_SECONDS or row.folds is None:
        return
    x, y, x_test, y_test = next(comparison.splits(table, None))
    loss, name = comparison.task.loss, comparison.task.loss_name
    known = table.y if comparison.task.name == "regression" else np.unique(table.y)
    sizes, values = [], []
    for share in (0.1, 0.2, 0.4, 0.7, 1.0):
        rows = subset(y, max(int(share * len(y)), 10), comparison.settings.seed)
        split = (take(x, rows), y[rows], x_test, y_test)
        sizes.append(len(rows))
        measured = comparison.task.measure(comparison.learners[row.method].for_tables, split, known)
        values.append(measured.record[loss])
    figure = free_figure(5.0, 3.2)
    axes = figure.subplots()
    axes.plot(sizes, np.array(values, dtype=np.float64), "o-", color=CHOSEN, ms=4)
    axes.set(xlabel="rows to learn from", ylabel=f"{name} on held-out rows", xscale="log", ylim=(0, None))
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    yield picture(
        figure,
        "Would more rows help?",
        f"{name} of “{row.method}” on the held-out rows of the first fold, learned on a growing part of the others. A "
        "curve that still falls at its end asks for more rows; one that is flat does not.",
        "half",
    )


def _learning(comparison: Comparison, records: dict[str, Record]) -> Iterator[Picture]:
    lines = {}
    for method, record in records.items():
        history = comparison.arrays(record).get("history")
        if history is not None and len(history) > 2:
            lines[method] = history
    if lines:
        figure = free_figure(5.0, 3.4)
        plot_convergence(lines, ax=figure.subplots())
        yield picture(
            figure,
            "How learning converges",
            "The objective of each learner above the value it ends at, in the first fold. A line that ends early has "
            "converged early; objectives are different things, so only the shapes compare.",
            "half",
        )


def _evidence(comparison: Comparison, table: UserTable) -> Iterator[Picture]:
    x = torch.as_tensor(some_rows(table)[0])
    make = kernel_class(comparison.settings.kernel)
    embedding, objective = inputs_model(x, make)
    median = float(median_distance(x))
    lengthscales = np.geomspace(median / 20, median * 5, 30)
    values = []
    for lengthscale in lengthscales:
        embedding.kernel.lengthscale = lengthscale
        with torch.no_grad():
            values.append(-objective(embedding, x).item())
    maxima = local_maxima(embedding, objective, x, num_points=15, progress=False)
    tops = [m.parameters["kernel.lengthscale"].item() for m in maxima]
    figure = free_figure(5.0, 3.2)
    plot_evidence_curve(lengthscales, np.array(values), median=median, maxima=tops, ax=figure.subplots())
    yield picture(
        figure,
        "Lengthscale by evidence, labels unseen",
        "How well a Bayesian kernel embedding explains the inputs alone, for every common lengthscale. The learner "
        "“evidence of inputs” takes the highest maximum; the median heuristic takes the dashed line.",
        "half",
    )


def _posterior(comparison: Comparison, records: dict[str, Record]) -> Iterator[Picture]:
    record = records.get("nuts average")
    draws = {} if record is None else comparison.arrays(record)
    shown = {name.removeprefix("draws "): v for name, v in draws.items() if name.startswith("draws ")}
    if not shown:
        return
    figure = free_figure(5.0, 1.0 + 1.3 * len(shown))
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (name, values) in zip(panels, shown.items(), strict=True):
        plot_draws(values, name, ax=ax)
    panels[-1].set_xlabel("draw")
    yield picture(
        figure,
        "Draws of the hyperparameters",
        "NUTS in the first fold: one line for each parameter. A trace that wanders without trend has forgotten where "
        "it started; its width is what the data leave open.",
        "half",
    )


def _witness(comparison: Comparison, table: UserTable) -> Iterator[Picture]:
    plane = plane_of(table)
    x, y = (torch.as_tensor(plane.points), plane.y) if plane else line_of(table)
    classes, counts = np.unique(y, return_counts=True)
    first, second = classes[np.argsort(-counts, kind="stable")[:2]]
    embedding, objective = inputs_model(x, kernel_class(comparison.settings.kernel))
    maxima = local_maxima(embedding, objective, x, num_points=15, progress=False)
    kernel = maxima[0].embedding.kernel if maxima else embedding.kernel
    model = BayesianMeanEmbedding(kernel, noise="central-limit" if x.shape[1] == 1 else 0.1)
    p, q = (x[torch.as_tensor(y == label)] for label in (first, second))
    figure = free_figure(5.0, 3.4)
    axes = figure.subplots()
    plot_witness(Witness(model, p, q), ax=axes)
    if x.shape[1] == 2:
        for points, marker in ((p, "o"), (q, "x")):
            axes.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=9, c="black", marker=marker, linewidths=0.5)
        name_axes(axes, table)
    yield picture(
        figure,
        f"Where {first} and {second} differ",
        f"The witness function between the two largest classes: orange where {first} (circles) is denser, purple where "
        f"{second} (crosses) is. Its lengthscale was chosen by evidence, without the labels.",
        "half",
    )


def picture(figure: Figure, title: str, caption: str, kind: str) -> Picture:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return Picture(title, caption, base64.b64encode(buffer.getvalue()).decode(), kind)
