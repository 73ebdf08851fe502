r"""Input transforms: monotone maps of single columns, fitted to the data and applied before the kernel.

Kernels of distances perform poorly on raw columns with heavy tails or many equal values. The last two maps correct
this:

.. math::
    \text{standard:} \quad & w(x) = (x - \text{mean}) / \text{sd} \\
    \text{squash:}   \quad & w(x) = t / \sqrt{1 + (t/3)^2}, \qquad t = (x - \text{median}) / s \\
    \text{quantile:} \quad & w(x) = \sqrt{12}\, \hat F(x)

with s the interquartile range over 1.349, which is the standard deviation of a normal column, and :math:`\hat F` the
mid-rank distribution function, linear between its knots. The last two are bounded, which limits the influence of
outliers; the first keeps linear relations linear.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from ..validation import check_features

InputTransform = Literal["standard", "squash", "quantile"]
"""The kinds of input transforms."""

NUM_KNOTS = 256  # knots of F̂ at most; ranks are interpolated between them
BLOCK_NUMBERS = 2**20  # numbers whose ranks are looked up at once, which bounds the memory of temporary arrays
TAIL = 3.0  # standard deviations at which Squash bends
CACHE_SIZE = 4  # transformed rows that are kept: old and new ones, by two transforms

_Cache = dict[tuple[object, ...], tuple[torch.nn.Module, Tensor, Tensor]]
_cache: contextvars.ContextVar[_Cache | None] = contextvars.ContextVar("cache", default=None)


@contextlib.contextmanager
def cached_transforms() -> Iterator[None]:
    """A context in which the same rows are transformed only once, for all members of a pool."""
    token = _cache.set({})
    try:
        yield
    finally:
        _cache.reset(token)


class ColumnTransform(torch.nn.Module):
    """Base of the three transforms of the columns of ``x`` ``(n, d)`` where ``numbers`` is true."""

    numbers: Tensor
    is_deterministic = True

    def __init__(self, numbers: Tensor, **fitted: Tensor) -> None:
        super().__init__()
        for name, value in {**fitted, "numbers": numbers}.items():
            self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Tensor:
        """w(x), ``(n, d)``."""
        if x.shape[-1] != len(self.numbers):
            raise ValueError(f"The input transform was fitted to {len(self.numbers)} columns, but x has {x.shape[-1]}.")
        cache = _cache.get()
        if cache is None or x.requires_grad or x.is_inference():
            return self.transformed(x)
        key = (id(self), x.data_ptr(), x._version, x.shape, x.stride(), x.dtype)
        if key not in cache:
            if len(cache) == CACHE_SIZE:
                del cache[next(iter(cache))]
            # Keeps module and rows alive, so that their addresses are not reused.
            cache[key] = (self, x, self.transformed(x))
        return cache[key][-1]

    def transformed(self, x: Tensor) -> Tensor:
        """w(x) without the cache."""
        raise NotImplementedError


class Standard(ColumnTransform):
    """(x − mean)/sd."""

    center: Tensor
    scale: Tensor

    def __init__(self, x: Tensor, numbers: Tensor, weights: Tensor | None = None) -> None:
        p = x.new_full((len(x),), 1.0 / len(x)) if weights is None else weights / weights.sum()
        # Divided by the largest value first, whose square may be too large for a float.
        size = x.abs().amax(0).clamp_min(torch.finfo(x.dtype).tiny)
        center = size * (p @ (x / size))
        spread = size * (p @ ((x - center) / size).square()).sqrt()
        super().__init__(numbers, center=center, scale=torch.where(spread > 0, spread, torch.ones_like(spread)))

    def transformed(self, x: Tensor) -> Tensor:
        """w(x), the transformed rows."""
        return torch.where(self.numbers, (x - self.center) / self.scale, x)


class Squash(ColumnTransform):
    """t / √(1 + (t/3)²)."""

    center: Tensor
    scale: Tensor

    def __init__(self, x: Tensor, numbers: Tensor, weights: Tensor | None = None) -> None:
        low, middle, high = weighted_quantiles(x, x.new_tensor([0.25, 0.5, 0.75]), weights)
        scale = (high - low) / 1.349
        # If half of all values are equal, the interquartile range is 0.
        spread = (x.amax(0) - x.amin(0)) / 4.0
        scale = torch.where(scale > 0, scale, torch.where(spread > 0, spread, torch.ones_like(spread)))
        super().__init__(numbers, center=middle, scale=scale)

    def transformed(self, x: Tensor) -> Tensor:
        """w(x), without squaring a large t."""
        t = (x - self.center) / self.scale
        return torch.where(self.numbers, t / torch.hypot(torch.ones_like(t), t / TAIL), x)


class Quantile(ColumnTransform):
    """√12 F̂."""

    knots: Tensor
    ranks: Tensor

    def __init__(self, x: Tensor, numbers: Tensor, weights: Tensor | None = None) -> None:
        knots, ranks = _knots(x[:, numbers].T, weights)
        super().__init__(numbers, knots=knots, ranks=ranks * math.sqrt(12.0))

    def transformed(self, x: Tensor) -> Tensor:
        """w(x), constant outside the knots."""
        values, where = x.clone(), self.numbers.nonzero().flatten()
        step = max(1, BLOCK_NUMBERS // max(1, len(x)))
        for start in range(0, len(where), step):
            block = slice(start, start + step)
            knots, ranks, columns = self.knots[block], self.ranks[block], x[:, where[block]].T.contiguous()
            right = torch.searchsorted(knots, columns, right=True).clamp(1, knots.shape[-1] - 1)
            low, high = knots.gather(-1, right - 1), knots.gather(-1, right)
            gap = high - low
            t = torch.where(gap > 0, (columns - low) / torch.where(gap > 0, gap, 1.0), 0.0).clamp(0.0, 1.0)
            values[:, where[block]] = torch.lerp(ranks.gather(-1, right - 1), ranks.gather(-1, right), t).T
        return values


def _knots(columns: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Values and ranks of :func:`mid_ranks` for the ``columns`` ``(d, n)``, padded to one length."""
    d, n = columns.shape
    if weights is None and d > 0 and 1 < n <= NUM_KNOTS:
        values = columns.sort(dim=1).values.contiguous()
        if bool((values.diff(dim=1) > 0).all()):  # all columns at once
            mid = (torch.arange(n, dtype=values.dtype, device=values.device) + 0.5) / n
            return values, mid.repeat(d, 1)
    of_columns = [mid_ranks(column, weights) for column in columns]
    width = max((len(values) for values, _ in of_columns), default=2)
    knots, ranks = columns.new_zeros(d, width), columns.new_zeros(d, width)
    for j, (values, F) in enumerate(of_columns):
        # Shorter columns repeat their last knot.
        knots[j], ranks[j] = values[-1], F[-1]
        knots[j, : len(values)], ranks[j, : len(values)] = values, F
    return knots, ranks


def mid_ranks(column: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sorted values of ``column`` ``(n,)``, and F̂ there: the weight below, and half of that of equal values.

    At least two values, and at most :data:`NUM_KNOTS`.
    """
    values, index = torch.unique(column, return_inverse=True)
    ones = torch.ones_like(column) if weights is None else weights
    mass = torch.zeros_like(values).scatter_add_(0, index, ones) / ones.sum()
    F = mass.cumsum(0) - 0.5 * mass
    if len(values) > NUM_KNOTS:
        # Knots at equal steps of rank, ends included.
        levels = torch.linspace(float(F[0]), float(F[-1]), NUM_KNOTS, dtype=F.dtype, device=F.device)
        knots = torch.unique(torch.searchsorted(F, levels).clamp(0, len(values) - 1))
        values, F = values[knots], F[knots]
    return (values, F) if len(values) > 1 else (values.repeat(2), F.repeat(2))


def weighted_quantiles(x: Tensor, levels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Quantiles of the columns of ``x`` ``(n, d)`` at ``levels`` ``(q,)``: ``(q, d)``; rows repeated by ``weights``."""
    ordered, order = x.sort(dim=0)
    ones = torch.ones(len(x), dtype=x.dtype, device=x.device) if weights is None else weights
    total = ones[order].cumsum(0) / ones.sum()
    # the first value at which the level is reached, up to rounding
    place = torch.searchsorted(total.T.contiguous(), (levels - 1e-9).expand(x.shape[1], -1).contiguous())
    return ordered.gather(0, place.T.clamp(max=len(x) - 1))


def make_input_transform(
    kind: InputTransform, x: Tensor, numbers: Tensor, weights: Tensor | None = None
) -> torch.nn.Module:
    """Fit an input transform to data: a module from ``(t, d)`` to ``(t, d)``.

    Args:
        kind: which transform.
        x: the data that the transform is fitted to, ``(n, d)``.
        numbers: a mask ``(d,)`` of the columns that are transformed; the others are unchanged.
        weights: how many rows each row stands for, ``(n,)``.

    Raises:
        TypeError: if ``x`` is not a tensor of real numbers, or ``numbers`` not one boolean for each column.
        ValueError: if ``kind`` is unknown, or ``x`` is empty or not finite.

    Example:
        >>> x = torch.tensor([[1.0], [10.0], [100.0]])
        >>> make_input_transform("standard", x, torch.tensor([True]))(x).flatten()
        tensor([-0.8054, -0.6040,  1.4094])
    """
    kinds = {"standard": Standard, "squash": Squash, "quantile": Quantile}
    if kind not in kinds:
        raise ValueError(f"Unknown input transform {kind!r}. Choose one of {', '.join(map(repr, kinds))}.")
    x = check_features(x)
    if not isinstance(numbers, Tensor) or numbers.dtype != torch.bool or numbers.shape != x.shape[1:]:
        raise TypeError(f"Expected numbers as a boolean tensor, one for each of {x.shape[1]} columns, got {numbers!r}.")
    return kinds[kind](x, numbers, weights)
