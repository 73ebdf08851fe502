"""Classifiers of one kernel: how it starts, the paper's model, and references by scikit-learn and GPyTorch."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.svm import SVC
from torch import Tensor

from ...embeddings import BayesianMeanEmbedding, ConditionedMulticlass
from ...estimators import MulticlassEmbeddingClassifier
from ...kernels import DiscreteMeasure, default_kernel, log_scaled, set_lengthscales_by_median
from ...learning import local_maxima
from ...objectives import EmbeddingEvidence, Objective
from ...splits import proportional_sample

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


class MostProbable(ClassifierMixin, BaseEstimator):
    """A classifier whose ``predict`` follows from ``classes_`` and ``predict_proba``."""

    classes_: NDArray[Any]

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable labels."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""C of the logistic regression, the inverse of its penalty."""
SEARCH_ROWS = 5000
"""Rows on which C is chosen, at most."""


class TunedLogistic(LogisticRegression):
    """scikit-learn's logistic regression, its C by the NLL of three folds on at most 5,000 rows."""

    def __init__(self) -> None:
        super().__init__(max_iter=1000)

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> TunedLogistic:
        """Choose C, then fit on all rows."""
        x, labels = np.asarray(X), np.asarray(y)
        rows = proportional_sample(labels, SEARCH_ROWS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
            self.C = min(PENALTIES, key=lambda c: self._risk(c, x[rows], labels[rows]))
            super().fit(x, labels, sample_weight)
        return self

    def _risk(self, c: float, x: NDArray[Any], y: NDArray[Any]) -> float:
        losses = []
        for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(x, y):
            if len(np.unique(y[train])) < 2:
                continue
            model = LogisticRegression(C=c, max_iter=300).fit(x[train], y[train])
            seen = np.isin(y[test], model.classes_)  # a class of one row is in one part only
            p = model.predict_proba(x[test][seen])
            truth = np.searchsorted(model.classes_, y[test][seen])
            losses.append(-np.log(np.clip(p[np.arange(len(p)), truth], 1e-15, 1.0)).mean())
        return float(np.mean(losses)) if losses else c


GRID = {"C": [0.1, 1.0, 10.0, 100.0, 1000.0], "gamma": [0.01, 0.1, 1.0, 10.0]}
"""The grid of the support vector classifier, for features in [0, 1]."""


class GridSearchedSVC(ClassifierMixin, BaseEstimator):
    """scikit-learn's SVC, C and γ by grid search over folds, with probabilities by Platt scaling on further folds.

    Args:
        pairwise: scale each pair of classes and couple them, as libsvm does inside ``SVC(probability=True)``; otherwise
            scale each class against the rest (``CalibratedClassifierCV``), as scikit-learn recommends.
        num_folds: of the search.
        search_rows: rows on which C and γ are chosen, at most; the model is fitted and calibrated on all rows.
    """

    def __init__(self, pairwise: bool = False, num_folds: int = 5, search_rows: int | None = None) -> None:
        self.pairwise, self.num_folds, self.search_rows = pairwise, num_folds, search_rows

    def fit(self, X: ArrayLike, y: ArrayLike) -> GridSearchedSVC:
        """Search, then fit the best setting with probabilities."""
        x, labels = np.asarray(X), np.asarray(y)
        _, counts = np.unique(labels, return_counts=True)
        rows = proportional_sample(labels, self.search_rows or len(labels))
        # stratified folds need as many rows of every class as there are folds
        k = 5 if len(labels) <= 5000 else 3
        folds = k if counts.min() >= k else list(KFold(k, shuffle=True, random_state=0).split(labels))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The `probability` parameter", category=FutureWarning)
            warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
            search = GridSearchCV(SVC(cache_size=500), GRID, cv=self.num_folds, refit=False)
            best = search.fit(x[rows], labels[rows]).best_params_
            if self.pairwise:
                self.model_ = self.svc_ = SVC(**best, probability=True, random_state=0).fit(x, labels)
            else:
                calibrated = CalibratedClassifierCV(SVC(**best, cache_size=500), ensemble=False, cv=folds)
                self.model_ = calibrated.fit(x, labels)
                self.svc_ = self.model_.calibrated_classifiers_[0].estimator  # the one that saw all rows
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Platt-scaled probabilities."""
        return np.asarray(self.model_.predict_proba(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The labels that the SVC itself votes for."""
        return np.asarray(self.svc_.predict(X))


class LaplaceGPC(GaussianProcessClassifier):
    """scikit-learn's GPC, one class against the rest, with a scaled ARD kernel.

    Args:
        smoothness: of a Matérn kernel; ``None`` for the squared exponential.
    """

    def __init__(self, smoothness: float | None = None) -> None:
        super().__init__(random_state=0)
        self.smoothness = smoothness

    def fit(self, X: ArrayLike, y: ArrayLike) -> LaplaceGPC:
        """Learn one kernel for each class by the Laplace evidence."""
        n, d = np.shape(X)
        _check_memory(2 * 8 * n * n * (d + 1), n)
        base = RBF(np.ones(d)) if self.smoothness is None else Matern(np.ones(d), nu=self.smoothness)
        self.kernel = ConstantKernel() * base
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            super().fit(X, y)
        return self


def _check_memory(needed: int, n: int) -> None:
    """The derivative of an ARD kernel is an (n, n, d) array there; without memory for it the process is killed."""
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 3
        if needed > available:
            raise MemoryError(f"{n} rows need more than {available / 2**30:.0f} GiB. Give it fewer rows.")


@contextlib.contextmanager
def _exact() -> Iterator[None]:
    """Draws with seed 0, without changing the global generator, and Cholesky factors at every size."""
    settings = gpytorch.settings
    with torch.random.fork_rng(devices=[]), settings.max_cholesky_size(10**9):
        torch.manual_seed(0)
        with settings.fast_computations(False, False, False):
            yield


class _DirichletModel(gpytorch.models.ExactGP):
    def __init__(self, x: Tensor, likelihood: DirichletClassificationLikelihood, smoothness: float | None) -> None:
        super().__init__(x, likelihood.transformed_targets, likelihood)
        shape = torch.Size([likelihood.num_classes])
        make = RBFKernel if smoothness is None else partial(MaternKernel, smoothness)
        base = make(batch_shape=shape, ard_num_dims=x.shape[-1])
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape)
        self.covar_module = ScaleKernel(base, batch_shape=shape)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at ``x``, as GPyTorch evaluates it."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class DirichletClassifier(MostProbable):
    """Gaussian process regression on transformed labels, as in GPyTorch's example, with an ARD kernel for each class.

    100 steps of Adam; Cholesky factors at every size, where GPyTorch would turn to conjugate gradients above n = 800.

    Args:
        smoothness: of a Matérn kernel; ``None`` for the squared exponential.
    """

    def __init__(self, smoothness: float | None = None) -> None:
        self.smoothness = smoothness

    def fit(self, X: ArrayLike, y: ArrayLike) -> DirichletClassifier:
        """Maximize the marginal likelihood of all classes together by Adam."""
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        x, labels = torch.tensor(np.asarray(X), dtype=torch.float64), torch.as_tensor(numbers)
        likelihood = DirichletClassificationLikelihood(labels, learn_additional_noise=True, dtype=x.dtype)
        self.model_ = _DirichletModel(x, likelihood, self.smoothness).to(x)
        self.model_.train()
        likelihood.train()
        adam = torch.optim.Adam(self.model_.parameters(), lr=0.1)
        loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, self.model_)
        with _exact():
            for _ in range(100):
                adam.zero_grad()
                value = -loss(self.model_(x), likelihood.transformed_targets).sum()
                value.backward()
                adam.step()
        self.num_evaluations_ = 100
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """The mean over 256 draws of the softmax of the latent functions."""
        self.model_.eval()
        # without debugging: predicting its own rows would warn
        with torch.no_grad(), gpytorch.settings.debug(False), _exact():
            latent = self.model_(torch.tensor(np.asarray(X), dtype=torch.float64))
            mean, deviation = latent.mean, latent.variance.clamp_min(0.0).sqrt()
            draws = mean + deviation * torch.randn(256, *mean.shape, dtype=mean.dtype)
            return np.asarray(draws.softmax(dim=1).mean(dim=0).mT.numpy())
