"""Posteriors as files of plain arrays and settings, and as ArviZ data."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import gpytorch
import torch
from torch import Tensor

from ..archive import read_plain, write_plain
from .potential import AnyObjective, Potential
from .sampler import Draws

if TYPE_CHECKING:
    from arviz import InferenceData

E = TypeVar("E", bound=gpytorch.Module)

FIELDS = {
    "seconds": float,
    "num_evaluations": int,
    "num_rejected": int,
    "interrupted": bool,
    "log_evidence": float | None,
    "is_approximate": bool,
}
"""Fields of :class:`Draws` in a file, besides its tensors."""

TRAJECTORIES = ("energy", "depth")
"""Tensors that only samplers with trajectories have."""


class Restored(NamedTuple):
    """Content of a file: the draws, the name of their sampler, and their weights."""

    draws: Draws
    method: str
    weights: Tensor


def write(path: str | os.PathLike[str], potential: Potential, draws: Draws, method: str, weights: Tensor) -> None:
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


def read(
    path: str | os.PathLike[str], embedding: E, objective: AnyObjective, max_bytes: int | None
) -> tuple[Potential[E], Restored]:
    """The potential and the draws that :func:`write` wrote; ``ValueError`` for another embedding or objective."""
    content = read_plain(path, "posterior", max_bytes)
    try:
        settings = _checked(content)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is not a valid posterior. {error} Sample and save it again.") from error
    if settings["objective"] != repr(objective):
        raise ValueError(
            f"The posterior in {path} was sampled under {settings['objective']}, not under {objective!r}. Give the "
            "objective it was sampled with."
        )
    classes = getattr(embedding, "num_classes", None)
    if settings["num_classes"] != classes:
        raise ValueError(
            f"The posterior in {path} has num_classes={settings['num_classes']}, the embedding {classes}. Build the "
            "embedding as it was sampled."
        )
    exponents = settings["temperature"], settings["power"]
    potential = Potential(embedding, objective, content["x"], content.get("y"), *exponents)
    if _shapes(potential) != settings["shapes"] or content["u"].shape[-1] != potential.dimension:
        raise ValueError(
            f"The posterior in {path} has the parameters {settings['shapes']} and draws of shape "
            f"{tuple(content['u'].shape)}, the embedding has {_shapes(potential)}. Build it as it was sampled."
        )
    try:
        potential.embedding.load_state_dict(content["state"])
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} has the state of another embedding: {error}. Build the same one again.") from error
    fields = {name: settings[name] for name in FIELDS}
    fields |= {name: content[name] for name in TRAJECTORIES if name in content}
    draws = Draws(content["u"], content["log_density"], content["diverging"], **fields)
    return potential, Restored(draws, settings["method"], content["weights"])


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
