"""Large data: statistics over batches and machines, approximations, compression."""

from ..kernels.approximations import FourierFeatures, NystromFeatures, nystrom_kernel, random_feature_kernel
from .approximate import ApproximationError, ConjugateGradients, Nystrom, RandomFeatures, accumulate, approximate
from .compress import CompressionReport, compress
from .distributed import ShardedEmbedding, ShardedMulticlass, reduce_statistics
from .statistics import FeaturePredictor, FeatureStatistics, MulticlassFeaturePredictor

__all__ = [
    "ApproximationError",
    "CompressionReport",
    "ConjugateGradients",
    "FeaturePredictor",
    "FeatureStatistics",
    "FourierFeatures",
    "MulticlassFeaturePredictor",
    "Nystrom",
    "NystromFeatures",
    "RandomFeatures",
    "ShardedEmbedding",
    "ShardedMulticlass",
    "accumulate",
    "approximate",
    "compress",
    "nystrom_kernel",
    "random_feature_kernel",
    "reduce_statistics",
]
