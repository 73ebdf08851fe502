"""Sections of a report about the inputs: maps in two dimensions, where classes differ, evidence of lengthscales."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import minmax_scale

from ...embeddings import BayesianMeanEmbedding, Witness
from ...kernels import median_distance
from ...learning import local_maxima
from ...plots import plot_evidence_curve, plot_probability_map, plot_witness
from ...splits import proportional_sample
from ...tabular import TableEncoder
from ..experiment import new_figure
from ..runner import take
from .classifiers import inputs_model, kernel_class
from .figures import REFIT_SECONDS, Content, picture, plain, section
from .result import ComparisonResult
from .tables import UserTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAP_ROWS = 300
"""Rows that are drawn, and learned for a map."""
LONGEST_NAME = 16
"""Letters of a class in the legend of a map."""


def some_rows(table: UserTable) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Some rows, of every class its share, as numbers in [0, 1]."""
    rows = proportional_sample(table.y, MAP_ROWS)
    return minmax_scale(TableEncoder().fit_transform(take(table.x, rows))), table.y[rows]


class Plane(NamedTuple):
    """Points (n, 2) to draw and their labels; ``low`` and ``spread`` scale them to the unit square."""

    points: NDArray[np.float64]
    y: NDArray[Any]
    low: NDArray[np.float64]
    spread: NDArray[np.float64]

    def scaled(self, points: NDArray[np.float64]) -> pd.DataFrame:
        """Points on the scale of the learners."""
        return pd.DataFrame((points - self.low) / self.spread, columns=["u", "v"])


def plane_of(table: UserTable) -> Plane | None:
    """Two features as they are, more on their two principal axes; ``None`` for one feature."""
    x, y = some_rows(table)
    if x.shape[1] < 2:
        return None
    if is_drawable(table):
        points = take(table.x, proportional_sample(table.y, MAP_ROWS)).to_numpy(dtype=np.float64)
    else:
        centred = x - x.mean(axis=0)
        axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
        # a fixed sign, so that the picture is the same on every machine
        axes *= np.where(axes[np.arange(2), np.abs(axes).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
        points = centred @ axes.T
    low, high = points.min(axis=0), points.max(axis=0)
    return Plane(points, y, low, np.where(high > low, high - low, 1.0))


def is_drawable(table: UserTable) -> bool:
    """Whether the table has two numeric features without gaps, and can be drawn as it is."""
    numbers = all(dtype == np.float64 for dtype in table.x.dtypes)
    return bool(table.x.shape[1] == 2 and numbers and table.x.notna().to_numpy().all())


def _name_axes(axes: Axes, table: UserTable) -> None:
    names = table.features if is_drawable(table) else ("first principal axis", "second principal axis")
    axes.set(xlabel=plain(names[0]), ylabel=plain(names[1]))


@section(
    "What was learned, in two dimensions",
    "The color says which class is most probable; it is pale where the learner is unsure. Points are data.",
    task="classification",
)
def probability_maps(result: ComparisonResult, method: str | None) -> Content:
    """Class probabilities over two columns or two projections."""
    plane = plane_of(result.table)
    if plane is None:
        return
    if not is_drawable(result.table):
        yield (
            "<p>These data are more than two numbers, so each learner was learned again on their two principal axes: "
            "the maps show its character, not its accuracy.</p>"
        )
    classes, numbers = np.unique(plane.y, return_inverse=True)
    names = [name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in map(str, classes)]
    names = list(map(plain, names))
    seconds = {row.method: row.seconds for row in result.finished_rows}
    candidates = dict.fromkeys([method, "default", "median heuristic", "rademacher 4e/n", "svc grid", "evidence"])
    for name in [m for m in candidates if m is not None and seconds.get(m, math.inf) < REFIT_SECONDS][:4]:
        model = result.learners[name].for_tables().fit(plane.scaled(plane.points), plane.y)

        def probabilities(points: NDArray[Any], model: Any = model) -> NDArray[np.float64]:
            p = np.zeros((len(points), len(classes)))
            p[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(plane.scaled(points))
            return p

        figure, axes = new_figure(4.2, 3.1)
        plot_probability_map(probabilities, plane.points, numbers, len(classes), class_names=names, ax=axes)
        _name_axes(axes, result.table)
        yield picture(figure, name, "", "quarter")


@section(task="classification")
def witness(result: ComparisonResult, method: str | None) -> Content:
    """The witness function of two classes."""
    plane = plane_of(result.table)
    points, y = (plane.points, plane.y) if plane else some_rows(result.table)
    x = torch.as_tensor(points)
    classes, counts = np.unique(y, return_counts=True)
    first, second = classes[np.argsort(-counts, kind="stable")[:2]]
    embedding, objective = inputs_model(x, kernel_class(result.settings.kernel))
    maxima = local_maxima(embedding, objective, x, num_points=15, progress=False)
    kernel = maxima[0].embedding.kernel if maxima else embedding.kernel
    model = BayesianMeanEmbedding(kernel, noise="central-limit" if x.shape[1] == 1 else 0.1)
    p, q = (x[torch.as_tensor(y == label)] for label in (first, second))
    figure, axes = new_figure(5.0, 3.4)
    plot_witness(Witness(model, p, q), ax=axes)
    if x.shape[1] == 2:
        for sample, marker in ((p, "o"), (q, "x")):
            axes.scatter(sample[:, 0].numpy(), sample[:, 1].numpy(), s=9, c="black", marker=marker, linewidths=0.5)
        _name_axes(axes, result.table)
    yield picture(
        figure,
        f"Where {first} and {second} differ",
        f"The witness function between the two largest classes: orange where {first} (circles) is denser, purple where "
        f"{second} (crosses) is. Its lengthscale was chosen by evidence, without the labels.",
        "half",
    )


@section(task="classification")
def evidence_curve(result: ComparisonResult, method: str | None) -> Content:
    """The evidence of the rows over the lengthscale."""
    x = torch.as_tensor(some_rows(result.table)[0])
    embedding, objective = inputs_model(x, kernel_class(result.settings.kernel))
    median = float(median_distance(x))
    lengthscales = np.geomspace(median / 20, median * 5, 30)
    values = []
    for lengthscale in lengthscales:
        embedding.kernel.lengthscale = lengthscale
        with torch.no_grad():
            values.append(-objective(embedding, x).item())
    maxima = local_maxima(embedding, objective, x, num_points=15, progress=False)
    tops = [maximum.parameters["kernel.lengthscale"].item() for maximum in maxima]
    figure, axes = new_figure(5.0, 3.2)
    plot_evidence_curve(lengthscales, np.array(values), median=median, maxima=tops, ax=axes)
    yield picture(
        figure,
        "Lengthscale by evidence, labels unseen",
        "How well a Bayesian kernel embedding explains the inputs alone, for every common lengthscale. The learner "
        "“evidence of inputs” takes the highest maximum; the median heuristic takes the dashed line.",
        "half",
    )
