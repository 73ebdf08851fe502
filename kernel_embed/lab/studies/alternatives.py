"""Data sets on which a null hypothesis is false: synthetic families and subsamples of real tables.

Sizes and distances were set so that no test is always right.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..compare.data import load_table
from ..papers.flaxman2016.grid import grid_samples
from ..rejections import Simulator

Array = NDArray[np.float64]
Draw = Callable[[np.random.RandomState], tuple[Array, ...]]

SYNTHETIC: dict[str, dict[str, Simulator]] = {"samples": {}, "pairs": {}, "given": {}}
"""By the kind of test and by name; every simulator takes the number of the repetition."""


def _tensors(*arrays: Array) -> tuple[Tensor, ...]:
    return tuple(torch.as_tensor(array) for array in arrays)


def _simulator(kind: str, name: str) -> Callable[[Draw], Draw]:
    """Register a function that draws arrays from a random state."""

    def register(draw: Draw) -> Draw:
        SYNTHETIC[kind][name] = lambda repetition: _tensors(*draw(np.random.RandomState(repetition)))
        return draw

    return register


@_simulator("samples", "means")
def _means(draw: np.random.RandomState) -> tuple[Array, ...]:
    """Normal in five dimensions, moved by 0.2 in each."""
    return draw.randn(100, 5), draw.randn(100, 5) + 0.2


@_simulator("samples", "scales")
def _scales(draw: np.random.RandomState) -> tuple[Array, ...]:
    """Normal in five dimensions, 1.2 times as wide."""
    return draw.randn(100, 5), 1.2 * draw.randn(100, 5)


@_simulator("samples", "correlation")
def _correlated(draw: np.random.RandomState) -> tuple[Array, ...]:
    """Normal in the plane, with a correlation of 0.5."""
    return draw.randn(150, 2), draw.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], 150)


@_simulator("samples", "clusters")
def _clusters(draw: np.random.RandomState) -> tuple[Array, ...]:
    """Two clusters 40 apart, each moved by 0.6, in opposite directions."""
    first, second = draw.randint(2, size=(2, 100, 1))
    return 40.0 * first + draw.randn(100, 1), 40.0 * second + 0.6 * (1 - 2 * second) + draw.randn(100, 1)


@_simulator("samples", "wave")
def _wave(draw: np.random.RandomState) -> tuple[Array, ...]:
    """Uniform, and with the density 1 + 0.7 sin(8πx)."""
    candidates = draw.rand(1200, 1)
    accepted = candidates[1.7 * draw.rand(1200) < 1 + 0.7 * np.sin(8 * np.pi * candidates[:, 0])]
    return draw.rand(150, 1), accepted[:150]


@_simulator("pairs", "line")
def _line(draw: np.random.RandomState) -> tuple[Array, ...]:
    """Normal with a correlation of 0.3."""
    x = draw.randn(80, 1)
    return x, 0.3 * x + np.sqrt(1 - 0.09) * draw.randn(80, 1)


@_simulator("pairs", "line, y × 100")
def _rescaled(draw: np.random.RandomState) -> tuple[Array, ...]:
    """The same with y in units a hundred times smaller."""
    x, y = _line(draw)
    return x, 100.0 * y


@_simulator("pairs", "sine")
def _sine(draw: np.random.RandomState) -> tuple[Array, ...]:
    """y = sin(4πx) + noise."""
    x = draw.rand(80, 1)
    return x, np.sin(4 * np.pi * x) + 0.6 * draw.randn(80, 1)


@_simulator("pairs", "circle")
def _circle(draw: np.random.RandomState) -> tuple[Array, ...]:
    """A noisy circle."""
    angle = 2 * np.pi * draw.rand(60, 1)
    return np.cos(angle) + 0.35 * draw.randn(60, 1), np.sin(angle) + 0.35 * draw.randn(60, 1)


@_simulator("pairs", "variance")
def _variance(draw: np.random.RandomState) -> tuple[Array, ...]:
    """The spread of y grows with |x|."""
    x = draw.randn(80, 1)
    return x, (0.5 + np.abs(x)) * draw.randn(80, 1)


@_simulator("pairs", "local")
def _local(draw: np.random.RandomState) -> tuple[Array, ...]:
    """Four independent pairs of clusters; inside each, x and y are correlated by 0.7."""
    x, noise = draw.randn(2, 100, 1)
    y = 0.7 * x + np.sqrt(1 - 0.49) * noise
    return 30.0 * draw.randint(2, size=(100, 1)) + x, 30.0 * draw.randint(2, size=(100, 1)) + y


@_simulator("given", "line | z")
def _given_linear(draw: np.random.RandomState) -> tuple[Array, ...]:
    """z causes both, and x causes y with a weight of 0.4."""
    z, e, f = draw.randn(3, 80, 1)
    x = z + e
    return x, z + 0.4 * x + f, z


@_simulator("given", "sine | z")
def _given_sine(draw: np.random.RandomState) -> tuple[Array, ...]:
    """y follows the sine of x, beside z."""
    z, e, f = draw.randn(3, 80, 1)
    x = 0.5 * z + e
    return x, z + np.sin(3 * x) + 0.7 * f, z


@_simulator("given", "common size | z")
def _given_product(draw: np.random.RandomState) -> tuple[Array, ...]:
    """The noises of x and y share their size."""
    z, e, f, s = draw.randn(4, 80, 1)
    return np.sin(2 * z) + s * e, z**2 + s * f, z


def _grid(repetition: int) -> tuple[Tensor, ...]:
    """Figure 2 of the paper with 30 points in each blob and a ratio of 6."""
    return grid_samples(6.0, 30, seed=repetition)


def _classes(name: str, n: int, data: str | os.PathLike[str] | None, repetition: int) -> tuple[Tensor, ...]:
    """Rows of the classes 0 and 1 of a real table, ``n`` of each, without replacement."""
    x, y = load_table(name, data)
    draw = np.random.RandomState(repetition)
    return _tensors(*(x[draw.permutation(np.flatnonzero(y == label))[:n]] for label in ("0", "1")))


def _ozone(
    first: int, second: int, given: tuple[int, ...], n: int, data: str | os.PathLike[str] | None, repetition: int
) -> tuple[Tensor, ...]:
    """Two columns of the ozone table, and those that are given, on ``n`` of its days.

    Columns: pressure height, wind, humidity, temperature, inversion height, gradient, inversion, visibility; −1 is
    ozone itself.
    """
    x, y = load_table("ozone", data)
    values = np.concatenate([x[:, :8], y.astype(float)[:, None]], axis=1)
    values = values[np.random.RandomState(repetition).permutation(len(values))[:n]]
    parts = [values[:, [first]], values[:, [second]]]
    return _tensors(*parts, *([values[:, list(given)]] if given else []))


def families(data: str | os.PathLike[str] | None = None) -> dict[str, dict[str, Simulator]]:
    """All of them, by the kind of test."""
    part = functools.partial
    return {
        "samples": {
            **SYNTHETIC["samples"],
            "grid of Gaussians": _grid,
            "diabetes": part(_classes, "diabetes", 20, data),
            "retinopathy": part(_classes, "retinopathy", 60, data),
        },
        "pairs": {
            **SYNTHETIC["pairs"],
            "ozone and wind": part(_ozone, -1, 1, (), 100, data),
            "humidity and height": part(_ozone, 2, 0, (), 80, data),
        },
        "given": {
            **SYNTHETIC["given"],
            "ozone and temperature | inversion": part(_ozone, -1, 3, (6,), 60, data),
            "ozone and humidity | temperature": part(_ozone, -1, 2, (3,), 100, data),
        },
    }
