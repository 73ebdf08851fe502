r"""From decision probabilities to probabilities, without held-out data.

Decision probabilities :math:`f` may leave [0, 1]. Probabilities are

.. math::  p(x) = \operatorname{softmax}\big( a h + a' g(h) + b \big), \qquad
           h = \tfrac12 + \tanh(f(x) - \tfrac12), \quad
           g(h) = \log \operatorname{softplus}(h / \epsilon), \; \epsilon = 0.1,

where :math:`a, a' \ge 0` and :math:`b` minimize, with one pseudo-observation shared by all classes,

.. math::  -\frac1n \sum_{i, c} T_{ic} \log p_c(f_{-i}(x_i)) + \frac{\kappa}{2n} \lVert b \rVert^2 ,
           \qquad T = \frac{nY + 1/m}{n + 1} .
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from ..kernels import gram
from ..softmax import SoftmaxScaling
from ..validation import (
    check_count,
    check_finite,
    check_number,
    check_query_points,
    check_share,
    check_tensor,
    check_weights,
    generator_of,
)
from .predictors import MulticlassPredictor

if TYPE_CHECKING:
    from .conditioned import ConditionedMulticlass

BLOCK = 256  # points whose covariance is formed at once; only its diagonal is used
EPSILON = 0.1
SCALE_RIDGE = math.sqrt(torch.finfo(torch.float64).eps)  # a small ridge on the scales that keeps the Hessian regular
SMALLEST_PENALTY = 1e-12
"""Below it the offsets are not determined: the cross-entropy does not change when all of them rise together."""


@dataclasses.dataclass(frozen=True)
class SoftmaxCalibration:
    """p = softmax(a h + a' g(h) + b).

    Attributes:
        scales: (a, a'), ``(*batch, 2)``.
        offset: b, ``(*batch, m)``.

    Example:
        >>> SoftmaxCalibration(torch.tensor([4.0, 0.0]), torch.zeros(2)).probabilities(torch.tensor([[0.5, 0.5]]))
        tensor([[0.5000, 0.5000]])
    """

    scales: Tensor
    offset: Tensor

    def log_probabilities(self, F: Tensor) -> Tensor:
        """log p for decision probabilities ``F`` of shape ``(*batch, n, m)``."""
        a, a_log = self.scales[..., 0, None, None], self.scales[..., 1, None, None]
        h = saturated(F)
        return (a * h + a_log * log_scale(h) + self.offset.unsqueeze(-2)).log_softmax(dim=-1)

    def probabilities(self, F: Tensor) -> Tensor:
        """p for decision probabilities ``F``."""
        return self.log_probabilities(F).exp()


def saturated(F: Tensor) -> Tensor:
    """h = ½ + tanh(f − ½): nearly f inside [0, 1], and between −½ and 3⁄2 everywhere."""
    return 0.5 + torch.tanh(F - 0.5)


def log_scale(h: Tensor) -> Tensor:
    """g(h) = log softplus(h/ε): the logarithm for h well above ε, linear for negative h."""
    return softplus(h / EPSILON).log()


def smoothed(Y: Tensor, n: float) -> Tensor:
    """T = (nY + 1/m) / (n + 1), Perks's rule for one-hot or soft labels ``Y`` ``(…, m)`` of n rows."""
    return (n * Y + 1.0 / Y.shape[-1]) / (n + 1.0)


def calibrate(F: Tensor, Y: Tensor, penalty: float = 1.0, weights: Tensor | None = None) -> SoftmaxCalibration:
    """The (a, a', b) that minimize the objective above, by Newton's method; ``F`` is not differentiated.

    Args:
        F: out-of-sample decision probabilities, such as leave-one-out values, ``(*batch, n, m)``.
        Y: one-hot or soft labels, ``(n, m)``.
        penalty: κ, the weight of the squared offsets.
        weights: how many rows each row stands for, ``(n,)``.

    Raises:
        ValueError: if ``F`` and ``Y`` have different shapes, or ``penalty`` or a weight is not positive.

    Example:
        >>> F, Y = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.1, 0.9]]), torch.tensor([[1, 0], [1, 0], [0, 1]])
        >>> calibrate(F, Y).probabilities(F).argmax(dim=-1)
        tensor([0, 0, 1])
    """
    for name, values in (("F", F), ("Y", Y)):
        check_tensor(values, name)
        check_finite(values, name)
    if F.dim() < 2 or 0 in F.shape or not F.is_floating_point():
        got = f"shape {tuple(F.shape)} in {F.dtype}. Pass conditioned.leave_one_out()."
        raise ValueError(f"Expected F as decision probabilities of shape (*batch, n, m), got {got}")
    if Y.dim() != 2 or Y.shape != F.shape[-2:]:
        shapes = f"{tuple(F.shape[-2:])}, as F, got {tuple(Y.shape)}. Pass conditioned.Y."
        raise ValueError(f"Expected Y as one-hot labels of shape {shapes}")
    check_penalty(penalty)
    weights = check_weights(F, weights)
    m, n = F.shape[-1], F.shape[-2] if weights is None else float(weights.sum())
    h = saturated(F.detach().double())  # the objective needs float64
    share = np.full(F.shape[-2], 1.0 / n) if weights is None else as_array(weights) / n
    ridge = np.full((*F.shape[:-2], m + 2), penalty / n)
    ridge[..., :2] = SCALE_RIDGE
    X = as_array(torch.stack([h, log_scale(h)], dim=-3).mT)
    T = as_array(smoothed(Y.to(F).detach().double(), n).mT)
    u = F.new_tensor(SoftmaxScaling(X, np.broadcast_to(T, (*F.shape[:-2], *T.shape)), share, ridge).minimize())
    return SoftmaxCalibration(u[..., :2], u[..., 2:])


def check_penalty(penalty: float) -> None:
    """Raise unless ``penalty`` is large enough for the offsets to be determined."""
    if not SMALLEST_PENALTY <= check_number("penalty", penalty) < math.inf:
        raise ValueError(f"Expected a positive, finite penalty, got {penalty}. Give {SMALLEST_PENALTY:g} or more.")


def as_array(values: Tensor | NDArray[np.float64]) -> NDArray[np.float64]:
    """A contiguous array of float64 on the CPU, where small problems are solved fastest."""
    values = values.detach().cpu().double().numpy() if isinstance(values, Tensor) else values
    return np.ascontiguousarray(values)


class CalibratedMulticlass(MulticlassPredictor):
    """A conditioned embedding whose probabilities are calibrated on its leave-one-out values.

    Attributes:
        conditioned: the embedding with its data.
        calibration: from its decision probabilities to probabilities.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, embedding = torch.linspace(0, 1, 40)[:, None], ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), 2)
        >>> embedding.condition(x, (x[:, 0] > 0.5).long()).calibrated().predict(torch.tensor([[0.1], [0.9]]))
        tensor([0, 1])
    """

    @torch.no_grad()
    def __init__(self, conditioned: ConditionedMulticlass) -> None:
        self.conditioned = conditioned
        self.calibration = calibrate(conditioned.leave_one_out(), conditioned.Y, weights=conditioned.row_weights)

    def __repr__(self) -> str:
        return f"<CalibratedMulticlass of {self.conditioned!r}>"

    @property
    def num_classes(self) -> int:
        """m, the number of classes."""
        return self.conditioned.num_classes

    def mean(self, x: Tensor) -> Tensor:
        """E[Y | X = x] for one-hot targets, the calibrated probabilities themselves: ``(*batch, t, m)``."""
        return self.calibration.probabilities(self.conditioned.mean(x))

    def leave_one_out(self) -> Tensor:
        """The leave-one-out probabilities of each training row: ``(*batch, n, m)``."""
        return self.calibration.probabilities(self.conditioned.leave_one_out())

    @torch.no_grad()
    def band(
        self, x: Tensor, coverage: float = 0.9, num_draws: int = 1000, seed: int | None = 0
    ) -> tuple[Tensor, Tensor]:
        r"""Credible limits of the probabilities, ``(t, m)`` each: how far they would move with other training data.

        With a Gaussian process of covariance :math:`s_c^2 k` as prior of each decision probability,

        .. math::  f_c(x) \sim N\big(\hat f_c(x),\; s_c^2\, (k(x, x) - k(x)^\top A^{-1} k(x))\big), \qquad
                   s_c^2 = \tfrac1n Y_c^\top A^{-1} Y_c .

        The limits contain ``coverage`` of ``num_draws`` draws of f, calibrated.

        Raises:
            ValueError: if ``coverage`` is not between 0 and 1, ``num_draws`` is below 2, or there is a batch shape.
        """
        check_share("coverage", coverage)
        generator, conditioned = generator_of(seed, self.conditioned.x.device), self.conditioned
        conditioned.embedding.check_single()
        x = check_query_points(x, conditioned.x)
        F, size = conditioned.mean(x), check_count("num_draws", num_draws, 2)
        if F.numel() == 0:
            return F, F  # no points
        z = torch.randn(size, *F.shape, generator=generator, dtype=F.dtype, device=F.device)
        p = self.calibration.probabilities(F + self._spread(x) * z)
        lower, upper = torch.quantile(p, F.new_tensor([0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage]), dim=0)
        return lower, upper

    def _spread(self, x: Tensor) -> Tensor:
        """The standard deviation of f_c(x), ``(t, m)``."""
        conditioned = self.conditioned
        kernel, phi, system = conditioned.embedding.kernel, conditioned.representation, conditioned.system
        variances = [
            system.conditional_covariance(phi(block), functools.partial(gram, kernel, block)).diagonal()
            for block in x.split(BLOCK)
        ]
        scale = (conditioned.Y * conditioned.V).sum(-2) / conditioned.total_weight
        return (torch.cat(variances).clamp_min(0.0).unsqueeze(-1) * scale).sqrt()
