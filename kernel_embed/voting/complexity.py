r"""The complexities :math:`r_k` of kernels and the penalties :math:`\Lambda_k = \lambda r_k + \beta`.

For :math:`H_k = \{x \mapsto \pm K_k(x, x')\}` the vote penalizes the empirical Rademacher complexity

.. math::  r_k = \hat{\mathfrak R}_S(H_k) = \frac1m E_\sigma \sup_{x'} \Big|\sum_i \sigma_i K_k(x_i, x')\Big| ,

bounded or estimated; :math:`\kappa_k^2 = \sup_x K_k(x, x)` is taken as the largest value on the sample. Lemmas 3 and 4
do not hold for kernels that are not positive semidefinite; Massart's lemma does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..validation import check_array, check_count, check_number, check_seed
from .families import Array, KernelFamily, Kernels, degree

NAMES = ("trace", "dimension", "local", "monte_carlo")


def trace_bound(K: Array) -> float:
    r"""Lemma 3: :math:`\kappa \sqrt{\operatorname{Tr} K} / m`."""
    diagonal = np.diag(_check_square(K))
    return math.sqrt(max(diagonal.max(), 0.0)) * math.sqrt(max(diagonal.sum(), 0.0)) / len(diagonal)


def feature_dimension(num_features: int, degree: int) -> int:
    r"""eq. (3): :math:`d_k = \binom{N + k}{k}`, the dimension of the features of a polynomial kernel."""
    return math.comb(check_count("num_features", num_features) + check_count("degree", degree, 0, 10**4), degree)


def dimension_bound(K: Array, num_features: int, degree: int) -> float:
    r"""Lemma 4: :math:`12 \kappa^2 \sqrt{\pi d_k / m}` for a polynomial kernel of degree k."""
    K = _check_square(K)
    return float(12.0 * np.diag(K).max() * math.sqrt(math.pi * feature_dimension(num_features, degree) / len(K)))


def local_bound(K: Array, radius: float | None = None) -> float:
    r"""Section 5.3: :math:`\sqrt{\frac2m \sum_j \min(r, \kappa^2 \lambda_j)}`, for functions with :math:`E[h^2] \le r`.

    :math:`\lambda_j` are the eigenvalues of :math:`K / m`. The paper states it for the unit ball; functions
    :math:`K(\cdot, x')` have norms up to :math:`\kappa`. By default r is the fixed point of :func:`own_radius`.
    """
    return _local(K, radius)[0]


def own_radius(K: Array) -> float:
    r"""The fixed point :math:`r^* = \sqrt{\frac2m \sum_j \min(r^*, \kappa^2\lambda_j)}`."""
    return _local(K, None)[1]


def _local(K: Array, radius: float | None) -> tuple[float, float]:
    """The local bound and its radius, by default the fixed point."""
    K = _check_square(K)
    m = len(K)
    eigenvalues = np.linalg.eigvalsh(K / m)[::-1]
    values = np.maximum(eigenvalues, 0.0) * max(float(np.diag(K).max()), 0.0)  # κ²λ_j, largest first
    if radius is None:
        # Σ min(r, v_j) is the least over n of n r + the tail beyond n; the first of these to meet r² is r*.
        share = np.arange(m + 1) / m
        tails = np.append(np.cumsum(values[::-1])[::-1], 0.0)
        radius = float((share + np.sqrt(share**2 + 2.0 * tails / m)).min())
    elif not check_number("radius", radius) > 0:
        raise ValueError(f"The radius of the local complexity must be positive, not {radius}. None is the default.")
    return math.sqrt(2.0 / m * np.minimum(radius, values).sum()), radius


def massart_bound(K: Array) -> float:
    r"""Massart's lemma for n functions :math:`K(\cdot, x_j)`: :math:`\max_j \|K_{\cdot j}\| \sqrt{2 \log 2n} / m`."""
    return float(np.linalg.norm(K, axis=0).max()) * math.sqrt(2.0 * math.log(2.0 * K.shape[1])) / len(K)


class Estimate(NamedTuple):
    """A Monte Carlo estimate."""

    value: float
    standard_error: float


def monte_carlo(K: Array, num_draws: int = 500, seed: int | None = 0) -> Estimate:
    r"""The complexity :math:`\frac1m E_\sigma \max_j |\sum_i \sigma_i K(x_i, x_j)|` itself, from draws of σ."""
    check_count("num_draws", num_draws, 2)
    check_seed(seed)
    K = check_array(K, "K", 2)
    if not K.size or not np.isfinite(K).all():
        raise ValueError("K is empty or has NaN or infinite values. Check the kernel and the data.")
    sigma = np.random.default_rng(seed).choice([-1.0, 1.0], size=(num_draws, len(K)))
    suprema = np.abs(sigma @ K).max(axis=1) / len(K)
    return Estimate(float(suprema.mean()), float(suprema.std(ddof=1) / math.sqrt(num_draws)))


def _check_square(K: Array) -> Array:
    K = check_array(K, "K")
    if K.ndim != 2 or K.shape[0] != K.shape[1] or not K.size:
        raise ValueError(f"K must be a square matrix with one row per point; its shape is {K.shape}.")
    if not np.isfinite(K).all():
        raise ValueError("K has NaN or infinite values. Check the kernel and the data.")
    return K


def _may_be_positive_semidefinite(K: Array) -> bool:
    r"""Whether K is square, symmetric and :math:`K_{ij}^2 \le K_{ii} K_{jj}`: cheap, necessary, not sufficient."""
    if K.shape[0] != K.shape[1] or (np.diag(K) < 0).any():
        return False
    rounding = 1e-9 * max(float(np.abs(K).max()), np.finfo(float).tiny)
    root = np.sqrt(np.diag(K))
    return bool((np.abs(K - K.T) <= rounding).all() and (np.abs(K) <= np.outer(root, root) + rounding).all())


class Complexities(NamedTuple):
    """r_k of every kernel, its rule, and its radius r, infinite except for local ones, which cover E[h²] ≤ r."""

    values: Array
    rules: list[str]
    radii: Array


def complexities(
    kernels: Kernels,
    x: ArrayLike,
    choice: str | ArrayLike = "trace",
    *,
    grams: Sequence[Array] | None = None,
    radius: float | None = None,
    num_draws: int = 500,
    seed: int | None = 0,
) -> Complexities:
    """r_k of every kernel on the points ``x``, by the rule ``choice`` or one number per kernel.

    Where a Gram matrix shows that its kernel is not positive semidefinite, Massart's lemma replaces Lemma 3 and the
    local bound. Of these two, the smaller one is used.
    """
    family = KernelFamily.of(kernels)
    if not isinstance(choice, str):
        values = np.asarray(choice, dtype=np.float64)
        if values.shape != (len(family),):
            raise ValueError(f"complexity must have {len(family)} numbers, one per kernel, not shape {values.shape}.")
        if not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError(f"Complexities must be finite and at least 0, not {values.tolist()}.")
        return Complexities(values, ["given"] * len(family), np.full(len(family), np.inf))
    if choice not in NAMES:
        raise ValueError(f"complexity must be one of {', '.join(NAMES)}, or one number per kernel, not {choice!r}.")
    points = family.points(x)

    def complexity(k: int, K: Array) -> tuple[float, str, float]:
        """r_k, its rule and its radius."""
        if choice == "monte_carlo":
            return monte_carlo(K, num_draws, seed).value, "Monte Carlo", np.inf
        if choice == "dimension":
            power = degree(family.kernels[k])
            if power is None or points.ndim != 2:
                name = family.names()[k]
                raise ValueError(f"complexity='dimension' is for polynomial kernels only; kernel {k} is {name}.")
            return dimension_bound(K, points.shape[1], power), "Lemma 4", np.inf
        if not _may_be_positive_semidefinite(K):
            return massart_bound(K), "Massart", np.inf
        trace = trace_bound(K)
        local, r = _local(K, radius) if choice == "local" else (np.inf, np.inf)
        return (local, "local", r) if local < trace else (trace, "Lemma 3", np.inf)

    grams = family.grams(points, points) if grams is None else grams
    r, rules, radii = zip(*(complexity(k, K) for k, K in enumerate(grams)), strict=True)
    return Complexities(np.array(r), list(rules), np.array(radii))


def penalties(lam: float, beta: float, r: Array) -> Array:
    """Λ_k = λ r_k + β."""
    for name, value in (("lam", lam), ("beta", beta)):
        if not 0.0 <= check_number(name, value) < np.inf:
            raise ValueError(f"{name} must be finite and at least 0, not {value}. The paper uses 1e-6 to 1.")
    return lam * check_array(r, "r") + beta
