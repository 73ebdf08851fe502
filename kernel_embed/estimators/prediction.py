"""What a fitted classifier answers, whether it is one kernel or a pool of several."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ..bounds import Bound
from ..embeddings import ConditionedMulticlass, MulticlassEmbedding, clip_normalize, prediction_sets
from ..learning import FitResult
from ..objectives import SoftmaxCalibration
from ..objectives.bounds import generalization_bound
from ..tabular.encoder import TableEncoder, plain_matrix, table_tags, validate_table
from .conditioning import Table
from .pooled import PooledPredictor

Floats = NDArray[np.float64]


class ClassifierPredictions(ClassifierMixin, BaseEstimator):
    """The questions of :class:`kernel_embed.MulticlassEmbeddingClassifier`, by what its ``fit`` leaves behind."""

    classes_: NDArray[Any]
    encoder_: TableEncoder | None
    conditioned_: PooledPredictor | ConditionedMulticlass
    embedding_: MulticlassEmbedding
    calibration_: SoftmaxCalibration | None
    result_: FitResult | None
    feature_relevances_: dict[str, float]
    _table: Table
    _class_factors: torch.Tensor | None
    confidence: float
    device: str | None

    @property
    def bound_(self) -> Bound | None:
        """The bound of Theorem 4 of the decision probabilities of one kernel, as published; of a pool ``None``."""
        return self._bound("paper")

    @property
    def tight_bound_(self) -> Bound | None:
        """The same in its 1/√n form, a measure of complexity, since the kernel saw the same rows."""
        return self._bound("tight")

    def _bound(self, form: Any) -> Bound | None:
        conditioned = getattr(self, "conditioned_", None)
        if not isinstance(conditioned, ConditionedMulticlass) or conditioned.y.dim() == 2:
            return None
        with torch.no_grad():
            return generalization_bound(conditioned, self.confidence, form)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Scores, highest for the predicted class: (n, m), or for two classes (n,) as scikit-learn has it."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities of ``classes_``: (n, m)."""
        return self._probabilities(self._encode(X)).cpu().numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable labels."""
        scores = self._scores(X)
        labels: NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return labels

    def predict_set(self, X: ArrayLike, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Conformal sets of classes that hold the true one at about the rate ``coverage``: (n, m), true for members.

        See :func:`kernel_embed.embeddings.prediction_sets` for what is guaranteed and when.
        """
        probabilities = self._probabilities(self._encode(X))
        left_out, y = self._left_out()
        return prediction_sets(left_out, y, probabilities, coverage).cpu().numpy()

    @torch.no_grad()
    def _left_out(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities of training rows by what has not seen them, and their (most probable) classes."""
        y = self._table.y if self._table.y.dim() == 1 else self._table.y.argmax(-1)
        if isinstance(self.conditioned_, PooledPredictor):
            return self._reweighted(self.conditioned_.left_out.exp()), y[self.conditioned_.left_out_rows]
        return self._calibrated(self.conditioned_.leave_one_out()), y

    def _scores(self, X: ArrayLike) -> Floats:
        x = self._encode(X)
        plain = self.calibration_ is None and self._class_factors is None
        if plain and not isinstance(self.conditioned_, PooledPredictor):
            return self._decision_probabilities(x).cpu().numpy()
        return self._probabilities(x).clamp_min(1e-300).log().cpu().numpy()

    @torch.no_grad()
    def _probabilities(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.conditioned_, PooledPredictor):
            return self._reweighted(self.conditioned_.evaluate(x))
        return self._calibrated(self._decision_probabilities(x))

    def _calibrated(self, F: torch.Tensor) -> torch.Tensor:
        return self._reweighted(clip_normalize(F) if self.calibration_ is None else self.calibration_.probabilities(F))

    def _reweighted(self, p: torch.Tensor) -> torch.Tensor:
        return p if self._class_factors is None else clip_normalize(p * self._class_factors.to(p))

    @torch.no_grad()
    def _decision_probabilities(self, x: torch.Tensor) -> torch.Tensor:
        return self.conditioned_.evaluate(x)

    def _encode(self, X: ArrayLike) -> torch.Tensor:
        check_is_fitted(self)
        return self._tensor(self._matrix(validate_table(self, X, reset=False)))

    def _matrix(self, X: ArrayLike) -> Floats:
        if self.encoder_ is not None:
            return self.encoder_.transform(X)
        matrix = plain_matrix(X)
        if matrix is None:
            raise ValueError("Expected numbers without missing cells, as in training, got others. Impute them first.")
        return matrix

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        # A copy: the classifier keeps its data when the caller's array changes, and read-only arrays are welcome.
        return torch.tensor(array, device=self.device or "cpu")

    def __sklearn_tags__(self) -> Any:
        return table_tags(super().__sklearn_tags__())
