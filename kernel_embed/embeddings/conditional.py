r"""The conditional mean embedding of Y given X, eqs. (1) and (2).

.. math::
    \hat{\mathcal U}_{Y|X} &= \Psi (K + n\lambda I)^{-1} \Phi^\top                                       & (1) \\
    \mathbb E[g(Y) \mid X = x] &\approx \mathbf g^\top (K + n\lambda I)^{-1} \mathbf k(x)               & (2)
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from ..kernels import DiagonalBound, SupDiagonal, check_width, explicit_features, gram, sup_diagonal
from ..kernels.features.explicit import MAX_WIDTH
from ..linalg import FeatureRidgeSystem, RidgeSystem
from ..validation import check_features, check_finite, check_lengths
from .regularized import RegularizedEmbedding
from .snapshot import KernelSnapshot

BLOCK_NUMBERS = 2**23
"""Numbers of a block of kernel values in :func:`in_blocks`: 64 MiB in float64."""

FEATURE_NUMBERS = 2**19
"""Numbers of a block of features: 4 MiB in float64, so that features are used while they are still in the cache."""


class ConditionalEmbedding(RegularizedEmbedding):
    r"""The embedding of P(Y | X) for targets of any kind.

    Args:
        kernel: k, any GPyTorch kernel on the inputs. Its ``batch_shape`` is the batch shape of every answer.
        regularization: the starting value of λ.
        target_kernel: l, a kernel on the targets; only objectives that measure distance between embedded targets
            need it.
        regularization_prior: a GPyTorch prior on λ.
        regularization_constraint: a GPyTorch constraint on λ; positive, learned on a logarithmic scale, by default.
        sup_diagonal: α², a bound of k(x, x) where the kernel has none in closed form, as a number or a function such
            as :class:`kernel_embed.LipschitzBound` (see :func:`kernel_embed.sup_diagonal`).

    Example:
        >>> import gpytorch
        >>> x = torch.linspace(0, 1, 50, dtype=torch.float64).unsqueeze(-1)
        >>> y = torch.sin(6 * x.squeeze(-1))
        >>> kernel = gpytorch.kernels.RBFKernel().double()
        >>> kernel.lengthscale = 0.2
        >>> embedding = ConditionalEmbedding(kernel, regularization=1e-6)
        >>> conditioned = embedding.condition(x, y)
        >>> value = conditioned.expectation(lambda y: y**2, x[25:26])     # E[Y² | X = 0.51]
        >>> abs(value.item() - y[25].item() ** 2) < 1e-3
        True
    """

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
        super().__init__(kernel, regularization, regularization_prior, regularization_constraint)
        self.target_kernel = target_kernel
        self.sup_diagonal_bound = sup_diagonal

    def condition(self, x: Tensor, y: Tensor) -> ConditionedEmbedding:
        """Factorise K + nλI for the data; the answer holds the factor and never changes this embedding.

        Args:
            x: inputs of shape ``(n, d)``.
            y: targets with n rows, of any further shape.
        """
        x = check_features(x)
        check_lengths(x, y)
        if y.is_floating_point():
            check_finite(y, "y")
        return ConditionedEmbedding(self, x, y)

    def targets(self, y: Tensor, like: Tensor) -> Tensor:
        """Y, the targets as an n × m matrix of numbers in the dtype and on the device of ``like``."""
        return y.to(like).reshape(y.shape[0], -1)


class ConditionedEmbedding:
    """A conditional embedding with its data: the factorisation of A = K + nλI, and the answers.

    Attributes:
        x: inputs, ``(n, d)``.
        y: targets.
        Z: explicit features, ``(*batch, n, p)``, where the kernel has fewer of them than there are data; else ``None``.
        regularization: λ as it was.
        system: the factorised A = K + nλI, through the p × p matrix ZᵀZ + nλI where there is a Z.
    """

    def __init__(
        self,
        embedding: ConditionalEmbedding,
        x: Tensor,
        y: Tensor,
        K: Tensor | None = None,
        Z: Tensor | None = None,
        parent: ConditionedEmbedding | None = None,
    ) -> None:
        self.embedding = embedding
        self.x = x
        self.y = y
        if K is None and Z is None:
            Z = explicit_features(embedding.kernel, x, limit=min(MAX_WIDTH, self.num_data))
            K = gram(embedding.kernel, x) if Z is None else None
        if Z is not None and not Z.shape[-1] < self.num_data:
            K, Z = Z @ Z.mT, None
        self.Z = None if Z is None else Z.to(x)
        if K is not None:
            self.K = K.to(x)
        # After the Gram matrix: some kernels complete themselves when they first see data.
        self._snapshot: KernelSnapshot = KernelSnapshot(embedding.kernel) if parent is None else parent._snapshot
        if K is not None and self.K.shape[-2:] != (self.num_data, self.num_data):
            raise ValueError(
                f"Expected a kernel with one value for each pair of the {self.num_data} rows of x, got a matrix of "
                f"shape {tuple(self.K.shape[-2:])} from {type(embedding.kernel).__name__}. Kernels with several "
                "outputs for each input have no conditional embedding."
            )
        own = embedding.regularization.to(x).clone()  # a clone, for it may be the live parameter
        self.regularization: Tensor = own if parent is None else parent.regularization
        # eq. (1): A = K + nλI
        ridge = self.num_data * self.regularization
        self.system = RidgeSystem(self.K, ridge) if self.Z is None else FeatureRidgeSystem(self.Z, ridge)

    @property
    def num_data(self) -> int:
        """n."""
        return self.x.shape[-2]

    @functools.cached_property
    def K(self) -> Tensor:
        """The Gram matrix, ``(*batch, n, n)``; with explicit features it is formed only when asked for."""
        if self.Z is None:
            raise AttributeError("K")  # pragma: no cover — set in __init__
        return self.Z @ self.Z.mT

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

    @functools.cached_property
    def coefficients(self) -> Tensor:
        """What :meth:`representation` is multiplied with to predict: V, or W = ZᵀV with explicit features."""
        return self.V if self.Z is None else self.system.coefficients(self.Y)

    @property
    def squared_norm(self) -> Tensor:
        """tr(VᵀKV), the squared norm of the embedding, of shape ``batch``."""
        # Algorithm 2, line 10: Σ W² with explicit features; Σ V∘P otherwise, for P = KV
        return (self.V * self.P if self.Z is None else self.coefficients.square()).sum((-2, -1))

    @functools.cached_property
    def sup_diagonal(self) -> SupDiagonal:
        """α² = sup k(x, x), and where it comes from."""
        # The values at hand: a feature map need not, and with dropout must not, be evaluated again.
        return sup_diagonal(self._snapshot.kernel(), self.x, self.embedding.sup_diagonal_bound, self.system.diagonal())

    def leave_one_out(self) -> Tensor:
        """The fitted values at each x_i of the embedding that has not seen (x_i, y_i): Y_i − V_i / [A⁻¹]_ii.

        The ridge nλ is held, so this equals n separate fits exactly.
        """
        return self.Y - self.V / self.system.inverse_diagonal().unsqueeze(-1)

    def cross_gram(self, x: Tensor) -> Tensor:
        """k(x, x_i) for new points ``x`` of shape ``(t, d)``: ``(*batch, t, n)``."""
        return self.representation(x) if self.Z is None else self.representation(x) @ self.Z.mT

    def representation(self, x: Tensor) -> Tensor:
        """What the embedding knows of new points ``x`` ``(t, d)``: k(x, x_i), or φ(x) with explicit features."""
        x = check_features(x, width=self.x.shape[-1], integers_as=self.x.dtype).to(self.x)
        if self.Z is None:
            return gram(self._snapshot.kernel(), x, self.x).to(self.x)
        Z = explicit_features(self._snapshot.kernel(), x)
        if Z is None:
            raise RuntimeError("Expected a kernel with explicit features, as at the data.")  # pragma: no cover
        check_width(Z, self.Z.shape[-1])
        return Z.to(self.x)

    def answer(self, x: Tensor, coefficients: Tensor) -> Tensor:
        """:meth:`representation` times ``coefficients``, in blocks of rows where no gradient is asked for."""
        return in_blocks(self.representation, x, coefficients, BLOCK_NUMBERS if self.Z is None else FEATURE_NUMBERS)

    def weights(self, x: Tensor) -> Tensor:
        """w(x) = A⁻¹k(x), the weights of the data in the embedding at ``x``: ``(*batch, n, t)``."""
        return self.system.solve(self.cross_gram(x).mT)

    def expectation(self, g: Callable[[Tensor], Tensor] | Tensor, x: Tensor) -> Tensor:
        """E[g(Y) | X = x], eq. (2).

        Args:
            g: a function of the training targets, or its values ``(n,)`` or ``(n, q)`` there.
            x: points of shape ``(t, d)``.

        Returns:
            ``(*batch, t)``, or ``(*batch, t, q)`` where g has q values.
        """
        values = g(self.y) if callable(g) else g
        values = torch.as_tensor(values, dtype=self.x.dtype, device=self.x.device)
        if values.dim() == 0 or values.shape[0] != self.num_data or values.dim() > 2:
            raise ValueError(
                f"Expected the values of g at the {self.num_data} training targets, of shape ({self.num_data},) or "
                f"({self.num_data}, q), got {tuple(values.shape)}."
            )
        column = values.reshape(self.num_data, -1)
        answer = self.answer(x, self.system.coefficients(column))
        return answer.squeeze(-1) if values.dim() == 1 else answer

    def restricted(self, rows: Tensor) -> ConditionedEmbedding:
        """The same embedding conditioned on some of the data, from the Gram matrix or the features at hand."""
        K = None if self.Z is not None else self.K[..., rows, :][..., :, rows]
        Z = None if self.Z is None else self.Z[..., rows, :]
        return type(self)(self.embedding, self.x[rows], self.y[rows], K, Z, parent=self)

    def fitted_by(self, part: ConditionedEmbedding, part_rows: Tensor, rows: Tensor) -> Tensor:
        """The values at some ``rows`` of the data of ``part``, which is this embedding ``restricted(part_rows)``."""
        if self.Z is not None and part.Z is not None:
            return self.Z[..., rows, :] @ part.coefficients
        return self.cross(rows, part_rows) @ part.V

    def cross(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The block of K of these rows and columns."""
        if self.Z is None:
            return self.K[..., rows, :][..., :, columns]
        return self.Z[..., rows, :] @ self.Z[..., columns, :].mT


def in_blocks(
    representation: Callable[[Tensor], Tensor], x: Tensor, coefficients: Tensor, numbers: int = BLOCK_NUMBERS
) -> Tensor:
    """``representation(x) @ coefficients``, formed a block of rows at a time where no gradient is asked for.

    At most about ``numbers`` numbers of the representation are held at once, so that millions of points can be asked
    for in one call.
    """
    rows = max(1, numbers // coefficients.shape[-2])
    if torch.is_grad_enabled() or not isinstance(x, Tensor) or x.dim() == 0 or x.shape[0] <= rows:
        return representation(x) @ coefficients
    first = representation(x[:rows]) @ coefficients
    answer = first.new_empty(*first.shape[:-2], x.shape[0], first.shape[-1])
    answer[..., :rows, :] = first
    for start in range(rows, x.shape[0], rows):
        answer[..., start : start + rows, :] = representation(x[start : start + rows]) @ coefficients
    return answer
