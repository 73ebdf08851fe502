"""Pictures and tables of a comparison of numeric targets: fans, PIT histograms, coverage by groups, speaking rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...estimators import ConditionalEmbeddingRegressor
from ...plots import free_figure
from ...plots.style import CHOSEN, OTHER
from ...results import decimal
from .columns import is_text
from .details import html_table
from .evaluate_numbers import by_row, pit
from .pictures import MAP_SECONDS, Picture, curve, picture, ranking, relevance
from .predictive import LEVELS
from .ranking import Row
from .runner import Comparison, folds_of
from .tables import UserTable

FAN_ROWS = 60
BANDS = ((0.05, 0.95, 0.18), (0.25, 0.75, 0.35))
MOST_GROUPS, FEWEST_OF_A_GROUP = 6, 10

Groups = tuple[list[str], NDArray[np.int64]]
"""Their names in order, and the number of the group of each row."""


def drawings(
    comparison: Comparison, table: UserTable, rows: Sequence[Row], chosen: str | None
) -> dict[str, Callable[[], Iterator[Picture]]]:
    """The pictures of one table by section, each drawn when called."""
    done = [row for row in rows if row.finished]
    return {
        "ranking": lambda: ranking(done, chosen, comparison.task),
        "fan": lambda: _fan(comparison, table, chosen),
        "pit": lambda: _pit(comparison, table, done),
        "relevance": lambda: relevance(comparison, table, "target depends"),
        "curve": lambda: curve(comparison, table, done, chosen),
    }


def held_out(comparison: Comparison, table: UserTable, method: str) -> dict[str, NDArray[Any]]:
    """What a learner said of all held-out rows, fold after fold; empty where nothing is kept."""
    records = [r for r in comparison.records(table) if r["method"] == method and "left_out" not in r]
    kept = [comparison.arrays(record) for record in records]
    if not kept or not all(kept):
        return {}
    joined = {k: np.concatenate([a[k] for a in kept]) for k in ("truth", "quantiles", "interval", "mean", "crps")}
    return {**joined, "scale": kept[0]["scale"]}


def _fan(comparison: Comparison, table: UserTable, chosen: str | None) -> Iterator[Picture]:
    arrays = {} if chosen is None else held_out(comparison, table, chosen)
    if not arrays:
        return
    some = np.random.default_rng(0).permutation(len(arrays["truth"]))[:FAN_ROWS]
    order = some[np.argsort(arrays["mean"][some])]
    figure = free_figure(5.6, 3.2)
    axes = figure.subplots()
    place = np.arange(len(order))
    for low, high, alpha in BANDS:
        lower, upper = (arrays["quantiles"][order][:, int(np.abs(LEVELS - q).argmin())] for q in (low, high))
        axes.fill_between(place, lower, upper, color=CHOSEN, alpha=alpha, lw=0, step="mid")
    axes.plot(place, arrays["quantiles"][order][:, len(LEVELS) // 2], color=CHOSEN, lw=1.2, drawstyle="steps-mid")
    axes.plot(place, arrays["truth"][order], "o", color="black", ms=3)
    axes.set(xlabel="held-out rows, by their predicted mean", ylabel="target")
    axes.set_xticks([])
    yield picture(
        figure,
        "What was predicted, and what happened",
        f"{len(order)} held-out rows of “{chosen}”: the line is the predicted median, the bands hold half and nine "
        "tenths of each predicted distribution, points are what happened. A band that is wide in some places and "
        "narrow in others says where the target is less certain.",
        "wide",
    )


def _pit(comparison: Comparison, table: UserTable, done: Sequence[Row]) -> Iterator[Picture]:
    for row in done:
        arrays = held_out(comparison, table, row.method)
        if not arrays:
            continue
        values, bins = pit(arrays), 10
        figure = free_figure(2.0, 1.7)
        axes = figure.subplots()
        axes.hist(values, bins=[k / bins for k in range(bins + 1)], density=True, color=OTHER, edgecolor="white")
        error = 1.645 * math.sqrt((bins - 1) / len(values))
        axes.axhspan(1 - error, 1 + error, color="black", alpha=0.12, lw=0)
        axes.axhline(1.0, color="black", lw=1, ls="--")
        axes.set(xlim=(0, 1), xlabel="place in the prediction", xticks=[0, 0.5, 1], yticks=[])
        yield picture(figure, row.method, f"90 % intervals hold {100 * row.scores['coverage'].mean:.0f} %", "small")


def groups_html(comparison: Comparison, table: UserTable, method: str, tested: bool) -> str:
    """Coverage and width of intervals by groups of rows: by prediction, and by the most relevant column."""
    arrays = held_out(comparison, table, method)
    if not arrays:
        return ""
    inside, width = (by_row(arrays)[name] for name in ("coverage", "width"))
    groups = [("predicted mean", _thirds(arrays["mean"], decimal))]
    if not tested:
        held = np.concatenate(
            [rows for _, rows in folds_of(table.y, comparison.settings.folds, comparison.settings.seed)]
        )
        frame = table.x.iloc[held].reset_index(drop=True)
        groups += [(str(name), _groups(frame[name])) for name in _most_relevant(comparison, table)]
    lines = []
    for name, (labels, member) in groups:
        for j, label in enumerate(labels):
            members = member == j
            n = int(members.sum())
            if n < FEWEST_OF_A_GROUP:
                continue
            share = inside[members].mean()
            error = math.sqrt(max(share * (1 - share), 0.01) / n)
            covered = f"{100 * share:.0f} ± {100 * error:.0f} %"
            lines.append([name, label, str(n), covered, f"{width[members].mean():.2f}"])
    return html_table(["group by", "group", "rows", "coverage", "mean width"], lines)


def _thirds(values: NDArray[np.float64], words: Callable[[float], str]) -> Groups:
    low, high = np.quantile(values, [1 / 3, 2 / 3])
    labels = [f"up to {words(low)}", "between", f"above {words(high)}"]
    return labels, (values > low).astype(int) + (values > high).astype(int)


def _groups(column: pd.Series) -> Groups:
    is_date = column.dtype.kind == "M"
    if is_text(column.dtype) or column.nunique() <= MOST_GROUPS:
        most = list(column.value_counts().index[:MOST_GROUPS])
        shown = most if is_text(column.dtype) else sorted(most)
        place = {cell: j for j, cell in enumerate(shown)}
        return [*map(_text, shown), "others"], np.array([place.get(cell, len(shown)) for cell in column])
    if is_date:
        values = (column - pd.Timestamp(0)) / pd.Timedelta(days=1)
        return _filled_thirds(values, lambda day: f"{pd.Timestamp(0) + pd.Timedelta(days=day):%Y-%m-%d}")
    return _filled_thirds(column, decimal)


def _filled_thirds(column: pd.Series, words: Callable[[float], str]) -> Groups:
    return _thirds(column.fillna(column.median()).to_numpy(dtype=np.float64), words)


def _most_relevant(comparison: Comparison, table: UserTable, count: int = 2) -> list[str]:
    records = [r for r in comparison.records(table) if r["method"] == "default" and "left_out" not in r]
    kept = [arrays for arrays in map(comparison.arrays, records) if "relevance" in arrays]
    if not kept:
        return []
    names = kept[0]["relevance_names"]
    return [str(names[j]) for j in np.argsort(-kept[0]["relevance"])[:count]]


def speaking_html(comparison: Comparison, table: UserTable, row: Row | None) -> str:
    """The training rows that count most in one prediction of the default learner, beside the row that is asked."""
    if row is None or row.seconds > MAP_SECONDS:
        return ""
    split: tuple[Any, ...] = next(comparison.splits(table, None))
    x, y, x_test, y_test = split
    model = comparison.learners["default"].for_tables().fit(x, y)
    assert isinstance(model, ConditionalEmbeddingRegressor)
    means = model.predict(x_test)
    asked = int(np.argsort(means)[len(y_test) // 2])
    (found,) = model.influential_rows(x_test.iloc[[asked]], 6)
    shown = _most_relevant(comparison, table, 4)
    cells = [
        ["the row asked", "", decimal(y_test[asked]), *_texts(x_test, asked, shown)],
        ["its predicted mean", "", decimal(means[asked]), *[""] * len(shown)],
    ]
    for one in found:
        texts = _texts(x, one.number, shown)
        cells.append([f"training row {one.number}", f"{one.weight:.2f}", decimal(one.target), *texts])
    return html_table(["row", "weight", "target", *shown], cells)


def _texts(frame: pd.DataFrame, row: int, names: Sequence[str]) -> list[str]:
    return [_text(cell) for cell in frame.iloc[row][list(names)]]


def _text(cell: object) -> str:
    if isinstance(cell, pd.Timestamp):
        return f"{cell:%Y-%m-%d}"
    return decimal(cell) if isinstance(cell, float) else str(cell)
