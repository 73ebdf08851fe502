r"""The peeled bound as one objective: the kernel, among J that were named beforehand, with the smallest certificate.

With :math:`r_j = r_0 \cdot 1.1^j` the least of the grid that is not below r,

.. math::
    q = \frac1n \sum_i \mathcal L_{e^{-1}}(y_i, \mathbf f(x_i)) + \frac{2e\, r_j}{\sqrt n} +
        \sqrt{\frac1{2n} \log \frac{J (j + 1)(j + 2)}{\beta}} .

All J bounds hold at once with probability :math:`1 - \beta`, so that of the smallest q does: choosing among the
candidates by it costs log J, which q has paid.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..embeddings import ConditionedMulticlass
from ..validation import check_count
from .base import Objective
from .bounds import SMALLEST_TERM, STEP
from .certificates import check_confidence
from .rademacher import RademacherComplexity, rademacher_complexity
from .risk import EmpiricalRisk, require_classes


class RiskBound(Objective[ConditionedMulticlass]):
    """The value of ``generalization_bound(…, form="peeled", candidates=J)``, to choose among J kernels by.

    It is a certificate for every one of J candidates that were fixed before the rows were seen; λ may be learned from
    them. For a kernel that is learned by descending it, it is a measure and no certificate. Between the norms of the
    grid its gradient is that of r, scaled to r_j.

    Args:
        confidence: 1 − β.
        candidates: J, how many kernels are compared.

    Raises:
        ValueError: if the confidence is not between 0 and 1, both excluded, or J is less than 1.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.linspace(0, 1, 200, dtype=torch.float64).unsqueeze(-1)
        >>> y = (x.squeeze(-1) > 0.5).long()
        >>> grid = []
        >>> for lengthscale in (0.01, 0.3, 30.0):
        ...     kernel = gpytorch.kernels.RBFKernel().double()
        ...     kernel.lengthscale = lengthscale
        ...     grid.append(ke.MulticlassEmbedding(kernel, num_classes=2, regularization=0.1))
        >>> objective = RiskBound(candidates=len(grid))
        >>> best = min(grid, key=lambda embedding: objective(embedding, x, y).item())
        >>> round(best.kernel.lengthscale.item(), 1)
        0.3
        >>> bound = ke.generalization_bound(best.condition(x, y), form="peeled", candidates=len(grid))
        >>> bound.is_certificate, abs(bound.value - objective(best, x, y).item()) < 1e-9
        (True, True)
    """

    def __init__(self, confidence: float = 0.95, candidates: int = 1) -> None:
        check_confidence(confidence)
        self.confidence = confidence
        self.candidates = check_count("candidates", candidates)

    def evaluate(self, bound: ConditionedMulticlass) -> Tensor:
        """q of the module's text."""
        require_classes(self, bound)
        n, beta = bound.total_weight, (1.0 - self.confidence) / self.candidates
        r, multiplier = rademacher_complexity(bound), RademacherComplexity("2e/sqrt(n)").multiplier(n)
        first, held = SMALLEST_TERM / multiplier, r.detach().clamp_min(1e-300)
        j = torch.ceil((held / first).log() / math.log(STEP) - 1e-12).clamp_min(0.0)
        # r_j in value, with the gradient of r
        r_j = first * STEP**j * (1.0 + (r - r.detach()) / held)
        last = (((j + 1.0) * (j + 2.0) / beta).log() / (2.0 * n)).sqrt()
        return EmpiricalRisk(1.0 / math.e).evaluate(bound) + multiplier * r_j + last

    def __repr__(self) -> str:
        return f"RiskBound(confidence={self.confidence:g}, candidates={self.candidates})"
