"""``register``: rules for a class of kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gpytorch.kernels import Kernel

from .features.fourier import SPECTRA, Spectrum
from .gram import FEATURES, GRAMS, FeatureRule, GramRule
from .initialization import INITIALIZATIONS, Initialization
from .profiles import PROFILES, PlainProfile, Radial, RadialProfile, by_lengthscale
from .smoothed.forms import SMOOTHINGS, SmoothingRule
from .smoothed.gaussian import TERMS, TermsRule
from .structure import COMPOSITES, Registry
from .supremum import SUPREMA, SupremumRule

Profile = RadialProfile | PlainProfile
ProfileRule = Callable[[Kernel], Profile | Radial]
"""From a kernel to its profile, or to its profile with its metric."""

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
"""Registries by the argument of :func:`register`; the composition of a kernel can only be set with ``like``."""


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
    """Register closed forms for kernels of exactly the class ``kind``, alone and in every sum, product and scale.

    Subclasses are not included, because they may compute something else. Kernels of classes that are not registered are
    evaluated by GPyTorch, which is always correct.

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
            :class:`~kernel_embed.kernels.smoothed.gaussian.GaussianTerms`, if it is a sum of Gaussians.
        smoothing: from a kernel, the number of columns and h = η⁻² (``None`` for Lebesgue measure), to the kind and the
            function of r = ∫ k k dν.
        spectrum: from a kernel, the number of columns d, a count p' and a generator, to frequencies Ω ``(d, p')``.
        initialize: how its kernels are initialized from data.
        replace: replace rules that ``kind`` already has.

    Functions are given the columns that reach ``kernel.forward``; only ``supremum`` gets those to call the kernel with.

    Returns:
        Nothing; the rules hold from now on, in this process.

    Raises:
        ValueError: if ``kind`` already has one of the rules and ``replace`` is not set.
        TypeError: if ``kind`` is not a class of kernels, or a rule is not a function.

    Example:
        >>> import torch, gpytorch
        >>> from kernel_embed.kernels import register, sup_diagonal
        >>> class Named(gpytorch.kernels.RBFKernel):
        ...     name = "mine"
        >>> register(Named, like=gpytorch.kernels.RBFKernel)
        >>> sup_diagonal(Named(), torch.rand(3, 2)).source
        'closed form'
    """
    _check_kind(kind)
    functions = {
        "gram": gram,
        "features": features,
        "supremum": supremum,
        "terms": terms,
        "smoothing": smoothing,
        "spectrum": spectrum,
    }
    for name, rule in functions.items():
        if rule is not None and not callable(rule):
            raise TypeError(
                f"The rule {name}= of {kind.__name__} must be a function of the kernel, not {type(rule).__name__}."
            )
    rules = {} if like is None else _rules_like(kind, like)
    own = {"profile": None if profile is None else _profile_rule(profile), **functions, "initialize": initialize}
    # The rules of the class itself come before those of the other class.
    rules |= {name: (rule, None) for name, rule in own.items() if rule is not None}
    if not rules:
        raise ValueError(f"No rule for {kind.__name__}. Give at least one, such as like= or profile=.")
    for name, (rule, _) in rules.items():
        if not replace and REGISTRIES[name].rules.get(kind, (rule,))[0] != rule:
            raise ValueError(
                f"{kind.__name__} already has a registered {REGISTRIES[name].name}. Use replace=True to replace it."
            )
    for name, (rule, when) in rules.items():
        REGISTRIES[name].register(kind, rule, when=when)


def _check_kind(kind: type[Kernel]) -> None:
    if not (isinstance(kind, type) and issubclass(kind, Kernel)):
        got = kind.__name__ if isinstance(kind, type) else f"an object of type {type(kind).__name__}"
        raise TypeError(f"Expected a subclass of gpytorch.kernels.Kernel, got {got}. Give the class itself.")


def _rules_like(kind: type[Kernel], like: type[Kernel]) -> dict[str, tuple[Any, Callable[[Kernel], bool] | None]]:
    _check_kind(like)
    if not issubclass(kind, like):
        raise TypeError(
            f"{kind.__name__} is not a subclass of {like.__name__}, whose rules read its attributes. Derive the class "
            "from it, or give the rules one by one."
        )
    rules = {name: registry.rules[like] for name, registry in REGISTRIES.items() if like in registry.rules}
    if not rules:
        raise ValueError(f"{like.__name__} has no registered rules. Register that class first, or give profile=.")
    return rules


def _profile_rule(profile: Profile | ProfileRule) -> Callable[[Kernel], Radial]:
    if isinstance(profile, RadialProfile | PlainProfile):
        return functools.partial(by_lengthscale, profile=profile)
    return functools.partial(_radial, profile)


def _radial(rule: ProfileRule, kernel: Kernel) -> Radial:
    radial = rule(kernel)
    return radial if isinstance(radial, Radial) else by_lengthscale(kernel, radial)
