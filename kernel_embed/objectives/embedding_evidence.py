r"""The evidence of the data under the Bayesian kernel embedding, eq. (13).

.. math::
    \log p(x_1, \dots, x_n \mid \theta)
        = \log \mathcal N\big([\hat\mu(x_1), \dots, \hat\mu(x_n)]; 0, R + \sigma^2 I\big) + \sum_i \log \gamma(x_i),
        \qquad \gamma(x) = \Big\lVert \frac{\partial \hat\mu}{\partial x} \Big\rVert .

The first term is that of a Gaussian process. The second, the Jacobian of the link :math:`x \mapsto \hat\mu(x)`, is what
makes it a density of the data: it penalizes long lengthscales, at which the embedding hardly changes.
"""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ..embeddings import BayesianMeanEmbedding, ConditionedMeanEmbedding
from ..validation import check_seed
from .base import Objective
from .sample_evidence import SampleEvidence


class EmbeddingEvidence(Objective[ConditionedMeanEmbedding]):
    r"""−log p(x₁, …, x_n | θ) in nats, eq. (13): the negative log evidence, summed over data.

    Args:
        num_locations: evaluate the likelihood at this many rows of the sample, drawn without replacement, each against
            the whole sample; every row by default. The value is then the evidence of those rows given the link μ̂:
            n/t times the Jacobian term is unbiased for the whole one, and n/t times the value is unbiased for the
            evidence in which blocks of t rows are independent.
        seed: of that draw. The same rows in every call, so that the objective is a function. They are drawn by their
            numbers: where a kernel is to be learned for a test of pooled samples, shuffle the rows first, so that the
            draw does not know the samples.

    Raises:
        TypeError: if ``seed`` is not a whole number.
        ValueError: if ``num_locations`` is below 2.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from kernel_embed.embeddings import BayesianMeanEmbedding
        >>> x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> embedding = BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> result = ke.fit(embedding, EmbeddingEvidence(), x)
        >>> result.converged, result.value < result.history[0]["value"]
        (True, True)
    """

    per_datum = False
    identifies_scale = True
    is_log_likelihood = True

    def __init__(self, num_locations: int | None = None, seed: int = 0) -> None:
        if num_locations is not None and num_locations < 2:
            raise ValueError(
                f"Expected num_locations of at least 2, got {num_locations}. Give more, or None for all points."
            )
        check_seed(seed)
        self.num_locations = num_locations
        self.seed = seed

    def evaluate(self, attached: ConditionedMeanEmbedding) -> Tensor:
        """−log N(μ̂; 0, R + σ²I) − Σ log γ(x_i).

        Raises:
            TypeError: if what is attached is not a :class:`~kernel_embed.BayesianMeanEmbedding` with its sample.
            ValueError: if the sample has one point only.
            MemoryError: if its matrices do not fit.
        """
        if not isinstance(attached, ConditionedMeanEmbedding):
            raise TypeError(
                f"Expected a BayesianMeanEmbedding conditioned on a sample, got {type(attached).__name__}. For "
                "targets use ConditionalEvidence."
            )
        if attached.num_data < 2:
            raise ValueError(
                "Expected at least 2 points, got 1. The empirical embedding of one point is flat there, so eq. (13) "
                "gives it density zero whatever the kernel."
            )
        if self.num_locations is not None and self.num_locations < attached.num_locations:
            attached = attached.at(self._rows(attached.num_data).to(attached.x.device))
        attached.check_size()
        # eq. (13); μ̂ comes with its slope
        observed, log_slope = attached.empirical
        return attached.negative_log_density(observed) - log_slope.sum(-1)

    def for_sample(self, embedding: BayesianMeanEmbedding, x: Tensor) -> SampleEvidence | None:
        """The same as a function of ℓ and σ² alone, for one lengthscale; ``None`` where it has no such form."""
        kernel = embedding.kernel
        plain = type(kernel) is RBFKernel and kernel.active_dims is None and kernel.lengthscale.numel() == 1
        lebesgue = embedding.measure is None and embedding.prior_covariance is None and embedding.noise_kind is None
        if not (plain and lebesgue) or self.num_locations is not None or len(x) < 2:
            return None
        evidence = SampleEvidence(x)
        return None if evidence.has_repeated_points else evidence

    def _rows(self, n: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randperm(n, generator=generator)[: self.num_locations]

    def __repr__(self) -> str:
        inside = "" if self.num_locations is None else f"num_locations={self.num_locations}, seed={self.seed}"
        return f"EmbeddingEvidence({inside})"


def prominent(values: list[float], prominence: float) -> list[int]:
    """The tops of a curve from which every way to a higher point descends by ``prominence`` at least.

    On the curve of the evidence over lengthscales, which in one dimension has narrow dips to −∞, the ripples between
    two dips are not among them.

    Example:
        >>> prominent([0.0, 5.0, 4.0, 5.5, 0.0, 3.0, 1.0], prominence=2.0)
        [3, 5]
    """
    tops = []
    for i, value in enumerate(values):
        if not math.isfinite(value):
            continue
        drops = []
        for side in (values[i + 1 :], values[:i][::-1]):
            lowest = value
            for other in side:
                # of equal heights the first one counts
                if other > value or (other == value and values.index(value) < i):
                    drops.append(value - lowest)
                    break
                lowest = min(lowest, other)
        if all(drop >= prominence and drop > 0 for drop in drops):
            tops.append(i)
    return tops
