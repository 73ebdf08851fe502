"""The ways to learn a kernel that are compared, each a scikit-learn classifier under a name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from ..embeddings import ConditionedMulticlass
from ..estimators import MulticlassEmbeddingClassifier, VotedKernelClassifier
from ..objectives import (
    ConditionalEvidence,
    CrossValidationRisk,
    EmpiricalRisk,
    LeaveOneOutRisk,
    Objective,
    RademacherComplexity,
)
from .evaluate import Classifier
from .networks import CEN_1, CEN_2, NetworkClassifier
from .posterior_average import PosteriorAverageClassifier
from .references import DirichletClassifier, GridSearchedSVC, LaplaceGPC
from .starts import SMOOTHNESS, Make, evidence_kernel, kernel_class, median_kernel, paper_kernel, scaled_kernel

MakeClassifier = Callable[[], Classifier]
Start = Callable[[Tensor], Kernel]
"""From the training rows to the kernel where learning starts."""


def paper(objective: Objective[ConditionedMulticlass], make: Make = RBFKernel) -> MulticlassEmbeddingClassifier:
    """The paper's model under ``objective``: λ starts at 1, probabilities are those of eq. (6)."""
    return MulticlassEmbeddingClassifier(
        partial(paper_kernel, make=make), objective, regularization=1.0, calibrated=False, progress=False
    )


class Learner(NamedTuple):
    """A way to learn.

    Attributes:
        make: builds a new classifier.
        words: what it does, in one sentence for a reader who has not met it.
        code: how to use it in a program.
        is_reference: whether it is somebody else's.
    """

    make: MakeClassifier
    words: str
    code: str
    is_reference: bool = False


def learners(kernel: str = "rbf") -> dict[str, Learner]:
    """Every learner by name, with ``kernel`` where it takes one: ``"rbf"``, ``"matern12"``, ``"matern32"``, …"""
    make = kernel_class(kernel)
    own = None if kernel == "rbf" else partial(scaled_kernel, make=make)
    return {**_ours(make, own), **_of_the_papers(make), **_references(SMOOTHNESS[kernel])}


def _embedding(
    start: Start | None, objective: Objective[ConditionedMulticlass] | None = None, calibrated: bool = True
) -> MakeClassifier:
    return lambda: MulticlassEmbeddingClassifier(start, objective, calibrated=calibrated, progress=False)


def _ours(make: Make, own: Start | None) -> dict[str, Learner]:
    """What the library offers beyond the papers, and the averages and votes."""
    return {
        "default": Learner(
            _embedding(own),
            "calibrated leave-one-out risk in closed form; what the classifier does with nothing set",
            _usage(),
        ),
        "leave-one-out": Learner(
            _embedding(partial(paper_kernel, make=make), LeaveOneOutRisk() + RademacherComplexity("4e/n")),
            "leave-one-out risk plus the Rademacher complexity bound times 4e/n",
            _usage('objective=ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n")'),
        ),
        "evidence": Learner(
            _embedding(own, ConditionalEvidence()),
            "evidence of the one-hot labels, as for a Gaussian process",
            _usage("objective=ke.ConditionalEvidence()"),
        ),
        "evidence of inputs": Learner(
            _embedding(partial(evidence_kernel, make=make)),
            "one lengthscale by the evidence of the inputs, labels unseen; then λ by the default objective",
            _usage("kernel=evidence_kernel", "from kernel_embed.comparison import evidence_kernel\n"),
        ),
        "nuts average": Learner(
            lambda: PosteriorAverageClassifier(own),
            "probabilities averaged over draws of lengthscales and λ by NUTS",
            "from kernel_embed.comparison import PosteriorAverageClassifier\n\n"
            "classifier = PosteriorAverageClassifier().fit(X, y)\nclassifier.predict_proba(X_new)",
        ),
        "voted kernels": Learner(
            VotedKernelClassifier,
            "a sparse vote over polynomials of degree 1 to 10, each paying for its complexity",
            "import kernel_embed as ke\n\nclassifier = ke.VotedKernelClassifier().fit(X, y)\n"
            "classifier.predict_proba(X_new)",
        ),
    }


def _of_the_papers(make: Make) -> dict[str, Learner]:
    """Objectives of the paper, one learner for each, and its networks."""
    folds = CrossValidationRisk(num_folds=5)
    return {
        "rademacher 4e/n": _rademacher(make, "4e/n"),
        "rademacher e/sqrt(n)": _rademacher(make, "e/sqrt(n)"),
        "rademacher 4e/sqrt(n)": _rademacher(make, "4e/sqrt(n)"),
        "rademacher 4e": _rademacher(make, "4e"),
        "empirical risk": Learner(
            lambda: paper(EmpiricalRisk(), make), "training risk alone", _usage("objective=ke.EmpiricalRisk()")
        ),
        "cross validation": Learner(
            lambda: paper(folds, make),
            "risk over five folds, every lengthscale learned",
            _usage("objective=ke.CrossValidationRisk(num_folds=5)"),
        ),
        "median heuristic": Learner(
            _embedding(partial(median_kernel, make=make), folds, calibrated=False),
            "one lengthscale, the median distance; λ by five folds",
            _usage(
                "kernel=median_kernel, objective=ke.CrossValidationRisk(num_folds=5)",
                "from kernel_embed.comparison import median_kernel\n",
            ),
        ),
        "cen-1": Learner(
            lambda: NetworkClassifier(CEN_1), "the paper's first network as feature map", _network("CEN_1")
        ),
        "cen-2": Learner(
            lambda: NetworkClassifier(CEN_2), "the paper's second network as feature map", _network("CEN_2")
        ),
    }


def _rademacher(make: Make, rate: str) -> Learner:
    return Learner(
        lambda: paper(EmpiricalRisk() + RademacherComplexity(rate), make),
        f"training risk plus the Rademacher complexity bound times {rate}",
        _usage(f'objective=ke.EmpiricalRisk() + ke.RademacherComplexity("{rate}")'),
    )


def _references(smoothness: float | None) -> dict[str, Learner]:
    """What people use today."""
    return {
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
        f"from kernel_embed.comparison import {name}\n\nclassifier = {name}({arguments}).fit(X, y)\n"
        "classifier.predict_proba(X_new)"
    )


def _network(name: str) -> str:
    return (
        f"from kernel_embed.comparison import {name}, NetworkClassifier\n\n"
        f"classifier = NetworkClassifier({name}).fit(X, y)\nclassifier.predict_proba(X_new)"
    )


LEARNERS: dict[str, MakeClassifier] = {name: learner.make for name, learner in learners().items()}
"""Name → a new classifier with the squared exponential kernel."""
