"""Samples of two grids of Gaussians, which differ in the shape of a blob alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ....plots.style import FIRST, SECOND, array, axes_or_new, legend_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPACING = 15.0
"""Between centres. The paper does not print it; with 10 the highest maximum is the long one."""


def grid_samples(
    ratio: float = 2.0, num_per_centre: int = 100, seed: int = 0, spacing: float = SPACING
) -> tuple[Tensor, Tensor]:
    """Samples of P, isotropic with unit variance, and of Q, with covariance eigenvalues ``ratio`` : 1 turned by 45°.

    Example:
        >>> p, q = grid_samples(ratio=3.0, num_per_centre=10)
        >>> p.shape, q.shape
        (torch.Size([90, 2]), torch.Size([90, 2]))
    """
    generator = np.random.RandomState(seed)
    steps = spacing * np.arange(-1, 2)
    centres = np.array([[a, b] for a in steps for b in steps]).repeat(num_per_centre, axis=0)
    p = centres + generator.standard_normal(centres.shape)
    turn = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2.0)
    q = centres + (generator.standard_normal(centres.shape) * np.sqrt([ratio, 1.0])) @ turn.T
    return torch.as_tensor(p), torch.as_tensor(q)


def samples(ax: Axes | None, p: Tensor, q: Tensor) -> Axes:
    """Two samples in the plane: P circles, Q crosses."""
    panel = axes_or_new(ax)
    for sample, name, shape, color in ((p, "P", ".", FIRST), (q, "Q", "+", SECOND)):
        look: dict[str, Any] = {"marker": shape, "color": color, "markersize": 3, "markeredgewidth": 0.6}
        panel.plot(*array(sample).T, linestyle="", label=name, **look)
    panel.set(xlabel="first coordinate", ylabel="second coordinate")
    legend_below(panel)
    return panel
