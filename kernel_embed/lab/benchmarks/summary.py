"""The report of a benchmark: ratios within one run, what was skipped, and a picture."""

from __future__ import annotations

import math
import pathlib
import statistics
from collections.abc import Sequence

from ...plots import free_figure, plot_ratios, plot_seconds, save_picture, styled
from ...results import Record, group, number, table
from ..runner import Outcome
from .measurement import NOTES
from .tables import CLASSIFIERS

FIGURES = {
    "nll": ("NLL", "{:.4g}"),
    "accuracy": ("accuracy", "{:.4g}"),
    "crps": ("CRPS", "{:.4f}"),
    "over_truth": ("over that of the true distribution", "{:.3f}"),
    "rmse": ("RMSE", "{:.3f}"),
    "coverage": ("coverage", "{:.3f}"),
    "width": ("width", "{:.3f}"),
    "pvalue": ("p", "{:.4g}"),
    "mean": ("mean", "{:.4g}"),
    "sd": ("sd", "{:.4g}"),
    "n_eff": ("n_eff", "{:.0f}"),
    "effective_per_second": ("n_eff per second", "{:.3f}"),
    "effective_per_processor_second": ("per CPU second", "{:.1f}"),
    "runs": ("median of", "{:.0f}"),
    "processor_seconds": ("CPU, s", "{:.3g}"),
    "predict_seconds": ("to predict, s", "{:.2f}"),
    "load_seconds": ("to load, s", "{:.2f}"),
    "over_cholesky": ("over Cholesky", "{:.2f}"),
    "counted": ("counted", "{:.0f}"),
    "peak_megabytes": ("peak MB", "{:.0f}"),
    "peak_squares": ("peak / n² doubles", "{:.1f}"),
}
"""Fields of a record that stand in the last column, with their labels."""


WITHOUT_BARS = (CLASSIFIERS, "objective and gradient", "one ")
"""Sections, by the start of their titles, whose ratios are not drawn."""


def ratio(record: Record, records: Sequence[Record], field: str = "seconds") -> float:
    """Time over that of the row it is compared with; NaN where one of them is missing."""
    for other in records:
        if (other["part"], other["name"], other["n"]) == (record["part"], record["against"], record["n"]):
            if record.get(field) is None or other.get(field) is None:
                return math.nan
            return number(record, field) / max(number(other, field), 1e-12)
    return math.nan


def summary(records: Sequence[Record], outcome: Outcome) -> str:
    """One table for each section, and what was skipped."""
    sections, records = [], medians(records)
    for title, own in group(records, lambda record: str(record["part"])).items():
        sections.append(f"{title} (ratio to: {own[0]['against']})\n\n{_ratios(own)}")
        sections += [text for start, note in NOTES.items() if str(title).startswith(start) and (text := note(own))]
    for name, lines in (("skipped", outcome.skipped), ("failed", outcome.failed)):
        if lines:
            sections.append("\n".join([f"{name}:", *(f"  {line}" for line in lines)]))
    return "\n\n".join(sections)


def medians(records: Sequence[Record]) -> list[Record]:
    """One record for each case: where it was run several times, the median of every number."""
    merged_records = []
    for own in group(records, lambda r: (r["part"], r["name"], r["n"], r.get("threads"))).values():
        merged = dict(own[0])
        for field, value in own[0].items():
            if isinstance(value, float):
                merged[field] = statistics.median(number(r, field) for r in own if r.get(field) is not None)
        merged_records.append({**merged, "runs": len(own)} if len(own) > 1 else merged)
    return merged_records


def _ratios(records: Sequence[Record]) -> str:
    rows = [
        [str(r["name"]), f"{r['n']}", _duration(number(r, "seconds")), _ratio(ratio(r, records)),
         _ratio(ratio(r, records, "processor_seconds")), _figures(r)]
        for r in records
    ]  # fmt: skip
    return table(["", "n", "time", "ratio", "ratio of CPU time", ""], rows)


def draw(records: Sequence[Record], out: pathlib.Path) -> list[pathlib.Path]:
    """``benchmark.png``: the time to a learned classifier, and ratios."""
    records = medians(records)
    with styled():
        figure = free_figure(11, 4.6)
        left, right = figure.subplots(1, 2)
    lines = {
        str(name): ([int(number(r, "n")) for r in own], [number(r, "seconds") for r in own])
        for name, own in group((r for r in records if r["part"] == CLASSIFIERS), lambda r: r["name"]).items()
    }
    bars = {
        f"{r['part']}: {r['name']}": ratio(r, records)
        for r in records
        if not str(r["part"]).startswith(WITHOUT_BARS) and r["name"] != r["against"]
    }
    plot_seconds(lines, ax=left)
    plot_ratios(bars, ax=right)
    out.mkdir(parents=True, exist_ok=True)
    save_picture(figure, out / "benchmark.png", 110)
    return [out / "benchmark.png"]


def _figures(record: Record) -> str:
    shown = {field: form for field, form in FIGURES.items() if record.get(field) is not None}
    return ", ".join(f"{word} {form.format(number(record, field))}" for field, (word, form) in shown.items())


def _duration(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms" if seconds < 1.0 else f"{seconds:.2f} s"


def _ratio(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
