r"""Closed forms of :math:`r(x, y) = \int k(x, u)\, k(u, y)\, \nu(du)`, eq. (4), for the kernels that have one.

Scaled kernels and products over separate columns follow from their parts, and sums of Gaussian terms from
:mod:`kernel_embed.kernels.gaussian_terms`.

**Matérn kernels** under Lebesgue measure. The spectral density of r is that of k squared, so a Matérn kernel of
smoothness ν in D dimensions smooths to a Matérn of smoothness ν' = 2ν + D/2 with the same inverse length κ = √(2ν)/ℓ.
With :math:`M_\nu(t) = \frac{2^{1-\nu}}{\Gamma(\nu)} t^\nu K_\nu(t)`,

.. math::
    r(x, y) = \frac{C(\nu)^2}{C(\nu')} \Big(\prod_d \frac{\ell_d}{\sqrt{2\nu}}\Big)
        M_{\nu'}(\kappa \lVert x - y \rVert), \qquad C(\nu) = 2^D \pi^{D/2} \frac{\Gamma(\nu + D/2)}{\Gamma(\nu)} .

For odd D the order ν' is a half-integer and :math:`M_{\nu'}` a polynomial times an exponential (D = 1, ν = ½:
r = (ℓ + |δ|) exp(−|δ|/ℓ)); for even D it is an integer and :math:`g_n(t) = t^n K_n(t)` follows from K₀ and K₁ by
:math:`g_{n+1} = t^2 g_{n-1} + 2n g_n`.

**A full covariance Σ** under Lebesgue or Gaussian measure, h = η⁻² (eq. 25, appendix A.3):

.. math::
    r = (2\pi)^{D/2} |2\Sigma^{-1} + h I|^{-1/2} e^{-\frac14 \delta^\top \Sigma^{-1} \delta}\,
        e^{-\frac12 s^\top (\frac12 \Sigma + h^{-1} I)^{-1} s}, \qquad s = \tfrac12 (x + y) .
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from gpytorch.kernels import Kernel, MaternKernel, ProductKernel, ScaleKernel, SpectralMixtureKernel
from torch import Tensor

from .classes import MahalanobisKernel
from .gaussian_terms import TermsAlgebra, gaussian_smoothed_gram, spectral_mixture_terms
from .gram import gram
from .radial import SQUARED_EXPONENTIAL, flushed_exp, radial_gram
from .structure import Node, Registry, check_columns, multiply, root_of, visit

Form = Callable[[Tensor, "Tensor | None"], Tensor]
"""From x1 and x2 (``None`` for x1) to the matrix r(x1_i, x2_j)."""
NamedForm = tuple[str, Form]
"""A form and what kind it is."""
SmoothingRule = Callable[[Kernel, int, "Tensor | None"], "NamedForm | None"]
"""From a kernel, the number of columns that reach it and h = η⁻² (``None`` for Lebesgue measure) to r on them."""
SMOOTHINGS: Registry[SmoothingRule] = Registry("smoothed form")


def smoothed_form(
    kernel: Kernel, width: int, *, scale: Tensor | None = None, center: Tensor | None = None, unit: bool = False
) -> NamedForm | None:
    """The kind and the function of r for inputs with ``width`` columns, where it exists.

    The measure is Gaussian with ``scale`` η and ``center``, or Lebesgue; ``unit`` is for r(x, x) = k(x, x)².
    """
    check_columns(kernel, width)
    h = None if scale is None else scale.square().reciprocal()
    named = _integrated(root_of(kernel), list(range(width)), width, h)
    if named is None or not (unit or center is not None):
        return named
    kind, r = named

    def scaled(x1: Tensor, x2: Tensor | None) -> Tensor:
        origin = torch.zeros_like(x1[..., :1, :])
        return gram(kernel, origin).square() / r(origin, None) * r(x1, x2)

    def shifted(x1: Tensor, x2: Tensor | None) -> Tensor:
        shift = torch.as_tensor(center, dtype=x1.dtype, device=x1.device)
        return r(x1 - shift, None if x2 is None else x2 - shift)

    return (f"{kind}, unit diagonal", scaled) if unit else (kind, shifted)


def _integrated(node: Node, columns: list[int], width: int, h: Tensor | None) -> NamedForm | None:
    """r of the kernel of ``node``, as an integral over ``columns``."""
    terms = visit(node, TermsAlgebra(width))
    if terms is not None:  # a sum of Gaussian terms integrates over any columns
        terms = terms.mapped(lambda values: values[..., columns])
        if h is None and not terms.integrable:
            return None  # constant in some column
        return "Gaussian terms", _on_columns(functools.partial(gaussian_smoothed_gram, terms, h), columns)
    own = list(range(width)) if node.columns is None else node.columns.tolist()
    if sorted(own) != sorted(columns):
        return None  # constant in the others
    if node.composite is ScaleKernel:
        named = _integrated(node.parts[0], own, width, h)
        if named is None:
            return None
        kind, form = named
        return kind, lambda x1, x2: node.factor[..., None, None].square() * form(x1, x2)
    if node.composite is ProductKernel:
        # Factors on disjoint columns that together cover all columns are integrated one by one.
        parts = [list(range(width)) if part.columns is None else part.columns.tolist() for part in node.parts]
        if sorted(d for part in parts for d in part) != sorted(own):
            return None
        forms = [_integrated(part, its, width, h) for part, its in zip(node.parts, parts, strict=True)]
        return None if None in forms else _product_form([form for form in forms if form is not None])
    rule = SMOOTHINGS.find(node.kernel)
    named = None if rule is None else rule(node.kernel, node.width(width), h)
    return named and (named[0], _on_columns(named[1], own))


def _on_columns(form: Form, columns: list[int]) -> Form:
    def selected(x1: Tensor, x2: Tensor | None) -> Tensor:
        if columns == list(range(x1.shape[-1])):
            return form(x1, x2)
        return form(x1[..., columns], None if x2 is None else x2[..., columns])

    return selected


def _product_form(forms: Sequence[NamedForm]) -> NamedForm:
    kinds = " × ".join(dict.fromkeys(kind for kind, _ in forms))
    return f"product of {kinds}", lambda x1, x2: multiply([form(x1, x2) for _, form in forms])


def _smoothed_matern(kernel: Kernel, width: int, h: Tensor | None) -> NamedForm | None:
    nu, order = kernel.nu, 2.0 * kernel.nu + 0.5 * width
    if h is not None:
        return None

    def log_C(nu: float) -> float:
        return 0.5 * width * math.log(4.0 * math.pi) + math.lgamma(nu + 0.5 * width) - math.lgamma(nu)

    def form(x1: Tensor, x2: Tensor | None) -> Tensor:
        lengthscale = kernel.lengthscale.expand(*kernel.lengthscale.shape[:-1], width)
        log_constant = 2.0 * log_C(nu) - log_C(order) - 0.5 * width * math.log(2.0 * nu)
        size = (log_constant + lengthscale.log().sum(-1, keepdim=True)).exp()
        z1, z2 = x1 / lengthscale, None if x2 is None else x2 / lengthscale
        K: Tensor = size * radial_gram(z1, z2, GeneralMatern(order, 2.0 * nu))
        return K

    return f"Matérn of order {order:g}", form


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

    def value_and_slope(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """φ(s) and φ′(s), which autograd can differentiate any number of times; a distance of zero is constant."""
        phi, slope = (_Bessel.apply(s, order, self.rate) for order in (self.order, self.order - 1.0))
        return self.constant * phi, -0.5 * self.rate * self.constant * slope


class _Bessel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, s: Tensor, order: float, rate: float) -> Tensor:
        """g_n(t) at t = √(rate·s), for an integer or half-integer n, also a negative one."""
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
    """g_{ν−1} and g_ν by upward recurrence, in which every term is positive."""
    safe = t.clamp_min(torch.finfo(t.dtype).tiny)
    if float(order).is_integer():
        below, g, n = torch.special.modified_bessel_k0(safe), safe * torch.special.modified_bessel_k1(safe), 1.0
    else:
        g = flushed_exp(-t).mul_(math.sqrt(0.5 * math.pi))
        below, n = g / safe, 0.5
    squares = t.square()
    while n < order:
        # t² g_{n−1} is 0 at t = 0, where g_{−1/2} and g_0 are infinite.
        below, g = g, torch.where(t > 0, squares * below, 0.0).add_(g, alpha=2.0 * n)
        n += 1.0
    return below, g


def _smoothed_mahalanobis(kernel: Kernel, width: int, h: Tensor | None) -> NamedForm:
    def form(x1: Tensor, x2: Tensor | None) -> Tensor:
        D, root = kernel.num_dims, math.sqrt(0.5)
        z1, z2 = kernel.whiten(x1), None if x2 is None else kernel.whiten(x2)
        matrix = radial_gram(root * z1, None if z2 is None else root * z2, SQUARED_EXPONENTIAL)
        if h is None:
            log_size: Tensor = 0.5 * D * math.log(math.pi) - kernel.log_diagonal.sum(-1)
            return log_size.exp()[..., None, None] * matrix
        L = kernel.factor
        eye = torch.eye(D, dtype=L.dtype, device=L.device)
        # (½Σ + h⁻¹I)⁻¹ = 2h L (2LᵀL + hI)⁻¹ Lᵀ, so with TTᵀ = 2LᵀL + hI it is √(2h) T⁻¹z, squared.
        T: Tensor = torch.linalg.cholesky(2.0 * L.mT @ L + h[..., None, None] * eye)
        log_size = 0.5 * D * math.log(2.0 * math.pi) - T.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        left = torch.linalg.solve_triangular(T, eye, upper=False) * (0.5 * h).sqrt()[..., None, None]
        y = z1 if z2 is None else z2
        matrix = matrix * radial_gram(z1 @ left.mT, -(y @ left.mT), SQUARED_EXPONENTIAL)
        return log_size.exp()[..., None, None] * matrix

    return "full covariance", form


def _smoothed_spectral_mixture(kernel: Kernel, width: int, h: Tensor | None) -> NamedForm:
    """GPyTorch's spectral mixture is a product over columns of one-dimensional mixtures that share their weights."""

    def form(d: int, x1: Tensor, x2: Tensor | None) -> Tensor:
        return gaussian_smoothed_gram(spectral_mixture_terms(kernel, d), h, x1, x2)

    return _product_form([("spectral mixtures", _on_columns(functools.partial(form, d), [d])) for d in range(width)])


SMOOTHINGS.register(MaternKernel, _smoothed_matern)
SMOOTHINGS.register(MahalanobisKernel, _smoothed_mahalanobis)
SMOOTHINGS.register(SpectralMixtureKernel, _smoothed_spectral_mixture)
