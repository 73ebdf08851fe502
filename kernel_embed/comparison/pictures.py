"""The pictures of a comparison report: what is drawn, of which data, with the words under it."""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..embeddings import BayesianMeanEmbedding, Witness
from ..kernels import median_distance
from ..learning import local_maxima
from ..plots import (
    free_figure,
    plot_convergence,
    plot_draws,
    plot_evidence_curve,
    plot_probability_map,
    plot_ranking,
    plot_relevance,
    plot_reliability,
    plot_witness,
)
from ..results import Record
from .budget import subset, take
from .evaluate import Classifier
from .forms import unit_range
from .ranking import Row
from .starts import inputs_model, kernel_class
from .study import FAILURES, Comparison
from .tables import UserTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAP_ROWS = 300
MAP_SECONDS = 20.0
"""A map is not drawn of a learner that took longer than this for a fit."""
MOST_FEATURES = 15


class Picture(NamedTuple):
    """A picture ready for a page: ``data`` is a PNG in base64; ``kind`` says how wide it is."""

    title: str
    caption: str
    data: str
    kind: str


def pictures(
    comparison: Comparison, table: UserTable, rows: Sequence[Row], chosen: str | None
) -> dict[str, list[Picture]]:
    """All pictures of one table by section; a section whose picture cannot be drawn for these data has none."""
    done = [row for row in rows if row.finished]
    records = {str(r["method"]): r for r in reversed(comparison.records(table)) if "nll" in r}
    sections: dict[str, Callable[[], Iterator[Picture]]] = {
        "ranking": lambda: _ranking(done, chosen),
        "reliability": lambda: _reliability(comparison, table, done),
        "maps": lambda: _maps(comparison, table, done, chosen),
        "relevance": lambda: _relevance(comparison, table),
        "learning": lambda: _learning(comparison, records),
        "evidence": lambda: _evidence(comparison, table),
        "posterior": lambda: _posterior(comparison, records),
        "witness": lambda: _witness(comparison, table),
    }
    found: dict[str, list[Picture]] = {}
    for name, section in sections.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[name] = list(section())
        except FAILURES:
            found[name] = []  # a picture less is no reason to lose the report
    return found


def _ranking(done: Sequence[Row], chosen: str | None) -> Iterator[Picture]:
    figure = free_figure(5.6, 0.9 + 0.27 * len(done))
    nll = [row.nll for row in done]
    names, means, errors = [row.method for row in done], [e.mean for e in nll], [e.error for e in nll]
    plot_ranking(names, means, errors, chosen=chosen, ax=figure.subplots())
    yield _picture(
        figure,
        "Who predicts best",
        "Each point is a learner: how much probability it gave to labels it had not seen, with one standard error. "
        "Learners inside the blue band are level with the best.",
        "wide",
    )


def _reliability(comparison: Comparison, table: UserTable, done: Sequence[Row]) -> Iterator[Picture]:
    records = comparison.records(table)
    for row in done:
        arrays = [comparison.arrays(r) for r in records if r["method"] == row.method and "nll" in r]
        if not all(arrays):
            continue
        p = np.concatenate([a["probabilities"] for a in arrays])
        truth = np.concatenate([a["truth"] for a in arrays])
        figure = free_figure(2.1, 2.1)
        plot_reliability(p.max(axis=1), p.argmax(axis=1) == truth, ax=figure.subplots())
        yield _picture(figure, row.method, f"calibration error {row.calibration_error.text(3)}", "small")


def _maps(comparison: Comparison, table: UserTable, done: Sequence[Row], chosen: str | None) -> Iterator[Picture]:
    plane = _plane(table)
    if plane is None:
        return
    classes, numbers = np.unique(plane.y, return_inverse=True)
    seconds = {row.method: row.seconds for row in done}
    wanted = dict.fromkeys([chosen, "default", "median heuristic", "rademacher 4e/n", "svc grid", "evidence"])
    shown = [m for m in wanted if m is not None and seconds.get(m, math.inf) < MAP_SECONDS][:4]
    for method in shown:
        learner = comparison.learners[method].make().fit(plane.inner(plane.points), plane.y)

        def probabilities(points: NDArray[Any], learner: Classifier = learner) -> NDArray[np.float64]:
            p = np.zeros((len(points), len(classes)))
            p[:, np.searchsorted(classes, learner.classes_)] = learner.predict_proba(plane.inner(points))
            return p

        figure = free_figure(3.6, 3.1)
        axes = figure.subplots()
        plot_probability_map(probabilities, plane.points, numbers, len(classes), ax=axes)
        _name_axes(axes, table)
        yield _picture(figure, method, "", "quarter")


def _relevance(comparison: Comparison, table: UserTable) -> Iterator[Picture]:
    records = [r for r in comparison.records(table) if r["method"] == "default" and "nll" in r]
    kept = [arrays for arrays in map(comparison.arrays, records) if "lengthscale" in arrays]
    names = kept[0].get("feature_names", np.array(table.features)) if kept else np.array([])
    known = [arrays["lengthscale"] for arrays in kept if len(arrays["lengthscale"]) == len(names)]
    if not known or len(names) < 2:
        return
    typical = np.exp(np.mean(np.log(known), axis=0))  # the geometric mean over folds
    most = np.argsort(typical)[:MOST_FEATURES]
    figure = free_figure(5.0, 1.0 + 0.26 * len(most))
    plot_relevance(torch.as_tensor(typical[most]), [str(names[j]) for j in most], ax=figure.subplots())
    what = "features" if len(most) == len(typical) else f"{len(most)} most relevant of {len(typical)} features"
    yield _picture(
        figure,
        "What the labels depend on",
        f"The {what}, by the default learner: the shorter the lengthscale of a feature, the faster the prediction "
        "changes along it, and the longer its bar. Features are scaled to one range first; lengthscales are averaged "
        "over folds.",
        "half",
    )


def _learning(comparison: Comparison, records: dict[str, Record]) -> Iterator[Picture]:
    lines = {}
    for method, record in records.items():
        history = comparison.arrays(record).get("history")
        if history is not None and len(history) > 2:
            lines[method] = history
    if lines:
        figure = free_figure(5.0, 3.4)
        plot_convergence(lines, ax=figure.subplots())
        yield _picture(
            figure,
            "How learning converges",
            "The objective of each learner above the value it ends at, in the first fold. A line that ends early has "
            "converged early; objectives are different things, so only the shapes compare.",
            "half",
        )


def _evidence(comparison: Comparison, table: UserTable) -> Iterator[Picture]:
    x = torch.as_tensor(_subset(table)[0])
    make = kernel_class(comparison.settings.kernel)
    embedding, objective = inputs_model(x, make)
    median = float(median_distance(x))
    lengthscales = np.geomspace(median / 20, median * 5, 30)
    values = []
    for lengthscale in lengthscales:
        embedding.kernel.lengthscale = lengthscale
        with torch.no_grad():
            values.append(-objective(embedding, x).item())
    maxima = local_maxima(embedding, objective, x, num_points=15, progress=False)
    tops = [m.parameters["kernel.lengthscale"].item() for m in maxima]
    figure = free_figure(5.0, 3.2)
    plot_evidence_curve(lengthscales, np.array(values), median=median, maxima=tops, ax=figure.subplots())
    yield _picture(
        figure,
        "Lengthscale by evidence, labels unseen",
        "How well a Bayesian kernel embedding explains the inputs alone, for every common lengthscale. The learner "
        "“evidence of inputs” takes the highest maximum; the median heuristic takes the dashed line.",
        "half",
    )


def _posterior(comparison: Comparison, records: dict[str, Record]) -> Iterator[Picture]:
    record = records.get("nuts average")
    draws = {} if record is None else comparison.arrays(record)
    shown = {name.removeprefix("draws "): v for name, v in draws.items() if name.startswith("draws ")}
    if not shown:
        return
    figure = free_figure(5.0, 1.0 + 1.3 * len(shown))
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (name, values) in zip(panels, shown.items(), strict=True):
        plot_draws(values, name, ax=ax)
    panels[-1].set_xlabel("draw")
    yield _picture(
        figure,
        "Draws of the hyperparameters",
        "NUTS in the first fold: one line for each parameter. A trace that wanders without trend has forgotten where "
        "it started; its width is what the data leave open.",
        "half",
    )


def _witness(comparison: Comparison, table: UserTable) -> Iterator[Picture]:
    plane = _plane(table)
    x, y = (torch.as_tensor(plane.points), plane.y) if plane else _line(table)
    classes, counts = np.unique(y, return_counts=True)
    first, second = classes[np.argsort(-counts, kind="stable")[:2]]
    embedding, objective = inputs_model(x, kernel_class(comparison.settings.kernel))
    maxima = local_maxima(embedding, objective, x, num_points=15, progress=False)
    kernel = maxima[0].embedding.kernel if maxima else embedding.kernel
    model = BayesianMeanEmbedding(kernel, noise="central-limit" if x.shape[1] == 1 else 0.1)
    p, q = (x[torch.as_tensor(y == label)] for label in (first, second))
    figure = free_figure(5.0, 3.4)
    axes = figure.subplots()
    plot_witness(Witness(model, p, q), ax=axes)
    if x.shape[1] == 2:
        for points, marker in ((p, "o"), (q, "x")):
            axes.scatter(points[:, 0].numpy(), points[:, 1].numpy(), s=9, c="black", marker=marker, linewidths=0.5)
        _name_axes(axes, table)
    yield _picture(
        figure,
        f"Where {first} and {second} differ",
        f"The witness function between the two largest classes: red where {first} (circles) is denser, blue where "
        f"{second} (crosses) is. Its lengthscale was chosen by evidence, without the labels.",
        "half",
    )


def _subset(table: UserTable) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Some rows, of every class its share, as numbers in [0, 1]."""
    chosen = subset(table.y, MAP_ROWS)
    return np.asarray(unit_range().fit_transform(take(table.x, chosen))), table.y[chosen]


class _Plane(NamedTuple):
    """Points (n, 2) to draw and their labels; ``low`` and ``spread`` bring them to the unit square to learn."""

    points: NDArray[np.float64]
    y: NDArray[Any]
    low: NDArray[np.float64]
    spread: NDArray[np.float64]

    def inner(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points as learners see them."""
        return np.asarray((points - self.low) / self.spread)


def _plane(table: UserTable) -> _Plane | None:
    """Two-dimensional inputs as they are, others on their two principal axes; ``None`` for one feature."""
    x, y = _subset(table)
    if x.shape[1] < 2:
        return None
    if _two_numbers(table):
        points = take(table.x, subset(table.y, MAP_ROWS)).to_numpy(dtype=np.float64)
    else:
        centred = x - x.mean(axis=0)
        axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
        # A fixed sign, so that the picture is the same on every machine.
        axes *= np.where(axes[np.arange(2), np.abs(axes).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
        points = centred @ axes.T
    low, high = points.min(axis=0), points.max(axis=0)
    return _Plane(points, y, low, np.where(high > low, high - low, 1.0))


def _line(table: UserTable) -> tuple[torch.Tensor, NDArray[Any]]:
    x, y = _subset(table)
    return torch.as_tensor(x), y


def _two_numbers(table: UserTable) -> bool:
    """Whether the table has two features that are numbers without gaps, and can be drawn as it is."""
    return table.x.shape[1] == 2 and all(dtype == np.float64 for dtype in table.x.dtypes) and table.x.notna().all(None)


def _name_axes(axes: Axes, table: UserTable) -> None:
    two = _two_numbers(table)
    axes.set_xlabel(table.features[0] if two else "first principal axis")
    axes.set_ylabel(table.features[1] if two else "second principal axis")


def _picture(figure: Figure, title: str, caption: str, kind: str) -> Picture:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return Picture(title, caption, base64.b64encode(buffer.getvalue()).decode(), kind)
