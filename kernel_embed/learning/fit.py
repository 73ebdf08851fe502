"""``fit(embedding, objective, x, y)``: minimise an objective over the parameters of an embedding."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
import time
from typing import Any, Literal

import gpytorch
import numpy as np
import torch
from linear_operator.utils.errors import NanError, NotPSDError
from scipy.optimize import minimize
from torch import Tensor

from ..kernels import DiagonalBoundError
from ..objectives import Objective
from ..progress import progress_bar
from ..validation import check_features
from .checkpoint import load_checkpoint, save_checkpoint
from .parameters import ParameterVector, Vector, prior_loss, unidentified

Method = Literal["lbfgs", "adam"]
SECONDS_BETWEEN_CHECKPOINTS = 5.0
SETTLED = 1e-3
"""Adam counts as converged when its last ten epochs differ by less than this share of their mean."""


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
    embedding: gpytorch.Module,
    objective: Objective,
    x: Tensor,
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
    objective cannot identify are held fixed. The embedding is moved to the dtype and device of ``x``. Ctrl-C ends the
    search and keeps the best point so far.

    Args:
        embedding: any embedding; its parameters are changed to the best ones met.
        objective: what to minimise.
        x: inputs ``(n, d)``.
        y: targets, for embeddings that have them.
        method: ``"lbfgs"`` or ``"adam"``; by default Adam with ``batch_size`` and L-BFGS without.
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
    method = method or ("lbfgs" if batch_size is None else "adam")
    if method not in ("lbfgs", "adam"):
        raise ValueError(f"Expected method 'lbfgs' or 'adam', got {method!r}.")
    if method == "lbfgs" and batch_size is not None:
        raise ValueError("Expected full batches with method='lbfgs', got a batch_size. Use method='adam'.")
    x = check_features(x)
    if batch_size is not None and not 2 <= batch_size <= x.shape[-2]:
        raise ValueError(f"Expected batch_size from 2 to the {x.shape[-2]} rows of x, got {batch_size}.")
    embedding.to(dtype=x.dtype, device=x.device)
    fixed = unidentified(embedding, objective)
    search = _Search(embedding, objective, ParameterVector(embedding, fixed), x, y, checkpoint)
    if not search.vector.parameters:
        raise ValueError("Expected an embedding with parameters to learn, got none that require a gradient.")
    generator = np.random.default_rng(seed)
    interrupted = False
    try:
        if method == "lbfgs":
            _lbfgs(search, max_evaluations, tolerance, num_restarts, restart_spread, generator, progress)
        else:
            _adam(search, batch_size or x.shape[-2], num_epochs, learning_rate, generator, progress)
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


class _Search:
    """The state of one call of ``fit``: best point, history, checkpoint."""

    def __init__(
        self,
        embedding: gpytorch.Module,
        objective: Objective,
        vector: ParameterVector,
        x: Tensor,
        y: Tensor | None,
        checkpoint: str | os.PathLike[str] | None,
    ) -> None:
        self.embedding, self.objective, self.vector, self.x, self.y = embedding, objective, vector, x, y
        self.checkpoint = checkpoint
        self.started = self._saved = time.perf_counter()
        self.best_value, self.best = float("inf"), vector.get()
        self.origin = self.best
        self.history: list[dict[str, float]] = []
        self.num_evaluations = self.start = 0
        self.converged, self.message = False, ""
        self.optimizer_state: dict[str, Any] = {}
        self._identity = {
            "objective": repr(objective),
            "shapes": {name: list(p.shape) for name, p in vector.named.items()},
            "data": _fingerprint(x, y),
        }
        self._resume()

    def _resume(self) -> None:
        content = None if self.checkpoint is None else load_checkpoint(self.checkpoint, **self._identity)
        if content is None:
            return
        self.best_value, self.best = content["best_value"], content["best"].numpy()
        self.origin = content["origin"].numpy()
        self.history, self.num_evaluations = content["history"], content["num_evaluations"]
        self.start, self.optimizer_state = content["start"], content["optimizer_state"]
        self.vector.set(self.best)

    def save(self, force: bool = False) -> None:
        """Write the checkpoint, at most every few seconds unless forced."""
        now = time.perf_counter()
        if self.checkpoint is None or not (force or now - self._saved > SECONDS_BETWEEN_CHECKPOINTS):
            return
        self._saved = now
        content = {
            **self._identity,
            "best_value": self.best_value,
            "best": torch.as_tensor(self.best, device="cpu"),
            "origin": torch.as_tensor(self.origin, device="cpu"),
            "history": self.history,
            "num_evaluations": self.num_evaluations,
            "start": self.start,
            "optimizer_state": self.optimizer_state,
        }
        save_checkpoint(self.checkpoint, content)

    def finish(self) -> None:
        """Leave the embedding at the best point, without gradients."""
        self.vector.set(self.best)
        self.vector.clear_gradient()
        self.save(force=True)

    def loss(self, x: Tensor, y: Tensor | None) -> tuple[Tensor, dict[str, float]]:
        """The objective with priors on these rows, and its terms."""
        embedding: Any = self.embedding
        conditioned = embedding.condition(x) if y is None else embedding.condition(x, y)
        values = [(repr(term), c * term.evaluate(conditioned).sum()) for c, term in self.objective.terms()]
        prior = prior_loss(self.embedding)
        if prior is not None:
            # A prior belongs to all n data: a mini-batch, mean or sum, carries its share of it.
            n = self.x.shape[-2]
            values.append(("priors", prior / n if self.objective.per_datum else prior * x.shape[-2] / n))
        total = sum((value for _, value in values), start=x.new_zeros(()))
        terms: dict[str, float] = {}
        for name, value in values:
            terms[name] = terms.get(name, 0.0) + value.item()
        return total, terms

    def record(self, value: float, terms: dict[str, float], point: Vector) -> None:
        """Remember an evaluation, and the point if it is the best."""
        self.history.append({"start": float(self.start), "value": value, **terms})
        if value < self.best_value:
            self.best_value, self.best = value, point.copy()
        self.save()


def _fingerprint(*tensors: Tensor | None) -> str:
    """What tells one data set from another, so that a checkpoint is never resumed on other data."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _lbfgs(
    search: _Search,
    max_evaluations: int,
    tolerance: float,
    num_restarts: int,
    spread: float,
    generator: np.random.Generator,
    progress: bool | None,
) -> None:
    origin = search.origin
    starts = [origin] + [origin + spread * generator.standard_normal(origin.shape) for _ in range(num_restarts)]
    bounds = search.vector.bounds()
    left = max_evaluations
    with progress_bar(max_evaluations * len(starts), "fit", progress) as bar:

        def evaluate(point: Vector) -> tuple[float, Vector]:
            nonlocal left
            if left == 0:
                raise _EnoughError  # scipy looks at its own limit only between line searches
            left -= 1
            search.vector.set(point)
            search.vector.clear_gradient()
            search.num_evaluations += 1
            bar.update()
            first = not any(record["start"] == search.start for record in search.history)
            try:
                loss, terms = search.loss(search.x, search.y)
                loss.backward()
            except (NotPSDError, NanError, DiagonalBoundError):
                if first and search.start == 0:
                    raise
                return _refusal(search)
            gradient = search.vector.gradient()
            if not (np.isfinite(loss.item()) and np.isfinite(gradient).all()):
                if first and search.start == 0:
                    raise NanError(
                        f"Expected a finite objective and gradient at the starting parameters, got {loss.item()}. "
                        "Start from lengthscales near the distances in x, or scale the features."
                    )
                return _refusal(search)
            search.record(loss.item(), terms, point)
            bar.set_postfix_str(f"{search.best_value:.4f}", refresh=False)
            return loss.item(), gradient

        first_start = search.start
        for start in range(first_start, len(starts)):
            search.start = start
            resumed = bool(search.history) and search.history[-1]["start"] == start
            point = search.best if resumed else starts[start]
            options = {
                "maxfun": max_evaluations,
                "maxiter": max_evaluations,
                "ftol": 1e-2 * tolerance,
                "gtol": tolerance,
            }
            best_before, left = search.best_value, max_evaluations
            try:
                answer = minimize(evaluate, point, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
                converged, message = bool(answer.success), str(answer.message).lower()
            except _EnoughError:
                converged, message = False, f"stop: made all {max_evaluations} evaluations"
            if start == first_start or search.best_value < best_before:
                search.converged, search.message = converged, message


class _EnoughError(Exception):
    """The evaluations of one start are used up."""


def _refusal(search: _Search) -> tuple[float, Vector]:
    """What the line search is told of a point where the objective does not exist: high, and no slope."""
    return search.best_value + 10.0 * abs(search.best_value) + 10.0, np.zeros_like(search.best)


def _adam(
    search: _Search,
    batch_size: int,
    num_epochs: int,
    learning_rate: float,
    generator: np.random.Generator,
    progress: bool | None,
) -> None:
    optimizer = torch.optim.Adam(search.vector.parameters, lr=learning_rate)
    first_epoch = 0
    if search.optimizer_state:
        optimizer.load_state_dict(search.optimizer_state["adam"])
        search.vector.set(search.optimizer_state["point"].numpy())
        first_epoch = search.optimizer_state["epoch"]
    n = search.x.shape[-2]
    num_batches = -(-n // batch_size)
    orders = [generator.permutation(n) for _ in range(num_epochs)]
    with progress_bar(num_epochs, "fit", progress) as bar:
        bar.update(first_epoch)
        for epoch in range(first_epoch, num_epochs):
            point, value, terms = search.vector.get(), 0.0, dict[str, float]()
            for rows in np.array_split(orders[epoch], num_batches):
                batch = torch.as_tensor(rows, device=search.x.device)
                optimizer.zero_grad()
                loss, parts = search.loss(search.x[batch], None if search.y is None else search.y[batch])
                if not torch.isfinite(loss):
                    raise NanError(
                        f"Expected a finite objective, got {loss.item()} in epoch {epoch}. "
                        "A smaller learning_rate usually avoids this."
                    )
                loss.backward()
                optimizer.step()
                search.vector.project()
                search.num_evaluations += 1
                value += loss.item() / num_batches
                terms = {name: terms.get(name, 0.0) + part / num_batches for name, part in parts.items()}
            # With one batch the value belongs to the point before the step; with several, to the path of the epoch.
            search.record(value, terms, point if num_batches == 1 else search.vector.get())
            search.optimizer_state = {
                "adam": copy.deepcopy(optimizer.state_dict()),  # the optimiser writes into its own
                "point": torch.as_tensor(search.vector.get(), device="cpu"),
                "epoch": epoch + 1,
            }
            bar.update()
            bar.set_postfix_str(f"{value:.4f}", refresh=False)
    tail = [record["value"] for record in search.history[-10:]]
    search.converged = len(tail) == 10 and bool(max(tail) - min(tail) <= SETTLED * abs(np.mean(tail)))
    search.message = f"ran all {num_epochs} epochs"
