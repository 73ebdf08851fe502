"""The learners that are compared, one entry each. A new learner is a new entry here, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from .initialization import SMOOTHNESS, kernel_class
from .learner import Learner, Structure


def learners(task: str = "classification", kernel: str = "rbf") -> dict[str, Learner]:
    """The learners of a task by name, with ``kernel`` where they take one: ``"rbf"``, ``"matern12"``, ``"matern32"``, …

    Example:
        >>> learners("regression")["ridge"].constructor
        'ProbabilisticRidge()'
    """
    kernel_class(kernel)  # rejects unknown names
    make = f'kernel_class("{kernel}")'
    fields = {"make": "", "smoothness": "", "default_kernel": "None"}
    starts = ("paper_kernel", "median_kernel", "evidence_kernel")
    fields.update({start: start for start in starts})
    if kernel != "rbf":
        fields = {start: f"partial({start}, make={make})" for start in starts}
        fields["default_kernel"] = f"partial(scaled_kernel, make={make})"
        fields.update(make=f", {make}", smoothness=str(SMOOTHNESS[kernel]))
    return {
        one.name: replace(one, constructor=one.constructor.format(**fields)) for one in LEARNERS if one.task == task
    }


def _rademacher(rate: str, default: bool = True, quick: bool = False) -> Learner:
    return Learner(
        f"rademacher {rate}", "frequentist", Structure.KERNEL,
        f"training risk plus the Rademacher complexity bound times {rate}",
        f'paper(ke.EmpiricalRisk() + ke.RademacherComplexity("{rate}"){{make}})',
        default=default, quick=quick,
    )  # fmt: skip


CLASSIFIERS = (
    Learner(
        "default", "combined", Structure.POOL,
        "several kernels in one pool, scored on rows they have not seen; the classifier without any setting",
        "ke.MulticlassEmbeddingClassifier()", form=None, quick=True,
    ),
    Learner(
        "one kernel", "frequentist", Structure.KERNEL_OF_ALL_ROWS,
        "one kernel by the calibrated leave-one-out risk in closed form",
        "ke.MulticlassEmbeddingClassifier({default_kernel}, ke.default_objective())",
    ),
    Learner(
        "evidence", "bayesian", Structure.KERNEL, "evidence of the one-hot labels, as for a Gaussian process",
        "ke.MulticlassEmbeddingClassifier({default_kernel}, ke.ConditionalEvidence())", quick=True,
    ),
    Learner(
        "evidence of inputs", "bayesian", Structure.LENGTHSCALE,
        "one lengthscale by the evidence of the inputs, labels unseen; then λ by the default objective",
        "ke.MulticlassEmbeddingClassifier({evidence_kernel})",
    ),
    Learner(
        "nuts average", "bayesian", Structure.AVERAGE,
        "probabilities averaged over draws of lengthscales and λ by NUTS",
        "PosteriorAverageClassifier({default_kernel})",
    ),
    Learner(
        "voted kernels", "combined", Structure.VOTES,
        "a sparse vote over polynomials of degree 1 to 10, each penalized by its complexity",
        "ke.VotedKernelClassifier()",
    ),
    Learner(
        "leave-one-out", "frequentist", Structure.KERNEL,
        "leave-one-out risk plus the Rademacher complexity bound times 4e/n",
        'ke.MulticlassEmbeddingClassifier({paper_kernel}, ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"))',
        default=False,
    ),
    Learner(
        "cross validation", "frequentist", Structure.KERNEL, "risk over five folds, every lengthscale learned",
        "paper(ke.CrossValidationRisk(num_folds=5){make})",
    ),
    _rademacher("4e/n", quick=True),
    _rademacher("4e/sqrt(n)"),
    _rademacher("e/sqrt(n)", default=False),
    _rademacher("4e"),
    Learner(
        "empirical risk", "frequentist", Structure.KERNEL, "training risk alone", "paper(ke.EmpiricalRisk(){make})",
    ),
    Learner(
        "median heuristic", "frequentist", Structure.LENGTHSCALE,
        "one lengthscale, the median distance; λ by five folds",
        "ke.MulticlassEmbeddingClassifier({median_kernel}, ke.CrossValidationRisk(num_folds=5), calibrated=False)",
        quick=True,
    ),
    Learner(
        "cen-1", "frequentist", Structure.NETWORK, "the paper's first network as feature map",
        "NetworkClassifier(CEN_1)", default=False,
    ),
    Learner(
        "cen-2", "frequentist", Structure.NETWORK, "the paper's second network as feature map",
        "NetworkClassifier(CEN_2)", default=False,
    ),
    Learner(
        "svc grid", "reference", Structure.SUPPORT_VECTORS,
        "scikit-learn's SVC (squared exponential), grid search, calibrated on folds",
        "GridSearchedSVC(num_folds=3, search_rows=2000)",
    ),
    Learner(
        "svc grid, pairwise", "reference", Structure.SUPPORT_VECTORS,
        "the same SVC with libsvm's pairwise probabilities",
        "GridSearchedSVC(pairwise=True, num_folds=3, search_rows=2000)", default=False,
    ),
    Learner(
        "gpc", "bayesian", Structure.KERNEL_PER_CLASS, "scikit-learn's Gaussian process classifier, ARD kernel",
        "LaplaceGPC({smoothness})",
    ),
    Learner(
        "dirichlet", "bayesian", Structure.KERNEL_PER_CLASS, "GPyTorch's Dirichlet classifier, ARD kernel",
        "DirichletClassifier({smoothness})",
    ),
    Learner(
        "random forest", "reference", Structure.FOREST, "scikit-learn's random forest of 300 trees",
        "RandomForestClassifier(300, random_state=0)", form="ordinal",
    ),
    Learner(
        "boosting", "reference", Structure.BOOSTED_TREES,
        "scikit-learn's histogram gradient boosting with its defaults", "Boosting()", form="Categories",
    ),
    Learner(
        "logistic", "reference", Structure.COEFFICIENTS, "scikit-learn's logistic regression, C by three folds",
        "TunedLogistic()", form="standardized", quick=True,
    ),
    Learner(
        "catboost", "reference", Structure.BOOSTED_TREES, "CatBoost with its defaults (extra bench)", "CatBoost()",
        form="Categories", package="catboost",
    ),
    Learner(
        "lightgbm", "reference", Structure.BOOSTED_TREES, "LightGBM with its defaults (extra bench)", "LightGBM()",
        form="Categories", default=False, package="lightgbm",
    ),
)  # fmt: skip

REGRESSORS = (
    Learner(
        "default", "combined", Structure.POOL,
        "several embeddings in one mixture, weighted by rows they have not seen; the regressor without any setting",
        "ke.ConditionalEmbeddingRegressor(random_state=0)", form=None, task="regression", quick=True,
        call="predict_interval(X_new, coverage=0.9)",
    ),
    Learner(
        "one kernel", "frequentist", Structure.KERNEL_OF_ALL_ROWS,
        "one kernel by the leave-one-out CRPS in closed form", "SingleKernelRegressor()", task="regression",
    ),
    Learner(
        "evidence", "bayesian", Structure.KERNEL,
        "one kernel by the evidence of the targets, as for a Gaussian process",
        "SingleKernelRegressor(ke.ConditionalEvidence())", task="regression", quick=True,
    ),
    Learner(
        "ridge", "reference", Structure.COEFFICIENTS,
        "ridge regression, penalty and deviation by leave-one-out errors", "ProbabilisticRidge()",
        form="standardized", task="regression", quick=True,
    ),
    Learner(
        "gaussian process", "bayesian", Structure.KERNEL, "scikit-learn's Gaussian process, ARD kernel",
        "GaussianProcess()", form="standardized", task="regression",
    ),
    Learner(
        "random forest", "reference", Structure.FOREST,
        "scikit-learn's random forest, with its out-of-bag residuals", "QuantileForest()", form="ordinal",
        task="regression",
    ),
    Learner(
        "quantile forest", "reference", Structure.FOREST, "a quantile regression forest (extra bench)",
        "QuantileForestPackage()", form="ordinal", task="regression", package="quantile_forest",
    ),
    Learner(
        "boosting", "reference", Structure.BOOSTED_TREES, "scikit-learn's histogram boosting of 19 quantiles",
        "BoostedQuantiles()", form="Categories", task="regression",
    ),
    Learner(
        "ngboost", "reference", Structure.BOOSTED_TREES,
        "NGBoost with a normal distribution, 500 trees (extra bench)", "NGBoost()", form="ordinal",
        task="regression", package="ngboost",
    ),
    Learner(
        "catboost", "reference", Structure.BOOSTED_TREES,
        "CatBoost with its own mean and variance (extra bench)", "CatBoostGaussian()", form="Categories",
        task="regression", package="catboost",
    ),
)  # fmt: skip

LEARNERS = (*CLASSIFIERS, *REGRESSORS)
