"""Posteriors read back from disk, with the answers that belong to their embedding."""

from __future__ import annotations

import os
from typing import overload

import gpytorch

from ..archive import MAX_BYTES
from ..embeddings import (
    BayesianMeanEmbedding,
    ConditionalEmbedding,
    ConditionedEmbedding,
    ConditionedMeanEmbedding,
    ConditionedMulticlass,
    MulticlassEmbedding,
)
from ..objectives import Objective
from . import archive
from .posterior import Posterior
from .potential import AnyObjective
from .predictors import ConditionalPosterior, MeanPosterior, MulticlassPosterior, posterior_class


@overload
def load_posterior(
    path: str | os.PathLike[str],
    embedding: MulticlassEmbedding,
    objective: Objective[ConditionedMulticlass],
    *,
    max_bytes: int | None = ...,
) -> MulticlassPosterior:
    """Of a multiclass embedding."""


@overload
def load_posterior(
    path: str | os.PathLike[str],
    embedding: ConditionalEmbedding,
    objective: Objective[ConditionedEmbedding],
    *,
    max_bytes: int | None = ...,
) -> ConditionalPosterior:
    """Of a conditional embedding."""


@overload
def load_posterior(
    path: str | os.PathLike[str],
    embedding: BayesianMeanEmbedding,
    objective: Objective[ConditionedMeanEmbedding],
    *,
    max_bytes: int | None = ...,
) -> MeanPosterior:
    """Of a mean embedding."""


@overload
def load_posterior(
    path: str | os.PathLike[str],
    embedding: gpytorch.Module,
    objective: AnyObjective,
    *,
    max_bytes: int | None = ...,
) -> Posterior:
    """Of any other."""


def load_posterior(
    path: str | os.PathLike[str],
    embedding: gpytorch.Module,
    objective: AnyObjective,
    *,
    max_bytes: int | None = MAX_BYTES,
) -> Posterior:
    """Read a posterior that :meth:`kernel_embed.posteriors.Posterior.save` wrote.

    Args:
        path: the file.
        embedding: one built like that which was sampled; it is not changed.
        objective: the same as then, which is checked.
        max_bytes: the largest file that is read, 4 GiB by default; ``None`` for any size.

    Returns:
        The posterior, of the same class and with the same draws.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, or belongs to another embedding or objective.

    Example:
        >>> import tempfile, torch, kernel_embed as ke
        >>> x = torch.linspace(-1, 1, 20, dtype=torch.float64).unsqueeze(-1)
        >>> embedding, objective = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel()), ke.EmbeddingEvidence()
        >>> posterior = ke.sample_posterior(
        ...     embedding, objective, x, num_samples=20, num_chains=1, sampler=ke.posteriors.Laplace()
        ... )
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     posterior.save(f"{folder}/posterior.npz")
        ...     again = ke.load_posterior(f"{folder}/posterior.npz", embedding, objective)
        >>> torch.equal(again.mean(x), posterior.mean(x))
        True
    """
    potential, restored = archive.read(path, embedding, objective, max_bytes)
    return posterior_class(embedding)(potential, *restored)
