"""What an optimizer must satisfy."""

from __future__ import annotations

import gpytorch
import torch
from torch import Tensor

from ..embeddings import MulticlassEmbedding
from ..learning import FitResult, Optimizer, fit
from ..objectives import LeaveOneOutRisk, RademacherComplexity


class OptimizerContract:
    """Inherit and write :meth:`make_optimizer`; it learns a lengthscale and λ on forty points.

    Example:
        >>> import kernel_embed as ke
        >>> from kernel_embed.testing import OptimizerContract
        >>> class TestMine(OptimizerContract):
        ...     def make_optimizer(self):
        ...         return ke.LBFGS(num_restarts=1)
    """

    def make_optimizer(self) -> Optimizer:
        """The optimizer.

        Raises:
            TypeError: if the subclass does not write it.
        """
        raise TypeError("Expected a method make_optimizer that returns an optimizer, got none. Write it.")

    def _fit(self, seed: int = 0) -> tuple[FitResult, MulticlassEmbedding]:
        x = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
        y: Tensor = (torch.sin(9.0 * x.squeeze(-1)) > 0).long()
        embedding = MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        objective = LeaveOneOutRisk(0.01) + RademacherComplexity("4e/n")
        return fit(embedding, objective, x, y, optimizer=self.make_optimizer(), seed=seed), embedding

    def test_it_lowers_the_objective(self) -> None:
        """Below the first value that it recorded; the result is the lowest one."""
        result, _ = self._fit()
        assert result.history, "Expected at least one record, got none. Call problem.record(...)."
        values = [record["value"] for record in result.history]
        assert result.value == min(values), f"Expected the lowest value {min(values):.6g}, got {result.value:.6g}."
        assert result.value < values[0], f"Expected less than the first value {values[0]:.6g}, got {result.value:.6g}."

    def test_a_seed_is_honored(self) -> None:
        """The same seed gives the same parameters."""
        (_, one), (_, two) = self._fit(seed=3), self._fit(seed=3)
        for (name, a), b in zip(one.named_parameters(), two.parameters(), strict=True):
            assert torch.equal(a, b), f"Expected the same {name} from the same seed, got {a.tolist()} and {b.tolist()}."

    def test_it_says_how_it_ended(self) -> None:
        """In words, and whether it converged."""
        result, _ = self._fit()
        assert isinstance(result.converged, bool), f"Expected converged to be a bool, got {type(result.converged)}."
        assert result.message, "Expected a message of how the search ended, got none."
