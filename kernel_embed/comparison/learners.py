"""The ways to learn a kernel that the experiments compare, each a scikit-learn classifier under a name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor

from ..embeddings import BayesianMeanEmbedding
from ..estimators import MulticlassEmbeddingClassifier, VotedKernelClassifier
from ..kernels import DiscreteMeasure, default_kernel, log_scaled, set_lengthscales_by_median
from ..learning import local_maxima
from ..objectives import (
    ConditionalEvidence,
    CrossValidationRisk,
    EmbeddingEvidence,
    EmpiricalRisk,
    LeaveOneOutRisk,
    Objective,
    RademacherComplexity,
)
from .networks import CEN_1, CEN_2, NetworkClassifier
from .posterior_average import PosteriorAverageClassifier
from .references import DirichletClassifier, GridSearchedSVC, LaplaceGPC

Make = Callable[..., Kernel]

SMOOTHNESS: dict[str, float | None] = {"rbf": None, "matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
"""Names for ``--kernel``: the squared exponential, and the Matérn kernels."""
EVIDENCE_ROWS = 400
"""Above this many rows the evidence of the inputs is that of a part of them, against 256 atoms."""


def kernel_class(name: str = "rbf") -> Make:
    """The GPyTorch kernel called ``name`` in :data:`SMOOTHNESS`, to be called with its settings."""
    if name not in SMOOTHNESS:
        raise ValueError(f"Expected a kernel among {', '.join(SMOOTHNESS)}, got {name!r}.")
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
        raise ValueError("Expected a maximum of the evidence of the inputs, found none between its ends.")
    kernel: Kernel = maxima[0].embedding.kernel
    return kernel.requires_grad_(False)


def inputs_model(x: Tensor, make: Make = RBFKernel) -> tuple[BayesianMeanEmbedding, EmbeddingEvidence]:
    """The Bayesian embedding of the inputs and its evidence, on a part of the rows where there are many."""
    kernel = make(lengthscale_constraint=log_scaled()).to(x)
    if len(x) <= EVIDENCE_ROWS:
        return BayesianMeanEmbedding(kernel), EmbeddingEvidence()
    measure = DiscreteMeasure.from_sample(x, 256)
    return BayesianMeanEmbedding(kernel, measure=measure), EmbeddingEvidence(num_locations=EVIDENCE_ROWS)


def paper(objective: Objective, make: Make = RBFKernel, **settings: Any) -> MulticlassEmbeddingClassifier:
    """The paper's model under ``objective``: λ starts at 1, probabilities are those of eq. (6)."""
    return MulticlassEmbeddingClassifier(
        partial(paper_kernel, make=make), objective, regularization=1.0, calibrated=False, progress=False, **settings
    )


class Learner(NamedTuple):
    """A way to learn.

    Attributes:
        make: builds a new classifier.
        words: what it does, in one sentence for a reader who has not met it.
        code: how to use it in a program.
        is_reference: whether it is somebody else's.
    """

    make: Callable[[], Any]
    words: str
    code: str
    is_reference: bool = False


def learners(kernel: str = "rbf") -> dict[str, Learner]:
    """Every learner by name, with ``kernel`` where it takes one: ``"rbf"``, ``"matern12"``, ``"matern32"``, …"""
    make = kernel_class(kernel)
    smoothness = SMOOTHNESS[kernel]
    own = None if kernel == "rbf" else partial(scaled_kernel, make=make)

    def embedding(start: Any = own, objective: Objective | None = None, calibrated: bool = True) -> Callable[[], Any]:
        return lambda: MulticlassEmbeddingClassifier(start, objective, calibrated=calibrated, progress=False)

    def rademacher(rate: str) -> Learner:
        return Learner(
            lambda: paper(EmpiricalRisk() + RademacherComplexity(rate), make),
            f"training risk plus the Rademacher complexity bound times {rate}",
            _usage(f'objective=ke.EmpiricalRisk() + ke.RademacherComplexity("{rate}")'),
        )

    folds = CrossValidationRisk(num_folds=5)
    return {
        "default": Learner(
            embedding(),
            "calibrated leave-one-out risk in closed form; what the classifier does with nothing set",
            _usage(),
        ),
        "leave-one-out": Learner(
            embedding(partial(paper_kernel, make=make), LeaveOneOutRisk() + RademacherComplexity("4e/n")),
            "leave-one-out risk plus the Rademacher complexity bound times 4e/n",
            _usage('objective=ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n")'),
        ),
        "evidence": Learner(
            embedding(own, ConditionalEvidence()),
            "evidence of the one-hot labels, as for a Gaussian process",
            _usage("objective=ke.ConditionalEvidence()"),
        ),
        "evidence of inputs": Learner(
            embedding(partial(evidence_kernel, make=make)),
            "one lengthscale by the evidence of the inputs, labels unseen; then λ by the default objective",
            _usage("kernel=evidence_kernel", "from kernel_embed.comparison.learners import evidence_kernel\n"),
        ),
        "nuts average": Learner(
            lambda: PosteriorAverageClassifier(own),
            "probabilities averaged over draws of lengthscales and λ by NUTS",
            "from kernel_embed.comparison.posterior_average import PosteriorAverageClassifier\n\n"
            "classifier = PosteriorAverageClassifier().fit(X, y)\nclassifier.predict_proba(X_new)",
        ),
        "voted kernels": Learner(
            VotedKernelClassifier,
            "a sparse vote over polynomials of degree 1 to 10, each paying for its complexity",
            "import kernel_embed as ke\n\nclassifier = ke.VotedKernelClassifier().fit(X, y)\n"
            "classifier.predict_proba(X_new)",
        ),
        "rademacher 4e/n": rademacher("4e/n"),
        "rademacher e/sqrt(n)": rademacher("e/sqrt(n)"),
        "rademacher 4e/sqrt(n)": rademacher("4e/sqrt(n)"),
        "rademacher 4e": rademacher("4e"),
        "empirical risk": Learner(
            lambda: paper(EmpiricalRisk(), make), "training risk alone", _usage("objective=ke.EmpiricalRisk()")
        ),
        "cross validation": Learner(
            lambda: paper(folds, make),
            "risk over five folds, every lengthscale learned",
            _usage("objective=ke.CrossValidationRisk(num_folds=5)"),
        ),
        "median heuristic": Learner(
            embedding(partial(median_kernel, make=make), folds, calibrated=False),
            "one lengthscale, the median distance; λ by five folds",
            _usage(
                "kernel=median_kernel, objective=ke.CrossValidationRisk(num_folds=5)",
                "from kernel_embed.comparison.learners import median_kernel\n",
            ),
        ),
        "cen-1": Learner(
            lambda: NetworkClassifier(CEN_1), "the paper's first network as feature map", _network("CEN_1")
        ),
        "cen-2": Learner(
            lambda: NetworkClassifier(CEN_2), "the paper's second network as feature map", _network("CEN_2")
        ),
        "svc grid": Learner(
            GridSearchedSVC,
            "scikit-learn's SVC (squared exponential), grid search, calibrated on folds",
            _reference("GridSearchedSVC"),
            True,
        ),
        "svc grid, pairwise": Learner(
            lambda: GridSearchedSVC(pairwise=True),
            "the same SVC with libsvm's pairwise probabilities",
            _reference("GridSearchedSVC", "pairwise=True"),
            True,
        ),
        "gpc": Learner(
            lambda: LaplaceGPC(smoothness),
            "scikit-learn's Gaussian process classifier, ARD kernel",
            _reference("LaplaceGPC"),
            True,
        ),
        "dirichlet": Learner(
            lambda: DirichletClassifier(smoothness),
            "GPyTorch's Dirichlet classifier, ARD kernel",
            _reference("DirichletClassifier"),
            True,
        ),
    }


def _usage(arguments: str = "", imports: str = "") -> str:
    return (
        f"import kernel_embed as ke\n{imports}\nclassifier = ke.MulticlassEmbeddingClassifier({arguments}).fit(X, y)\n"
        "classifier.predict_proba(X_new)"
    )


def _reference(name: str, arguments: str = "") -> str:
    return (
        f"from kernel_embed.comparison.references import {name}\n\nclassifier = {name}({arguments}).fit(X, y)\n"
        "classifier.predict_proba(X_new)"
    )


def _network(name: str) -> str:
    return (
        f"from kernel_embed.comparison.networks import {name}, NetworkClassifier\n\n"
        f"classifier = NetworkClassifier({name}).fit(X, y)\nclassifier.predict_proba(X_new)"
    )


LEARNERS: dict[str, Callable[[], Any]] = {name: learner.make for name, learner in learners().items()}
"""Name → a new classifier with the squared exponential kernel."""
