"""The ways to learn a kernel that the experiments compare, each a scikit-learn classifier under a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import RBFKernel
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC
from torch import Tensor

from ..estimators import MulticlassEmbeddingClassifier
from ..kernels import set_lengthscales_by_median
from ..objectives import (
    ConditionalEvidence,
    CrossValidationRisk,
    EmpiricalRisk,
    LeaveOneOutRisk,
    Objective,
    RademacherComplexity,
)

GRID = {"C": [0.1, 1.0, 10.0, 100.0, 1000.0], "gamma": [0.01, 0.1, 1.0, 10.0]}
"""Of the support vector classifier, for features of unit range."""


def paper_kernel(x: Tensor) -> RBFKernel:
    """ARD squared exponential with all lengthscales 1, as section 5 of the paper starts it, and no prior."""
    constraint = Positive(transform=torch.exp, inv_transform=torch.log)
    kernel = RBFKernel(ard_num_dims=x.shape[-1], lengthscale_constraint=constraint).to(x)
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
    """scikit-learn's SVC, C and γ by 5-fold grid search, with Platt-scaled probabilities from 5 more folds."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> GridSearchedSVC:
        """Search, then calibrate the best setting."""
        _, counts = np.unique(np.asarray(y), return_counts=True)
        folds = 5 if counts.min() >= 5 else _folds(np.asarray(y))
        search = GridSearchCV(SVC(), GRID, cv=folds).fit(X, y)
        self.svc_ = SVC(**search.best_params_).fit(X, y)
        self.model_ = CalibratedClassifierCV(SVC(**search.best_params_), ensemble=False, cv=folds).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Platt-scaled probabilities."""
        return np.asarray(self.model_.predict_proba(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The labels that the SVC itself votes for."""
        return np.asarray(self.svc_.predict(X))


def _folds(y: NDArray[Any]) -> Any:
    """Folds that do not ask for five rows of every class."""
    from sklearn.model_selection import KFold

    return list(KFold(5, shuffle=True, random_state=0).split(y))


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
    "svc grid": GridSearchedSVC,
}
"""Name → a new classifier."""
