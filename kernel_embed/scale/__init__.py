"""Large data: statistics over batches and machines, approximations, compression."""

from ..kernels.features import FourierFeatures, NystromFeatures, nystrom_kernel, random_feature_kernel
from .approximate import ApproximationError, ConjugateGradients, Nystrom, RandomFeatures, approximate
from .compress import CompressionReport, compress
from .distributed import ShardedEmbedding, ShardedMulticlass, reduce_statistics
from .predictors import Expansion, FeaturePredictor, MulticlassExpansion, MulticlassFeaturePredictor
from .statistics import FeatureStatistics, accumulate

__all__ = [
    "ApproximationError",
    "CompressionReport",
    "ConjugateGradients",
    "Expansion",
    "FeaturePredictor",
    "FeatureStatistics",
    "FourierFeatures",
    "MulticlassExpansion",
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
