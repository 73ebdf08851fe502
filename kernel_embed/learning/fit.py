"""``fit(embedding, objective, x, y)``: minimize an objective with a given or default optimizer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, Literal, cast

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor
from torch.utils.data import DataLoader

from ..kernels.parameters import initialize_parts
from ..kernels.structure import check_columns
from ..linalg import Groups
from ..objectives import Objective
from ..runtime import enabled_gradients, usable_for_gradients
from ..validation import check_features, check_lengths, check_seed
from .degeneracy import default_limits, degeneracies, warn_of_blind_start
from .early_stopping import FEWEST_ROWS, hold_out
from .lbfgs import LBFGS
from .loss import Data, LoaderData, LocalProcess, Loss, ProcessGroup, fingerprint
from .parameters import ParameterVector, is_in_network, move_priors, unidentified
from .problem import Problem
from .result import Callback, FitResult, Optimizer, Outcome, StopEarly, StopSearch
from .stochastic import Adam, Factory, TorchOptimizer


@enabled_gradients()
def fit(
    embedding: gpytorch.Module | ProcessGroup,
    objective: Objective[Any],
    x: Tensor | DataLoader[object],
    y: Tensor | None = None,
    *,
    weights: Tensor | None = None,
    groups: Groups = None,
    optimizer: Optimizer | Factory | None = None,
    callback: Callback | None = None,
    max_evaluations: int | None = None,
    tolerance: float | None = None,
    num_restarts: int | None = None,
    batch_size: int | None = None,
    num_epochs: int | None = None,
    learning_rate: float | None = None,
    precision: Literal["double", "single"] = "double",
    seed: int | None = None,
    early_stopping: bool | None = None,
    column_names: Sequence[str] | None = None,
    progress: bool | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> FitResult:
    """Minimize ``objective`` over the parameters of ``embedding``, in place.

    Without an ``optimizer``, full batches are minimized by :class:`LBFGS`, mini-batches (``batch_size``, a loader) by
    :class:`Adam`, Algorithm 1.

    Constraints are kept, registered priors are added (divided by n for objectives that are means over data), and
    parameters that the objective cannot identify are held fixed. The embedding is moved to the dtype and device of
    ``x``. After Ctrl-C or an error, the embedding and the checkpoint hold the best point so far.

    Args:
        embedding: any embedding, or a :class:`kernel_embed.scale.ShardedEmbedding`.
        objective: what to minimize.
        x: inputs ``(n, d)``; or a ``torch.utils.data.DataLoader`` of batches ``(x, y)``, so that data need not fit in
            memory; built with a ``generator``, a resumed run has the same order of batches.
        y: targets, for embeddings that have them.
        weights: how many rows each row stands for, ``(n,)``, for embeddings with targets and full batches.
        groups: a whole number for each row, ``(n,)``: rows of one group are left out together; for embeddings with
            targets and full batches. By default equal rows are.
        optimizer: an :class:`~kernel_embed.learning.Optimizer` such as ``LBFGS(num_restarts=3)``, or a factory that
            makes one of ``torch.optim``, such as ``lambda p: torch.optim.SGD(p, lr=0.1)``. It excludes the six options
            after ``callback``.
        callback: called with a :class:`~kernel_embed.learning.Progress` after every evaluation of L-BFGS and every
            epoch of Adam; ``True`` ends the search. Of several processes, all must pass one, and the leader's decides.
        max_evaluations: a limit for L-BFGS, for each start, 200 by default.
        tolerance: of L-BFGS, 1e-5 by default.
        num_restarts: further starts of L-BFGS, none by default.
        batch_size: rows of a mini-batch for Adam; by default all rows.
        num_epochs: epochs of Adam, 200 by default.
        learning_rate: of Adam, 0.1 by default.
        precision: ``"single"`` factorizes dense systems in float32 while learning, and refines solutions once in
            float64: for condition numbers up to 1e5; beyond that it is double, with a warning. Predictions are in
            double precision, ``value`` and ``history`` have the error of single precision.
        seed: of restarts and permutations.
        early_stopping: learn from four fifths of the rows, and keep the parameters that predict the others best;
            the default for networks from 50 rows on.
        column_names: of the columns of x, for messages.
        progress: show a progress bar; by default on a terminal or in a notebook.
        checkpoint: a file, written during the search; if it exists, the search is resumed from it.

    Returns:
        The value reached, the history, and whether it converged. The learned parameters are in ``embedding``.

    Raises:
        ValueError: if options exclude each other, nothing can be learned, the objective is not finite at the start, or
            the checkpoint belongs to another problem.
        TypeError: if ``objective`` or ``optimizer`` is of another kind than expected.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
        >>> y = (x.squeeze(-1) > 0.5).long()
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> result = ke.fit(embedding, ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"), x, y)
        >>> result.converged, result.value < result.history[0]["value"]
        (True, True)
    """
    if not isinstance(objective, Objective):
        remedy = "Write fit(embedding, objective, …)" if isinstance(embedding, Objective) else "Pass an instance"
        raise TypeError(f"The objective must be one such as EmpiricalRisk(), not {type(objective).__name__}. {remedy}.")
    check_seed(seed)
    if precision not in ("double", "single"):
        raise ValueError(f"precision must be 'double' or 'single', not {precision!r}.")
    of_lbfgs = {"max_evaluations": max_evaluations, "tolerance": tolerance, "num_restarts": num_restarts}
    of_adam = {"batch_size": batch_size, "num_epochs": num_epochs, "learning_rate": learning_rate}
    method = _choose_optimizer(optimizer, isinstance(x, DataLoader), of_lbfgs, of_adam)
    x, y, weights = usable_for_gradients(x), usable_for_gradients(y), usable_for_gradients(weights)
    group = embedding if isinstance(embedding, ProcessGroup) else LocalProcess(embedding, weights, groups)
    if not isinstance(group, LocalProcess) and (weights is not None or groups is not None):
        raise TypeError("Rows cannot be weighted or grouped over several ranks. Repeat rows instead of weighting them.")
    usable_for_gradients(group.module)
    data = _as_data(x, y, group.module)
    is_blind = False
    if data.whole is not None and isinstance(group, LocalProcess):  # each rank would draw different numbers
        if isinstance(getattr(group.module, "kernel", None), Kernel):
            check_columns(group.module.kernel, data.whole[0].shape[-1])
        if y is not None and getattr(group.module, "takes_targets", False):
            check_lengths(data.whole.x, data.whole.y)
        initialize_parts(group.module, data.whole.x, data.whole.y)
        is_blind = warn_of_blind_start(group.module, data.whole[0])
    fixed = unidentified(group.module, objective)
    vector = ParameterVector(group.module, fixed)
    if not vector.parameters:
        raise ValueError("The embedding has no parameters that require a gradient. Call embedding.requires_grad_().")
    held_out = None
    many = data.whole is not None and len(data.whole[0]) >= FEWEST_ROWS
    if early_stopping or (
        early_stopping is None and many and any(is_in_network(group.module, name) for name in vector.named)
    ):
        held_out = hold_out(group, data, getattr(method, "batch_size", None), seed)
        if held_out is not None:
            group, data = held_out.group, Data(*held_out.rest)
        elif early_stopping:
            raise ValueError(
                "early_stopping needs a conditional embedding and tensors x and y of at least two rows, in one process."
            )
    if data.whole is not None:
        vector.lowest = group.from_leader(default_limits(vector, data.whole[0]))
    loss = Loss(group, objective, vector, data, precision == "single")
    problem = Problem(loss, np.random.default_rng(seed), progress, callback, held_out)
    if checkpoint is not None:
        identity = {
            "objective": repr(objective),
            "shapes": {name: list(p.shape) for name, p in vector.named.items()},
            "data": " ".join([data.identity(), *(fingerprint(p) for p in (weights, groups) if isinstance(p, Tensor))]),
        }
        problem.resume(checkpoint, identity, type(method).__qualname__)
    outcome, interrupted = _run(method, problem)
    degenerate = () if data.whole is None else degeneracies(vector, data.whole[0], column_names)
    if degenerate and not is_blind:  # one warning for each fit, without numbers, so that Python shows it once for many
        message = (
            f"The fit is degenerate: {'; '.join(degenerate)}. Register a prior, as kernel_embed.default_kernel(x) "
            "does, fix the parameter, or add a complexity to the objective."
        )
        warnings.warn(message, NumericalWarning, stacklevel=3)
    elif problem.best_warnings and not is_blind:
        warnings.warn(problem.best_warnings[0], NumericalWarning, stacklevel=3)
    return FitResult(
        value=problem.best_value,
        history=list(problem.history),
        num_evaluations=problem.num_evaluations,
        converged=outcome.converged and not degenerate,
        message=outcome.message,
        seconds=problem.seconds,
        fixed=fixed,
        interrupted=interrupted,
        degenerate=degenerate,
        held_out=() if held_out is None else tuple(held_out.rows.tolist()),
    )


def _choose_optimizer(
    optimizer: Optimizer | Factory | None, from_loader: bool, of_lbfgs: dict[str, Any], of_adam: dict[str, Any]
) -> Optimizer:
    """The optimizer itself; else Adam for its options or a loader, and L-BFGS otherwise. ``None`` is a default."""
    of_lbfgs, of_adam = ({k: v for k, v in options.items() if v is not None} for options in (of_lbfgs, of_adam))
    if optimizer is None:
        if of_lbfgs and (of_adam or from_loader):
            raise ValueError(
                f"Options of L-BFGS, for all rows at once ({', '.join(of_lbfgs)}), cannot be combined with "
                f"{' and '.join(of_adam) or 'a loader'}, for Adam. Leave one kind out."
            )
        return Adam(**of_adam) if of_adam or from_loader else LBFGS(**of_lbfgs)
    if of_lbfgs or of_adam:
        raise ValueError(
            f"{' and '.join([*of_lbfgs, *of_adam])} cannot be combined with optimizer={optimizer!r}. Give them to the "
            "optimizer, as in Adam(batch_size=100)."
        )
    if isinstance(optimizer, Optimizer):
        return optimizer
    if isinstance(optimizer, type) and issubclass(optimizer, Optimizer):
        raise TypeError(f"optimizer must be an instance, not a class. Write optimizer={optimizer.__name__}().")
    if isinstance(optimizer, torch.optim.Optimizer) or not callable(optimizer):
        got = repr(optimizer) if isinstance(optimizer, str) else type(optimizer).__name__
        raise TypeError(
            f"optimizer={got} is not supported. Pass LBFGS() or Adam(), a factory that makes one of torch.optim, such "
            "as lambda p: torch.optim.SGD(p, lr=0.1), or None for the default."
        )
    return TorchOptimizer(cast(Factory, optimizer))


def _as_data(x: Tensor | DataLoader[object], y: Tensor | None, module: gpytorch.Module) -> Data:
    """The rows, and ``module`` moved to their dtype and device; a loader's batches are moved to those of the module."""
    if isinstance(x, DataLoader):
        if y is not None:
            raise ValueError("The loader yields batches (x, y) itself. Leave y out.")
        return LoaderData(x, next(module.parameters(), torch.empty(0, device="cpu")))
    # What led to the data is not learned: a graph behind them would be differentiated once too often.
    x = check_features(x).detach()
    module.to(dtype=x.dtype, device=x.device)
    move_priors(module, x.device)
    return Data(x, y.detach() if isinstance(y, Tensor) else y)


def _run(optimizer: Optimizer, problem: Problem) -> tuple[Outcome, bool]:
    """How the search ended, and whether by Ctrl-C; in every case the best point is kept."""
    try:
        outcome = optimizer.minimize(problem)
        if not isinstance(outcome, Outcome):
            raise TypeError(
                f"{type(optimizer).__name__}.minimize must return an Outcome(converged, message), not "
                f"{type(outcome).__name__}."
            )
        return outcome, False
    except StopSearch as stop:
        return Outcome(isinstance(stop, StopEarly), str(stop)), False
    except KeyboardInterrupt:
        return Outcome(False, "interrupted; the best point so far is kept"), True
    finally:
        problem.finish()
