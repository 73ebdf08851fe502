"""Draws on disk, as a NumPy archive without pickle, and as ArviZ data: arrays and settings, whatever they answer."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import gpytorch
import numpy as np
import torch
from torch import Tensor

from ..files import write_whole
from .draws import Draws
from .potential import AnyObjective, Potential

if TYPE_CHECKING:
    from arviz import InferenceData

E = TypeVar("E", bound=gpytorch.Module)

FORMAT = "kernel_embed posterior 2"
"""The second: draws are log θ for what is positive. Files of the first are refused, not misread."""

KEPT = ("seconds", "num_evaluations", "num_refused", "interrupted", "log_evidence", "is_approximate")
"""What is kept of :class:`Draws` beside its tensors."""

TRAJECTORIES = ("energy", "depth")
"""Tensors that only samplers with trajectories have."""


class Restored(NamedTuple):
    """What was read: the draws, the name of their sampler, and their weights."""

    draws: Draws
    method: str
    weights: Tensor


def write(path: str | os.PathLike[str], potential: Potential, draws: Draws, method: str, weights: Tensor) -> None:
    """Write draws, weights, data and settings to ``path``; the embedding itself is not written."""
    settings = {
        "format": FORMAT,
        "method": method,
        "objective": repr(potential.objective),
        "temperature": potential.temperature,
        "power": potential.power,
        "shapes": _shapes(potential),
        "num_classes": getattr(potential.embedding, "num_classes", None),
        **{name: getattr(draws, name) for name in KEPT},
    }
    arrays = {"u": draws.u, "log_density": draws.log_density, "diverging": draws.diverging, "weights": weights}
    arrays |= {name: value for name in TRAJECTORIES if (value := getattr(draws, name)) is not None}
    arrays |= dict(zip(("x", "y"), potential.data, strict=False))
    # What is not sampled: fixed parameters, and buffers such as random features.
    arrays |= {f"state/{name}": value for name, value in potential.embedding.state_dict().items()}
    numbers = {name: value.detach().cpu().numpy() for name, value in arrays.items()}
    numbers["settings"] = np.array(json.dumps(settings))
    # NumPy's types take every name of an array for that of an option.
    write_whole(path, lambda file: np.savez_compressed(file, **numbers))  # type: ignore[arg-type]


def read(path: str | os.PathLike[str], embedding: E, objective: AnyObjective) -> tuple[Potential[E], Restored]:
    """The potential and the draws that :func:`write` wrote; refused where embedding or objective are others."""
    try:
        # A file of our own to open is closed again where its content is not read; a number, which would be a file that
        # somebody else has open, is no path.
        with open(os.fspath(path), "rb") as file, np.load(file, allow_pickle=False) as archive:
            tensors = {name: torch.from_numpy(archive[name]) for name in archive.files if name != "settings"}
            settings = json.loads(str(archive["settings"]))
        written = settings["format"]
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"Expected a posterior written by save() in {path}, got no such file. Look at the path."
        ) from error
    except (
        ValueError,
        KeyError,
        EOFError,
        TypeError,
        OSError,
        AttributeError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ValueError(
            f"Expected a posterior written by save() in {path!r}, got something else ({error}). Save it again."
        ) from error
    if written != FORMAT:
        raise ValueError(
            f"Expected {path} in the format {FORMAT!r}, got {written!r}, which another version wrote. Sample it again."
        )
    if settings["objective"] != repr(objective):
        raise ValueError(
            f"Expected a posterior under {objective!r} in {path}, got one under {settings['objective']}. "
            "Give the objective it was sampled with."
        )
    classes = getattr(embedding, "num_classes", None)
    if settings.get("num_classes", classes) != classes:  # which older files do not tell
        raise ValueError(
            f"Expected an embedding with num_classes={settings['num_classes']}, as it was sampled, got {classes}. "
            "Build the embedding as it was."
        )
    exponents = settings["temperature"], settings.get("power", 1.0)  # older files have none
    potential = Potential(embedding, objective, tensors["x"], tensors.get("y"), *exponents)
    _restore(potential, settings["shapes"], tensors)
    kept = {name: settings[name] for name in KEPT if name in settings}
    kept |= {name: tensors[name] for name in TRAJECTORIES if name in tensors}
    draws = Draws(tensors["u"], tensors["log_density"], tensors["diverging"], **kept)
    return potential, Restored(draws, settings["method"], tensors["weights"])


def _restore(potential: Potential, shapes: Mapping[str, list[int]], tensors: Mapping[str, Tensor]) -> None:
    """Give the embedding what was not sampled."""
    if _shapes(potential) != shapes:
        raise ValueError(
            f"Expected an embedding with the parameters {shapes}, as it was sampled, got {_shapes(potential)}. "
            "Build the embedding as it was."
        )
    state = {name.removeprefix("state/"): value for name, value in tensors.items() if name.startswith("state/")}
    potential.embedding.load_state_dict(state)


def _shapes(potential: Potential) -> dict[str, list[int]]:
    return {name: list(parameter.shape) for name, parameter in potential.vector.named.items()}


def inference_data(samples_by_chain: Mapping[str, Tensor], draws: Draws) -> InferenceData:
    """The draws as ``arviz.InferenceData``, with the log density and divergences as sample statistics."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError("The package arviz is not installed: pip install 'kernel-embed[posteriors]'.") from error
    by_chain = {name: values.cpu().numpy() for name, values in samples_by_chain.items()}
    statistics = {"lp": draws.log_density.numpy(), "diverging": draws.diverging.numpy()}
    if draws.energy is not None and draws.depth is not None:
        statistics |= {"energy": draws.energy.numpy(), "tree_depth": draws.depth.numpy()}
    return arviz.from_dict(posterior=by_chain, sample_stats=statistics)
