r"""The average of kernels as one kernel.

All statistics here are linear in the Gram matrix (HSIC in each of its two), so that over draws k_s with weights w_s,

.. math::  \sum_s w_s T(k_s) = T(\bar k), \qquad \bar k = \sum_s w_s k_s :

a test averaged over a posterior is the test with the average kernel, and its null distribution is that of one kernel.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import gram
from ..kernels.gram import batch_rows, cross_evaluation
from ..posteriors.posterior import KernelDraws

BLOCK_ENTRIES = 2**24
"""Kernel values of all draws in memory at once."""
ROUNDING = 1e-6
"""The error of a sum of weights in single precision."""


class AverageKernel(Kernel):
    """k̄ = Σ_s w_s k_s as a GPyTorch kernel without a batch dimension, for inputs ``(n, d)``.

    Args:
        draws: the kernels and their weights.

    Raises:
        TypeError: if a draw is not a GPyTorch kernel.
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
        _check_draws(draws)
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
        """Ignored: GPyTorch sets it in its constructor."""

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: object
    ) -> Tensor:
        """k̄ between rows."""
        if last_dim_is_batch or x1.dim() > 2 or x2.dim() > 2:
            raise RuntimeError(
                f"AverageKernel takes inputs of shape (n, d), not {tuple(x1.shape)} and {tuple(x2.shape)}."
            )
        evaluate = _pairwise if diag else _matrix
        parts = [evaluate(kernel, weights.to(x1), x1, x2) for kernel, weights in zip(*self.draws, strict=True)]
        return torch.stack(parts).sum(0)


def _pairwise(kernel: Kernel, weights: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    with cross_evaluation(kernel):
        values = kernel(batch_rows(kernel, x1), batch_rows(kernel, x2), diag=True)
    average: Tensor = weights @ values.reshape(-1, len(x1)).expand(len(weights), -1)
    return average


def _matrix(kernel: Kernel, weights: Tensor, x1: Tensor, x2: Tensor) -> Tensor:
    """Σ_s w_s K_s; a kernel whose values have no batch dimension has the same values for all draws."""

    def average(K: Tensor) -> Tensor:
        K = K.reshape(-1, *K.shape[-2:]).expand(len(weights), -1, -1)
        return torch.tensordot(weights, K, dims=1)  # type: ignore[no-any-return]

    rows = max(1, BLOCK_ENTRIES // (len(weights) * len(x2)))
    if len(x1) <= rows and x1.shape == x2.shape and torch.equal(x1, x2):
        return average(gram(kernel, x1))
    return torch.cat([average(gram(kernel, block, x2)) for block in x1.split(rows)])


def average_over_batch(kernel: Kernel) -> Kernel:
    """The average over the batch dimension of a kernel; a kernel without one is returned as it is."""
    batch = torch.Size(kernel.batch_shape)
    if not batch:
        return kernel
    weights = torch.full((batch.numel(),), 1.0 / batch.numel(), dtype=torch.float64)
    return AverageKernel(KernelDraws((kernel,), (weights,)))


def draws_of(kernel: Kernel) -> KernelDraws:
    """The draws of an average; another kernel is its own only draw."""
    if isinstance(kernel, AverageKernel):
        return kernel.draws
    return KernelDraws((kernel,), (torch.ones(1, dtype=torch.float64),))


def _check_draws(draws: KernelDraws) -> None:
    kernels, weights = draws
    if not kernels or not all(isinstance(kernel, Kernel) for kernel in kernels):
        types = [type(kernel).__name__ for kernel in kernels]
        raise TypeError(f"kernel_draws() must return gpytorch kernels, not {types}.")
    counts, sizes = [torch.Size(kernel.batch_shape).numel() for kernel in kernels], [w.numel() for w in weights]
    if counts != sizes:
        raise ValueError(
            f"kernel_draws() must return one weight for each draw: the kernels have {counts} draws, the weights "
            f"{sizes} entries."
        )
    flat = torch.cat([w.detach().double().flatten().cpu() for w in weights])
    if not bool((flat >= 0).all()) or not abs(float(flat.sum()) - 1.0) <= ROUNDING:
        raise ValueError(
            f"The weights of kernel draws must be nonnegative and sum to 1; they sum to {float(flat.sum()):g}, and the "
            f"smallest is {float(flat.min()):g}. Divide them by their sum."
        )
