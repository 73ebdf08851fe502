r"""Empirical Rademacher complexities of kernels, bounded or estimated.

For :math:`H_k = \{x \mapsto \pm K_k(x, x')\}` the vote penalizes

.. math::  r_k = \hat{\mathfrak R}_S(H_k) = \frac1m E_\sigma \sup_{x'} \Big|\sum_i \sigma_i K_k(x_i, x')\Big| .

========================  ==================================================================================
:func:`trace_bound`       Lemma 3, :math:`\kappa_k \sqrt{\operatorname{Tr} K_k} / m`
:func:`dimension_bound`   Lemma 4, :math:`12 \kappa_k^2 \sqrt{\pi d_k / m}` with :math:`d_k` of eq. (3)
:func:`local_bound`       section 5.3 for eq. (2), from the eigenvalues of the Gram matrix
:func:`massart_bound`     for kernels that are not positive semidefinite, where the lemmas do not hold
:func:`monte_carlo`       the complexity itself, the sup taken over the sample
========================  ==================================================================================

:math:`\kappa_k^2 = \sup_x K_k(x, x)` is taken as the largest value on the sample.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..validation import check_array, check_count, check_number, check_seed
from .families import Array


def check_square(K: Array) -> Array:
    """``K`` as a square matrix of finite numbers."""
    K = check_array(K, "K")
    if K.ndim != 2 or K.shape[0] != K.shape[1] or not K.size:
        raise ValueError(f"K must be a square matrix with one row per point; its shape is {K.shape}.")
    if not np.isfinite(K).all():
        raise ValueError("K has NaN or infinite values. Check the kernel and the data.")
    return K


def trace_bound(K: Array) -> float:
    r"""Lemma 3: :math:`\kappa \sqrt{\operatorname{Tr} K} / m`.

    Example:
        >>> import numpy as np
        >>> trace_bound(np.eye(4))
        0.5
    """
    K = check_square(K)
    m = len(K)
    diagonal = np.diag(K)
    return float(math.sqrt(max(diagonal.max(), 0.0)) * math.sqrt(max(diagonal.sum(), 0.0)) / m)


def feature_dimension(num_features: int, degree: int) -> int:
    r"""eq. (3): :math:`d_k = \binom{N + k}{k}`, the dimension of the features of a polynomial kernel.

    Example:
        >>> feature_dimension(2, 3)
        10
    """
    return math.comb(check_count("num_features", num_features) + check_count("degree", degree, 0, 10**4), degree)


def dimension_bound(K: Array, num_features: int, degree: int) -> float:
    r"""Lemma 4: :math:`12 \kappa^2 \sqrt{\pi d_k / m}` for a polynomial kernel of degree k.

    Example:
        >>> import numpy as np
        >>> round(dimension_bound(np.ones((9, 9)), 2, 1), 3)
        12.28
    """
    K = check_square(K)
    return float(12.0 * np.diag(K).max() * math.sqrt(math.pi * feature_dimension(num_features, degree) / len(K)))


def spectrum(K: Array) -> Array:
    """κ²λ_j, with λ_j the eigenvalues of K / m, largest first."""
    K = check_square(K)
    eigenvalues = np.linalg.eigvalsh(K / len(K))[::-1]
    return np.asarray(np.maximum(eigenvalues, 0.0)) * max(float(np.diag(K).max()), 0.0)


def local_bound(K: Array, radius: float | None = None) -> float:
    r"""Section 5.3: :math:`\sqrt{\frac2m \sum_j \min(r, \kappa^2 \lambda_j)}`, the complexity near zero.

    :math:`\lambda_j` are the eigenvalues of :math:`K / m`. It bounds the complexity of the functions of :math:`H_k`
    with :math:`E[h^2] \le r`. The paper states it for the unit ball; the factor :math:`\kappa^2` is there because
    functions :math:`K(\cdot, x')` have norms up to :math:`\kappa`. At :math:`r = \infty` it is :math:`\sqrt2` times
    Lemma 3.

    Args:
        K: the Gram matrix, positive semidefinite.
        radius: r; by default the fixed point r* of r ↦ bound(r), see :func:`own_radius`.

    Example:
        >>> import numpy as np
        >>> bool(np.isclose(local_bound(np.eye(4), radius=np.inf), np.sqrt(2) * trace_bound(np.eye(4))))
        True
    """
    values = spectrum(K)
    r = own_radius(K, values) if radius is None else radius
    return _local(values, r, len(K))


def own_radius(K: Array, values: Array | None = None) -> float:
    r"""The fixed point :math:`r^* = \sqrt{\frac2m \sum_j \min(r^*, \kappa^2\lambda_j)}`.

    The right side grows no faster than :math:`\sqrt r`, so exactly one positive r solves it (unless K = 0).

    Example:
        >>> import numpy as np
        >>> K = np.diag([4.0, 1.0, 1.0, 1.0])
        >>> r = own_radius(K)
        >>> bool(np.isclose(r, local_bound(K, radius=r)))
        True
    """
    values = spectrum(K) if values is None else values
    m = len(K)
    # r² = (2/m)(n r + tail) on the piece where exactly n values exceed r.
    tails = np.concatenate([np.cumsum(values[::-1])[::-1], [0.0]])
    for n in range(len(values) + 1):
        r = n / m + math.sqrt((n / m) ** 2 + 2.0 * tails[n] / m)
        above = values[n - 1] if n else np.inf
        below = values[n] if n < len(values) else 0.0
        if below <= r <= above:
            return float(r)
    return float(values[0]) if len(values) else 0.0


def _local(values: Array, r: float, m: int) -> float:
    if not check_number("radius", r) > 0:
        raise ValueError(f"The radius of the local complexity must be positive, not {r}. None is the default.")
    return float(math.sqrt(2.0 / m * np.minimum(r, values).sum()))


def massart_bound(K: Array) -> float:
    r"""Massart's lemma for 2n functions :math:`\pm K(\cdot, x_j)`: :math:`\max_j \|K_{\cdot j}\| \sqrt{2 \log 2n} / m`.

    K need be neither symmetric nor positive semidefinite.

    Example:
        >>> import numpy as np
        >>> round(massart_bound(np.array([[0.0, 3.0], [4.0, 0.0]])), 4)
        3.3302
    """
    norm = float(np.sqrt((K**2).sum(axis=0)).max())
    return norm * math.sqrt(2.0 * math.log(2.0 * K.shape[1])) / len(K)


class Estimate(NamedTuple):
    """A Monte Carlo estimate and its standard error."""

    value: float
    standard_error: float


def monte_carlo(K: Array, num_draws: int = 500, seed: int | None = 0) -> Estimate:
    r"""The complexity :math:`\frac1m E_\sigma \max_j |\sum_i \sigma_i K(x_i, x_j)|` itself, from draws of σ.

    Example:
        >>> import numpy as np
        >>> monte_carlo(np.eye(4))
        Estimate(value=0.25, standard_error=0.0)
    """
    check_count("num_draws", num_draws, 2)
    check_seed(seed)
    K = check_array(K, "K", 2)
    if not K.size or not np.isfinite(K).all():
        raise ValueError("K is empty or has NaN or infinite values. Check the kernel and the data.")
    sigma = np.random.default_rng(seed).choice([-1.0, 1.0], size=(num_draws, len(K)))
    suprema = np.abs(sigma @ K).max(axis=1) / len(K)
    return Estimate(float(suprema.mean()), float(suprema.std(ddof=1) / math.sqrt(num_draws)))


def may_be_positive_semidefinite(K: Array) -> bool:
    r"""Whether K is square, symmetric and :math:`K_{ij}^2 \le K_{ii} K_{jj}`: cheap, necessary, not sufficient.

    Example:
        >>> import numpy as np
        >>> may_be_positive_semidefinite(np.eye(2)), may_be_positive_semidefinite(np.array([[0.0, 1.0], [1.0, 0.0]]))
        (True, False)
    """
    if K.shape[0] != K.shape[1]:
        return False
    diagonal = np.diag(K)
    if (diagonal < 0).any():
        return False
    size = max(float(np.abs(K).max()), np.finfo(float).tiny)
    root = np.sqrt(diagonal)
    return bool((np.abs(K - K.T) <= 1e-9 * size).all() and (np.abs(K) <= np.outer(root, root) + 1e-9 * size).all())
