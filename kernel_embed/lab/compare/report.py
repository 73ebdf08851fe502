"""The comparison as one page: text, tables and figures in a single file that needs no network."""

from __future__ import annotations

import datetime
import importlib.resources
import pathlib
import string
import warnings
from collections.abc import Iterator, Sequence
from html import escape

from ...files import write_whole
from ...progress import printable, progress_bar
from ...version import __version__
from ..runner import FAILURES
from . import figures, maps, predictions
from .figures import REFIT_SECONDS, Picture, html_table
from .ranking import LEVEL, Recommendation, rule
from .result import ComparisonResult
from .summary import heading, ranking_table

SECTIONS = (
    predictions.confusion,
    predictions.reliability,
    maps.probability_maps,
    predictions.fan,
    predictions.pit_histograms,
    predictions.coverage_by_group,
    predictions.influential_rows,
    figures.learned_numbers,
    figures.importance,
    figures.learning_curve,
    figures.convergence,
    maps.evidence_curve,
    figures.posterior_draws,
    maps.witness,
)
"""The sections after the ranking, in order. Those without a title share the heading “Inside the learners”."""

COLUMNS = {
    "behind best": "how much higher the loss is than the best learner’s, on the same folds, with its standard error.",
    "p": "how often equally good learners would show a difference of that size (paired test).",
    "tied": "within one standard error of the best learner’s figure, and p at least 0.05.",
    "evals, seconds, MB": "evaluations of objective and gradient, time and memory of one fit.",
}


def write_report(results: Sequence[ComparisonResult], path: pathlib.Path, progress: bool | None = None) -> pathlib.Path:
    """Draw and write the page of one or several tables, all of one comparison, and return its path."""
    task = results[0].task
    sections = [part for part in SECTIONS if part.task in (None, task.kind)]
    with progress_bar(len(results) * (1 + len(sections)), "report", progress, log=True) as bar:
        parts: list[str] = []
        for result in results:
            method = result.recommendation.method if result.finished_rows else None
            content = {}
            for part in (figures.ranking, *sections):
                bar.set_postfix_str(printable(f"{result.table.name}, {part.name}"))
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
    columns = "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in terms.items())
    learners = {name: result.learners[name].description for name in settings.methods}
    descriptions = "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in learners.items())
    texts = {"title": title, "tried": tried, "version": __version__, "date": date, "test": test}
    texts |= {"kernel": settings.kernel, "limit": limit}
    template = string.Template(importlib.resources.files(__package__).joinpath("report.html").read_text("utf-8"))
    return template.substitute(
        {k: escape(v) for k, v in texts.items()}, body=body, columns=columns, descriptions=descriptions
    )


def _table_section(
    result: ComparisonResult,
    method: str | None,
    content: dict[figures.Section, list[Picture | str]],
    folder: pathlib.Path,
) -> Iterator[str]:
    advice = None if method is None else result.recommendation
    yield f"<h2>{escape(heading(result.table))}</h2>"
    yield _advice(result, advice)
    notes = [] if method is None else [_saved_model(result, method, folder)]
    notes += [f"{note}." for note in result.table.notes]
    if result.test is not None:
        notes.append(f"Scored on {len(result.test.y)} rows of {result.test.name}.")
    yield from (f'<p class="note">{escape(note)}</p>' for note in notes)
    yield _html(content.pop(figures.ranking))
    marks = ["out" if not row.finished else "chosen" if row.method == method else "" for row in result.rows]
    yield html_table(*ranking_table(result.rows, result.task, full=True), marks)
    yield from (f'<p class="note">* {escape(row.method)}: {escape(row.note)}.</p>' for row in result.rows if row.note)
    for part, blocks in content.items():
        if part.title and blocks:
            words = f"<p>{escape(part.words)}</p>" if part.words else ""
            yield f"<h3>{escape(part.title.format(method=method))}</h3>{words}{_html(blocks)}"
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
    refusal = figures.cache_path(result.comparison.out, "refusal", [*result.records, method])
    if refusal is not None and refusal.exists():
        return str(figures.read_cache(refusal)[0])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = result.save(folder)
    except FAILURES as error:
        sentence = f"Fitted to all rows it could not be saved: {str(error).split('. ')[0]}."
        if refusal is not None:
            figures.write_cache(refusal, [sentence])
        return sentence
    return f"Fitted to all rows, in the same folder: {result.learners[method].loading(path.name)}"


def _advice(result: ComparisonResult, advice: Recommendation | None) -> str:
    if advice is None:
        return '<div class="use">No learner finished; the table says why.</div>'
    learner = result.learners[advice.method]
    separated = [row.method for row in result.finished_rows if row.pvalue < LEVEL and not row.note]
    worse = f"<p>Worse by the paired test: {escape(', '.join(separated))}.</p>" if separated else ""
    why = f"<p>{escape(advice.why)}</p>" if advice.why else ""
    return (
        f'<div class="use"><strong>{advice.use} “{escape(advice.method)}”</strong>: {escape(learner.description)}.'
        f"{why}{worse}<pre>{escape(learner.code)}</pre></div>"
    )


def _html(blocks: Sequence[Picture | str]) -> str:
    """HTML as it is, and figures in one grid."""
    pictures = [block for block in blocks if isinstance(block, Picture)]
    items = []
    for picture in pictures:
        stop = "" if picture.title.endswith("?") else "."
        caption = f"<b>{escape(picture.title)}{stop}</b> {escape(picture.caption)}"
        image = f'<img alt="{escape(picture.title)}" src="data:image/png;base64,{picture.data}">'
        items.append(f"<figure>{image}<figcaption>{caption}</figcaption></figure>")
    grid = f'<div class="{pictures[0].kind}">{"".join(items)}</div>' if pictures else ""
    return "".join(block for block in blocks if isinstance(block, str)) + grid
