r"""The conditional mean embedding of Y given X, eqs. (1) and (2).

.. math::
    \hat{\mathcal U}_{Y|X} &= \Psi (K + n\lambda I)^{-1} \Phi^\top                                       & (1) \\
    \mathbb E[g(Y) \mid X = x] &\approx \mathbf g^\top (K + n\lambda I)^{-1} \mathbf k(x)               & (2)
"""

from __future__ import annotations

import functools

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor
from typing_extensions import Self

from ..kernels import DiagonalBound, SupDiagonal, sup_diagonal
from ..kernels.parameters import frozen
from ..linalg import Groups, LinearSystem, Units, repeated_rows
from ..validation import check_features, check_finite, check_lengths, check_query_points, check_weights
from .base import RegularizedEmbedding
from .distribution import Distribution, indicators
from .predictors import LinearPredictor
from .representation import KernelFeatures, KernelValues, Representation
from .resolution import kernel_system, updated_system


class ConditionalEmbedding(RegularizedEmbedding):
    r"""The embedding of P(Y | X) for targets of any kind.

    Args:
        kernel: k, any GPyTorch kernel on the inputs. Its ``batch_shape`` is the batch shape of every prediction.
        regularization: the starting value of λ.
        target_kernel: l, a kernel on the targets; only objectives that measure distance between embedded targets
            need it. It is never learned: choose its scale yourself, or with
            :func:`kernel_embed.set_lengthscales_by_median`.
        regularization_prior: a GPyTorch prior on λ.
        regularization_constraint: a GPyTorch constraint on λ; positive, learned on a logarithmic scale, by default.
        sup_diagonal: α², a bound of k(x, x) where the kernel has none in closed form, as a number or a function such
            as :class:`kernel_embed.LipschitzBound` (see :func:`kernel_embed.kernels.sup_diagonal`).

    Example:
        >>> import gpytorch
        >>> x = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> y = torch.sin(6 * x.squeeze(-1))
        >>> kernel = gpytorch.kernels.RBFKernel().double()
        >>> kernel.lengthscale = 0.2
        >>> conditioned = ConditionalEmbedding(kernel, regularization=1e-6).condition(x, y)
        >>> value = conditioned.expectation(lambda y: y**2, x[25:26])     # E[Y² | X = 0.51]
        >>> abs(value.item() - y[25].item() ** 2) < 1e-3
        True
    """

    takes_targets = True

    def __init__(
        self,
        kernel: Kernel,
        regularization: float = 0.01,
        target_kernel: Kernel | None = None,
        *,
        regularization_prior: Prior | None = None,
        regularization_constraint: Interval | None = None,
        sup_diagonal: float | DiagonalBound | None = None,
    ) -> None:
        super().__init__(
            kernel,
            regularization,
            regularization_prior=regularization_prior,
            regularization_constraint=regularization_constraint,
        )
        self.target_kernel = target_kernel
        self.sup_diagonal_bound = sup_diagonal

    def attach(
        self, x: Tensor, y: Tensor, weights: Tensor | None = None, groups: Groups = None
    ) -> ConditionedEmbedding:
        """The embedding with its data, differentiable in the parameters as they are: what an objective evaluates.

        Args:
            x: inputs of shape ``(n, d)``.
            y: targets with n rows, of any further shape.
            weights: how many rows each row stands for, ``(n,)`` and positive; 1 each by default.
            groups: a whole number for each row, ``(n,)``: rows of one group, such as a patient or day, are left out
                together. By default rows equal in x and y are, unless other rows have the same x and another y.
        """
        x, y, weights = self.checked(x, y, weights)
        return ConditionedEmbedding(self, x, y, weights=weights, units=Units.of(x, groups))

    def checked(self, x: Tensor, y: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Validate and convert the data of :meth:`attach`."""
        x = check_features(x)
        check_lengths(x, y)
        if y.is_floating_point():
            check_finite(y, "y")
        return x, y, check_weights(x, weights)

    def condition(
        self, x: Tensor, y: Tensor, weights: Tensor | None = None, groups: Groups = None
    ) -> ConditionedEmbedding:
        """Factorize K + nλW⁻¹ for the data that :meth:`attach` takes, with a frozen copy of this embedding."""
        return frozen(self).attach(x, y, weights, groups)

    def targets(self, y: Tensor, like: Tensor) -> Tensor:
        """Y, the targets as an n × m matrix of numbers in the dtype and on the device of ``like``.

        Raises:
            ValueError: if a target has no numbers, or numbers whose squares the dtype cannot hold.
        """
        Y = y.to(like).reshape(y.shape[0], -1)
        if Y.numel() == 0:
            raise ValueError(f"Every target needs at least one number, but y has shape {tuple(y.shape)}.")
        if not bool(Y.detach().abs().amax() < torch.finfo(Y.dtype).max ** 0.5):
            raise ValueError(
                f"The squares of targets up to {float(Y.detach().abs().amax()):.2g} overflow in {Y.dtype}. Rescale y."
            )
        return Y


class ConditionedEmbedding(LinearPredictor):
    """A conditional embedding with its data: the factorized A = K + nλI, and its predictions.

    Attributes:
        embedding: the embedding; from ``condition`` a frozen copy.
        x: inputs, ``(n, d)``.
        y: targets.
        regularization: λ of the conditioned embedding.
        system: A = K + nλW⁻¹, through the p × p matrix ZᵀWZ + nλI where the kernel has p < n explicit features.
        weights: of the rows, ``(n,)``, or ``None``.
        units: what is left out at a time.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.linspace(0, 1, 30, dtype=torch.float64).unsqueeze(-1)
        >>> conditioned = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel(), 1e-4).double().condition(x, x.square())
        >>> round(conditioned.mean(torch.tensor([[0.5]], dtype=torch.float64)).item(), 2)
        0.25
    """

    def __init__(
        self,
        embedding: ConditionalEmbedding,
        x: Tensor,
        y: Tensor,
        system: LinearSystem | None = None,
        weights: Tensor | None = None,
        units: Units | None = None,
    ) -> None:
        self.embedding, self.x, self.y, self._units = embedding, x, y, units
        self.regularization: Tensor = embedding.regularization.to(x).clone()  # for it may be the live parameter
        # eq. (1): A = K + nλW⁻¹, with n = Σ w
        n = self.num_data if weights is None else float(weights.sum())
        self.system = system or kernel_system(embedding.kernel, x, n * self.regularization, weights)

    def __repr__(self) -> str:
        kernel, p = type(self.embedding.kernel).__name__, self.system.num_features
        through = "" if p is None else f" through {p} features"
        return f"<{type(self).__name__}: {kernel}{through} on {self.num_data} rows of {self.x.shape[-1]} columns>"

    @property
    def num_data(self) -> int:
        """The number of rows."""
        return self.x.shape[-2]

    @functools.cached_property
    def total_weight(self) -> float:
        """n = Σ w, the sum of the row weights; the number of rows if there are no weights."""
        return self.num_data if self.row_weights is None else float(self.row_weights.sum())

    def weighted_mean(self, values: Tensor) -> Tensor:
        """(1/n) Σ w_i v_i over the last dimension of ``values`` ``(*batch, n)``: the mean that a risk is."""
        return values.mean(-1) if self.row_weights is None else (values * self.row_weights).sum(-1) / self.total_weight

    @property
    def representation(self) -> Representation:
        """k(x, x_i) as a function of new points, or their explicit features φ(x)."""
        kernel, p = self.embedding.kernel, self.system.num_features
        return KernelValues(kernel, self.x) if p is None else KernelFeatures(kernel, p, self.x)

    @functools.cached_property
    def coefficients(self) -> Tensor:
        """V, or with explicit features C = ZᵀV, by which the representation is multiplied to predict."""
        return self.system.coefficients(self.Y)

    @property
    def training_targets(self) -> Tensor:
        """y."""
        return self.y

    @property
    def row_weights(self) -> Tensor | None:
        """w, how many rows each training row stands for; ``None`` for 1 each."""
        return self.system.weights

    def coefficients_of(self, values: Tensor) -> Tensor:
        """The coefficients for other ``values`` ``(n, q)`` at the training targets."""
        return self.system.coefficients(values)

    @property
    def K(self) -> Tensor:
        """The Gram matrix, ``(*batch, n, n)``; with explicit features it is formed when needed."""
        return self.system.gram()

    @functools.cached_property
    def Y(self) -> Tensor:
        """The targets as an n × m matrix."""
        return self.embedding.targets(self.y, self.x)

    @functools.cached_property
    def _regression(self) -> tuple[Tensor, Tensor]:
        return self.system.regress(self.Y)

    @property
    def V(self) -> Tensor:
        """V = A⁻¹Y, of shape ``(*batch, n, m)``."""
        return self._regression[0]

    @property
    def P(self) -> Tensor:
        """P = KV, the fitted values at the data."""
        return self._regression[1]

    @property
    def squared_norm(self) -> Tensor:
        """tr(VᵀKV), the squared norm of the embedding, of shape ``batch``."""
        # Algorithm 2, line 10: Σ C² with explicit features; Σ V∘P otherwise, for P = KV
        return (self.V * self.P if self.system.num_features is None else self.coefficients.square()).sum((-2, -1))

    @functools.cached_property
    def sup_diagonal(self) -> SupDiagonal:
        """α² = sup k(x, x), and where it comes from."""
        # From cached values: with dropout a feature map must not be evaluated again.
        return sup_diagonal(self.embedding.kernel, self.x, self.embedding.sup_diagonal_bound, self.system.diagonal())

    @functools.cached_property
    def units(self) -> Units | None:
        """The groups passed, or rows with those equal to them, that are left out together; ``None`` for single rows."""
        return repeated_rows(self.x, self.y) if self._units is None else self._units

    def leave_one_out(self) -> Tensor:
        """The values at each x_i of the embedding without row i, all of its weight and its group, at the same ridge nλ.

        f₋ᵢ = Y_i − V_i / [A⁻¹]_ii, or Y_G − [A⁻¹]_GG⁻¹ V_G for a group G: exactly one fit for each row or group.
        """
        units = self.units
        if "_regression" in vars(self):
            c = self.system.inverse_parts(units)
        else:
            V, P, c = self.system.regress_left_out(self.Y, units)
            self._regression = V, P
        return self.Y - (units or Units()).residuals(self.V, c, self.system.noise)

    def left_out_residuals(self, values: Tensor) -> Tensor:
        """``values`` ``(n, q)`` at each row less their prediction without it and its group: ``(*batch, n, q)``."""
        V, c = self.system.solve(values), self.system.inverse_parts(self.units)
        return (self.units or Units()).residuals(V, c, self.system.noise)

    def leave_one_out_distribution(self) -> Distribution:
        """P(Y | X = x_i) of a real target without row i and its group, at every row, with the same ridge nλ and F̄."""
        support, F, _ = self._cumulative
        G, _ = indicators(self.real_targets(), support, self.row_weights)
        return Distribution(support, F + G - self.left_out_residuals(G))

    def cross_gram(self, x: Tensor) -> Tensor:
        """k(x, x_i) for new points ``x`` of shape ``(t, d)``: ``(*batch, t, n)``."""
        return self.system.gram_from(self.representation(x))

    def weights(self, x: Tensor) -> Tensor:
        """w(x) = A⁻¹k(x), the weights of the data in the embedding at ``x``: ``(*batch, n, t)``."""
        return self.system.solve(self.cross_gram(x).mT)

    def updated(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Self:
        """The same with more rows and the ridge η = nλ fixed; an exact factor grows by a block, for n²t operations.

        Raises:
            TypeError: if the system was solved by iteration, and so cannot be extended.
            ValueError: if the rows do not fit those of the embedding.
        """
        with torch.no_grad():
            x, y, weights = self.embedding.checked(check_query_points(x, self.x), y, weights)
            embedding, system = frozen(self.embedding), updated_system(self, x, weights)
            soft = self.y.dim() != y.dim()  # class numbers and probabilities mixed
            ys = [self.embedding.targets(part, self.x) if soft and part.dim() == 1 else part for part in (self.y, y)]
            total = self.total_weight + (len(x) if weights is None else float(weights.sum()))
            embedding.regularization = (self.system.ridge / total).to(embedding.regularization)
            x, units = torch.cat([self.x, x]), self._units and self._units.extended(len(x))
            return type(self)(embedding, x, torch.cat(ys), system, units=units)

    def restricted(self, rows: Tensor) -> ConditionedEmbedding:
        """The same embedding conditioned on some of the data, from the stored Gram matrix or features."""
        total = len(rows) if self.row_weights is None else float(self.row_weights[rows].sum())
        system = self.system.restricted(rows, total * self.regularization)
        units = self._units and self._units.subset(rows)
        return type(self)(self.embedding, self.x[rows], self.y[rows], system, units=units)

    def fitted_by(self, part: ConditionedEmbedding, part_rows: Tensor, rows: Tensor) -> Tensor:
        """The values at some ``rows`` of the data of ``part``, which is this embedding ``restricted(part_rows)``."""
        return self.system.between(part.system, rows, part_rows) @ part.coefficients
