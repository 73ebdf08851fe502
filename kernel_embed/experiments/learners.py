"""The ways to learn a kernel that the experiments compare, each a scikit-learn classifier under a name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from gpytorch.kernels import RBFKernel
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.svm import SVC
from torch import Tensor

from ..estimators import MulticlassEmbeddingClassifier
from ..kernels import log_scaled, set_lengthscales_by_median
from ..objectives import (
    ConditionalEvidence,
    CrossValidationRisk,
    EmpiricalRisk,
    LeaveOneOutRisk,
    Objective,
    RademacherComplexity,
)
from .networks import CEN_1, CEN_2, NetworkClassifier

GRID = {"C": [0.1, 1.0, 10.0, 100.0, 1000.0], "gamma": [0.01, 0.1, 1.0, 10.0]}
"""Of the support vector classifier, for features of unit range."""


def paper_kernel(x: Tensor) -> RBFKernel:
    """ARD squared exponential with all lengthscales 1, as section 5 of the paper starts it, and no prior."""
    kernel = RBFKernel(ard_num_dims=x.shape[-1], lengthscale_constraint=log_scaled()).to(x)
    kernel.lengthscale = 1.0
    return kernel


def median_kernel(x: Tensor) -> RBFKernel:
    """Isotropic squared exponential at the median distance, held there."""
    kernel: RBFKernel = set_lengthscales_by_median(RBFKernel().to(x), x)
    return kernel.requires_grad_(False)


def paper(objective: Objective, **settings: Any) -> MulticlassEmbeddingClassifier:
    """The paper's model under ``objective``: λ starts at 1, probabilities are those of eq. (6)."""
    return MulticlassEmbeddingClassifier(
        paper_kernel, objective, regularization=1.0, calibrated=False, progress=False, **settings
    )


class GridSearchedSVC(ClassifierMixin, BaseEstimator):
    """scikit-learn's SVC, C and γ by 5-fold grid search, with probabilities by Platt scaling on 5 more folds.

    Args:
        pairwise: scale each pair of classes and couple them, as libsvm does inside ``SVC(probability=True)``; otherwise
            scale each class against the rest (``CalibratedClassifierCV``), which scikit-learn recommends in its place.
    """

    def __init__(self, pairwise: bool = False) -> None:
        self.pairwise = pairwise

    def fit(self, X: ArrayLike, y: ArrayLike) -> GridSearchedSVC:
        """Search, then fit the best setting with probabilities."""
        _, counts = np.unique(np.asarray(y), return_counts=True)
        # Stratified folds ask for five rows of every class.
        folds = 5 if counts.min() >= 5 else list(KFold(5, shuffle=True, random_state=0).split(y))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The `probability` parameter", category=FutureWarning)
            warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
            best = GridSearchCV(SVC(), GRID, cv=5).fit(X, y).best_params_
            self.svc_ = SVC(**best, probability=self.pairwise, random_state=0).fit(X, y)
            calibrated = CalibratedClassifierCV(SVC(**best), ensemble=False, cv=folds)
            self.model_ = self.svc_ if self.pairwise else calibrated.fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Platt-scaled probabilities."""
        return np.asarray(self.model_.predict_proba(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The labels that the SVC itself votes for."""
        return np.asarray(self.svc_.predict(X))


LEARNERS: dict[str, Callable[[], Any]] = {
    "default": lambda: MulticlassEmbeddingClassifier(progress=False),
    "leave-one-out": lambda: MulticlassEmbeddingClassifier(
        paper_kernel, LeaveOneOutRisk() + RademacherComplexity("4e/n"), progress=False
    ),
    "evidence": lambda: MulticlassEmbeddingClassifier(objective=ConditionalEvidence(), progress=False),
    "rademacher 4e/n": lambda: paper(EmpiricalRisk() + RademacherComplexity("4e/n")),
    "rademacher e/sqrt(n)": lambda: paper(EmpiricalRisk() + RademacherComplexity("e/sqrt(n)")),
    "rademacher 4e/sqrt(n)": lambda: paper(EmpiricalRisk() + RademacherComplexity("4e/sqrt(n)")),
    "rademacher 4e": lambda: paper(EmpiricalRisk() + RademacherComplexity("4e")),
    "empirical risk": lambda: paper(EmpiricalRisk()),
    "cross validation": lambda: paper(CrossValidationRisk(num_folds=5)),
    "median heuristic": lambda: MulticlassEmbeddingClassifier(
        median_kernel, CrossValidationRisk(num_folds=5), calibrated=False, progress=False
    ),
    "cen-1": lambda: NetworkClassifier(CEN_1),
    "cen-2": lambda: NetworkClassifier(CEN_2),
    "svc grid": GridSearchedSVC,
    "svc grid, pairwise": lambda: GridSearchedSVC(pairwise=True),
}
"""Name → a new classifier."""
