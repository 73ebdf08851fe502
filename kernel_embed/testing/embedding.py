"""Contract of embeddings: attached ones are live, conditioned ones are frozen."""

from __future__ import annotations

import copy
import pickle

import torch
from torch import Tensor

from ..embeddings import ConditionalEmbedding, ConditionalPredictor
from .comparison import check_close, gradients, named_parameters


class EmbeddingContract:
    """Inherit and define :meth:`make_embedding`, an embedding of targets given inputs, and where needed the data.

    Attributes:
        tolerance: relative.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from kernel_embed.testing import EmbeddingContract
        >>> class TestMine(EmbeddingContract):
        ...     def make_embedding(self):
        ...         return ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).double()
    """

    tolerance = 1e-8

    def make_embedding(self) -> ConditionalEmbedding:
        """The embedding, in float64 and without batch dimensions.

        Raises:
            TypeError: if the subclass does not define it.
        """
        raise TypeError("Define make_embedding in your subclass; it returns an embedding.")

    def make_data(self) -> tuple[Tensor, Tensor]:
        """x and y."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(12, 2, generator=generator, dtype=torch.float64)
        return x, torch.arange(12) % 2

    def make_points(self) -> Tensor:
        """New points."""
        return torch.randn(5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def _mean(self, conditioned: ConditionalPredictor) -> Tensor:
        return conditioned.mean(self.make_points())

    def test_attached_and_conditioned_embeddings_agree(self) -> None:
        """The same numbers, from the live parameters and from their copy."""
        embedding, data = self.make_embedding(), self.make_data()
        check_close(
            "the conditioned mean",
            self._mean(embedding.condition(*data)),
            self._mean(embedding.attach(*data)),
            self.tolerance,
        )

    def test_an_attached_embedding_is_live(self) -> None:
        """Its mean has a gradient in the parameters, and it holds no copy."""
        embedding = self.make_embedding()
        bound = embedding.attach(*self.make_data())
        assert bound.embedding is embedding, "attach must hold the embedding itself, not a copy."
        slopes = gradients(self._mean(bound).square().sum(), list(named_parameters(embedding).values()))
        assert any(bool(g.abs().sum() > 0) for g in slopes), (
            "Expected gradients in the parameters through attach, got none."
        )

    def test_a_conditioned_embedding_is_frozen(self) -> None:
        """Later learning does not change it, and its mean has no gradient in the parameters."""
        embedding = self.make_embedding()
        conditioned = embedding.condition(*self.make_data())
        before = self._mean(conditioned)
        assert not before.requires_grad, "A conditioned embedding must not require gradients."
        with torch.no_grad():
            for parameter in embedding.parameters():
                parameter.add_(0.3)
        check_close("the conditioned mean after the embedding changed", self._mean(conditioned), before, 0.0)

    def test_conditioning_changes_nothing(self) -> None:
        """The embedding is the same after ``condition``."""
        embedding = self.make_embedding()
        before = copy.deepcopy(embedding.state_dict())
        self._mean(embedding.condition(*self.make_data()))
        for name, value in embedding.state_dict().items():
            assert torch.equal(value, before[name]), f"Expected condition not to change {name}."

    def test_a_conditioned_embedding_can_be_copied(self) -> None:
        """By ``copy.deepcopy`` and by pickle, with the same predictor."""
        conditioned = self.make_embedding().condition(*self.make_data())
        expected = self._mean(conditioned)
        for what, twin in (
            ("deepcopy", copy.deepcopy(conditioned)),
            ("pickle", pickle.loads(pickle.dumps(conditioned))),
        ):
            check_close(f"the mean after {what}", self._mean(twin), expected, self.tolerance)
