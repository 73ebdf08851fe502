"""What an embedding needs of a kernel: its Gram matrix or features, the bound of its diagonal, a start for learning."""

from .classes.bag import BagKernel, MMDKernel, pack_bags
from .classes.delta import DeltaKernel
from .classes.feature import FeatureKernel, check_width
from .classes.mahalanobis import MahalanobisKernel
from .default import default_kernel, feature_ranges, log_scaled
from .features.explicit import explicit_features, has_explicit_features
from .gram import gram, gram_diagonal
from .lipschitz import LipschitzBound, MeanDiagonal, NominalDiagonal
from .median import median_distance, set_lengthscales_by_median
from .smoothed.kernel import SmoothedKernel
from .smoothed.measures import DiscreteMeasure, GaussianMeasure, LebesgueMeasure, Measure
from .supremum import DiagonalBound, DiagonalBoundError, SupDiagonal, sup_diagonal

__all__ = [
    "BagKernel",
    "DeltaKernel",
    "DiagonalBound",
    "DiagonalBoundError",
    "DiscreteMeasure",
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
