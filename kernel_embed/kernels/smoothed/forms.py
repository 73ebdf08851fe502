"""Which kernels have r in closed form, and the function that computes it.

Gaussian terms (:mod:`kernel_embed.kernels.smoothed.gaussian`), Matérn kernels
(:mod:`kernel_embed.kernels.smoothed.matern`) and full covariances (:mod:`kernel_embed.kernels.classes.mahalanobis`)
integrate on their own; scaled kernels and products over separate columns follow from their parts.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence

import torch
from gpytorch.kernels import Kernel, MaternKernel, SpectralMixtureKernel
from torch import Tensor

from ..classes.mahalanobis import MahalanobisKernel, mahalanobis_smoothed_gram
from ..gram import gram
from ..structure import Algebra, Node, Registry, all_known, check_columns, fold
from .gaussian import GaussianTerms, TermsAlgebra, gaussian_smoothed_gram, spectral_mixture_terms
from .matern import matern_smoothed_gram
from .measures import GaussianMeasure, LebesgueMeasure, Measure

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
    found = None if part is None else part.over(range(width))
    if found is None:
        return None
    kind, form = found
    if isinstance(measure, GaussianMeasure) and measure.center is not None:
        return kind, functools.partial(_shifted, form, measure.center)
    if isinstance(measure, LebesgueMeasure) and measure.unit:
        return f"{kind}, unit diagonal", functools.partial(_unit, form, kernel)
    return found


@dataclasses.dataclass(frozen=True)
class _Part:
    """What is known of a kernel that sees some columns: its Gaussian terms on all columns, or r on its own."""

    columns: tuple[int, ...]
    terms: GaussianTerms | None
    form: NamedForm | None
    h: Tensor | None

    def over(self, columns: Sequence[int]) -> NamedForm | None:
        """r as the integral over just ``columns``, a function of the original input."""
        if self.terms is not None:
            terms = self.terms.restricted(columns)
            if self.h is None and not terms.integrable:
                return None  # constant in some column
            return "Gaussian terms", _on_columns(functools.partial(_gaussian, terms, self.h), columns)
        # Elsewhere k is constant, so that its columns must be these, each of them once.
        return self.form if sorted(self.columns) == sorted(columns) else None


class _Smoothing(Algebra[_Part]):
    def __init__(self, width: int, h: Tensor | None) -> None:
        self.width, self.h = width, h
        self.terms = TermsAlgebra(width)

    def leaf(self, node: Node) -> _Part | None:
        """Its terms, else r by the rule of the class."""
        terms, rule = self.terms.leaf(node), SMOOTHINGS.find(node.kernel)
        form = None if terms is not None or rule is None else rule(node.kernel, node.width(self.width), self.h)
        if form is not None:
            form = form[0], _on_columns(form[1], self._columns(node))
        return self._part(node, terms, form)

    def scale(self, node: Node, part: _Part | None) -> _Part | None:
        """σ⁴r."""
        if part is None:
            return None
        form = part.form and (part.form[0], functools.partial(_scaled, part.form[1], node.factor))
        return self._part(node, self.terms.scale(node, part.terms), form)

    def add(self, node: Node, parts: Sequence[_Part | None]) -> _Part | None:
        """The terms of all parts; r of a sum of other kernels has no closed form."""
        known = all_known(parts)
        if known is None:
            return None
        return self._part(node, self.terms.add(node, [part.terms for part in known]), None)

    def multiply(self, node: Node, parts: Sequence[_Part | None]) -> _Part | None:
        """The products of terms, else r as a product over separate columns."""
        known = all_known(parts)
        if known is None:
            return None
        terms = self.terms.multiply(node, [part.terms for part in known])
        return self._part(node, terms, None if terms is not None else self._disjoint(node, known))

    def _disjoint(self, node: Node, parts: Sequence[_Part]) -> NamedForm | None:
        """Factors on separate columns that share out all of them integrate one by one."""
        if sorted(d for part in parts for d in part.columns) != sorted(self._columns(node)):
            return None
        forms = all_known([part.over(part.columns) for part in parts])
        return None if forms is None else _product(forms)

    def _part(self, node: Node, terms: GaussianTerms | None, form: NamedForm | None) -> _Part | None:
        return None if terms is None and form is None else _Part(self._columns(node), terms, form, self.h)

    def _columns(self, node: Node) -> tuple[int, ...]:
        return tuple(range(self.width) if node.columns is None else node.columns.tolist())


def _product(forms: Sequence[NamedForm]) -> NamedForm:
    kinds = " × ".join(dict.fromkeys(kind for kind, _ in forms))
    return f"product of {kinds}", functools.partial(_multiplied, [form for _, form in forms])


def _smoothed_matern(kernel: Kernel, width: int, h: Tensor | None) -> NamedForm | None:
    if h is not None:
        return None
    return f"Matérn of order {2 * kernel.nu + width / 2:g}", functools.partial(_matern, kernel)


def _smoothed_mahalanobis(kernel: Kernel, width: int, h: Tensor | None) -> NamedForm:
    return "full covariance", functools.partial(_mahalanobis, kernel, h)


def _smoothed_spectral_mixture(kernel: Kernel, width: int, h: Tensor | None) -> NamedForm:
    """GPyTorch's spectral mixture is a product over columns of one-dimensional mixtures that share their weights."""
    forms = []
    for d in range(width):
        one = functools.partial(_gaussian, spectral_mixture_terms(kernel, d), h)
        forms.append(("spectral mixtures", _on_columns(one, (d,))))
    return _product(forms)


SMOOTHINGS.register(MaternKernel, _smoothed_matern)
SMOOTHINGS.register(MahalanobisKernel, _smoothed_mahalanobis)
SMOOTHINGS.register(SpectralMixtureKernel, _smoothed_spectral_mixture)


def _on_columns(form: Form, columns: Sequence[int]) -> Form:
    return functools.partial(_selected, form, tuple(columns))


# The forms themselves: partial applications of these name what they need and nothing else.
def _gaussian(terms: GaussianTerms, h: Tensor | None, x1: Tensor, x2: Tensor | None) -> Tensor:
    return gaussian_smoothed_gram(terms, x1, x2, h)


def _matern(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    return matern_smoothed_gram(kernel.nu, kernel.lengthscale, x1, x2)


def _mahalanobis(kernel: Kernel, h: Tensor | None, x1: Tensor, x2: Tensor | None) -> Tensor:
    return mahalanobis_smoothed_gram(kernel, x1, x2, h)


def _scaled(form: Form, outputscale: Tensor, x1: Tensor, x2: Tensor | None) -> Tensor:
    return outputscale[..., None, None].square() * form(x1, x2)


def _selected(form: Form, columns: tuple[int, ...], x1: Tensor, x2: Tensor | None) -> Tensor:
    if columns == tuple(range(x1.shape[-1])):
        return form(x1, x2)
    index = torch.tensor(columns, device=x1.device)
    return form(x1.index_select(-1, index), None if x2 is None else x2.index_select(-1, index))


def _multiplied(forms: list[Form], x1: Tensor, x2: Tensor | None) -> Tensor:
    return functools.reduce(operator.mul, (form(x1, x2) for form in forms))


def _shifted(form: Form, center: Tensor, x1: Tensor, x2: Tensor | None) -> Tensor:
    return form(x1 - center.to(x1), None if x2 is None else x2 - center.to(x2))


def _unit(form: Form, kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    origin = torch.zeros_like(x1[..., :1, :])
    factor = gram(kernel, origin).square() / form(origin, None)
    return factor * form(x1, x2)
