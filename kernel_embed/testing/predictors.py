"""What everything must answer that stands for P(Y | X), exact or not."""

from __future__ import annotations

import torch
from torch import Tensor

from ..embeddings import ConditionalPredictor, MulticlassPredictor
from .comparison import check_close


class PredictorContract:
    """Inherit and write :meth:`make_answers` and :meth:`make_points`.

    Attributes:
        holds_targets: whether the expectation of any g(Y) can be asked for.
        tolerance: relative.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from kernel_embed.testing import PredictorContract
        >>> class TestMine(PredictorContract):
        ...     def make_points(self):
        ...         return torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
        ...     def make_answers(self):
        ...         x = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
        ...         return ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).double().condition(x, x)
    """

    holds_targets = True
    tolerance = 1e-8

    def make_answers(self) -> ConditionalPredictor:
        """Answers without batch dimensions.

        Raises:
            TypeError: if the subclass does not write it.
        """
        raise TypeError("Expected a method make_answers that returns answers, got none. Write it.")

    def make_points(self) -> Tensor:
        """New points to ask about, ``(t, d)``.

        Raises:
            TypeError: if the subclass does not write it.
        """
        raise TypeError("Expected a method make_points that returns points, got none. Write it.")

    def test_the_mean_is_a_matrix(self) -> None:
        """``mean(x)`` has one row for each point."""
        x = self.make_points()
        mean = self.make_answers().mean(x)
        assert mean.dim() == 2, f"Expected a mean of shape (t, m), got {tuple(mean.shape)}."
        assert mean.shape[0] == x.shape[0], f"Expected {x.shape[0]} rows of the mean, got {mean.shape[0]}."
        assert bool(torch.isfinite(mean).all()), "Expected a finite mean, got other values."

    def test_points_are_answered_one_by_one_as_together(self) -> None:
        """The answer at a point does not depend on what else is asked, with gradients or without."""
        answers, x = self.make_answers(), self.make_points()
        together = answers.mean(x)
        check_close(
            "the mean of single points", torch.cat([answers.mean(row[None]) for row in x]), together, self.tolerance
        )
        with torch.no_grad():
            check_close("the mean without gradients", answers.mean(x), together, self.tolerance)

    def test_the_same_question_has_the_same_answer(self) -> None:
        """Nothing is random, and nothing is used up."""
        answers, x = self.make_answers(), self.make_points()
        check_close("the mean asked again", answers.mean(x), answers.mean(x), 0.0)

    def test_expectations_are_linear_in_g(self) -> None:
        """E[a g + b h] = a E[g] + b E[h], and E of a vector is a vector; or a refusal in words."""
        answers, x = self.make_answers(), self.make_points()

        def g(y: Tensor) -> Tensor:
            return y.double().reshape(len(y), -1)[:, 0]

        if not self.holds_targets:
            try:
                answers.expectation(g, x)
            except TypeError as error:
                assert str(error)  # noqa: PT017 — pytest is not imported here
                return
            raise AssertionError(f"Expected {type(answers).__name__} to refuse E[g(Y)], got an answer.")
        one, two = answers.expectation(g, x), answers.expectation(lambda y: g(y).square(), x)
        both = answers.expectation(lambda y: torch.stack([g(y), g(y).square()], dim=-1), x)
        check_close("E of two functions", both, torch.stack([one, two], dim=-1), self.tolerance)
        mixed = answers.expectation(lambda y: 2.0 * g(y) - 0.5 * g(y).square(), x)
        check_close("E of a mixture of functions", mixed, 2.0 * one - 0.5 * two, self.tolerance)


class MulticlassPredictorContract(PredictorContract):
    """The same for class labels; write ``make_answers`` and ``make_points``.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from kernel_embed.testing import MulticlassPredictorContract
        >>> class TestMine(MulticlassPredictorContract):
        ...     def make_points(self):
        ...         return torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
        ...     def make_answers(self):
        ...         x = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
        ...         embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=3).double()
        ...         return embedding.condition(x, torch.arange(9) % 3)
    """

    def make_answers(self) -> MulticlassPredictor:
        """Answers about classes.

        Raises:
            TypeError: if the subclass does not write it.
        """
        raise TypeError("Expected a method make_answers that returns answers about classes, got none. Write it.")

    def test_probabilities_are_probabilities(self) -> None:
        """Between 0 and 1, and 1 in all; a prediction is one of the classes."""
        answers, x = self.make_answers(), self.make_points()
        p, m = answers.probabilities(x), answers.num_classes
        assert p.shape == (x.shape[0], m), f"Expected probabilities of shape {(x.shape[0], m)}, got {tuple(p.shape)}."
        assert bool(((p >= 0) & (p <= 1)).all()), "Expected probabilities between 0 and 1, got others."
        check_close("the sum of the probabilities", p.sum(-1), torch.ones_like(p[:, 0]), self.tolerance)
        labels = answers.predict(x)
        assert bool(((labels >= 0) & (labels < m)).all()), f"Expected classes from 0 to {m - 1}, got others."

    def test_decision_probabilities_are_the_mean(self) -> None:
        """Of the one-hot labels, eq. (5)."""
        answers, x = self.make_answers(), self.make_points()
        check_close("the decision probabilities", answers.decision_probabilities(x), answers.mean(x), self.tolerance)

    def test_entropy_is_between_zero_and_log_m(self) -> None:
        """In nats."""
        answers, x = self.make_answers(), self.make_points()
        entropy, highest = answers.entropy(x), torch.tensor(float(answers.num_classes)).log()
        assert bool(((entropy >= -1e-9) & (entropy <= highest + 1e-6)).all()), (
            "Expected 0 ≤ entropy ≤ log m, got others."
        )

    def test_expectations_of_classes(self) -> None:
        """E[g(Y)] is the sum over classes, whether g is a function or its values."""
        answers, x = self.make_answers(), self.make_points()
        values = torch.arange(answers.num_classes, dtype=torch.float64).square()
        expected = answers.decision_probabilities(x).double() @ values
        check_close("E[g(Y)] by values", answers.expectation(values, x).double(), expected, self.tolerance)
        by_function = answers.expectation(lambda c: c.double().square(), x)
        check_close("E[g(Y)] by a function", by_function.double(), expected, self.tolerance)

    def test_expectations_are_linear_in_g(self) -> None:
        """Every answer about classes knows the expectation of g, with or without the targets."""
        holds = self.holds_targets
        try:
            self.holds_targets = True
            super().test_expectations_are_linear_in_g()
        finally:
            self.holds_targets = holds
