r"""Tests of residuals given z, and permutations among rows of similar z.

**Permutations among neighbors.** The part of x and y that depends on z, but that a regression has missed, varies slowly
with z. A permutation inside small blocks of neighbors preserves it and destroys the rest, so that it is not mistaken
for dependence given z. The blocks come from splitting the rows repeatedly in two, at a random place along a random
direction.

**Residuals** of Gaussian-process regressions on z are tested for independence (Flaxman et al., 2016). The posterior
mean of a Gaussian process is the conditional embedding of eq. (2), so both are fitted the same way, with the kernel
learned by the evidence of x:

.. math::  r = x - K_z A^{-1} x = n\lambda A^{-1} x, \qquad A = K_z + n\lambda I .
"""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from linear_operator.utils.warnings import NumericalWarning
from numpy.typing import NDArray
from torch import Tensor

from ..embeddings import ConditionalEmbedding
from ..kernels import log_scaled, median_distance
from ..learning import fit
from ..objectives import ConditionalEvidence
from .independence import independence_test
from .kernel_choice import KernelChoice
from .result import KernelTestResult

BLOCK = 3
"""The smallest number of rows in a block; a block has fewer than twice as many."""
LARGEST = 6
"""The largest value of :func:`block_size`."""
NUM_PARTITIONS = 10


def block_size(n: int, p: int, freedom: float) -> int:
    """The smallest number of rows in a block, after regressions on z with these degrees of freedom.

    The remainder of a regression with few degrees of freedom varies slowly with z, so that larger blocks preserve it,
    too. Larger blocks permute more rows.

    Example:
        >>> block_size(80, 1, 2.0), block_size(80, 1, 5.0), block_size(80, 1, 30.0)
        (6, 4, 3)
    """
    return min(max(int(n / (4.0 * p * freedom)), BLOCK), LARGEST)


def local_permutations(z: Tensor, num_permutations: int, generator: torch.Generator, block_size: int = BLOCK) -> Tensor:
    """Permutations ``(B, n)`` of the rows of ``z`` (``(n, p)``) inside blocks of neighbors.

    Where z has few distinct rows, equal rows form the blocks.

    Example:
        >>> z = torch.arange(100.0).unsqueeze(-1)
        >>> moved = local_permutations(z, 50, torch.Generator().manual_seed(0))
        >>> bool((moved.sort(-1).values == torch.arange(100)).all()), int((moved - torch.arange(100)).abs().max()) < 10
        (True, True)
    """
    n = len(z)
    if is_grouped(z):
        blocks = z.unique(dim=0, return_inverse=True)[1].unsqueeze(0).numpy(force=True)
    else:
        blocks = partitions(z, min(NUM_PARTITIONS, num_permutations), generator, block_size)
    keys = torch.rand(num_permutations, n, generator=generator, dtype=torch.float64).numpy()
    orders = np.empty((num_permutations, n), dtype=np.int64)
    for g, block in enumerate(blocks):
        own = slice(g, None, len(blocks))
        # NumPy sorts ten times as fast as torch here.
        orders[own, np.argsort(block, kind="stable")] = np.argsort(block + keys[own], axis=-1)
    return torch.from_numpy(orders).to(z.device)


def is_grouped(z: Tensor) -> bool:
    """Whether so many rows of ``z`` are equal that permutations among equal rows suffice."""
    most = len(z) // BLOCK
    if any(len(column.unique()) > most for column in z.unbind(-1)):
        return False
    return len(z.unique(dim=0)) <= most


def partitions(z: Tensor, count: int, generator: torch.Generator, block_size: int = BLOCK) -> NDArray[np.int64]:
    """The block of each row, ``(count, n)``, in random partitions into blocks of neighbors.

    A block has at least ``block_size`` rows, and fewer than twice as many.
    """
    n, p = z.shape
    points = z.numpy(force=True)
    line = np.arange(count)[:, None]
    order = np.tile(np.argsort(points[:, 0], kind="stable"), (count, 1))
    block = np.zeros((count, n), dtype=np.int64)  # of the rows in this order, ascending
    while True:
        number = int(block.max()) + 1
        size = np.bincount((block + number * line).ravel(), minlength=count * number).reshape(count, number)
        if int(size.max()) < 2 * block_size:
            blocks = np.empty_like(block)
            blocks[line, order] = block
            return blocks
        if p > 1:  # sort by block, and inside a block along its direction
            direction = torch.randn(count, number, p, generator=generator, dtype=torch.float64).numpy()
            along = np.einsum("cnp,cnp->cn", points[order], direction[line, block])
            along = (along - along.min()) / max(np.ptp(along), np.finfo(along.dtype).tiny)
            order = order[line, np.argsort(block + 0.999 * along, axis=-1, kind="stable")]
        # cut each block at random, with enough rows on both sides and near the middle of a large one
        share = torch.rand(count, number, generator=generator, dtype=torch.float64).numpy()
        low = np.maximum(block_size, (0.35 * size).astype(np.int64))
        cut = np.where(size < 2 * block_size, size, low + (share * (size - 2 * low + 1)).astype(np.int64))
        begins = np.zeros((count, n + 1), dtype=np.int64)
        first = np.cumsum(size, axis=-1) - size
        begins[line, first] = begins[line, first + cut] = 1
        block = np.cumsum(begins[:, :n], axis=-1) - 1


MAX_ROWS = 300
"""Rows from which the kernel is learned; the regression itself uses all."""
MAX_EVALUATIONS = 30


def residuals(x: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
    """Each standardized column of ``x`` (``(n, d)``) minus its regression on the points ``z`` (``(n, p)``).

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> z = torch.rand(200, 1, generator=generator, dtype=torch.float64)
        >>> noise = 0.1 * torch.randn(200, 1, generator=generator, dtype=torch.float64)
        >>> r = residuals(torch.sin(6 * z) + noise, z, generator)
        >>> float(torch.corrcoef(torch.cat([r, noise], dim=1).T)[0, 1]) > 0.95
        True
    """
    deviation = x.std(dim=0, keepdim=True)
    x = (x - x.mean(dim=0, keepdim=True)) / torch.where(deviation > 0, deviation, 1.0)
    rows = torch.randperm(len(x), generator=generator)[:MAX_ROWS].to(x.device)
    kernel = ScaleKernel(RBFKernel(lengthscale_constraint=log_scaled()), outputscale_constraint=log_scaled()).to(x)
    kernel.base_kernel.lengthscale = median_distance(z[rows])
    kernel.outputscale = kernel.raw_outputscale.new_tensor(0.5)
    embedding = ConditionalEmbedding(kernel, regularization=0.5 / len(rows))
    embedding.to(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        fit(embedding, ConditionalEvidence(), z[rows], x[rows], max_evaluations=MAX_EVALUATIONS, progress=False)
        # The noise of the process is nλ, the same number for any n.
        embedding.regularization = embedding.regularization.detach() * len(rows) / len(x)
        with torch.no_grad():
            conditioned = embedding.condition(z, x)
            return conditioned.Y - conditioned.P


def residual_test(
    residuals_x: Tensor,
    residuals_y: Tensor,
    kernel: KernelChoice = None,
    num_permutations: int = 1000,
    seed: int | None = None,
    kernel_y: KernelChoice = None,
    progress: bool | None = None,
) -> KernelTestResult:
    """The test of conditional independence from the residuals of x and y."""
    result = independence_test(
        residuals_x, residuals_y, kernel, num_permutations, seed, kernel_y=kernel_y, progress=progress
    )
    return dataclasses.replace(result, test="conditional independence test (residuals)")
