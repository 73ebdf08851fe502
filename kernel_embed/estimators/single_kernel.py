"""The classifier with a single learned kernel, for a given kernel or objective or for mini-batches."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from gpytorch.kernels import Kernel, RBFKernel

from ..embeddings import ConditionedMulticlass, MulticlassEmbedding
from ..kernels import default_kernel, feature_ranges, log_scaled
from ..kernels.parameters import log_normal_prior
from ..learning import LBFGS, Adam, FitResult, Optimizer, fit
from ..objectives import Objective, default_objective
from ..splits import seed_of, stratified_sample
from .conditioning import Table

if TYPE_CHECKING:
    from .classifier import MulticlassEmbeddingClassifier


def learn_single(settings: MulticlassEmbeddingClassifier, table: Table) -> tuple[MulticlassEmbedding, FitResult]:
    """Learn one embedding in stages, each from the result of the last: a common lengthscale, a subset, all rows."""
    n, size, batch_size = len(table.x), settings.subset_size, settings.batch_size
    objective = default_objective() if settings.objective is None else settings.objective
    seed = seed_of(settings.random_state)
    names = tuple(getattr(settings, "feature_names_in_", ()))
    columns = names if len(names) == table.x.shape[1] else None
    learn = partial(fit, seed=seed, progress=settings.progress, column_names=columns)

    def sample(size: int) -> Table:
        rows = stratified_sample(table.labels, size, np.random.default_rng(seed or 0), table.places)
        return table if len(rows) == n else table.subset(table.rows(rows))

    def optimizer(num_restarts: int) -> Optimizer:
        if batch_size is not None:
            return Adam(settings.num_epochs, settings.learning_rate, batch_size)
        return LBFGS(settings.max_evaluations, settings.tolerance, num_restarts)

    some = table
    if batch_size is not None and batch_size < n:
        # Mini-batches are for rows whose matrix would not fit, so the start must not see all of them either.
        some = sample(max(batch_size, 2))
    elif batch_size is None and size is not None and n >= 2 * size:
        some = sample(size)
    embedding, result = _start(settings, some, objective)
    num_restarts = settings.num_restarts
    if batch_size is None and some is not table and not (result and result.interrupted):
        result = learn(embedding, objective, **some.data, optimizer=optimizer(num_restarts))
        # A = K + nλI: the ridge found on the subset is a better guess for all rows than its λ.
        embedding.regularization = embedding.regularization.detach() * (len(some.x) / n)
        num_restarts = 0
    if not (result and result.interrupted):
        result = learn(embedding, objective, **table.data, optimizer=optimizer(num_restarts))
    if batch_size is not None and batch_size < n:
        # λ was learned with n = batch_size; the ridge that goes with all rows is the same.
        embedding.regularization = embedding.regularization.detach() * (batch_size / n)
    return embedding, result


def _start(
    settings: MulticlassEmbeddingClassifier, table: Table, objective: Objective[ConditionedMulticlass]
) -> tuple[MulticlassEmbedding, FitResult | None]:
    """The embedding from which learning starts, and the result of the stage that gave it.

    By default it is the default kernel at the best common lengthscale, where its lengthscale prior is centred.
    """
    x, m, regularization = table.x, table.num_classes, settings.regularization
    if settings.kernel is not None:
        # A GPyTorch kernel is callable too, so test the type.
        is_function = callable(settings.kernel) and not isinstance(settings.kernel, Kernel)
        kernel: Kernel = settings.kernel(x) if is_function else copy.deepcopy(settings.kernel)
        return MulticlassEmbedding(kernel.to(x) if isinstance(kernel, Kernel) else kernel, m, regularization), None
    scaled = x / feature_ranges(x)
    centre = default_kernel(scaled).lengthscale.detach().mean()
    kernel = RBFKernel(lengthscale_prior=log_normal_prior(centre, 1.0), lengthscale_constraint=log_scaled()).to(x)
    kernel.lengthscale = centre
    isotropic = MulticlassEmbedding(kernel, m, regularization)
    data = {**table.data, "x": scaled, "optimizer": LBFGS(max_evaluations=30, tolerance=1e-3)}
    result = fit(isotropic, objective, **data, progress=settings.progress)
    kernel = default_kernel(x, kernel.lengthscale.item())
    return MulticlassEmbedding(kernel, m, isotropic.regularization.item()), result
