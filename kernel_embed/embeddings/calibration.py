r"""From decision probabilities to probabilities, without held-out data.

Decision probabilities :math:`f` are least-squares estimates, which may leave [0, 1]. Probabilities are a softmax of
them on two scales, their own and the logarithmic one,

.. math::  p(x) = \operatorname{softmax}\big( a h + a' g(h) + b \big), \qquad
           h = \tfrac12 + \tanh(f(x) - \tfrac12), \quad
           g(h) = \log \operatorname{softplus}(h / \epsilon), \; \epsilon = 0.1,

with :math:`a, a' \ge 0` and class offsets :math:`b` fitted on leave-one-out values. Where :math:`f` are probabilities
of two classes, none below 0.2, :math:`a' = 1` returns them to within 0.02; with more classes it flattens them (0.95 of
ten becomes 0.525), and a larger :math:`a'` makes up for it. :math:`h` prevents overconfidence where :math:`f` is far
outside [0, 1], beyond the training values. The objective is

.. math::  -\frac1n \sum_{i, c} T_{ic} \log p_c(f_{-i}(x_i)) + \frac{\kappa}{2n} \lVert b \rVert^2 ,
           \qquad T = \frac{nY + 1/m}{n + 1} .

The targets T are the one-hot labels with one pseudo-observation, shared by all classes; without it
:math:`a` would grow without limit on data that are separated perfectly.
"""

from __future__ import annotations

import dataclasses
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
    from .multiclass import ConditionedMulticlass

BLOCK = 256
"""Points whose covariance is formed at once; only its diagonal is used."""
EPSILON = 0.1
SCALE_RIDGE = math.sqrt(torch.finfo(torch.float64).eps)
"""A small ridge on the scales that keeps the Hessian regular."""
SMALLEST_PENALTY = 1e-12
"""Below it the offsets are not determined: the cross-entropy does not change when all of them rise together."""


@dataclasses.dataclass(frozen=True)
class SoftmaxCalibration:
    """p = softmax(a h + a' g(h) + b): ``scales`` (a, a') of shape ``(*batch, 2)``, ``offset`` b ``(*batch, m)``.

    Attributes:
        scales: (a, a').
        offset: b.

    Example:
        >>> from kernel_embed.objectives import SoftmaxCalibration
        >>> calibration = SoftmaxCalibration(torch.tensor([4.0, 0.0]), torch.zeros(2))
        >>> calibration.probabilities(torch.tensor([[0.5, 0.5]]))
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
    """The (a, a', b) that minimize q above for decision probabilities ``F`` ``(*batch, n, m)`` and one-hot ``Y``.

    Newton's method with step halving on m + 2 numbers; a scale that would be negative stays at zero. ``F`` is not
    differentiated. ``weights`` ``(n,)`` say how many rows each row stands for.

    Args:
        F: out-of-sample decision probabilities, such as leave-one-out values.
        Y: one-hot or soft labels.
        penalty: the weight of the squared offsets.
        weights: of the rows.

    Returns:
        The calibration.

    Raises:
        TypeError: if an argument is not a tensor of real numbers, or ``penalty`` not a number.
        ValueError: if ``F`` and ``Y`` have different shapes or values that are not finite, ``penalty`` is not
            positive, or a weight is not.

    Example:
        >>> F = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.1, 0.9], [0.5, 0.5]], dtype=torch.float64)
        >>> Y = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
        >>> calibrate(F, Y).probabilities(F).argmax(dim=-1)
        tensor([0, 0, 1, 1])
    """
    for name, values in (("F", F), ("Y", Y)):
        check_tensor(values, name)
        check_finite(values, name)
    if F.dim() < 2 or 0 in F.shape or not F.is_floating_point():
        raise ValueError(
            f"Expected F as decision probabilities of shape (*batch, n, m), got {tuple(F.shape)} in {F.dtype}. "
            "Pass conditioned.leave_one_out()."
        )
    if Y.dim() != 2 or Y.shape != F.shape[-2:]:
        raise ValueError(
            f"Expected Y as one-hot labels of shape {tuple(F.shape[-2:])}, as F, got {tuple(Y.shape)}. "
            "Pass conditioned.Y."
        )
    check_penalty(penalty)
    return fitted(F, Y.to(F), penalty, check_weights(F, weights))


def check_penalty(penalty: float) -> None:
    """Raise unless ``penalty`` is large enough for the offsets to be determined."""
    if not SMALLEST_PENALTY <= check_number("penalty", penalty) < math.inf:
        raise ValueError(
            f"Expected a positive, finite penalty, got {penalty}. Give 1.0, or at least {SMALLEST_PENALTY:g}."
        )


def fitted(F: Tensor, Y: Tensor, penalty: float = 1.0, weights: Tensor | None = None) -> SoftmaxCalibration:
    """:func:`calibrate` without checks."""
    m, n = F.shape[-1], F.shape[-2] if weights is None else float(weights.sum())
    h = saturated(F.detach().double())  # the objective needs float64
    share = np.full(F.shape[-2], 1.0 / n) if weights is None else as_array(weights) / n
    ridge = np.full((*F.shape[:-2], m + 2), penalty / n)
    ridge[..., :2] = SCALE_RIDGE
    X = as_array(torch.stack([h, log_scale(h)], dim=-3).mT)
    T = np.broadcast_to(as_array(smoothed(Y.detach().double(), n).mT), (*F.shape[:-2], m, F.shape[-2]))
    u = F.new_tensor(SoftmaxScaling(X, T, share, ridge).minimize())
    return SoftmaxCalibration(u[..., :2], u[..., 2:])


def as_array(values: Tensor) -> NDArray[np.float64]:
    """A contiguous array of float64 on the CPU, where small problems are solved fastest."""
    array: NDArray[np.float64] = values.detach().cpu().double().contiguous().numpy()
    return array


class CalibratedMulticlass(MulticlassPredictor):
    """A conditioned embedding whose probabilities are calibrated on its leave-one-out values.

    Made by :meth:`kernel_embed.embeddings.ConditionedMulticlass.calibrated`.

    Attributes:
        conditioned: the embedding with its data.
        calibration: from its decision probabilities to probabilities.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
        >>> y = (x.squeeze(-1) > 0.5).long()
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel().double(), num_classes=2)
        >>> predictor = embedding.condition(x, y).calibrated()
        >>> predictor.predict(torch.tensor([[0.1], [0.9]], dtype=torch.float64))
        tensor([0, 1])
        >>> lower, upper = predictor.band(torch.tensor([[0.1]], dtype=torch.float64))
        >>> bool((lower <= upper).all())
        True
    """

    def __init__(self, conditioned: ConditionedMulticlass) -> None:
        with torch.no_grad():
            F, Y = conditioned.leave_one_out(), conditioned.Y
            calibration = calibrate(F, Y, weights=conditioned.row_weights)
        self.conditioned: ConditionedMulticlass = conditioned
        self.calibration: SoftmaxCalibration = calibration

    def __repr__(self) -> str:
        return f"<CalibratedMulticlass of {self.conditioned!r}>"

    @property
    def num_classes(self) -> int:
        """m."""
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
        r"""Credible limits of the probabilities, given the kernel: how far they would move with other training data.

        With a Gaussian process of covariance :math:`s_c^2 k` as prior of each decision probability, and noise
        :math:`s_c^2 n\lambda`, the posterior is

        .. math::  f_c(x) \sim N\big(\hat f_c(x),\; s_c^2\, (k(x, x) - k(x)^\top A^{-1} k(x))\big), \qquad
                   s_c^2 = \tfrac1n Y_c^\top A^{-1} Y_c,

        with the scale of highest evidence. Draws of f go through the calibration; the limits are their quantiles.

        Args:
            x: points, ``(t, d)``.
            coverage: of the band at each point and class.
            num_draws: draws that the quantiles are taken of.
            seed: of the draws; ``None`` for new ones each time.

        Returns:
            Lower and upper limits, ``(t, m)`` each.

        Raises:
            TypeError: if ``num_draws`` or ``seed`` is not a whole number.
            ValueError: if ``coverage`` is not between 0 and 1, ``num_draws`` is below 2, or the embedding has a batch
                shape.
        """
        check_share("coverage", coverage)
        generator, conditioned = generator_of(seed, self.conditioned.x.device), self.conditioned
        if len(conditioned.embedding.batch_shape) > 0:
            raise ValueError(
                f"Expected one kernel, got a batch of {tuple(conditioned.embedding.batch_shape)}. "
                "Calibrate each kernel alone."
            )
        x = check_query_points(x, conditioned.x)
        F, spread = conditioned.mean(x), self._spread(x)
        size = (check_count("num_draws", num_draws, 2), *F.shape)
        z = torch.randn(size, generator=generator, dtype=F.dtype, device=F.device)
        p = self.calibration.probabilities(F + spread * z)
        levels = F.new_tensor([0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage])
        if p.numel() == 0:
            return F, F  # no points
        lower, upper = torch.quantile(p, levels, dim=0)
        return lower, upper

    def _spread(self, x: Tensor) -> Tensor:
        """The standard deviation of f_c(x), ``(t, m)``."""
        conditioned = self.conditioned
        kernel, phi = conditioned.embedding.kernel, conditioned.representation

        def variance(block: Tensor) -> Tensor:
            covariance = conditioned.system.conditional_covariance(
                phi(block), lambda: gram(kernel, block).to(conditioned.x)
            )
            return covariance.diagonal().clamp_min(0.0)

        parts = [variance(block) for block in x.split(BLOCK)]
        scale = (conditioned.Y * conditioned.V).sum(-2) / conditioned.total_weight
        return (torch.cat(parts).unsqueeze(-1) * scale).sqrt()
