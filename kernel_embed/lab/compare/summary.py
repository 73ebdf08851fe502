"""The comparison in the terminal: a table of at most 80 columns, and the recommendation."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from ...results import table
from .ranking import Row, against_best, is_tied, mean_ranks, recommend, rule, tally
from .tables import UserTable
from .tasks import CLASSIFICATION, TASKS, Task

WIDTH = 80


def ranking_table(rows: Sequence[Row], task: Task, full: bool = False) -> tuple[list[str], list[list[str]]]:
    """Header and cells: scores, paired difference from the best row, p-value, tie and cost; ``full`` for the report."""
    columns = task.report_columns if full else (*task.columns, (task.loss_name, task.loss, 3, 1.0))
    header = ["learner", *(title for title, *_ in columns), "behind best", "p", "tied", *_costs(rows[0], task, full)]
    lines = []
    for row in rows:
        if not row.finished:
            lines.append([row.method, *["–"] * (len(header) - 1)])
            continue
        scores = [
            row.scores[name].text(digits, factor, with_error=full or name == task.loss)
            for _, name, digits, factor in columns
        ]
        difference = [row.behind.text(), number(row.pvalue, "{:.3f}"), "tied" if is_tied(row, rows[0]) else ""]
        if row.method == rows[0].method:
            difference = [""] * 3
        lines.append([row.method + ("*" if row.note else ""), *scores, *difference, *_costs(row, task, full).values()])
    return header, lines


def _costs(row: Row, task: Task, full: bool) -> dict[str, str]:
    if not full:
        return {"s": number(row.seconds, "{:.1f}")}
    bound = {"bound": "vacuous" if row.bound >= 1.0 else number(row.bound, "{:.2f}")} if "bound" in task.terms else {}
    costs = {"evals": number(row.num_evaluations, "{:.0f}"), "seconds": number(row.seconds, "{:.2f}")}
    return {**bound, **costs, "MB": number(row.megabytes, "{:.0f}")}


def summary(data: UserTable, rows: Sequence[Row], task: Task = CLASSIFICATION) -> str:
    """The table of one data set, its notes, and the recommendation."""
    if not rows:
        return f"{data.name}: nothing was finished"
    best = rows[0]
    lines = [heading(data), "", table(*ranking_table(rows, task))]
    notes = [f"* {row.method}: {row.note}" for row in rows if row.note]
    notes += [f"* {note}" for note in data.notes]
    if notes:
        lines += ["", *(_filled(note, "  ") for note in notes)]
    if best.finished:
        advice = recommend(rows, task)
        lines += ["", _filled(f"{advice.use} {advice.method!r} on these data. {advice.why}".strip())]
    return "\n".join(lines)


def explanation(several: bool, task: Task = CLASSIFICATION) -> str:
    """The meaning of the columns, printed once below all tables."""
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
        [other, *map(str, counts), number(ranks.get(other, math.nan), "{:.2f}")]
        for other, *counts in tally(tables, first, others)
    ]
    count, level, clearly_worse = against_best(tables, first)
    worse = ", ".join(names[number] for number in clearly_worse) or "none"
    head = [f"{first} against", "ahead", "within 1 s.e.", "behind", "mean rank"]
    share = (
        f"{first} (mean rank {number(ranks.get(first, math.nan), '{:.2f}')}) against the best of the others: ahead or "
        f"within one standard error of the paired difference on {level} of {count} tables; "
        f"{task.loss_name} more than 5 % higher on {len(clearly_worse)} ({worse})."
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
