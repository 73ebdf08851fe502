"""Where learners start: kernels made for the data, learned from there or held."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

from ...embeddings import BayesianMeanEmbedding
from ...kernels import DiscreteMeasure, default_kernel, log_scaled, set_lengthscales_by_median
from ...learning import local_maxima
from ...objectives import EmbeddingEvidence

Make = Callable[..., Kernel]

SMOOTHNESS: dict[str, float | None] = {"rbf": None, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
"""Names for ``--kernel``: the squared exponential, and the Matérn kernels."""
EVIDENCE_ROWS = 400
"""Above this many rows the evidence of the inputs is that of a part of them, against 256 atoms."""


def kernel_class(name: str = "rbf") -> Make:
    """The GPyTorch kernel called ``name`` in :data:`SMOOTHNESS`, to be called with its settings."""
    if name not in SMOOTHNESS:
        raise ValueError(f"Expected a kernel among {', '.join(SMOOTHNESS)}, got {name!r}. Choose one of these.")
    smoothness = SMOOTHNESS[name]
    return RBFKernel if smoothness is None else partial(MaternKernel, smoothness)


def scaled_kernel(x: Tensor, make: Make = RBFKernel) -> Kernel:
    """Any kernel with ARD lengthscales that start, and have their prior, where :func:`default_kernel` has them."""
    template = default_kernel(x)
    kernel = make(
        ard_num_dims=x.shape[-1],
        lengthscale_prior=template.lengthscale_prior,
        lengthscale_constraint=log_scaled(),
    ).to(x)
    kernel.lengthscale = template.lengthscale.detach()
    return kernel


def paper_kernel(x: Tensor, make: Make = RBFKernel) -> Kernel:
    """ARD with all lengthscales 1, as section 5 of the paper starts it, and no prior."""
    kernel = make(ard_num_dims=x.shape[-1], lengthscale_constraint=log_scaled()).to(x)
    kernel.lengthscale = 1.0
    return kernel


def median_kernel(x: Tensor, make: Make = RBFKernel) -> Kernel:
    """Isotropic, at the median distance, held there."""
    return set_lengthscales_by_median(make().to(x), x).requires_grad_(False)


def evidence_kernel(x: Tensor, make: Make = RBFKernel) -> Kernel:
    """Isotropic, at the highest maximum of the evidence of the inputs alone, eq. (13) of the BKL paper; held there."""
    embedding, objective = inputs_model(x, make)
    maxima = local_maxima(embedding, objective, x, num_points=20, progress=False)
    if not maxima:
        raise ValueError(
            "Expected a maximum of the evidence of the inputs, got none between its ends. Scale the columns alike."
        )
    kernel: Kernel = maxima[0].embedding.kernel
    return kernel.requires_grad_(False)


def inputs_model(x: Tensor, make: Make = RBFKernel) -> tuple[BayesianMeanEmbedding, EmbeddingEvidence]:
    """The Bayesian embedding of the inputs and its evidence, on a part of the rows where there are many."""
    kernel = make(lengthscale_constraint=log_scaled()).to(x)
    if len(x) <= EVIDENCE_ROWS:
        return BayesianMeanEmbedding(kernel), EmbeddingEvidence()
    measure = DiscreteMeasure.from_sample(x, 256)
    return BayesianMeanEmbedding(kernel, measure=measure), EmbeddingEvidence(num_locations=EVIDENCE_ROWS)
