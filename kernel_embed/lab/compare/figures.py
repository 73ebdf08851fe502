"""Sections of a report, with figures and tables; here those about learners and their parameters.

A section is a function of a :class:`~kernel_embed.lab.compare.ComparisonResult` under :func:`section`. To add one,
write it and name it in ``SECTIONS`` of :mod:`kernel_embed.lab.compare.report`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import importlib.util
import io
import json
import pathlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...files import write_whole
from ...plots import plot_convergence, plot_draws, styled
from ...plots.style import ACCENT, OTHER
from ...splits import proportional_sample
from ...version import __version__
from ..experiment import new_figure
from ..runner import FAILURES, take
from .result import ComparisonResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None
REFIT_SECONDS = 20.0
"""A learner that took longer for a fit is not fitted again for a figure."""
CURVE_SECONDS = 10.0
"""Likewise for a learning curve, which takes five fits."""
MOST_FEATURES, MOST_NUMBERS = 15, 6


class Picture(NamedTuple):
    """A figure ready for a page: ``data`` is a PNG in base64; ``kind`` says how wide it is."""

    title: str
    caption: str
    data: str
    kind: str


Content = Iterator[Picture | str]
"""Figures, and pieces of HTML."""


class Section(NamedTuple):
    """A part of a report. In ``title``, ``{method}`` is the recommended learner; without a title it goes to the end."""

    name: str
    draw: Callable[[ComparisonResult, str | None], Content]
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
            content = [f'<p class="note">No {html.escape(self.name.replace("_", " "))}: {html.escape(str(error))}</p>']
            if isinstance(error, ImportError | MemoryError):
                return content  # another run may have what this one lacks
        if path is not None and HAS_MATPLOTLIB:
            write_cache(path, content)
        return content


def section(
    title: str = "", words: str = "", task: str | None = None
) -> Callable[[Callable[[ComparisonResult, str | None], Content]], Section]:
    """Make a section of a function of the result and the recommended learner, if there is one."""
    return lambda draw: Section(draw.__name__, draw, title, words, task)


def _drawn(part: Section, result: ComparisonResult, method: str | None) -> list[Picture | str]:
    with warnings.catch_warnings(), styled() if HAS_MATPLOTLIB else contextlib.nullcontext():
        warnings.simplefilter("ignore")
        return list(part.draw(result, method))


def cache_path(out: pathlib.Path | None, name: str, figures: Sequence[object]) -> pathlib.Path | None:
    """The file of a section drawn of these figures; ``None`` without a directory."""
    digest = hashlib.sha256(json.dumps([name, __version__, figures]).encode()).hexdigest()[:16]
    return None if out is None else out / "pictures" / f"{digest}.json"


def write_cache(path: pathlib.Path, content: Sequence[Picture | str]) -> None:
    """Keep the content of a section for the next run."""
    write_whole(path, lambda file: json.dump(content, file), "w")


def read_cache(path: pathlib.Path) -> list[Picture | str]:
    """The content of a section."""
    try:
        content = [part if isinstance(part, str) else Picture(*part) for part in json.loads(path.read_text())]
        if not all(isinstance(text, str) for part in content if isinstance(part, Picture) for text in part):
            raise TypeError("A picture is four texts.")
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {str(error).rstrip('.')}. Delete it, and it is drawn again.") from error
    return content


def plain(text: str) -> str:
    """A text of the user for matplotlib, which takes what is between two dollar signs for a formula."""
    return text.replace("$", r"\$")


def picture(figure: Figure, title: str, caption: str, kind: str) -> Picture:
    """A figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return Picture(title, caption, base64.b64encode(buffer.getvalue()).decode(), kind)


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]], classes: Sequence[str] = ()) -> str:
    """A table that scrolls if it is wider than the page; every cell is escaped. ``classes`` are those of its rows."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
    body = ""
    for row, kind in zip(rows, classes or [""] * len(rows), strict=True):
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        body += f'<tr class="{kind}">{cells}</tr>' if kind else f"<tr>{cells}</tr>"
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


@section()
def ranking(result: ComparisonResult, method: str | None) -> Content:
    """The learners by loss, with standard errors."""
    figure, axes = new_figure(5.6, 0.9 + 0.27 * len(result.finished_rows))
    result.plot(axes, method)
    yield picture(
        figure,
        "Who predicts best",
        f"Each point is a learner: its {result.task.loss_name} on rows it had not seen, with one standard error. The "
        "gray band is one standard error of the best: what lies beyond it is not tied.",
        "wide",
    )


@section()
def learned_numbers(result: ComparisonResult, method: str | None) -> Content:
    """λ, lengthscales and weights of every learner that has them."""
    lines = []
    for row in result.rows:
        folds = result.folds(row.method)
        cells = [_typical([fold.get(name) for fold in folds]) for name in ("regularization", "lengthscale")]
        cells.append(_typical([fold.get("weights") for fold in folds], geometric=False))
        if any(cells):
            lines.append([row.method, *cells])
    if lines:
        width = 4 if any(line[3] for line in lines) else 3
        yield "<p>What each learner found: ridge, and lengthscales of scaled features; geometric means over folds.</p>"
        yield html_table(["learner", "λ", "lengthscales", "weights"][:width], [line[:width] for line in lines])


def _typical(values: Sequence[NDArray[np.float64] | None], geometric: bool = True) -> str:
    arrays = [value for value in values if value is not None and (not geometric or (value > 0).all())]
    if not arrays or len({array.shape for array in arrays}) > 1:
        return ""
    means = np.exp(np.mean(np.log(arrays), axis=0)) if geometric else np.mean(arrays, axis=0)
    text = ", ".join(f"{value:.2g}" for value in means[:MOST_NUMBERS])
    return text if len(means) <= MOST_NUMBERS else f"{text}, … ({len(means)})"


def importances(result: ComparisonResult) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """The columns and their importance to the default learner, the mean over folds; empty if it has none."""
    folds = [fold for fold in result.folds("default") if "importance" in fold]
    if not folds:
        return np.array([]), np.array([])
    names = folds[0]["importance_names"]
    same = [fold["importance"] for fold in folds if fold["importance_names"].tolist() == names.tolist()]
    return names, np.mean(same, axis=0)


@section()
def importance(result: ComparisonResult, method: str | None) -> Content:
    """The importance of each column."""
    names, increase = importances(result)
    if len(names) < 2:
        return
    most = np.argsort(-increase)[:MOST_FEATURES]
    figure, axes = new_figure(5.0, 1.0 + 0.26 * len(most))
    axes.barh([plain(str(names[j])) for j in most], increase[most], color=OTHER)
    axes.invert_yaxis()
    axes.set_xlabel("increase in loss if the column is permuted")
    yield picture(
        figure,
        f"{result.task.depends} on",
        f"Of {len(increase)} columns, for the default learner: how much worse it predicts rows that it was not "
        "fitted to when the values of the column are exchanged between rows. Averaged over folds.",
        "half",
    )


@section()
def learning_curve(result: ComparisonResult, method: str | None) -> Content:
    """The loss on the held-out rows of the first fold, for the recommended learner on a growing part of the others."""
    row = next((row for row in result.finished_rows if row.method == method), None)
    if row is None or row.seconds > CURVE_SECONDS or row.folds is None:
        return
    x, y, x_test, y_test = result.comparison.split(result.table, None, 0)
    sizes, values = [], []
    for share in (0.1, 0.2, 0.4, 0.7, 1.0):
        rows = proportional_sample(y, max(int(share * len(y)), 10), result.settings.seed)
        make = result.learners[row.method].for_tables
        measured = result.task.measure(make, (take(x, rows), y[rows], x_test, y_test), result.table.y)
        sizes.append(len(rows))
        values.append(measured.record[result.task.loss])
    loss, (figure, axes) = result.task.loss_name, new_figure(5.0, 3.2)
    axes.plot(sizes, np.array(values, dtype=np.float64), "o-", color=ACCENT, ms=4)
    axes.set(xlabel="rows to learn from", ylabel=f"{loss} on held-out rows", xscale="log", ylim=(0, None))
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    yield picture(
        figure,
        "Would more rows help?",
        f"{loss} of “{row.method}” on the held-out rows of the first fold, learned on a growing part of the others. If "
        "the curve still falls at its end, more rows would help; if it is flat, they would not.",
        "half",
    )


@section(task="classification")
def convergence(result: ComparisonResult, method: str | None) -> Content:
    """The objective by evaluation."""
    histories = {row.method: result.folds(row.method)[0].get("history") for row in result.finished_rows}
    lines = {name: values for name, values in histories.items() if values is not None and len(values) > 2}
    if lines:
        figure, axes = new_figure(5.0, 3.4)
        plot_convergence(lines, ax=axes)
        yield picture(
            figure,
            "How learning converges",
            "The objective of each learner above its final value, in the first fold. A line that ends early has "
            "converged early; objectives differ, so only the shapes compare.",
            "half",
        )


@section(task="classification")
def posterior_draws(result: ComparisonResult, method: str | None) -> Content:
    """Draws of the hyperparameters."""
    folds = result.folds("nuts average")
    draws = {name.removeprefix("draws "): v for name, v in (folds or [{}])[0].items() if name.startswith("draws ")}
    if not draws:
        return
    figure, axes = new_figure(5.0, 1.0 + 1.3 * len(draws), len(draws), sharex=True, squeeze=False)
    for ax, (name, values) in zip(axes[:, 0], draws.items(), strict=True):
        plot_draws(values, name, ax=ax)
    axes[-1, 0].set_xlabel("draw")
    yield picture(
        figure,
        "Draws of the hyperparameters",
        "NUTS in the first fold: one line for each parameter. A trace without trend has forgotten its start; its width "
        "is what the data leave open.",
        "half",
    )
