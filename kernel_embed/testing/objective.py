"""What an objective must satisfy."""

from __future__ import annotations

import copy
from typing import Any

import gpytorch
import torch
from torch import Tensor

from ..embeddings import MulticlassEmbedding
from ..objectives import Objective
from .comparison import check_close, differences, gradients, named_parameters


class ObjectiveContract:
    """Inherit and write :meth:`make_objective`; for other than class labels also the embedding and the data.

    Attributes:
        tolerance: of the gradient against differences, relative.

    Example:
        >>> import kernel_embed as ke
        >>> class TestRisk(ObjectiveContract):
        ...     def make_objective(self):
        ...         return ke.LeaveOneOutRisk()
        >>> TestRisk().test_gradient_is_that_of_differences()
    """

    tolerance = 1e-5

    def make_objective(self) -> Objective[Any]:
        """The objective.

        Raises:
            TypeError: if the subclass does not write it.
        """
        raise TypeError("Expected a method make_objective that returns an objective, got none. Write it.")

    def make_embedding(self) -> gpytorch.Module:
        """What it is evaluated for: a multiclass embedding with an ARD Matérn kernel by default."""
        kernel = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=2)
        kernel.lengthscale = torch.tensor([0.7, 1.2])
        return MulticlassEmbedding(kernel, num_classes=3, regularization=0.02).double()

    def make_data(self) -> tuple[Tensor, Tensor | None]:
        """x and y; ``None`` for an embedding without targets."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(15, 2, generator=generator, dtype=torch.float64)
        return x, torch.arange(15) % 3

    def _loss(self, objective: Objective[Any], embedding: gpytorch.Module) -> Tensor:
        x, y = self.make_data()
        return objective(embedding, x) if y is None else objective(embedding, x, y)

    def test_it_is_a_finite_number(self) -> None:
        """A scalar for an embedding without batch dimensions, the same when asked again."""
        objective, embedding = self.make_objective(), self.make_embedding()
        value = self._loss(objective, embedding)
        assert value.shape == (), f"Expected a scalar from {objective!r}, got shape {tuple(value.shape)}."
        assert bool(torch.isfinite(value)), f"Expected a finite value from {objective!r}, got {value.item()}."
        check_close(f"{objective!r} evaluated again", self._loss(objective, embedding), value, 0.0)

    def test_gradient_is_that_of_differences(self) -> None:
        """For every parameter of the embedding."""
        objective, embedding = self.make_objective(), self.make_embedding()
        named = named_parameters(embedding)
        ours = gradients(self._loss(objective, embedding), list(named.values()))
        others = differences(lambda: self._loss(objective, embedding), list(named.values()))
        for name, one, other in zip(named, ours, others, strict=True):
            check_close(f"the gradient of {objective!r} in {name}", one, other, self.tolerance)

    def test_it_changes_nothing(self) -> None:
        """The embedding has the same parameters and buffers after an evaluation."""
        objective, embedding = self.make_objective(), self.make_embedding()
        before = copy.deepcopy(embedding.state_dict())
        self._loss(objective, embedding)
        for name, value in embedding.state_dict().items():
            assert torch.equal(value, before[name]), f"Expected {objective!r} to leave {name} alone, got another value."

    def test_objectives_add_and_scale(self) -> None:
        """(2a + a)(·) = 3 a(·), as a value and in its terms."""
        objective, embedding = self.make_objective(), self.make_embedding()
        value = self._loss(objective, embedding)
        check_close(
            f"2 * {objective!r} + {objective!r}", self._loss(2.0 * objective + objective, embedding), 3.0 * value
        )
        assert repr(objective), "Expected an objective with a repr, got an empty one."
