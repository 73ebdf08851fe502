"""Contract suites for your own kernels, embeddings, objectives, optimizers and samplers.

Inherit a suite, say how your object is made, and let pytest run it::

    from kernel_embed.testing import KernelContract

    class TestMyKernel(KernelContract):
        def make_kernel(self):
            return MyKernel()

Every check that fails names what was expected of the object, what it did, and by how much. The library's own classes
pass through the same suites.
"""

from .embedding import EmbeddingContract
from .kernel import KernelContract
from .learning import OptimizerContract
from .objective import ObjectiveContract
from .predictors import MulticlassPredictorContract, PredictorContract
from .sampler import SamplerContract
from .system import SystemContract

__all__ = [
    "EmbeddingContract",
    "KernelContract",
    "MulticlassPredictorContract",
    "ObjectiveContract",
    "OptimizerContract",
    "PredictorContract",
    "SamplerContract",
    "SystemContract",
]
