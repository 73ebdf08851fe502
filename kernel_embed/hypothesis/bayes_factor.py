r"""The Bayes factor of two samples, from the evidence of their embeddings.

The data are μ̂_P and μ̂_Q at t points. Both have a common embedding μ with the prior GP(0, r) of eq. (3); if the
samples differ, P has :math:`\mu + \delta/2` and Q :math:`\mu - \delta/2` with :math:`\delta \sim GP(0, \tau^2 r)`. With
the error of eq. (6), S the covariance of k(X, ·) over the pooled sample,

.. math::
    \begin{pmatrix} \hat\mu_P \\ \hat\mu_Q \end{pmatrix} \sim \mathcal N\left(0, \begin{pmatrix}
        (1 + \tau^2/4) R + S/n & (1 - \tau^2/4) R \\ (1 - \tau^2/4) R & (1 + \tau^2/4) R + S/m
    \end{pmatrix}\right),

with τ = 0 for one distribution. A priori τ is uniform on :data:`DIFFERENCES`.

**Several kernels.** With :math:`p_{1j}, p_{0j}` the densities under kernel j, the result is the mean of the factors,

.. math::  \mathrm{BF} = \sum_j w_j \frac{p_{1j}}{p_{0j}}, \qquad \sum_j w_j = 1 ,

because :math:`\hat\mu` is different data for every kernel. Each factor has mean 1 if the samples are of one
distribution and the model holds, so the mean of the factors does too, and exceeds c with probability at most 1/c.
"""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from torch import Tensor

from ..kernels import LebesgueMeasure, SmoothedKernel
from ..kernels.gaussian_terms import gaussian_terms
from ..kernels.gram import finite_values
from ..kernels.structure import check_columns
from ..linalg import DenseSystem
from ..runtime import cpu_by_default
from ..validation import check_count, generator_of
from .checks import Categorical, finite_gram, read_samples
from .kernel_choice import KernelChoice, choose_kernels, draws_of

NUM_LOCATIONS = 100
DIFFERENCES = (0.01, 0.03, 0.1, 0.3, 1.0)  # τ; the smallest is barely detectable with a thousand points
HEIGHT_ROUNDING = 1e-6  # the error of a height of 1 in single precision
# Independent error in addition to the central limit, as a share of its mean variance: r is as rough as that error, so
# without it infinitely many directions would contribute, however faint.
NUGGET = 0.1


@cpu_by_default()
def log_bayes_factor(
    x: Tensor | ArrayLike,
    y: Tensor | ArrayLike,
    kernel: KernelChoice = None,
    seed: int | None = 0,
    *,
    num_locations: int = NUM_LOCATIONS,
    categorical: Categorical = None,
) -> float:
    """log p(data | two distributions) − log p(data | one): above 0 for a difference, below 0 against it.

    Args:
        x: n points, ``(n, d)``.
        y: m points, ``(m, d)``.
        kernel: as in :func:`kernel_embed.two_sample_test`. For several kernels the result is the mean of their factors,
            for a posterior the weighted mean over its draws.
        seed: of the draw of the points at which the embeddings are evaluated.
        num_locations: t, the number of these points, drawn from the pooled sample.
        categorical: as in :func:`kernel_embed.two_sample_test`.

    Raises:
        TypeError: if ``num_locations`` is not a whole number.
        ValueError: if it is below 1, or the samples have different columns or fewer than two rows.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x, y = torch.randn(2, 100, 1, generator=generator)
        >>> log_bayes_factor(x, y) < 0, log_bayes_factor(x, y + 1.5) > 5
        (True, True)
    """
    samples, columns = read_samples({"x": x, "y": y}, categorical)
    generator = generator_of(seed)
    check_count("num_locations", num_locations)
    pooled = torch.cat(samples)
    kernels = choose_kernels(pooled, kernel, columns, generator).kernels
    rows = torch.randperm(len(pooled), generator=generator, device="cpu")[:num_locations].to(pooled.device)
    values = []
    for draws in map(draws_of, kernels):
        factors = [_log_factor(draw, pooled, rows, len(samples[0])) for draw in draws.kernels]
        values.append(torch.cat(factors) + torch.cat(draws.weights).to(pooled).log())
    return float(torch.logsumexp(torch.cat(values), dim=0)) - math.log(len(kernels))


def _log_factor(kernel: Kernel, pooled: Tensor, rows: Tensor, n: int) -> Tensor:
    """log BF of each draw of ``kernel``, with the embeddings evaluated at these rows of the pooled sample."""
    check_columns(kernel, pooled.shape[-1])
    smoothed = SmoothedKernel(kernel, _measure(kernel, pooled.shape[-1])).resolved(pooled)
    R = finite_values(smoothed.gram(pooled[rows]).detach().double(), kernel)
    k = finite_gram(kernel, pooled[rows], pooled)
    N, t = k.shape[-1], R.shape[-1]
    m = N - n
    means = torch.cat([k[..., :n].mean(-1), k[..., n:].mean(-1)], dim=-1)
    D = k - k.mean(dim=-1, keepdim=True)
    S = D @ D.mT / (N - 1)
    nugget = NUGGET * S.diagonal(dim1=-2, dim2=-1).mean(-1) + torch.finfo(R.dtype).eps * 100
    S = S + nugget[..., None, None] * torch.eye(t, dtype=R.dtype, device=R.device)

    def density(tau: float) -> Tensor:
        own, cross = (1.0 + 0.25 * tau**2) * R, (1.0 - 0.25 * tau**2) * R
        A = torch.cat([torch.cat([own + S / n, cross], dim=-1), torch.cat([cross, own + S / m], dim=-1)], dim=-2)
        return -DenseSystem(A, A.new_zeros(A.shape[:-2])).negative_log_densities(means.unsqueeze(-1))

    differences = torch.stack([density(tau) for tau in DIFFERENCES])
    return (torch.logsumexp(differences, dim=0) - math.log(len(DIFFERENCES)) - density(0.0)).flatten()


def _measure(kernel: Kernel, width: int) -> LebesgueMeasure | None:
    """r(x, x) = 1 for a squared exponential of height 1, in any parametrization; else SmoothedKernel's default."""
    terms = gaussian_terms(kernel, width)
    if terms is None or terms.weight.shape[-1] > 1 or terms.frequency is not None or not terms.integrable:
        return None
    is_one = bool(((terms.weight - 1.0).abs() <= HEIGHT_ROUNDING).all())
    return LebesgueMeasure(unit=True) if is_one else None
