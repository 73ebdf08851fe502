"""The comparison as one page: text, tables and figures in a single file that needs no network."""

from __future__ import annotations

import datetime
import html
import pathlib
import warnings
from collections.abc import Iterator, Sequence

from ...files import write_whole
from ...progress import progress_bar
from ...version import __version__
from ..runner import FAILURES
from . import figures, maps, predictions
from .figures import REFIT_SECONDS, Picture, html_table
from .ranking import LEVEL, Recommendation, Row, is_tied, rule
from .result import ComparisonResult
from .summary import heading, number
from .tasks import Task

SECTIONS = (
    predictions.confusion,
    predictions.reliability,
    maps.probability_maps,
    predictions.fan,
    predictions.pit_histograms,
    predictions.coverage_by_group,
    predictions.influential_rows,
    figures.learned_numbers,
    figures.relevance,
    figures.learning_curve,
    figures.convergence,
    maps.evidence_curve,
    figures.posterior_draws,
    maps.witness,
)
"""What follows the ranking, in order. Those without a title share the heading “Inside the learners”."""

COLUMNS = {
    "behind best": "how much higher the loss is than the best learner’s, on the same folds, with its standard error.",
    "p": "how often equally good learners would show a difference of that size (paired test).",
    "tied": "within one standard error of the best learner’s figure, and p at least 0.05.",
    "evals, seconds, MB": "evaluations of objective and gradient, time and memory of one fit.",
}

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


def write_report(results: Sequence[ComparisonResult], path: pathlib.Path, progress: bool | None = None) -> pathlib.Path:
    """Draw and write the page of one or several tables, all of one comparison, and return its path."""
    task = results[0].task
    sections = [part for part in SECTIONS if part.task in (None, task.name)]
    with progress_bar(len(results) * (1 + len(sections)), "report", progress) as bar:
        parts: list[str] = []
        for result in results:
            method = result.recommendation.method if result.finished_rows else None
            content = {}
            for part in (figures.ranking, *sections):
                bar.set_postfix_str(f"{result.table.name}, {part.name}")
                content[part] = part.content(result, method)
                bar.update()
            parts += _table_section(result, method, content, path.parent)
    names = ", ".join(result.table.name for result in results)
    page = _page(f"How to learn a kernel on {names}", results[0], "\n".join(parts))
    write_whole(path, lambda file: file.write(page.encode()))
    return path


def _page(title: str, result: ComparisonResult, body: str) -> str:
    settings, task = result.settings, result.task
    test = "a test table" if settings.folds == 1 else f"{settings.folds} folds (seed {settings.seed})"
    tried = (
        f"{len(settings.methods)} ways to learn were tried on the same rows and scored on rows they had not seen. This "
        f"page says which one to use, and how certain that is. The rule: {rule(task)}"
        if len(settings.methods) > 1
        else "One way to learn was tried, and scored on rows it had not seen."
    )
    limit = (
        "all rows for every learner"
        if settings.budget is None
        else f"at most {settings.budget:g} CPU s for one learner on one table"
    )
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y")
    terms = {**task.terms, **COLUMNS}
    columns = "".join(f"<dt>{_t(name)}</dt><dd>{_t(words)}</dd>" for name, words in terms.items())
    learners = {name: result.learners[name].description for name in settings.methods}
    descriptions = "".join(f"<dt>{_t(name)}</dt><dd>{_t(words)}</dd>" for name, words in learners.items())
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
<p class="note">kernel_embed {_t(__version__)}, {date}; {_t(test)}; kernel {_t(settings.kernel)}; {_t(limit)}. Every
learner gets the table in the form that suits it, learned on the training rows.</p>
{body}
<h2>Glossary</h2>
<h3>Columns</h3>
<dl>{columns}</dl>
<h3>Learners</h3>
<dl>{descriptions}</dl>
</body>
</html>
"""


def _table_section(
    result: ComparisonResult,
    method: str | None,
    content: dict[figures.Section, list[Picture | str]],
    folder: pathlib.Path,
) -> Iterator[str]:
    advice = None if method is None else result.recommendation
    yield f"<h2>{_t(heading(result.table))}</h2>"
    yield _advice(result, advice)
    notes = [] if method is None else [_saved_model(result, method, folder)]
    notes += [f"{note}." for note in result.table.notes]
    if result.test is not None:
        notes.append(f"Judged on {len(result.test.y)} rows of {result.test.name}.")
    yield from (f'<p class="note">{_t(note)}</p>' for note in notes)
    yield _html(content.pop(figures.ranking))
    yield _ranking_table(result.rows, advice, result.task)
    yield from (f'<p class="note">* {_t(row.method)}: {_t(row.note)}.</p>' for row in result.rows if row.note)
    for part, blocks in content.items():
        if part.title and blocks:
            words = f"<p>{_t(part.words)}</p>" if part.words else ""
            yield f"<h3>{_t(part.title.format(method=method))}</h3>{words}{_html(blocks)}"
    inside = [block for part, blocks in content.items() if not part.title for block in blocks]
    if inside:
        yield f"<h3>Inside the learners</h3>{_html(inside)}"
    if not figures.HAS_MATPLOTLIB:
        yield '<p class="note">Pictures need matplotlib: pip install kernel-embed[plots].</p>'


def _saved_model(result: ComparisonResult, method: str, folder: pathlib.Path) -> str:
    """A sentence on the file that holds the recommended learner, fitted to all rows."""
    row = next(row for row in result.rows if row.method == method)
    if row.note or row.seconds > REFIT_SECONDS:
        return "It takes long to fit, so it was not fitted again to all rows."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = result.save(folder)
    except FAILURES as error:
        return f"Fitted to all rows it could not be saved: {str(error).split('. ')[0]}."
    return f"Fitted to all rows it is beside this page: ke.load({path.name!r}).{result.learners[method].prediction}"


def _advice(result: ComparisonResult, advice: Recommendation | None) -> str:
    if advice is None:
        return '<div class="use">No learner finished; the table says why.</div>'
    learner = result.learners[advice.method]
    separated = [row.method for row in result.finished_rows if row.pvalue < LEVEL]
    worse = f"<p>Worse by the paired test: {_t(', '.join(separated))}.</p>" if separated else ""
    why = f"<p>{_t(advice.why)}</p>" if advice.why else ""
    return (
        f'<div class="use"><strong>Use “{_t(advice.method)}”</strong>: {_t(learner.description)}.'
        f"{why}{worse}<pre>{_t(learner.code)}</pre></div>"
    )


def _ranking_table(rows: Sequence[Row], advice: Recommendation | None, task: Task) -> str:
    bound = ["bound"] if "bound" in task.terms else []
    names = [name for name, *_ in task.report_columns]
    header = ["learner", *names, "behind best", "p", "tied", *bound, "evals", "seconds", "MB"]
    lines, classes = [], []
    for row in rows:
        lines.append(_cells(row, rows[0], task) if row.finished else [row.method, *["–"] * (len(header) - 1)])
        classes.append("out" if not row.finished else "chosen" if advice and row.method == advice.method else "")
    return html_table(header, lines, classes)


def _cells(row: Row, best: Row, task: Task) -> list[str]:
    first = row.method == best.method
    bound = "vacuous" if row.bound >= 1.0 else number(row.bound, "{:.2f}")
    return [
        row.method + ("*" if row.note else ""),
        *(row.scores[name].text(digits, factor) for _, name, digits, factor in task.report_columns),
        "" if first else row.behind.text(),
        "" if first else number(row.pvalue, "{:.3f}"),
        "tied" if is_tied(row, best) and not first else "",
        *([bound] if "bound" in task.terms else []),
        number(row.num_evaluations, "{:.0f}"),
        number(row.seconds, "{:.2f}"),
        number(row.megabytes, "{:.0f}"),
    ]


def _html(blocks: Sequence[Picture | str]) -> str:
    """HTML as it is, and figures in one grid."""
    pictures = [block for block in blocks if isinstance(block, Picture)]
    items = []
    for picture in pictures:
        stop = "" if picture.title.endswith("?") else "."
        caption = f"<b>{_t(picture.title)}{stop}</b> {_t(picture.caption)}"
        image = f'<img alt="{_t(picture.title)}" src="data:image/png;base64,{picture.data}">'
        items.append(f"<figure>{image}<figcaption>{caption}</figcaption></figure>")
    grid = f'<div class="{pictures[0].kind}">{"".join(items)}</div>' if pictures else ""
    return "".join(block for block in blocks if isinstance(block, str)) + grid


def _t(text: str) -> str:
    return html.escape(str(text))
