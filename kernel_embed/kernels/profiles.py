r"""Radial kernels :math:`k(x, x') = \varphi(s)`, :math:`s = \lVert z - z' \rVert^2`, and their derivatives.

===================  ====================================  ==========================  ======================
kernel               φ                                     φ′                          φ″
===================  ====================================  ==========================  ======================
squared exponential  e^(−s/2)                              −½ φ                        ¼ φ
Matérn ½             e^(−a)                                −e^(−a) / 2a                (1 + a) e^(−a) / 4a³
Matérn 3⁄2           (1 + a) e^(−a)                        −(3/2) e^(−a)               (9/4) e^(−a) / a
Matérn 5⁄2           (1 + a + a²/3) e^(−a)                 −(5/6) (1 + a) e^(−a)       (25/12) e^(−a)
rational quadratic   (1 + s/2α)^(−α)                       −½ (1 + s/2α)^(−α−1)        by autograd
===================  ====================================  ==========================  ======================

Here a = √(2ν s). The Gram matrix (:mod:`kernel_embed.kernels.radial`) needs φ and φ′, the slope of an embedding
(``kernel_embed.embeddings.empirical``) all three, and its logarithm the exponent apart from its factor.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel
from torch import Tensor

from ..linalg.derivatives import through
from .radial import Lengthscale, Metric, flushed_exp
from .structure import Registry

Factor = Tensor | float


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

    def plain(self, s: Tensor, m: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
        """e^(−m) φ(s) and e^(−m) φ′(s) in operations that autograd can differentiate any number of times.

        A distance of zero counts as constant: its derivatives by a lengthscale vanish, and √s has none.
        """
        zero = torch.zeros_like(s) if self.constant else (s == 0.0).to(s)
        E = self.exponent((s + zero) * -0.5)
        values = [p * (E - m).exp() for p in self.factors(E)]
        if self.constant:
            return values[0], values[1]
        at_zero = self.exponent(s.new_zeros(1))
        constants = [p * (at_zero - m).exp() for p in self.factors(at_zero)]
        phi, slope = (torch.where(zero > 0, c, v) for c, v in zip(constants, values, strict=True))
        return phi, slope

    def at_zero(self) -> float:
        """φ(0), the value of the kernel for a point with itself."""
        E = self.exponent(torch.zeros(1, dtype=torch.float64, device="cpu"))
        return float((self.factors(E)[0] * E.exp()).item())

    def value_and_slope(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """φ(s) and φ′(s), differentiable in ``s``."""
        answer: tuple[Tensor, Tensor] = _ValueAndSlope.apply(s, self)
        return answer


class _ValueAndSlope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: Tensor, profile: RadialProfile) -> tuple[Tensor, Tensor]:
        """φ and φ′."""
        E = profile.exponent(s * -0.5)
        decay = E.exp()
        p0, p1 = profile.factors(E)
        slope = p1 * decay
        ctx.profile = profile
        ctx.save_for_backward(s, slope, profile.curvature(E) * decay)
        return p0 * decay, slope

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor) -> tuple[Tensor | None, None]:
        """g φ′ + h φ″."""
        s, slope, curvature = ctx.saved_tensors
        if torch.is_grad_enabled():
            return through(ctx.profile.plain, (s,), (g, h))[0], None
        return g * slope + h * curvature, None


@dataclasses.dataclass(frozen=True)
class PlainProfile:
    """A radial kernel differentiated by autograd, for φ with its own parameters.

    Args:
        values: from s to φ(s) and φ′(s), made of differentiable operations. :func:`plain_profile` needs φ alone.

    Example:
        >>> from kernel_embed.kernels import PlainProfile
        >>> rbf = PlainProfile(lambda s: (torch.exp(-s / 2), -torch.exp(-s / 2) / 2))
        >>> rbf.value_and_slope(torch.zeros(1))
        (tensor([1.]), tensor([-0.5000]))
    """

    values: Callable[[Tensor], tuple[Tensor, Tensor]]

    def value_and_slope(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """φ(s) and φ′(s), differentiable in ``s`` and in the parameters."""
        return self.values(s)


def plain_profile(phi: Callable[[Tensor], Tensor]) -> PlainProfile:
    """A profile defined by φ(s) alone; its derivatives are computed by autograd.

    Args:
        phi: φ, a function of the squared distance s made of differentiable operations.

    Returns:
        The profile, for ``register(kind, profile=...)``.

    Example:
        >>> cauchy = plain_profile(lambda s: 1.0 / (1.0 + s))
        >>> [round(value.item(), 4) for value in cauchy.value_and_slope(torch.tensor([1.0]))]
        [0.5, -0.25]
    """
    return PlainProfile(functools.partial(_by_autograd, phi))


def _by_autograd(phi: Callable[[Tensor], Tensor], s: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        at = s if s.requires_grad else s.detach().requires_grad_()
        value = phi(at)
        (slope,) = torch.autograd.grad(value, at, torch.ones_like(value), create_graph=True)
    return value, slope


SQUARED_EXPONENTIAL = RadialProfile(lambda halves: halves, lambda E: (1.0, -0.5), lambda E: 0.25, constant=True)
"""φ(s) = e^(−s/2)."""


@functools.cache
def matern(nu: float) -> RadialProfile:
    """Matérn of smoothness ``nu`` in {½, 3⁄2, 5⁄2}: E = −a, a = √(2ν s)."""

    def exponent(halves: Tensor) -> Tensor:
        if halves.requires_grad:  # differentiated again
            return -(-4.0 * nu * halves).sqrt()
        return halves.mul_(-4.0 * nu).sqrt_().neg_()

    factors, curvature = {
        0.5: (_half, _half_curvature),
        1.5: (_three, _three_curvature),
        2.5: (_five, _five_curvature),
    }[nu]
    return RadialProfile(exponent, factors, curvature, rough=nu == 0.5)


def _inverse(E: Tensor) -> Tensor:
    """1/E = −1/a, and 0 at coinciding points, where z − z' = 0 makes an infinite φ′ contribute nothing."""
    return torch.where(E < 0, E, -math.inf).reciprocal()


def _half(E: Tensor) -> tuple[Factor, Factor]:
    return 1.0, 0.5 * _inverse(E)


def _half_curvature(E: Tensor) -> Factor:
    return 0.25 * (E - 1.0) * _inverse(E).pow(3)


def _three(E: Tensor) -> tuple[Factor, Factor]:
    return 1.0 - E, -1.5


def _three_curvature(E: Tensor) -> Factor:
    return -2.25 * _inverse(E)


def _five(E: Tensor) -> tuple[Factor, Factor]:
    linear = 1.0 - E
    return E.square() / 3.0 + linear, (-5.0 / 6.0) * linear


def _five_curvature(E: Tensor) -> Factor:
    return 25.0 / 12.0


@dataclasses.dataclass(frozen=True)
class Radial:
    """A kernel as φ(‖z − z'‖²): its profile, and how z follows from x.

    Attributes:
        profile: φ.
        metric: the map x → z.

    Example:
        >>> from kernel_embed.kernels import Lengthscale, Radial, plain_profile
        >>> cauchy = Radial(plain_profile(lambda s: 1 / (1 + s)), Lengthscale(torch.tensor([[2.0]])))
        >>> cauchy.metric.scaled(torch.tensor([[4.0]]))
        tensor([[2.]])
    """

    profile: RadialProfile | PlainProfile
    metric: Metric


PROFILES: Registry[Callable[[Kernel], Radial]] = Registry("profile")


def radial_of(kernel: Kernel) -> Radial | None:
    """``kernel`` as a radial kernel, on the columns that reach its ``forward``; ``None`` if it is not radial."""
    rule = PROFILES.find(kernel)
    return None if rule is None else rule(kernel)


def by_lengthscale(kernel: Kernel, profile: RadialProfile | PlainProfile) -> Radial:
    """``kernel`` with z = x / ℓ, or z = x if it has no lengthscale."""
    return Radial(profile, Lengthscale(kernel.lengthscale if kernel.has_lengthscale else None))


def _rbf(kernel: Kernel) -> Radial:
    return by_lengthscale(kernel, SQUARED_EXPONENTIAL)


def _matern(kernel: Kernel) -> Radial:
    return by_lengthscale(kernel, matern(kernel.nu))


def _rational_quadratic(kernel: Kernel) -> Radial:
    return by_lengthscale(kernel, PlainProfile(functools.partial(_rational_quadratic_values, kernel.alpha)))


def _rational_quadratic_values(alpha: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    alpha = alpha[..., None] if alpha.dim() == s.dim() - 1 else alpha[..., None, None]
    base = 1.0 + s / (2.0 * alpha)
    phi = base.pow(-alpha)
    return phi, -0.5 * phi / base


PROFILES.register(RBFKernel, _rbf)
PROFILES.register(MaternKernel, _matern)
PROFILES.register(RQKernel, _rational_quadratic)
