r"""Candidate kernels of the default estimators, and how each is learned.

Whether a column enters by its value or by its rank, and whether the prediction is smooth or rough in it, are
hyperparameters too. The squared exponential kernel depends on directions; the Laplace kernel treats columns one by one,
as trees do. The candidates combine

====================  ==================================================================
squash, quantile      how columns are transformed, :mod:`kernel_embed.tabular.input_transforms`
rbf, laplace, linear  the squared exponential, Laplace and linear kernel of transformed rows
common, columns       one lengthscale for all columns, or one for each
====================  ==================================================================

A common lengthscale is learned first: two parameters, in a dozen evaluations. The prior of each column's lengthscale is
centred there, so that all columns are equally relevant a priori.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from gpytorch.kernels import AdditiveKernel, ConstantKernel, Kernel, LinearKernel
from gpytorch.priors import Prior
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from ..embeddings import ConditionalEmbedding
from ..kernels import FeatureKernel, log_scaled
from ..kernels.parameters import NamedParameter, log_normal_prior
from ..learning import LBFGS, fit
from ..objectives import Objective
from ..tabular import InputTransform, Partitions, TiedLaplaceKernel, TiedMaternKernel, TiedRBFKernel
from .conditioning import Table

Family = Literal["rbf", "laplace", "matern", "linear", "logistic", "partition"]
Relevance = Literal["common", "columns"]
Learned = dict[Relevance, Any]
"""An embedding of transformed rows with a common lengthscale, and one with lengthscales of columns."""

RELATIVE_LENGTHSCALE = 0.7
"""The initial lengthscale relative to √G for G columns of unit variance, or to G for the Laplace kernel."""
COMMON_SPREAD, COLUMN_SPREAD, RIDGE_SPREAD = 1.0, 0.5, 3.0
"""Standard deviations of the priors of log ℓ, of log ℓ_j around it, and of the log of the ridge."""
MANY_COLUMNS = 1000  # number of columns from which only a common lengthscale is learned
RIDGE = math.exp(-3.0)  # η = nλ, where the search starts, for kernels with k(x, x) = 1
COMMON_STAGE, COLUMN_STAGE = LBFGS(max_evaluations=15, tolerance=1e-3), LBFGS(max_evaluations=30, tolerance=1e-4)
LATER_EVALUATIONS = 8  # of a stage that starts from the result of another part of the rows
DATA_WEIGHT = 0.3
"""Weight of a score relative to the priors of lengthscales; with 1, scores at left-out rows were too optimistic."""


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An input transform, a family of kernels, and whether each column has its own lengthscale."""

    input_transform: InputTransform
    family: Family
    relevance: Relevance

    def __str__(self) -> str:
        return f"{self.input_transform} {self.family} {self.relevance}"


def is_wide(rows: Table) -> bool:
    """Whether there are more columns than rows, and too many to learn a lengthscale for each."""
    return rows.num_columns > MANY_COLUMNS and rows.x.shape[1] > len(rows.x)


def narrow_coordinates(x: Tensor) -> Tensor:
    """The rows in n coordinates: X = RᵀQᵀ, where Rᵀ preserves all distances and inner products."""
    R: Tensor = torch.linalg.qr(x.mT, mode="r").R
    return R.mT.contiguous()


@dataclasses.dataclass(frozen=True)
class Search:
    """How candidates are learned: ``make`` is an embedding from a kernel, λ, and the prior of λ.

    ``nats`` is for a score in the units of the target or their square. When each column gets its lengthscale, the
    objective is then ``nats``·log(score) per row, relative to the score at the common lengthscale: it is dimensionless,
    so that priors weigh as in a likelihood, up to :data:`DATA_WEIGHT`.
    """

    objective: Objective[Any]
    make: Callable[[Kernel, float, Prior], ConditionalEmbedding]
    common: LBFGS = COMMON_STAGE  # the optimizer of the common lengthscale
    columns: LBFGS = COLUMN_STAGE  # and of the lengthscales of columns
    nats: float | None = None

    def learn(self, family: Family, rows: Table, start: Learned | None = None) -> Learned:
        """Learn the embeddings of a family on transformed rows, starting from ``start`` if it is given."""
        narrow = rows
        if is_wide(rows) and family != "laplace":
            x = narrow_coordinates(rows.x) if rows.coordinates is None else rows.coordinates
            narrow = dataclasses.replace(rows, x=x, coordinates=None)
        stages: Learned = {}
        if family != "linear":
            stages["common"] = self._learn(family, "common", narrow, stages, start)
        if family == "linear" or rows.num_columns <= MANY_COLUMNS:
            stages["columns"] = self._learn(family, "columns", narrow, stages, start)
        if narrow is rows:
            return stages
        wide = {relevance: self._embedding(family, relevance, rows, {}) for relevance in stages}
        for relevance, embedding in wide.items():
            embedding.load_state_dict(_learned_state(stages[relevance]), strict=False)
        return wide

    def _learn(
        self, family: Family, relevance: Relevance, rows: Table, stages: Learned, start: Learned | None
    ) -> ConditionalEmbedding:
        embedding = self._embedding(family, relevance, rows, stages)
        optimizer = self.common if relevance == "common" else self.columns
        if start is not None:
            embedding.load_state_dict(_learned_state(start[relevance]), strict=False)
            optimizer = dataclasses.replace(optimizer, max_evaluations=LATER_EVALUATIONS)
        objective = self.objective
        if self.nats is not None and "common" in stages:
            with torch.no_grad():
                value = objective.evaluate(stages["common"].attach(**rows.data)).item()
            objective = objective * (DATA_WEIGHT * self.nats / max(value, 1e-12))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericalWarning)  # a line search may visit scales that are not kept
            result = fit(embedding, objective, **rows.data, optimizer=optimizer, progress=False)
        if result.interrupted:
            raise KeyboardInterrupt  # a pool of only some candidates would be misleading
        return embedding

    def _embedding(self, family: Family, relevance: Relevance, rows: Table, stages: Learned) -> ConditionalEmbedding:
        """The embedding from which learning starts; the prior of λ is that of the ridge."""
        usual = RIDGE / rows.total_weight
        if family == "linear":
            kernel = linear_kernel(rows.x, len(rows.groups))
        elif relevance == "common":
            center = RELATIVE_LENGTHSCALE * rows.num_columns ** (1.0 if family == "laplace" else 0.5)
            kernel = tied_kernel(family, rows.groups.new_zeros(rows.x.shape[1]), center, COMMON_SPREAD)
        else:
            center = stages["common"].kernel.column_lengthscale.item()
            kernel = tied_kernel(family, rows.groups, center, COLUMN_SPREAD)
        first = stages["common"].regularization.item() if "common" in stages else usual
        return self.make(kernel.to(rows.x), first, log_normal_prior(usual, RIDGE_SPREAD)).to(rows.x)


def tied_kernel(family: Family, groups: Tensor, center: float, spread: float) -> Kernel:
    """A kernel on transformed rows with a lengthscale prior centred at ``center``, of log-scale width ``spread``."""
    num_columns = int(groups.max()) + 1
    mode = torch.full((1, num_columns), center, dtype=torch.float64, device=groups.device)
    options = {"lengthscale_prior": log_normal_prior(mode, spread), "lengthscale_constraint": log_scaled()}
    if family == "matern":
        kernel: Kernel = TiedMaternKernel(groups, nu=0.5, **options)
    else:
        kernel = (TiedRBFKernel if family == "rbf" else TiedLaplaceKernel)(groups, **options)
    kernel.to(mode).lengthscale = center
    return kernel


def _learned_state(embedding: ConditionalEmbedding) -> dict[str, Tensor]:
    """The state of the kernel, without the assignment of inputs to columns, which depends on the rows."""
    state = embedding.state_dict()
    return {name: value for name, value in state.items() if not name.endswith("groups")}


def linear_kernel(like: Tensor, num_inputs: int) -> Kernel:
    """1 + Σ_j v_j x_j x'_j, with the v_j around 1/D, for D inputs, in the dtype of ``like``; one v where D is large."""
    free = num_inputs if num_inputs <= MANY_COLUMNS else 1
    prior = log_normal_prior(like.new_full((1, free), 1.0 / num_inputs), 1.0)
    linear = LinearKernel(ard_num_dims=free if free > 1 else None, variance_constraint=log_scaled()).to(like)
    variance = NamedParameter("variance")  # GPyTorch's own closure cannot be pickled
    linear.register_prior("variance_prior", prior, variance.get, variance.set)
    linear.variance = like.new_tensor(1.0 / num_inputs)  # GPyTorch rounds a float to the default dtype
    constant = ConstantKernel().to(like)
    constant.constant = like.new_ones(1)
    constant.requires_grad_(False)
    return AdditiveKernel(linear, constant)


def relevances(embedding: ConditionalEmbedding, groups: Tensor) -> Tensor:
    """The effect of each column, ``(G,)``: 1/ℓ; √v, v summed over its numbers; or how often partitions split it."""
    num_columns = int(groups.max()) + 1
    kernel = embedding.kernel
    if isinstance(kernel, FeatureKernel):
        partitions = cast(Partitions, kernel.feature_map)
        splits = partitions.splits(len(groups)).to(partitions.thresholds)
        return torch.zeros_like(splits[:num_columns]).scatter_add_(0, groups, splits)
    if isinstance(kernel, AdditiveKernel):
        v: Tensor = kernel.kernels[0].variance.detach().flatten().expand(len(groups))
        return v.new_zeros(num_columns).scatter_add_(0, groups, v).sqrt()
    inverse: Tensor = 1.0 / kernel.column_lengthscale.detach().flatten()
    return inverse.expand(num_columns).clone()
