"""The ways to learn a numeric target that are compared, each a regressor that predicts distributions, under a name."""

from __future__ import annotations

from functools import partial

from ...estimators import ConditionalEmbeddingRegressor
from ...objectives import ConditionalEvidence
from .learner import Learner
from .predictive import (
    BoostedQuantiles,
    CatBoostGaussian,
    ForestRegressor,
    GaussianProcess,
    NGBoost,
    ProbabilisticRidge,
    QuantileForest,
)
from .single_kernel_regressor import SingleKernelRegressor

OURS = "import kernel_embed as ke"
HERE = "from kernel_embed.lab.compare import"

METHODS = (
    "default",
    "one kernel",
    "evidence",
    "ridge",
    "gaussian process",
    "random forest",
    "quantile forest",
    "boosting",
    "ngboost",
    "catboost",
)
QUICK_METHODS = ("default", "evidence", "ridge")

NEEDS = {"quantile forest": "quantile_forest", "ngboost": "ngboost", "catboost": "catboost"}
"""Learners that need a package of the extra ``bench``."""


def real_learners(kernel: str = "rbf") -> dict[str, Learner]:
    """Every learner of a numeric target by name; ``kernel`` is for those of classes."""
    references = {
        "ridge": (
            ProbabilisticRidge,
            "ridge regression, penalty and deviation by leave-one-out errors",
            "standardized",
        ),
        "gaussian process": (GaussianProcess, "scikit-learn's Gaussian process, ARD kernel", "standardized"),
        "random forest": (ForestRegressor, "scikit-learn's random forest, with its out-of-bag residuals", "ordinal"),
        "quantile forest": (QuantileForest, "a quantile regression forest (extra bench)", "ordinal"),
        "boosting": (BoostedQuantiles, "scikit-learn's histogram boosting of 19 quantiles", "Categories"),
        "ngboost": (NGBoost, "NGBoost with a normal distribution, 500 trees (extra bench)", "ordinal"),
        "catboost": (CatBoostGaussian, "CatBoost with its own mean and variance (extra bench)", "Categories"),
    }
    return {
        "default": Learner(
            partial(ConditionalEmbeddingRegressor, random_state=0, progress=False),
            "several embeddings in one mixture, weighted by rows they have not seen; what the regressor does with "
            "nothing set",
            "ke.ConditionalEmbeddingRegressor(random_state=0)",
            (OURS,),
            form=None,
            answers="regressor.predict_interval(X_new, coverage=0.9)",
        ),
        "one kernel": Learner(
            SingleKernelRegressor,
            "one kernel by the leave-one-out CRPS in closed form",
            "SingleKernelRegressor()",
            (f"{HERE} SingleKernelRegressor",),
            "unit_range",
            answers="regressor.predict(X_new)",
        ),
        "evidence": Learner(
            partial(SingleKernelRegressor, ConditionalEvidence()),
            "one kernel by the evidence of the targets, as for a Gaussian process",
            "SingleKernelRegressor(ke.ConditionalEvidence())",
            (OURS, f"{HERE} SingleKernelRegressor"),
            "unit_range",
            answers="regressor.predict(X_new)",
        ),
        **{
            name: Learner(
                make,
                words,
                f"{make.__name__}()",
                (f"{HERE} {make.__name__}",),
                form,
                is_reference=True,
                answers="regressor.predict(X_new)",
            )
            for name, (make, words, form) in references.items()
        },
    }
