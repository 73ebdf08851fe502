r"""Closed forms of r for kernels that are sums of Gaussians with a wave.

.. math::
    k(x, y) = \sum_q w_q \prod_d e^{-\frac12 p_{qd} \delta_d^2} \cos(a_{qd} \delta_d), \qquad \delta = x - y :

squared exponentials (isotropic or ARD), their sums and products, constants, one-dimensional spectral mixtures and
cosines. Under :math:`\nu(du) = e^{-\frac h2 \lVert u \rVert^2} du` (h = η⁻²; h = 0 is Lebesgue measure) each pair of
terms (p, a), (q, b) integrates, dimension by dimension, with S = p + q + h, to

.. math::
    \sqrt{2\pi / S}\; e^{-\frac12 \frac{pq}{p+q} \delta^2}\; e^{-\frac12 \frac{(p+q) h}{S} m^2}\;
    \tfrac12 \sum_\pm e^{-\frac{(a \mp b)^2}{2S}} \cos(\alpha_\pm x - \beta_\pm y),
    \qquad m = \frac{p x + q y}{p + q},

:math:`\alpha_\pm = a - (a \mp b) p / S`, :math:`\beta_\pm = \pm b + (a \mp b) q / S`. For one squared exponential this
is eq. (25) and the Gaussian case of appendix A.3.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence

import torch
from gpytorch.kernels import ConstantKernel, CosineKernel, Kernel, RBFKernel, SpectralMixtureKernel
from torch import Tensor

from ...validation import broadcast_shapes
from ..profiles import SQUARED_EXPONENTIAL
from ..radial import gaussian_gram, radial_gram
from ..structure import Algebra, Node, Registry, fold


@dataclasses.dataclass(frozen=True)
class GaussianTerms:
    """The terms of k: ``weight`` w ``(*batch, Q)``, ``precision`` p and ``frequency`` a ``(*batch, Q, D)``.

    ``frequency`` is ``None`` if no term has a wave; ``decays`` says of every term and dimension, ``(Q, D)``, whether
    the term falls to zero there.

    Attributes:
        weight: w.
        precision: p.
        frequency: a, or ``None``.
        decays: which terms fall to zero, and where.

    Example:
        >>> from kernel_embed.kernels.smoothed.gaussian import GaussianTerms
        >>> terms = GaussianTerms(torch.ones(1), torch.ones(1, 2), None, ((True, True),))
        >>> terms.weight.shape, terms.precision.shape
        (torch.Size([1]), torch.Size([1, 2]))
    """

    weight: Tensor
    precision: Tensor
    frequency: Tensor | None
    decays: tuple[tuple[bool, ...], ...]

    @property
    def integrable(self) -> bool:
        """Whether all terms decay in every dimension, which Lebesgue measure needs."""
        return all(all(term) for term in self.decays)

    def waves(self) -> Tensor:
        """a, and zeros where no term has a wave."""
        return torch.zeros_like(self.precision) if self.frequency is None else self.frequency

    def restricted(self, columns: Sequence[int]) -> GaussianTerms:
        """The terms as functions of some dimensions."""
        columns = list(columns)
        if columns == list(range(self.precision.shape[-1])):
            return self
        frequency = None if self.frequency is None else self.frequency[..., columns]
        decays = tuple(tuple(term[d] for d in columns) for term in self.decays)
        return GaussianTerms(self.weight, self.precision[..., columns], frequency, decays)

    def spread(self, columns: Tensor, width: int) -> GaussianTerms:
        """The terms as functions of ``width`` dimensions, of which ``columns`` are the present ones."""
        frequency = None if self.frequency is None else _spread(self.frequency, columns, width)
        places = columns.tolist()
        decays = tuple(
            tuple(any(term[i] for i, place in enumerate(places) if place == d) for d in range(width))
            for term in self.decays
        )
        return GaussianTerms(self.weight, _spread(self.precision, columns, width), frequency, decays)


TermsRule = Callable[[Kernel, int], "GaussianTerms | None"]
"""From a kernel and the number of columns that reach it to its terms; ``None`` if it has no such form."""

TERMS: Registry[TermsRule] = Registry("Gaussian terms")


class TermsAlgebra(Algebra[GaussianTerms]):
    """A kernel on inputs with ``width`` columns as a sum of Gaussian terms."""

    def __init__(self, width: int) -> None:
        self.width = width

    def leaf(self, node: Node) -> GaussianTerms | None:
        """The terms by the rule of the class, on all columns."""
        rule, columns = TERMS.find(node.kernel), node.columns
        terms = None if rule is None else rule(node.kernel, node.width(self.width))
        return terms if terms is None or columns is None else terms.spread(columns, self.width)

    def scale(self, node: Node, part: GaussianTerms) -> GaussianTerms:
        """σ²w."""
        return dataclasses.replace(part, weight=node.factor[..., None] * part.weight)

    def add(self, node: Node, parts: Sequence[GaussianTerms]) -> GaussianTerms:
        """The terms of all parts."""
        return functools.reduce(_sum, parts)

    def multiply(self, node: Node, parts: Sequence[GaussianTerms]) -> GaussianTerms | None:
        """All products of one term of each part; of which one at most has a wave."""
        waves = sum(part.frequency is not None for part in parts)
        return functools.reduce(_product, parts) if waves <= 1 else None


def gaussian_terms(kernel: Kernel, width: int) -> GaussianTerms | None:
    """``kernel`` on inputs with ``width`` columns as a sum of Gaussian terms, or ``None`` if it is not one."""
    return fold(kernel, TermsAlgebra(width))


def _sum(one: GaussianTerms, two: GaussianTerms) -> GaussianTerms:
    frequency = None
    if one.frequency is not None or two.frequency is not None:
        frequency = _cat(one.waves(), two.waves(), 2)
    return GaussianTerms(
        _cat(one.weight, two.weight, 1), _cat(one.precision, two.precision, 2), frequency, one.decays + two.decays
    )


def _product(one: GaussianTerms, two: GaussianTerms) -> GaussianTerms:
    weight = (one.weight.unsqueeze(-1) * two.weight.unsqueeze(-2)).flatten(-2)
    frequency = None
    if one.frequency is not None or two.frequency is not None:
        frequency = _outer_sum(one.waves(), two.waves())  # one of them has none
    # A product decays where either factor does.
    decays = tuple(tuple(a or b for a, b in zip(p, q, strict=True)) for p in one.decays for q in two.decays)
    return GaussianTerms(weight, _outer_sum(one.precision, two.precision), frequency, decays)


def _outer_sum(one: Tensor, two: Tensor) -> Tensor:
    return (one.unsqueeze(-2) + two.unsqueeze(-3)).flatten(-3, -2)


def _squared_exponential(kernel: Kernel, width: int) -> GaussianTerms:
    precision = kernel.lengthscale.reciprocal().square()
    precision = precision.expand(*precision.shape[:-1], width)
    return GaussianTerms(torch.ones_like(precision[..., 0]), precision, None, ((True,) * width,))


def _spectral_mixture(kernel: Kernel, width: int) -> GaussianTerms | None:
    """In one dimension; in more, GPyTorch's kernel is a product of such mixtures that share their weights."""
    return spectral_mixture_terms(kernel, 0) if width == 1 else None


def spectral_mixture_terms(kernel: Kernel, d: int) -> GaussianTerms:
    """The terms of a spectral mixture kernel in its dimension ``d``."""
    precision = (2.0 * math.pi * kernel.mixture_scales[..., 0, d : d + 1]).square()
    frequency = 2.0 * math.pi * kernel.mixture_means[..., 0, d : d + 1]
    return GaussianTerms(kernel.mixture_weights, precision, frequency, ((True,),) * precision.shape[-2])


def _cosine(kernel: Kernel, width: int) -> GaussianTerms | None:
    if width != 1:
        return None
    frequency = math.pi / kernel.period_length
    return GaussianTerms(torch.ones_like(frequency[..., 0]), torch.zeros_like(frequency), frequency, ((False,),))


def _constant(kernel: Kernel, width: int) -> GaussianTerms:
    weight = kernel.constant.reshape(*kernel.batch_shape, 1)
    return GaussianTerms(weight, weight.new_zeros(*weight.shape, width), None, ((False,) * width,))


TERMS.register(RBFKernel, _squared_exponential)
TERMS.register(SpectralMixtureKernel, _spectral_mixture)
TERMS.register(CosineKernel, _cosine)
TERMS.register(ConstantKernel, _constant)


def _cat(one: Tensor, two: Tensor, trailing: int) -> Tensor:
    shape = broadcast_shapes(one.shape[:-trailing], two.shape[:-trailing])
    parts = [t.expand(*shape, *t.shape[-trailing:]) for t in (one, two)]
    return torch.cat(parts, dim=-trailing)


def _spread(values: Tensor, dims: Tensor, width: int) -> Tensor:
    empty = values.new_zeros(*values.shape[:-1], width)
    return empty.index_add(-1, dims, values)


def gaussian_smoothed_gram(terms: GaussianTerms, x1: Tensor, x2: Tensor | None, h: Tensor | None) -> Tensor:
    """The matrix r(x1_i, x2_j); ``h`` = η⁻² of shape ``batch`` or ``None`` for Lebesgue measure."""
    pairs = itertools.product(range(terms.weight.shape[-1]), repeat=2)
    return functools.reduce(operator.add, (_pair(terms, q, s, x1, x2, h) for q, s in pairs))


def _pair(terms: GaussianTerms, one: int, two: int, x1: Tensor, x2: Tensor | None, h: Tensor | None) -> Tensor:
    p, q = (terms.precision[..., i, :].unsqueeze(-2) for i in (one, two))
    width = h[..., None, None] if h is not None else torch.zeros_like(p)
    both = p + q
    S = both + width
    # A pair of terms that are constant in a dimension has p + q = 0 there: nothing of x enters.
    share = 1.0 / torch.where(both > 0, both, 1.0)
    y = x1 if x2 is None else x2
    scale = _root(p * q * share) if one != two else _root(0.5 * p)
    # log w_q + log w_s + ½ Σ_d log(2π / S_d)
    weight = terms.weight[..., one].log() + terms.weight[..., two].log()
    log_size = weight + 0.5 * (math.log(2.0 * math.pi) - S.squeeze(-2).log()).sum(-1)
    matrix = gaussian_gram(x1 * scale, None if x2 is None else x2 * scale, log_size)
    if h is not None:
        root = _root(both * width / S) * share
        matrix = matrix * radial_gram(root * p * x1, -root * q * y, SQUARED_EXPONENTIAL)
    if terms.frequency is not None:
        a, b = (terms.frequency[..., i, :].unsqueeze(-2) for i in (one, two))
        matrix = matrix * _waves(a, b, p / S, q / S, S, x1, y)
    return matrix


def _root(value: Tensor) -> Tensor:
    """√value, with a derivative of 0 at 0: a term that is constant in a dimension stays so."""
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, 1.0).sqrt(), 0.0)


def _waves(a: Tensor, b: Tensor, p: Tensor, q: Tensor, S: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """∏_d ½ Σ± exp(−(a ∓ b)²/2S) cos(α± x − β± y), each sum a product of rank 4; ``p`` and ``q`` are divided by S."""
    plus = (0.5 * torch.exp(-0.5 * (a - b).square() / S), a - (a - b) * p, b + (a - b) * q)
    minus = (0.5 * torch.exp(-0.5 * (a + b).square() / S), a - (a + b) * p, -b + (a + b) * q)
    factors = []
    for d in range(x.shape[-1]):
        left, right = [], []
        for damping, alpha, beta in (plus, minus):
            phase1, phase2 = alpha[..., d] * x[..., d], beta[..., d] * y[..., d]
            left += [damping[..., d] * phase1.cos(), damping[..., d] * phase1.sin()]
            right += [phase2.cos(), phase2.sin()]
        factors.append(torch.stack(left, dim=-1) @ torch.stack(right, dim=-1).mT)
    return functools.reduce(operator.mul, factors)
