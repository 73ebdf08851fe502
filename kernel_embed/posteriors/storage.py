"""Posteriors on disk, as a NumPy archive without pickle, and as ArviZ data."""

from __future__ import annotations

import json
import os
import pathlib
from typing import TYPE_CHECKING, Any

import gpytorch
import numpy as np
import torch

from ..objectives import Objective
from .potential import Potential
from .samplers.nuts import Draws

if TYPE_CHECKING:
    from .posterior import Posterior

FORMAT = "kernel_embed posterior 2"
"""The second: draws are log θ for what is positive. Files of the first are refused, not misread."""


def save(posterior: Posterior, path: str | os.PathLike[str]) -> None:
    """Write draws, weights, data and settings to ``path``; the embedding itself is not written."""
    potential, draws = posterior.potential, posterior.draws
    settings = {
        "format": FORMAT,
        "method": posterior.method,
        "objective": repr(potential.objective),
        "temperature": potential.temperature,
        "shapes": {name: list(p.shape) for name, p in potential.vector.named.items()},
        "seconds": draws.seconds,
        "num_evaluations": draws.num_evaluations,
        "num_refused": draws.num_refused,
        "interrupted": draws.interrupted,
        "log_evidence": draws.log_evidence,
    }
    arrays = {
        "u": draws.u,
        "log_density": draws.log_density,
        "diverging": draws.diverging,
        "weights": posterior.weights,
        "x": potential.x,
    }
    if potential.y is not None:
        arrays["y"] = potential.y
    # What is not sampled: fixed parameters, and buffers such as random features.
    state = {f"state/{name}": value for name, value in potential.embedding.state_dict().items()}
    numbers = {name: value.detach().cpu().numpy() for name, value in {**arrays, **state}.items()}
    with pathlib.Path(path).open("wb") as file:
        np.savez_compressed(file, settings=np.array(json.dumps(settings)), **numbers)


def load_posterior(path: str | os.PathLike[str], embedding: gpytorch.Module, objective: Objective) -> Any:
    """Read a posterior that :meth:`Posterior.save` wrote.

    Args:
        path: the file.
        embedding: one built like that which was sampled; it is not changed.
        objective: the same as then, which is checked.

    Example:
        >>> import tempfile, kernel_embed as ke
        >>> x = torch.linspace(-1, 1, 20, dtype=torch.float64).unsqueeze(-1)
        >>> embedding, objective = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel()), ke.EmbeddingEvidence()
        >>> posterior = ke.sample_posterior(embedding, objective, x, num_samples=20, num_chains=1, method="laplace")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     posterior.save(f"{folder}/posterior.npz")
        ...     again = ke.load_posterior(f"{folder}/posterior.npz", embedding, objective)
        >>> torch.equal(again.posterior_mean(x), posterior.posterior_mean(x))
        True
    """
    from .sample import posterior_class

    try:
        with np.load(path, allow_pickle=False) as archive:
            numbers = {name: archive[name] for name in archive.files}
        settings = json.loads(str(numbers.pop("settings")))
        written = settings["format"]
    except (ValueError, KeyError, EOFError, json.JSONDecodeError) as error:
        raise ValueError(f"Expected a posterior written by save() in {path}, got something else.") from error
    if written != FORMAT:
        raise ValueError(
            f"Expected {path} in the format {FORMAT!r}, got {written!r}, which another version wrote. Sample it again."
        )
    if settings["objective"] != repr(objective):
        raise ValueError(
            f"Expected a posterior under {objective!r} in {path}, got one under {settings['objective']}. "
            "Give the objective it was sampled with."
        )
    tensors = {name: torch.from_numpy(value) for name, value in numbers.items()}
    potential = Potential(embedding, objective, tensors["x"], tensors.get("y"), settings["temperature"])
    shapes = {name: list(p.shape) for name, p in potential.vector.named.items()}
    if shapes != settings["shapes"]:
        raise ValueError(
            f"Expected an embedding with the parameters {settings['shapes']}, as it was sampled, got {shapes}."
        )
    state = {name.removeprefix("state/"): value for name, value in tensors.items() if name.startswith("state/")}
    potential.embedding.load_state_dict(state)
    kept = ("seconds", "num_evaluations", "num_refused", "interrupted", "log_evidence")
    draws = Draws(tensors["u"], tensors["log_density"], tensors["diverging"], **{name: settings[name] for name in kept})
    return posterior_class(embedding)(potential, draws, settings["method"], tensors["weights"])


def to_arviz(posterior: Posterior) -> Any:
    """The draws as ``arviz.InferenceData``, with the log density and divergences as sample statistics."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs arviz: pip install 'kernel-embed[posteriors]'.") from error
    by_chain = {name: values.cpu().numpy() for name, values in posterior.samples_by_chain.items()}
    statistics = {"lp": posterior.draws.log_density.numpy(), "diverging": posterior.draws.diverging.numpy()}
    return arviz.from_dict(posterior=by_chain, sample_stats=statistics)
