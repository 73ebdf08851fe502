"""The learners that are compared, one entry each.

The constructor is Python code. The comparison runs it and the report prints it, so what the report shows is what ran.
Learners of other libraries are fitted by functions in :mod:`~kernel_embed.lab.compare.reference_classifiers` and
:mod:`~kernel_embed.lab.compare.regressors`.
"""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from ..runner import groups_parameter, last_step
from .embedding_classifiers import SMOOTHNESS, kernel_class

Features = Any
"""A matrix of numbers (n, d), or a pandas data frame with columns of any type."""

ENCODINGS = {
    "none": "",
    "unit range": "TableEncoder(), MinMaxScaler(), ",
    "standardized": "TableEncoder(), StandardScaler(), ",
    "numbers": "TableEncoder(), ",
    "categories": "Categories(), ",
}
"""Steps that prepare a table: numbers in [0, 1] for lengthscales that start at 1, of variance 1, unchanged; or numbers
and categories."""
MODULES = {
    "partial": "functools",
    "make_pipeline": "sklearn.pipeline",
    "MinMaxScaler": "sklearn.preprocessing",
    "StandardScaler": "sklearn.preprocessing",
    "RandomForestClassifier": "sklearn.ensemble",
    "TableEncoder": "kernel_embed.tabular",
}
"""Where constructors find their names, if neither in ``ke`` nor in :mod:`kernel_embed.lab.compare`."""


class Structure(Enum):
    """The structure of a fitted learner, from simple to complex: among tied learners the simplest is recommended."""

    COEFFICIENTS = "one coefficient for each column"
    LENGTHSCALE = "one kernel with one lengthscale"
    KERNEL_OF_ALL_ROWS = "one kernel, with a relevance for each column, and no validation set"
    KERNEL = "one kernel, with a relevance for each column"
    SUPPORT_VECTORS = "one kernel and its support vectors"
    KERNEL_PER_CLASS = "one kernel for each class"
    POOL = "a pool of kernels, with a relevance for each column, and no validation set"
    VOTES = "a few votes"
    FOREST = "independent trees"
    BOOSTED_TREES = "a sum of trees"
    AVERAGE = "an average over draws"
    NETWORK = "a network"

    @property
    def rank(self) -> int:
        """Its place in the order."""
        return list(Structure).index(self)


@dataclass(frozen=True)
class Learner:
    """A way to learn: the code of its constructor, and how a table is prepared for it, a name in :data:`ENCODINGS`.

    It runs by ``default``, or with ``--quick``. If it needs an optional ``package``, that must be installed.
    """

    name: str
    structure: Structure
    description: str
    constructor: str
    encoding: str = "unit range"
    task: str = "classification"
    default: bool = True
    quick: bool = False
    package: str = ""

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            raise ValueError(f"Learner {self.name!r} has no encoding in {', '.join(ENCODINGS)}: {self.encoding!r}.")

    @property
    def is_installed(self) -> bool:
        """Whether the package that it needs is installed."""
        return not self.package or importlib.util.find_spec(self.package) is not None

    def make(self) -> Any:
        """A new model for features that are encoded already."""
        return _built(self.constructor)

    def for_tables(self) -> Any:
        """A new model, with its encoding, that takes a data frame."""
        return _built(self._pipeline)

    @property
    def _prediction(self) -> str:
        """The code that predicts ``X_new``: probabilities, or intervals."""
        if self.task == "classification":
            return "classifier.predict_proba(X_new)"
        if self._pipeline == self.constructor:
            return "regressor.predict_interval(X_new, coverage=0.9)"
        return "regressor[-1].predict_interval(regressor[:-1].transform(X_new), coverage=0.9)"

    def code(self, with_groups: bool = False) -> str:
        """The lines that fit a data frame ``X`` with targets ``y`` as the comparison does, and predict ``X_new``."""
        name, pipeline = self._variable, self._pipeline
        parameter = groups_parameter(self.for_tables()) if with_groups else None
        fit = f"{name}.fit(X, y)" if parameter is None else f"{name}.fit(X, y, {parameter}=groups)"
        return "\n".join([*_imports(pipeline), "", f"{name} = {pipeline}", fit, self._prediction])

    def loading(self, path: str) -> str:
        """The code that loads the fitted model from ``path`` and predicts ``X_new``."""
        return f"{self._variable} = ke.load({path!r}); {self._prediction}"

    @property
    def _variable(self) -> str:
        return "classifier" if self.task == "classification" else "regressor"

    @property
    def _pipeline(self) -> str:
        steps = ENCODINGS[self.encoding]
        return f"make_pipeline({steps}{self.constructor})" if steps else self.constructor


def _imports(expression: str) -> list[str]:
    """The import lines of the names in an expression."""
    names = {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)}
    lines = ["import kernel_embed as ke"] if "ke" in names else []
    modules: dict[str, list[str]] = {}
    for name in sorted(names - {"ke"}):
        modules.setdefault(MODULES.get(name, "kernel_embed.lab.compare"), []).append(name)
    return sorted([*lines, *(f"from {module} import {', '.join(used)}" for module, used in modules.items())])


def _built(expression: str) -> Any:
    """A model without progress bars: the comparison has its own."""
    names: dict[str, Any] = {}
    exec("\n".join([*_imports(expression), f"model = {expression}"]), names)
    model = names["model"]
    if "progress" in last_step(model).get_params(deep=False):
        last_step(model).set_params(progress=False)
    return model


def learners(task: str = "classification", kernel: str = "rbf") -> dict[str, Learner]:
    """The learners of a task by name, with the kernel of that name where they take one: ``"rbf"``, ``"matern12"``, …"""
    kernel_class(kernel)  # rejects unknown names
    if task not in {one.task for one in LEARNERS}:
        raise ValueError(f"There are no learners for the task {task!r}. Use 'classification' or 'regression'.")
    make, starts = f'kernel_class("{kernel}")', ("paper_kernel", "median_kernel", "evidence_kernel")
    fields = {"make": "", "smoothness": "", "default_kernel": "None", **{start: start for start in starts}}
    if kernel != "rbf":
        fields = {start: f"partial({start}, make={make})" for start in starts}
        fields |= {"make": f", {make}", "smoothness": f", {SMOOTHNESS[kernel]}"}
        fields |= {"default_kernel": f"partial(scaled_kernel, make={make})"}
    own = (one for one in LEARNERS if one.task == task)
    return {one.name: replace(one, constructor=one.constructor.format(**fields)) for one in own}


def _rademacher(rate: str, default: bool = True, quick: bool = False) -> Learner:
    words = f"training risk plus the Rademacher complexity bound times {rate}"
    code = f'paper(ke.EmpiricalRisk() + ke.RademacherComplexity("{rate}"){{make}})'
    return Learner(f"rademacher {rate}", Structure.KERNEL, words, code, default=default, quick=quick)


CLASSIFIERS = (
    Learner("default", Structure.POOL,
        "several kernels in one pool, weighted by out-of-sample scores; the classifier with default settings",
        "ke.MulticlassEmbeddingClassifier()", encoding="none", quick=True),
    Learner("one kernel", Structure.KERNEL_OF_ALL_ROWS,
        "one kernel by the calibrated leave-one-out risk in closed form",
        "ke.MulticlassEmbeddingClassifier({default_kernel}, ke.default_objective())"),
    Learner("evidence", Structure.KERNEL, "evidence of the one-hot labels, as for a Gaussian process",
        "ke.MulticlassEmbeddingClassifier({default_kernel}, ke.ConditionalEvidence())", quick=True),
    Learner("evidence of inputs", Structure.LENGTHSCALE,
        "one lengthscale by the evidence of the inputs, labels unseen; then λ by the default objective",
        "ke.MulticlassEmbeddingClassifier({evidence_kernel})"),
    Learner("nuts average", Structure.AVERAGE,
        "probabilities averaged over draws of lengthscales and λ by NUTS",
        "PosteriorAverageClassifier({default_kernel})"),
    Learner("voted kernels", Structure.VOTES,
        "a sparse vote over polynomials of degree 1 to 10, each penalized by its complexity",
        "ke.VotedKernelClassifier()"),
    Learner("leave-one-out", Structure.KERNEL,
        "leave-one-out risk plus the Rademacher complexity bound times 4e/n",
        'ke.MulticlassEmbeddingClassifier({paper_kernel}, ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"))',
        default=False),
    Learner("cross validation", Structure.KERNEL, "risk over five folds, every lengthscale learned",
        "paper(ke.CrossValidationRisk(num_folds=5){make})"),
    _rademacher("4e/n", quick=True),
    _rademacher("4e/sqrt(n)"),
    _rademacher("e/sqrt(n)", default=False),
    _rademacher("4e"),
    Learner("empirical risk", Structure.KERNEL, "training risk alone",
        "paper(ke.EmpiricalRisk(){make})"),
    Learner("median heuristic", Structure.LENGTHSCALE,
        "one lengthscale, the median distance; λ by five folds",
        "ke.MulticlassEmbeddingClassifier({median_kernel}, ke.CrossValidationRisk(num_folds=5), calibrated=False)",
        quick=True),
    Learner("cen-1", Structure.NETWORK, "the paper's first network as feature map",
        "PaperClassifier(CEN_1, 300, 0.01)", default=False),
    Learner("cen-2", Structure.NETWORK, "the paper's second network as feature map",
        "PaperClassifier(CEN_2, 300, 0.01)", default=False),
    Learner("svc grid", Structure.SUPPORT_VECTORS,
        "scikit-learn's SVC (squared exponential), grid search, calibrated on folds",
        'ReferenceClassifier("svc")'),
    Learner("svc grid, pairwise", Structure.SUPPORT_VECTORS,
        "the same SVC with libsvm's pairwise probabilities",
        'ReferenceClassifier("svc, pairwise")', default=False),
    Learner("gpc", Structure.KERNEL_PER_CLASS, "scikit-learn's Gaussian process classifier, ARD kernel",
        'ReferenceClassifier("gpc"{smoothness})'),
    Learner("dirichlet", Structure.KERNEL_PER_CLASS, "GPyTorch's Dirichlet classifier, ARD kernel",
        'ReferenceClassifier("dirichlet"{smoothness})'),
    Learner("random forest", Structure.FOREST, "scikit-learn's random forest of 300 trees",
        "RandomForestClassifier(300, random_state=0)", encoding="numbers"),
    Learner("boosting", Structure.BOOSTED_TREES,
        "scikit-learn's histogram gradient boosting with its defaults", 'ReferenceClassifier("boosting")',
        encoding="categories"),
    Learner("logistic", Structure.COEFFICIENTS, "scikit-learn's logistic regression, C by three folds",
        'ReferenceClassifier("logistic")', encoding="standardized", quick=True),
    Learner("catboost", Structure.BOOSTED_TREES, "CatBoost with its defaults (extra bench)",
        'ReferenceClassifier("catboost")', encoding="categories", package="catboost"),
    Learner("lightgbm", Structure.BOOSTED_TREES, "LightGBM with its defaults (extra bench)",
        'ReferenceClassifier("lightgbm")', encoding="categories", default=False, package="lightgbm"),
)  # fmt: skip

_REGRESSORS = (
    Learner("default", Structure.POOL,
        "several embeddings in one mixture, weighted by out-of-sample scores; the regressor with default settings",
        "ke.ConditionalEmbeddingRegressor(random_state=0)", encoding="none", quick=True),
    Learner("one kernel", Structure.KERNEL_OF_ALL_ROWS,
        "one kernel by the leave-one-out CRPS in closed form", "SingleKernelRegressor()"),
    Learner("evidence", Structure.KERNEL,
        "one kernel by the evidence of the targets, as for a Gaussian process",
        "SingleKernelRegressor(ke.ConditionalEvidence())", quick=True),
    Learner("ridge", Structure.COEFFICIENTS,
        "ridge regression, penalty and deviation by leave-one-out errors", 'ReferenceRegressor("ridge")',
        encoding="standardized", quick=True),
    Learner("gaussian process", Structure.KERNEL, "scikit-learn's Gaussian process, ARD kernel",
        'ReferenceRegressor("gaussian process")', encoding="standardized"),
    Learner("random forest", Structure.FOREST,
        "scikit-learn's random forest, with its out-of-bag residuals", 'ReferenceRegressor("random forest")',
        encoding="numbers"),
    Learner("quantile forest", Structure.FOREST, "a quantile regression forest (extra bench)",
        'ReferenceRegressor("quantile forest")', encoding="numbers", package="quantile_forest"),
    Learner("boosting", Structure.BOOSTED_TREES, "scikit-learn's histogram boosting of 19 quantiles",
        'ReferenceRegressor("boosting")', encoding="categories"),
    Learner("ngboost", Structure.BOOSTED_TREES, "NGBoost with a normal distribution, 500 trees (extra bench)",
        'ReferenceRegressor("ngboost")', encoding="numbers", package="ngboost"),
    Learner("catboost", Structure.BOOSTED_TREES, "CatBoost with its own mean and variance (extra bench)",
        'ReferenceRegressor("catboost")', encoding="categories", package="catboost"),
)  # fmt: skip

LEARNERS = (*CLASSIFIERS, *(replace(one, task="regression") for one in _REGRESSORS))
