"""Every kernel of the library keeps GPyTorch's own contract for kernels."""

import unittest

import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase

from kernel_embed.kernels.classes.bag import BagKernel, MMDKernel
from kernel_embed.kernels.classes.basic import DeltaKernel, MahalanobisKernel
from kernel_embed.kernels.smoothed.kernel import SmoothedKernel
from kernel_embed.kernels.smoothed.measures import DiscreteMeasure, GaussianMeasure


class TestSmoothedRBF(unittest.TestCase, BaseKernelTestCase):
    def create_kernel_no_ard(self, active_dims=None, **kwargs):
        return SmoothedKernel(RBFKernel(**kwargs), active_dims=active_dims)

    def create_kernel_ard(self, num_dims, **kwargs):
        return SmoothedKernel(RBFKernel(ard_num_dims=num_dims, **kwargs))


class TestSmoothedMatern(unittest.TestCase, BaseKernelTestCase):
    def create_kernel_no_ard(self, active_dims=None, **kwargs):
        return SmoothedKernel(ScaleKernel(MaternKernel(nu=1.5, **kwargs), **kwargs), active_dims=active_dims)

    def create_kernel_ard(self, num_dims, **kwargs):
        return SmoothedKernel(MaternKernel(nu=0.5, ard_num_dims=num_dims, **kwargs))


class TestSmoothedGaussianMeasure(unittest.TestCase, BaseKernelTestCase):
    def create_kernel_no_ard(self, active_dims=None, **kwargs):
        return SmoothedKernel(RBFKernel(**kwargs), GaussianMeasure(2.0), active_dims=active_dims)


class TestSmoothedDiscreteMeasure(unittest.TestCase, BaseKernelTestCase):
    def create_kernel_no_ard(self, active_dims=None, **kwargs):
        width = 10 if active_dims is None else len(active_dims)
        return _AnyWidth(PeriodicKernel(**kwargs), width, active_dims)


class _AnyWidth(SmoothedKernel):
    """Atoms at the origin with as many columns as the data have, for the widths of the contract's data."""

    def __init__(self, base_kernel, width, active_dims):
        super().__init__(base_kernel, DiscreteMeasure(torch.linspace(-1, 1, 5).unsqueeze(-1)), active_dims)

    def _features(self, x):
        self.measure = DiscreteMeasure(self.measure.atoms[:, :1].expand(-1, x.shape[-1]))
        return super()._features(x)


class TestMahalanobis(unittest.TestCase, BaseKernelTestCase):
    def create_kernel_no_ard(self, active_dims=None, **kwargs):
        return _Growing(active_dims=active_dims, **kwargs)


class _Growing(MahalanobisKernel):
    """Ten columns, or as many of them as the data have."""

    def __init__(self, **kwargs):
        super().__init__(10, **kwargs)

    def whiten(self, x):
        return torch.nn.functional.pad(x, (0, 10 - x.shape[-1])) @ self.factor


class TestBag(unittest.TestCase, BaseKernelTestCase):
    def create_kernel_no_ard(self, active_dims=None, **kwargs):
        return BagKernel(RBFKernel(**kwargs), num_features=1, active_dims=active_dims)


class TestMMD(unittest.TestCase, BaseKernelTestCase):
    def create_kernel_no_ard(self, active_dims=None, **kwargs):
        return MMDKernel(RBFKernel(**kwargs), num_features=1, active_dims=active_dims)


class TestDelta(unittest.TestCase, BaseKernelTestCase):
    def create_kernel_no_ard(self, **kwargs):
        return DeltaKernel(**kwargs)
