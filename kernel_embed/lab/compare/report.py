"""The comparison as one page: words, table and pictures in a single file that needs no network."""

from __future__ import annotations

import datetime
import html
import importlib.util
import pathlib
import warnings
from collections.abc import Callable, Iterator, Sequence

from ...files import write_whole
from ...progress import progress_bar
from ...version import __version__
from .details import confusion_html, html_table, learned_html
from .pictures import MAP_SECONDS, Picture, drawings, pictures
from .projection import is_drawable
from .ranking import Row
from .real_pictures import drawings as real_drawings
from .real_pictures import groups_html, speaking_html
from .recommendation import LEVEL, Recommendation, is_tied, rule
from .result import ComparisonResult
from .runner import FAILURES, Comparison
from .summary import heading, number
from .tables import UserTable
from .task import REGRESSION, Task

STYLE = """
:root { color-scheme: light dark; --text: #1d2733; --page: #fff; --line: #d8dee6; --soft: #f5f7fa; --mark: #c0392b;
  --quiet: #505d6c; --chosen: #fdf3f1; --out: #6f7a88; }
@media (prefers-color-scheme: dark) { :root { --text: #e3e8ee; --page: #14181e; --line: #37414d; --soft: #1d242c;
  --mark: #e8705c; --quiet: #a9b4c1; --chosen: #35241f; --out: #8893a1; } figure img { border-radius: 4px; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--page); margin: 0 auto;
  padding: 1.2rem; max-width: 70rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .4rem 0; }
h2 { font-size: 1.35rem; margin: 2.4rem 0 .6rem; border-top: 2px solid var(--line); padding-top: 1.2rem; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p, li, dd { max-width: 46rem; }
.note { color: var(--quiet); font-size: .92rem; }
.use { background: var(--soft); border-left: 5px solid var(--mark); padding: .8rem 1rem; margin: 1rem 0; }
.use strong { font-size: 1.15rem; }
pre { background: var(--page); border: 1px solid var(--line); padding: .6rem .8rem; overflow-x: auto;
  font-size: .85rem; }
.scroll { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-size: .85rem; white-space: nowrap; }
th, td { padding: .3rem .45rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: var(--page); }
tr.chosen td { background: var(--chosen); font-weight: 600; }
tr.out td { color: var(--out); }
figure { margin: 0; }
figure img { width: 100%; height: auto; display: block; background: #fff; }
figcaption { font-size: .85rem; color: var(--quiet); margin-top: .3rem; }
figcaption b { color: var(--text); }
.wide { max-width: 40rem; }
.half { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 1.2rem; }
.half > figure { max-width: 40rem; }
.quarter { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 15rem), 1fr)); gap: 1rem; }
.small { display: grid; grid-template-columns: repeat(auto-fill, minmax(10.5rem, 1fr)); gap: .8rem; }
dt { font-weight: 600; margin-top: .4rem; } dd { margin: 0 0 .2rem 0; }
@media (max-width: 40rem) { body { padding: .8rem; } h1 { font-size: 1.35rem; } }
"""

COLUMNS = {
    "behind best": "how much higher the loss is than the best learner’s, on the same folds, with its standard error.",
    "p": "how often equally good learners would show a difference of that size (paired test).",
    "tied": "within one standard error of the best learner’s figure, and p at least 0.05.",
    "bound": "the tight form of the paper’s bound on a loss of at most 1 on new data; “vacuous” if it is 1 or more "
    "and says nothing. It measures complexity and is not a guarantee: kernel and norm were learned on the rows it is "
    "computed from.",
    "evals, seconds, MB": "evaluations of objective and gradient, time and memory of one fit.",
}

SECTIONS = {
    "reliability": (
        "Are the probabilities calibrated?",
        "Of all predictions made with about 70 % confidence, 70 % should be right: points on the dashed line. Points "
        "below it are overconfident, unless the line through them, their 90 % interval, reaches it. Bars show how many "
        "predictions were made with that confidence.",
    ),
    "maps": (
        "What was learned, in two dimensions",
        "The color says which class is most probable; it is pale where the learner is unsure. Points are data. {plane}",
    ),
    "fan": ("Where the target is certain, and where not", ""),
    "pit": (
        "Are the distributions calibrated?",
        "A tenth of all outcomes should fall into each tenth of the predicted distribution: level bars. Bars that are "
        "higher at both ends mean that distributions are too narrow; higher in the middle, too wide. By chance, nine "
        "bars in ten lie between the gray limits.",
    ),
    "more": ("Inside the learners", ""),
}


def write_report(found: Sequence[ComparisonResult], path: pathlib.Path, progress: bool | None = None) -> pathlib.Path:
    """Draw and write the page of one or several tables, all of one comparison, and return its path."""
    comparison = found[0].comparison
    sections = sum(len(_drawings(one, None)) for one in found)
    with progress_bar(sections, "report", progress) as bar:
        parts = []
        for one in found:

            def drawn(section: str, name: str = one.table.name) -> None:
                bar.set_postfix_str(f"{name}, {section}")
                bar.update()

            parts.append(_table_section(one, drawn, _winner(one, path.parent)))
    names = ", ".join(one.table.name for one in found)
    page = _page(f"How to learn a kernel on {names}", comparison, "\n".join(parts))
    write_whole(path, lambda file: file.write(page.encode()))
    return path


def _page(title: str, comparison: Comparison, body: str) -> str:
    settings = comparison.settings
    held = "a test table" if settings.folds == 1 else f"{settings.folds} folds (seed {settings.seed})"
    several = len(settings.methods) > 1
    tried = (
        f"{len(settings.methods)} ways to learn were tried on the same rows and judged on rows they had not seen. This "
        f"page says which one to use, and how sure that is. The rule: {rule(comparison.task)}"
        if several
        else "One way to learn was tried, and judged on rows it had not seen."
    )
    limit = (
        "all rows for every learner"
        if settings.budget is None
        else f"at most {settings.budget:g} CPU s for one learner on one table"
    )
    made = datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y")
    said = {**comparison.task.terms, **COLUMNS}
    if comparison.task is REGRESSION:
        del said["bound"]
    terms = "".join(f"<dt>{_t(name)}</dt><dd>{_t(words)}</dd>" for name, words in said.items())
    learned = "".join(f"<dt>{_t(name)}</dt><dd>{_t(comparison.learners[name].words)}</dd>" for name in settings.methods)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{_t(title)}</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<h1>{_t(title)}</h1>
<p>{_t(tried)}</p>
<p class="note">kernel_embed {_t(__version__)}, {made}; {_t(held)}; kernel {_t(settings.kernel)}; {_t(limit)}. Every
learner gets the table in the form that suits it, learned on the training rows.</p>
{body}
<h2>Glossary</h2>
<h3>Columns</h3>
<dl>{terms}</dl>
<h3>Learners</h3>
<dl>{learned}</dl>
</body>
</html>
"""


def _winner(one: ComparisonResult, folder: pathlib.Path) -> str:
    """A sentence on the file that holds the recommended learner, fitted to all rows."""
    if not one.finished:
        return ""
    row = next(row for row in one.rows if row.method == one.recommendation.method)
    if row.note or row.seconds > MAP_SECONDS:
        return "It takes long to fit, so it was not fitted again to all rows."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            saved = one.save(folder)
    except FAILURES as error:
        return f"Fitted to all rows it could not be saved: {str(error).split('. ')[0]}."
    question = one.comparison.learners[row.method].answers.partition(".")[2]
    return f"Fitted to all rows it is beside this page: ke.load({saved.name!r}).{question}"


def _table_section(one: ComparisonResult, drawn: Callable[[str], None], winner: str) -> str:
    comparison, train, rows = one.comparison, one.table, one.rows
    advice = one.recommendation if one.finished else None
    chosen = advice.method if advice else None
    shown = pictures(_drawings(one, chosen), comparison, train, chosen, drawn)
    parts = [f"<h2>{_t(heading(train))}</h2>", _advice(comparison, advice, rows)]
    parts += [f'<p class="note">{_t(winner)}</p>'] if winner else []
    parts += [f'<p class="note">{_t(note)}.</p>' for note in train.notes]
    if one.test is not None:
        parts.append(f'<p class="note">Judged on {len(one.test.y)} rows of {_t(one.test.name)}.</p>')
    parts += [_figures(shown["ranking"]), _html_table(rows, advice, comparison.task)]
    parts += [f'<p class="note">* {_t(row.method)}: {_t(row.note)}.</p>' for row in rows if row.note]
    if advice is not None and comparison.task is not REGRESSION:
        parts.append(f"<h3>Which classes “{_t(advice.method)}” confuses</h3>")
        parts.append(confusion_html(comparison, train, advice.method))
    for name in ("reliability", "maps", "fan", "pit"):
        if shown.get(name):
            title, words = SECTIONS[name]
            parts.append(f"<h3>{_t(title)}</h3><p>{_t(words.format(plane=_plane_words(train)))}</p>")
            parts.append(_figures(shown[name]))
    if advice is not None and comparison.task is REGRESSION:
        parts += _groups_and_rows(one, advice.method)
    parts += _inside(comparison, train, rows, shown)
    if not any(shown.values()) and importlib.util.find_spec("matplotlib") is None:
        parts.append('<p class="note">Pictures need matplotlib: pip install kernel-embed[plots].</p>')
    return "\n".join(parts)


def _drawings(one: ComparisonResult, chosen: str | None) -> dict[str, Callable[[], Iterator[Picture]]]:
    make = real_drawings if one.comparison.task is REGRESSION else drawings
    return make(one.comparison, one.table, one.rows, chosen)


def _groups_and_rows(one: ComparisonResult, chosen: str) -> list[str]:
    groups = groups_html(one.comparison, one.table, chosen, one.test is not None)
    parts = [
        f"<h3>Does “{_t(chosen)}” cover every kind of row?</h3>",
        "<p>Intervals that cover 90 % of all rows may cover more of some kinds of rows and less of others.</p>",
        groups,
    ]
    row = next((row for row in one.rows if row.method == "default" and row.finished), None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = "" if one.test is not None else speaking_html(one.comparison, one.table, row)
    except FAILURES:
        rows = ""  # a table less is no reason to lose the report
    if not rows and one.test is None and row is not None and row.seconds > MAP_SECONDS:
        parts.append(
            f'<p class="note">The default took more than {MAP_SECONDS:.0f} s to fit and was not fitted again to name '
            "the rows that speak for one prediction; regressor.influential_rows(X_new) does.</p>"
        )
    if rows:
        parts += [
            "<h3>Which rows one prediction rests on</h3>",
            "<p>The mean of the default learner is a sum over training targets, with weights that add up to 1. For the "
            "held-out row of the first fold with the middle prediction, these count most; columns are the most "
            "relevant ones.</p>",
            rows,
        ]
    return parts


def _inside(
    comparison: Comparison, train: UserTable, rows: Sequence[Row], shown: dict[str, list[Picture]]
) -> list[str]:
    names = ("relevance", "curve", "learning", "evidence", "posterior", "witness")
    drawn = [picture for name in names for picture in shown.get(name, [])]
    numbers = learned_html(comparison, train, rows)
    if not drawn and not numbers:
        return []
    words = "<p>What each learner found: ridge, and lengthscales of scaled features; geometric means over folds.</p>"
    return [f"<h3>{SECTIONS['more'][0]}</h3>", f"{words}{numbers}" if numbers else "", _figures(drawn)]


def _advice(comparison: Comparison, advice: Recommendation | None, rows: Sequence[Row]) -> str:
    if advice is None:
        return '<div class="use">No learner finished; the table says why.</div>'
    learner = comparison.learners[advice.method]
    sure = [row.method for row in rows if row.finished and row.pvalue < LEVEL]
    worse = f"<p>Worse by the paired test: {_t(', '.join(sure))}.</p>" if sure else ""
    why = f"<p>{_t(advice.why)}</p>" if advice.why else ""
    return (
        f'<div class="use"><strong>Use “{_t(advice.method)}”</strong>: {_t(learner.words)}.'
        f"{why}{worse}<pre>{_t(learner.code)}</pre></div>"
    )


def _html_table(rows: Sequence[Row], advice: Recommendation | None, task: Task) -> str:
    lines = [_cells(row, rows[0], task) for row in rows]
    text = html_table(_header(task), lines)
    for row, line in zip(rows, lines, strict=True):
        kind = "out" if not row.finished else "chosen" if advice and row.method == advice.method else ""
        first = f"<tr><td>{_t(line[0])}</td>"
        text = text.replace(first, first.replace("<tr>", f'<tr class="{kind}">')) if kind else text
    return text


def _header(task: Task) -> list[str]:
    names = [name for name, *_ in task.report_columns]
    bound = [] if task is REGRESSION else ["bound"]
    return ["learner", *names, "behind best", "p", "tied", *bound, "evals", "seconds", "MB"]


def _cells(row: Row, best: Row, task: Task) -> list[str]:
    if not row.finished:
        return [row.method, *["–"] * (len(_header(task)) - 1)]
    first = row.method == best.method
    bound = "vacuous" if row.bound >= 1.0 else number(row.bound, "{:.2f}")
    return [
        row.method + ("*" if row.note else ""),
        *(row.scores[name].text(digits, factor) for _, name, digits, factor in task.report_columns),
        "" if first else row.behind.text(),
        "" if first else number(row.pvalue, "{:.3f}"),
        "tied" if is_tied(row, best) and not first else "",
        *([] if task is REGRESSION else [bound]),
        number(row.num_evaluations, "{:.0f}"),
        number(row.seconds, "{:.2f}"),
        number(row.megabytes, "{:.0f}"),
    ]


def _figures(found: Sequence[Picture]) -> str:
    if not found:
        return ""
    items = []
    for picture in found:
        stop = "" if picture.title.endswith("?") else "."
        caption = f"<b>{_t(picture.title)}{stop}</b> {_t(picture.caption)}"
        image = f'<img alt="{_t(picture.title)}" src="data:image/png;base64,{picture.data}">'
        items.append(f"<figure>{image}<figcaption>{caption}</figcaption></figure>")
    return f'<div class="{found[0].kind}">{"".join(items)}</div>'


def _plane_words(table: UserTable) -> str:
    if is_drawable(table):
        return ""
    return (
        "These data are more than two numbers, so each learner was learned again on their two principal axes: the "
        "maps show its character, not its accuracy."
    )


def _t(text: str) -> str:
    return html.escape(str(text))
