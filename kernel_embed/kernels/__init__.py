"""What an embedding needs of a kernel: its Gram matrix, the bound of its diagonal, a start for its lengthscales."""

from .bag import BagKernel, MMDKernel, pack_bags
from .default import default_kernel, feature_ranges, log_scaled
from .delta import DeltaKernel
from .diagonal import DiagonalBoundError, SupDiagonal, sup_diagonal
from .gram import gram, gram_diagonal
from .mahalanobis import MahalanobisKernel
from .measures import DiscreteMeasure, GaussianMeasure, LebesgueMeasure, Measure
from .median import median_distance, set_lengthscales_by_median
from .slope import EmpiricalEmbedding, empirical_embedding
from .smoothed import SmoothedKernel

__all__ = [
    "BagKernel",
    "DeltaKernel",
    "DiagonalBoundError",
    "DiscreteMeasure",
    "EmpiricalEmbedding",
    "GaussianMeasure",
    "LebesgueMeasure",
    "MMDKernel",
    "MahalanobisKernel",
    "Measure",
    "SmoothedKernel",
    "SupDiagonal",
    "default_kernel",
    "empirical_embedding",
    "feature_ranges",
    "gram",
    "gram_diagonal",
    "log_scaled",
    "median_distance",
    "pack_bags",
    "set_lengthscales_by_median",
    "sup_diagonal",
]
