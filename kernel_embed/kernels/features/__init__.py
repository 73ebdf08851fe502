"""Explicit features Z with K = ZZᵀ: a kernel's own, random Fourier features, and Nyström's."""

from ..gram import has_explicit_features
from .explicit import MAX_WIDTH, NystromFeatures, explicit_features, nystrom_kernel
from .fourier import FourierFeatures, random_feature_kernel

__all__ = [
    "MAX_WIDTH",
    "FourierFeatures",
    "NystromFeatures",
    "explicit_features",
    "has_explicit_features",
    "nystrom_kernel",
    "random_feature_kernel",
]
