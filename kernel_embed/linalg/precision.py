r"""Cholesky factors in mixed precision, and whitening.

A factor in float32, refined in float64, halves the memory and time of the O(n³) part. With
:math:`\hat L` the factor of A in float32, one step of iterative refinement in float64 is

.. math::  V_0 = \hat A^{-1} Y, \qquad V = V_0 + \hat A^{-1} (Y - A V_0) , \qquad
           \frac{\lVert V - A^{-1} Y \rVert}{\lVert A^{-1} Y \rVert} \lesssim (u \kappa)^2, \quad u = 6 \cdot 10^{-8},

with :math:`\kappa` the condition number of A. The diagonal of the inverse and the gradient are not refined, and have an
error of the order of :math:`u \kappa`. A bound, :math:`\kappa \le \lVert A \rVert_\infty / \min_i D_{ii}`, is
available; if it is too large, the factor is computed in double precision, with a warning.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator

import torch
from linear_operator.utils.errors import NanError
from torch import Tensor

from ..runtime import warn_numerical
from ..validation import all_finite

MAX_CONDITION = 1e5
"""The largest bound of κ for which a factor is made in single precision: uκ is 0.006 there, at worst."""
SINGLE_PRECISION = contextvars.ContextVar("single precision", default=False)
"""Whether new factors of dense systems are made in float32."""


@contextlib.contextmanager
def single_precision(enabled: bool = True) -> Iterator[None]:
    """Factorize dense systems in float32 inside the block, for data in float64; solutions are refined to float64."""
    token = SINGLE_PRECISION.set(enabled)
    try:
        yield
    finally:
        SINGLE_PRECISION.reset(token)


def single_factor(K: Tensor, noise: Tensor) -> Tensor | None:
    """The factor of K + diag(noise) in float32; ``None`` if it is too inaccurate or saves nothing."""
    if K.dtype != torch.float64:
        return None
    condition = float(((torch.linalg.vector_norm(K, ord=1, dim=-1) + noise) / noise.amin(-1, keepdim=True)).amax())
    if condition <= MAX_CONDITION:
        A = K.float()
        A.diagonal(dim1=-2, dim2=-1).add_(noise)
        factor: Tensor
        factor, info = torch.linalg.cholesky_ex(A)
        if not info.any() and all_finite(factor.diagonal(dim1=-2, dim2=-1)):
            return factor
    warn_numerical(
        f"The condition number of K + ηI may be {condition:.1e}, and single precision takes up to {MAX_CONDITION:.0e}; "
        "went on in double. A larger regularization avoids this.",
        stacklevel=5,
    )
    return None


def whitening(K: Tensor) -> Tensor:
    """R with RᵀKR = I, for symmetric K ``(s, s)``; without the directions in which K is numerically zero."""
    if not bool(torch.isfinite(K).all()):
        raise NanError("The kernel matrix of the inducing points is not finite. Check the kernel and the points.")
    values, vectors = torch.linalg.eigh(K)
    kept = values > K.shape[-1] * torch.finfo(K.dtype).eps * values[-1]
    R: Tensor = vectors[:, kept] * values[kept].rsqrt()
    return R


def require_finite(Z: Tensor) -> None:
    """Raise if features are not finite, as a factorization would, so that a line search steps back."""
    if not all_finite(Z):
        bad = int((~torch.isfinite(Z.detach())).sum())
        raise NanError(f"Expected finite features, got {bad} of {Z.numel()} that are not: check the feature map.")
