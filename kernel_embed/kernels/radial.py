r"""Radial kernels :math:`k(x, x') = \varphi(s)`, :math:`s = \lVert z - z' \rVert^2`, and their Gram matrices.

With :math:`K_{ij} = \varphi(s_{ij})`, :math:`G = \partial q / \partial K` and :math:`M = G \circ \varphi'(s)`,

.. math::  \partial q / \partial z_i = 2 \Big( z_i \sum_j M_{ij} - \sum_j M_{ij} z'_j \Big) ,

one matrix product where autograd would keep four :math:`n \times n` temporaries. Autograd does the rest, z = x/ℓ.
Distances are one product too, :math:`s_{ij} = \lVert z_i \rVert^2 + \lVert z'_j \rVert^2 - 2 z_i^\top z'_j`, with the
rounding error of the norms: for two clusters 10⁸ lengthscales apart it is of size 1 inside each of them. Where norms
are that large, distances and gradients are sums of differences, which lose no digits.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError
from torch import Tensor

from ..runtime import warn_numerical
from ..validation import broadcast_shapes
from .structure import Registry

if TYPE_CHECKING:
    from .registration import PlainProfile

CHECKED_NORM = 1e5  # squared, in lengthscales: then the error exceeds 10⁵ rounding units of a kernel value of one
LOST_SPACING = 1e-3  # of neighboring numbers of a dtype, in lengthscales: then points have lost too many digits
PAIRS_PER_ROW = 16  # nearly equal points up to which they are subtracted one by one
CACHED_ROWS, MOST_BLOCKS = 128, 8  # rows of a block that stay in the cache of one thread; blocks for several threads

Factor = Tensor | float
Profile = Callable[[Tensor], tuple[Tensor, "Tensor | None", float]]
"""From −s/2, a fresh matrix, to φ and φ′ as :class:`RadialProfile` returns them."""


@dataclasses.dataclass(frozen=True)
class RadialProfile:
    """A radial kernel as φ = p₀ e^E, φ′ = p₁ e^E, φ″ = p₂ e^E, where a factor is a number or a matrix.

    Args:
        exponent: from −s/2, which it may overwrite, to E.
        factors: from E, which it must not change, to p₀ and p₁.
        curvature: from E, which it must not change, to p₂.
        constant: whether all factors are numbers, so that E need not be kept.
        rough: whether φ is not smooth in s at 0, so that the smallest distances must be exact.

    Example:
        >>> profile = RadialProfile(lambda halves: halves, lambda E: (1.0, -0.5), lambda E: 0.25, constant=True)
        >>> [round(value.item(), 4) for value in profile.value_and_slope(torch.tensor(2.0))]
        [0.3679, -0.1839]
    """

    exponent: Callable[[Tensor], Tensor]
    factors: Callable[[Tensor], tuple[Factor, Factor]]
    curvature: Callable[[Tensor], Factor]
    constant: bool = False
    rough: bool = False

    def __call__(self, halves: Tensor) -> tuple[Tensor, Tensor | None, float]:
        """From −s/2 to φ, and φ′ as a matrix times a number; ``None`` stands for the matrix φ itself."""
        E = self.exponent(halves)
        if self.constant:
            p0, p1 = self.factors(E)
            K = flushed_exp(E)
            return (K if p0 == 1.0 else K.mul_(p0)), None, float(p1 / p0)
        decay = flushed_exp(E, inplace=False)
        p0, p1 = self.factors(E)
        if isinstance(p1, float):
            return p0 * decay, decay, p1
        slope = p1 * decay
        return (decay if isinstance(p0, float) and p0 == 1.0 else decay.mul_(p0)), slope, 1.0

    def value_and_slope(self, s: Tensor, m: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """φ(s) and φ′(s), both times e^(−m), which autograd can differentiate any number of times.

        A distance of zero counts as constant: its derivatives by a lengthscale vanish, and √s has none.
        """
        if self.constant:
            return self._plain(s, m)
        zero = s == 0.0
        (phi, slope), at_zero = self._plain(torch.where(zero, 1.0, s), m), self._plain(s.new_zeros(1), m)
        return torch.where(zero, at_zero[0], phi), torch.where(zero, at_zero[1], slope)

    def _plain(self, s: Tensor, m: Tensor | None) -> tuple[Tensor, Tensor]:
        E = self.exponent(s * -0.5)
        decay, (p0, p1) = (E if m is None else E - m).exp(), self.factors(E)
        return p0 * decay, p1 * decay

    def at_zero(self) -> float:
        """φ(0), the value of the kernel for a point with itself."""
        return self._plain(torch.zeros(1, dtype=torch.float64, device="cpu"), None)[0].item()


SQUARED_EXPONENTIAL = RadialProfile(lambda halves: halves, lambda E: (1.0, -0.5), lambda E: 0.25, constant=True)
"""φ(s) = e^(−s/2)."""


@dataclasses.dataclass(frozen=True)
class Radial:
    """A kernel as φ(‖z − z'‖²), where z = x / ℓ, z = Lᵀx with a ``factor`` L ``(*batch, D, p)``, or z = x."""

    profile: RadialProfile | PlainProfile
    lengthscale: Tensor | None = None
    factor: Tensor | None = None

    def scaled(self, x: Tensor) -> Tensor:
        """z, of shape ``(*batch, n, D)``."""
        if self.factor is None:
            return x if self.lengthscale is None else x / self.lengthscale
        if x.shape[-1] != self.factor.shape[-2]:
            raise ValueError(f"The kernel was made for {self.factor.shape[-2]} features, but x has {x.shape[-1]}.")
        return x.to(torch.promote_types(x.dtype, self.factor.dtype)) @ self.factor

    def slope(self, v: Tensor) -> Tensor:
        """∂q/∂x from v = ∂q/∂z, both ``(*batch, n, D)``."""
        return self.scaled(v) if self.factor is None else v @ self.factor.mT

    def noise(self, size: Tensor) -> Tensor:
        """The rounding error of ‖∂q/∂x‖ from that of ‖∂q/∂z‖, both ``(*batch, n)``."""
        return size if self.lengthscale is None else size / self.lengthscale.amax(dim=(-2, -1))[..., None]


ProfileRule = Callable[[Kernel], "RadialProfile | PlainProfile | Radial"]
PROFILES: Registry[RadialProfile | PlainProfile | ProfileRule] = Registry("profile")


def radial_of(kernel: Kernel) -> Radial | None:
    """``kernel`` as a radial kernel, on the columns that reach its ``forward``; ``None`` if it is not radial."""
    rule: Any = PROFILES.find(kernel)
    if callable(rule) and not isinstance(rule, RadialProfile):
        rule = rule(kernel)
    plain = rule is None or isinstance(rule, Radial)
    return rule if plain else Radial(rule, kernel.lengthscale if kernel.has_lengthscale else None)


def radial_gram(z1: Tensor, z2: Tensor | None, profile: Profile, log_size: Tensor | None = None) -> Tensor:
    """The matrix φ(‖z1_i − z2_j‖²), differentiable in ``z1`` and ``z2``; ``z2=None`` means ``z1``.

    A squared exponential may have a size e^``log_size``, of shape ``batch``: it enters the product that forms the
    exponents, and its gradient is a sum that is computed anyway.
    """
    farthest = float(z1.detach().abs().amax()) if z1.numel() else 0.0
    spacing = farthest * torch.finfo(z1.dtype).eps
    if LOST_SPACING < spacing < math.inf:
        warn_numerical(
            f"Points lie up to {farthest:.1e} lengthscales from zero, where {z1.dtype} cannot tell points less than "
            f"{spacing:.1e} lengthscales apart. Remove outliers, subtract an offset, or use a longer lengthscale.",
            stacklevel=2,
        )
    # Distances do not change under a shift, but the rounding error of ‖z‖² + ‖z'‖² − 2zᵀz' does.
    centre = z1.detach().mean(dim=-2, keepdim=True)
    z1, z2 = z1 - centre, None if z2 is None else z2 - centre
    if log_size is not None:
        batch = broadcast_shapes(z1.shape[:-2], log_size.shape)
        z1, log_size = z1.expand(*batch, *z1.shape[-2:]), log_size.expand(batch)
    K: Tensor = _RadialGram.apply(z1, z2, log_size, profile)
    return K


class _RadialGram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor | None, log_size: Tensor | None, profile: Profile) -> Tensor:
        """K = φ(s), and what ∂q/∂z needs: φ′(s), or K itself where φ′ is a multiple of it."""
        halves, ctx.far = half_squares(z1, z2, log_size, getattr(profile, "rough", False))
        K, slope, ctx.factor = profile(halves)
        ctx.profile = None if slope is None or slope.dim() == 0 else profile
        ctx.has_size = log_size is not None
        ctx.save_for_backward(z1, z2, K if slope is None else slope)
        return K

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, ...]:
        """∂q/∂z, and ∂q/∂log size = Σ G∘K, from G = ∂q/∂K."""
        z1, z2, slope = ctx.saved_tensors
        other = z1 if z2 is None else z2
        if torch.is_grad_enabled() and ctx.profile is not None:  # differentiated again
            slope = ctx.profile.value_and_slope(plain_squares(z1, other))[1] / ctx.factor
        exact = ctx.far and not torch.is_grad_enabled()
        if not exact:
            gradient1, gradient2, total = _weighted_differences(G, slope, z1, other)
            exact = z2 is None and not torch.is_grad_enabled() and _cancels(G, slope, z1, gradient1)
        if exact:
            M = G * slope
            gradient1, gradient2, total = *exact_differences(M, z1, other), M.sum((-2, -1))
        gradient1, gradient2 = 2.0 * ctx.factor * gradient1, 2.0 * ctx.factor * gradient2
        size = total if ctx.has_size else None
        if z2 is None:
            return (gradient1 + gradient2).sum_to_size(z1.shape), None, size, None
        return gradient1.sum_to_size(z1.shape), gradient2.sum_to_size(z2.shape), size, None


def square_distances(z1: Tensor, z2: Tensor | None) -> Tensor:
    """The matrix ‖z1_i − z2_j‖² itself, for profiles that are differentiated by autograd; ``z2=None`` means ``z1``."""
    return radial_gram(z1, z2, lambda halves: (halves.mul_(-2.0), halves.new_ones(()), 1.0))  # φ(s) = s and φ′ = 1


def _weighted_differences(G: Tensor, slope: Tensor, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Σ_j M_ij (z1_i − z2_j), Σ_i M_ij (z2_j − z1_i) and Σ M for M = G∘φ′, formed for a block of rows at a time."""
    with_one1, with_one2 = (torch.cat([z, torch.ones_like(z[..., :1])], dim=-1) for z in (z1, z2))
    rows, columns = [], z1.new_zeros(*G.shape[:-2], *with_one2.shape[-2:])
    size = CACHED_ROWS if torch.get_num_threads() == 1 else max(256, -(-G.shape[-2] // MOST_BLOCKS))
    for start in range(0, G.shape[-2], size):
        block = slice(start, start + size)
        M = G[..., block, :] * (slope[..., block, :] if slope.dim() > 1 else slope)
        rows.append(M @ with_one2)
        columns += M.mT @ with_one1[..., block, :]
    row = torch.cat(rows, dim=-2)
    return row[..., -1:] * z1 - row[..., :-1], columns[..., -1:] * z2 - columns[..., :-1], row[..., -1].sum(-1)


def _cancels(G: Tensor, slope: Tensor, z: Tensor, gradient: Tensor) -> bool:
    """Whether half of the digits of ``gradient`` may be rounding errors: G is large where A is nearly singular."""
    # The diagonals have the largest entries of both, up to a small factor, and cost little.
    slope = slope.diagonal(dim1=-2, dim2=-1) if slope.dim() > 1 else slope
    terms = (G.diagonal(dim1=-2, dim2=-1) * slope).abs().max() * z.abs().max()
    return bool(terms * torch.finfo(z.dtype).eps ** 0.5 > gradient.abs().max())


def exact_differences(M: Tensor, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_j M_ij (z1_i − z2_j) and Σ_i M_ij (z2_j − z1_i), by differences."""
    D = _distances(z1, z2)
    W, backward = M * D, torch.ops.aten._cdist_backward  # Σ_j W_ij (z1_i − z2_j) / D_ij
    return backward(W, z1, z2, 2.0, D), backward(W.mT.contiguous(), z2, z1, 2.0, D.mT.contiguous())


def _distances(z1: Tensor, z2: Tensor) -> Tensor:
    return torch.cdist(z1, z2, compute_mode="donot_use_mm_for_euclid_dist")


def plain_squares(z1: Tensor, z2: Tensor) -> Tensor:
    """‖z1_i − z2_j‖² in operations that autograd can differentiate any number of times."""
    return (z1.unsqueeze(-2) - z2.unsqueeze(-3)).square().sum(-1)


def half_squares(
    z1: Tensor, z2: Tensor | None, shift: Tensor | None = None, rough: bool = False
) -> tuple[Tensor, bool]:
    """−s/2 (plus ``shift``), and whether norms are so large that it was computed by differences.

    ``rough`` subtracts points that nearly coincide whatever their norms: an error of 1e-16 in s is one of 1e-8 in √s.
    """
    other = z1 if z2 is None else z2
    norms1, norms2 = (z.square().sum(-1, keepdim=True).mul_(0.5) for z in (z1, other))
    largest = max(float(norms1.max()), float(norms2.max()))
    if not math.isfinite(largest):
        raise NanError("Some points are too many lengthscales apart. Rescale x, or use a longer lengthscale.")
    if 2.0 * largest > CHECKED_NORM:
        halves = _distances(z1, other).square_().mul_(-0.5)
        return halves if shift is None else halves.add_(shift[..., None, None]), True
    # [z, −‖z‖²/2 + shift, 1] [z', 1, −‖z'‖²/2]ᵀ
    own = -norms1 if shift is None else shift[..., None, None] - norms1
    left = torch.cat([z1, own, torch.ones_like(norms1)], dim=-1)
    halves = left @ torch.cat([other, torch.ones_like(norms2), -norms2], dim=-1).mT
    if shift is None:
        halves.clamp_max_(0.0)
    if shift is None and z2 is None:
        halves.diagonal(dim1=-2, dim2=-1).zero_()
    return _refined(halves, z1, other, largest) if rough else halves, False


def _refined(halves: Tensor, z1: Tensor, z2: Tensor, largest: float) -> Tensor:
    """−s/2 with the pairs that coincide up to rounding subtracted."""
    near = halves > -2e4 * torch.finfo(halves.dtype).eps * largest
    index = near.nonzero(as_tuple=True)  # of the batch, of z1 and of z2
    if len(index[0]) > PAIRS_PER_ROW * near[..., 0].numel():
        return _distances(z1, z2).square_().mul_(-0.5)
    a, b = (z.expand(*halves.shape[:-2], *z.shape[-2:]) for z in (z1, z2))
    halves[near] = (a[index[:-1]] - b[index[:-2] + index[-1:]]).square().sum(-1).mul_(-0.5)
    return halves


def flushed_exp(exponent: Tensor, *, inplace: bool = True) -> Tensor:
    """exp, in place by default, with values below √tiny (1e-154 in float64) set to exactly 0.

    They cannot change any sum, but their products are denormal numbers, on which a processor is many times slower.
    """
    flush = torch.threshold_ if inplace else torch.threshold
    values: Tensor = flush(exponent, 0.5 * math.log(torch.finfo(exponent.dtype).tiny), -math.inf).exp_()
    return values
