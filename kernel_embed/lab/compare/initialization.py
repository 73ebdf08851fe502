"""Initial kernels made for the data, and the paper's model that starts from one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

from ...embeddings import BayesianMeanEmbedding, ConditionedMulticlass
from ...estimators import MulticlassEmbeddingClassifier
from ...kernels import DiscreteMeasure, default_kernel, log_scaled, set_lengthscales_by_median
from ...learning import local_maxima
from ...objectives import EmbeddingEvidence, Objective

Make = Callable[..., Kernel]

SMOOTHNESS: dict[str, float | None] = {"rbf": None, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
"""Names for ``--kernel``: the squared exponential, and the Matérn kernels."""
EVIDENCE_ROWS = 400
"""With more rows, the evidence of the inputs is that of a part of them, on 256 atoms."""


def kernel_class(name: str = "rbf") -> Make:
    """The GPyTorch kernel class of a name in :data:`SMOOTHNESS`."""
    if name not in SMOOTHNESS:
        raise ValueError(f"There is no kernel {name!r}. Choose among {', '.join(SMOOTHNESS)}.")
    smoothness = SMOOTHNESS[name]
    return RBFKernel if smoothness is None else partial(MaternKernel, smoothness)


def scaled_kernel(x: Tensor, make: Make = RBFKernel) -> Kernel:
    """A kernel with the ARD lengthscales and their prior of :func:`default_kernel`."""
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
    """Isotropic, fixed at the median distance."""
    return set_lengthscales_by_median(make().to(x), x).requires_grad_(False)


def evidence_kernel(x: Tensor, make: Make = RBFKernel) -> Kernel:
    """Isotropic, fixed at the highest maximum of the evidence of the inputs alone, eq. (13) of the BKL paper."""
    embedding, objective = inputs_model(x, make)
    maxima = local_maxima(embedding, objective, x, num_points=20, progress=False)
    if not maxima:
        raise ValueError("The evidence of the inputs has no maximum. Scale the columns alike.")
    kernel: Kernel = maxima[0].embedding.kernel
    return kernel.requires_grad_(False)


def inputs_model(x: Tensor, make: Make = RBFKernel) -> tuple[BayesianMeanEmbedding, EmbeddingEvidence]:
    """The Bayesian embedding of the inputs and its evidence, on a part of the rows if there are many."""
    kernel = make(lengthscale_constraint=log_scaled()).to(x)
    if len(x) <= EVIDENCE_ROWS:
        return BayesianMeanEmbedding(kernel), EmbeddingEvidence()
    measure = DiscreteMeasure.from_sample(x, 256)
    return BayesianMeanEmbedding(kernel, measure=measure), EmbeddingEvidence(num_locations=EVIDENCE_ROWS)


def paper(objective: Objective[ConditionedMulticlass], make: Make = RBFKernel) -> MulticlassEmbeddingClassifier:
    """The paper's model under ``objective``: λ starts at 1, probabilities are those of eq. (6)."""
    return MulticlassEmbeddingClassifier(
        partial(paper_kernel, make=make), objective, regularization=1.0, calibrated=False, progress=False
    )
