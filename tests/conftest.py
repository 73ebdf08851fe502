"""Shared data: small, seeded, and awkward enough to tell formulas apart."""

import os

# One thread for each of the processes that share the cores; before the libraries that read it are loaded.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

from typing import NamedTuple

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many calls ``tests/fuzz`` generates."""
    parser.addoption("--all-checks", action="store_true", help="all of scikit-learn's checks for the default, too")
    parser.addoption("--fuzz", type=int, default=None, metavar="N", help="generate at least N calls in tests/fuzz")


class Problem(NamedTuple):
    """A classification problem with m classes, and points to ask about."""

    x: Tensor
    y: Tensor
    query: Tensor
    m: int


def make_problem(n: int = 24, d: int = 3, m: int = 3, t: int = 7, seed: int = 0, dtype: torch.dtype = torch.float64):
    """Overlapping clusters: every class has several rows, none is separated."""
    generator = np.random.RandomState(seed)
    y = np.arange(n) % m
    centres = generator.randn(m, d)
    x = 0.5 * (centres[y] + generator.randn(n, d))
    order = generator.permutation(n)
    return Problem(
        torch.as_tensor(x[order], dtype=dtype),
        torch.as_tensor(y[order]),
        torch.as_tensor(generator.randn(t, d), dtype=dtype),
        m,
    )


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 — scikit-learn's checks use the global generator


@pytest.fixture
def problem() -> Problem:
    return make_problem()


@pytest.fixture
def x() -> Tensor:
    """Twenty points in the plane, in no order and on no grid."""
    return torch.as_tensor(np.random.RandomState(3).randn(20, 2))


@pytest.fixture
def line() -> Tensor:
    """Fifteen points of the line."""
    return torch.as_tensor(np.random.RandomState(4).randn(15, 1))


@pytest.fixture(scope="session")
def sample() -> tuple[np.ndarray, np.ndarray]:
    """Two noisy half moons, 120 points, labels ±1."""
    from sklearn.datasets import make_moons

    x, labels = make_moons(120, noise=0.25, random_state=0)
    return x, np.where(labels == 1, 1.0, -1.0)


def rbf(d: int = 3, lengthscale: object = None) -> RBFKernel:
    """An ARD squared exponential in float64 with unequal lengthscales."""
    kernel = RBFKernel(ard_num_dims=d).double()
    default = torch.linspace(0.6, 1.4, d, dtype=torch.float64)
    # A Python number would pass through float32 inside GPyTorch.
    kernel.lengthscale = default if lengthscale is None else torch.as_tensor(lengthscale, dtype=torch.float64)
    return kernel


def named_kernels(d: int = 3) -> dict[str, Kernel]:
    """Kernels of every kind that ``gram`` treats in closed form, and some that it leaves to GPyTorch."""
    product = gpytorch.kernels.RBFKernel(active_dims=[0]) * MaternKernel(1.5, active_dims=[1, 2])
    kernels = {
        "rbf": rbf(d),
        "matern12": MaternKernel(0.5, ard_num_dims=d),
        "matern52": ScaleKernel(MaternKernel(2.5)),
        "sum": ScaleKernel(RBFKernel(ard_num_dims=d)) + MaternKernel(1.5),
        "product": ScaleKernel(product),
        "linear": gpytorch.kernels.LinearKernel(),
        "rq": ScaleKernel(gpytorch.kernels.RQKernel(ard_num_dims=d)),
    }
    return {name: kernel.double() for name, kernel in kernels.items()}
