"""Sections of a report about predictions of held-out rows: calibration, confusion, intervals, influential rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...plots import plot_reliability
from ...plots.style import ACCENT, OTHER
from ...results import decimal
from ..experiment import new_figure
from ..runner import fit_model
from .reading import series_type
from .report import REFIT_SECONDS, Content, html_table, picture, section
from .result import ComparisonResult
from .tasks import LEVELS, Arrays

MOST_CLASSES = 12
FAN_ROWS = 60
BANDS = ((0.05, 0.95, 0.18), (0.25, 0.75, 0.35))
MOST_GROUPS, FEWEST_OF_A_GROUP = 6, 10

Groups = tuple[list[str], NDArray[np.int64]]
"""Names, and the number of the group of each row."""


@section("Which classes “{method}” confuses", task="classification")
def confusion(result: ComparisonResult, method: str | None) -> Content:
    """The confusion matrix with the recall of every class; of many classes, those with the lowest recall."""
    folds = [] if method is None else [fold for fold in result.folds(method) if fold]
    if not folds:
        return
    classes = [str(label) for label in np.unique(result.table.y)]
    counts = np.zeros((len(classes), len(classes)), dtype=np.int64)
    for fold in folds:
        np.add.at(counts, (fold["truth"], fold["probabilities"].argmax(axis=1)), 1)
    totals = counts.sum(axis=1)
    recall = np.divide(counts.diagonal(), totals, out=np.full(len(classes), np.nan), where=totals > 0)
    shares = [f"{100 * share:.0f} %" for share in recall]
    if len(classes) > MOST_CLASSES:
        lowest = [j for j in np.argsort(recall) if totals[j]][:MOST_CLASSES]
        yield html_table(["class", "rows", "recall"], [[classes[j], str(totals[j]), shares[j]] for j in lowest])
        return
    cells = [[str(count) if count else "·" for count in row] for row in counts]
    rows = [[classes[j], *cells[j], shares[j]] for j in range(len(classes)) if totals[j]]
    yield html_table(["truth \\ predicted", *classes, "recall"], rows)


@section(
    "Are the probabilities calibrated?",
    "Of all predictions made with about 70 % confidence, 70 % should be right: points on the dashed line. Points below "
    "it are overconfident, unless the line through them, their 90 % interval, reaches it. Bars show how many "
    "predictions were made with that confidence.",
    task="classification",
)
def reliability(result: ComparisonResult, method: str | None) -> Content:
    """Predicted probabilities against observed frequencies: a reliability diagram."""
    for row in result.finished_rows:
        arrays = result.held_out(row.method)
        if arrays:
            p, (figure, axes) = arrays["probabilities"], new_figure(2.6, 2.6)
            plot_reliability(p.max(axis=1), p.argmax(axis=1) == arrays["truth"], ax=axes)
            error = row.scores["calibration_error"].mean
            yield picture(figure, row.method, f"calibration error {error:.3f}", "small")


@section("Where the target is certain, and where not", task="regression")
def fan(result: ComparisonResult, method: str | None) -> Content:
    """Predicted quantiles of held-out rows, with the outcomes."""
    arrays = {} if method is None else result.held_out(method)
    if not arrays:
        return
    some = np.random.default_rng(0).permutation(len(arrays["truth"]))[:FAN_ROWS]
    order = some[np.argsort(arrays["mean"][some])]
    quantiles = arrays["quantiles"][order]
    figure, axes = new_figure(5.6, 3.2)
    place = np.arange(len(order))
    for low, high, alpha in BANDS:
        lower, upper = (quantiles[:, int(np.abs(LEVELS - q).argmin())] for q in (low, high))
        axes.fill_between(place, lower, upper, color=ACCENT, alpha=alpha, lw=0, step="mid")
    axes.plot(place, quantiles[:, len(LEVELS) // 2], color=ACCENT, lw=1.2, drawstyle="steps-mid")
    axes.plot(place, arrays["truth"][order], "o", color="black", ms=3)
    axes.set(xlabel="held-out rows, by their predicted mean", ylabel="target", xticks=[])
    words = (
        f"{len(order)} held-out rows of “{method}”: the line is the predicted median, the bands hold half and nine "
        "tenths of each predicted distribution, points are what happened. A band that is wide in some places and "
        "narrow in others says where the target is less certain."
    )
    yield picture(figure, "What was predicted, and what happened", words, "wide")


def pit(arrays: Arrays) -> NDArray[np.float64]:
    """Where each outcome falls among its predicted quantiles, in [0, 1]: uniform if the distributions are right."""
    y, quantiles = arrays["truth"], arrays["quantiles"]
    below = (quantiles < y[:, None]).sum(axis=1) + 0.5 * (quantiles == y[:, None]).sum(axis=1)
    return np.asarray(below / quantiles.shape[1])


@section(
    "Are the distributions calibrated?",
    "A tenth of all outcomes should fall into each tenth of the predicted distribution: level bars. Bars that are "
    "higher at both ends mean that distributions are too narrow; higher in the middle, too wide. By chance, nine bars "
    "in ten lie between the gray limits.",
    task="regression",
)
def pit_histograms(result: ComparisonResult, method: str | None) -> Content:
    """Histograms of the probability transform of the outcomes."""
    for row in result.finished_rows:
        arrays = result.held_out(row.method)
        if not arrays:
            continue
        values, bins = pit(arrays), 10
        figure, axes = new_figure(2.0, 1.7)
        axes.hist(values, bins=[k / bins for k in range(bins + 1)], density=True, color=OTHER, edgecolor="white")
        error = 1.645 * math.sqrt((bins - 1) / len(values))
        axes.axhspan(1 - error, 1 + error, color="black", alpha=0.12, lw=0)
        axes.axhline(1.0, color="black", lw=1, ls="--")
        axes.set(xlim=(0, 1), xlabel="place in the prediction", xticks=[0, 0.5, 1], yticks=[])
        yield picture(figure, row.method, f"90 % intervals hold {100 * row.scores['coverage'].mean:.0f} %", "small")


@section(
    "Does “{method}” cover every kind of row?",
    "Intervals that cover 90 % of all rows may cover more of some kinds of rows and less of others.",
    task="regression",
)
def coverage_by_group(result: ComparisonResult, method: str | None) -> Content:
    """Coverage and width of intervals by predicted mean, and by the most relevant columns."""
    arrays = {} if method is None else result.held_out(method)
    if not arrays:
        return
    inside, width = (result.task.score_rows(arrays)[name] for name in ("coverage", "width"))
    groups = [("predicted mean", _thirds(arrays["mean"], decimal))]
    if result.test is None:
        splits = map(result.comparison.split, range(result.settings.folds))
        frame = pd.concat([split.x_test for split in splits], ignore_index=True)
        groups += [(name, group_column(frame[name])) for name in _most_relevant(result, 2)]
    lines = []
    for name, (labels, member) in groups:
        for j, label in enumerate(labels):
            members = member == j
            n = int(members.sum())
            if n >= FEWEST_OF_A_GROUP:
                share = inside[members].mean()
                error = math.sqrt(max(share * (1 - share), 0.01) / n)
                covered = f"{100 * share:.0f} ± {100 * error:.0f} %"
                lines.append([name, label, str(n), covered, f"{width[members].mean():.2f}"])
    yield html_table(["group by", "group", "rows", "coverage", "mean width"], lines)


def importances(result: ComparisonResult) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """The columns and their importance to the default learner, the mean over folds; empty if it has none."""
    folds = [fold for fold in result.folds("default") if "importance" in fold]
    if not folds:
        return np.array([]), np.array([])
    names = folds[0]["importance_names"]
    same = [fold["importance"] for fold in folds if fold["importance_names"].tolist() == names.tolist()]
    return names, np.mean(same, axis=0)


def _most_relevant(result: ComparisonResult, count: int) -> list[str]:
    names, share = importances(result)
    return [str(names[j]) for j in np.argsort(-share)[:count]]


def _thirds(values: NDArray[np.float64], words: Callable[[float], str]) -> Groups:
    low, high = np.quantile(values, [1 / 3, 2 / 3])
    labels = [f"up to {words(low)}", "between", f"above {words(high)}"]
    return labels, (values > low).astype(int) + (values > high).astype(int)


def group_column(column: pd.Series) -> Groups:
    """The most frequent values of text or of few numbers; thirds of many numbers or dates."""
    kind, name = series_type(column), str(column.name)
    if kind.is_category or column.nunique() <= MOST_GROUPS:
        values = list(column.value_counts().index[:MOST_GROUPS])
        if not kind.is_category:
            order = np.argsort(kind.values(pd.Series(values, dtype=object).to_numpy(), name))
            values = [values[j] for j in order]
        place = {cell: j for j, cell in enumerate(values)}
        return [*map(_text, values), "others"], np.array([place.get(cell, len(values)) for cell in column])
    if column.dtype.kind == "M":
        days = (column - pd.Timestamp(0)) / pd.Timedelta(days=1)
        first = pd.Timestamp(0)
        return _thirds(days.fillna(days.median()).to_numpy(), lambda day: _text(first + pd.Timedelta(days=day)))
    numbers = kind.values(column.to_numpy(), name)
    return _thirds(np.where(np.isnan(numbers), np.nanmedian(numbers), numbers), decimal)


@section(
    "Which rows one prediction rests on",
    "The mean of the default learner is a sum over training targets, with weights that add up to 1. For the held-out "
    "row of the first fold with the middle prediction, these count most; columns are the most relevant ones.",
    task="regression",
)
def influential_rows(result: ComparisonResult, method: str | None) -> Content:
    """The training rows with the largest weights in one prediction."""
    row = next((row for row in result.finished_rows if row.method == "default"), None)
    if row is None or result.test is not None:
        return
    if row.seconds > REFIT_SECONDS:
        words = f"The default took more than {REFIT_SECONDS:.0f} s to fit and was not fitted again."
        yield f'<p class="note">{words} Call regressor.influential_rows(X_new) for any row.</p>'
        return
    x, y, x_test, y_test, groups = result.comparison.split(0)
    model = fit_model(result.learners["default"].for_tables(), x, y, groups)
    means = model.predict(x_test)
    middle = int(np.argsort(means)[len(y_test) // 2])
    (influential,) = model.influential_rows(x_test.iloc[[middle]], 6)
    names = _most_relevant(result, 4)
    cells = [["the row to predict", "", decimal(y_test[middle]), *map(_text, x_test.iloc[middle][names])]]
    cells.append(["its predicted mean", "", decimal(means[middle]), *[""] * len(names)])
    for one in influential:
        texts = map(_text, x.iloc[one.number][names])
        cells.append([f"training row {one.number}", f"{one.weight:.2f}", decimal(one.target), *texts])
    yield html_table(["row", "weight", "target", *names], cells)


def _text(cell: object) -> str:
    if isinstance(cell, pd.Timestamp):
        return f"{cell:%Y-%m-%d}"
    return decimal(cell) if isinstance(cell, float) else str(cell)
