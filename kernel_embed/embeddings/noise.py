r"""How far μ̂ is from μ: one number, or what the central limit theorem says of it, eq. (6).

.. math::
    \operatorname{Cov}[\hat\mu(x), \hat\mu(y)] \approx \frac1n \operatorname{Cov}_j[k(x_j, x), k(x_j, y)]
    = (D D^\top)_{xy}, \qquad D_{xj} = \frac{k(x, x_j) - \hat\mu(x)}{\sqrt{n (n - 1)}} .
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import gram

NoiseKind = Literal["heteroscedastic", "central-limit"]
NUGGET = 1e-4
"""Independent noise beside that of the central limit theorem, as a share of it: by itself the latter is singular."""


def deviations(kernel: Kernel, x: Tensor, points: Tensor) -> Tensor:
    """D with DDᵀ the covariance of μ̂ of the sample ``x`` at ``points``, eq. (6): ``(*batch, t, n)``."""
    K = gram(kernel, points, x)
    n = x.shape[-2]
    return (K - K.mean(dim=-1, keepdim=True)) / math.sqrt(n * max(n - 1, 1))


def central_limit_variance(kernel: Kernel, x: Tensor, points: Tensor) -> Tensor:
    """Var_j[k(x_j, x)] / n at ``points``, kept off zero, where k is the same for every x_j: ``(*batch, t)``."""
    # eq. (6), its diagonal
    variance = deviations(kernel, x, points).square().sum(dim=-1)
    return variance + 1e-6 * variance.detach().mean(dim=-1, keepdim=True) + torch.finfo(variance.dtype).eps


def central_limit_covariance(kernel: Kernel, x: Tensor, points: Tensor) -> Tensor:
    """The joint covariance at ``points`` with a nugget: ``(*batch, t, t)``."""
    D, variance = deviations(kernel, x, points), central_limit_variance(kernel, x, points)
    nugget = NUGGET * variance.mean(dim=-1, keepdim=True)
    return D @ D.mT + torch.diag_embed(nugget.expand(variance.shape))
