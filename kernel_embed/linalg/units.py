r"""What is left out at a time: a row, the rows of a group together, or a part of the weight of a row.

For a group G of rows, with :math:`V = A^{-1} Y`, :math:`C = A^{-1}` and the same ridge, the values at its rows without
any of them are

.. math::  f_{-G} = Y_G - C_{GG}^{-1} V_G .

If only the share :math:`\rho` of the weight of a row is left out, the rest of it stays: with :math:`D_i = \eta / w_i`,

.. math::  f_i = Y_i - V_i / \tilde c_i, \qquad \tilde c_i = \rho_i c_i + (1 - \rho_i) / D_i , \qquad c_i = C_{ii} ,

which for :math:`\rho = 1` leaves the whole row out and for :math:`\rho = 0` is the fitted value. Blocks of one size are
one batch, so that all of them cost O(Σ s³) beside the inverse.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..validation import check_groups

ODD, SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)

Blocks = Tensor | tuple[Tensor, ...]
"""diag A⁻¹, ``(*batch, n)``; or with groups the blocks [A⁻¹]_GG, ``(*batch, g, s, s)`` for each size s."""


class Units:
    """The units that are left out one at a time.

    Args:
        labels: the group of each row, ``(n,)``, which is left out as a whole; each row by itself if ``None``.
        shares: ρ, the part of each row's weight that is left out, ``(n,)``, in (0, 1]; without labels only.

    Example:
        >>> units = Units(torch.tensor([0, 1, 0]))
        >>> [rows.tolist() for rows in units.rows]
        [[[1]], [[0, 2]]]
    """

    def __init__(self, labels: Tensor | None = None, shares: Tensor | None = None) -> None:
        self.shares = shares
        self.labels = None if labels is None else torch.unique(labels, return_inverse=True)[1]

    @classmethod
    def of(cls, x: Tensor, groups: Groups) -> Units | None:
        """The units of rows ``x`` from the labels of their groups, which are checked."""
        return cls(check_groups(x, groups)) if isinstance(groups, Tensor) else groups

    @functools.cached_property
    def rows(self) -> tuple[Tensor, ...]:
        """The rows of the groups of each size s: ``(g, s)``, smallest groups first."""
        assert self.labels is not None
        order = self.labels.argsort(stable=True)
        sizes = self.labels.bincount()
        starts = sizes.cumsum(0) - sizes
        return tuple(
            order[starts[sizes == size].unsqueeze(-1) + torch.arange(size, device=order.device)]
            for size in torch.unique(sizes).tolist()
        )

    @functools.cached_property
    def _places(self) -> Tensor:
        """The place of each row when the groups follow one another."""
        return torch.cat([rows.flatten() for rows in self.rows]).argsort()

    def subset(self, rows: Tensor) -> Units:
        """The units of some of the rows."""
        labels, shares = (None if part is None else part[rows] for part in (self.labels, self.shares))
        return Units(labels, shares)

    def extended(self, num_rows: int) -> Units:
        """The units with more rows, each of them by itself."""
        labels, shares = self.labels, self.shares
        if labels is not None:
            labels = torch.cat([labels, len(labels) + torch.arange(num_rows, device=labels.device)])
        return Units(labels, None if shares is None else torch.cat([shares, shares.new_ones(num_rows)]))

    def blocks(self, C: Tensor) -> tuple[Tensor, ...]:
        """The blocks C_GG of a matrix ``(*batch, n, n)``."""
        return tuple(C[..., rows.unsqueeze(-1), rows.unsqueeze(-2)] for rows in self.rows)

    def outer_blocks(self, U: Tensor, F: Tensor) -> tuple[Tensor, ...]:
        """The blocks of UFᵀ, for ``(*batch, n, p)`` each."""
        return tuple(U[..., rows, :] @ F[..., rows, :].mT for rows in self.rows)

    def block_product(self, blocks: Sequence[Tensor], C: Tensor) -> Tensor:
        """The block-diagonal matrix of ``blocks`` times ``C`` ``(*batch, n, q)``."""
        product = torch.empty_like(C)
        for rows, block in zip(self.rows, blocks, strict=True):
            product[..., rows, :] = block @ C[..., rows, :]
        return product

    def residuals(self, V: Tensor, c: Blocks, noise: Tensor) -> Tensor:
        """Y − f at every row, from V ``(*batch, n, m)``, diag A⁻¹ or its blocks, and D ``(*batch, n)`` or ``(1,)``."""
        if isinstance(c, Tensor):
            return V / self.diagonal(c, noise).unsqueeze(-1)
        return self._in_order([torch.linalg.solve(b, V[..., r, :]) for b, r in zip(c, self.rows, strict=True)])

    def norms(self, q: Blocks, c: Blocks, noise: Tensor) -> Tensor:
        """The diagonal of C_GG⁻¹M_GG C_GG⁻¹ for the blocks of M = A⁻¹LA⁻¹ and C = A⁻¹: ``(*batch, n)``."""
        if isinstance(c, Tensor) and isinstance(q, Tensor):
            return q.clip(0.0) / self.diagonal(c, noise).square()
        parts = []
        for M, C in zip(q, c, strict=True):
            X = torch.linalg.solve(C, torch.linalg.solve(C, M).mT)
            parts.append(X.diagonal(dim1=-2, dim2=-1).unsqueeze(-1))
        return self._in_order(parts).squeeze(-1).clip(0.0)

    def diagonal(self, c: Tensor, noise: Tensor) -> Tensor:
        """c̃, where a part of each row's weight is left out; c itself where the whole row is."""
        return c if self.shares is None else self.shares * c + (1.0 - self.shares) / noise

    def _in_order(self, parts: Sequence[Tensor]) -> Tensor:
        """Values at rows ``(*batch, g, s, m)`` of each size, in the order of the rows: ``(*batch, n, m)``."""
        return torch.cat([part.flatten(-3, -2) for part in parts], dim=-2)[..., self._places, :]


Groups = Tensor | Units | None
"""Labels of groups, one for each row, or units; ``None`` for the default."""


def repeated_rows(x: Tensor, y: Tensor) -> Units | None:
    """Rows that repeat others in ``x`` and ``y``, which are left out with them; ``None`` if there are none.

    Rows with the same inputs but different targets are repeated observations, and each is a unit of its own.

    Example:
        >>> x, y = torch.tensor([[1.0], [2.0], [1.0], [3.0], [3.0]]), torch.tensor([0, 1, 0, 0, 1])
        >>> repeated_rows(x, y).labels
        tensor([0, 1, 0, 2, 3])
    """
    if x.is_inference() or y.is_inference():
        return _repeated(x.detach(), y.detach())
    tensors, versions = (x, y), (x._version, y._version)
    last = _LAST.get("rows")
    if (
        last is None
        or versions != last[1]
        or any(one() is not other for one, other in zip(last[0], tensors, strict=True))
    ):
        last = tuple(weakref.ref(t) for t in tensors), versions, _repeated(x.detach(), y.detach())
        _LAST["rows"] = last
    return last[2]


_LAST: dict[str, tuple[tuple[weakref.ref[Tensor], ...], tuple[int, int], Units | None]] = {}
"""The result for the rows of the last call: a training loop evaluates the same ones again and again."""


def _repeated(x: Tensor, y: Tensor) -> Units | None:
    hashes = np.sort(_hashes(x))
    if not (hashes[1:] == hashes[:-1]).any():
        return None
    inputs = _numbers(x)
    pairs = _numbers(torch.cat([x.double(), y.reshape(len(y), -1).double()], dim=1))
    first = torch.full_like(inputs, len(x)).scatter_reduce_(0, inputs, pairs, "amin")
    last = torch.full_like(inputs, -1).scatter_reduce_(0, inputs, pairs, "amax")
    alone = len(x) + torch.arange(len(x), device=x.device)
    units = Units(torch.where((first == last)[inputs], inputs, alone))
    return None if len(units.rows) == 1 and units.rows[0].shape[-1] == 1 else units


def _numbers(rows: Tensor) -> Tensor:
    """The number of each distinct row, ``(n,)``."""
    numbers: Tensor = torch.unique(rows, dim=0, return_inverse=True)[1]
    return numbers


def _hashes(x: Tensor) -> NDArray[np.uint64]:
    """A whole number for each row, equal for equal rows: exact sums of the bits of each cell, times odd numbers."""
    cells = np.ascontiguousarray(x.cpu().numpy()) + 0.0  # −0 is 0
    bits = cells.view(f"u{cells.itemsize}").astype(np.uint64, copy=False)
    odd = np.arange(1, 2 * x.shape[-1], 2, dtype=np.uint64) * ODD
    hashes: NDArray[np.uint64] = (bits ^ (bits >> SHIFT)) @ odd
    return hashes
