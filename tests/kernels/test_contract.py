"""Every kernel of the library keeps GPyTorch's own contract for kernels."""

import unittest

import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase

from kernel_embed.kernels import BagKernel, DeltaKernel, FeatureKernel, MahalanobisKernel, MMDKernel, SmoothedKernel
from kernel_embed.kernels.smoothed import DiscreteMeasure, GaussianMeasure


class Atoms(SmoothedKernel):
    """Five atoms with as many columns as the data have."""

    def _features(self, x):
        self.measure = DiscreteMeasure(torch.linspace(-1, 1, 5).unsqueeze(-1).expand(-1, x.shape[-1]))
        return super()._features(x)


class Growing(MahalanobisKernel):
    """Ten columns, or as many of them as the data have."""

    def whiten(self, x):
        return torch.nn.functional.pad(x, (0, 10 - x.shape[-1])) @ self.factor


class Square(torch.nn.Module):
    """[x, sx²], for any number of columns."""

    def __init__(self):
        super().__init__()
        self.s = torch.nn.Parameter(torch.ones(()))

    def forward(self, x):
        return torch.cat([x, self.s * x.square()], dim=-1)


def contract(make, ard=False):
    """GPyTorch's tests of the kernels ``make(active_dims, **options)``."""

    class Contract(unittest.TestCase, BaseKernelTestCase):
        def create_kernel_no_ard(self, active_dims=None, **options):
            return make(active_dims, **options)

        def create_kernel_ard(self, num_dims, **options):
            if not ard:
                raise NotImplementedError
            return make(None, ard_num_dims=num_dims, **options)

    return Contract


TestSmoothedRBF = contract(lambda dims, **o: SmoothedKernel(RBFKernel(**o), active_dims=dims), ard=True)
TestSmoothedRoughMatern = contract(lambda dims, **o: SmoothedKernel(MaternKernel(0.5, **o), active_dims=dims), ard=True)
TestSmoothedMatern = contract(
    lambda dims, **o: SmoothedKernel(ScaleKernel(MaternKernel(1.5, **o), **o), active_dims=dims)
)
TestGaussianMeasure = contract(lambda dims, **o: SmoothedKernel(RBFKernel(**o), GaussianMeasure(2.0), active_dims=dims))
TestDiscreteMeasure = contract(
    lambda dims, **o: Atoms(PeriodicKernel(**o), DiscreteMeasure(torch.zeros(5, 1)), active_dims=dims)
)
TestMahalanobis = contract(lambda dims, **o: Growing(10, active_dims=dims, **o))
TestBag = contract(lambda dims, **o: BagKernel(RBFKernel(**o), num_features=1, active_dims=dims))
TestMMD = contract(lambda dims, **o: MMDKernel(RBFKernel(**o), num_features=1, active_dims=dims))
TestDelta = contract(lambda dims, **o: DeltaKernel(active_dims=dims, **o))
TestNetwork = contract(lambda dims, **o: FeatureKernel(Square(), active_dims=dims, **o))
TestNetworkRBF = contract(lambda dims, **o: FeatureKernel(Square(), RBFKernel(**o), active_dims=dims))
