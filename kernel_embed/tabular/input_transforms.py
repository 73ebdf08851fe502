r"""Input transforms: monotone maps of single columns, fitted to the data and applied before the kernel.

Kernels of distances perform poorly on raw columns with heavy tails or many equal values. The last two maps correct
this:

.. math::
    \text{standard:} \quad & w(x) = (x - \text{mean}) / \text{sd} \\
    \text{squash:}   \quad & w(x) = t / \sqrt{1 + (t/3)^2}, \qquad t = (x - \text{median}) / s \\
    \text{quantile:} \quad & w(x) = \sqrt{12}\, \hat F(x)

with s the interquartile range over 1.349, which is the standard deviation of a normal column, and :math:`\hat F` the
mid-rank distribution function, linear between its knots. The first and the last have unit variance on every continuous
column, the second 0.77 on a normal one. The last two are bounded, which limits the influence of outliers; the first
keeps linear relations linear.
"""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

from ..validation import check_features

InputTransform = Literal["standard", "squash", "quantile"]
"""The kinds of input transforms."""

NUM_KNOTS = 256
"""Largest number of knots of F̂; ranks are interpolated between them."""

BLOCK_NUMBERS = 2**20
"""Numbers whose ranks are looked up at once, which bounds the memory of temporary arrays."""

TAIL = 3.0
"""Standard deviations at which :class:`Squash` bends."""

CACHE_SIZE = 4
"""Transformed rows that :func:`cached_transforms` keeps: old and new ones, by two transforms."""

_Cache = dict[tuple[object, ...], tuple[torch.nn.Module, Tensor, Tensor]]
_cache: contextvars.ContextVar[_Cache | None] = contextvars.ContextVar("cache", default=None)


@contextlib.contextmanager
def cached_transforms() -> Iterator[None]:
    """A context in which the same rows are transformed only once, for all members of a pool.

    Example:
        >>> x = torch.tensor([[1.0], [3.0], [4.0]])
        >>> transform = Squash(x, torch.tensor([True]))
        >>> with cached_transforms():
        ...     transform(x) is transform(x)
        True
    """
    token = _cache.set({})
    try:
        yield
    finally:
        _cache.reset(token)


def _cached(module: torch.nn.Module, x: Tensor, transform: Callable[[Tensor], Tensor]) -> Tensor:
    cache = _cache.get()
    if cache is None or x.requires_grad or x.is_inference():
        return transform(x)
    key = (id(module), x.data_ptr(), x._version, x.shape, x.stride(), x.dtype)
    if key not in cache:
        if len(cache) == CACHE_SIZE:
            del cache[next(iter(cache))]
        # Keeps module and rows alive, so that their addresses are not reused.
        cache[key] = (module, x, transform(x))
    return cache[key][-1]


class Standard(torch.nn.Module):
    """(x − mean)/sd of the columns of ``x`` ``(n, d)`` where ``numbers`` is true; others are unchanged.

    Example:
        >>> x = torch.tensor([[1.0], [3.0]], dtype=torch.float64)
        >>> Standard(x, torch.tensor([True]))(x).flatten()
        tensor([-1.,  1.], dtype=torch.float64)
    """

    center: Tensor
    scale: Tensor
    numbers: Tensor
    is_deterministic = True

    def __init__(self, x: Tensor, numbers: Tensor, weights: Tensor | None = None) -> None:
        super().__init__()
        p = x.new_full((len(x),), 1.0 / len(x)) if weights is None else weights / weights.sum()
        # Divided by the largest value first, whose square may be too large for a float.
        size = x.abs().amax(0).clamp_min(torch.finfo(x.dtype).tiny)
        center = size * (p @ (x / size))
        spread = size * (p @ ((x - center) / size).square()).sqrt()
        self.register_buffer("center", center)
        self.register_buffer("scale", torch.where(spread > 0, spread, torch.ones_like(spread)))
        self.register_buffer("numbers", numbers)

    def forward(self, x: Tensor) -> Tensor:
        """w(x), ``(n, d)``."""
        return torch.where(self.numbers, (x - self.center) / self.scale, x)


class Squash(torch.nn.Module):
    """t / √(1 + (t/3)²) of the columns of ``x`` ``(n, d)`` where ``numbers`` is true; others are unchanged.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [3.0], [1000.0]], dtype=torch.float64)
        >>> bool(Squash(x, torch.tensor([True]))(x).abs().max() <= 3.0)
        True
    """

    center: Tensor
    scale: Tensor
    numbers: Tensor
    is_deterministic = True

    def __init__(self, x: Tensor, numbers: Tensor, weights: Tensor | None = None) -> None:
        super().__init__()
        low, middle, high = weighted_quantiles(x, x.new_tensor([0.25, 0.5, 0.75]), weights)
        scale = (high - low) / 1.349
        # If half of all values are equal, the interquartile range is 0.
        spread = (x.amax(0) - x.amin(0)) / 4.0
        scale = torch.where(scale > 0, scale, torch.where(spread > 0, spread, torch.ones_like(spread)))
        self.register_buffer("center", middle)
        self.register_buffer("scale", scale)
        self.register_buffer("numbers", numbers)

    def forward(self, x: Tensor) -> Tensor:
        """w(x), ``(n, d)``."""
        _check_width(x, self.numbers)
        return _cached(self, x, self._squash)

    def _squash(self, x: Tensor) -> Tensor:
        t = (x - self.center) / self.scale
        # t / √(1 + (t/3)²) without squaring a large t
        bent = t / torch.hypot(torch.ones_like(t), t / TAIL)
        return torch.where(self.numbers, bent, x)


class Quantile(torch.nn.Module):
    """√12 F̂ of the columns of ``x`` ``(n, d)`` where ``numbers`` is true; others are unchanged.

    Example:
        >>> x = torch.tensor([[1.0], [10.0], [10.0], [1000.0]], dtype=torch.float64)
        >>> (Quantile(x, torch.tensor([True]))(x) / math.sqrt(12.0)).flatten()
        tensor([0.1250, 0.5000, 0.5000, 0.8750], dtype=torch.float64)
    """

    knots: Tensor
    ranks: Tensor
    numbers: Tensor
    is_deterministic = True

    def __init__(self, x: Tensor, numbers: Tensor, weights: Tensor | None = None) -> None:
        super().__init__()
        knots, ranks = _knots(x[:, numbers].T, weights)
        self.register_buffer("knots", knots)
        self.register_buffer("ranks", ranks * math.sqrt(12.0))
        self.register_buffer("numbers", numbers)

    def forward(self, x: Tensor) -> Tensor:
        """w(x), ``(n, d)``."""
        _check_width(x, self.numbers)
        return _cached(self, x, self._ranks)

    def _ranks(self, x: Tensor) -> Tensor:
        transformed = x.clone()
        where = self.numbers.nonzero().flatten()
        step = max(1, BLOCK_NUMBERS // max(1, len(x)))
        for start in range(0, len(where), step):
            block = slice(start, start + step)
            columns = x[:, where[block]].T.contiguous()
            transformed[:, where[block]] = _interpolate(self.knots[block], self.ranks[block], columns).T
        return transformed


def _interpolate(knots: Tensor, ranks: Tensor, columns: Tensor) -> Tensor:
    """F̂ of each row of ``columns`` ``(d, n)``, constant outside the knots."""
    right = torch.searchsorted(knots, columns, right=True).clamp(1, knots.shape[-1] - 1)
    x0, x1 = knots.gather(-1, right - 1), knots.gather(-1, right)
    r0, r1 = ranks.gather(-1, right - 1), ranks.gather(-1, right)
    step = x1 - x0
    t = torch.where(step > 0, (columns - x0) / torch.where(step > 0, step, 1.0), 0.0).clamp(0.0, 1.0)
    return torch.lerp(r0, r1, t)


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


def _check_width(x: Tensor, numbers: Tensor) -> None:
    if x.shape[-1] != len(numbers):
        raise ValueError(
            f"The input transform was fitted to {len(numbers)} columns, but x has {x.shape[-1]}. Give the same columns."
        )


def mid_ranks(column: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sorted values of ``column`` ``(n,)``, and F̂ there: the weight below, and half of that of equal values.

    At most :data:`NUM_KNOTS` values, and at least two.

    Example:
        >>> mid_ranks(torch.tensor([3.0, 1.0, 1.0, 2.0]))
        (tensor([1., 2., 3.]), tensor([0.2500, 0.6250, 0.8750]))
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
    """Quantiles of the columns of ``x`` ``(n, d)`` at ``levels`` ``(q,)``: ``(q, d)``; rows repeated by ``weights``.

    Example:
        >>> weighted_quantiles(torch.tensor([[1.0], [2.0], [9.0]]), torch.tensor([0.5]), torch.tensor([3.0, 1.0, 1.0]))
        tensor([[1.]])
    """
    ordered, order = x.sort(dim=0)
    ones = torch.ones(len(x), dtype=x.dtype, device=x.device) if weights is None else weights
    total = ones[order].cumsum(0) / ones.sum()
    # the first value at which the level is reached, up to rounding
    place = torch.searchsorted(total.T.contiguous(), (levels - 1e-9).expand(x.shape[1], -1).contiguous())
    return ordered.gather(0, place.T.clamp(max=len(x) - 1))


def make_input_transform(
    kind: InputTransform, x: Tensor, numbers: Tensor, weights: Tensor | None = None
) -> torch.nn.Module:
    """Fit an input transform to data.

    Args:
        kind: which transform.
        x: the data that the transform is fitted to, ``(n, d)``.
        numbers: a mask ``(d,)`` of the columns that are transformed; the others are unchanged.
        weights: how many rows each row stands for, ``(n,)``.

    Returns:
        A module from ``(t, d)`` to ``(t, d)``.

    Raises:
        TypeError: if ``x`` is not a tensor of real numbers, or ``numbers`` not one boolean for each column.
        ValueError: if ``kind`` is unknown, or ``x`` is empty or not finite.

    Example:
        >>> from kernel_embed.tabular import make_input_transform
        >>> x = torch.tensor([[1.0], [10.0], [100.0]])
        >>> make_input_transform("quantile", x, torch.tensor([True]))(x).shape
        torch.Size([3, 1])
    """
    kinds = {"standard": Standard, "squash": Squash, "quantile": Quantile}
    if kind not in kinds:
        raise ValueError(f"Unknown input transform {kind!r}. Choose one of {', '.join(map(repr, kinds))}.")
    x = check_features(x)
    if not isinstance(numbers, Tensor) or numbers.dtype != torch.bool or numbers.shape != x.shape[1:]:
        raise TypeError(
            f"numbers must be a boolean tensor with one entry for each of {x.shape[1]} columns: {numbers!r}."
        )
    transform: torch.nn.Module = kinds[kind](x, numbers, weights)
    return transform
