"""``register``: where a class of kernels says what it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from gpytorch.kernels import Kernel

from .features.explicit import FEATURES, FeatureRule
from .features.fourier import SPECTRA, Spectrum
from .gram import GRAMS, GramRule
from .initialization import INITIALIZATIONS, Initialization
from .profiles import PROFILES, PlainProfile, Radial, RadialProfile, by_lengthscale
from .smoothed.forms import SMOOTHINGS, SmoothingRule
from .smoothed.gaussian import TERMS, TermsRule
from .structure import COMPOSITES, Registry, check_kind
from .supremum import SUPREMA, SupremumRule

T = TypeVar("T")

Profile = RadialProfile | PlainProfile
ProfileRule = Callable[[Kernel], Profile | Radial]
"""From a kernel to its profile, or to its profile with its metric."""


def register(
    kind: type[Kernel],
    *,
    like: type[Kernel] | None = None,
    profile: Profile | ProfileRule | None = None,
    gram: GramRule | None = None,
    features: FeatureRule | None = None,
    supremum: SupremumRule | None = None,
    terms: TermsRule | None = None,
    smoothing: SmoothingRule | None = None,
    spectrum: Spectrum | None = None,
    initialize: Initialization | None = None,
    replace: bool = False,
) -> None:
    """Say what kernels of exactly the class ``kind`` are, so that their closed forms are used, alone and in every sum,
    product and scale.

    A subclass may compute something else than its parent, so a class counts only where it is registered; until then
    its kernels are evaluated by GPyTorch, which is always right.

    Args:
        kind: a class of kernels.
        like: a class that ``kind`` is a subclass of; all its rules hold for ``kind`` too. With ``ScaleKernel``,
            ``AdditiveKernel`` or ``ProductKernel``, kernels of ``kind`` are taken apart like those.
        profile: φ with k = φ(‖z − z'‖²), z = x/ℓ: a :class:`~kernel_embed.kernels.profiles.RadialProfile`, or a
            function from a kernel to one. It gives the Gram matrix with its gradient, the supremum and the slope of an
            embedding.
        gram: from a kernel, x1 and x2 (``None`` for x1) to k(x1_i, x2_j).
        features: from a kernel, x and the largest number of features to form, to Z with K = ZZᵀ, or ``None``.
        supremum: from a kernel and x, to sup k(x, x) over all x.
        terms: from a kernel and the number of columns, to
            :class:`~kernel_embed.kernels.smoothed.gaussian.GaussianTerms`, where it is a sum of Gaussians.
        smoothing: from a kernel, the number of columns and h = η⁻² (``None`` for Lebesgue measure), to the kind and the
            function of r = ∫ k k dν.
        spectrum: from a kernel, the number of columns d, a count p' and a generator, to frequencies Ω ``(d, p')``.
        initialize: how its kernels complete themselves when they first see data.
        replace: put rules in the place of those that ``kind`` has.

    Functions are given the columns that reach ``kernel.forward``; only ``supremum`` gets those to call the kernel with.

    Example:
        >>> import torch, gpytorch
        >>> from kernel_embed.kernels import register, sup_diagonal
        >>> class Named(gpytorch.kernels.RBFKernel):
        ...     name = "mine"
        >>> register(Named, like=gpytorch.kernels.RBFKernel)
        >>> sup_diagonal(Named(), torch.rand(3, 2)).source
        'closed form'
    """
    check_kind(kind)
    given: list[_Entry] = [] if like is None else _rules_of(like, kind)
    # What is said of the class itself stands before what it has of another.
    _give(given, PROFILES, None if profile is None else _profile_rule(profile))
    _give(given, GRAMS, gram)
    _give(given, FEATURES, features)
    _give(given, SUPREMA, supremum)
    _give(given, TERMS, terms)
    _give(given, SMOOTHINGS, smoothing)
    _give(given, SPECTRA, spectrum)
    _give(given, INITIALIZATIONS, initialize)
    if not given:
        raise ValueError(f"Expected at least one rule for {kind.__name__}, such as like= or profile=, got none.")
    for entry in given:
        entry.check(kind, replace)
    for entry in given:
        entry.write(kind)


class _Entry:
    """A rule on its way into a registry."""

    def __init__(self, registry: Registry[T], rule: T, when: Callable[[Kernel], bool] | None = None) -> None:
        self.registry: object = registry
        self.check = functools.partial(_check, registry, rule)
        self.write = functools.partial(_write, registry, rule, when)


def _check(registry: Registry[T], rule: T, kind: type[Kernel], replace: bool) -> None:
    registry.check(kind, rule, replace=replace)


def _write(registry: Registry[T], rule: T, when: Callable[[Kernel], bool] | None, kind: type[Kernel]) -> None:
    registry.register(kind, rule, when=when, replace=True)


def _give(given: list[_Entry], registry: Registry[T], rule: T | None) -> None:
    if rule is not None:
        given[:] = [entry for entry in given if entry.registry is not registry] + [_Entry(registry, rule)]


def _rules_of(like: type[Kernel], kind: type[Kernel]) -> list[_Entry]:
    check_kind(like)
    if not issubclass(kind, like):
        raise TypeError(
            f"Expected a subclass of {like.__name__} with like={like.__name__}, whose rules read its attributes, got "
            f"{kind.__name__}. Derive the class from it, or give the rules one by one."
        )
    found: list[_Entry] = []
    _copy(found, COMPOSITES, like)
    _copy(found, PROFILES, like)
    _copy(found, GRAMS, like)
    _copy(found, FEATURES, like)
    _copy(found, SUPREMA, like)
    _copy(found, TERMS, like)
    _copy(found, SMOOTHINGS, like)
    _copy(found, SPECTRA, like)
    _copy(found, INITIALIZATIONS, like)
    if not found:
        raise ValueError(
            f"Expected a class with registered rules for like=, got {like.__name__}, of which nothing is known."
        )
    return found


def _copy(found: list[_Entry], registry: Registry[T], like: type[Kernel]) -> None:
    entry = registry.entry(like)
    if entry is not None:
        found.append(_Entry(registry, *entry))


def _profile_rule(profile: Profile | ProfileRule) -> Callable[[Kernel], Radial]:
    if isinstance(profile, RadialProfile | PlainProfile):
        return functools.partial(by_lengthscale, profile=profile)
    return functools.partial(_radial, profile)


def _radial(rule: ProfileRule, kernel: Kernel) -> Radial:
    found = rule(kernel)
    return found if isinstance(found, Radial) else by_lengthscale(kernel, found)
