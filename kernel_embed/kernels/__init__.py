"""What an embedding needs of a kernel: its Gram matrix, the bound of its diagonal, a start for its lengthscales."""

from .default import default_kernel, feature_ranges, log_scaled
from .delta import DeltaKernel
from .diagonal import DiagonalBoundError, SupDiagonal, sup_diagonal
from .gram import gram, gram_diagonal
from .median import median_distance, set_lengthscales_by_median

__all__ = [
    "DeltaKernel",
    "DiagonalBoundError",
    "SupDiagonal",
    "default_kernel",
    "feature_ranges",
    "gram",
    "gram_diagonal",
    "log_scaled",
    "median_distance",
    "set_lengthscales_by_median",
    "sup_diagonal",
]
