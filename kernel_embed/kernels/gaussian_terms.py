r"""Closed forms of the smoothed kernel r for sums of Gaussians with a wave.

Squared exponentials (isotropic or ARD), their sums and products, constants, one-dimensional spectral mixtures and
cosines are of the form

.. math::
    k(x, y) = \sum_q w_q \prod_d e^{-\frac12 p_{qd} \delta_d^2} \cos(a_{qd} \delta_d), \qquad \delta = x - y .

Under :math:`\nu(du) = e^{-\frac h2 \lVert u \rVert^2} du` (h = η⁻²; h = 0 is Lebesgue measure) each pair of terms
(p, a), (q, b) integrates, dimension by dimension, with S = p + q + h, to

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
from collections.abc import Callable, Sequence

import torch
from gpytorch.kernels import ConstantKernel, CosineKernel, Kernel, RBFKernel, SpectralMixtureKernel
from torch import Tensor

from ..validation import broadcast_shapes
from .radial import SQUARED_EXPONENTIAL, radial_gram
from .structure import Algebra, Node, Registry, add, fold, multiply


@dataclasses.dataclass(frozen=True)
class GaussianTerms:
    """A kernel as a sum of Gaussians with a wave, for ``register(kind, terms=...)``.

    Attributes:
        weight: w, ``(*batch, Q)``.
        precision: p, ``(*batch, Q, D)``.
        frequency: a, ``(*batch, Q, D)``, or ``None`` if no term has a wave.
        decays: of which dimensions each term falls to zero in, booleans ``(Q, D)``.

    Example:
        >>> GaussianTerms(torch.ones(1), torch.ones(1, 2), None, torch.ones(1, 2, dtype=torch.bool)).integrable
        True
    """

    weight: Tensor
    precision: Tensor
    frequency: Tensor | None
    decays: Tensor

    @property
    def integrable(self) -> bool:
        """Whether all terms decay in every dimension, which Lebesgue measure needs."""
        return bool(self.decays.all())

    def mapped(self, function: Callable[[Tensor], Tensor]) -> GaussianTerms:
        """The same terms with another set of dimensions."""
        frequency = None if self.frequency is None else function(self.frequency)
        return GaussianTerms(self.weight, function(self.precision), frequency, function(self.decays))


TermsRule = Callable[[Kernel, int], "GaussianTerms | None"]
"""From a kernel and the number of columns that reach it to its terms; ``None`` if it has no such form."""
TERMS: Registry[TermsRule] = Registry("Gaussian terms")


def gaussian_terms(kernel: Kernel, width: int) -> GaussianTerms | None:
    """``kernel`` on inputs with ``width`` columns as a sum of Gaussian terms, or ``None`` if it is not one."""
    return fold(kernel, TermsAlgebra(width))


class TermsAlgebra(Algebra[GaussianTerms]):
    """A kernel on inputs with ``width`` columns as a sum of Gaussian terms."""

    def __init__(self, width: int) -> None:
        self.width = width

    def leaf(self, node: Node) -> GaussianTerms | None:
        """The terms of a kernel with a registered rule, with precision and frequency 0 in columns it does not use."""
        rule, columns = TERMS.find(node.kernel), node.columns
        terms = None if rule is None else rule(node.kernel, node.width(self.width))
        if terms is None or columns is None:
            return terms
        return terms.mapped(lambda t: t.new_zeros(*t.shape[:-1], self.width).index_add(-1, columns, t))

    def scale(self, node: Node, part: GaussianTerms) -> GaussianTerms:
        """The same terms with weights σ²w_q."""
        return dataclasses.replace(part, weight=node.factor[..., None] * part.weight)

    def add(self, node: Node, parts: Sequence[GaussianTerms]) -> GaussianTerms:
        """The terms of all parts, with frequency 0 where a part has no wave."""
        waves = [torch.zeros_like(part.precision) if part.frequency is None else part.frequency for part in parts]
        return GaussianTerms(
            _joined([part.weight for part in parts], 1),
            _joined([part.precision for part in parts], 2),
            None if all(part.frequency is None for part in parts) else _joined(waves, 2),
            torch.cat([part.decays for part in parts]),
        )

    def multiply(self, node: Node, parts: Sequence[GaussianTerms]) -> GaussianTerms | None:
        """All products of one term of each part; of which one at most has a wave."""
        if sum(part.frequency is not None for part in parts) > 1:
            return None
        return functools.reduce(_product, parts)


def _joined(values: Sequence[Tensor], trailing: int) -> Tensor:
    batch = broadcast_shapes(*(value.shape[:-trailing] for value in values))
    return torch.cat([value.expand(*batch, *value.shape[-trailing:]) for value in values], dim=-trailing)


def _product(one: GaussianTerms, two: GaussianTerms) -> GaussianTerms:
    def outer(a: Tensor, b: Tensor) -> Tensor:
        return (a.unsqueeze(-2) + b.unsqueeze(-3)).flatten(-3, -2)

    weight = (one.weight.unsqueeze(-1) * two.weight.unsqueeze(-2)).flatten(-2)
    frequency = None
    if one.frequency is not None:
        frequency = outer(one.frequency, torch.zeros_like(two.precision))
    elif two.frequency is not None:
        frequency = outer(torch.zeros_like(one.precision), two.frequency)
    # A product decays where either factor does.
    return GaussianTerms(weight, outer(one.precision, two.precision), frequency, outer(one.decays, two.decays))


def _terms_of_rbf(kernel: Kernel, width: int) -> GaussianTerms:
    precision = kernel.lengthscale.reciprocal().square()
    precision = precision.expand(*precision.shape[:-1], width)
    decays = torch.ones(1, width, dtype=torch.bool, device=precision.device)
    return GaussianTerms(torch.ones_like(precision[..., 0]), precision, None, decays)


def spectral_mixture_terms(kernel: Kernel, d: int) -> GaussianTerms:
    """A spectral mixture in its dimension ``d``."""
    precision = (2.0 * math.pi * kernel.mixture_scales[..., 0, d : d + 1]).square()
    frequency = 2.0 * math.pi * kernel.mixture_means[..., 0, d : d + 1]
    decays = torch.ones(precision.shape[-2:], dtype=torch.bool, device=precision.device)
    return GaussianTerms(kernel.mixture_weights, precision, frequency, decays)


def _terms_of_cosine(kernel: Kernel, width: int) -> GaussianTerms | None:
    if width != 1:
        return None
    frequency = math.pi / kernel.period_length
    decays = torch.zeros(1, 1, dtype=torch.bool, device=frequency.device)
    return GaussianTerms(torch.ones_like(frequency[..., 0]), torch.zeros_like(frequency), frequency, decays)


def _terms_of_constant(kernel: Kernel, width: int) -> GaussianTerms:
    weight = kernel.constant.reshape(*kernel.batch_shape, 1)
    decays = torch.zeros(1, width, dtype=torch.bool, device=weight.device)
    return GaussianTerms(weight, weight.new_zeros(*weight.shape, width), None, decays)


TERMS.register(RBFKernel, _terms_of_rbf)
# In more dimensions, GPyTorch's spectral mixture is a product of mixtures that share their weights.
TERMS.register(SpectralMixtureKernel, lambda kernel, width: spectral_mixture_terms(kernel, 0) if width == 1 else None)
TERMS.register(CosineKernel, _terms_of_cosine)
TERMS.register(ConstantKernel, _terms_of_constant)


def gaussian_smoothed_gram(terms: GaussianTerms, h: Tensor | None, x1: Tensor, x2: Tensor | None) -> Tensor:
    """The matrix r(x1_i, x2_j); ``h`` = η⁻² of shape ``batch`` or ``None`` for Lebesgue measure."""
    pairs = itertools.product(range(terms.weight.shape[-1]), repeat=2)
    return add(_pair(terms, q, s, x1, x2, h) for q, s in pairs)


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
    matrix = radial_gram(x1 * scale, None if x2 is None else x2 * scale, SQUARED_EXPONENTIAL, log_size)
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
    left, right = [], []
    for sign in (1.0, -1.0):
        gap = a - sign * b
        damping = 0.5 * torch.exp(-0.5 * gap.square() / S)
        phase1, phase2 = (a - gap * p) * x, (sign * b + gap * q) * y
        left += [damping * phase1.cos(), damping * phase1.sin()]
        right += [phase2.cos(), phase2.sin()]
    factors = zip(*(torch.stack(side, dim=-1).unbind(-2) for side in (left, right)), strict=True)
    return multiply(one @ two.mT for one, two in factors)
