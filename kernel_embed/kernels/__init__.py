"""Kernels: Gram matrices, explicit features, bounds on the diagonal, and initial values."""

from .classes.bag import BagKernel, MMDKernel, pack_bags
from .classes.basic import DeltaKernel, MahalanobisKernel
from .classes.feature import FeatureKernel, check_width
from .features.explicit import explicit_features
from .gram import gram, gram_diagonal, has_explicit_features
from .initialization import Initialization, initialize_from_data, median_distance, set_lengthscales_by_median
from .lipschitz import LipschitzBound
from .parameters import default_kernel, feature_ranges, frozen, log_scaled
from .profiles import PlainProfile, Radial, RadialProfile, plain_profile
from .radial import Lengthscale, Metric, Whitening
from .registration import register
from .smoothed.kernel import SmoothedKernel
from .smoothed.measures import DiscreteMeasure, GaussianMeasure, LebesgueMeasure, Measure
from .structure import Algebra, Node, fold
from .supremum import DiagonalBound, DiagonalBoundError, MeanDiagonal, NominalDiagonal, SupDiagonal, sup_diagonal

__all__ = [
    "Algebra",
    "BagKernel",
    "DeltaKernel",
    "DiagonalBound",
    "DiagonalBoundError",
    "DiscreteMeasure",
    "FeatureKernel",
    "GaussianMeasure",
    "Initialization",
    "LebesgueMeasure",
    "Lengthscale",
    "LipschitzBound",
    "MMDKernel",
    "MahalanobisKernel",
    "MeanDiagonal",
    "Measure",
    "Metric",
    "Node",
    "NominalDiagonal",
    "PlainProfile",
    "Radial",
    "RadialProfile",
    "SmoothedKernel",
    "SupDiagonal",
    "Whitening",
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
