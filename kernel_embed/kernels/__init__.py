"""What an embedding needs of a kernel: its Gram matrix or features, the bound of its diagonal, a start for learning."""

from .alpha import LipschitzBound, MeanDiagonal, NominalDiagonal
from .bag import BagKernel, MMDKernel, pack_bags
from .default import default_kernel, feature_ranges, log_scaled
from .delta import DeltaKernel
from .diagonal import DiagonalBound, DiagonalBoundError, SupDiagonal, sup_diagonal
from .explicit import explicit_features, has_explicit_features
from .features import FeatureKernel, check_width
from .gram import gram, gram_diagonal
from .mahalanobis import MahalanobisKernel
from .measures import DiscreteMeasure, GaussianMeasure, LebesgueMeasure, Measure
from .median import median_distance, set_lengthscales_by_median
from .slope import EmpiricalEmbedding, empirical_embedding
from .smoothed import SmoothedKernel

__all__ = [
    "BagKernel",
    "DeltaKernel",
    "DiagonalBound",
    "DiagonalBoundError",
    "DiscreteMeasure",
    "EmpiricalEmbedding",
    "FeatureKernel",
    "GaussianMeasure",
    "LebesgueMeasure",
    "LipschitzBound",
    "MMDKernel",
    "MahalanobisKernel",
    "MeanDiagonal",
    "Measure",
    "NominalDiagonal",
    "SmoothedKernel",
    "SupDiagonal",
    "check_width",
    "default_kernel",
    "empirical_embedding",
    "explicit_features",
    "feature_ranges",
    "gram",
    "gram_diagonal",
    "has_explicit_features",
    "log_scaled",
    "median_distance",
    "pack_bags",
    "set_lengthscales_by_median",
    "sup_diagonal",
]
