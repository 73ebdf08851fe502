r"""Factors in single precision, whose solutions are refined in double: half the memory and time of the O(n³) part.

With :math:`\hat L` the factor of A in float32, one step of iterative refinement in float64 is

.. math::  V_0 = \hat A^{-1} Y, \qquad V = V_0 + \hat A^{-1} (Y - A V_0) , \qquad
           \frac{\lVert V - A^{-1} Y \rVert}{\lVert A^{-1} Y \rVert} \lesssim (u \kappa)^2, \quad u = 6 \cdot 10^{-8},

with :math:`\kappa` the condition number of A. What is read off the inverse itself, its diagonal and the gradient, is
not refined, and has an error of the order of :math:`u \kappa`. A bound,
:math:`\kappa \le \lVert A \rVert_\infty / \min_i D_{ii}`, is at hand; where it is too large, the factor is made in
double, with a warning.
"""

from __future__ import annotations

import contextlib
import contextvars
import warnings
from collections.abc import Iterator

import torch
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

MAX_CONDITION = 1e5
"""The largest bound of κ for which a factor is made in single precision: uκ is 0.006 there, at worst."""

ASKED = contextvars.ContextVar("single precision is asked for", default=False)
"""Whether dense systems that are made now are to try :func:`single_factor`."""


@contextlib.contextmanager
def single_precision(asked: bool = True) -> Iterator[None]:
    """Factorize dense systems in float32 inside the block, for data in float64; answers are refined, and float64.

    Args:
        asked: ``False`` changes nothing.

    Example:
        >>> from kernel_embed.linalg import DenseSystem, single_precision
        >>> K = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> with single_precision():
        ...     system = DenseSystem(K, torch.tensor(1.0, dtype=torch.float64))
        >>> system.solve(torch.tensor([[8.0], [0.0]], dtype=torch.float64)).flatten().round(decimals=9)
        tensor([ 3., -1.], dtype=torch.float64)
    """
    token = ASKED.set(asked)
    try:
        yield
    finally:
        ASKED.reset(token)


def single_factor(K: Tensor, noise: Tensor) -> Tensor | None:
    """The factor of K + diag(noise) in float32; ``None`` where it would not be good enough, or no saving."""
    if K.dtype != torch.float64:
        return None
    condition = float(((torch.linalg.vector_norm(K, ord=1, dim=-1) + noise) / noise.amin(-1, keepdim=True)).amax())
    if condition <= MAX_CONDITION:
        A = K.float()
        A.diagonal(dim1=-2, dim2=-1).add_(noise)
        factor: Tensor
        factor, info = torch.linalg.cholesky_ex(A)
        if not info.any() and bool(torch.isfinite(factor.diagonal(dim1=-2, dim2=-1)).all()):
            return factor
    warnings.warn(
        f"The condition number of K + ηI may be {condition:.1e}, and single precision takes up to {MAX_CONDITION:.0e}; "
        "went on in double. A larger regularization avoids this.",
        NumericalWarning,
        stacklevel=4,
    )
    return None
