"""The Kronecker delta."""

from __future__ import annotations

import numpy as np
import torch

import kernel_embed as ke

from .. import oracles


def test_delta_kernel_equals_loops():
    y = torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 1.0], [3.0, 1.0]])
    other = y[[1, 3]]
    np.testing.assert_array_equal(ke.gram(ke.kernels.DeltaKernel(), y), oracles.gram(oracles.delta, y.numpy()))
    expected = oracles.gram(oracles.delta, y.numpy(), other.numpy())
    np.testing.assert_array_equal(ke.gram(ke.kernels.DeltaKernel(), y, other), expected)
    assert ke.kernels.DeltaKernel()(y, diag=True).tolist() == [1.0] * 4
