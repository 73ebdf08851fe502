r"""Predictors of P(Y | X): the methods that all of them share.

Most of them are linear: they supply only a representation of new points and coefficients,

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

from ..kernels.gram import Function
from .distribution import Distribution, clip_normalize, indicators, information, resampled_rows, support_of
from .representation import LinearMap, Representation

if TYPE_CHECKING:
    from .conditional import MulticlassEmbedding

Entropy = Literal["clip-normalized", "expected-information"]

_MAPS: weakref.WeakKeyDictionary[LinearPredictor, dict[str, LinearMap]] = weakref.WeakKeyDictionary()
"""Resolved maps; kept apart from the predictors, which are copied, pickled and saved without them."""


class ConditionalPredictor(abc.ABC):
    """Predictions of P(Y | X) for targets of any kind; those of a real target follow from :meth:`distribution`.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> predictor = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).condition(torch.eye(2), torch.ones(2))
        >>> predictor.quantile(0.5, torch.eye(2))
        tensor([1., 1.])
    """

    @abc.abstractmethod
    def mean(self, x: Tensor) -> Tensor:
        """E[Y | X = x] for the targets as an n × m matrix: ``(*batch, t, m)``."""

    @abc.abstractmethod
    def expectation(self, g: Function | Tensor, x: Tensor) -> Tensor:
        """E[g(Y) | X = x], eq. (2): ``(*batch, t)``, or ``(*batch, t, q)`` where g has q values.

        ``g`` is a function of the training targets, or its values ``(n,)`` or ``(n, q)`` there.
        """

    def distribution(self, x: Tensor) -> Distribution:
        """P(Y | X = x) of a real target, for each of the points ``x`` ``(t, d)``.

        Raises:
            TypeError: if there is no single real target, or the predictor does not hold it.
        """
        raise self._without_distribution()

    def _without_distribution(self) -> TypeError:
        return TypeError(
            f"{type(self).__name__} holds no real target, so it has no distribution function. For class labels use "
            "probabilities(x); otherwise use embedding.condition(x, y), which holds its targets."
        )

    def cdf(self, t: float | Tensor, x: Tensor) -> Tensor:
        """P(Y ≤ t | X = x): ``(*batch, t)``, or ``(*batch, t, k)`` for k thresholds."""
        return self.distribution(x).cdf(t)

    def exceedance(self, t: float | Tensor, x: Tensor) -> Tensor:
        """P(Y > t | X = x), as :meth:`cdf`."""
        return self.distribution(x).exceedance(t)

    def quantile(self, q: float | Tensor, x: Tensor) -> Tensor:
        """The quantiles of Y given X = x: ``(*batch, t)``, or ``(*batch, t, k)`` for k levels. They never cross."""
        return self.distribution(x).quantile(q)

    def interval(self, coverage: float, x: Tensor) -> Tensor:
        """The central interval of this probability: ``(*batch, t, 2)``. It is the model's own; see ``conformal``."""
        return self.distribution(x).interval(coverage)

    def variance(self, x: Tensor) -> Tensor:
        """Var[Y | X = x]: ``(*batch, t)``."""
        return self.distribution(x).variance

    def density(self, t: Tensor, x: Tensor, bandwidth: float) -> Tensor:
        """The density of Y given X = x, smoothed by a Gaussian of scale ``bandwidth``: ``(*batch, t, k)``."""
        return self.distribution(x).density(t, bandwidth)

    def sample(self, k: int, x: Tensor, seed: int | None = None) -> Tensor:
        """k draws of Y given X = x: ``(*batch, t, k)``."""
        return self.distribution(x).sample(k, seed)


class LinearPredictor(ConditionalPredictor):
    """Predictions of the form f(x) = Cᵀφ(x); a subclass supplies C and φ.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> predictor = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).condition(torch.eye(2), torch.ones(2))
        >>> bool(torch.allclose(predictor.representation(torch.eye(2)) @ predictor.coefficients, predictor.P))
        True
    """

    y: Tensor | None = None
    """The training targets; ``None`` if they are not stored, as after one pass over the data."""

    @property
    @abc.abstractmethod
    def representation(self) -> Representation:
        """φ, a function of new points."""

    @property
    @abc.abstractmethod
    def coefficients(self) -> Tensor:
        """C, ``(*batch, p, m)``."""

    @property
    def row_weights(self) -> Tensor | None:
        """The weights of the training rows, ``(n,)``, where they differ."""
        return None

    def coefficients_of(self, values: Tensor) -> Tensor:
        """The coefficients for other ``values`` ``(n, q)`` at the training targets."""
        raise self._without_data()

    def weights(self, x: Tensor) -> Tensor:
        """w(x), the weights of the training rows in the prediction at ``x``: ``(*batch, n, t)``.

        Raises:
            TypeError: if the predictor does not store its data.
        """
        raise self._without_data()

    def _without_data(self) -> TypeError:
        kind = type(self).__name__
        return TypeError(f"{kind} does not hold its training data. Use embedding.condition(x, y), or tensors x and y.")

    def sample_rows(self, k: int, x: Tensor, seed: int | None = None) -> Tensor:
        """k training rows for each point, ``(t, k)``: ``y[rows]`` are draws of Y given X = x, for targets of any kind.

        The weights are v = 1/n + w − (Σw)/n, clipped at 0 and normalized.
        """
        return resampled_rows(self.weights(x), k, seed, self.row_weights)

    def real_targets(self) -> Tensor:
        """The training targets, one real number for each row, ``(n,)``."""
        y = self.y
        if y is None or isinstance(self, MulticlassPredictor):  # class labels have no order
            raise self._without_distribution()
        if y.numel() != y.shape[0]:
            raise TypeError(
                f"A distribution function needs one real target for each row, got shape {tuple(y.shape)}. Use "
                "expectation(g, x), weights(x) or sample_rows(k, x), or embed one target at a time."
            )
        return y.reshape(-1).to(self.coefficients)

    def mean(self, x: Tensor) -> Tensor:
        """E[Y | X = x] for the targets as an n × m matrix: ``(*batch, t, m)``."""
        return self.evaluate(self.representation.check(x))

    def evaluate(self, x: Tensor) -> Tensor:
        """:meth:`mean` at points that are checked already."""
        return self.prepare()(x)

    def prepare(self) -> LinearMap:
        """f as a function of checked points; the kernel is resolved at the first call."""
        return self._map("mean", lambda: self.coefficients)

    def _map(self, name: str, coefficients: Callable[[], Tensor]) -> LinearMap:
        maps = _MAPS.setdefault(self, {})
        linear = maps.get(name) or LinearMap(self.representation, coefficients())
        if linear.is_resolved:
            maps[name] = linear
        return linear

    def expectation(self, g: Function | Tensor, x: Tensor) -> Tensor:
        """E[g(Y) | X = x], eq. (2); see :meth:`ConditionalPredictor.expectation`.

        Raises:
            TypeError: if the predictor does not hold the training targets.
        """
        if self.y is None:
            raise self._without_data()
        n, like = self.y.shape[0], self.coefficients
        values = torch.as_tensor(g(self.y) if callable(g) else g, dtype=like.dtype, device=like.device)
        if values.dim() not in (1, 2) or values.shape[0] != n:
            shapes = f"({n},) or ({n}, q), got {tuple(values.shape)}"
            raise ValueError(f"Expected the values of g at the {n} training targets, of shape {shapes}.")
        # eq. (2): gᵀA⁻¹k(x)
        representation, coefficients = self.representation, self.coefficients_of(values.reshape(n, -1))
        expectation = LinearMap(representation, coefficients)(representation.check(x))
        return expectation.squeeze(-1) if values.dim() == 1 else expectation

    def distribution(self, x: Tensor) -> Distribution:
        """P(Y | X = x) of a real target, by one distribution function for each point; see the class returned."""
        support, F, _ = self._cumulative
        map = self._map("distribution", lambda: self._cumulative[2])
        return Distribution(support, F + map(self.representation.check(x)))

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
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> embedding.condition(torch.eye(2), torch.arange(2)).probabilities(torch.eye(2)).sum(-1)
        tensor([1., 1.])
    """

    embedding: MulticlassEmbedding

    @property
    def num_classes(self) -> int:
        """m, the number of classes."""
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
        """The entropy of Y given X = x in nats, ``(*batch, t)``: h̃ of eq. (33), never negative, or ĥ of eq. (37).

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
        """E[g(Y) | X = x], eq. (2), for a function g of class numbers, or its values ``(m,)``, ``(m, q)``, ``(n,)``.

        Raises:
            TypeError: if ``g`` is neither a function of class numbers nor values.
        """
        classes = torch.arange(self.num_classes, device=x.device if isinstance(x, Tensor) else None)
        try:
            values = torch.as_tensor(g(classes) if callable(g) else g, device=classes.device)
        except (RuntimeError, TypeError, ValueError) as error:
            raise TypeError(f"Expected g as a function of class numbers or its values, got {g!r} ({error}).") from error
        if values.dim() not in (1, 2) or values.shape[0] != self.num_classes:
            return super().expectation(values, x)  # type: ignore[safe-super]
        F = self.decision_probabilities(x)
        return F @ values.to(F)
