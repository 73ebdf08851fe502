"""``register``: where a class of kernels says what it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol, TypeVar

from gpytorch.kernels import Kernel

from .features.explicit import FEATURES, FeatureRule
from .features.fourier import SPECTRA, Spectrum
from .gram import GRAMS, GramRule
from .initialization import INITIALIZATIONS, Initialization
from .profiles import PROFILES, PlainProfile, Radial, RadialProfile, by_lengthscale
from .smoothed.forms import SMOOTHINGS, SmoothingRule
from .smoothed.gaussian import TERMS, TermsRule
from .structure import COMPOSITES, Plan, Registry, check_kind
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
    check_kind(kind)
    functions = {"gram": gram, "features": features, "supremum": supremum, "terms": terms, "smoothing": smoothing}
    for name, rule in {**functions, "spectrum": spectrum}.items():
        if rule is not None and not callable(rule):
            raise TypeError(
                f"Expected a function as the rule {name}= of {kind.__name__}, got {type(rule).__name__}. "
                "Give a function of the kernel."
            )
    plan = functools.partial(_plan, kind, replace)
    own = [
        plan(PROFILES, None if profile is None else _profile_rule(profile)),
        plan(GRAMS, gram),
        plan(FEATURES, features),
        plan(SUPREMA, supremum),
        plan(TERMS, terms),
        plan(SMOOTHINGS, smoothing),
        plan(SPECTRA, spectrum),
        plan(INITIALIZATIONS, initialize),
    ]
    # By what they say: what is said of the class itself stands before what it has of another.
    plans = {one.what: one for one in [*([] if like is None else _plans_like(kind, like, replace)), *own] if one}
    if not plans:
        raise ValueError(
            f"Expected at least one rule for {kind.__name__}, such as like= or profile=, got none. Give one of them."
        )
    for one in plans.values():
        one.check()
    for one in plans.values():
        one.write()


class _PlansLike(Protocol):
    """A registry, whatever its rules are."""

    def plan_like(self, kind: type[Kernel], like: type[Kernel], *, replace: bool = False) -> Plan | None:
        """See :meth:`Registry.plan_like`."""
        ...  # pragma: no cover


REGISTRIES: tuple[_PlansLike, ...] = (
    *(COMPOSITES, PROFILES, GRAMS, FEATURES, SUPREMA, TERMS, SMOOTHINGS, SPECTRA, INITIALIZATIONS),
)


def _plan(kind: type[Kernel], replace: bool, registry: Registry[T], rule: T | None) -> Plan | None:
    return None if rule is None else registry.plan(kind, rule, replace=replace)


def _plans_like(kind: type[Kernel], like: type[Kernel], replace: bool) -> list[Plan]:
    check_kind(like)
    if not issubclass(kind, like):
        raise TypeError(
            f"Expected a subclass of {like.__name__} with like={like.__name__}, whose rules read its attributes, got "
            f"{kind.__name__}. Derive the class from it, or give the rules one by one."
        )
    found = [registry.plan_like(kind, like, replace=replace) for registry in REGISTRIES]
    plans = [plan for plan in found if plan is not None]
    if not plans:
        raise ValueError(
            f"Expected a class with registered rules for like=, got {like.__name__}, of which nothing is known. "
            "Register that class first, or give profile=."
        )
    return plans


def _profile_rule(profile: Profile | ProfileRule) -> Callable[[Kernel], Radial]:
    if isinstance(profile, RadialProfile | PlainProfile):
        return functools.partial(by_lengthscale, profile=profile)
    return functools.partial(_radial, profile)


def _radial(rule: ProfileRule, kernel: Kernel) -> Radial:
    found = rule(kernel)
    return found if isinstance(found, Radial) else by_lengthscale(kernel, found)
