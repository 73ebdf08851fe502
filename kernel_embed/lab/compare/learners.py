"""The ways to learn a kernel that are compared, each a scikit-learn classifier under a name."""

from __future__ import annotations

from functools import partial

from gpytorch.kernels import RBFKernel

from ...embeddings import ConditionedMulticlass
from ...estimators import MulticlassEmbeddingClassifier, VotedKernelClassifier
from ...objectives import (
    ConditionalEvidence,
    CrossValidationRisk,
    EmpiricalRisk,
    LeaveOneOutRisk,
    Objective,
    RademacherComplexity,
    default_objective,
)
from .initialization import SMOOTHNESS, Make, evidence_kernel, kernel_class, median_kernel, paper_kernel, scaled_kernel
from .learner import Learner, MakeClassifier
from .networks import CEN_1, CEN_2, NetworkClassifier
from .posterior_average import PosteriorAverageClassifier
from .reference_learners import reference_learners

METHODS = (
    "default",
    "one kernel",
    "evidence",
    "evidence of inputs",
    "nuts average",
    "voted kernels",
    "rademacher 4e/n",
    "rademacher 4e/sqrt(n)",
    "rademacher 4e",
    "empirical risk",
    "cross validation",
    "median heuristic",
    "svc grid",
    "gpc",
    "dirichlet",
    "random forest",
    "boosting",
    "logistic",
    "catboost",
)
QUICK_METHODS = ("default", "evidence", "rademacher 4e/n", "median heuristic", "logistic")

NEEDS = {"catboost": "catboost", "lightgbm": "lightgbm"}
"""Learners that need a package of the extra ``bench``."""

OURS = "import kernel_embed as ke"
HERE = "from kernel_embed.lab.compare import"


def paper(objective: Objective[ConditionedMulticlass], make: Make = RBFKernel) -> MulticlassEmbeddingClassifier:
    """The paper's model under ``objective``: λ starts at 1, probabilities are those of eq. (6)."""
    return MulticlassEmbeddingClassifier(
        partial(paper_kernel, make=make), objective, regularization=1.0, calibrated=False, progress=False
    )


def learners(kernel: str = "rbf") -> dict[str, Learner]:
    """Every learner by name, with ``kernel`` where it takes one: ``"rbf"``, ``"matern12"``, ``"matern32"``, …"""
    kernel_class(kernel)  # refuses a name that is none
    return {**_ours(kernel), **_of_the_papers(kernel), **reference_learners(SMOOTHNESS[kernel])}


def _embedding(
    words: str,
    start: str | None = None,
    kernel: str = "rbf",
    objective: Objective[ConditionedMulticlass] | None = None,
    objective_code: str = "",
    calibrated: bool = True,
) -> Learner:
    """A classifier that starts from the kernel that the function called ``start`` makes."""
    starts = {f.__name__: f for f in (paper_kernel, median_kernel, evidence_kernel, scaled_kernel)}
    arguments, imports = [], [OURS]
    made = None
    if start is not None and kernel == "rbf":
        made = starts[start]
        arguments, imports = [start], [*imports, f"{HERE} {start}"]
    elif start is not None:
        made = partial(starts[start], make=kernel_class(kernel))
        arguments = [f'partial({start}, make=kernel_class("{kernel}"))']
        imports += [f"{HERE} {start}", f"{HERE} kernel_class", "from functools import partial"]
    arguments += [f"objective={objective_code}"] if objective_code else []
    arguments += [] if calibrated else ["calibrated=False"]
    return Learner(
        lambda: MulticlassEmbeddingClassifier(made, objective, calibrated=calibrated, progress=False),
        words,
        f"ke.MulticlassEmbeddingClassifier({', '.join(arguments)})",
        tuple(imports),
    )


def _ours(kernel: str) -> dict[str, Learner]:
    """What the library offers beyond the papers, and the averages and votes."""
    own = None if kernel == "rbf" else "scaled_kernel"
    average = "" if own is None else f'partial(scaled_kernel, make=kernel_class("{kernel}"))'
    average_kernel = None if own is None else partial(scaled_kernel, make=kernel_class(kernel))
    more = () if own is None else (f"{HERE} scaled_kernel", f"{HERE} kernel_class", "from functools import partial")
    return {
        "default": Learner(
            lambda: MulticlassEmbeddingClassifier(progress=False),
            "several kernels in one pool, judged on rows they have not seen; what the classifier does with nothing set",
            "ke.MulticlassEmbeddingClassifier()",
            (OURS,),
            form=None,
        ),
        "one kernel": _embedding(
            "one kernel by the calibrated leave-one-out risk in closed form",
            own,
            kernel,
            default_objective(),
            "ke.default_objective()",
        ),
        "leave-one-out": _embedding(
            "leave-one-out risk plus the Rademacher complexity bound times 4e/n",
            "paper_kernel",
            kernel,
            LeaveOneOutRisk() + RademacherComplexity("4e/n"),
            'ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n")',
        ),
        "evidence": _embedding(
            "evidence of the one-hot labels, as for a Gaussian process",
            own,
            kernel,
            ConditionalEvidence(),
            "ke.ConditionalEvidence()",
        ),
        "evidence of inputs": _embedding(
            "one lengthscale by the evidence of the inputs, labels unseen; then λ by the default objective",
            "evidence_kernel",
            kernel,
        ),
        "nuts average": Learner(
            lambda: PosteriorAverageClassifier(average_kernel),
            "probabilities averaged over draws of lengthscales and λ by NUTS",
            f"PosteriorAverageClassifier({average})",
            (f"{HERE} PosteriorAverageClassifier", *more),
        ),
        "voted kernels": Learner(
            VotedKernelClassifier,
            "a sparse vote over polynomials of degree 1 to 10, each paying for its complexity",
            "ke.VotedKernelClassifier()",
            (OURS,),
        ),
    }


def _of_the_papers(kernel: str) -> dict[str, Learner]:
    """Objectives of the paper, one learner for each, and its networks."""
    folds = CrossValidationRisk(num_folds=5)
    return {
        "rademacher 4e/n": _rademacher(kernel, "4e/n"),
        "rademacher e/sqrt(n)": _rademacher(kernel, "e/sqrt(n)"),
        "rademacher 4e/sqrt(n)": _rademacher(kernel, "4e/sqrt(n)"),
        "rademacher 4e": _rademacher(kernel, "4e"),
        "empirical risk": _paper(kernel, "training risk alone", EmpiricalRisk(), "ke.EmpiricalRisk()"),
        "cross validation": _paper(
            kernel,
            "risk over five folds, every lengthscale learned",
            folds,
            "ke.CrossValidationRisk(num_folds=5)",
        ),
        "median heuristic": _embedding(
            "one lengthscale, the median distance; λ by five folds",
            "median_kernel",
            kernel,
            folds,
            "ke.CrossValidationRisk(num_folds=5)",
            calibrated=False,
        ),
        "cen-1": _network("the paper's first network as feature map", CEN_1, "CEN_1"),
        "cen-2": _network("the paper's second network as feature map", CEN_2, "CEN_2"),
    }


def _paper(kernel: str, words: str, objective: Objective[ConditionedMulticlass], code: str) -> Learner:
    make = "" if kernel == "rbf" else f', kernel_class("{kernel}")'
    imports = (OURS, f"{HERE} paper", *([f"{HERE} kernel_class"] if make else []))
    return Learner(lambda: paper(objective, kernel_class(kernel)), words, f"paper({code}{make})", imports)


def _rademacher(kernel: str, rate: str) -> Learner:
    return _paper(
        kernel,
        f"training risk plus the Rademacher complexity bound times {rate}",
        EmpiricalRisk() + RademacherComplexity(rate),
        f'ke.EmpiricalRisk() + ke.RademacherComplexity("{rate}")',
    )


def _network(words: str, hidden: tuple[int, ...], name: str) -> Learner:
    imports = (f"{HERE} {name}", f"{HERE} NetworkClassifier")
    return Learner(lambda: NetworkClassifier(hidden), words, f"NetworkClassifier({name})", imports)


LEARNERS: dict[str, MakeClassifier] = {name: learner.make for name, learner in learners().items()}
"""Name → a new classifier with the squared exponential kernel."""
