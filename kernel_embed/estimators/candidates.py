r"""Candidate kernels of the default classifier, and how each is learned.

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
from collections.abc import Callable, Iterator
from typing import Generic, Literal, TypeVar, cast

import torch
from gpytorch.kernels import AdditiveKernel, ConstantKernel, Kernel, LinearKernel
from gpytorch.priors import Prior
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor
from torch.nn.functional import one_hot

from ..embeddings import ConditionalEmbedding, ConditionedEmbedding
from ..kernels import FeatureKernel, log_scaled
from ..kernels.parameters import NamedParameter, log_normal_prior
from ..learning import LBFGS, fit
from ..linalg import Units
from ..objectives import Objective
from ..tabular import InputTransform, Partitions, TiedLaplaceKernel, TiedMaternKernel, TiedRBFKernel

Family = Literal["rbf", "laplace", "matern", "linear", "logistic", "partition"]
Relevance = Literal["common", "columns"]

RELATIVE_LENGTHSCALE = 0.7
"""The initial lengthscale relative to √G for G columns of unit variance, or to G for the Laplace kernel."""

COMMON_SPREAD, COLUMN_SPREAD, RIDGE_SPREAD = 1.0, 0.5, 3.0
"""Standard deviations of the priors of log ℓ, of log ℓ_j around it, and of the log of the ridge."""

MANY_COLUMNS = 1000
"""Number of columns from which only a common lengthscale is learned."""

RIDGE = math.exp(-3.0)
"""η = nλ, where the search starts, for kernels with k(x, x) = 1."""


COMMON_STAGE = LBFGS(max_evaluations=15, tolerance=1e-3)
COLUMN_STAGE = LBFGS(max_evaluations=30, tolerance=1e-4)


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An input transform, a family of kernels, and whether each column has its own lengthscale.

    Example:
        >>> str(Candidate("squash", "rbf", "columns"))
        'squash rbf columns'
    """

    input_transform: InputTransform
    family: Family
    relevance: Relevance

    def __str__(self) -> str:
        return f"{self.input_transform} {self.family} {self.relevance}"


@dataclasses.dataclass(frozen=True)
class Rows:
    """The data of a candidate: transformed ``x`` ``(n, D)``, targets, weights, and the column of each number."""

    x: Tensor
    y: Tensor
    weights: Tensor | None
    groups: Tensor
    num_classes: int = 0
    """m; 0 for real targets."""
    coordinates: Tensor | None = None
    """The rows of :meth:`narrowed`, if computed already."""
    units: Units = Units()  # noqa: RUF009
    """What is left out at a time."""

    @property
    def data(self) -> tuple[Tensor, Tensor]:
        """x and y."""
        return self.x, self.y

    @property
    def num_columns(self) -> int:
        """G."""
        return int(self.groups.max()) + 1

    @property
    def total_weight(self) -> float:
        """n = Σ w."""
        return len(self.x) if self.weights is None else float(self.weights.sum())

    @property
    def Y(self) -> Tensor:
        """One-hot or soft labels, ``(n, m)``."""
        return self.y.to(self.x) if self.y.dim() == 2 else one_hot(self.y, self.num_classes).to(self.x)

    @property
    def is_wide(self) -> bool:
        """Whether there are more columns than rows, and too many to learn a lengthscale for each."""
        return self.num_columns > MANY_COLUMNS and self.x.shape[1] > len(self.x)

    def narrowed(self) -> Rows:
        """The same rows in n coordinates: X = RᵀQᵀ, where Rᵀ preserves all distances and inner products."""
        x = torch.linalg.qr(self.x.mT, mode="r").R.mT.contiguous() if self.coordinates is None else self.coordinates
        return dataclasses.replace(self, x=x, coordinates=None)

    def with_coordinates(self) -> Rows:
        """The same rows, with the coordinates precomputed for all subsets if they will be needed."""
        return dataclasses.replace(self, coordinates=self.narrowed().x) if self.is_wide else self

    def subset(self, rows: Tensor) -> Rows:
        """Some of them."""
        weights = None if self.weights is None else self.weights[rows]
        coordinates = None if self.coordinates is None else self.coordinates[rows]
        parts = {"x": self.x[rows], "y": self.y[rows], "units": self.units.subset(rows)}
        return dataclasses.replace(self, weights=weights, coordinates=coordinates, **parts)  # type: ignore[arg-type]


E = TypeVar("E", bound=ConditionalEmbedding)
C = TypeVar("C", bound=ConditionedEmbedding)
Learned = dict[Relevance, E]
"""An embedding of transformed rows with a common lengthscale, and one with lengthscales of columns."""


@dataclasses.dataclass(frozen=True)
class Search(Generic[E, C]):
    """How candidates are learned: the objective, and the evaluation limit of each of the two stages."""

    objective: Objective[C]
    make: Callable[[Kernel, float, Prior], E]
    """An embedding of a kernel, λ, and the prior of λ."""
    common: LBFGS = COMMON_STAGE
    columns: LBFGS = COLUMN_STAGE
    again: int = 8
    """Evaluation limit of a stage that starts from the result of another part of the rows."""

    def learn(self, family: Family, rows: Rows, start: Learned[E] | None = None) -> Learned[E]:
        """Learn the embeddings of a family on these rows, starting from ``start`` if it is given."""
        if not rows.is_wide or family == "laplace":
            return self._learn(family, rows, start)
        narrow = self._learn(family, rows.narrowed(), start)
        return {relevance: self._like(narrow[relevance], family, relevance, rows) for relevance in narrow}

    def _like(self, embedding: E, family: Family, relevance: Relevance, rows: Rows) -> E:
        """The embedding learned in reduced coordinates, for the rows in their original coordinates."""
        wide = self._embedding(family, relevance, rows, {})
        wide.load_state_dict(_learned_state(embedding), strict=False)
        return wide

    def _embedding(self, family: Family, relevance: Relevance, rows: Rows, stages: Learned[E]) -> E:
        kernel = self._kernel(family, relevance, rows, stages)
        usual = RIDGE / rows.total_weight
        prior = log_normal_prior(usual, RIDGE_SPREAD)
        first = stages["common"].regularization.item() if "common" in stages else usual
        return self.make(kernel, first, prior).to(rows.x)

    def _learn(self, family: Family, rows: Rows, start: Learned[E] | None) -> Learned[E]:
        stages: Learned[E] = {}
        for relevance, optimizer in self._stages(family, rows.num_columns):
            embedding = self._embedding(family, relevance, rows, stages)
            if start is not None:
                embedding.load_state_dict(_learned_state(start[relevance]), strict=False)
            with warnings.catch_warnings():
                # A line search may visit scales that are not kept.
                warnings.simplefilter("ignore", NumericalWarning)
                result = fit(  # type: ignore[misc]  # E binds to C, which no type can say
                    embedding,
                    self.objective_of(stages, rows),
                    rows.x,
                    rows.y,
                    weights=rows.weights,
                    groups=rows.units,
                    optimizer=optimizer
                    if start is None
                    else dataclasses.replace(optimizer, max_evaluations=self.again),
                    progress=False,
                )
            if result.interrupted:
                raise KeyboardInterrupt  # a pool of only some candidates would be misleading
            stages[relevance] = embedding
        return stages

    def objective_of(self, stages: Learned[E], rows: Rows) -> Objective[C]:
        """The objective of the next stage, given the results of the earlier ``stages``."""
        return self.objective

    def _stages(self, family: Family, num_columns: int) -> Iterator[tuple[Relevance, LBFGS]]:
        if family != "linear":
            yield "common", self.common
        if family == "linear" or num_columns <= MANY_COLUMNS:
            yield "columns", self.columns

    def _kernel(self, family: Family, relevance: Relevance, rows: Rows, stages: Learned[E]) -> Kernel:
        if family == "linear":
            return linear_kernel(rows.x, len(rows.groups)).to(rows.x)
        if relevance == "common":
            center = RELATIVE_LENGTHSCALE * rows.num_columns ** (1.0 if family == "laplace" else 0.5)
            common = rows.groups.new_zeros(rows.x.shape[1])
            return tied_kernel(family, common, center, COMMON_SPREAD).to(rows.x)
        center = stages["common"].kernel.column_lengthscale.item()
        return tied_kernel(family, rows.groups, center, COLUMN_SPREAD).to(rows.x)


def tied_kernel(family: Family, groups: Tensor, center: float, spread: float) -> Kernel:
    """A kernel on transformed rows with a lengthscale prior centred at ``center``, of log-scale width ``spread``."""
    num_columns = int(groups.max()) + 1
    mode = torch.full((1, num_columns), center, dtype=torch.float64, device=groups.device)
    prior = log_normal_prior(mode, spread)
    if family == "rbf":
        kernel: Kernel = TiedRBFKernel(groups, lengthscale_prior=prior, lengthscale_constraint=log_scaled())
    elif family == "laplace":
        kernel = TiedLaplaceKernel(groups, lengthscale_prior=prior, lengthscale_constraint=log_scaled())
    else:
        kernel = TiedMaternKernel(groups, nu=0.5, lengthscale_prior=prior, lengthscale_constraint=log_scaled())
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
    """The effect of one standard deviation of each column, ``(G,)``.

    1/ℓ; √v summed over the numbers of a column; or, of partitions, how often it is split.
    """
    num_columns = int(groups.max()) + 1
    kernel = embedding.kernel
    if isinstance(kernel, FeatureKernel):
        partitions = cast(Partitions, kernel.feature_map)
        splits = partitions.splits(len(groups)).to(partitions.thresholds)
        return torch.zeros_like(splits[:num_columns]).scatter_add_(0, groups, splits)
    if isinstance(kernel, AdditiveKernel):
        v = kernel.kernels[0].variance.detach().flatten().expand(len(groups))
        total: Tensor = v.new_zeros(num_columns).scatter_add_(0, groups, v)
        return total.sqrt()
    inverse: Tensor = 1.0 / kernel.column_lengthscale.detach().flatten()
    return inverse.expand(num_columns).clone()
