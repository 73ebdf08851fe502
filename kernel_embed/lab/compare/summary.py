"""The comparison in the terminal: a table of at most 80 columns, and what to use."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from ...results import table
from .ranking import Row, against_best, is_tied, mean_ranks, recommend, rule, tally
from .tables import UserTable
from .tasks import CLASSIFICATION, TASKS, Task

WIDTH = 80


def header(task: Task) -> list[str]:
    """Scores, the loss, its paired difference from the best row, p-value, tie, seconds of a fit."""
    names = [name for name, *_ in task.columns]
    return ["learner", *names, task.loss_name, "behind best", "p", "tied", "s"]


def cells(row: Row, best: Row, task: Task = CLASSIFICATION) -> list[str]:
    """One row as text, in the order of :func:`header`."""
    if not row.finished:
        return [row.method, *["–"] * (len(header(task)) - 1)]
    first = row.method == best.method
    return [
        row.method + ("*" if row.note else ""),
        *(f"{factor * row.scores[name].mean:.{digits}f}" for _, name, digits, factor in task.columns),
        row.loss.text(),
        "" if first else row.behind.text(),
        "" if first else number(row.pvalue, "{:.3f}"),
        "tied" if is_tied(row, best) and not first else "",
        number(row.seconds, "{:.1f}"),
    ]


def summary(data: UserTable, rows: Sequence[Row], task: Task = CLASSIFICATION) -> str:
    """The table of one data set, its notes, and the recommendation."""
    if not rows:
        return f"{data.name}: nothing was finished"
    best = rows[0]
    lines = [heading(data), "", table(header(task), [cells(row, best, task) for row in rows])]
    notes = [f"* {row.method}: {row.note}" for row in rows if row.note]
    notes += [f"* {note}" for note in data.notes]
    if notes:
        lines += ["", *(_filled(note, "  ") for note in notes)]
    if best.finished:
        advice = recommend(rows, task)
        lines += ["", _filled(f"Use {advice.method!r} on these data. {advice.why}".strip())]
    return "\n".join(lines)


def explanation(several: bool, task: Task = CLASSIFICATION) -> str:
    """What the columns mean, once under all tables."""
    words = (
        f"{task.loss_words} Behind best is the paired difference from the first row, p its p-value, s the seconds of "
        "one fit."
    )
    return _filled(f"{words} {rule(task)}" if several else words)


def overall(
    names: Sequence[str], tables: Sequence[Sequence[Row]], methods: Sequence[str], task: Task = CLASSIFICATION
) -> str:
    """Over several tables: how often the first method is ahead of each other one, and of the best of them."""
    first, *others = methods
    ranks = mean_ranks(tables)
    rows = [
        [t.other, f"{t.ahead}", f"{t.within}", f"{t.behind}", number(ranks.get(t.other, math.nan), "{:.2f}")]
        for t in tally(tables, first, others)
    ]
    best = against_best(tables, first)
    worse = ", ".join(names[number] for number in best.clearly_worse) or "none"
    head = [f"{first} against", "ahead", "within 1 s.e.", "behind", "mean rank"]
    share = (
        f"{first} (mean rank {number(ranks.get(first, math.nan), '{:.2f}')}) against the best of the others: ahead or "
        f"within one standard error of the paired difference on {best.level} of {best.tables} tables; "
        f"{task.loss_name} more than 5 % higher on {len(best.clearly_worse)} ({worse})."
    )
    return f"{task.loss_name} over {len(tables)} tables\n\n{table(head, rows)}\n\n{_filled(share)}"


def heading(data: UserTable) -> str:
    """``wine: 178 rows, 13 features, 3 classes``."""
    n, d = data.x.shape
    return f"{data.name}: {n} rows, {d} feature{'' if d == 1 else 's'}, {TASKS[data.task].describe(data.y)}"


def number(value: float, form: str) -> str:
    """A formatted number, or a dash if it is not known."""
    return "–" if math.isnan(value) else form.format(value)


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent)
