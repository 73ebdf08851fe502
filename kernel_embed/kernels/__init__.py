"""Kernels: Gram matrices, explicit features, bounds on the diagonal, and initial values."""

from .bags import BagKernel, MMDKernel, pack_bags
from .classes import DeltaKernel, FeatureKernel, MahalanobisKernel, check_width
from .diagonal_bounds import LipschitzBound, MeanDiagonal, NominalDiagonal
from .features import explicit_features
from .gaussian_terms import GaussianTerms
from .gram import gram
from .lengthscales import default_kernel, feature_ranges, median_distance, set_lengthscales_by_median
from .parameters import Initialization, frozen, initialize_from_data, log_scaled
from .radial import Radial, RadialProfile
from .registration import PlainProfile, plain_profile, register
from .smoothed import DiscreteMeasure, GaussianMeasure, LebesgueMeasure, Measure, SmoothedKernel
from .structure import Algebra, Node, fold, has_explicit_features
from .supremum import DiagonalBound, DiagonalBoundError, SupDiagonal, gram_diagonal, sup_diagonal

__all__ = [
    "Algebra",
    "BagKernel",
    "DeltaKernel",
    "DiagonalBound",
    "DiagonalBoundError",
    "DiscreteMeasure",
    "FeatureKernel",
    "GaussianMeasure",
    "GaussianTerms",
    "Initialization",
    "LebesgueMeasure",
    "LipschitzBound",
    "MMDKernel",
    "MahalanobisKernel",
    "MeanDiagonal",
    "Measure",
    "Node",
    "NominalDiagonal",
    "PlainProfile",
    "Radial",
    "RadialProfile",
    "SmoothedKernel",
    "SupDiagonal",
    "check_width",
    "default_kernel",
    "explicit_features",
    "feature_ranges",
    "fold",
    "frozen",
    "gram",
    "gram_diagonal",
    "has_explicit_features",
    "initialize_from_data",
    "log_scaled",
    "median_distance",
    "pack_bags",
    "plain_profile",
    "register",
    "set_lengthscales_by_median",
    "sup_diagonal",
]
