"""``fit(embedding, objective, x, y)``: minimise an objective over the parameters of an embedding."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any, Literal

import gpytorch
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..objectives import Objective
from ..validation import check_features
from .batches import LoaderBatches, TensorBatches
from .optimizers.adam import adam
from .optimizers.lbfgs import lbfgs
from .parameters import ParameterVector, unidentified
from .state import Cooperative, Search, fingerprint, module_of

Method = Literal["lbfgs", "adam"]


@dataclasses.dataclass
class FitResult:
    """What ``fit`` did; the embedding itself holds the learned parameters.

    Attributes:
        value: the lowest objective met, priors included; the embedding's parameters are those that reached it.
        history: one record for each evaluation (each epoch with mini-batches): ``start``, ``value``, and every term.
        num_evaluations: evaluations of objective and gradient.
        converged: whether the optimiser met its tolerance.
        message: how it ended, in words.
        seconds: wall-clock time.
        fixed: parameters held fixed because the objective cannot identify them.
        interrupted: whether Ctrl-C ended it.
    """

    value: float
    history: list[dict[str, float]]
    num_evaluations: int
    converged: bool
    message: str
    seconds: float
    fixed: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def terms(self) -> dict[str, float]:
        """Every term of the objective at the best point; empty where nothing was evaluated before an interruption."""
        if not self.history:
            return {}
        best = min(self.history, key=lambda record: record["value"])
        return {name: value for name, value in best.items() if name not in ("start", "value")}


def fit(
    embedding: gpytorch.Module | Cooperative,
    objective: Objective,
    x: Tensor | DataLoader[Any],
    y: Tensor | None = None,
    *,
    method: Method | None = None,
    max_evaluations: int = 200,
    tolerance: float = 1e-5,
    num_restarts: int = 0,
    restart_spread: float = 1.0,
    batch_size: int | None = None,
    num_epochs: int = 200,
    learning_rate: float = 0.1,
    seed: int | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> FitResult:
    """Minimise ``objective`` over the parameters of ``embedding``, in place.

    Full batches are minimised by L-BFGS, mini-batches (``batch_size``) by Adam, Algorithm 1. Constraints are kept,
    registered priors are added (divided by n for objectives that are means over data), and parameters that the
    objective cannot identify are held fixed. The embedding is moved to the dtype and device of ``x``. Dropout and batch
    normalisation are in the mode the embedding is in. Ctrl-C ends the search and keeps the best point so far; after an
    error, too, the embedding and the checkpoint hold the best point so far.

    Args:
        embedding: any embedding, or a :class:`kernel_embed.ShardedEmbedding`; its parameters are changed to the best
            ones met.
        objective: what to minimise.
        x: inputs ``(n, d)``; or a ``torch.utils.data.DataLoader`` that yields batches ``(x, y)``, so that data need
            not fit in memory. Its batches go to the dtype and device of the embedding. Build it with a ``generator``
            and a resumed run meets the batches in the same order.
        y: targets, for embeddings that have them.
        method: ``"lbfgs"`` or ``"adam"``; by default Adam with ``batch_size`` or a loader, else L-BFGS.
        max_evaluations: a limit for L-BFGS, for each start.
        tolerance: L-BFGS stops when the objective falls by a smaller share of itself than ``1e-2 * tolerance`` or
            every entry of the gradient is below ``tolerance``.
        num_restarts: further starts, each with Gaussian noise of scale ``restart_spread`` on the raw parameters.
        restart_spread: see ``num_restarts``.
        batch_size: rows of a mini-batch; epochs go through a new permutation each.
        num_epochs: epochs of Adam.
        learning_rate: of Adam.
        seed: of restarts and permutations.
        progress: show a progress bar; by default on a terminal or in a notebook.
        checkpoint: a file; written while working, and resumed from where it exists.

    Example:
        >>> import kernel_embed as ke
        >>> x = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
        >>> y = (x.squeeze(-1) > 0.5).long()
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> result = ke.fit(embedding, ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"), x, y)
        >>> result.converged, result.value < result.history[0]["value"]
        (True, True)
    """
    if not isinstance(objective, Objective):
        raise TypeError(f"Expected an Objective, such as EmpiricalRisk(), got {type(objective).__name__}.")
    module, from_loader = module_of(embedding), isinstance(x, DataLoader)
    method = method or ("adam" if from_loader or batch_size is not None else "lbfgs")
    if method not in ("lbfgs", "adam"):
        raise ValueError(f"Expected method 'lbfgs' or 'adam', got {method!r}.")
    if method == "lbfgs" and batch_size is not None:
        raise ValueError("Expected full batches with method='lbfgs', got a batch_size. Use method='adam'.")
    if isinstance(x, DataLoader):
        if method == "lbfgs" or y is not None or batch_size is not None:
            raise ValueError(
                "Expected a loader alone, which yields batches (x, y) for method='adam', got it together with y, "
                "batch_size or method='lbfgs'. The loader sets the batch size."
            )
        like = next(module.parameters(), torch.empty(0))
        loader = LoaderBatches(x, like)
        num_data, data = loader.num_data, loader.identity()
    else:
        x = check_features(x)
        if batch_size is not None and not 2 <= batch_size <= x.shape[-2]:
            raise ValueError(f"Expected batch_size from 2 to the {x.shape[-2]} rows of x, got {batch_size}.")
        module.to(dtype=x.dtype, device=x.device)
        num_data, data = x.shape[-2], fingerprint(x, y)
    if isinstance(embedding, Cooperative) and num_data is not None:
        num_data = embedding.total_rows(num_data)
    fixed = unidentified(module, objective)
    search = Search(embedding, objective, ParameterVector(module, fixed), num_data, data, checkpoint)
    if not search.vector.parameters:
        raise ValueError("Expected an embedding with parameters to learn, got none that require a gradient.")
    generator = np.random.default_rng(seed)
    interrupted = False
    try:
        if isinstance(x, DataLoader):
            adam(search, loader, num_epochs, learning_rate, progress)
        elif method == "adam":
            batches = TensorBatches(x, y, batch_size or x.shape[-2], num_epochs, generator)
            adam(search, batches, num_epochs, learning_rate, progress)
        else:
            lbfgs(search, x, y, max_evaluations, tolerance, num_restarts, restart_spread, generator, progress)
    except KeyboardInterrupt:
        interrupted = True
        search.converged, search.message = False, "interrupted; the best point so far is kept"
    finally:
        search.finish()
    seconds = time.perf_counter() - search.started
    return FitResult(
        value=search.best_value,
        history=search.history,
        num_evaluations=search.num_evaluations,
        converged=search.converged,
        message=search.message,
        seconds=seconds,
        fixed=fixed,
        interrupted=interrupted,
    )
