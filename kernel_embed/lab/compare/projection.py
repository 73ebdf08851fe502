"""A table in two dimensions: its two features, or its two principal axes, of some of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .budget import subset, take
from .preprocessing import unit_range
from .tables import UserTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAP_ROWS = 300
"""Rows that are drawn, and learned for a map."""


def some_rows(table: UserTable) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Some rows, of every class its share, as numbers in [0, 1]."""
    chosen = subset(table.y, MAP_ROWS)
    return np.asarray(unit_range().fit_transform(take(table.x, chosen))), table.y[chosen]


class Plane(NamedTuple):
    """Points (n, 2) to draw and their labels; ``low`` and ``spread`` bring them to the unit square to learn."""

    points: NDArray[np.float64]
    y: NDArray[Any]
    low: NDArray[np.float64]
    spread: NDArray[np.float64]

    def inner(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Points as learners see them."""
        return np.asarray((points - self.low) / self.spread)


def plane_of(table: UserTable) -> Plane | None:
    """Two-dimensional inputs as they are, others on their two principal axes; ``None`` for one feature."""
    x, y = some_rows(table)
    if x.shape[1] < 2:
        return None
    if is_drawable(table):
        points = take(table.x, subset(table.y, MAP_ROWS)).to_numpy(dtype=np.float64)
    else:
        centred = x - x.mean(axis=0)
        axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
        # A fixed sign, so that the picture is the same on every machine.
        axes *= np.where(axes[np.arange(2), np.abs(axes).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
        points = centred @ axes.T
    low, high = points.min(axis=0), points.max(axis=0)
    return Plane(points, y, low, np.where(high > low, high - low, 1.0))


def line_of(table: UserTable) -> tuple[torch.Tensor, NDArray[Any]]:
    x, y = some_rows(table)
    return torch.as_tensor(x), y


def is_drawable(table: UserTable) -> bool:
    """Whether the table has two features that are numbers without gaps, and can be drawn as it is."""
    numbers = all(dtype == np.float64 for dtype in table.x.dtypes)
    return bool(table.x.shape[1] == 2 and numbers and table.x.notna().to_numpy().all())


def name_axes(axes: Axes, table: UserTable) -> None:
    two = is_drawable(table)
    axes.set_xlabel(table.features[0] if two else "first principal axis")
    axes.set_ylabel(table.features[1] if two else "second principal axis")
