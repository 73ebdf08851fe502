"""Samples and kernels that the tests share."""

from __future__ import annotations

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from kernel_embed.posteriors import KernelDraws


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rbf(lengthscale: float | Tensor, **options: object) -> RBFKernel:
    kernel = RBFKernel(**options).double()
    kernel.lengthscale = torch.as_tensor(lengthscale, dtype=torch.float64)
    return kernel


class Draws:
    """Weighted kernels, as a posterior gives them to a test."""

    def __init__(self, kernels: tuple[RBFKernel, ...], weights: tuple[Tensor, ...]) -> None:
        self.kernels, self.weights = kernels, weights

    def kernel_draws(self) -> KernelDraws:
        return KernelDraws(self.kernels, self.weights)


WEIGHTS, LENGTHSCALES = torch.tensor([[0.2, 0.5, 0.3], [0.6, 1.0, 2.0]], dtype=torch.float64)
AVERAGED = Draws((rbf(LENGTHSCALES.reshape(3, 1, 1), batch_shape=torch.Size([3])),), (WEIGHTS,))
KERNELS = {
    "one kernel": (rbf(1.3), [(1.0, 1.3)]),
    "averaged": (AVERAGED, list(zip(WEIGHTS.tolist(), LENGTHSCALES.tolist(), strict=True))),
}
"""Kernels, and their weights and lengthscales."""


def loop_gram(a: np.ndarray, b: np.ndarray, parts: float | list[tuple[float, float]]) -> np.ndarray:
    """Σ w exp(−‖a − b‖²/2ℓ²), entry by entry."""
    parts = [(1.0, parts)] if isinstance(parts, float) else parts
    return np.array([[sum(w * np.exp(-0.5 * ((p - q) ** 2).sum() / ell**2) for w, ell in parts) for q in b] for p in a])


def centered(K: np.ndarray) -> np.ndarray:
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H
