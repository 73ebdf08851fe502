r"""Closed forms of kernel classes: the profiles of radial kernels, and ``register`` for classes of your own.

===================  ====================================  ==========================  ======================
kernel               φ                                     φ′                          φ″
===================  ====================================  ==========================  ======================
squared exponential  e^(−s/2)                              −½ φ                        ¼ φ
Matérn ½             e^(−a)                                −e^(−a) / 2a                (1 + a) e^(−a) / 4a³
Matérn 3⁄2           (1 + a) e^(−a)                        −(3/2) e^(−a)               (9/4) e^(−a) / a
Matérn 5⁄2           (1 + a + a²/3) e^(−a)                 −(5/6) (1 + a) e^(−a)       (25/12) e^(−a)
rational quadratic   (1 + s/2α)^(−α)                       −½ (1 + s/2α)^(−α−1)        by autograd
===================  ====================================  ==========================  ======================

Here s is the squared distance in lengthscales, and a = √(2ν s).
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

from .approximations import SPECTRA, Spectrum
from .gaussian_terms import TERMS, TermsRule
from .gram import GRAMS, GramRule
from .parameters import INITIALIZATIONS, Initialization
from .radial import PROFILES, SQUARED_EXPONENTIAL, Factor, ProfileRule, RadialProfile
from .smoothed_forms import SMOOTHINGS, SmoothingRule
from .structure import COMPOSITES, FEATURES, FeatureRule, Registry
from .supremum import SUPREMA, SupremumRule


@functools.cache
def matern(nu: float) -> RadialProfile:
    """Matérn of smoothness ``nu`` in {½, 3⁄2, 5⁄2}: E = −a, a = √(2ν s)."""

    def exponent(halves: Tensor) -> Tensor:
        if halves.requires_grad:  # differentiated again
            return -(-4.0 * nu * halves).sqrt()
        return halves.mul_(-4.0 * nu).sqrt_().neg_()

    if nu == 0.5:
        return RadialProfile(
            exponent, lambda E: (1.0, 0.5 * _inverse(E)), lambda E: 0.25 * (E - 1.0) * _inverse(E).pow(3), rough=True
        )
    if nu == 1.5:
        return RadialProfile(exponent, lambda E: (1.0 - E, -1.5), lambda E: -2.25 * _inverse(E))
    return RadialProfile(exponent, _five_halves, lambda E: 25.0 / 12.0)


def _inverse(E: Tensor) -> Tensor:
    """1/E = −1/a, and 0 at coinciding points, where z − z' = 0 makes an infinite φ′ contribute nothing."""
    return torch.where(E < 0, E, -math.inf).reciprocal()


def _five_halves(E: Tensor) -> tuple[Factor, Factor]:
    linear = 1.0 - E
    return E.square() / 3.0 + linear, (-5.0 / 6.0) * linear


@dataclasses.dataclass(frozen=True)
class PlainProfile:
    """A radial kernel that autograd differentiates: from s to φ(s) and φ′(s), also in the parameters of φ."""

    value_and_slope: Callable[[Tensor], tuple[Tensor, Tensor]]


def plain_profile(phi: Callable[[Tensor], Tensor]) -> PlainProfile:
    """A profile defined by φ(s) alone; its derivatives are computed by autograd.

    Args:
        phi: φ, a function of the squared distance s made of differentiable operations.

    Example:
        >>> cauchy = plain_profile(lambda s: 1.0 / (1.0 + s))
        >>> [round(value.item(), 4) for value in cauchy.value_and_slope(torch.tensor([1.0]))]
        [0.5, -0.25]
    """

    def values(s: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            at = s if s.requires_grad else s.detach().requires_grad_()
            value = phi(at)
            (slope,) = torch.autograd.grad(value, at, torch.ones_like(value), create_graph=True)
        return value, slope

    return PlainProfile(values)


def _rational_quadratic(kernel: Kernel) -> PlainProfile:
    def values(s: Tensor) -> tuple[Tensor, Tensor]:
        alpha = kernel.alpha[..., None] if kernel.alpha.dim() == s.dim() - 1 else kernel.alpha[..., None, None]
        base = 1.0 + s / (2.0 * alpha)
        phi = base.pow(-alpha)
        return phi, -0.5 * phi / base

    return PlainProfile(values)


REGISTRIES: dict[str, Registry[Any]] = {
    "like": COMPOSITES,
    "profile": PROFILES,
    "gram": GRAMS,
    "features": FEATURES,
    "supremum": SUPREMA,
    "terms": TERMS,
    "smoothing": SMOOTHINGS,
    "spectrum": SPECTRA,
    "initialize": INITIALIZATIONS,
}
"""Registries in the order of the arguments of :func:`register`; the composition can only be set with ``like``."""


def register(
    kind: type[Kernel],
    *,
    like: type[Kernel] | None = None,
    profile: RadialProfile | PlainProfile | ProfileRule | None = None,
    gram: GramRule | None = None,
    features: FeatureRule | None = None,
    supremum: SupremumRule | None = None,
    terms: TermsRule | None = None,
    smoothing: SmoothingRule | None = None,
    spectrum: Spectrum | None = None,
    initialize: Initialization | None = None,
    replace: bool = False,
) -> None:
    """Register closed forms for kernels of exactly the class ``kind``, alone and in every sum, product and scale.

    Subclasses are not included, because they may compute something else. Kernels of classes that are not registered are
    evaluated by GPyTorch, which is always correct.

    Args:
        kind: a class of kernels.
        like: a class that ``kind`` is a subclass of; all its rules hold for ``kind`` too. With ``ScaleKernel``,
            ``AdditiveKernel`` or ``ProductKernel``, kernels of ``kind`` are taken apart like those.
        profile: φ with k = φ(‖z − z'‖²), z = x/ℓ: a :class:`~kernel_embed.kernels.RadialProfile`, the result of
            ``plain_profile``, or a function from a kernel to one.
        gram: from a kernel, x1 and x2 (``None`` for x1) to k(x1_i, x2_j).
        features: from a kernel, x and the largest number of features to form, to Z with K = ZZᵀ, or ``None``.
        supremum: from a kernel and x, to sup k(x, x) over all x.
        terms: from a kernel and the number of columns to :class:`~kernel_embed.kernels.GaussianTerms`, or ``None``.
        smoothing: from a kernel, the number of columns and h = η⁻² (``None`` for Lebesgue measure), to the kind and the
            function of r = ∫ k k dν.
        spectrum: from a kernel, the number of columns d, a count p' and a generator, to frequencies Ω ``(d, p')``.
        initialize: how its kernels are initialized from data.
        replace: replace rules that ``kind`` already has.

    Functions are given the columns that reach ``kernel.forward``; only ``supremum`` gets those to call the kernel with.

    Raises:
        ValueError: if ``kind`` already has one of the rules and ``replace`` is not set.
        TypeError: if ``kind`` is not a class of kernels, or a rule is not a function.

    Example:
        >>> from kernel_embed.kernels import sup_diagonal
        >>> class Named(RBFKernel): ...
        >>> register(Named, like=RBFKernel)
        >>> sup_diagonal(Named(), torch.rand(3, 2)).source
        'closed form'
    """
    _check_kind(kind)
    given: tuple[Any, ...] = (None, profile, gram, features, supremum, terms, smoothing, spectrum, initialize)
    own = {name: rule for name, rule in zip(REGISTRIES, given, strict=True) if rule is not None}
    for name, rule in own.items():
        if not (callable(rule) or isinstance(rule, PlainProfile | Initialization)):
            raise TypeError(f"The rule {name}= of {kind.__name__} must be a function, not {type(rule).__name__}.")
    rules = {} if like is None else _rules_like(kind, like)
    # The rules of the class itself come before those of the other class.
    rules |= {name: (rule, None) for name, rule in own.items()}
    if not rules:
        raise ValueError(f"No rule for {kind.__name__}. Give at least one, such as like= or profile=.")
    for name, (rule, _) in rules.items():
        if not replace and REGISTRIES[name].rules.get(kind, (rule,))[0] != rule:
            raise ValueError(f"{kind.__name__} already has a registered {REGISTRIES[name].name}. Use replace=True.")
    for name, (rule, when) in rules.items():
        REGISTRIES[name].register(kind, rule, when=when)


def _check_kind(kind: type[Kernel]) -> None:
    if not (isinstance(kind, type) and issubclass(kind, Kernel)):
        got = getattr(kind, "__name__", type(kind).__name__)
        raise TypeError(f"Expected a subclass of gpytorch.kernels.Kernel, got {got}. Give the class itself.")


def _rules_like(kind: type[Kernel], like: type[Kernel]) -> dict[str, tuple[Any, Callable[[Kernel], bool] | None]]:
    _check_kind(like)
    if not issubclass(kind, like):
        raise TypeError(f"{kind.__name__} is not a subclass of {like.__name__}. Give the rules one by one.")
    rules = {name: registry.rules[like] for name, registry in REGISTRIES.items() if like in registry.rules}
    if not rules:
        raise ValueError(f"{like.__name__} has no registered rules. Register that class first, or give profile=.")
    return rules


register(RBFKernel, profile=SQUARED_EXPONENTIAL)
register(MaternKernel, profile=lambda kernel: matern(kernel.nu))
register(RQKernel, profile=_rational_quadratic)
