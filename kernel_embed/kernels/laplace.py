r"""Gram matrices of the Laplace kernel with their gradient in closed form.

.. math::  K_{ij} = \exp\Big(-\sum_c \lvert z_{ic} - z'_{jc} \rvert\Big), \qquad z = x / \ell

With :math:`G = \partial q / \partial K` and :math:`M = G \circ K`,

.. math::  \partial q / \partial z_{ic} = -\sum_j M_{ij} \operatorname{sign}(z_{ic} - z'_{jc}) ,

and where :math:`z' = z` both sides are one sum over :math:`M + M^\top`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def laplace_gram(z1: Tensor, z2: Tensor | None = None) -> Tensor:
    """The matrix exp(−‖z1_i − z2_j‖₁), differentiable in ``z1`` and ``z2``; ``z2=None`` means ``z1``.

    Example:
        >>> laplace_gram(torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64))
        tensor([[1.0000, 0.1353],
                [0.1353, 1.0000]], dtype=torch.float64)
    """
    matrix: Tensor = _LaplaceGram.apply(z1, z2)
    return matrix


class _LaplaceGram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor | None) -> Tensor:
        """K = exp(−D)."""
        D = torch.cdist(z1, z1 if z2 is None else z2, p=1.0)
        K = D.neg().exp_()
        ctx.save_for_backward(z1, z2, D, K)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """∂q/∂z = −Σ_j M_ij sign(z_i − z'_j)."""
        z1, z2, D, K = ctx.saved_tensors
        M = (G * K).neg_()
        if z2 is None:
            return _slope(M + M.mT, z1, z1, D), None
        first = _slope(M, z1, z2, D) if ctx.needs_input_grad[0] else None
        second = _slope(M.mT, z2, z1, D.mT) if ctx.needs_input_grad[1] else None
        return first, second


def _slope(M: Tensor, z1: Tensor, z2: Tensor, D: Tensor) -> Tensor:
    """Σ_j M_ij sign(z1_i − z2_j)."""
    slope: Tensor = torch.ops.aten._cdist_backward(
        M.contiguous(), z1.contiguous(), z2.contiguous(), 1.0, D.contiguous()
    )
    return slope
