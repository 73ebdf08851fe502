"""Contract suites for your own kernels, embeddings, objectives, optimizers and samplers.

Inherit from a suite, define how your object is created, and run it with pytest::

    from kernel_embed.testing import KernelContract

    class TestMyKernel(KernelContract):
        def make_kernel(self):
            return MyKernel()

A failed check says what was expected, what the object did, and by how much. The library tests its own classes with
the same suites.
"""

from .embedding import EmbeddingContract, MulticlassPredictorContract, PredictorContract, SystemContract
from .kernel import KernelContract
from .learning import ObjectiveContract, OptimizerContract, SamplerContract

__all__ = [
    "EmbeddingContract", "KernelContract", "MulticlassPredictorContract", "ObjectiveContract", "OptimizerContract",
    "PredictorContract", "SamplerContract", "SystemContract",
]  # fmt: skip
