import numpy as np
import pytest

from kernel_embed.votes import KernelFamily, polynomial_kernels


@pytest.fixture(scope="session")
def sample():
    """Two noisy half moons, 120 points, labels ±1."""
    from sklearn.datasets import make_moons

    x, labels = make_moons(120, noise=0.25, random_state=0)
    return x, np.where(labels == 1, 1.0, -1.0)


@pytest.fixture(scope="session")
def grams(sample):
    x, _ = sample
    return KernelFamily(polynomial_kernels(range(1, 6))).grams(x, x)
