"""Which kernels have r in closed form, and the function that computes it.

Gaussian terms (:mod:`kernel_embed.kernels.smoothed.gaussian`), Matérn kernels
(:mod:`kernel_embed.kernels.smoothed.matern`) and full covariances (:mod:`kernel_embed.kernels.classes.mahalanobis`)
integrate on their own; scaled kernels and products over separate columns follow from their parts.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable

import torch
from gpytorch.kernels import Kernel, MaternKernel, ProductKernel, ScaleKernel, SpectralMixtureKernel
from torch import Tensor

from ..classes.mahalanobis import MahalanobisKernel, mahalanobis_smoothed_gram
from ..gram import check_columns, gram
from .gaussian import GaussianTerms, gaussian_smoothed_gram, gaussian_terms, own_terms
from .matern import matern_smoothed_gram
from .measures import GaussianMeasure, LebesgueMeasure, Measure

Form = Callable[[Tensor, "Tensor | None"], Tensor]
"""From x1 and x2 (``None`` for x1) to the matrix r(x1_i, x2_j)."""


def closed_form(kernel: Kernel, width: int, measure: Measure | None) -> tuple[str, Form] | None:
    """The kind and the function of r where it exists; ``measure=None`` is Lebesgue measure."""
    measure = LebesgueMeasure() if measure is None else measure
    if not isinstance(measure, LebesgueMeasure | GaussianMeasure):
        return None
    check_columns(kernel, width)
    found = _form(kernel, width, measure)
    if found is None:
        return None
    kind, form = found
    if isinstance(measure, GaussianMeasure) and measure.center is not None:
        return kind, functools.partial(_shifted, form, measure.center)
    if isinstance(measure, LebesgueMeasure) and measure.unit:
        return f"{kind}, unit diagonal", functools.partial(_unit, form, kernel)
    return found


def _form(kernel: Kernel, width: int, measure: Measure) -> tuple[str, Form] | None:
    if kernel.active_dims is not None and len(set(kernel.active_dims.tolist())) < width and not _is_gaussian(measure):
        return None  # constant in some column: not integrable
    terms = gaussian_terms(kernel, width)
    h = measure.scale.square().reciprocal() if isinstance(measure, GaussianMeasure) else None
    if terms is not None:
        if h is None and not terms.integrable:
            return None
        return "Gaussian terms", functools.partial(_gaussian, terms, h)
    columns = kernel.active_dims
    if columns is not None and len(columns) < width:
        return None
    inner = _without_columns(kernel, width, measure, h)
    if inner is None or columns is None:
        return inner
    return inner[0], functools.partial(_selected, inner[1], columns)


def _without_columns(kernel: Kernel, width: int, measure: Measure, h: Tensor | None) -> tuple[str, Form] | None:
    if type(kernel) is MaternKernel and h is None:
        return f"Matérn of order {2 * kernel.nu + width / 2:g}", functools.partial(_matern, kernel)
    if type(kernel) is MahalanobisKernel:
        return "full covariance", functools.partial(_mahalanobis, kernel, h)
    if type(kernel) is ScaleKernel:
        base = _form_on_own_columns(kernel.base_kernel, width, measure)
        return base and (base[0], functools.partial(_scaled, base[1], kernel))
    if type(kernel) is SpectralMixtureKernel:
        return _spectral_mixture(kernel, width, h)
    if type(kernel) is ProductKernel:
        return _disjoint_product(kernel, width, measure)
    return None


def _disjoint_product(kernel: ProductKernel, width: int, measure: Measure) -> tuple[str, Form] | None:
    """Factors on separate columns that share out all of them integrate one by one."""
    columns = [part.active_dims for part in kernel.kernels]
    if any(c is None for c in columns) or sorted(int(i) for c in columns for i in c) != list(range(width)):
        return None
    forms = []
    for part, chosen in zip(kernel.kernels, columns, strict=True):
        terms = _form_on_own_columns(part, len(chosen), measure)
        if terms is None:
            return None
        forms.append((terms[0], functools.partial(_selected, terms[1], chosen)))
    kinds = " × ".join(dict.fromkeys(kind for kind, _ in forms))
    return f"product of {kinds}", functools.partial(_multiplied, [form for _, form in forms])


def _form_on_own_columns(kernel: Kernel, width: int, measure: Measure) -> tuple[str, Form] | None:
    h = measure.scale.square().reciprocal() if isinstance(measure, GaussianMeasure) else None
    terms = own_terms(kernel, width)
    if terms is not None and (h is not None or terms.integrable):
        return "Gaussian terms", functools.partial(_gaussian, terms, h)
    return _without_columns(kernel, width, measure, h)


def _spectral_mixture(kernel: SpectralMixtureKernel, width: int, h: Tensor | None) -> tuple[str, Form] | None:
    """GPyTorch's spectral mixture is a product over columns of one-dimensional mixtures that share their weights."""
    forms: list[Form] = []
    for d in range(width):
        precision = (2.0 * math.pi * kernel.mixture_scales[..., 0, d : d + 1]).square()
        frequency = 2.0 * math.pi * kernel.mixture_means[..., 0, d : d + 1]
        terms = GaussianTerms(kernel.mixture_weights, precision, frequency, True)
        column = torch.tensor([d], device=precision.device)
        forms.append(functools.partial(_selected, functools.partial(_gaussian, terms, h), column))
    return "product of spectral mixtures", functools.partial(_multiplied, forms)


def _is_gaussian(measure: Measure) -> bool:
    return isinstance(measure, GaussianMeasure)


# The forms themselves: partial applications of these name what they need and nothing else.
def _gaussian(terms: GaussianTerms, h: Tensor | None, x1: Tensor, x2: Tensor | None) -> Tensor:
    return gaussian_smoothed_gram(terms, x1, x2, h)


def _matern(kernel: MaternKernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    return matern_smoothed_gram(kernel.nu, kernel.lengthscale, x1, x2)


def _mahalanobis(kernel: MahalanobisKernel, h: Tensor | None, x1: Tensor, x2: Tensor | None) -> Tensor:
    return mahalanobis_smoothed_gram(kernel, x1, x2, h)


def _scaled(form: Form, kernel: ScaleKernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    outputscale: Tensor = kernel.outputscale[..., None, None]
    return outputscale.square() * form(x1, x2)


def _selected(form: Form, columns: Tensor, x1: Tensor, x2: Tensor | None) -> Tensor:
    return form(x1.index_select(-1, columns), None if x2 is None else x2.index_select(-1, columns))


def _multiplied(forms: list[Form], x1: Tensor, x2: Tensor | None) -> Tensor:
    return functools.reduce(operator.mul, (form(x1, x2) for form in forms))


def _shifted(form: Form, center: Tensor, x1: Tensor, x2: Tensor | None) -> Tensor:
    return form(x1 - center.to(x1), None if x2 is None else x2 - center.to(x2))


def _unit(form: Form, kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    origin = torch.zeros_like(x1[..., :1, :])
    factor = gram(kernel, origin).square() / form(origin, None)
    return factor * form(x1, x2)
