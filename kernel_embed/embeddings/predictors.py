r"""What everything answers that stands for P(Y | X), whatever it holds.

An exact embedding, one through features, a Nyström approximation, a solution by iteration, rows on several machines, a
few points in place of all and an average over a posterior answer the same questions under the same names. Most of them
are linear: they know a representation of new points and coefficients, and that is all a subclass has to supply,

.. math::  \mathbb E[Y \mid X = x] \approx \mathbf f(x) = \mathbf C^\top \boldsymbol\varphi(x),
           \qquad \boldsymbol\varphi(x) = \mathbf k(x) \text{ or the explicit features of } x .
"""

from __future__ import annotations

import abc
import functools
import weakref
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ..validation import check_finite, check_tensor
from .distribution import Distribution, RealTargetPredictor, indicators, no_distribution, support_of
from .representation import Function, LinearMap, Representation

Entropy = Literal["clip-normalized", "expected-information"]

_MAPS: weakref.WeakKeyDictionary[LinearPredictor, dict[str, LinearMap]] = weakref.WeakKeyDictionary()
"""Resolved maps; kept apart from the predictors, which are copied, pickled and saved without them."""


class ConditionalPredictor(RealTargetPredictor, abc.ABC):
    """The questions about P(Y | X) for targets of any kind.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.rand(30, 1, dtype=torch.float64)
        >>> answers = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).double().condition(x, 2 * x)
        >>> isinstance(answers, ke.embeddings.ConditionalPredictor)
        True
        >>> answers.expectation(lambda y: y.square(), x[:3]).shape           # E[Y² | X = x]
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
    """Answers of the form f(x) = Cᵀφ(x): a subclass supplies the two.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.rand(30, 1, dtype=torch.float64)
        >>> answers = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).double().condition(x, 2 * x)
        >>> by_hand = answers.representation(x[:3]) @ answers.coefficients
        >>> bool(torch.allclose(by_hand, answers.mean(x[:3])))
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
    def targets_held(self) -> Tensor | None:
        """The training targets, for answers that still hold them; ``None`` for those that went over their data once."""
        return None

    @property
    def row_weights(self) -> Tensor | None:
        """The weights of the training rows, ``(n,)``, where they differ."""
        return None

    def coefficients_of(self, values: Tensor) -> Tensor:
        """The coefficients for other ``values`` ``(n, q)`` at the training targets; only with data that are held.

        Raises:
            TypeError: if the answers do not hold their data.
        """
        raise TypeError(
            f"Expected answers that hold their data, got {type(self).__name__}. "
            "Ask what embedding.condition(x, y) returns."
        )

    def mean(self, x: Tensor) -> Tensor:
        """E[Y | X = x] for the targets as an n × m matrix: ``(*batch, t, m)``."""
        return self.evaluate(self.representation.check(x))

    def evaluate(self, x: Tensor) -> Tensor:
        """:meth:`mean` at points that are checked already."""
        return self._map("mean", lambda: self.coefficients)(x)

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
            TypeError: if the answers do not hold the training targets.
            ValueError: if ``g`` does not return one value, or one row, for each training target.
        """
        y = self.targets_held
        if y is None:
            raise TypeError(
                f"Expected answers that hold the training targets for an expectation of g, got {type(self).__name__}, "
                "which keeps coefficients alone. Ask embedding.condition(x, y), or approximate(embedding, x, y, ...) "
                "with tensors."
            )
        like = self.coefficients
        values = torch.as_tensor(g(y) if callable(g) else g, dtype=like.dtype, device=like.device)
        n = y.shape[0]
        if values.dim() == 0 or values.shape[0] != n or values.dim() > 2:
            raise ValueError(
                f"Expected the values of g at the {n} training targets, of shape ({n},) or ({n}, q), got "
                f"{tuple(values.shape)}. "
                "Evaluate g at the training targets, in their order."
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
        y = real_targets(self)
        support = support_of(y)
        G, F = indicators(y, support, self.row_weights)
        return support, F, self.coefficients_of(G)


class MulticlassPredictor(ConditionalPredictor):
    """The questions about class labels, for anything whose mean is that of their one-hot vectors.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1])
        >>> answers = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2).condition(x, y)
        >>> isinstance(answers, ke.embeddings.MulticlassPredictor), answers.probabilities(x).sum(-1)
        (True, tensor([1., 1.]))
    """

    distribution = RealTargetPredictor.distribution  # class labels have probabilities, and no order

    @property
    @abc.abstractmethod
    def num_classes(self) -> int:
        """m."""

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
            return _information(self.probabilities(x)).sum(dim=-1)
        if kind == "expected-information":
            # eqs. (36), (37): Σ_i û_x(y_i) w_i(x) = Σ_c û_x(c) p̂_c(x), û_x(c) = −log p̂_c(x) where p̂_c(x) > 0, else 0
            return _information(self.decision_probabilities(x)).sum(dim=-1)
        raise ValueError(
            f"Expected kind 'clip-normalized' or 'expected-information', got {kind!r}. Choose one of the two."
        )

    def expectation(self, g: Function | Tensor, x: Tensor) -> Tensor:
        """E[g(Y) | X = x], eq. (2).

        Args:
            g: a function of class numbers, or its values ``(m,)`` or ``(m, q)`` at the classes; for answers that hold
                their data also its values at the training labels.
            x: points of shape ``(t, d)``.

        Raises:
            TypeError: if ``g`` is neither a function of class numbers nor values.
        """
        classes = torch.arange(self.num_classes, device=x.device if isinstance(x, Tensor) else None)
        try:
            values = torch.as_tensor(g(classes) if callable(g) else g)
        except (RuntimeError, TypeError, ValueError) as error:
            raise TypeError(
                f"Expected g as a function of class numbers or its values, got {g!r} ({error}). Give one of them."
            ) from error
        if values.dim() not in (1, 2) or values.shape[0] != self.num_classes:
            return super().expectation(values, x)  # type: ignore[safe-super]
        F = self.decision_probabilities(x)
        return F @ values.to(F)


def real_targets(answers: LinearPredictor) -> Tensor:
    """The targets held by ``answers``, one real number for each row, ``(n,)``; a clear error where they are not."""
    y = answers.targets_held
    if y is None or isinstance(answers, MulticlassPredictor):
        raise no_distribution(answers)
    if y.numel() != y.shape[0]:
        raise TypeError(
            f"Expected one real target for each row for a distribution function, got shape {tuple(y.shape)}. "
            "Ask for expectation(g, x), weights(x) or sample_rows(k, x), or embed one target at a time."
        )
    return y.reshape(-1).to(answers.coefficients)


def clip_normalize(p: Tensor) -> Tensor:
    """eq. (6): max{p_c, 0} / Σ_j max{p_j, 0}; uniform where no entry is positive.

    Args:
        p: decision probabilities, ``(*batch, t, m)``.

    Returns:
        Probabilities of the same shape, with sums of one.

    Raises:
        TypeError: if ``p`` is not a tensor of real numbers.
        ValueError: if ``p`` has no rows, integers, or values that are not finite.

    Example:
        >>> from kernel_embed.embeddings import clip_normalize
        >>> clip_normalize(torch.tensor([[1.5, 0.5, -0.2]]))
        tensor([[0.7500, 0.2500, 0.0000]])
    """
    check_tensor(p, "p")
    check_finite(p, "p")
    if p.dim() == 0 or p.shape[-1] == 0 or not p.is_floating_point():
        raise ValueError(f"Expected rows of decimals in p, got shape {tuple(p.shape)} of {p.dtype}. Give p.double().")
    positive = p.clamp_min(0.0)
    total = positive.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, positive / total.clamp_min(torch.finfo(p.dtype).tiny), 1.0 / p.shape[-1])


def _information(p: Tensor) -> Tensor:
    """−p log p where p > 0, else 0, with a finite derivative everywhere."""
    return torch.where(p > 0, -p * p.clamp_min(torch.finfo(p.dtype).tiny).log(), 0.0)
