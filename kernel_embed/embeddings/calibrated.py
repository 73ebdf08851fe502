"""One embedding with calibrated probabilities: the end of the low-level road, and a band around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..kernels import gram
from ..validation import check_count, check_question, check_seed
from .calibration import SoftmaxCalibration, calibrate
from .distribution import check_coverage
from .predictors import MulticlassPredictor

if TYPE_CHECKING:
    from .multiclass import ConditionedMulticlass

BLOCK = 256
"""Points whose covariance is formed at once; of it the diagonal is used."""


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
        >>> answers = embedding.condition(x, y).calibrated()
        >>> answers.predict(torch.tensor([[0.1], [0.9]], dtype=torch.float64))
        tensor([0, 1])
        >>> lower, upper = answers.band(torch.tensor([[0.1]], dtype=torch.float64))
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
        """The probabilities of each training row by the embedding that has not seen it: ``(*batch, n, m)``."""
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
        check_coverage(coverage)
        check_seed(seed)
        conditioned = self.conditioned
        if len(conditioned.embedding.batch_shape) > 0:
            raise ValueError(
                f"Expected one kernel, got a batch of {tuple(conditioned.embedding.batch_shape)}. "
                "Calibrate each kernel alone."
            )
        x = check_question(x, conditioned.x)
        F, spread = conditioned.mean(x), self._spread(x)
        generator = torch.Generator(device=F.device)
        generator.seed() if seed is None else generator.manual_seed(seed)
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
        conditioned, parts = self.conditioned, []
        kernel, phi = conditioned.embedding.kernel, conditioned.representation
        for block in x.split(BLOCK):

            def prior(block: Tensor = block) -> Tensor:
                return gram(kernel, block).to(conditioned.x)

            covariance = conditioned.system.conditional_covariance(phi(block), prior)
            parts.append(covariance.diagonal().clamp_min(0.0))
        scale = (conditioned.Y * conditioned.V).sum(-2) / conditioned.total_weight
        return (torch.cat(parts).unsqueeze(-1) * scale).sqrt()
