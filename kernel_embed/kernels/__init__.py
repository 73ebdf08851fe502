"""What an embedding needs of a kernel: its Gram matrix, the bound of its diagonal, a start for its lengthscales."""

from .default import default_kernel
from .delta import DeltaKernel
from .diagonal import DiagonalBoundError, SupDiagonal, sup_diagonal
from .gram import gram, gram_diagonal
from .median import median_distance, set_lengthscales_by_median

__all__ = [
    "DeltaKernel",
    "DiagonalBoundError",
    "SupDiagonal",
    "default_kernel",
    "gram",
    "gram_diagonal",
    "median_distance",
    "set_lengthscales_by_median",
    "sup_diagonal",
]
