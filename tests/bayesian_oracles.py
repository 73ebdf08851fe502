"""Slow second roads: loops and quadrature in NumPy, one formula of the paper after the other."""

import math

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]


def rbf(x: Array, y: Array, lengthscale: Array) -> float:
    """Eq. (30), in GPyTorch's lengthscale."""
    return math.exp(-0.5 * float((((x - y) / lengthscale) ** 2).sum()))


def evidence(x: Array, lengthscale: Array, noise: float) -> float:
    """log p(x | θ) of eq. (13) for the squared exponential, by loops."""
    n, D = x.shape
    mu = np.array([sum(rbf(x[j], x[i], lengthscale) for j in range(n)) / n for i in range(n)])
    size = math.pi ** (D / 2) * float(np.prod(lengthscale))
    R = np.array([[size * rbf(a, b, math.sqrt(2.0) * lengthscale) for b in x] for a in x])  # eq. (25)
    A = R + noise * np.eye(n)
    value = -0.5 * mu @ np.linalg.solve(A, mu) - 0.5 * np.linalg.slogdet(A)[1] - 0.5 * n * math.log(2 * math.pi)
    for i in range(n):  # eq. (12)
        slope = sum(rbf(x[j], x[i], lengthscale) * (x[j] - x[i]) / lengthscale**2 for j in range(n)) / n
        value += 0.5 * math.log(float((slope**2).sum()))
    return float(value)


def evidence_gradient(x: Array, lengthscale: Array, noise: float) -> Array:
    """∂ log p / ∂ℓ by appendix A.5.1, its θ^(q) = ℓ_q², term by term."""
    n, D = x.shape
    theta = lengthscale**2
    k = np.array([[rbf(a, b, lengthscale) for b in x] for a in x])
    r = math.pi ** (D / 2) * math.sqrt(float(np.prod(theta))) * np.sqrt(k)
    mu, A = k.mean(axis=0), r + noise * np.eye(n)
    inverse = np.linalg.inv(A)
    gradient = np.zeros(D)
    for q in range(D):
        square = (x[:, None, q] - x[None, :, q]) ** 2
        dR = 0.5 * r * (square / (2 * theta[q] ** 2) + 1 / theta[q])
        dmu = (k * square / theta[q] ** 2).sum(axis=0) / (2 * n)
        normal = -dmu @ inverse @ mu + 0.5 * mu @ inverse @ dR @ inverse @ mu - 0.5 * np.trace(inverse @ dR)
        jacobian = 0.0
        for j in range(n):
            slopes = np.array([(k[:, j] * (x[:, d] - x[j, d]) / theta[d]).sum() / n for d in range(D)])
            changes = []
            for d in range(D):
                difference = (x[:, d] - x[j, d]) / theta[d]
                change = (k[:, j] * difference * (x[:, q] - x[j, q]) ** 2 / (2 * theta[q] ** 2)).sum() / n
                if d == q:
                    change -= (k[:, j] * (x[:, d] - x[j, d]) / theta[d] ** 2).sum() / n
                changes.append(change)
            jacobian += float(slopes @ np.array(changes) / (slopes @ slopes))
        gradient[q] = (normal + jacobian) * 2 * lengthscale[q]
    return gradient


def smoothed(kernel: Kernel, x: Tensor, precision: float = 0.0, half: float = 30.0, num_points: int = 6001) -> Tensor:
    """r(x_i, x_j) by the trapezoidal rule in one or two dimensions; ν(du) = exp(−½·precision·‖u‖²) du."""
    D = x.shape[-1]
    side = torch.linspace(-half, half, num_points, dtype=x.dtype)
    u = side.unsqueeze(-1) if D == 1 else torch.cartesian_prod(*[side] * D)
    weight = torch.exp(-0.5 * precision * u.square().sum(-1)) * (2 * half / (num_points - 1)) ** D
    K = kernel(x, u).to_dense().detach()
    return (K * weight) @ K.mT
