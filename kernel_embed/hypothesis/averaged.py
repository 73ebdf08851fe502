r"""The average of kernels, as one kernel.

Every statistic here is linear in the Gram matrix (HSIC in each of its two), so that over draws k_s with weights w_s,

.. math::  \sum_s w_s T(k_s) = T(\bar k), \qquad \bar k = \sum_s w_s k_s :

a test averaged over a posterior is the test with the average kernel, and its null distribution is that of one kernel.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import gram
from ..kernels.gram import cross_evaluation
from ..posteriors.draws import KernelDraws

NUMBERS = 2**24
"""Kernel values of all draws together that are held at once."""
ROUNDING = 1e-6
"""By how much weights in single precision may miss a sum of 1."""


class AverageKernel(Kernel):
    """k̄ = Σ_s w_s k_s as a GPyTorch kernel without a batch dimension, for inputs ``(n, d)``.

    Args:
        draws: the kernels and their weights.

    Raises:
        TypeError: if a draw is not a kernel of GPyTorch.
        ValueError: if there is not one weight for each draw, or the weights are negative or do not sum to 1.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> batch = RBFKernel(batch_shape=torch.Size([2])).double()
        >>> batch.lengthscale = torch.tensor([1.0, 2.0], dtype=torch.float64).reshape(2, 1, 1)
        >>> average = AverageKernel(KernelDraws((batch,), (torch.tensor([0.25, 0.75], dtype=torch.float64),)))
        >>> x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> gram(average, x).detach()                                      # ¼ exp(−1/2) + ¾ exp(−1/8)
        tensor([[1.0000, 0.8135],
                [0.8135, 1.0000]], dtype=torch.float64)
    """

    weights: Tensor

    def __init__(self, draws: KernelDraws) -> None:
        super().__init__()
        check_draws(draws)
        self.kernels = torch.nn.ModuleList(draws.kernels)
        self.counts = [weights.numel() for weights in draws.weights]
        self.register_buffer("weights", torch.cat([weights.detach().double().flatten() for weights in draws.weights]))

    @property
    def draws(self) -> KernelDraws:
        """The kernels and their weights."""
        return KernelDraws(tuple(self.kernels), self.weights.split(self.counts))

    @property
    def batch_shape(self) -> torch.Size:
        """Empty: the draws are averaged."""
        return torch.Size()

    @batch_shape.setter
    def batch_shape(self, value: torch.Size) -> None:
        """Nothing to set: the draws hold every parameter."""

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: object
    ) -> Tensor:
        """k̄ between rows."""
        if last_dim_is_batch or x1.dim() > 2 or x2.dim() > 2:
            raise RuntimeError(
                f"Expected inputs of shape (n, d), got {tuple(x1.shape)} and {tuple(x2.shape)}. "
                "Give tensors of two dimensions."
            )
        evaluate = _pairwise if diag else _matrix
        parts = [evaluate(kernel, weights.to(x1), x1, x2) for kernel, weights in zip(*self.draws, strict=True)]
        return torch.stack(parts).sum(0)


def _pairwise(kernel: Kernel, weights: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    with cross_evaluation(kernel):
        values = kernel(x1, x2, diag=True)
    answer: Tensor = weights @ values.reshape(-1, len(x1)).expand(len(weights), -1)
    return answer


def _matrix(kernel: Kernel, weights: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    rows = max(1, NUMBERS // (len(weights) * len(x2)))
    if len(x1) <= rows and x1.shape == x2.shape and torch.equal(x1, x2):
        return _weighed(weights, gram(kernel, x1))
    return torch.cat([_weighed(weights, gram(kernel, some, x2)) for some in x1.split(rows)])


def _weighed(weights: Tensor, K: Tensor) -> Tensor:
    """Σ_s w_s K_s; a kernel without parameters answers once for all draws."""
    average: Tensor = torch.tensordot(weights, K.reshape(-1, *K.shape[-2:]).expand(len(weights), -1, -1), dims=1)
    return average


def average_of_batch(kernel: Kernel) -> Kernel:
    """A kernel with a batch dimension as the average over it; one without, as it is."""
    batch = torch.Size(kernel.batch_shape)
    if not batch:
        return kernel
    weights = torch.full((batch.numel(),), 1.0 / batch.numel(), dtype=torch.float64)
    return AverageKernel(KernelDraws((kernel,), (weights,)))


def draws_of(kernel: Kernel) -> KernelDraws:
    """What ``kernel`` averages over; a kernel that is none is its own only draw."""
    if isinstance(kernel, AverageKernel):
        return kernel.draws
    return KernelDraws((kernel,), (torch.ones(1, dtype=torch.float64),))


def check_draws(draws: KernelDraws) -> None:
    """Raise unless there is one weight for each draw, none negative, and all of them sum to 1."""
    kernels, weights = draws
    if not kernels or not all(isinstance(kernel, Kernel) for kernel in kernels):
        raise TypeError(
            f"Expected draws of gpytorch kernels, got {[type(kernel).__name__ for kernel in kernels]}. "
            "Return one kernel with a batch of draws."
        )
    counts, given = [torch.Size(kernel.batch_shape).numel() for kernel in kernels], [w.numel() for w in weights]
    if counts != given:
        raise ValueError(
            f"Expected one weight for each draw, {counts} of them in the kernels, got {given}. Give one tensor of "
            "weights for each kernel, with one entry for each element of its batch."
        )
    together = torch.cat([w.detach().double().flatten().cpu() for w in weights])
    total = float(together.sum())
    if not bool((together >= 0).all()) or not abs(total - 1.0) <= ROUNDING:
        raise ValueError(
            f"Expected weights that are not negative and sum to 1, got a sum of {total:g} and a smallest weight of "
            f"{float(together.min()):g}. Divide them by their sum."
        )
