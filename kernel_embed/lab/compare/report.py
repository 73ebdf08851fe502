"""The comparison as one page: text, tables and figures in a single file that needs no network.

A section is a function of a result and of the recommended learner, if there is one, under :func:`section`. Sections
follow each other in the order of :mod:`~kernel_embed.lab.compare.predictions` and ``figures``.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import hashlib
import importlib.resources
import importlib.util
import io
import json
import pathlib
import string
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from ...files import write_whole
from ...plots import styled
from ...runtime import printable, progress_bar
from ...version import __version__
from ..experiment import new_figure
from ..runner import FAILURES
from .ranking import LEVEL, Recommendation, rule
from .result import ComparisonResult, heading, ranking_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None
REFIT_SECONDS = 20.0
"""A learner that took longer for a fit is not fitted again for a figure."""
COLUMNS = {
    "behind best": "how much higher the loss is than the best learner’s, on the same folds, with its standard error.",
    "p": "how often equally good learners would show a difference of that size (paired test).",
    "tied": "within one standard error of the best learner’s figure, and p at least 0.05.",
    "evals, seconds, MB": "evaluations of objective and gradient, time and memory of one fit.",
}


class Picture(NamedTuple):
    """A figure ready for a page: ``data`` is a PNG in base64; ``kind`` says how wide it is."""

    title: str
    caption: str
    data: str
    kind: str


Content = Iterator[Picture | str]
"""Figures, and pieces of HTML."""
Draw = Callable[[ComparisonResult, str | None], Content]


class Section(NamedTuple):
    """A part of a report. In ``title``, ``{method}`` is the recommended learner; without a title it goes to the end."""

    name: str
    draw: Draw
    title: str
    words: str
    task: str | None

    def content(self, result: ComparisonResult, method: str | None) -> list[Picture | str]:
        """Drawn now, or reused from an earlier run; a note if these data cannot be drawn."""
        path = cache_path(result.comparison.out, self.name, [*result.records, method])
        if path is not None and path.exists():
            return read_cache(path)
        try:
            content = _drawn(self, result, method)
        except FAILURES as error:  # a failed figure must not prevent the report
            if not HAS_MATPLOTLIB:
                return []  # the report says so once
            content = [f'<p class="note">No {escape(self.name.replace("_", " "))}: {escape(str(error))}</p>']
            if isinstance(error, ImportError | MemoryError):
                return content  # another run may have what this one lacks
        if path is not None and HAS_MATPLOTLIB:
            write_whole(path, lambda file: json.dump(content, file), "w")
        return content


SECTIONS: list[Section] = []
"""The sections after the ranking, in order. Those without a title share the heading “Inside the learners”."""


def section(title: str = "", words: str = "", task: str | None = None) -> Callable[[Draw], Section]:
    """Make a function the next section of the report, for one kind of ``task`` or for all."""

    def register(draw: Draw) -> Section:
        SECTIONS.append(Section(draw.__name__, draw, title, words, task))
        return SECTIONS[-1]

    return register


def _drawn(part: Section, result: ComparisonResult, method: str | None) -> list[Picture | str]:
    with warnings.catch_warnings(), styled() if HAS_MATPLOTLIB else contextlib.nullcontext():
        warnings.simplefilter("ignore")
        return list(part.draw(result, method))


def cache_path(out: pathlib.Path | None, name: str, figures: Sequence[object]) -> pathlib.Path | None:
    """The file of a section drawn of these figures; ``None`` without a directory."""
    digest = hashlib.sha256(json.dumps([name, __version__, figures]).encode()).hexdigest()[:16]
    return None if out is None else out / "pictures" / f"{digest}.json"


def read_cache(path: pathlib.Path) -> list[Picture | str]:
    """The content of a section."""
    try:
        content = [part if isinstance(part, str) else Picture(*part) for part in json.loads(path.read_text())]
        if not all(isinstance(text, str) for part in content if isinstance(part, Picture) for text in part):
            raise TypeError("A picture is four texts.")
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {str(error).rstrip('.')}. Delete it, and it is drawn again.") from error
    return content


def picture(figure: Figure, title: str, caption: str, kind: str) -> Picture:
    """A figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return Picture(title, caption, base64.b64encode(buffer.getvalue()).decode(), kind)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], classes: Sequence[str] = ()) -> str:
    """A table that scrolls if it is wider than the page. Cells are escaped; ``classes`` are CSS classes of the rows."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = ""
    for row, kind in zip(rows, classes or [""] * len(rows), strict=True):
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        body += f'<tr class="{kind}">{cells}</tr>' if kind else f"<tr>{cells}</tr>"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _ranking(result: ComparisonResult, method: str | None) -> Content:
    """The learners by loss, with standard errors."""
    figure, axes = new_figure(5.6, 0.9 + 0.27 * len(result.finished_rows))
    result.plot(axes, method)
    words = (
        f"Each point is a learner: its {result.task.loss_name} on rows it had not seen, with one standard error. The "
        "gray band is one standard error of the best: what lies beyond it is not tied."
    )
    yield picture(figure, "Who predicts best", words, "wide")


def write_report(results: Sequence[ComparisonResult], path: pathlib.Path, progress: bool | None = None) -> pathlib.Path:
    """Draw and write the page of one or several tables, all of one comparison, and return its path."""
    from . import figures, predictions  # noqa: F401 — their sections

    task = results[0].task
    sections = [Section("ranking", _ranking, "", "", None), *(s for s in SECTIONS if s.task in (None, task.kind))]
    with progress_bar(len(results) * len(sections), "report", progress, log=True) as bar:
        parts: list[str] = []
        for result in results:
            method = result.recommendation.method if result.finished_rows else None
            contents = []
            for part in sections:
                bar.set_postfix_str(printable(f"{result.table.name}, {part.name}"))
                contents.append((part, part.content(result, method)))
                bar.update()
            parts += _table_section(result, method, contents, path.parent)
    names = ", ".join(result.table.name for result in results)
    page = _page(f"How to learn a kernel on {names}", results[0], "\n".join(parts))
    write_whole(path, lambda file: file.write(page.encode()))
    return path


def _page(title: str, result: ComparisonResult, body: str) -> str:
    settings, task = result.settings, result.task
    texts = {"title": title, "version": __version__, "kernel": settings.kernel}
    texts["tried"] = "One way to learn was tried, and scored on rows it had not seen."
    if len(settings.methods) > 1:
        texts["tried"] = (
            f"{len(settings.methods)} ways to learn were tried on the same rows and scored on rows they had not seen. "
            f"This page says which one to use, and how certain that is. The rule: {rule(task)}"
        )
    texts["limit"] = "all rows for every learner"
    if settings.budget is not None:
        texts["limit"] = f"at most {settings.budget:g} CPU s for one learner on one table"
    texts["date"] = datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y")
    folds = "folds" if result.table.groups is None else "folds of whole groups"
    texts["test"] = "a test table" if settings.folds == 1 else f"{settings.folds} {folds} (seed {settings.seed})"
    meanings = {score.header.removesuffix(" %"): score.meaning for score in task.scores}
    columns = _terms({**meanings, **({"bound": task.bound} if task.bound else {}), **COLUMNS})
    descriptions = _terms({name: result.learners[name].description for name in settings.methods})
    template = string.Template(importlib.resources.files(__package__).joinpath("report.html").read_text("utf-8"))
    return template.substitute(
        {k: escape(v) for k, v in texts.items()}, body=body, columns=columns, descriptions=descriptions
    )


def _terms(words: Mapping[str, str]) -> str:
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in words.items())


def _table_section(
    result: ComparisonResult,
    method: str | None,
    contents: list[tuple[Section, list[Picture | str]]],
    folder: pathlib.Path,
) -> Iterator[str]:
    yield f"<h2>{escape(heading(result.table))}</h2>"
    yield _advice(result, None if method is None else result.recommendation)
    notes = [] if method is None else [_saved_model(result, method, folder)]
    notes += [f"{note}." for note in result.table.notes]
    if result.test is not None:
        notes.append(f"Scored on {len(result.test.y)} rows of {result.test.name}.")
    yield from (f'<p class="note">{escape(note)}</p>' for note in notes)
    (_, ranking), *others = contents
    yield _html(ranking)
    marks = ["out" if not row.finished else "chosen" if row.method == method else "" for row in result.rows]
    yield html_table(*ranking_table(result.rows, result.task, full=True), marks)
    yield from (f'<p class="note">* {escape(row.method)}: {escape(row.note)}.</p>' for row in result.rows if row.note)
    for part, blocks in others:
        if part.title and blocks:
            words = f"<p>{escape(part.words)}</p>" if part.words else ""
            yield f"<h3>{escape(part.title.format(method=method))}</h3>{words}{_html(blocks)}"
    inside = [block for part, blocks in others if not part.title for block in blocks]
    if inside:
        yield f"<h3>Inside the learners</h3>{_html(inside)}"
    if not HAS_MATPLOTLIB:
        yield '<p class="note">Pictures need matplotlib: pip install kernel-embed[plots].</p>'


def _saved_model(result: ComparisonResult, method: str, folder: pathlib.Path) -> str:
    """A sentence on the file that holds the recommended learner, fitted to all rows."""
    row = next(row for row in result.rows if row.method == method)
    if row.note or row.seconds > REFIT_SECONDS:
        return "It takes long to fit, so it was not fitted again to all rows."
    refusal = cache_path(result.comparison.out, "refusal", [*result.records, method])
    if refusal is not None and refusal.exists():
        return str(read_cache(refusal)[0])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = result.save(folder)
    except FAILURES as error:
        sentence = f"Fitted to all rows it could not be saved: {str(error).split('. ')[0]}."
        if refusal is not None:
            write_whole(refusal, lambda file: json.dump([sentence], file), "w")
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
        f"{why}{worse}<pre>{escape(result.code(advice.method))}</pre></div>"
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
