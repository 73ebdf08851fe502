"""Figure 2 of the Bayesian kernel embeddings: a grid of Gaussians, the lengthscale by evidence, and type II errors.

Two mixtures on a 3 × 3 grid differ inside each blob only. The median heuristic finds the distance between blobs; the
evidence (13) has its maximum at the size of a blob, and a local one near the median.
"""

from __future__ import annotations

import functools
import pathlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from numpy.typing import NDArray
from torch import Tensor

from ...embeddings import BayesianMeanEmbedding, Witness
from ...hypothesis import two_sample_test
from ...hypothesis.kernel_choice import evidence_lengthscales
from ...hypothesis.mmd import STATISTICS, statistics
from ...hypothesis.result import by_permutations
from ...hypothesis.smoothers import local_permutations
from ...kernels import median_distance
from ...learning import local_maxima
from ...objectives import EmbeddingEvidence
from ...plots import free_figure, plot_evidence_curve, plot_witness, save_picture, styled
from ...plots.style import FIRST, SECOND, array, axes_or_new, legend_below, line_style, marker
from ...results import Record, Results, column, number, table
from ..experiment import Experiment, Settings, record_table
from ..rejections import NUM_PERMUTATIONS, Design, RejectionStudy, Test, rejection_experiment, rejection_studies
from ..runner import Case

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPACING = 15.0
"""Between centres. The paper does not print it; with 10 the highest maximum is at the long lengthscale."""
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
LENGTHSCALE = 1.5
"""Published, for all ratios."""
RATIOS = (2.0, 1.5, 3.0, 1.0, 0.5, 4.0, 8.0, 15.0)
RANDOM = ", random components"
Errors: TypeAlias = Mapping[str, Mapping[float, float]]
"""Type II errors by test and ratio."""


def grid_samples(
    ratio: float = 2.0, num_per_centre: int = 100, seed: int = 0, random_components: bool = False
) -> tuple[Tensor, Tensor]:
    """Samples of P, isotropic with unit variance, and of Q, with covariance eigenvalues ``ratio`` : 1 turned by 45°.

    Every blob has ``num_per_centre`` points of each; with ``random_components`` it has that many on average.
    """
    generator = np.random.RandomState(seed)
    steps = SPACING * np.arange(-1, 2)
    centres = np.array([[a, b] for a in steps for b in steps]).repeat(num_per_centre, axis=0)
    n = len(centres)
    of_p, of_q = (centres[generator.randint(n, size=n)] if random_components else centres for _ in "pq")
    p = of_p + generator.standard_normal(centres.shape)
    turn = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2.0)
    q = of_q + (generator.standard_normal(centres.shape) * np.sqrt([ratio, 1.0])) @ turn.T
    return torch.as_tensor(p), torch.as_tensor(q)


def highest_maximum(x: Tensor) -> Kernel:
    """The kernel at the highest maximum of the evidence of all points; ``"best"`` compares maxima on some of them."""
    embedding = BayesianMeanEmbedding(RBFKernel().double(), noise=0.1)
    embedding.kernel.lengthscale = max(evidence_lengthscales(x), key=lambda value: _log_evidence(embedding, x, value))
    return embedding.kernel


def permuted_within(x: Tensor, y: Tensor, seed: int) -> float:
    """The p-value of the test with one kernel if points are relabeled within their blob only."""
    pooled = torch.cat([x, y])
    member = (torch.arange(len(pooled)) < len(x)).to(pooled)
    blobs = (pooled / SPACING).round().clamp(-1, 1)
    orders = local_permutations(blobs, NUM_PERMUTATIONS, torch.Generator().manual_seed(seed))
    E = torch.cat([member[None], member[orders]]).T.unsqueeze(1)
    T, scale = statistics([_rbf(LENGTHSCALE)], pooled, E, (len(x), len(y)), STATISTICS["biased"])
    return by_permutations(T, scale).pvalue


def _rbf(lengthscale: float) -> RBFKernel:
    kernel = RBFKernel().double().requires_grad_(False)
    kernel.lengthscale = lengthscale
    return kernel


TESTS: dict[str, Test] = {
    "evidence": lambda x, y, seed: two_sample_test(x, y, None, NUM_PERMUTATIONS, seed),
    "evidence, one kernel": lambda x, y, seed: two_sample_test(
        x, y, highest_maximum(torch.cat([x, y])), NUM_PERMUTATIONS, seed
    ),
    "lengthscale 1.5": lambda x, y, seed: two_sample_test(x, y, _rbf(LENGTHSCALE), NUM_PERMUTATIONS, seed),
    "lengthscale 1.5, permuted within blobs": permuted_within,
    "median heuristic": lambda x, y, seed: two_sample_test(x, y, "median", NUM_PERMUTATIONS, seed),
}


def samples(ax: Axes | None, p: Tensor, q: Tensor) -> Axes:
    """Two samples in the plane: P circles, Q crosses."""
    panel = axes_or_new(ax)
    for sample, name, shape, color in ((p, "P", ".", FIRST), (q, "Q", "+", SECOND)):
        panel.plot(*array(sample).T, ls="", label=name, marker=shape, color=color, markersize=3, markeredgewidth=0.6)
    panel.set(xlabel="first coordinate", ylabel="second coordinate")
    legend_below(panel)
    return panel


def _grid_cases(settings: Settings, ratio: float) -> Iterator[Case]:
    """The evidence of the pooled sample over lengthscales, its maxima, and the median heuristic."""
    per_centre = 10 if settings.quick else 100

    def evidence() -> list[Record]:
        x = torch.cat(grid_samples(ratio, per_centre, settings.seed))
        embedding = BayesianMeanEmbedding(RBFKernel().double(), noise=0.1)
        records = evidence_records(embedding, x, np.geomspace(0.3, 45.0, 48), num_points=24)
        return [*records, {"kind": "median", "lengthscale": float(median_distance(x)), "log_evidence": None}]

    yield Case({"experiment": "grid", "ratio": ratio, "n": 18 * per_centre, "seed": settings.seed}, evidence)


def evidence_records(
    embedding: BayesianMeanEmbedding, x: Tensor, lengthscales: NDArray[np.float64], num_points: int
) -> list[Record]:
    """The log evidence (13) of ``x`` at every lengthscale, and its maxima between their ends, the highest first."""
    span = float(lengthscales[0]), float(lengthscales[-1])
    maxima = local_maxima(embedding, EmbeddingEvidence(), x, num_points=num_points, span=span, progress=False)
    places = [("curve", float(value)) for value in lengthscales]
    places += [("maximum", maximum.parameters["kernel.lengthscale"].item()) for maximum in maxima]
    records: list[Record] = []
    for kind, lengthscale in places:
        value = _log_evidence(embedding, x, lengthscale)
        records.append({"kind": kind, "lengthscale": lengthscale, "log_evidence": value})
    return records


@torch.no_grad()
def _log_evidence(embedding: BayesianMeanEmbedding, x: Tensor, lengthscale: float) -> float:
    embedding.kernel.lengthscale = lengthscale
    return -EmbeddingEvidence()(embedding, x).item()


def _summarize_grid(records: Sequence[Record]) -> str:
    columns = {"grid of Gaussians": "{kind}", "lengthscale": "{lengthscale:.2f}", "log evidence": "{log_evidence:.0f}"}
    text = record_table([r for r in records if r["kind"] in ("maximum", "median")], columns)
    return f"{text}\n\nPublished: maximum at 1.5, median heuristic 20."


def curve(records: Sequence[Record], ax: Axes | None = None) -> Axes:
    """The evidence curve with its maxima and the median heuristic marked."""
    kinds = {kind: [r for r in records if r["kind"] == kind] for kind in ("curve", "maximum", "median")}
    values = column(sorted(kinds["curve"], key=lambda r: number(r, "lengthscale")), "log_evidence")
    lengthscales, maxima, medians = (np.sort(column(own, "lengthscale")) for own in kinds.values())
    median = float(medians[0]) if len(medians) else None
    panel = plot_evidence_curve(lengthscales, values, median=median, maxima=maxima.tolist(), ax=ax)
    ticks = [tick for tick in TICKS if lengthscales[0] <= tick <= lengthscales[-1]]
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.set_xticks([], minor=True)
    panel.set_xlabel("lengthscale")
    legend_below(panel, 2)
    return panel


def _simulate(ratio: float, per_centre: int, is_random: bool, repetition: int) -> tuple[Tensor, Tensor]:
    return grid_samples(ratio, per_centre, repetition, is_random)


def designs(settings: Settings) -> list[Design]:
    """All tests on 900 points of each distribution, for every ratio."""
    per_centre = 10 if settings.quick else 100
    simulators = {
        f"{ratio:g}{RANDOM * is_random}": functools.partial(_simulate, ratio, per_centre, is_random)
        for ratio in RATIOS
        for is_random in (False, True)
    }
    return [Design(TESTS, simulators, settings.repetitions or (2 if settings.quick else 100))]


def _errors(study: RejectionStudy) -> Errors:
    errors: dict[str, dict[float, float]] = {}
    seen = {(record["simulator"], record["test"]) for record in study.records}
    for kind in ("", RANDOM):
        own = {float(name.split(",")[0]): name for name in study.simulators if name.endswith(RANDOM) == bool(kind)}
        for test in study.tests:
            ratios = [ratio for ratio in sorted(own) if (own[ratio], test) in seen]
            errors[test + kind] = {ratio: 1.0 - study.rate(own[ratio], test) for ratio in ratios}
    return {name: values for name, values in errors.items() if values}


def _summarize_type_two(records: Sequence[Record]) -> str:
    (study,) = rejection_studies(designs, records)
    errors = _errors(study)
    ratios = sorted({ratio for own in errors.values() for ratio in own})
    rows = [[test, *(f"{own[ratio]:.2f}" if ratio in own else "" for ratio in ratios)] for test, own in errors.items()]
    counts = set(Counter((record["simulator"], record["test"]) for record in study.records).values())
    span = " to ".join(str(count) for count in sorted({min(counts), max(counts)}))
    text = table(["ratio ε", *(f"{ratio:g}" for ratio in ratios)], rows)
    return f"{text}\n\nType II error at level 0.05, {span} repetitions."


def error_curves(errors: Errors, panel: Axes, random_components: bool = False) -> None:
    """Plot the type II error against the ratio ε, one curve for each test, for one kind of samples."""
    own = [name for name in errors if name.endswith(RANDOM) == random_components]
    for i, name in enumerate(own):
        x, y = zip(*errors[name].items(), strict=True)
        panel.plot(x, y, marker=marker(i), ms=4, label=name.removesuffix(RANDOM), **line_style(i))
    panel.set(xlabel="ratio ε of covariance eigenvalues", ylabel="type II error", ylim=(-0.05, 1.05), xscale="log")
    panel.set_xticks(sorted(RATIOS), [f"{tick:g}" for tick in sorted(RATIOS)])
    panel.set_xticks([], minor=True)
    legend_below(panel, 1)


def draw_errors(errors: Errors, path: pathlib.Path) -> None:
    """Draw the type II errors in two panels: 100 points in every blob, and random components."""
    with styled():
        figure = free_figure(7.2, 4.0)
        panels = figure.subplots(1, 2)
    for panel, title, is_random in zip(panels, ("100 points per blob", RANDOM[2:]), (False, True), strict=True):
        error_curves(errors, panel, is_random)
        panel.set_title(title)
    save_picture(figure, path, 100)


def _draw_type_two(records: Sequence[Record], out: pathlib.Path) -> None:
    draw_errors(_errors(rejection_studies(designs, records)[0]), out / "figure2c.png")


def _draw_grid(records: Sequence[Record], out: pathlib.Path) -> None:
    """``figure2.png``; its panel C is drawn where ``type-two``, which takes an hour, was run into ``out``."""
    studies = rejection_studies(designs, TYPE_TWO.own(Results(out / "results.json", TYPE_TWO.key).records))
    draw_figure(records, _errors(studies[0]) if studies else None, out / "figure2.png")


def draw_figure(records: Sequence[Record], errors: Errors | None, path: pathlib.Path) -> None:
    """Samples (A, B), type II error (C), evidence (D) and witness (E)."""
    per_centre, seed = int(number(records[0], "n")) // 18, int(number(records[0], "seed"))
    embedding = BayesianMeanEmbedding(RBFKernel().double(), noise=0.1)
    maxima = [record for record in records if record["kind"] == "maximum"]
    highest = max(maxima, key=lambda record: number(record, "log_evidence"))
    embedding.kernel.lengthscale = number(highest, "lengthscale")
    with styled():
        figure = free_figure(7.2, 9.6)  # two columns, which a narrow screen can still show
        # Parts of their own, so that the color bar of E does not push the columns apart.
        upper, lower = figure.subfigures(2, 1, height_ratios=[2, 1], squeeze=False)[:, 0]
        axes = upper.subplot_mosaic("AB;CD") | lower.subplot_mosaic(".E.", width_ratios=[1, 4, 1])
    for name, ratio in (("A", 2.0), ("B", 10.0)):
        samples(axes[name], *grid_samples(ratio, per_centre, seed))
        axes[name].set_title(f"({name}) samples, ratio ε = {ratio:g}")
    axes["C"].set_title("(C) type II error, level 0.05")
    if errors is None:
        text = "kernel-embed reproduce type-two\nwith the same --out fills this panel"
        style = {"ha": "center", "va": "center", "fontsize": 9, "color": "0.4"}
        axes["C"].text(0.5, 0.5, text, **style, transform=axes["C"].transAxes)
        axes["C"].set_axis_off()
    else:
        error_curves(errors, axes["C"])
    curve(records, axes["D"])
    axes["D"].set_title("(D) log evidence, eq. (13)")
    plot_witness(Witness(embedding, *grid_samples(2.0, per_centre, seed)), ax=axes["E"])
    axes["E"].set_title(f"(E) witness, lengthscale {embedding.kernel.lengthscale.item():.2f}")
    save_picture(figure, path, 100)


GRID = Experiment(
    "two-sample", "the evidence chooses the size of a blob, the median the distance between blobs", "a minute",
    ("experiment", "kind", "lengthscale"), _grid_cases, _summarize_grid, _draw_grid, options="seed",
    paper="Flaxman et al.", part="Figure 2", tag=("grid",), parameters={"ratio": 2.0},
)  # fmt: skip
TYPE_TWO = rejection_experiment(
    designs, name="type-two", shows="the type II error of a learned lengthscale and of the median heuristic",
    duration="an hour", summary=_summarize_type_two, draw=_draw_type_two, paper="Flaxman et al.", part="Figure 2 (C)",
)  # fmt: skip
