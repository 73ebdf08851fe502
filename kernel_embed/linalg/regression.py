r"""Targets on a system: fitted values, what is left out at a time, and how derivatives are passed on.

With :math:`V = A^{-1} Y`, :math:`C = A^{-1}` and the same ridge, the values at a group G of rows without them are

.. math::  f_G = Y_G - E_G, \qquad E_G = C_{GG}^{-1} V_G .

If only the share :math:`\rho` of the weight of a row is left out, the rest of it stays: with :math:`D_i = \eta / w_i`,

.. math::  f_i = Y_i - V_i / \tilde c_i, \qquad \tilde c_i = \rho_i C_{ii} + (1 - \rho_i) / D_i .

The scores of a form L are :math:`S_i = [C_{GG}^{-1} M_{GG} C_{GG}^{-1}]_{ii}` with :math:`M = A^{-1} L A^{-1}`. With a
bar for derivatives,

.. math::
    T = C_{GG}^{-1} \bar f_G, \quad \bar V_G = -T, \quad \bar C_{GG} = T E_G^\top ; \qquad
    \bar M_{GG} = C_{GG}^{-1} \operatorname{diag}(\bar S) C_{GG}^{-1}, \quad
    \bar C_{GG} = -2 \bar M_{GG} M_{GG} C_{GG}^{-1} .
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..validation import check_groups
from .factorization import Blocks, inner

if TYPE_CHECKING:
    from .forms import QuadraticForm

ODD, SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)


@dataclasses.dataclass
class Cotangents:
    """∂q for V, P, D, α², log |A|, −log N(Y; 0, A), and the parts of A⁻¹ and A⁻¹LA⁻¹; ``None`` for zero."""

    V: Tensor | None = None
    P: Tensor | None = None
    inverse: Sequence[Tensor | None] | None = None
    forms: Sequence[Tensor | None] | None = None
    noise: Tensor | None = None
    sup_diagonal: Tensor | None = None
    log_determinant: Tensor | None = None
    density: Tensor | None = None

    def add(self, name: str, *values: Tensor) -> None:
        """Add to the cotangent ``name``; one value for each array that it consists of."""
        before = getattr(self, name)
        if name in ("inverse", "forms"):
            setattr(self, name, values if before is None else [a + b for a, b in zip(before, values, strict=True)])
        else:
            setattr(self, name, values[0] if before is None else before + values[0])


class Units:
    """What is left out at a time: a group of rows with one label, or the share ρ in (0, 1] of the weight of one row."""

    def __init__(self, labels: Tensor | None = None, shares: Tensor | None = None) -> None:
        self.shares = shares
        self.labels = None if labels is None else torch.unique(labels, return_inverse=True)[1]

    @classmethod
    def of(cls, x: Tensor, groups: Groups) -> Units | None:
        """The units of rows ``x`` from the labels of their groups, which are checked."""
        return cls(check_groups(x, groups)) if isinstance(groups, Tensor) else groups

    @functools.cached_property
    def rows(self) -> tuple[Tensor, ...]:
        """One tensor ``(g, s)`` of row numbers for each size s of groups, smallest first."""
        assert self.labels is not None
        order, sizes = self.labels.argsort(stable=True), self.labels.bincount()
        starts = sizes.cumsum(0) - sizes
        return tuple(
            order[starts[sizes == size].unsqueeze(-1) + torch.arange(size, device=order.device)]
            for size in torch.unique(sizes).tolist()
        )

    def subset(self, rows: Tensor) -> Units:
        """The units of some of the rows."""
        return Units(*(None if part is None else part[rows] for part in (self.labels, self.shares)))

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

    def block_product(self, blocks: Sequence[Tensor], C: Tensor, factor: float) -> Tensor:
        """``factor`` B C ``(*batch, n, q)`` for the block-diagonal matrix B of the symmetric parts of ``blocks``."""
        product = torch.empty_like(C)
        for rows, block in zip(self.rows, blocks, strict=True):
            product[..., rows, :] = (0.5 * factor * (block + block.mT)) @ C[..., rows, :]
        return product

    def residuals(self, V: Tensor, c: Blocks, noise: Tensor) -> Tensor:
        """Y − f at every row, from V ``(*batch, n, m)``, diag A⁻¹ or its blocks, and D ``(*batch, n)`` or ``(1,)``."""
        if not isinstance(c, tuple):
            return V / self.diagonal(c, noise)[..., None]
        return self._in_order([torch.linalg.solve(b, V[..., r, :]) for b, r in zip(c, self.rows, strict=True)])

    def norms(self, q: Blocks, c: Blocks, noise: Tensor) -> Tensor:
        """S from the diagonals or blocks of M and of C: ``(*batch, n)``."""
        if not isinstance(c, tuple) and not isinstance(q, tuple):
            return q.clip(0.0) / self.diagonal(c, noise) ** 2
        X = [torch.linalg.solve(C, torch.linalg.solve(C, M).mT) for M, C in zip(q, c, strict=True)]
        return self._in_order([x.diagonal(dim1=-2, dim2=-1).unsqueeze(-1) for x in X]).squeeze(-1).clip(0.0)

    def diagonal(self, c: Tensor, noise: Tensor) -> Tensor:
        """c̃, where a part of each row's weight is left out; c itself where the whole row is."""
        shares: Tensor | None = self.shares_like(c)
        return c if shares is None else shares * c + (1.0 - shares) / noise

    def shares_like(self, c: Tensor) -> Any:
        """ρ as the kind of array that ``c`` is."""
        return self.shares if self.shares is None or isinstance(c, Tensor) else self.shares.numpy()

    def _in_order(self, parts: Sequence[Tensor]) -> Tensor:
        """Values at rows ``(*batch, g, s, m)`` of each size, in the order of the rows: ``(*batch, n, m)``."""
        places = torch.cat([rows.flatten() for rows in self.rows]).argsort()
        return torch.cat([part.flatten(-3, -2) for part in parts], dim=-2)[..., places, :]


ROWS = Units()  # each row by itself
Groups = Tensor | Units | None
"""Labels of groups, one for each row, or units; ``None`` for the default."""


def repeated_rows(x: Tensor, y: Tensor) -> Units | None:
    """Rows that repeat others in ``x`` and ``y``, which are left out with them; ``None`` if there are none.

    Rows with the same inputs but different targets are repeated observations, and each is a unit of its own.
    """
    if x.is_inference() or y.is_inference():
        return _repeated(x.detach(), y.detach())
    rows = (x, y)
    if not _LAST or any(ref() is not t or v != t._version for (ref, v), t in zip(_LAST["rows"][0], rows, strict=True)):
        _LAST["rows"] = [(weakref.ref(t), t._version) for t in rows], _repeated(x.detach(), y.detach())
    return _LAST["rows"][1]


_LAST: dict[str, tuple[list[tuple[weakref.ref[Tensor], int]], Units | None]] = {}
"""The result for the rows of the last call: a training loop evaluates the same ones again and again."""


def _repeated(x: Tensor, y: Tensor) -> Units | None:
    # A whole number for each row, equal for equal rows: exact sums of the bits of each cell, times odd numbers.
    cells = np.ascontiguousarray(x.cpu().numpy()) + 0.0  # −0 is 0
    bits = cells.view(f"u{cells.itemsize}").astype(np.uint64, copy=False)
    hashes = np.sort((bits ^ (bits >> SHIFT)) @ (np.arange(1, 2 * x.shape[-1], 2, dtype=np.uint64) * ODD))
    if not (hashes[1:] == hashes[:-1]).any():
        return None
    both = torch.cat([x.double(), y.reshape(len(y), -1).double()], dim=1)
    inputs, pairs = (torch.unique(rows, dim=0, return_inverse=True)[1] for rows in (x, both))
    first = torch.full_like(inputs, len(x)).scatter_reduce_(0, inputs, pairs, "amin")
    last = torch.full_like(inputs, -1).scatter_reduce_(0, inputs, pairs, "amax")
    alone = len(x) + torch.arange(len(x), device=x.device)
    units = Units(torch.where((first == last)[inputs], inputs, alone))
    return None if len(units.rows) == 1 and units.rows[0].shape[-1] == 1 else units


class Regression:
    """Targets Y on a system, differentiable or a factorization without a graph; L for scores, and α² = sup k(x, x).

    For few rows NumPy arrays take the place of tensors; formulas without groups are written for both.
    """

    units: Units | None
    form: QuadraticForm | None = None

    def __init__(self, system: Any, Y: Tensor, units: Units, form: QuadraticForm | None, alpha_squared: Any) -> None:
        self.system, self.Y, self.units, self.form, self.alpha_squared = system, Y, units, form, alpha_squared

    @functools.cached_property
    def V(self) -> Tensor:
        """V = A⁻¹Y, of shape ``(*batch, n, m)``."""
        self.V, self.P = self.system.regress(self.Y)
        return self.V

    @functools.cached_property
    def P(self) -> Tensor:
        """P = KV, the fitted values at the data."""
        self.V, self.P = self.system.regress(self.Y)
        return self.P

    @property
    def squared_norm(self) -> Tensor:
        """tr(VᵀKV), the squared norm of the embedding, of shape ``batch``."""
        return inner(self.V, self.P)

    @functools.cached_property
    def inverse_parts(self) -> Blocks:
        """diag A⁻¹, or its blocks for groups; in one node with V and P if these are not computed yet."""
        if "V" in vars(self):
            self.inverse_parts = self.system.inverse_parts(self.units)
        else:
            self.V, self.P, self.inverse_parts = self.system.regress_left_out(self.Y, self.units)
        return self.inverse_parts

    @functools.cached_property
    def residuals(self) -> Tensor:
        """E = Y − f."""
        parts = self.inverse_parts
        return (self.units or ROWS).residuals(self.V, parts, self.system.noise)

    def leave_one_out(self) -> Tensor:
        """f, the values at each x_i without row i, all of its weight and its group, exactly as one fit for each."""
        return self.Y - self.residuals

    @functools.cached_property
    def form_parts(self) -> Blocks:
        """diag A⁻¹LA⁻¹, or its blocks for groups."""
        self.form_parts, self.inverse_parts = self.system.inverse_forms(self.form, self.units)
        return self.form_parts

    def scores(self) -> Tensor:
        """S, the squared norms of the residuals of features whose Gram matrix is L: ``(*batch, n)``."""
        return (self.units or ROWS).norms(self.form_parts, self.inverse_parts, self.system.noise)

    def pull_back_leave_one_out(self, at: Cotangents, slope: Tensor) -> None:
        """Pass a derivative with respect to f on."""
        units, parts = self.units or ROWS, self.inverse_parts
        T = units.residuals(slope, parts, self.system.noise)
        at.add("V", -T)
        if units.labels is None:
            self._pull_back_diagonal(at, (T * self.residuals).sum(-1))
        else:
            at.add("inverse", *units.outer_blocks(T, self.residuals))

    def _pull_back_diagonal(self, at: Cotangents, slope: Tensor) -> None:
        """Pass a derivative with respect to c̃ on to c and D."""
        shares, noise = (self.units or ROWS).shares_like(slope), self.system.noise
        if shares is not None:
            at.add("noise", self.system.row_sums((shares - 1.0)[..., None], (slope / (noise * noise))[..., None]))
            slope = shares * slope
        at.add("inverse", slope)

    def pull_back_inverse_diagonal(self, at: Cotangents, slope: Tensor) -> None:
        """Pass a derivative with respect to c on."""
        units = self.units or ROWS
        at.add("inverse", *([slope] if units.labels is None else [torch.diag_embed(slope[r]) for r in units.rows]))

    def pull_back_squared_norm(self, at: Cotangents, slope: Tensor) -> None:
        """Pass a derivative with respect to tr VᵀKV on."""
        at.add("V", slope * self.P)
        at.add("P", slope * self.V)

    def pull_back_scores(self, at: Cotangents, slope: Tensor) -> None:
        """Pass a derivative with respect to S on."""
        units, M, C = self.units or ROWS, self.form_parts, self.inverse_parts
        if not isinstance(C, tuple) and not isinstance(M, tuple):
            c = units.diagonal(C, self.system.noise)
            scaled = slope / (c * c)
            at.add("forms", scaled * (M >= 0.0))
            self._pull_back_diagonal(at, -2.0 * scaled * M.clip(0.0) / c)
            return
        halves = [torch.linalg.solve(c, torch.diag_embed(slope[r])) for c, r in zip(C, units.rows, strict=True)]
        bars = [torch.linalg.solve(c, half.mT) for c, half in zip(C, halves, strict=True)]
        at.add("forms", *bars)
        at.add("inverse", *(-2.0 * torch.linalg.solve(c, (b @ m).mT).mT for b, m, c in zip(bars, M, C, strict=True)))


class Quantity(NamedTuple):
    """An input of objectives: its value, and how a derivative with respect to it is passed on."""

    value: Callable[[Any], Tensor]
    pull_back: Callable[[Any, Cotangents, Any], None]


QUANTITIES: dict[str, Quantity] = {
    "coefficients": Quantity(lambda r: r.V, lambda r, at, slope: at.add("V", slope)),
    "fitted": Quantity(lambda r: r.P, lambda r, at, slope: at.add("P", slope)),
    "leave_one_out": Quantity(lambda r: r.leave_one_out(), Regression.pull_back_leave_one_out),
    "inverse_diagonal": Quantity(lambda r: r.system.inverse_parts(), Regression.pull_back_inverse_diagonal),
    "squared_norm": Quantity(lambda r: r.squared_norm, Regression.pull_back_squared_norm),
    "sup_diagonal": Quantity(lambda r: r.alpha_squared, lambda r, at, slope: at.add("sup_diagonal", slope)),
    "negative_log_density": Quantity(
        lambda r: r.system.negative_log_densities(r.Y), lambda r, at, slope: at.add("density", slope)
    ),
    "scores": Quantity(lambda r: r.scores(), Regression.pull_back_scores),
}
"""Possible inputs of objectives."""
