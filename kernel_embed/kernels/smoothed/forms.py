r"""Closed forms of r, for the kernels that have one.

Gaussian terms (:mod:`kernel_embed.kernels.smoothed.gaussian`), Matérn kernels (below) and full covariances
(:mod:`kernel_embed.kernels.classes.basic`) have their own integrals; scaled kernels and products over separate columns
follow from their parts.

**Matérn kernels** under Lebesgue measure, in any dimension. The spectral density of r is that of k squared, so a Matérn
kernel of smoothness ν in D dimensions smooths to a Matérn of smoothness ν' = 2ν + D/2 with the same inverse length κ =
√(2ν)/ℓ. With :math:`M_\nu(t) = \frac{2^{1-\nu}}{\Gamma(\nu)} t^\nu K_\nu(t)`,

.. math::
    r(x, y) = \frac{C(\nu)^2}{C(\nu')} \Big(\prod_d \frac{\ell_d}{\sqrt{2\nu}}\Big)
        M_{\nu'}(\kappa \lVert x - y \rVert), \qquad C(\nu) = 2^D \pi^{D/2} \frac{\Gamma(\nu + D/2)}{\Gamma(\nu)} .

For odd D the order ν' is a half-integer and :math:`M_{\nu'}` a polynomial times an exponential (D = 1, ν = ½:
r = (ℓ + |δ|) exp(−|δ|/ℓ)); for even D it is an integer and :math:`t^n K_n(t)` follows from K₀ and K₁ by
:math:`g_{n+1} = t^2 g_{n-1} + 2n g_n`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel, MaternKernel, SpectralMixtureKernel
from torch import Tensor

from ..classes.basic import MahalanobisKernel, mahalanobis_smoothed_gram
from ..gram import gram
from ..radial import flushed_exp, radial_gram
from ..structure import Algebra, Node, Registry, check_columns, fold, visit
from .gaussian import GaussianTerms, TermsAlgebra, gaussian_smoothed_gram, spectral_mixture_terms
from .measures import GaussianMeasure, LebesgueMeasure, Measure


def matern_smoothed_gram(nu: float, lengthscale: Tensor, x1: Tensor, x2: Tensor | None) -> Tensor:
    """The matrix r(x1_i, x2_j) of a Matérn kernel of smoothness ``nu``; ``lengthscale`` ℓ is ``(*batch, 1, 1 | D)``."""
    D = x1.shape[-1]
    order = 2.0 * nu + 0.5 * D
    lengthscale = lengthscale.expand(*lengthscale.shape[:-1], D)
    log_constant = 2.0 * _log_C(nu, D) - _log_C(order, D) - 0.5 * D * math.log(2.0 * nu)
    size = (log_constant + lengthscale.log().sum(-1, keepdim=True)).exp()
    z1, z2 = x1 / lengthscale, None if x2 is None else x2 / lengthscale
    return size * radial_gram(z1, z2, GeneralMatern(order, 2.0 * nu))


def _log_C(nu: float, D: int) -> float:
    return D * math.log(2.0) + 0.5 * D * math.log(math.pi) + math.lgamma(nu + 0.5 * D) - math.lgamma(nu)


@dataclasses.dataclass(frozen=True)
class GeneralMatern:
    r"""The profile φ(s) = M_ν(t), t = √(rate·s), for an integer or half-integer order ν > 1.

    From :math:`\frac{d}{dt} t^\nu K_\nu = -t^\nu K_{\nu-1}`: φ'(s) = −(rate/2) · 2^{1−ν}/Γ(ν) · t^{ν−1} K_{ν−1}(t).
    """

    order: float
    rate: float

    @property
    def constant(self) -> float:
        """2^{1−ν}/Γ(ν)."""
        return math.exp((1.0 - self.order) * math.log(2.0) - math.lgamma(self.order))

    def __call__(self, halves: Tensor) -> tuple[Tensor, Tensor, float]:
        """From −s/2, which is overwritten, to φ, and φ′ as a matrix times a number."""
        t = halves.mul_(-2.0 * self.rate).sqrt_()
        lower, upper = _scaled_bessel(self.order, t)
        return upper.mul_(self.constant), lower, -0.5 * self.rate * self.constant

    def plain(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """φ(s) and φ′(s), which autograd can differentiate any number of times; a distance of zero is constant."""
        phi, slope = (_Bessel.apply(s, order, self.rate) for order in (self.order, self.order - 1.0))
        return self.constant * phi, -0.5 * self.rate * self.constant * slope


class _Bessel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: Tensor, order: float, rate: float) -> Tensor:
        """g_n(t) = tⁿ K_n(t) at t = √(rate·s), for an integer or half-integer n, also a negative one."""
        ctx.save_for_backward(s)
        ctx.order, ctx.rate = order, rate
        t = (rate * s).sqrt()
        # K_{−n} = K_n
        below, g = _scaled_bessel(abs(order), t)
        g = below if order == 0.0 else g
        return g if order >= 0.0 else g * t.pow(2.0 * order)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor, None, None]:
        """dg_n/ds = −(rate/2) g_{n−1}."""
        (s,) = ctx.saved_tensors
        positive = s > 0
        lower = _Bessel.apply(torch.where(positive, s, 1.0), ctx.order - 1.0, ctx.rate)
        return torch.where(positive, -0.5 * ctx.rate * G * lower, 0.0), None, None


def _scaled_bessel(order: float, t: Tensor) -> tuple[Tensor, Tensor]:
    """g_{ν−1} and g_ν, where g_n(t) = tⁿ K_n(t), by upward recurrence, in which every term is positive."""
    if float(order).is_integer():
        safe = t.clamp_min(torch.finfo(t.dtype).tiny)
        below, g = torch.special.modified_bessel_k0(safe), safe * torch.special.modified_bessel_k1(safe)
        n = 1.0
    else:
        g = flushed_exp(-t).mul_(math.sqrt(0.5 * math.pi))
        below, n = g / t.clamp_min(torch.finfo(t.dtype).tiny), 0.5
    squares = t.square()
    while n < order:
        # t² g_{n−1} is 0 at t = 0, where g_{−1/2} and g_0 are infinite.
        below, g = g, torch.where(t > 0, squares * below, 0.0).add_(g, alpha=2.0 * n)
        n += 1.0
    return below, g


Form = Callable[[Tensor, "Tensor | None"], Tensor]
"""From x1 and x2 (``None`` for x1) to the matrix r(x1_i, x2_j)."""

NamedForm = tuple[str, Form]
"""A form and what kind it is."""

SmoothingRule = Callable[[Kernel, int, "Tensor | None"], "NamedForm | None"]
"""From a kernel, the number of columns that reach it and h = η⁻² (``None`` for Lebesgue measure) to r on them."""

SMOOTHINGS: Registry[SmoothingRule] = Registry("smoothed form")
LEBESGUE = LebesgueMeasure()


def closed_form(kernel: Kernel, width: int, measure: Measure | None) -> NamedForm | None:
    """The kind and the function of r where it exists; ``measure=None`` is Lebesgue measure."""
    measure = LEBESGUE if measure is None else measure
    if not isinstance(measure, LebesgueMeasure | GaussianMeasure):
        return None
    check_columns(kernel, width)
    h = measure.scale.square().reciprocal() if isinstance(measure, GaussianMeasure) else None
    part = fold(kernel, _Smoothing(width, h))
    named = None if part is None else part.over(tuple(range(width)))
    if named is None:
        return None
    kind, form = named
    if isinstance(measure, GaussianMeasure) and measure.center is not None:
        return kind, functools.partial(_shifted, form, measure.center)
    if isinstance(measure, LebesgueMeasure) and measure.unit:
        return f"{kind}, unit diagonal", functools.partial(_unit, form, kernel)
    return named


class _Part(NamedTuple):
    """A part of a kernel: its columns, and r as the integral over these columns, if it has a closed form."""

    columns: tuple[int, ...]
    over: Callable[[tuple[int, ...]], NamedForm | None]


class _Smoothing(Algebra[_Part]):
    def __init__(self, width: int, h: Tensor | None) -> None:
        self.width, self.h = width, h

    def enter(self, node: Node) -> _Part | None:
        """A sum of Gaussian terms integrates over any columns."""
        terms = visit(node, TermsAlgebra(self.width))
        if terms is None:
            return None
        return _Part(self._columns(node), functools.partial(_gaussian_terms, terms, self.h))

    def leaf(self, node: Node) -> _Part | None:
        """Another kernel by the rule of its class."""
        rule = SMOOTHINGS.find(node.kernel)
        named = None if rule is None else rule(node.kernel, node.width(self.width), self.h)
        return named and self._part(node, named[0], _on_columns(named[1], self._columns(node)))

    def scale(self, node: Node, part: _Part) -> _Part | None:
        """σ⁴r."""
        named = part.over(part.columns)
        if named is None:
            return None
        kind, form = named
        return self._part(node, kind, lambda x1, x2: node.factor[..., None, None].square() * form(x1, x2))

    def multiply(self, node: Node, parts: Sequence[_Part]) -> _Part | None:
        """Factors on disjoint columns that together cover all columns are integrated one by one."""
        if sorted(d for part in parts for d in part.columns) != sorted(self._columns(node)):
            return None
        forms = [named for part in parts if (named := part.over(part.columns)) is not None]
        return self._part(node, *_product(forms)) if len(forms) == len(parts) else None

    def _part(self, node: Node, kind: str, form: Form) -> _Part:
        """A form for all columns of ``node`` together; k is constant in the others."""
        own = self._columns(node)
        return _Part(own, lambda columns: (kind, form) if sorted(own) == sorted(columns) else None)

    def _columns(self, node: Node) -> tuple[int, ...]:
        return tuple(range(self.width) if node.columns is None else node.columns.tolist())


def _gaussian_terms(terms: GaussianTerms, h: Tensor | None, columns: tuple[int, ...]) -> NamedForm | None:
    terms = terms.restricted(columns)
    if h is None and not terms.integrable:
        return None  # constant in some column
    return "Gaussian terms", _on_columns(lambda x1, x2: gaussian_smoothed_gram(terms, x1, x2, h), columns)


def _product(forms: Sequence[NamedForm]) -> NamedForm:
    kinds = " × ".join(dict.fromkeys(kind for kind, _ in forms))
    return f"product of {kinds}", lambda x1, x2: functools.reduce(operator.mul, (form(x1, x2) for _, form in forms))


def _smoothed_matern(kernel: Kernel, width: int, h: Tensor | None) -> NamedForm | None:
    if h is not None:
        return None
    kind = f"Matérn of order {2 * kernel.nu + width / 2:g}"
    return kind, functools.partial(matern_smoothed_gram, kernel.nu, kernel.lengthscale)


def _smoothed_mahalanobis(kernel: Kernel, width: int, h: Tensor | None) -> NamedForm:
    return "full covariance", lambda x1, x2: mahalanobis_smoothed_gram(kernel, x1, x2, h)


def _smoothed_spectral_mixture(kernel: Kernel, width: int, h: Tensor | None) -> NamedForm:
    """GPyTorch's spectral mixture is a product over columns of one-dimensional mixtures that share their weights."""

    def form(d: int, x1: Tensor, x2: Tensor | None) -> Tensor:
        return gaussian_smoothed_gram(spectral_mixture_terms(kernel, d), x1, x2, h)

    return _product([("spectral mixtures", _on_columns(functools.partial(form, d), (d,))) for d in range(width)])


SMOOTHINGS.register(MaternKernel, _smoothed_matern)
SMOOTHINGS.register(MahalanobisKernel, _smoothed_mahalanobis)
SMOOTHINGS.register(SpectralMixtureKernel, _smoothed_spectral_mixture)


def _on_columns(form: Form, columns: tuple[int, ...]) -> Form:
    def selected(x1: Tensor, x2: Tensor | None) -> Tensor:
        if columns == tuple(range(x1.shape[-1])):
            return form(x1, x2)
        index = torch.tensor(columns, device=x1.device)
        return form(x1.index_select(-1, index), None if x2 is None else x2.index_select(-1, index))

    return selected


def _shifted(form: Form, center: Tensor, x1: Tensor, x2: Tensor | None) -> Tensor:
    return form(x1 - center.to(x1), None if x2 is None else x2 - center.to(x2))


def _unit(form: Form, kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    origin = torch.zeros_like(x1[..., :1, :])
    factor = gram(kernel, origin).square() / form(origin, None)
    return factor * form(x1, x2)
