"""Draw the pictures of the index, of the how-to pages and of tables: ``python docs/pictures.py``.

It takes a few seconds. Pictures of speeds, type II errors and the graphs of ozone are drawn from the tables on
their pages, so that the two cannot differ. ``python docs/pictures.py DIR`` draws Figure 2 of the Bayesian embeddings
too, from what ``kernel-embed reproduce two-sample --out DIR`` has written.
"""

from __future__ import annotations

import math
import pathlib
import re
import sys

import gpytorch
import torch
from matplotlib.axes import Axes
from sklearn.datasets import make_moons

import kernel_embed as ke
from kernel_embed import plots
from kernel_embed.lab.papers import EXPERIMENTS
from kernel_embed.lab.papers import flaxman2016_grid as grid
from kernel_embed.lab.papers import flaxman2016_ozone as ozone
from kernel_embed.lab.papers.flaxman2016_grid import Errors
from kernel_embed.plots.style import ACCENT, BAND, OTHER, finished, line_style, marker
from kernel_embed.results import Results

STATIC = pathlib.Path(__file__).parent / "_static"


def two_peaks() -> tuple[torch.Tensor, torch.Tensor]:
    """The two samples of the page on two-sample tests."""
    generator = torch.Generator().manual_seed(0)
    before = torch.randn(200, 1, generator=generator, dtype=torch.float64)
    side = torch.where(torch.rand(200, 1, generator=generator) < 0.5, -1.0, 1.0)
    after = 0.9 * side + 0.45 * torch.randn(200, 1, generator=generator, dtype=torch.float64)
    return before, after


def draw_classes(ax) -> None:
    """Class probabilities over a plane; hue is the class, and lightness the certainty."""
    points, labels = make_moons(160, noise=0.25, random_state=0)
    x, y = torch.tensor(points), torch.tensor(labels)
    embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(ard_num_dims=2).double(), num_classes=2)
    ke.fit(embedding, ke.default_objective(), x, y, progress=False)
    plots.plot_decision_map(embedding.condition(x, y), ax=ax)
    ax.get_legend().remove()
    ax.set_title("classify: pale where unsure")


def draw_distribution(ax) -> None:
    """Quantiles of a target with two branches."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(300, 1, generator=generator, dtype=torch.float64)
    side = torch.where(torch.rand(300, generator=generator) < 0.5, 1.0, -1.0).double()
    noise = (0.05 + 0.2 * x[:, 0]) * torch.randn(300, generator=generator, dtype=torch.float64)
    y = side * (0.5 + x[:, 0]) + noise
    embedding = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel().double())
    ke.fit(embedding, ke.LeaveOneOutScore(), x, y, progress=False)
    grid = torch.linspace(0.0, 1.0, 80, dtype=torch.float64).unsqueeze(-1)
    levels = torch.tensor([0.05, 0.25, 0.75, 0.95], dtype=torch.float64)
    with torch.no_grad():
        quantiles = embedding.condition(x, y).quantile(levels, grid).numpy()
    ax.fill_between(grid[:, 0], quantiles[:, 0], quantiles[:, 3], color=BAND, linewidth=0)
    ax.plot(x[:, 0], y, ".", color="0.55", markersize=3)
    for number, column in enumerate((1, 2)):
        ax.plot(grid[:, 0], quantiles[:, column], **line_style(number))
    ax.set(xlabel="x", ylabel="y", title="predict a distribution: two branches")


def draw_witness(ax) -> None:
    """Where two samples differ."""
    before, after = two_peaks()
    result = ke.two_sample_test(before, after, seed=0)
    grid = torch.linspace(-1.9, 1.9, 200, dtype=torch.float64).unsqueeze(-1)  # where there are data
    plots.plot_witness(result.witness(noise="central-limit"), grid, ax=ax)
    ax.set_title("positive: more mass before")


def measured() -> dict[str, list[tuple[str, int, float, float]]]:
    """The tables of the page on speed: by title, rows of name, n, seconds and ratio."""
    page = (STATIC.parent / "replication" / "speed.md").read_text(encoding="utf-8")
    tables: dict[str, list[tuple[str, int, float, float]]] = {}
    for block in re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL):
        rows: list[tuple[str, int, float, float]] = []  # of a table without a title, which is left out
        for line in block.splitlines():
            title = re.match(r"(\S.*) \(ratio to: .*\)$", line)
            row = re.match(r"(\S.*?)  +(\d+) +([\d.]+) (ms|s) +([\d.]+)", line)
            if title:
                rows = tables.setdefault(title[1], [])
            elif row:
                rows.append((row[1], int(row[2]), float(row[3]) / (1000 if row[4] == "ms" else 1), float(row[5])))
    return tables


def plot_seconds(lines: dict[str, tuple[list[float], list[float]]], ax: Axes) -> None:
    """Seconds by the number of rows, one line for each learner."""
    for number, (name, (sizes, seconds)) in enumerate(lines.items()):
        ax.loglog(sizes, seconds, marker=marker(number), label=name, **line_style(number))
    rows = sorted({size for sizes, _ in lines.values() for size in sizes})
    ax.grid(color="0.92", which="both")
    ax.set_xticks(rows, [f"{size:g}" for size in rows])
    ax.set_xticks([], minor=True)
    finished(ax, "rows", "seconds to a learned classifier")


def plot_ratios(ratios: dict[str, float], ax: Axes) -> None:
    """The times of other libraries as multiples of ours, the largest on top."""
    order = sorted(filter(lambda name: math.isfinite(ratios[name]), ratios), key=lambda name: ratios[name])
    patches = ax.barh(order, [ratios[name] for name in order], color=OTHER)
    ax.bar_label(patches, [f"{ratios[name]:.3g}×" for name in order], padding=3, fontsize="x-small")
    ax.axvline(1.0, color=ACCENT, lw=1)
    ax.set_xscale("log")
    ax.set_xlim(right=4.0 * ratios[order[-1]])
    ax.tick_params(axis="y", labelsize="x-small")
    finished(ax, "time as a multiple of ours (log scale)")


def draw_benchmark() -> None:
    """Seconds to a classifier by size, and how many times as long as ours the others take, sorted."""
    tables = measured()
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for name, n, seconds, _ in tables.pop("time to a learned classifier"):
        sizes, values = lines.setdefault(name, ([], []))
        sizes.append(n)
        values.append(seconds)
    ratios = {
        f"{title}: {name}": ratio
        for title, rows in tables.items()
        for name, _, _, ratio in rows
        if not name.startswith("ours")
    }
    figure = plots.free_figure(7.2, 7.2)
    upper, lower = figure.subplots(2, 1, height_ratios=[1, 1.2])
    plot_seconds(lines, upper)
    plot_ratios(ratios, lower)
    figure.savefig(STATIC / "benchmark.png", dpi=100)


def type_two_errors() -> Errors:
    """Type II error by test and ratio, from the table of its page."""
    page = (STATIC.parent / "replication" / "bayesian.md").read_text(encoding="utf-8")
    (_, *ratios), *rows = map(cells, type_two_table(page))
    return {name: {float(r): float(error) for r, error in zip(ratios, row, strict=True)} for name, *row in rows}


def draw_type_two() -> None:
    """Type II error over the ratio."""
    grid.draw_errors(type_two_errors(), STATIC / "bayesian" / "figure2c.png")


def draw_grid(results: pathlib.Path) -> None:
    """Figure 2: the evidence from ``results``, type II errors from the table of their page."""
    experiment = EXPERIMENTS["two-sample"]
    records = experiment.own(Results(results, experiment.key).records)
    grid.draw_figure(records, type_two_errors(), STATIC / "bayesian" / "figure2.png")


def type_two_table(page: str) -> list[str]:
    """The lines of the table whose first column is ε, without its rule."""
    found = re.search(r"^\| ε \|.*\n\|[-|]+\n(?:\|.*\n)+", page, flags=re.MULTILINE)
    if found is None:
        raise ValueError("Expected a table over ε on the page of the Bayesian embeddings, got none. Write it there.")
    head, _, *rows = found[0].splitlines()
    return [head, *rows]


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def draw_ozone() -> None:
    """The graphs of ozone, from the table of edges on its page."""
    page = (STATIC.parent / "replication" / "bayesian.md").read_text(encoding="utf-8")
    lines = re.search(r"```text\nedge  (.*?)```", page, flags=re.DOTALL)
    if lines is None:
        raise ValueError("Expected a table of edges on the page of the Bayesian embeddings, got none. Write it there.")
    _, rule, *rows = f"edge  {lines[1]}".splitlines()
    ends = [match.end() for match in re.finditer("-+", rule)]
    records = []
    for row in rows:
        for test, start, end in zip(ozone.TESTS, ends, ends[1:], strict=False):
            cell = row[start:end].split()
            if cell:
                records.append({"test": test, "first": cell[0], "mark": cell[1], "second": cell[2]})
    EXPERIMENTS["ozone"].draw(records, STATIC / "tests")


def main() -> None:
    """Draw and save all of them."""
    with plots.styled():
        for name, draw in (("classes", draw_classes), ("distribution", draw_distribution), ("witness", draw_witness)):
            figure = plots.free_figure(4.2, 3.4)
            panel = figure.subplots()
            draw(panel)
            if name == "witness":
                panel.get_legend().remove()
                panel.set_title("test: do two samples differ, and where?")
            (STATIC / "index").mkdir(exist_ok=True)
            figure.savefig(STATIC / "index" / f"{name}.png", dpi=120)
        alone = plots.free_figure(6.4, 3.2)
        draw_witness(alone.subplots())
        (STATIC / "how_to").mkdir(exist_ok=True)
        alone.savefig(STATIC / "how_to" / "witness.png", dpi=110)
        draw_benchmark()
    draw_type_two()
    draw_ozone()
    if len(sys.argv) > 1:
        draw_grid(pathlib.Path(sys.argv[1]) / "results.json")


if __name__ == "__main__":
    main()
