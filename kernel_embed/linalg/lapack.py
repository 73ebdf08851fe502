r"""The system :math:`A = K + \eta W^{-1}` of a few hundred rows, in NumPy and LAPACK, and its derivatives.

For fifty rows a call through torch costs as much as its arithmetic. The formulas are those of
:mod:`kernel_embed.linalg.implicit`, for one float64 matrix: :math:`A = L L^\top` is written over A, and where the
inverse is needed once only, one triangle of it over L.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .dense import DenseSystem
from .forms import QuadraticForm
from .units import Blocks, Units

Array = NDArray[np.float64]

FEW_ROWS = 100
"""Below this many rows LAPACK's triangle of the inverse is faster than the whole inverse by torch."""


class Cotangents:
    """∂q for V, P, c = diag A⁻¹, −log N(Y; 0, A), diag A⁻¹LA⁻¹, η and α², and what these are computed from.

    With groups, those of A⁻¹ and A⁻¹LA⁻¹ are lists of blocks.
    """

    V: Array | None = None
    P: Array | None = None
    c: Any = None
    forms: Any = None
    ridge: float = 0.0
    density: float = 0.0
    sup_slope: float = 0.0
    blocks: list[Tensor]
    form_blocks: list[Tensor]
    residuals: Tensor

    def __init__(self, system: LapackSystem, form: QuadraticForm | None, sup_diagonal: np.float64) -> None:
        self.system, self.form, self.sup_diagonal = system, form, sup_diagonal

    def add(self, name: str, value: Any) -> None:
        """Add ``value`` to the cotangent ``name``."""
        before = getattr(self, name)
        if before is not None:
            value = [a + b for a, b in zip(before, value, strict=True)] if isinstance(value, list) else before + value
        setattr(self, name, value)


class LapackSystem:
    """A = σ²K + ηW⁻¹ for targets ``Y`` ``(n, m)``, factorized again and again in one buffer.

    Args:
        Y: targets.
        weights: w, ``(n,)``; 1 for every row by default.
        units: what is left out at a time; every row by itself by default.
    """

    def __init__(self, Y: Array, weights: Array | None = None, units: Units | None = None) -> None:
        from scipy.linalg import lapack

        n, m = Y.shape
        self.weights = weights
        self.groups = None if units is None or units.labels is None else units
        self._shares = None if units is None or units.shares is None else units.shares.numpy()
        self._spread = None if weights is None else 1.0 / weights  # D = η times this
        self._lapack: Any = lapack
        self.Y = np.asfortranarray(Y)
        self._A = np.empty((n, n), order="F")
        self._diagonal = self._A.T.reshape(-1)[:: n + 1]
        self._constant = 0.5 * n * m * math.log(2.0 * math.pi)
        self._clear()

    def _clear(self) -> None:
        self._V: Array | None = None
        self._P: Array | None = None
        self._inverse: Array | None = None

    def factorize(self, K: Array, scale: float, ridge: float) -> bool:
        """Factorize σ²K + ηW⁻¹; whether it is positive definite. ``K`` is not copied."""
        self._K, self._scale, self.ridge = K, scale, ridge
        np.multiply(K, scale, out=self._A.T)
        self._diagonal += ridge if self._spread is None else ridge * self._spread
        self._clear()
        _, info = self._lapack.dpotrf(self._A, lower=1, clean=1, overwrite_a=1)
        return bool(info == 0)

    def solve(self, B: Array) -> Array:
        """A⁻¹B."""
        solution: Array = self._lapack.dpotrs(self._A, B, lower=1)[0]
        return solution

    @property
    def V(self) -> Array:
        """A⁻¹Y."""
        if self._V is None:
            self._V = self.solve(self.Y)
        return self._V

    @property
    def P(self) -> Array:
        """σ²KV."""
        if self._P is None:
            P: Array = self._K @ self.V
            P *= self._scale
            self._P = P
        return self._P

    @property
    def inverse(self) -> Array:
        """A⁻¹."""
        if self._inverse is None:
            # LAPACK writes columns, which are the rows of the same matrix.
            self._inverse = torch.cholesky_inverse(torch.from_numpy(self._A)).mT.numpy()
        return self._inverse

    @property
    def inverse_diagonal(self) -> Array:
        """c = diag A⁻¹."""
        diagonal: Array = self.inverse.diagonal()
        return diagonal

    def negative_log_density(self) -> float:
        """−Σ_c log N(Y_c; 0, A)."""
        half_log_determinant: float = float(np.log(self._diagonal).sum())
        density = 0.5 * float(np.vdot(self.Y, self.V)) + self.Y.shape[1] * half_log_determinant
        return float(density + self._constant)

    def inverse_blocks(self) -> list[Tensor]:
        """The blocks [A⁻¹]_GG of the groups."""
        assert self.groups is not None
        return list(self.groups.blocks(torch.from_numpy(self.inverse)))

    def left_out_diagonal(self) -> Array:
        """c, or c̃ where a part of each row's weight is left out."""
        if self._shares is None:
            return self.inverse_diagonal
        precision = 1.0 if self.weights is None else self.weights
        return self._shares * self.inverse_diagonal + (1.0 - self._shares) * precision / self.ridge

    def pull_back_diagonal(self, at: Cotangents, slope: Array) -> None:
        """Pass the derivative with respect to :meth:`left_out_diagonal` on to c and η."""
        if self._shares is None:
            at.add("c", slope)
            return
        at.add("c", self._shares * slope)
        rest = (1.0 - self._shares) * slope
        at.ridge -= float(rest.sum() if self.weights is None else rest @ self.weights) / self.ridge**2

    def form_product(self, form: QuadraticForm | None) -> Tensor:
        """M = A⁻¹LA⁻¹."""
        assert form is not None
        C = torch.from_numpy(self.inverse)
        self._M: Tensor = C @ form.apply(C)
        return self._M

    def _trace(self, diagonal: Array) -> float:
        """∂q/∂η from ∂q/∂D, the noise of each row."""
        return float(diagonal.sum() if self._spread is None else diagonal @ self._spread)

    def vjp(self, at: Cotangents) -> tuple[Array, float]:
        """A matrix whose symmetric part is ∂q/∂(σ²K), and ∂q/∂η. The factor may be overwritten."""
        G, ridge = None, 0.0
        if at.V is not None or at.P is not None:
            # B = A⁻¹(G_V + KG_P), ∂q/∂K = (G_P − B)Vᵀ, ∂q/∂η = −ΣB∘V
            right = at.V if at.P is None else self._scale * (self._K @ at.P)
            assert right is not None
            B = self.solve(right if at.V is None or at.P is None else at.V + right)
            L = 0.5 * (-B if at.P is None else at.P - B)
            G = np.concatenate([L, self.V], axis=1) @ np.concatenate([self.V, L], axis=1).T
            ridge -= float(np.vdot(B, self.V)) if self._spread is None else self._trace((B * self.V).sum(1))
        if self.groups is not None and at.c is not None:
            part = self._block_vjp(self.groups, at)
            G, ridge = part if G is None else G + part, ridge + self._trace(part.diagonal())
        elif at.forms is not None:
            # ∂q/∂K = −(X + Xᵀ), X = A⁻¹(diag(a)M + ½diag(g)A⁻¹)
            inverse = torch.from_numpy(self.inverse)
            X = self._M.mul_(torch.from_numpy(at.forms).unsqueeze(-1))
            if at.c is not None:
                X.addcmul_(inverse, torch.from_numpy(0.5 * at.c).unsqueeze(-1))
            X = inverse @ X
            part = (X + X.mT).neg_().numpy()
            G, ridge = part if G is None else G + part, ridge + self._trace(part.diagonal())
        elif at.c is not None:
            # ∂q/∂K = −A⁻¹diag(g)A⁻¹, without the rows where g is zero: losses have flat parts.
            rows = np.flatnonzero(at.c)
            C = self.inverse[rows] if len(rows) < len(at.c) else self.inverse
            scaled = C * at.c[rows][:, None]
            ridge -= float(np.vdot(C, scaled)) if self._spread is None else self._trace((C * scaled).sum(0))
            G = np.zeros_like(self._K) if G is None else G
            torch.from_numpy(G).addmm_(torch.from_numpy(C).mT, torch.from_numpy(scaled), alpha=-1.0)
        if at.density:
            # ∂q/∂K = ½(mA⁻¹ − VVᵀ)
            half, V = 0.5 * at.density, self.V
            part = self._folded_inverse(half * V.shape[1])
            part -= (half * V) @ V.T
            G, ridge = part if G is None else G + part, ridge + self._trace(part.diagonal())
        return np.zeros_like(self._K) if G is None else G, ridge + at.ridge

    def _block_vjp(self, groups: Units, at: Cotangents) -> Array:
        """−(X + Xᵀ), X = A⁻¹(ĀM + ½ḡA⁻¹) for the block-diagonal cotangents Ā and ḡ of M and A⁻¹."""
        C = torch.from_numpy(self.inverse)
        X = groups.block_product([0.25 * (g + g.mT) for g in at.c], C)
        if at.forms is not None:
            X += groups.block_product([0.5 * (a + a.mT) for a in at.forms], self._M)
        X = C @ X
        part: Array = (X + X.mT).neg_().numpy()
        return part

    def triangle(self) -> tuple[Array, Array]:
        """The upper triangle of A⁻¹ over the factor, zero below, and its diagonal."""
        self._lapack.dpotri(self._A, lower=1, overwrite_c=1)
        return self._A.T, self._diagonal

    def _folded_inverse(self, scale: float) -> Array:
        """A matrix whose symmetric part is ``scale`` A⁻¹, written over the factor if that is faster."""
        if self._inverse is not None or len(self._A) >= FEW_ROWS:
            whole, self._inverse = self.inverse, None
            whole *= scale
            return whole
        folded: Array = np.multiply(self.triangle()[0], 2.0 * scale)
        folded.reshape(-1)[:: len(folded) + 1] = scale * self._diagonal
        return folded


class LeafSystem(DenseSystem):
    """V, P and c = diag A⁻¹ for targets ``Y`` as leaves of autograd, which LAPACK has solved and differentiates."""

    def __init__(self, K: Tensor, ridge: Tensor, Y: Tensor, system: LapackSystem) -> None:
        self.K, self.ridge = K, ridge
        self.weights = None if system.weights is None else torch.from_numpy(system.weights)
        self.noise = ridge.unsqueeze(-1) if self.weights is None else ridge.unsqueeze(-1) / self.weights
        self.jitter, self._cached_factor = torch.zeros_like(ridge, requires_grad=False), None
        self._Y, self._system = Y, system
        self._leaves: dict[str, Tensor] = {}

    def _leaf(self, name: str, value: Array) -> Tensor:
        if name not in self._leaves:
            self._leaves[name] = torch.from_numpy(np.array(value, order="C")).requires_grad_(self.K.requires_grad)
        return self._leaves[name]

    def regress(self, Y: Tensor) -> tuple[Tensor, Tensor]:
        """V and P, as leaves for the targets themselves."""
        if Y is not self._Y:
            return super().regress(Y)
        return self._leaf("V", self._system.V), self._leaf("P", self._system.P)

    def regress_left_out(self, Y: Tensor, units: Units | None = None) -> tuple[Tensor, Tensor, Blocks]:
        """V, P and c, or the blocks of A⁻¹."""
        return *self.regress(Y), self.inverse_parts(units)

    def inverse_blocks(self, units: Units) -> tuple[Tensor, ...]:
        """The blocks of A⁻¹, as leaves for the units themselves."""
        if units is not self._system.groups:
            return super().inverse_blocks(units)
        return tuple(self._leaf(f"c{k}", block.numpy()) for k, block in enumerate(self._system.inverse_blocks()))

    def inverse_diagonal(self) -> Tensor:
        """c, as a leaf."""
        return self._leaf("c", self._system.inverse_diagonal)

    def vjp(self, outputs: list[Tensor], parameters: Sequence[Tensor]) -> tuple[Array, float, list[Tensor | None]]:
        """∂q/∂K, ∂q/∂η and the gradients of other ``parameters``, for the sum q of ``outputs``."""
        leaves = [self.K, self.ridge, *parameters, *self._leaves.values()]
        gradients: Sequence[Tensor | None] = [None] * len(leaves)
        if outputs:
            gradients = torch.autograd.grad(outputs, leaves, allow_unused=True)
        of_K, of_ridge, *others = gradients
        at = Cotangents(self._system, None, np.float64(0.0))
        of_leaves = dict(zip(self._leaves, others[len(parameters) :], strict=True))
        for name in ("V", "P", "c"):
            if (gradient := of_leaves.get(name)) is not None:
                at.add(name, gradient.numpy())
        blocks = [name for name in self._leaves if name[0] == "c" and name != "c"]
        if any(of_leaves[name] is not None for name in blocks):
            at.c = [torch.zeros_like(self._leaves[b]) if of_leaves[b] is None else of_leaves[b] for b in blocks]
        G, slope = self._system.vjp(at)
        G = G if of_K is None else G + of_K.numpy()
        return G, slope + (0.0 if of_ridge is None else float(of_ridge)), others[: len(parameters)]
