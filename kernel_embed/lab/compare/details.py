"""Tables under the ranking of a report: which classes are taken for which, and the numbers that were learned."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .ranking import Row
from .runner import Comparison
from .tables import UserTable

MOST_CLASSES = 12
MOST_NUMBERS = 6


def confusion(comparison: Comparison, table: UserTable, method: str) -> tuple[list[str], NDArray[np.int64]] | None:
    """The classes, and how many held-out rows of each (rows) were predicted as each (columns)."""
    records = [r for r in comparison.records(table) if r["method"] == method and "left_out" not in r]
    kept = [arrays for arrays in map(comparison.arrays, records) if arrays]
    if not kept:
        return None
    classes = [str(label) for label in np.unique(table.y)]
    counts = np.zeros((len(classes), len(classes)), dtype=np.int64)
    for arrays in kept:
        np.add.at(counts, (arrays["truth"], arrays["probabilities"].argmax(axis=1)), 1)
    return classes, counts


def confusion_html(comparison: Comparison, table: UserTable, method: str) -> str:
    """The matrix with the recall of every class; with many classes, those with the lowest recall and no matrix."""
    found = confusion(comparison, table, method)
    if found is None:
        return ""
    classes, counts = found
    totals = counts.sum(axis=1)
    recall = np.divide(counts.diagonal(), totals, out=np.full(len(classes), np.nan), where=totals > 0)
    if len(classes) > MOST_CLASSES:
        lowest = [j for j in np.argsort(recall) if totals[j]][:MOST_CLASSES]
        rows = [[classes[j], str(totals[j]), f"{100 * recall[j]:.0f} %"] for j in lowest]
        return html_table(["class", "rows", "recall"], rows)
    rows = [
        [classes[j], *(str(count) if count else "·" for count in counts[j]), f"{100 * recall[j]:.0f} %"]
        for j in range(len(classes))
        if totals[j]
    ]
    return html_table(["truth \\ predicted", *classes, "recall"], rows)


def learned_html(comparison: Comparison, table: UserTable, rows: Sequence[Row]) -> str:
    """λ and lengthscales of every learner that has them, the geometric means over folds."""
    lines, records = [], comparison.records(table)
    for row in rows:
        kept = [comparison.arrays(r) for r in records if r["method"] == row.method and "left_out" not in r]
        cells = [_typical([arrays.get(name) for arrays in kept]) for name in ("regularization", "lengthscale")]
        weights = _mean_text([arrays.get("weights") for arrays in kept])
        if any([*cells, weights]):
            lines.append([row.method, *cells, weights])
    if not lines:
        return ""
    shown = [line if any(line[3] for line in lines) else line[:3] for line in lines]
    return html_table(["learner", "λ", "lengthscales", "weights"][: len(shown[0])], shown)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls by itself where it is wider than the page; every cell is escaped."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _typical(values: Sequence[NDArray[np.float64] | None]) -> str:
    known = [value for value in values if value is not None and (value > 0).all()]
    if not known or len({value.shape for value in known}) > 1:
        return ""
    return _listed(np.exp(np.mean(np.log(known), axis=0)))


def _mean_text(values: Sequence[NDArray[np.float64] | None]) -> str:
    known = [value for value in values if value is not None]
    return _listed(np.mean(known, axis=0)) if known and len({value.shape for value in known}) == 1 else ""


def _listed(values: NDArray[np.float64]) -> str:
    shown = ", ".join(f"{value:.2g}" for value in values[:MOST_NUMBERS])
    return shown if len(values) <= MOST_NUMBERS else f"{shown}, … ({len(values)})"
