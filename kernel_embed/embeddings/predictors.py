r"""Predictors of P(Y | X): the methods that all of them share.

Exact embeddings, explicit features, Nyström approximations, iterative solutions, rows on several machines, compressed
embeddings and averages over a posterior share these methods. Most are linear: a subclass supplies only a representation
of new points and coefficients,

.. math::  \mathbb E[Y \mid X = x] \approx \mathbf f(x) = \mathbf C^\top \boldsymbol\varphi(x),
           \qquad \boldsymbol\varphi(x) = \mathbf k(x) \text{ or the explicit features of } x .
"""

from __future__ import annotations

import abc
import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from .distribution import Distribution, RealTargetPredictor, indicators, no_distribution, support_of
from .probabilities import clip_normalize, information, resampled_rows
from .representation import LinearMap, Representation
from .resolution import Function

if TYPE_CHECKING:
    from .multiclass import MulticlassEmbedding

Entropy = Literal["clip-normalized", "expected-information"]

_MAPS: weakref.WeakKeyDictionary[LinearPredictor, dict[str, LinearMap]] = weakref.WeakKeyDictionary()
"""Resolved maps; kept apart from the predictors, which are copied, pickled and saved without them."""


class ConditionalPredictor(RealTargetPredictor, abc.ABC):
    """Predictions of P(Y | X) for targets of any kind.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.rand(30, 1, dtype=torch.float64)
        >>> predictor = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).double().condition(x, 2 * x)
        >>> isinstance(predictor, ke.embeddings.ConditionalPredictor)
        True
        >>> predictor.expectation(lambda y: y.square(), x[:3]).shape           # E[Y² | X = x]
        torch.Size([3, 1])
    """

    @abc.abstractmethod
    def mean(self, x: Tensor) -> Tensor:
        """E[Y | X = x] for the targets as an n × m matrix: ``(*batch, t, m)``."""

    @abc.abstractmethod
    def expectation(self, g: Function | Tensor, x: Tensor) -> Tensor:
        """E[g(Y) | X = x], eq. (2).

        Args:
            g: a function of the training targets, or its values ``(n,)`` or ``(n, q)`` there.
            x: points of shape ``(t, d)``.

        Returns:
            ``(*batch, t)``, or ``(*batch, t, q)`` where g has q values.
        """


class LinearPredictor(ConditionalPredictor):
    """Predictions of the form f(x) = Cᵀφ(x); a subclass supplies C and φ.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.rand(30, 1, dtype=torch.float64)
        >>> predictor = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).double().condition(x, 2 * x)
        >>> by_hand = predictor.representation(x[:3]) @ predictor.coefficients
        >>> bool(torch.allclose(by_hand, predictor.mean(x[:3])))
        True
    """

    @property
    @abc.abstractmethod
    def representation(self) -> Representation:
        """φ, a function of new points."""

    @property
    @abc.abstractmethod
    def coefficients(self) -> Tensor:
        """C, ``(*batch, p, m)``."""

    @property
    def training_targets(self) -> Tensor | None:
        """The training targets; ``None`` if they are not stored, as after one pass over the data."""
        return None

    @property
    def row_weights(self) -> Tensor | None:
        """The weights of the training rows, ``(n,)``, where they differ."""
        return None

    def coefficients_of(self, values: Tensor) -> Tensor:
        """The coefficients for other ``values`` ``(n, q)`` at the training targets.

        Raises:
            TypeError: if the predictor does not store its data.
        """
        raise self._without_data()

    def weights(self, x: Tensor) -> Tensor:
        """w(x), the weights of the training rows in the prediction at ``x``: ``(*batch, n, t)``.

        Raises:
            TypeError: if the predictor does not store its data.
        """
        raise self._without_data()

    def sample_rows(self, k: int, x: Tensor, seed: int | None = None) -> Tensor:
        """k training rows for each point, drawn with the weights v = 1/n + w − (Σw)/n, clipped at 0 and normalized.

        ``y[rows]`` are draws of Y given X = x for targets of any kind: vectors, labels, structures. ``(t, k)``.

        Raises:
            TypeError: if the predictor does not hold its data, or ``k`` or ``seed`` is not a whole number.
            ValueError: if ``k`` is less than 1, or ``seed`` negative or too large.
        """
        return resampled_rows(self.weights(x), k, seed, self.row_weights)

    def real_targets(self) -> Tensor:
        """The training targets, one real number for each row, ``(n,)``.

        Raises:
            TypeError: if they are not stored, or are not real numbers.
        """
        y = self.training_targets
        if y is None:
            raise no_distribution(self)
        if y.numel() != y.shape[0]:
            raise TypeError(
                f"A distribution function needs one real target for each row, but the targets have shape "
                f"{tuple(y.shape)}. Use expectation(g, x), weights(x) or sample_rows(k, x), or embed one target at a "
                "time."
            )
        return y.reshape(-1).to(self.coefficients)

    def _without_data(self) -> TypeError:
        return TypeError(
            f"{type(self).__name__} does not hold its training data. Use embedding.condition(x, y), or "
            "approximate(embedding, x, y, ...) with tensors."
        )

    def mean(self, x: Tensor) -> Tensor:
        """E[Y | X = x] for the targets as an n × m matrix: ``(*batch, t, m)``."""
        return self.evaluate(self.representation.check(x))

    def evaluate(self, x: Tensor) -> Tensor:
        """:meth:`mean` at points that are checked already."""
        return self._mean_map()(x)

    def prepare(self) -> None:
        """Resolve the kernel now, and not at the first prediction."""
        self._mean_map()

    def _mean_map(self) -> LinearMap:
        return self._map("mean", lambda: self.coefficients)

    def _map(self, name: str, coefficients: Callable[[], Tensor]) -> LinearMap:
        """φ(x) C for the coefficients of this ``name``, with the kernel resolved at the first call."""
        maps = _MAPS.setdefault(self, {})
        if name in maps:
            return maps[name]
        linear = LinearMap(self.representation, coefficients())
        if linear.resolved:
            maps[name] = linear
        return linear

    def expectation(self, g: Function | Tensor, x: Tensor) -> Tensor:
        """E[g(Y) | X = x], eq. (2); see :meth:`ConditionalPredictor.expectation`.

        Raises:
            TypeError: if the predictor does not hold the training targets.
            ValueError: if ``g`` does not return one value, or one row, for each training target.
        """
        y = self.training_targets
        if y is None:
            raise self._without_data()
        like = self.coefficients
        values = torch.as_tensor(g(y) if callable(g) else g, dtype=like.dtype, device=like.device)
        n = y.shape[0]
        if values.dim() == 0 or values.shape[0] != n or values.dim() > 2:
            raise ValueError(
                f"Expected the values of g at the {n} training targets, of shape ({n},) or ({n}, q), got "
                f"{tuple(values.shape)}."
            )
        # eq. (2): gᵀA⁻¹k(x)
        representation, coefficients = self.representation, self.coefficients_of(values.reshape(n, -1))
        expectation = LinearMap(representation, coefficients)(representation.check(x))
        return expectation.squeeze(-1) if values.dim() == 1 else expectation

    def distribution(self, x: Tensor) -> Distribution:
        """P(Y | X = x) of a real target, by one distribution function for each point; see the class returned."""
        support, F, _ = self._cumulative
        return Distribution(
            support, F + self._map("distribution", lambda: self._cumulative[2])(self.representation.check(x))
        )

    @functools.cached_property
    def _cumulative(self) -> tuple[Tensor, Tensor, Tensor]:
        """The support, F̄ there, and the coefficients of the centered indicators."""
        y = self.real_targets()
        support = support_of(y)
        G, F = indicators(y, support, self.row_weights)
        return support, F, self.coefficients_of(G)


class MulticlassPredictor(ConditionalPredictor):
    """Predictions of class labels, for predictors whose mean is that of one-hot vectors.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1])
        >>> predictor = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2).condition(x, y)
        >>> isinstance(predictor, ke.embeddings.MulticlassPredictor), predictor.probabilities(x).sum(-1)
        (True, tensor([1., 1.]))
    """

    embedding: MulticlassEmbedding
    distribution = RealTargetPredictor.distribution  # class labels have probabilities, and no order

    def real_targets(self) -> Tensor:
        """Class labels are not real numbers.

        Raises:
            TypeError: always.
        """
        raise no_distribution(self)

    @property
    def num_classes(self) -> int:
        """m."""
        return self.embedding.num_classes

    def decision_probabilities(self, x: Tensor) -> Tensor:
        """p̂(x) = f(x), eq. (5): ``(*batch, t, m)``. Estimates of probabilities that may leave [0, 1]."""
        return self.mean(x)

    def probabilities(self, x: Tensor) -> Tensor:
        """p̃(x), eq. (6): clipped at zero and normalized. Uniform where no decision probability is positive."""
        return clip_normalize(self.decision_probabilities(x))

    def predict(self, x: Tensor) -> Tensor:
        """The most probable class number: ``(*batch, t)``."""
        return self.decision_probabilities(x).argmax(dim=-1)

    def entropy(self, x: Tensor, kind: Entropy = "clip-normalized") -> Tensor:
        """The entropy of Y given X = x in nats: ``(*batch, t)``.

        Args:
            x: points of shape ``(t, d)``.
            kind: ``"clip-normalized"`` is h̃ of eq. (33), never negative; ``"expected-information"`` is ĥ of eq. (37),
                the embedding's own expectation of −log p̂, which may fall slightly below zero.

        Raises:
            ValueError: if ``kind`` is neither of the two.
        """
        if kind == "clip-normalized":
            return information(self.probabilities(x)).sum(dim=-1)
        if kind == "expected-information":
            # eqs. (36), (37): Σ_i û_x(y_i) w_i(x) = Σ_c û_x(c) p̂_c(x), û_x(c) = −log p̂_c(x) where p̂_c(x) > 0, else 0
            return information(self.decision_probabilities(x)).sum(dim=-1)
        raise ValueError(f"Expected kind 'clip-normalized' or 'expected-information', got {kind!r}.")

    def expectation(self, g: Function | Tensor, x: Tensor) -> Tensor:
        """E[g(Y) | X = x], eq. (2).

        Args:
            g: a function of class numbers, or its values ``(m,)`` or ``(m, q)`` at the classes; with stored data
                also its values at the training labels.
            x: points of shape ``(t, d)``.

        Raises:
            TypeError: if ``g`` is neither a function of class numbers nor values.
        """
        classes = torch.arange(self.num_classes, device=x.device if isinstance(x, Tensor) else None)
        try:
            values = torch.as_tensor(g(classes) if callable(g) else g)
        except (RuntimeError, TypeError, ValueError) as error:
            raise TypeError(f"Expected g as a function of class numbers or its values, got {g!r} ({error}).") from error
        if values.dim() not in (1, 2) or values.shape[0] != self.num_classes:
            return super().expectation(values, x)  # type: ignore[safe-super]
        F = self.decision_probabilities(x)
        return F @ values.to(F)
