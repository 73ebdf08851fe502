"""The ozone experiment of the Bayesian kernel embeddings: causal graphs by PC.

Daily ozone and eight meteorological variables (Breiman and Friedman, 1985). Each is first freed of its course over the
year by a Gaussian-process regression on the day, as in Flaxman et al. (2015). Then the PC algorithm of causal-learn
uses a conditional test: residuals and HSIC as in the paper, once with kernels learned by the evidence and once with the
median heuristic; and transforms, the default of this library, which the paper does not have.
"""

from __future__ import annotations

import functools
import itertools
import math
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ...hypothesis import KernelChoice
from ...hypothesis.causal import register_causal_test
from ...hypothesis.checks import Encoding
from ...hypothesis.conditional import Method, residuals
from ...plots import save_picture
from ...plots.style import SECOND
from ...results import Record, table
from ...validation import generator_of
from ..datasets import Directory, load_table
from ..experiment import Experiment, Settings, new_figure, product_cases
from ..runner import Case

NAMES = ("Hgt", "Wind", "Hum", "Temp", "InvHt", "Pres", "InvTmp", "Vis", "Ozone")
"""The columns of the table in its order, by the names of Figure 6."""
TESTS: dict[str, tuple[Method, KernelChoice]] = {
    "transforms": ("transforms", None),
    "residuals, evidence": ("residuals", None),
    "residuals, median": ("residuals", "median"),
}
"""By name: the method, and the kernel."""
LEVEL = 0.05


@functools.lru_cache(maxsize=1)
def whitened(data: Directory = None, seed: int = 0) -> NDArray[np.float64]:
    """The nine variables without their course over the year, ``(330, 9)``."""
    x, y = load_table("ozone", data)
    values = torch.as_tensor(np.concatenate([x[:, :8], y.astype(float)[:, None]], axis=1))
    day = torch.as_tensor(x[:, 8:9])
    generator, points = generator_of(seed), Encoding(day)(day)
    # One regression for each: they do not follow the year with one smoothness.
    columns = [residuals(values[:, [j]], points, generator) for j in range(values.shape[1])]
    return torch.cat(columns, dim=1).numpy()


def edges(graph: NDArray[np.int_]) -> list[tuple[str, str, str]]:
    """From causal-learn's matrix to (first, mark, second), with mark ``→`` for a cause and ``–`` for no direction."""
    marked = []
    for i, j in itertools.combinations(range(len(graph)), 2):
        ends = graph[i, j], graph[j, i]
        if any(ends):
            first, second = (j, i) if ends == (1, -1) else (i, j)
            mark = "→" if sorted(ends) == [-1, 1] else "↔" if ends == (1, 1) else "–"
            marked.append((NAMES[first], mark, NAMES[second]))
    return marked


def _cases(settings: Settings) -> Iterator[Case]:
    return product_cases("ozone", functools.partial(_edges, settings), test=TESTS)


def _edges(settings: Settings, test: str) -> list[Record]:
    """The edges that PC leaves between (``quick``: the last of) the variables; what separates temperature and ozone."""
    method, kernel = TESTS[test]
    num_columns, num_permutations = (3, 50) if settings.quick else (len(NAMES), 500)
    values = whitened(settings.data, settings.seed)[:, -num_columns:]
    registered = register_causal_test(
        f"kernel_embed {test}", kernel=kernel, num_permutations=num_permutations, seed=settings.seed, method=method
    )
    from causallearn.search.ConstraintBased.PC import pc

    result = pc(values, LEVEL, registered, show_progress=False)
    first = len(NAMES) - num_columns
    graph = np.zeros((len(NAMES), len(NAMES)), dtype=int)
    graph[first:, first:] = result.G.graph
    records: list[Record] = [{"first": a, "mark": mark, "second": b} for a, mark, b in edges(graph)]
    temperature, ozone = NAMES.index("Temp") - first, NAMES.index("Ozone") - first
    separating = result.sepset[temperature, ozone] if temperature >= 0 else None
    sets = "; ".join(" ".join(NAMES[first + k] for k in one) or "nothing" for one in separating or ())
    records.append({"first": "Temp", "mark": "separated by", "second": sets})
    return [{"level": LEVEL, "n": len(values), **record} for record in records]


def _summarize(records: Sequence[Record]) -> str:
    pairs: dict[tuple[str, ...], dict[str, str]] = {}
    for record in records:
        if record["mark"] != "separated by":
            a, mark, b = (str(record[word]) for word in ("first", "mark", "second"))
            pairs.setdefault(tuple(sorted((a, b))), {})[str(record["test"])] = f"{a} {mark} {b}"
    rows = [[" ".join(pair), *(marks.get(test, "") for test in TESTS)] for pair, marks in sorted(pairs.items())]
    text = table(["edge", *TESTS], rows)
    for record in records:
        if record["mark"] == "separated by" and record["second"]:
            text += f"\n\nBy {record['test']}, temperature and ozone are separated by: {record['second']}."
    return (
        f"{text}\n\nPublished (Figure 6): Temp → Ozone by residuals with the evidence; "
        "no such edge with the median heuristic."
    )


def draw(records: Sequence[Record], out: pathlib.Path) -> None:
    """``ozone.png``: the graphs on circles, edges at ozone in orange and thicker."""
    angles = (math.pi / 2 + 2 * math.pi * i / len(NAMES) for i in range(len(NAMES)))
    places = {name: (math.cos(angle), math.sin(angle)) for name, angle in zip(NAMES, angles, strict=True)}
    figure, axes = new_figure(8.0, 8.0, 2, 2)
    axes.flat[-1].set_axis_off()
    for panel, test in zip(axes.flat, TESTS, strict=False):
        for record in (r for r in records if r["test"] == test and r["mark"] != "separated by"):
            a, b = str(record["first"]), str(record["second"])
            color, width = (SECOND, 1.8) if "Ozone" in (a, b) else ("0.3", 1.0)
            style = {"→": "-|>", "↔": "<|-|>"}.get(str(record["mark"]), "-")
            arrow = {"arrowstyle": style, "color": color, "linewidth": width, "shrinkA": 22, "shrinkB": 22}
            panel.annotate("", places[b], places[a], arrowprops={**arrow, "mutation_scale": 16})
        for name, place in places.items():
            box = {"boxstyle": "round", "facecolor": "white", "edgecolor": "0.5"}
            panel.text(*place, name, ha="center", va="center", fontsize=10, bbox=box)
        panel.set(xlim=(-1.3, 1.3), ylim=(-1.25, 1.25), title=test)
        panel.set_axis_off()
    save_picture(figure, out / "ozone.png", 100)


OZONE = Experiment(
    "ozone", "the causal graph of ozone, by residuals with two kernels and by transforms", "ten minutes",
    ("experiment", "test", "first", "second"), _cases, _summarize, draw, options="data seed", files=("ozone.csv",),
    paper="Flaxman et al.", part="Figure 6",
)  # fmt: skip
