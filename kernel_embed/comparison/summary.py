"""The comparison as a table in the terminal, with what to use under it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from ..results import table
from .ranking import Row
from .recommendation import recommend, tally, verdict
from .tables import UserTable

HEADER = (
    "learner", "accuracy %", "NLL", "Brier", "calibration", "behind the best", "", "bound", "evals", "seconds", "MB",
)  # fmt: skip


def cells(row: Row, best: Row) -> list[str]:
    """One row as text, in the order of :data:`HEADER`."""
    if not row.finished:
        return [row.method, *["–"] * (len(HEADER) - 1)]
    return [
        row.method + ("*" if row.note else ""),
        row.accuracy.text(1, 100.0),
        row.nll.text(),
        row.brier.text(),
        row.calibration_error.text(),
        "" if row.method == best.method else row.behind.text(),
        verdict(row, best),
        _number(row.bound, "{:.2f}"),
        _number(row.num_evaluations, "{:.0f}"),
        _number(row.seconds, "{:.2f}"),
        _number(row.megabytes, "{:.0f}"),
    ]


def summary(data: UserTable, rows: Sequence[Row], width: int = 110) -> str:
    """The table of one data set, its notes, and the recommendation."""
    if not rows:
        return f"{data.name}: nothing was finished"
    best = rows[0]
    lines = [heading(data), "", table(HEADER, [cells(row, best) for row in rows])]
    notes = [f"* {row.method}: {row.note}" for row in rows if row.note]
    notes += [f"* {note}" for note in data.notes]
    if notes:
        lines += ["", *(textwrap.fill(note, width, subsequent_indent="  ") for note in notes)]
    if best.finished:
        advice = recommend(rows)
        lines += ["", textwrap.fill(f"Use {advice.method!r} on these data. {advice.why}", width)]
    return "\n".join(lines)


def overall(tables: Sequence[Sequence[Row]], methods: Sequence[str]) -> str:
    """Over several tables: how often the first method is ahead of each other one in NLL, level, or behind."""
    first, *others = methods
    rows = [[t.other, f"{t.ahead}", f"{t.level}", f"{t.behind}"] for t in tally(tables, first, others)]
    head = [f"{first} against", "ahead", "level", "behind"]
    return f"NLL over {len(tables)} tables; level: within one standard error of the difference\n\n{table(head, rows)}"


def heading(data: UserTable) -> str:
    """``wine: 178 rows, 13 features, 3 classes``."""
    n, d = data.x.shape
    return f"{data.name}: {n} rows, {d} feature{'' if d == 1 else 's'}, {len(set(data.y.tolist()))} classes"


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else form.format(value)
