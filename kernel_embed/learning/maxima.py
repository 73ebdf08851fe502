"""All local maxima of an evidence: it often has several, and the highest is not always the best choice."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError, NotPSDError
from numpy.typing import NDArray
from torch import Tensor

from ..kernels.lengthscales import scan_span
from ..kernels.parameters import initialize_parts
from ..objectives import Objective
from ..objectives.evidence import prominent
from ..runtime import progress_bar
from ..validation import check_at_least, check_count, check_features, check_number
from .fit import fit
from .loss import Batch, Data, LocalProcess, Loss
from .parameters import ParameterVector, constrained, move_priors, user_name

SAME = 1e-2  # maxima whose raw parameters differ by less are one
FINE_POINTS = 9


@dataclasses.dataclass(frozen=True)
class LocalMaximum:
    """A local maximum of −objective.

    Attributes:
        value: −objective there, priors included: the log evidence.
        parameters: the values of all parameters, by name, such as ``kernel.lengthscale``.
        embedding: a copy of the embedding with these parameters.

    Example:
        >>> LocalMaximum(-3.5, {"kernel.lengthscale": torch.tensor([[0.8]])}, embedding=None).value
        -3.5
    """

    value: float
    parameters: dict[str, Tensor]
    embedding: gpytorch.Module = dataclasses.field(repr=False)


def local_maxima(
    embedding: gpytorch.Module,
    objective: Objective[Any],
    x: Tensor,
    y: Tensor | None = None,
    *,
    num_points: int = 40,
    span: tuple[float, float] | None = None,
    prominence: float = 6.0,
    max_evaluations: int = 200,
    progress: bool | None = None,
) -> list[LocalMaximum]:
    """The local maxima of −``objective`` that a scan over the lengthscales finds, the highest first.

    All lengthscales are multiplied by one factor, which runs through ``num_points`` values over ``span``. Peaks of that
    curve with a prominence of at least ``prominence`` nats are refined on a finer grid, and ``fit`` starts from there.
    With several lengthscales, maxima off the line are found only if ``fit`` reaches them from it.

    In one dimension the evidence has a narrow dip to −∞ at every lengthscale at which a stationary point of μ̂ passes
    through x_i. The prominence excludes the ripples between such dips.

    Args:
        embedding: any embedding; it is not changed.
        objective: what ``fit`` would minimize, :class:`kernel_embed.EmbeddingEvidence` for a log evidence.
        x: the data.
        y: targets, for embeddings that have them.
        num_points: points of the scan.
        span: the smallest and the largest lengthscale, or geometric mean of several; by default from the distance of
            nearest neighbors to twice the diameter of the data.
        prominence: in nats; lower it for samples of a few points, 0 keeps every peak of the scan.
        max_evaluations: a limit for each call of ``fit``.
        progress: show a progress bar.

    Returns:
        The maxima.

    Raises:
        TypeError: if ``x`` is not a tensor of real numbers, or a setting not a number.
        ValueError: if ``num_points`` is below 3, ``prominence`` is negative, or ``span`` is not two lengthscales, the
            smaller first.

    Example:
        >>> import kernel_embed as ke
        >>> noise = torch.randn(80, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> x = torch.tensor([-20.0, 20.0]).repeat(40).unsqueeze(-1) + noise
        >>> maxima = ke.local_maxima(ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel()), ke.EmbeddingEvidence(), x)
        >>> [round(maximum.parameters["kernel.lengthscale"].item()) for maximum in maxima]
        [1, 29]
    """
    x = check_features(x).detach()
    check_count("num_points", num_points, 3)
    check_at_least(0.0, prominence=prominence)
    fits = span is None or (isinstance(span, tuple | list) and len(span) == 2)
    if not fits or (span and not 0.0 < check_number("span", span[0]) < check_number("span", span[1]) < math.inf):
        raise ValueError(f"span must be two lengthscales, the smaller first, such as (0.1, 10.0); got {span!r}.")
    module: gpytorch.Module = copy.deepcopy(embedding)
    module.to(dtype=x.dtype, device=x.device)
    move_priors(module, x.device)
    initialize_parts(module, x, y)
    kernels = [m for m in module.modules() if isinstance(m, Kernel) and m.has_lengthscale]
    starts = [module]
    if kernels:
        loss = Loss(LocalProcess(module), objective, ParameterVector(module), Data(x, y))
        grid = np.geomspace(*(span or scan_span(x)), num_points)
        with torch.no_grad():
            starts = _peaks(module, kernels, lambda: -loss(Batch(x, y))[0].item(), grid, prominence, progress)
    maxima: list[tuple[LocalMaximum, NDArray[np.float64]]] = []
    for start in starts:
        try:
            result = fit(start, objective, x, y, max_evaluations=max_evaluations, progress=False)
        except (NanError, NotPSDError):
            continue
        point = ParameterVector(start).get()
        if result.converged and not any(np.abs(point - other).max(initial=0.0) < SAME for _, other in maxima):
            named = start.named_parameters()
            values = {user_name(name): constrained(start, name, raw.detach()).clone() for name, raw in named}
            maxima.append((LocalMaximum(-result.value, values, start), point))
    return sorted((maximum for maximum, _ in maxima), key=lambda maximum: -maximum.value)


def _peaks(
    module: gpytorch.Module,
    kernels: list[Kernel],
    value: Callable[[], float],
    grid: NDArray[np.float64],
    prominence: float,
    progress: bool | None,
) -> list[gpytorch.Module]:
    """Copies of the embedding at the prominent peaks of ``value``, each the maximum of a finer scan around it."""
    originals = [kernel.lengthscale.detach().clone() for kernel in kernels]
    middle = torch.cat([original.flatten() for original in originals]).log().mean().exp()

    def move(lengthscale: float) -> None:
        """Give the lengthscales this geometric mean."""
        for kernel, original in zip(kernels, originals, strict=True):
            moved = original * (lengthscale / middle)
            if not bool(((moved > 0) & (moved < math.inf)).all()):
                raise NanError(f"The lengthscales {moved.tolist()} are not finite. Rescale x.")
            kernel.lengthscale = moved

    def height(lengthscale: float) -> float:
        try:
            move(lengthscale)
            return value()
        except (NanError, NotPSDError):
            return -math.inf

    heights, copies = [], []
    with progress_bar(len(grid), "scan", progress) as bar:
        for lengthscale in grid:
            heights.append(height(lengthscale))
            bar.update()
    for i in prominent(heights, prominence):
        near = np.geomspace(grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)], FINE_POINTS)
        move(max([*near, grid[i]], key=height))
        copies.append(copy.deepcopy(module))
    return copies
