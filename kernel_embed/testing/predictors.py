"""Contracts of predictors of P(Y | X), exact or approximate."""

from __future__ import annotations

import torch
from torch import Tensor

from ..embeddings import ConditionalPredictor, MulticlassPredictor
from .embedding import check_close


class PredictorContract:
    """Inherit and define :meth:`make_predictor` and :meth:`make_points`.

    Attributes:
        holds_targets: whether the expectation of any g(Y) is available.
        tolerance: relative.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from kernel_embed.testing import PredictorContract
        >>> class TestMine(PredictorContract):
        ...     def make_points(self):
        ...         return torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
        ...     def make_predictor(self):
        ...         x = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
        ...         return ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).double().condition(x, x)
    """

    holds_targets = True
    tolerance = 1e-8

    def make_predictor(self) -> ConditionalPredictor:
        """A predictor without batch dimensions.

        Raises:
            TypeError: if the subclass does not define it.
        """
        raise TypeError("Define make_predictor in your subclass; it returns a predictor.")

    def make_points(self) -> Tensor:
        """New points, ``(t, d)``.

        Raises:
            TypeError: if the subclass does not define it.
        """
        raise TypeError("Define make_points in your subclass; it returns points.")

    def test_the_mean_is_a_matrix(self) -> None:
        """``mean(x)`` has one row for each point."""
        x = self.make_points()
        mean = self.make_predictor().mean(x)
        assert mean.dim() == 2, f"Expected a mean of shape (t, m), got {tuple(mean.shape)}."
        assert mean.shape[0] == x.shape[0], f"Expected {x.shape[0]} rows of the mean, got {mean.shape[0]}."
        assert bool(torch.isfinite(mean).all()), "Expected a finite mean, got other values."

    def test_points_are_independent(self) -> None:
        """The prediction at a point does not depend on the other points or on gradients."""
        predictor, x = self.make_predictor(), self.make_points()
        together = predictor.mean(x)
        check_close(
            "the mean of single points", torch.cat([predictor.mean(row[None]) for row in x]), together, self.tolerance
        )
        with torch.no_grad():
            check_close("the mean without gradients", predictor.mean(x), together, self.tolerance)

    def test_predictions_are_repeatable(self) -> None:
        """Nothing is random or used up."""
        predictor, x = self.make_predictor(), self.make_points()
        check_close("the mean evaluated again", predictor.mean(x), predictor.mean(x), 0.0)

    def test_expectations_are_linear_in_g(self) -> None:
        """E[a g + b h] = a E[g] + b E[h], and E of a vector is a vector; or a TypeError with a message."""
        predictor, x = self.make_predictor(), self.make_points()

        def g(y: Tensor) -> Tensor:
            return y.double().reshape(len(y), -1)[:, 0]

        if not self.holds_targets:
            try:
                predictor.expectation(g, x)
            except TypeError as error:
                assert str(error)  # noqa: PT017 — pytest is not imported here
                return
            raise AssertionError(f"Expected {type(predictor).__name__} to reject E[g(Y)], but it returned a value.")
        one, two = predictor.expectation(g, x), predictor.expectation(lambda y: g(y).square(), x)
        both = predictor.expectation(lambda y: torch.stack([g(y), g(y).square()], dim=-1), x)
        check_close("E of two functions", both, torch.stack([one, two], dim=-1), self.tolerance)
        mixed = predictor.expectation(lambda y: 2.0 * g(y) - 0.5 * g(y).square(), x)
        check_close("E of a mixture of functions", mixed, 2.0 * one - 0.5 * two, self.tolerance)


class MulticlassPredictorContract(PredictorContract):
    """The same for class labels; write ``make_predictor`` and ``make_points``.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from kernel_embed.testing import MulticlassPredictorContract
        >>> class TestMine(MulticlassPredictorContract):
        ...     def make_points(self):
        ...         return torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
        ...     def make_predictor(self):
        ...         x = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
        ...         embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=3).double()
        ...         return embedding.condition(x, torch.arange(9) % 3)
    """

    def make_predictor(self) -> MulticlassPredictor:
        """A predictor of classes.

        Raises:
            TypeError: if the subclass does not define it.
        """
        raise TypeError("Define make_predictor in your subclass; it returns a predictor of classes.")

    def test_probabilities_are_probabilities(self) -> None:
        """Between 0 and 1, and 1 in all; a prediction is one of the classes."""
        predictor, x = self.make_predictor(), self.make_points()
        p, m = predictor.probabilities(x), predictor.num_classes
        assert p.shape == (x.shape[0], m), f"Expected probabilities of shape {(x.shape[0], m)}, got {tuple(p.shape)}."
        assert bool(((p >= 0) & (p <= 1)).all()), "Expected probabilities between 0 and 1, got others."
        check_close("the sum of the probabilities", p.sum(-1), torch.ones_like(p[:, 0]), self.tolerance)
        labels = predictor.predict(x)
        assert bool(((labels >= 0) & (labels < m)).all()), f"Expected classes from 0 to {m - 1}, got others."

    def test_decision_probabilities_are_the_mean(self) -> None:
        """Of the one-hot labels, eq. (5)."""
        predictor, x = self.make_predictor(), self.make_points()
        check_close(
            "the decision probabilities", predictor.decision_probabilities(x), predictor.mean(x), self.tolerance
        )

    def test_entropy_is_between_zero_and_log_m(self) -> None:
        """In nats."""
        predictor, x = self.make_predictor(), self.make_points()
        entropy, highest = predictor.entropy(x), torch.tensor(float(predictor.num_classes)).log()
        assert bool(((entropy >= -1e-9) & (entropy <= highest + 1e-6)).all()), (
            "Expected 0 ≤ entropy ≤ log m, got others."
        )

    def test_expectations_of_classes(self) -> None:
        """E[g(Y)] is the sum over classes, whether g is a function or its values."""
        predictor, x = self.make_predictor(), self.make_points()
        values = torch.arange(predictor.num_classes, dtype=torch.float64).square()
        expected = predictor.decision_probabilities(x).double() @ values
        check_close("E[g(Y)] by values", predictor.expectation(values, x).double(), expected, self.tolerance)
        by_function = predictor.expectation(lambda c: c.double().square(), x)
        check_close("E[g(Y)] by a function", by_function.double(), expected, self.tolerance)

    def test_expectations_are_linear_in_g(self) -> None:
        """Predictors of classes have expectations of g with or without the targets."""
        holds = self.holds_targets
        try:
            self.holds_targets = True
            super().test_expectations_are_linear_in_g()
        finally:
            self.holds_targets = holds
