"""Kernels of our own, in GPyTorch's form."""

from .bag import BagKernel, MMDKernel, pack_bags
from .delta import DeltaKernel
from .feature import FeatureKernel, check_width
from .mahalanobis import MahalanobisKernel

__all__ = ["BagKernel", "DeltaKernel", "FeatureKernel", "MMDKernel", "MahalanobisKernel", "check_width", "pack_bags"]
