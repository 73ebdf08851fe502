"""Posteriors as files of plain arrays and settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, overload

import gpytorch
import torch
from torch import Tensor

from ..archive import MAX_BYTES, read_plain, write_plain
from ..embeddings import BayesianMeanEmbedding, ConditionalEmbedding, MulticlassEmbedding
from ..runtime import cpu_by_default
from .draws import Draws
from .posterior import Posterior
from .potential import AnyObjective, Potential
from .predictors import ConditionalPosterior, MeanPosterior, MulticlassPosterior
from .sample import Path, posterior_class

FIELDS = {
    "seconds": float,
    "num_evaluations": int,
    "num_rejected": int,
    "interrupted": bool,
    "log_evidence": float | None,
    "is_approximate": bool,
}  # fields of :class:`Draws` in a file, besides its tensors
TRAJECTORIES = ("energy", "depth")  # tensors that only samplers with trajectories have


def write(path: Path, potential: Potential, draws: Draws, method: str, weights: Tensor) -> None:
    """Write draws, weights, data and settings to ``path``; the embedding itself is not written."""
    settings = {
        "method": method,
        "objective": repr(potential.objective),
        "temperature": float(potential.temperature),
        "power": float(potential.power),
        "shapes": _shapes(potential),
        "num_classes": getattr(potential.embedding, "num_classes", None),
        **{name: getattr(draws, name) for name in FIELDS},
    }
    tensors = {"u": draws.u, "log_density": draws.log_density, "diverging": draws.diverging, "weights": weights}
    tensors |= {name: value for name in TRAJECTORIES if (value := getattr(draws, name)) is not None}
    tensors |= dict(zip(("x", "y"), potential.data, strict=False))
    # Everything that is not sampled: fixed parameters, and buffers such as random features.
    state = {name: value.detach().cpu() for name, value in potential.embedding.state_dict().items()}
    numbers = {name: value.detach().cpu() for name, value in tensors.items()}
    write_plain(path, "posterior", {"settings": settings, "state": state, **numbers})


@overload
def load_posterior(
    path: Path, embedding: MulticlassEmbedding, objective: AnyObjective, *, max_bytes: int | None = ...
) -> MulticlassPosterior:
    """The posterior of a multiclass embedding."""


@overload
def load_posterior(
    path: Path, embedding: ConditionalEmbedding, objective: AnyObjective, *, max_bytes: int | None = ...
) -> ConditionalPosterior:
    """The posterior of a conditional embedding."""


@overload
def load_posterior(
    path: Path, embedding: BayesianMeanEmbedding, objective: AnyObjective, *, max_bytes: int | None = ...
) -> MeanPosterior:
    """The posterior of a Bayesian mean embedding."""


@overload
def load_posterior(
    path: Path, embedding: gpytorch.Module, objective: AnyObjective, *, max_bytes: int | None = ...
) -> Posterior:
    """The posterior of an embedding whose class a type checker does not know."""


@cpu_by_default()
def load_posterior(
    path: Path, embedding: gpytorch.Module, objective: AnyObjective, *, max_bytes: int | None = MAX_BYTES
) -> Posterior:
    """Read a posterior that :meth:`kernel_embed.posteriors.Posterior.save` wrote.

    Args:
        path: the file.
        embedding: an embedding built like the one that was sampled; it is not changed.
        objective: the objective that was sampled; another one is an error.
        max_bytes: the largest file that is read, 4 GiB by default; ``None`` for any size.

    Returns:
        The posterior, of the same class and with the same draws.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, or belongs to another embedding or objective.

    Example:
        >>> import tempfile, kernel_embed as ke
        >>> embedding, objective = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel()), ke.EmbeddingEvidence()
        >>> posterior = ke.sample_posterior(embedding, objective, torch.randn(20, 1), sampler=ke.Laplace())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     posterior.save(f"{folder}/posterior.npz")
        ...     again = ke.load_posterior(f"{folder}/posterior.npz", embedding, objective)
        >>> torch.equal(again.draws.u, posterior.draws.u)
        True
    """
    content = read_plain(path, "posterior", max_bytes)
    try:
        settings = _checked(content)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is not a valid posterior. {error} Sample and save it again.") from error
    if settings["objective"] != repr(objective):
        raise ValueError(f"{path} was sampled under {settings['objective']}. Give the objective it had.")
    classes = getattr(embedding, "num_classes", None)
    if settings["num_classes"] != classes:
        raise ValueError(f"{path} has num_classes={settings['num_classes']}, the embedding {classes}. Make them equal.")
    exponents = settings["temperature"], settings["power"]
    potential = Potential(embedding, objective, content["x"], content.get("y"), *exponents)
    if _shapes(potential) != settings["shapes"] or content["u"].shape[-1] != potential.dimension:
        raise ValueError(
            f"{path} has the parameters {settings['shapes']} and draws {tuple(content['u'].shape)}, the embedding has "
            f"{_shapes(potential)}. Build the embedding in the same way as for sampling."
        )
    try:
        potential.embedding.load_state_dict(content["state"])
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} has the state of another embedding: {error}. Build the same one again.") from error
    fields = {name: settings[name] for name in FIELDS}
    fields |= {name: content[name] for name in TRAJECTORIES if name in content}
    draws = Draws(content["u"], content["log_density"], content["diverging"], **fields)
    return posterior_class(embedding)(potential, draws, settings["method"], content["weights"])


def _checked(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a file whose parts belong together."""
    settings, u, weights, x = content["settings"], content["u"], content["weights"], content["x"]
    numbers = {**FIELDS, "temperature": float, "power": float, "method": str, "objective": str, "shapes": dict}
    for name, kind in numbers.items():
        if not isinstance(settings[name], kind):
            raise ValueError(f"The setting {name} is wrong: {settings[name]!s:.80}.")
    if not all(0 < settings[name] < math.inf for name in ("temperature", "power")):
        raise ValueError("The temperature or power in the file is not positive.")
    chains = u.shape[:2]
    if u.dim() != 3 or u.numel() == 0 or not u.dtype.is_floating_point or not bool(u.isfinite().all()):
        raise ValueError(f"U has the shape {tuple(u.shape)}, or holds what is not a finite number.")
    for name in ("log_density", "diverging", *(set(TRAJECTORIES) & content.keys())):
        if content[name].shape != chains:
            raise ValueError(f"{name} has the shape {tuple(content[name].shape)}, and u {tuple(u.shape)}.")
    if content["diverging"].dtype != torch.bool:
        raise ValueError("Diverging does not hold truth values.")
    if weights.shape != (chains.numel(),) or not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError("Its weights are not one number, at least 0, for each draw.")
    if abs(float(weights.double().sum()) - 1.0) > 1e-4:
        raise ValueError(f"Its weights sum to {float(weights.sum()):g}, not to 1.")
    if not bool(x.isfinite().all()) or ("y" in content and len(content["y"]) != x.shape[-2]):
        raise ValueError("Its data are not finite, or x and y have different numbers of rows.")
    if not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in content["state"].items()):
        raise ValueError("The state of its embedding does not consist of tensors.")
    return dict(settings)


def _shapes(potential: Potential) -> dict[str, list[int]]:
    return {name: list(parameter.shape) for name, parameter in potential.vector.named.items()}
