"""The benchmark in words and pictures: ratios within one run, exponents of growth, and what was skipped."""

from __future__ import annotations

import math
import pathlib
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...plots import free_figure, plot_ratios, plot_seconds, save_picture, styled
from ...results import Record, group, number, table
from . import bounds, classifier, distributions, evaluation, profile, recipe, sizes

FIGURES = {
    "nll": ("NLL", "{:.4g}"),
    "accuracy": ("accuracy", "{:.4g}"),
    "crps": ("CRPS", "{:.4f}"),
    "over_law": ("CRPS over that of the law", "{:.3f}"),
    "relative_error": ("error of the posterior mean", "{:.4f}"),
    "largest_error": ("in the worst sample", "{:.4f}"),
    "rmse": ("RMSE", "{:.3f}"),
    "coverage": ("coverage", "{:.3f}"),
    **{f"exceeded_{form}": (f"{form} exceeded", "{:.3f}") for form in bounds.FORMS},
    "width": ("width", "{:.3f}"),
    "pvalue": ("p", "{:.4g}"),
    "objective": ("objective", "{:.6g}"),
    "value": ("value", "{:.6g}"),
    "gap": ("gap", "{:.1e}"),
    "votes": ("votes", "{:.0f}"),
    "all_pairs_seconds": ("all pairs from nothing, s", "{:.2f}"),
    "mean": ("mean log ℓ", "{:.4g}"),
    "lengthscale": ("ℓ", "{:.4f}"),
    "error": ("±", "{:.4f}"),
    "sd": ("sd", "{:.4g}"),
    "n_eff": ("n_eff", "{:.0f}"),
    "effective_per_second": ("n_eff per second", "{:.3f}"),
    "effective_per_processor_second": ("per CPU second", "{:.1f}"),
    "runs": ("median of", "{:.0f}"),
    "num_refused": ("refused", "{:.0f}"),
    "num_divergences": ("diverged", "{:.0f}"),
    "fit_seconds": ("of which fit, s", "{:.2f}"),
    "processor_seconds": ("CPU, s", "{:.1f}"),
    "predict_seconds": ("to predict, s", "{:.2f}"),
    "over_cholesky": ("over Cholesky", "{:.2f}"),
    "limit_counted": ("limit counted", "{:.0f}"),
    "limit_measured": ("limit measured", "{:.2f}"),
    "over_limit": ("over the limit measured", "{:.2f}"),
    "over_single": ("times faster than double", "{:.2f}"),
    "value_error": ("relative error of the value", "{:.1e}"),
    "gradient_error": ("of the gradient", "{:.1e}"),
    "evaluation_milliseconds": ("ms", "{:.2f}"),
    "overhead_milliseconds": ("ms above the linear algebra", "{:.2f}"),
    "peak_megabytes": ("peak MB", "{:.0f}"),
    "peak_squares": ("peak / n² doubles", "{:.1f}"),
}
"""Fields of a record that stand in the last column, with their words."""


class Outcome(NamedTuple):
    """What a run did not measure: ``skipped`` says why in words, ``failed`` names peers that do not work."""

    skipped: list[str]
    failed: list[str]


def ratio(record: Record, records: Sequence[Record], field: str = "seconds") -> float:
    """Time over that of the row it is compared with; NaN where one of them is not known."""
    for other in records:
        if (other["part"], other["name"], other["n"]) == (record["part"], record["against"], record["n"]):
            if record.get(field) is None or other.get(field) is None:
                return math.nan
            return number(record, field) / max(number(other, field), 1e-12)
    return math.nan


def summary(records: Sequence[Record], outcome: Outcome) -> str:
    """One table for each part, the exponents, and what was skipped."""
    parts, records = [], medians(records)
    for part, chosen in group(records, lambda record: record["part"]).items():
        text = growth(chosen) if part == classifier.GROWTH else _ratios(chosen)
        more = next((words(chosen) for prefix, words in WORDS.items() if str(part).startswith(prefix)), "")
        against = "" if part == classifier.GROWTH else f" (ratio to: {chosen[0]['against']})"
        parts += [f"{part}{against}\n\n{text}", *([more] if more else [])]
    for title, lines in (("skipped", outcome.skipped), ("failed", outcome.failed)):
        if lines:
            parts.append("\n".join([f"{title}:", *(f"  {line}" for line in lines)]))
    return "\n\n".join(parts)


def medians(records: Sequence[Record]) -> list[Record]:
    """One record for each case: where it was run several times, the median of every number."""
    answer = []
    for found in group(records, lambda r: (r["part"], r["name"], r["n"], r.get("threads"))).values():
        merged = dict(found[0])
        for field, value in found[0].items():
            if isinstance(value, float):
                merged[field] = statistics.median(number(r, field) for r in found if r.get(field) is not None)
        answer.append({**merged, "runs": len(found)} if len(found) > 1 else merged)
    return answer


WORDS: dict[str, Callable[[Sequence[Record]], str]] = {
    recipe.PART: recipe.words,
    evaluation.GROWTH: evaluation.growth_words,
    profile.WHERE: profile.words,
    distributions.TABLES: distributions.words,
}
"""By how the name of a part begins: what is said under its table."""


def _ratios(records: Sequence[Record]) -> str:
    rows = [
        [str(r["name"]), f"{r['n']}", _duration(number(r, "seconds")), _ratio(ratio(r, records)),
         _ratio(ratio(r, records, "processor_seconds")), _figures(r)]
        for r in records
    ]  # fmt: skip
    return table(["", "n", "time", "ratio", "ratio of CPU time", ""], rows)


def growth(records: Sequence[Record]) -> str:
    """Time and memory at every size, and the exponents of both."""
    sizes = sorted({int(number(record, "n")) for record in records})
    rows = []
    for name, found in group(records, lambda record: record["name"]).items():
        by_size = {int(number(record, "n")): record for record in found}
        times = [_duration(number(by_size[n], "seconds")) if n in by_size else "–" for n in sizes]
        known = [n for n in sizes if n in by_size]
        # Of the processor: on a busy machine the clock would say more about the neighbors.
        time_power = classifier.exponent(known, [number(by_size[n], "processor_seconds") for n in known])
        memory = [_memory(by_size[n]) for n in known]
        rows.append(
            [str(name), *times, _power(time_power), f"{memory[-1]:.0f} MB", _power(classifier.exponent(known, memory))]
        )
    head = ["", *(f"n = {n}" for n in sizes), "time ∝ n^", "memory at last", "memory ∝ n^"]
    return table(head, rows)


def draw(records: Sequence[Record], out: pathlib.Path) -> list[pathlib.Path]:
    """``benchmark.png``, the time to a learned classifier and ratios, and ``sizes.png`` where those were measured."""
    records = medians(records)
    with styled():
        figure = free_figure(11, 4.6)
        left, right = figure.subplots(1, 2)
    times = [r for r in records if r["part"] == classifier.PART]
    lines = {
        str(name): ([int(number(r, "n")) for r in found], [number(r, "seconds") for r in found])
        for name, found in group(times, lambda r: r["name"]).items()
    }
    parts = (evaluation.PART.format(words) for words in evaluation.THREADS.values())
    other = (
        classifier.GROWTH,
        classifier.PART,
        *parts,
        evaluation.GROWTH,
        evaluation.SMALL,
        evaluation.SINGLE,
        *profile.TITLES,
        sizes.PART,
    )
    bars = {
        f"{r['part']}: {r['name']}": ratio(r, records)
        for r in records
        if r["part"] not in other and r["name"] != r["against"]
    }
    plot_seconds(lines, ax=left)
    plot_ratios(bars, ax=right)
    out.mkdir(parents=True, exist_ok=True)
    save_picture(figure, out / "benchmark.png", 110)
    by_rows = [r for r in records if r["part"] == sizes.PART]
    if not by_rows:
        return [out / "benchmark.png"]
    sizes.draw(by_rows, out / "sizes.png")
    return [out / "benchmark.png", out / "sizes.png"]


def _figures(record: Record) -> str:
    shown = {field: form for field, form in FIGURES.items() if record.get(field) is not None}
    return ", ".join(f"{word} {form.format(number(record, field))}" for field, (word, form) in shown.items())


def _memory(record: Record) -> float:
    return 0.0 if record.get("peak_megabytes") is None else number(record, "peak_megabytes")


def _duration(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms" if seconds < 1.0 else f"{seconds:.2f} s"


def _ratio(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _power(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1f}"
