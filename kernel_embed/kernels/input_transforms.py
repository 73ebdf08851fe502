r"""Warpings: monotone maps of single columns, fixed by the data before a kernel sees them.

Heavy tails and many equal values ruin a kernel of distances on the raw scale. The last two of these maps mend that,

.. math::
    \text{standard:} \quad & w(x) = (x - \text{mean}) / \text{sd} \\
    \text{squash:}   \quad & w(x) = t / \sqrt{1 + (t/3)^2}, \qquad t = (x - \text{median}) / s \\
    \text{quantile:} \quad & w(x) = \sqrt{12}\, \hat F(x)

with s the interquartile range over 1.349, which is the standard deviation of a normal column, and :math:`\hat F` the
mid-rank distribution function, linear between its knots. The first and the last have unit variance on every continuous
column, the second 0.77 on a normal one. The last two are bounded, so that one outlier moves nothing else, and the first
keeps what is linear in a column linear.
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

Warping = Literal["standard", "squash", "quantile"]

NUM_KNOTS = 256
"""Knots of F̂ at most: between them the ranks of more values are interpolated."""

BLOCK_NUMBERS = 2**20
"""Numbers whose ranks are looked up at once: a dozen arrays of that size, not of the table's."""

TAIL = 3.0
"""Standard deviations at which :class:`Squash` bends."""


RECENT = 4
"""Warped rows that :func:`remembering` holds: old and new ones, by two warpings."""

_Recent = dict[tuple[object, ...], tuple[torch.nn.Module, Tensor, Tensor]]
_recent: contextvars.ContextVar[_Recent | None] = contextvars.ContextVar("recent", default=None)


@contextlib.contextmanager
def remembering() -> Iterator[None]:
    """Inside, rows that one warping has just warped are not warped again: embeddings by the dozen ask for the same.

    Example:
        >>> x = torch.tensor([[1.0], [3.0], [4.0]])
        >>> warp = Squash(x, torch.tensor([True]))
        >>> with remembering():
        ...     warp(x) is warp(x)
        True
    """
    token = _recent.set({})
    try:
        yield
    finally:
        _recent.reset(token)


def _once(module: torch.nn.Module, x: Tensor, warped: Callable[[Tensor], Tensor]) -> Tensor:
    recent = _recent.get()
    if recent is None or x.requires_grad or x.is_inference():
        return warped(x)
    key = (id(module), x.data_ptr(), x._version, x.shape, x.stride(), x.dtype)
    if key not in recent:
        if len(recent) == RECENT:
            del recent[next(iter(recent))]
        # Module and rows are held, so that nothing else comes to lie where they are.
        recent[key] = (module, x, warped(x))
    return recent[key][-1]


class Standard(torch.nn.Module):
    """(x − mean)/sd of the columns of ``x`` ``(n, d)`` where ``numbers`` is true; the others stay as they are.

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
    """t / √(1 + (t/3)²) of the columns of ``x`` ``(n, d)`` where ``numbers`` is true; the others stay as they are.

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
        # Where half of all values are equal, the spread of the whole column says more.
        spread = (x.amax(0) - x.amin(0)) / 4.0
        scale = torch.where(scale > 0, scale, torch.where(spread > 0, spread, torch.ones_like(spread)))
        self.register_buffer("center", middle)
        self.register_buffer("scale", scale)
        self.register_buffer("numbers", numbers)

    def forward(self, x: Tensor) -> Tensor:
        """w(x), ``(n, d)``."""
        check_width(x, self.numbers)
        return _once(self, x, self._bent)

    def _bent(self, x: Tensor) -> Tensor:
        t = (x - self.center) / self.scale
        # t / √(1 + (t/3)²) without squaring a large t
        bent = t / torch.hypot(torch.ones_like(t), t / TAIL)
        return torch.where(self.numbers, bent, x)


class Quantile(torch.nn.Module):
    """√12 F̂ of the columns of ``x`` ``(n, d)`` where ``numbers`` is true; the others stay as they are.

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
        check_width(x, self.numbers)
        return _once(self, x, self._ranked)

    def _ranked(self, x: Tensor) -> Tensor:
        answer = x.clone()
        where = self.numbers.nonzero().flatten()
        step = max(1, BLOCK_NUMBERS // max(1, len(x)))
        for start in range(0, len(where), step):
            block = slice(start, start + step)
            columns = x[:, where[block]].T.contiguous()
            answer[:, where[block]] = _interpolate(self.knots[block], self.ranks[block], columns).T
        return answer


def _interpolate(knots: Tensor, ranks: Tensor, columns: Tensor) -> Tensor:
    """F̂ of each row of ``columns`` ``(d, n)``, constant outside the knots."""
    right = torch.searchsorted(knots, columns, right=True).clamp(1, knots.shape[-1] - 1)
    x0, x1 = knots.gather(-1, right - 1), knots.gather(-1, right)
    r0, r1 = ranks.gather(-1, right - 1), ranks.gather(-1, right)
    step = x1 - x0
    t = torch.where(step > 0, (columns - x0) / torch.where(step > 0, step, 1.0), 0.0).clamp(0.0, 1.0)
    return torch.lerp(r0, r1, t)


def _knots(columns: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Values and ranks of :func:`mid_ranks` of each of the ``columns`` ``(d, n)``, in rows of one length."""
    d, n = columns.shape
    if weights is None and d > 0 and 1 < n <= NUM_KNOTS:
        values = columns.sort(dim=1).values.contiguous()
        if bool((values.diff(dim=1) > 0).all()):  # all at once, which matters where columns are many
            mid = (torch.arange(n, dtype=values.dtype, device=values.device) + 0.5) / n
            return values, mid.repeat(d, 1)
    found = [mid_ranks(column, weights) for column in columns]
    width = max((len(values) for values, _ in found), default=2)
    knots, ranks = columns.new_zeros(d, width), columns.new_zeros(d, width)
    for j, (values, F) in enumerate(found):
        # Shorter columns repeat their last knot.
        knots[j], ranks[j] = values[-1], F[-1]
        knots[j, : len(values)], ranks[j, : len(values)] = values, F
    return knots, ranks


def check_width(x: Tensor, numbers: Tensor) -> None:
    """Raise unless ``x`` has the columns that the warping was made for."""
    if x.shape[-1] != len(numbers):
        raise ValueError(f"Expected x with {len(numbers)} columns, got {x.shape[-1]}. Give those of the warping.")


def mid_ranks(column: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Values of ``column`` ``(n,)`` in order, and F̂ there: the weight below, and half of that of equals.

    At most :data:`NUM_KNOTS` values, and at least two.

    Example:
        >>> mid_ranks(torch.tensor([3.0, 1.0, 1.0, 2.0]))
        (tensor([1., 2., 3.]), tensor([0.2500, 0.6250, 0.8750]))
    """
    values, where = torch.unique(column, return_inverse=True)
    ones = torch.ones_like(column) if weights is None else weights
    mass = torch.zeros_like(values).scatter_add_(0, where, ones) / ones.sum()
    F = mass.cumsum(0) - 0.5 * mass
    if len(values) > NUM_KNOTS:
        # Knots at equal steps of rank, ends included.
        chosen = torch.searchsorted(
            F, torch.linspace(float(F[0]), float(F[-1]), NUM_KNOTS, dtype=F.dtype, device=F.device)
        )
        chosen = torch.unique(chosen.clamp(0, len(values) - 1))
        values, F = values[chosen], F[chosen]
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


def make_warp(kind: Warping, x: Tensor, numbers: Tensor, weights: Tensor | None = None) -> torch.nn.Module:
    """The warping of this ``kind`` for data ``x`` ``(n, d)``, whose columns in ``numbers`` ``(d,)`` are numbers.

    Args:
        kind: which warping.
        x: the data that the warping is fitted to, ``(n, d)``.
        numbers: a mask ``(d,)`` of the columns that are warped; the others pass through.
        weights: how many rows each row stands for, ``(n,)``.

    Returns:
        A module from ``(t, d)`` to ``(t, d)``.

    Raises:
        TypeError: if ``x`` is not a tensor of real numbers, or ``numbers`` not one boolean for each column.
        ValueError: if ``kind`` is unknown, or ``x`` is empty or not finite.

    Example:
        >>> from kernel_embed.kernels import make_warp
        >>> warp = make_warp("quantile", torch.tensor([[1.0], [10.0], [100.0]]), torch.tensor([True]))
        >>> warp(torch.tensor([[1.0], [10.0], [100.0]])).shape
        torch.Size([3, 1])
    """
    kinds: dict[str, Callable[[Tensor, Tensor, Tensor | None], torch.nn.Module]] = {
        "standard": Standard,
        "squash": Squash,
        "quantile": Quantile,
    }
    if kind not in kinds:
        raise ValueError(f"Expected a warping among {', '.join(map(repr, kinds))}, got {kind!r}. Choose one.")
    x = check_features(x)
    if not isinstance(numbers, Tensor) or numbers.dtype != torch.bool or numbers.shape != x.shape[1:]:
        raise TypeError(
            f"Expected numbers as {x.shape[1]} booleans, one for each column, got {numbers!r}. Give a boolean tensor."
        )
    return kinds[kind](x, numbers, weights)
