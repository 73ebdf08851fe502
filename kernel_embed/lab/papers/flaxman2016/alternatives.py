"""Data sets on which a null hypothesis is false: synthetic families and subsamples of real tables.

Every simulator takes the number of the repetition. Sizes and distances were set so that no test is always right.
"""

from __future__ import annotations

import functools
import os

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...compare.data import load_table
from .blobs import grid_samples
from .rejections import Simulator


def _tensors(*arrays: NDArray[np.float64]) -> tuple[Tensor, ...]:
    return tuple(torch.as_tensor(array) for array in arrays)


# --- two samples ------------------------------------------------------------------------------------------------------


def means(repetition: int, n: int = 100, d: int = 5) -> tuple[Tensor, ...]:
    """Normal in five dimensions, moved by 0.2 in each."""
    draw = np.random.RandomState(repetition)
    return _tensors(draw.randn(n, d), draw.randn(n, d) + 0.2)


def scales(repetition: int, n: int = 100, d: int = 5) -> tuple[Tensor, ...]:
    """Normal in five dimensions, 1.2 times as wide."""
    draw = np.random.RandomState(repetition)
    return _tensors(draw.randn(n, d), 1.2 * draw.randn(n, d))


def correlated(repetition: int, n: int = 150) -> tuple[Tensor, ...]:
    """Normal in the plane, with a correlation of 0.5."""
    draw = np.random.RandomState(repetition)
    return _tensors(draw.randn(n, 2), draw.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], n))


def clusters(repetition: int, n: int = 100) -> tuple[Tensor, ...]:
    """Two clusters 40 apart, each moved by 0.6, in opposite directions."""
    draw = np.random.RandomState(repetition)
    first, second = draw.randint(2, size=(2, n, 1))
    return _tensors(40.0 * first + draw.randn(n, 1), 40.0 * second + 0.6 * (1 - 2 * second) + draw.randn(n, 1))


def wave(repetition: int, n: int = 150) -> tuple[Tensor, ...]:
    """Uniform, and with the density 1 + 0.7 sin(8πx)."""
    draw = np.random.RandomState(repetition)
    candidates = draw.rand(8 * n, 1)
    kept = candidates[1.7 * draw.rand(8 * n) < 1 + 0.7 * np.sin(8 * np.pi * candidates[:, 0])]
    return _tensors(draw.rand(n, 1), kept[:n])


def grid(repetition: int) -> tuple[Tensor, ...]:
    """Figure 2 of the paper with 30 points in each blob and a ratio of 6."""
    return grid_samples(6.0, 30, seed=repetition)


def classes(
    name: str, first: str, second: str, repetition: int, n: int, data: str | os.PathLike[str] | None = None
) -> tuple[Tensor, ...]:
    """Rows of two classes of a real table, ``n`` of each, without replacement."""
    x, y = load_table(name, data)
    draw = np.random.RandomState(repetition)
    return _tensors(*(x[draw.permutation(np.flatnonzero(y == label))[:n]] for label in (first, second)))


# --- pairs ------------------------------------------------------------------------------------------------------------


def line(repetition: int, n: int = 80) -> tuple[Tensor, ...]:
    """Normal with a correlation of 0.3."""
    draw = np.random.RandomState(repetition)
    x = draw.randn(n, 1)
    return _tensors(x, 0.3 * x + np.sqrt(1 - 0.09) * draw.randn(n, 1))


def rescaled(repetition: int) -> tuple[Tensor, ...]:
    """The same with y in units a hundred times smaller."""
    x, y = line(repetition)
    return x, 100.0 * y


def sine(repetition: int, n: int = 80) -> tuple[Tensor, ...]:
    """y = sin(4πx) + noise."""
    draw = np.random.RandomState(repetition)
    x = draw.rand(n, 1)
    return _tensors(x, np.sin(4 * np.pi * x) + 0.6 * draw.randn(n, 1))


def circle(repetition: int, n: int = 60) -> tuple[Tensor, ...]:
    """A noisy circle."""
    draw = np.random.RandomState(repetition)
    angle = 2 * np.pi * draw.rand(n, 1)
    return _tensors(np.cos(angle) + 0.35 * draw.randn(n, 1), np.sin(angle) + 0.35 * draw.randn(n, 1))


def variance(repetition: int, n: int = 80) -> tuple[Tensor, ...]:
    """y as wide as x is large."""
    draw = np.random.RandomState(repetition)
    x = draw.randn(n, 1)
    return _tensors(x, (0.5 + np.abs(x)) * draw.randn(n, 1))


def local(repetition: int, n: int = 100) -> tuple[Tensor, ...]:
    """Four independent pairs of clusters; inside each, x and y are correlated by 0.7."""
    draw = np.random.RandomState(repetition)
    x, noise = draw.randn(2, n, 1)
    y = 0.7 * x + np.sqrt(1 - 0.49) * noise
    return _tensors(30.0 * draw.randint(2, size=(n, 1)) + x, 30.0 * draw.randint(2, size=(n, 1)) + y)


OZONE = (
    "pressure height",
    "wind",
    "humidity",
    "temperature",
    "inversion height",
    "gradient",
    "inversion",
    "visibility",
)


def ozone(
    first: int, second: int, given: tuple[int, ...], repetition: int, n: int, data: str | os.PathLike[str] | None = None
) -> tuple[Tensor, ...]:
    """Two columns of the ozone table, and those that are given, on ``n`` of its days; −1 is ozone itself."""
    table = load_table("ozone", data)
    values = np.concatenate([table.x[:, :8], table.y.astype(float)[:, None]], axis=1)
    rows = np.random.RandomState(repetition).permutation(len(values))[:n]
    parts = [values[rows][:, [first]], values[rows][:, [second]]]
    return _tensors(*parts, *([values[rows][:, list(given)]] if given else []))


# --- pairs given a third ----------------------------------------------------------------------------------------------


def given_linear(repetition: int, n: int = 80) -> tuple[Tensor, ...]:
    """z causes both, and x causes y with a weight of 0.4."""
    draw = np.random.RandomState(repetition)
    z, e, f = draw.randn(3, n, 1)
    x = z + e
    return _tensors(x, z + 0.4 * x + f, z)


def given_sine(repetition: int, n: int = 80) -> tuple[Tensor, ...]:
    """y follows the sine of x, beside z."""
    draw = np.random.RandomState(repetition)
    z, e, f = draw.randn(3, n, 1)
    x = 0.5 * z + e
    return _tensors(x, z + np.sin(3 * x) + 0.7 * f, z)


def given_product(repetition: int, n: int = 80) -> tuple[Tensor, ...]:
    """The noises of x and y share their size."""
    draw = np.random.RandomState(repetition)
    z, e, f, s = draw.randn(4, n, 1)
    return _tensors(np.sin(2 * z) + s * e, z**2 + s * f, z)


def families(data: str | os.PathLike[str] | None = None) -> dict[str, dict[str, Simulator]]:
    """All of them, by the kind of test."""
    return {
        "samples": {
            "means": means,
            "scales": scales,
            "correlation": correlated,
            "clusters": clusters,
            "wave": wave,
            "grid of Gaussians": grid,
            "diabetes": functools.partial(classes, "diabetes", "0", "1", n=20, data=data),
            "retinopathy": functools.partial(classes, "retinopathy", "0", "1", n=60, data=data),
        },
        "pairs": {
            "line": line,
            "line, y × 100": rescaled,
            "sine": sine,
            "circle": circle,
            "variance": variance,
            "local": local,
            "ozone and wind": functools.partial(ozone, -1, 1, (), n=100, data=data),
            "humidity and height": functools.partial(ozone, 2, 0, (), n=80, data=data),
        },
        "given": {
            "line | z": given_linear,
            "sine | z": given_sine,
            "common size | z": given_product,
            "ozone and temperature | inversion": functools.partial(ozone, -1, 3, (6,), n=60, data=data),
            "ozone and humidity | temperature": functools.partial(ozone, -1, 2, (3,), n=100, data=data),
        },
    }
