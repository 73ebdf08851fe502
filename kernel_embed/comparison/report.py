"""The comparison as one page: words, table and pictures in a single file that needs no network."""

from __future__ import annotations

import datetime
import html
import importlib.util
import pathlib
from collections.abc import Sequence

from ..files import write_whole
from ..version import __version__
from .pictures import Picture, pictures
from .ranking import Row
from .recommendation import Recommendation, recommend, verdict
from .study import Comparison
from .summary import HEADER, cells, heading
from .tables import UserTable

STYLE = """
:root { color-scheme: light; --line: #d8dee6; --soft: #f5f7fa; --mark: #c0392b; }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, sans-serif; color: #1d2733; background: #fff; margin: 0 auto; padding: 1.2rem;
  max-width: 70rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .4rem 0; }
h2 { font-size: 1.35rem; margin: 2.4rem 0 .6rem; border-top: 2px solid var(--line); padding-top: 1.2rem; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p, li, dd { max-width: 46rem; }
.note { color: #566373; font-size: .92rem; }
.use { background: var(--soft); border-left: 5px solid var(--mark); padding: .8rem 1rem; margin: 1rem 0; }
.use strong { font-size: 1.15rem; }
pre { background: #fff; border: 1px solid var(--line); padding: .6rem .8rem; overflow-x: auto; font-size: .85rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; white-space: nowrap; }
th, td { padding: .3rem .45rem; text-align: right; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
tr.chosen td { background: #fdf3f1; font-weight: 600; }
tr.out td { color: #8a95a3; }
figure { margin: 0; }
figure img { width: 100%; height: auto; display: block; }
figcaption { font-size: .85rem; color: #44505e; }
figcaption b { color: #1d2733; }
.wide { max-width: 40rem; }
.half { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr)); gap: 1.2rem; }
.quarter { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 15rem), 1fr)); gap: 1rem; }
.small { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: .8rem; }
dt { font-weight: 600; margin-top: .4rem; } dd { margin: 0 0 .2rem 0; }
@media (max-width: 40rem) { body { padding: .8rem; } h1 { font-size: 1.35rem; } }
"""

COLUMNS = {
    "accuracy": "share of held-out labels that were predicted right.",
    "NLL": "negative log probability of the held-out labels, in nats: 0 is certainty in the right label, log of the "
    "number of classes is guessing. It is what learners are ranked by, because it asks for good probabilities, not "
    "only for good labels.",
    "Brier": "mean squared distance of the probabilities from the truth.",
    "calibration": "how far stated probabilities are from the shares that turn out right (expected calibration error).",
    "behind the best": "how much more NLL than the best learner, on the same folds, with its standard error. “level”: "
    "within that error. “worse”: a difference that is not chance (paired, adjusted for the number of rows, 5 %). "
    "“unclear”: neither.",
    "bound": "the tight form of the paper’s bound of a loss of at most 1 on new data; 1 or more says nothing. "
    "It is a measure of complexity, not a guarantee: kernel and norm were learned on the rows it is computed from.",
    "evals, seconds, MB": "evaluations of objective and gradient, time and memory of one fit.",
}

SECTIONS = {
    "reliability": (
        "Can the probabilities be taken at their word?",
        "Of all predictions made with about 70 % confidence, 70 % should be right: points on the dashed line. Points "
        "below it are overconfident. Bars show how many predictions were made with that confidence.",
    ),
    "maps": (
        "What was learned, on a plane",
        "Colours are class probabilities, mixed where the learner is unsure; points are data. {plane}",
    ),
    "more": ("Inside the learners", ""),
}


def write_report(
    comparison: Comparison, ranked: Sequence[tuple[UserTable, UserTable | None, Sequence[Row]]], path: pathlib.Path
) -> pathlib.Path:
    """Write the page and return its path."""
    parts = [_table_section(comparison, train, test, rows) for train, test, rows in ranked]
    names = ", ".join(train.name for train, *_ in ranked)
    page = _page(f"How to learn a kernel on {names}", comparison, "\n".join(parts))
    write_whole(path, lambda file: file.write(page.encode()))
    return path


def _page(title: str, comparison: Comparison, body: str) -> str:
    settings = comparison.settings
    held = "a test table" if settings.folds == 1 else f"{settings.folds} folds (seed {settings.seed})"
    limit = (
        "all rows for every learner"
        if settings.budget is None
        else f"at most {settings.budget:g} s of the processor for one learner on one table"
    )
    made = datetime.datetime.now(datetime.timezone.utc).strftime("%d %B %Y")
    terms = "".join(f"<dt>{_t(name)}</dt><dd>{_t(words)}</dd>" for name, words in COLUMNS.items())
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
<p>{len(settings.methods)} ways to learn were tried on the same rows and judged on rows they had not seen. This page
says which one to use, and how sure that is.</p>
<p class="note">kernel_embed {_t(__version__)}, {made}; {_t(held)}; kernel {_t(settings.kernel)}; {_t(limit)}. Every
learner gets the table in the form that suits it, learned on the training rows.</p>
{body}
<h2>Words</h2>
<h3>Columns</h3>
<dl>{terms}</dl>
<h3>Learners</h3>
<dl>{learned}</dl>
</body>
</html>
"""


def _table_section(comparison: Comparison, train: UserTable, test: UserTable | None, rows: Sequence[Row]) -> str:
    done = [row for row in rows if row.finished]
    advice = recommend(rows) if done else None
    drawn = pictures(comparison, train, rows, advice.method if advice else None)
    parts = [f"<h2>{_t(heading(train))}</h2>", _advice(comparison, advice, rows)]
    parts += [f'<p class="note">{_t(note)}.</p>' for note in train.notes]
    if test is not None:
        parts.append(f'<p class="note">Judged on {len(test.y)} rows of {_t(test.name)}.</p>')
    parts += [_figures(drawn["ranking"]), _html_table(rows, advice)]
    parts += [f'<p class="note">* {_t(row.method)}: {_t(row.note)}.</p>' for row in rows if row.note]
    for name in ("reliability", "maps"):
        if drawn[name]:
            title, words = SECTIONS[name]
            parts.append(f"<h3>{_t(title)}</h3><p>{_t(words.format(plane=_plane_words(train)))}</p>")
            parts.append(_figures(drawn[name]))
    inside = [p for name in ("relevance", "learning", "evidence", "posterior", "witness") for p in drawn[name]]
    if inside:
        parts += [f"<h3>{SECTIONS['more'][0]}</h3>", _figures(inside)]
    if not any(drawn.values()) and importlib.util.find_spec("matplotlib") is None:
        parts.append('<p class="note">Pictures need matplotlib: pip install kernel-embed[plots].</p>')
    return "\n".join(parts)


def _advice(comparison: Comparison, advice: Recommendation | None, rows: Sequence[Row]) -> str:
    if advice is None:
        return '<div class="use">No learner finished; the table says why.</div>'
    learner = comparison.learners[advice.method]
    others = [method for method in advice.level if method != advice.method]
    level = f"<p>Within one standard error as well: {_t(', '.join(others))}.</p>" if others else ""
    sure = [row.method for row in rows if row.finished and verdict(row, rows[0]) == "worse"]
    worse = f"<p>Worse, beyond chance: {_t(', '.join(sure))}.</p>" if sure else ""
    return (
        f'<div class="use"><strong>Use “{_t(advice.method)}”</strong>: {_t(learner.words)}.'
        f"<p>{_t(advice.why)}</p>{level}{worse}<pre>{_t(learner.code)}</pre></div>"
    )


def _html_table(rows: Sequence[Row], advice: Recommendation | None) -> str:
    head = "".join(f"<th>{_t(name)}</th>" for name in HEADER)
    lines = []
    for row in rows:
        kind = "out" if not row.finished else "chosen" if advice and row.method == advice.method else ""
        body = "".join(f"<td>{_t(cell)}</td>" for cell in cells(row, rows[0]))
        lines.append(f'<tr class="{kind}">{body}</tr>')
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _figures(found: Sequence[Picture]) -> str:
    if not found:
        return ""
    items = []
    for picture in found:
        caption = f"<b>{_t(picture.title)}.</b> {_t(picture.caption)}"
        image = f'<img alt="{_t(picture.title)}" src="data:image/png;base64,{picture.data}">'
        items.append(f"<figure>{image}<figcaption>{caption}</figcaption></figure>")
    return f'<div class="{found[0].kind}">{"".join(items)}</div>'


def _plane_words(table: UserTable) -> str:
    if len(table.features) == 2:
        return ""
    return (
        "These data have more than two features, so each learner was learned again on their two principal axes: the "
        "maps show its character, not its accuracy."
    )


def _t(text: str) -> str:
    return html.escape(str(text))
