r"""Functions of x whose mean given z is zero: what is left to say of x when z is known.

Let :math:`\mathcal R` take the studentized residual of a regression on z (:mod:`.smoothers`), and
:math:`c_k(u) = \sqrt2 \cos \pi k u`, k = 1, 2, …, a basis of the functions of [0, 1] of mean zero. Of a real column

.. math::
    \text{residual:} &\quad r = \mathcal R[x] \\
    \text{shape:} &\quad \mathcal R\big[c_k(\tfrac12 + r / 6s)\big], \quad s^2 = \overline{r^2} \\
    \text{ranks:} &\quad \mathcal R\big[c_k(F(x))\big], \quad F \text{ the distribution of x} \\
    \text{transform:} &\quad c_k(U), \quad U = \hat F(r \mid z)

**The probability transform.** With :math:`G_{ji} = 1\{r_j < r_i\} + \tfrac12 1\{r_j = r_i\}` the regression of column i
of G on z, with row i left out, estimates the distribution function at r_i given z_i:

.. math::  U_i = G_{ii} - \frac{[G - SG]_{ii}}{1 - S_{ii}} ,

for all i by one product of matrices. Kernel and η are those of the least leave-one-out CRPS of the ranks, whose
Karhunen–Loève expansion is :math:`c_k / k`. If the estimate is right U is uniform and independent of z, whatever the
shape of the noise. The residual of the normal scores of x takes the place of x in it, so that little is left to learn.

**Ties.** Where x has few values, U would be anywhere between :math:`a = F(x- \mid z)` and :math:`b = F(x \mid z)`, and
c_k is replaced by its mean over that interval, :math:`\sqrt2 (\sin \pi k b - \sin \pi k a) / \pi k (b - a)`, whose
mean given z is zero again. A category is one coordinate for each value, minus its probability given z.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .encoding import NORMAL_QUARTILES
from .smoothers import Smoother, Smoothers

KINDS = ("residual", "shape", "ranks", "transform")
NUM_COSINES = 6
NUM_SHAPES = 4
NUM_LEARN = 12
"""Cosines from which the regression of ranks is learned."""
NUM_NOISES = 16
CLIP = 3.0
TIES = 0.3
"""A column is discrete where more than this share of its values repeats another."""
CHUNK = 2**22
"""Entries of S that are held at once."""


def cosines(u: Tensor, count: int) -> Tensor:
    """c_k(u), k = 1, …, count: from ``(n,)`` to ``(n, count)``."""
    first = torch.cos(math.pi * u)
    terms = [torch.ones_like(u), first]
    while len(terms) <= count:  # cos (k+1)θ = 2 cos θ cos kθ − cos (k−1)θ
        terms.append(2.0 * first * terms[-1] - terms[-2])
    return math.sqrt(2.0) * torch.stack(terms[1 : count + 1], dim=-1)


def mean_cosines(a: Tensor, b: Tensor, count: int) -> Tensor:
    """The mean of c_k over the intervals [a, b]."""
    k = math.pi * torch.arange(1, count + 1, dtype=a.dtype, device=a.device)
    a, b = a.unsqueeze(-1), b.unsqueeze(-1)
    return math.sqrt(2.0) * (torch.sin(k * b) - torch.sin(k * a)) / (k * (b - a))


def ranks(x: Tensor, at: Tensor | None = None) -> Tensor:
    """(mid-rank − ½)/n of each value of ``x`` ``(n,)``: their distribution function, ties in the middle.

    With ``at`` that function of other numbers.

    Example:
        >>> ranks(torch.tensor([3.0, 1.0, 3.0, 7.0], dtype=torch.float64))
        tensor([0.5000, 0.1250, 0.5000, 0.8750], dtype=torch.float64)
    """
    ordered, values = np.sort(x.numpy(force=True)), (x if at is None else at).numpy(force=True)
    low, high = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    return torch.from_numpy((low + high) / (2.0 * len(x))).to(x.device)


def normal_scores(x: Tensor) -> Tensor:
    """Φ⁻¹ of the ranks of each column of ``x`` ``(n, d)``."""
    return torch.stack([torch.special.ndtri(ranks(column)) for column in x.unbind(-1)], dim=-1)


def conditional_distribution(x: Tensor, smoother: Smoother) -> tuple[Tensor, Tensor]:
    """F(x_i− | z_i) and F(x_i | z_i) of a column ``(n,)``, each without row i."""
    n = len(x)
    below, upto = torch.empty_like(x), torch.empty_like(x)
    free = (1.0 - smoother.leverage).clamp_min(1e-3)
    step = max(1, CHUNK // n)
    for start in range(0, n, step):
        stop = min(start + step, n)
        S, own = smoother.rows(start, stop), x[start:stop].unsqueeze(-1)
        # [G − SG]_ii with G_ii = 0 for the open end and 1 for the closed one
        below[start:stop] = (S * (x < own)).sum(-1)
        upto[start:stop] = 1.0 - (S * (x <= own)).sum(-1)
    below, upto = below / free, 1.0 - upto / free
    return below.clamp(0.0, 1.0), upto.clamp(0.0, 1.0)


def karhunen_loeve(x: Tensor) -> Tensor:
    """c_k/k of the ranks of ``x`` ``(n,)``, whose squared error is the CRPS of ranks."""
    k = torch.arange(1, NUM_LEARN + 1, dtype=x.dtype, device=x.device)
    return cosines(ranks(x), NUM_LEARN) / k


def expected_cosines(x: Tensor, r: Tensor) -> Tensor:
    """The mean of c_k(F(x)) given z if x is its prediction plus noise that is independent of z: ``(n, k)``.

    The prediction at row i is x_i − r_i, and the noise any of :data:`NUM_NOISES` quantiles of r. What this leaves to
    a regression on z is small, however fast the prediction changes with z.
    """
    levels = (torch.arange(NUM_NOISES, dtype=x.dtype, device=x.device) + 0.5) / NUM_NOISES
    prediction, place = (x - r).sort()  # ascending numbers are looked up faster
    at = r.quantile(levels).unsqueeze(-1) + prediction
    mean = cosines(ranks(x, at.flatten()), NUM_COSINES).reshape(*at.shape, -1).mean(0)
    return torch.empty_like(mean).index_copy_(0, place, mean)


def clipped(r: Tensor) -> Tensor:
    """No residual beyond three standard deviations of the middle half, so that no row decides alone."""
    low, high = r.quantile(r.new_tensor([0.25, 0.75]))
    bound = CLIP * (high - low) / NORMAL_QUARTILES
    bound = torch.where(bound > 0, bound, r.abs().max())
    r = r.clamp(-bound, bound)
    return r - r.mean()


class Column(NamedTuple):
    """What is left of one column given z.

    Attributes:
        kinds: the features by name, ``(n, m)``.
        U: the probability transform, ``(n,)``; of a category its code.
        gain: how much of the CRPS z explains.
        ties: the share of values that repeat another.
        freedom: degrees of freedom of its regressions on z, the most of value, scores and noise.
    """

    kinds: dict[str, Tensor]
    U: Tensor
    gain: float
    ties: float
    freedom: float


def real_column(x: Tensor, smoothers: Smoothers, more: Smoothers) -> Column:
    """Of a real column ``(n,)``; its transform is given what ``more`` regresses on, z and perhaps other columns."""
    ties = 1.0 - len(x.unique()) / len(x)
    x = x - x.mean()
    x = x / x.std() if bool(x.abs().max() > 0) else x
    value, own, score = x.unsqueeze(-1), cosines(ranks(x), NUM_COSINES), normal_scores(x.unsqueeze(-1))
    by_value, by_score = smoothers.choose_each([value, score])
    r = by_value.residuals(value)
    s = r.square().mean().sqrt().clamp_min(torch.finfo(x.dtype).tiny)
    shape = cosines((0.5 + r.squeeze(-1) / (6.0 * s)).clamp(0.0, 1.0), NUM_SHAPES)
    own = own - expected_cosines(x, r.squeeze(-1))
    discrete = ties > TIES
    if more is not smoothers and not discrete:
        by_score = more.choose(score)
    noise = x if discrete else by_score.residuals(score).squeeze(-1)
    columns = torch.cat([shape, own], dim=1).split(1, dim=1)
    *by_column, by_noise = smoothers.choose_each([*columns, karhunen_loeve(noise)])
    if more is not smoothers:
        by_noise = more.choose(karhunen_loeve(noise))
    left = torch.cat([one.residuals(column) for one, column in zip(by_column, columns, strict=True)], dim=1)
    a, b = conditional_distribution(noise, by_noise)
    U = 0.5 * (a + b)
    transform = mean_cosines(a, torch.maximum(b, a + 1e-6), NUM_COSINES) if discrete else cosines(ranks(U), NUM_COSINES)
    kinds = {
        "residual": clipped(r),
        "shape": left[:, :NUM_SHAPES],
        "ranks": left[:, NUM_SHAPES:],
        "transform": transform,
    }
    missed = 1.0 - by_noise.gain if discrete else (1.0 - by_score.gain) * (1.0 - by_noise.gain)
    freedom = max(one.freedom for one in (by_value, by_score, by_noise))
    return Column(kinds, U, 1.0 - missed, ties, freedom)


def category_column(x: Tensor, coordinates: Tensor, smoothers: Smoothers) -> Column:
    """Of a category ``(n,)`` with its coordinates ``(n, c)``: these minus their means given z, for every kind."""
    smoother = smoothers.choose(coordinates)
    rest = smoother.residuals(coordinates)
    ties = 1.0 - len(x.unique()) / len(x)
    return Column(dict.fromkeys(KINDS, rest), x, smoother.gain, ties, smoother.freedom)
