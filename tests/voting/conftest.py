import pytest

from kernel_embed.voting import KernelFamily, polynomial_kernels


@pytest.fixture(scope="session")
def grams(sample):
    x, _ = sample
    return KernelFamily(polynomial_kernels(range(1, 6))).grams(x, x)
