"""The multiclass embedding as a scikit-learn classifier."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from gpytorch.priors import LogNormalPrior
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..embeddings import ConditionedMulticlass, MulticlassEmbedding, clip_normalize
from ..kernels import default_kernel, feature_ranges, log_scaled
from ..learning import LBFGS, Adam, FitResult, Optimizer, fit
from ..objectives import Objective, calibrate, default_objective
from ..objectives.bounds import generalization_bound
from .random_state import RandomState, seed_of


class MulticlassEmbeddingClassifier(ClassifierMixin, BaseEstimator):
    """A multiclass classifier with a learned kernel, and no validation set.

    Args:
        kernel: any GPyTorch kernel, which is copied and never changed; or a function that builds one for the training
            inputs; ``None`` for :func:`kernel_embed.default_kernel`, an ARD squared exponential scaled to the data.
        objective: what learning minimises; ``None`` for :func:`kernel_embed.default_objective`.
        regularization: the starting value of λ.
        calibrated: report probabilities calibrated on leave-one-out values
            (:func:`kernel_embed.objectives.calibrate`); otherwise the clip-normalized ones of eq. (6).
        confidence: 1 − β of the bound that is reported.
        max_evaluations: a limit for the optimiser.
        tolerance: see :func:`kernel_embed.fit`.
        num_restarts: further starts of the optimiser.
        subset_size: with at least twice as many rows, learning starts on a random subset of this size, where an
            evaluation costs little, and goes on with all rows from there; ``None`` starts with all rows.
        batch_size: learn with mini-batches of this size (Algorithm 1).
        num_epochs: epochs, with mini-batches.
        learning_rate: of Adam, with mini-batches.
        random_state: seed of restarts and mini-batches.
        device: where to compute; ``None`` for the CPU.
        progress: show a progress bar; ``None`` shows it on a terminal or in a notebook.

    Attributes:
        classes_: the labels.
        embedding_: the learned :class:`kernel_embed.MulticlassEmbedding`.
        conditioned_: the embedding with the training data, which answers every question.
        calibration_: the :class:`kernel_embed.objectives.SoftmaxCalibration`, or ``None``.
        result_: the :class:`kernel_embed.learning.FitResult` of learning.
        terms_: the objective's terms at the solution.
        bound_: the :class:`kernel_embed.objectives.GeneralizationBound` of the decision probabilities, as published.
        tight_bound_: the same in its 1/√n form: a measure of complexity, since the kernel saw the same rows.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> x, y = load_iris(return_X_y=True)
        >>> classifier = MulticlassEmbeddingClassifier().fit(x[::2], y[::2])
        >>> classifier.score(x[1::2], y[1::2]) > 0.9
        True
    """

    def __init__(
        self,
        kernel: Kernel | Callable[[torch.Tensor], Kernel] | None = None,
        objective: Objective[ConditionedMulticlass] | None = None,
        *,
        regularization: float = 0.01,
        calibrated: bool = True,
        confidence: float = 0.95,
        max_evaluations: int = 200,
        tolerance: float = 1e-5,
        num_restarts: int = 0,
        subset_size: int | None = 1000,
        batch_size: int | None = None,
        num_epochs: int = 200,
        learning_rate: float = 0.1,
        random_state: RandomState = None,
        device: str | None = None,
        progress: bool | None = None,
    ) -> None:
        self.kernel = kernel
        self.objective = objective
        self.regularization = regularization
        self.calibrated = calibrated
        self.confidence = confidence
        self.max_evaluations = max_evaluations
        self.tolerance = tolerance
        self.num_restarts = num_restarts
        self.subset_size = subset_size
        self.batch_size = batch_size
        self.num_epochs = num_epochs
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.device = device
        self.progress = progress

    def fit(self, X: ArrayLike, y: ArrayLike) -> MulticlassEmbeddingClassifier:
        """Learn the kernel and λ, and condition on the data."""
        features, targets = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(targets)
        self.classes_, numbers = np.unique(targets, return_inverse=True)
        x, labels = self._tensor(features), self._tensor(numbers)
        self.embedding_, self.result_ = self._learn(x, labels)
        self.terms_ = self.result_.terms
        with torch.no_grad():
            self.conditioned_ = self.embedding_.condition(x, labels)
            conditioned = self.conditioned_
            self.calibration_ = calibrate(conditioned.leave_one_out(), conditioned.Y) if self.calibrated else None
            self.bound_ = generalization_bound(conditioned, self.confidence, "paper")
            self.tight_bound_ = generalization_bound(conditioned, self.confidence, "tight")
        return self

    def _learn(self, x: torch.Tensor, y: torch.Tensor) -> tuple[MulticlassEmbedding, FitResult]:
        objective = self.objective if self.objective is not None else default_objective()
        n, seed = len(y), seed_of(self.random_state)
        learn = partial(fit, seed=seed, progress=self.progress)
        optimizer = self._optimizer(self.num_restarts)
        rows = torch.arange(n, device=x.device)
        if self.batch_size is None and self.subset_size is not None and n >= 2 * self.subset_size:
            rows = self._tensor(np.random.default_rng(seed or 0).permutation(n)[: self.subset_size])
        # Stages, each from where the one before ended: a common lengthscale, a subset, all rows. Ctrl-C ends them all.
        embedding, result = self._start(x[rows], y[rows], objective)
        if len(rows) < n and not (result and result.interrupted):
            result = learn(embedding, objective, x[rows], y[rows], optimizer=optimizer)
            # A = K + nλI: the ridge found on the subset is a better guess for all rows than its λ.
            embedding.regularization = embedding.regularization.detach() * (len(rows) / n)
            optimizer = self._optimizer(num_restarts=0)
        if not (result and result.interrupted):
            result = learn(embedding, objective, x, y, optimizer=optimizer)
        return embedding, result

    def _optimizer(self, num_restarts: int) -> Optimizer:
        if self.batch_size is not None:
            return Adam(self.num_epochs, self.learning_rate, self.batch_size)
        return LBFGS(self.max_evaluations, self.tolerance, num_restarts)

    def _start(
        self, x: torch.Tensor, y: torch.Tensor, objective: Objective[ConditionedMulticlass]
    ) -> tuple[MulticlassEmbedding, FitResult | None]:
        """The embedding from which learning starts, and what was learned on the way there."""
        m = len(self.classes_)
        if self.kernel is None:
            return isotropic_start(x, y, m, objective, self.regularization, self.progress)
        # A GPyTorch kernel can be called too, so the type decides.
        if isinstance(self.kernel, type):
            raise TypeError(f"Expected a kernel, got the class {self.kernel.__name__}. Write {self.kernel.__name__}().")
        if not isinstance(self.kernel, Kernel) and callable(self.kernel):
            return MulticlassEmbedding(self.kernel(x), m, self.regularization), None
        return MulticlassEmbedding(copy.deepcopy(self.kernel), m, self.regularization), None

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores, highest for the predicted class: (n, m), or for two classes (n,) as scikit-learn has it."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of ``classes_``: (n, m)."""
        F = self._decision_probabilities(X)
        probabilities = clip_normalize(F) if self.calibration_ is None else self.calibration_.probabilities(F)
        return probabilities.cpu().numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable labels."""
        numbers = self._scores(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[numbers]
        return labels

    def _scores(self, X: ArrayLike) -> NDArray[np.float64]:
        F = self._decision_probabilities(X)
        scores = F if self.calibration_ is None else self.calibration_.log_probabilities(F)
        return scores.cpu().numpy()

    def _decision_probabilities(self, X: ArrayLike) -> torch.Tensor:
        check_is_fitted(self)
        features = validate_data(self, X, dtype=np.float64, reset=False)
        with torch.no_grad():
            return self.conditioned_.decision_probabilities(self._tensor(features))

    def _tensor(self, array: NDArray[np.float64] | NDArray[np.int64]) -> torch.Tensor:
        # A copy: the classifier keeps its data when the caller's array changes, and read-only arrays are welcome.
        return torch.tensor(array, device=self.device or "cpu")


def isotropic_start(
    x: torch.Tensor,
    y: torch.Tensor,
    num_classes: int,
    objective: Objective[ConditionedMulticlass],
    regularization: float,
    progress: bool | None,
) -> tuple[MulticlassEmbedding, FitResult]:
    """The default kernel at the best common lengthscale, found first: two numbers are learned in a dozen evaluations.

    Around it the lengthscales of :func:`kernel_embed.default_kernel` have their prior, so that features count as
    equally relevant until the data say otherwise.
    """
    scaled = x / feature_ranges(x)
    centre = default_kernel(scaled).lengthscale.detach().mean()
    prior = LogNormalPrior(centre.log() + 1.0, torch.ones_like(centre))
    kernel = RBFKernel(lengthscale_prior=prior, lengthscale_constraint=log_scaled()).to(x)
    kernel.lengthscale = centre
    isotropic = MulticlassEmbedding(kernel, num_classes, regularization)
    result = fit(isotropic, objective, scaled, y, max_evaluations=30, tolerance=1e-3, progress=progress)
    kernel = default_kernel(x, kernel.lengthscale.item())
    return MulticlassEmbedding(kernel, num_classes, isotropic.regularization.item()), result
