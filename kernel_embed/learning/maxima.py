"""All local maxima of an evidence: it often has several, and the highest is not always the one that is wanted."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from ..objectives import Objective
from ..progress import progress_bar
from ..validation import check_features
from .fit import fit
from .parameters import ParameterVector

SAME = 1e-2
"""Maxima whose parameters differ by less than this, in their raw form, are one."""


@dataclasses.dataclass(frozen=True)
class LocalMaximum:
    """A local maximum of −objective.

    Attributes:
        value: −objective there, priors included: the log evidence.
        parameters: the values of all parameters, by name, as users see them (``kernel.lengthscale``, not its raw form).
        embedding: a copy of the embedding with these parameters.
    """

    value: float
    parameters: dict[str, Tensor]
    embedding: Any = dataclasses.field(repr=False)


def local_maxima(
    embedding: gpytorch.Module,
    objective: Objective,
    x: Tensor,
    y: Tensor | None = None,
    *,
    num_points: int = 40,
    span: tuple[float, float] | None = None,
    max_evaluations: int = 200,
    progress: bool | None = None,
) -> list[LocalMaximum]:
    """The local maxima of −``objective`` that a scan over the lengthscales finds, the highest first.

    All lengthscales are multiplied by one factor, which runs through ``num_points`` values over ``span``; from every
    point of that line that is higher than both its neighbours, and from the parameters as they are, ``fit`` climbs to
    the maximum. With one lengthscale the scan sees every maximum wider than its spacing; with more, maxima off the
    line are found only if a climb from it leads there.

    Args:
        embedding: any embedding; it is not changed.
        objective: what ``fit`` would minimise, :class:`kernel_embed.EmbeddingEvidence` for a log evidence.
        x: the data.
        y: targets, for embeddings that have them.
        num_points: points of the scan.
        span: the smallest and the largest lengthscale (the geometric mean where there are several); by default from the
            distance of nearest neighbours to twice the diameter of the data.
        max_evaluations: a limit of each climb.
        progress: show a progress bar.

    Example:
        >>> from kernel_embed.embeddings.bayesian import BayesianMeanEmbedding
        >>> from kernel_embed.objectives.embedding_evidence import EmbeddingEvidence
        >>> generator = torch.Generator().manual_seed(0)
        >>> centres = torch.tensor([-20.0, 20.0]).repeat(40).unsqueeze(-1)
        >>> x = centres + torch.randn(80, 1, generator=generator, dtype=torch.float64)
        >>> embedding = BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> [round(m.parameters["kernel.lengthscale"].item()) for m in local_maxima(embedding, EmbeddingEvidence(), x)]
        [26, 1]
    """
    x = check_features(x)
    if num_points < 3:
        raise ValueError(f"Expected num_points of at least 3, got {num_points}.")
    embedding = copy.deepcopy(embedding).to(dtype=x.dtype, device=x.device)
    kernels = [m for m in embedding.modules() if isinstance(m, Kernel) and m.has_lengthscale]
    starts = [copy.deepcopy(embedding)]
    if kernels:
        starts += _scan(embedding, kernels, objective, x, y, num_points, span or _span(x), progress)
    found: list[tuple[LocalMaximum, np.ndarray]] = []  # type: ignore[type-arg]
    for start in starts:
        try:
            result = fit(start, objective, x, y, max_evaluations=max_evaluations, progress=False)
        except (NanError, NotPSDError):
            continue
        point = ParameterVector(start).get()
        if result.converged and not any(np.abs(point - other).max(initial=0.0) < SAME for _, other in found):
            found.append((LocalMaximum(-result.value, _values(start), start), point))
    return sorted((maximum for maximum, _ in found), key=lambda maximum: -maximum.value)


def _scan(
    embedding: gpytorch.Module,
    kernels: list[Kernel],
    objective: Objective,
    x: Tensor,
    y: Tensor | None,
    num_points: int,
    span: tuple[float, float],
    progress: bool | None,
) -> list[gpytorch.Module]:
    """Copies of the embedding at the points of the line that are higher than their neighbours."""
    originals = [kernel.lengthscale.detach().clone() for kernel in kernels]
    middle = torch.cat([value.flatten() for value in originals]).log().mean().exp()
    copies, values = [], []
    with progress_bar(num_points, "scan", progress) as bar:
        for lengthscale in np.geomspace(span[0], span[1], num_points):
            for kernel, original in zip(kernels, originals, strict=True):
                kernel.lengthscale = original * (lengthscale / middle)
            with torch.no_grad():
                try:
                    values.append(-float(objective(embedding, x, y).sum()))  # type: ignore[arg-type]
                except (NanError, NotPSDError):
                    values.append(-np.inf)
            copies.append(copy.deepcopy(embedding))
            bar.update()
    tops = []
    for i, value in enumerate(values):
        neighbours = values[max(i - 1, 0) : i] + values[i + 1 : i + 2]
        if np.isfinite(value) and all(value >= neighbour for neighbour in neighbours):
            tops.append(copies[i])
    return tops


def _span(x: Tensor) -> tuple[float, float]:
    """From the median distance of nearest neighbours, over 4, to twice the diameter."""
    rows = x.reshape(-1, x.shape[-1]).unique(dim=0)
    rows = rows[:: -(-rows.shape[0] // 2000)]
    distances = torch.cdist(rows, rows)
    diameter = float(distances.max()) or 1.0
    distances.fill_diagonal_(float("inf"))
    nearest = float(distances.amin(dim=-1).median()) if rows.shape[0] > 1 else diameter
    return max(0.25 * nearest, 1e-6 * diameter), 2.0 * diameter


def _values(embedding: gpytorch.Module) -> dict[str, Tensor]:
    values = {}
    for name, parameter in embedding.named_parameters():
        constraint = embedding.constraint_for_parameter_name(name)
        value = parameter.detach() if constraint is None else constraint.transform(parameter.detach())
        values[name.replace("raw_", "")] = value.clone()
    return values
