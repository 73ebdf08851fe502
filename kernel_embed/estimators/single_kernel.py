"""The classifier with a single learned kernel, for a given kernel or objective or for mini-batches."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from ..embeddings import ConditionedMulticlass, MulticlassEmbedding
from ..kernels import default_kernel, feature_ranges, log_scaled
from ..kernels.parameters import log_normal_prior
from ..learning import LBFGS, Adam, FitResult, Optimizer, fit
from ..objectives import Objective, default_objective
from ..splits import seed_of, stratified_sample
from .conditioning import Table

KernelChoice: TypeAlias = Kernel | Callable[[Tensor], Kernel] | None

SETTINGS = {
    *("kernel", "regularization", "max_evaluations", "tolerance", "num_restarts", "subset_size", "batch_size"),
    *("num_epochs", "learning_rate", "progress"),
}
"""Settings that the classifier has under the same name."""


@dataclasses.dataclass(frozen=True)
class SingleKernel:
    """Learn one embedding in stages, each starting from the result of the one before.

    Attributes: as the arguments of :class:`kernel_embed.MulticlassEmbeddingClassifier`.
    """

    kernel: KernelChoice
    objective: Objective[ConditionedMulticlass]
    num_classes: int
    regularization: float
    max_evaluations: int
    tolerance: float
    num_restarts: int
    subset_size: int | None
    batch_size: int | None
    num_epochs: int
    learning_rate: float
    seed: int | None
    progress: bool | None
    column_names: tuple[str, ...] | None

    @classmethod
    def of(cls, settings: Any, num_classes: int) -> SingleKernel:
        """From the ``settings`` of a classifier."""
        arguments = {
            field.name: getattr(settings, field.name) for field in dataclasses.fields(cls) if field.name in SETTINGS
        }
        objective = settings.objective if settings.objective is not None else default_objective()
        names = getattr(settings, "feature_names_in_", None)
        arguments |= {"seed": seed_of(settings.random_state), "column_names": None if names is None else tuple(names)}
        return cls(objective=objective, num_classes=num_classes, **arguments)

    def learn(self, table: Table) -> tuple[MulticlassEmbedding, FitResult]:
        """Learn a common lengthscale, then on a subset, then on all rows. Ctrl-C ends all stages."""
        n, x = len(table.x), table.x
        names = self.column_names if self.column_names is not None and len(self.column_names) == x.shape[1] else None
        learn = partial(fit, seed=self.seed, progress=self.progress, column_names=names)
        optimizer = self._optimizer(self.num_restarts)
        rows = torch.arange(n, device=x.device)
        if self.batch_size is not None and self.batch_size < n:
            # Mini-batches are for rows whose matrix would not fit, so the start must not see all of them either.
            rows = self._some(table, max(self.batch_size, 2))
        elif self.batch_size is None and self.subset_size is not None and n >= 2 * self.subset_size:
            rows = self._some(table, self.subset_size)
        some = table.subset(rows) if len(rows) < n else table
        embedding, result = self._start(some)
        if self.batch_size is None and len(rows) < n and not (result and result.interrupted):
            result = learn(embedding, self.objective, *some.data, **some.options, optimizer=optimizer)
            # A = K + nλI: the ridge found on the subset is a better guess for all rows than its λ.
            embedding.regularization = embedding.regularization.detach() * (len(rows) / n)
            optimizer = self._optimizer(num_restarts=0)
        if not (result and result.interrupted):
            result = learn(embedding, self.objective, *table.data, **table.options, optimizer=optimizer)
        if self.batch_size is not None and self.batch_size < n:
            # λ was learned with n = batch_size; the ridge that goes with all rows is the same.
            embedding.regularization = embedding.regularization.detach() * (self.batch_size / n)
        return embedding, result

    def _some(self, table: Table, size: int) -> Tensor:
        return table.rows(stratified_sample(table.labels, size, np.random.default_rng(self.seed or 0), table.places))

    def _optimizer(self, num_restarts: int) -> Optimizer:
        if self.batch_size is not None:
            return Adam(self.num_epochs, self.learning_rate, self.batch_size)
        return LBFGS(self.max_evaluations, self.tolerance, num_restarts)

    def _start(self, table: Table) -> tuple[MulticlassEmbedding, FitResult | None]:
        """The embedding from which learning starts, and the result of the stage that gave it."""
        if self.kernel is None:
            return self._isotropic_start(table)
        # A GPyTorch kernel is callable too, so test the type.
        is_constructor = not isinstance(self.kernel, Kernel) and callable(self.kernel)
        kernel: Kernel = self.kernel(table.x) if is_constructor else copy.deepcopy(self.kernel)
        kernel = kernel.to(table.x) if isinstance(kernel, Kernel) else kernel
        return MulticlassEmbedding(kernel, self.num_classes, self.regularization), None

    def _isotropic_start(self, table: Table) -> tuple[MulticlassEmbedding, FitResult]:
        """The default kernel at the best common lengthscale: two parameters, learned in a dozen evaluations.

        The lengthscale prior of :func:`kernel_embed.default_kernel` is centred there, so that all columns are equally
        relevant a priori.
        """
        x = table.x
        scaled = x / feature_ranges(x)
        centre = default_kernel(scaled).lengthscale.detach().mean()
        prior = log_normal_prior(centre, 1.0)
        kernel = RBFKernel(lengthscale_prior=prior, lengthscale_constraint=log_scaled()).to(x)
        kernel.lengthscale = centre
        isotropic = MulticlassEmbedding(kernel, self.num_classes, self.regularization)
        optimizer = LBFGS(max_evaluations=30, tolerance=1e-3)
        options = {**table.options, "optimizer": optimizer, "progress": self.progress}
        result = fit(isotropic, self.objective, scaled, table.y, **options)
        kernel = default_kernel(x, kernel.lengthscale.item())
        return MulticlassEmbedding(kernel, self.num_classes, isotropic.regularization.item()), result


def check_settings(kernel: KernelChoice, regularization: float, confidence: float) -> None:
    """Raise for invalid settings, before anything is learned."""
    if not 0.0 < regularization < float("inf"):
        raise ValueError(
            f"Expected a positive, finite regularization, got {regularization}. Give 0.01, which is usual."
        )
    if isinstance(kernel, type):
        raise TypeError(f"Expected a kernel, got the class {kernel.__name__}. Write {kernel.__name__}().")
    if callable(kernel) and not isinstance(kernel, Kernel):
        _check_takes_one(kernel)
    if isinstance(kernel, Kernel) and len(kernel.batch_shape) > 0:
        shape = tuple(kernel.batch_shape)
        raise ValueError(f"Expected a kernel without batch shape, got {shape}. Fit one classifier for each element.")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"Expected confidence between 0 and 1, got {confidence}. Give 0.95, which is usual.")


def _check_takes_one(build: Callable[[Tensor], Kernel]) -> None:
    try:
        signature = inspect.signature(build)
    except ValueError:
        return  # a built-in function need not have a signature
    try:
        signature.bind(None)
    except TypeError as error:
        raise TypeError(
            f"kernel must be a kernel, or a function of the training inputs alone; this function takes {signature}. "
            "Pass a function such as lambda x: RBFKernel()."
        ) from error
