"""Kernels of encoded tables with one lengthscale for each column, however many numbers encode it.

A category is written as one-hot numbers: with a common lengthscale ℓ they contribute 1/ℓ² to the squared distance of
two rows whose categories differ, and nothing where they agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from gpytorch.priors import Prior
from torch import Tensor

from ..kernels.parameters import NamedParameter
from ..kernels.registration import register
from ..validation import broadcast_shapes


class TiedLengthscales(Kernel):
    """Base class of the kernels below: all encoded inputs of a table column share a ``column_lengthscale``.

    Args:
        groups: for each column of the input, the number of the lengthscale it uses, 0 … G − 1.
        lengthscale_prior: a GPyTorch prior on the G lengthscales.
        lengthscale_constraint: a GPyTorch constraint on them; positive by default.
    """

    groups: Tensor
    column_name = "column_lengthscale"

    def __init__(
        self,
        groups: Sequence[int] | Tensor,
        *,
        lengthscale_prior: Prior | None = None,
        lengthscale_constraint: Interval | None = None,
        **kwargs: object,
    ) -> None:
        device = getattr(groups, "device", torch.get_default_device())
        try:
            numbers = torch.as_tensor(groups, dtype=torch.long, device=device).flatten()
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(f"Expected groups as column numbers, got {groups!r}. Give a list of ints.") from error
        if numbers.numel() == 0 or int(numbers.min()) < 0:
            raise ValueError(f"Expected groups as column numbers from 0, got {numbers.tolist()}. Give one or more.")
        if kwargs.get("nu", 0.5) not in (0.5, 1.5, 2.5):
            raise ValueError(f"Expected nu of 0.5, 1.5 or 2.5, got {kwargs['nu']!r}. Choose one of these.")
        super().__init__(ard_num_dims=numbers.numel(), lengthscale_constraint=lengthscale_constraint, **kwargs)
        raw = next(self.parameters()).new_zeros(*self.batch_shape, 1, int(numbers.max()) + 1)
        self.raw_lengthscale = torch.nn.Parameter(raw)
        self.register_buffer("groups", numbers)
        if lengthscale_prior is not None:
            column = NamedParameter(self.column_name)
            self.register_prior("lengthscale_prior", lengthscale_prior, column.get, column.set)

    @property
    def column_lengthscale(self) -> Tensor:
        """ℓ of each column: ``(*batch, 1, G)``."""
        value: Tensor = self.raw_lengthscale_constraint.transform(self.raw_lengthscale)
        return value

    @column_lengthscale.setter
    def column_lengthscale(self, value: float | Tensor) -> None:
        """Set ℓ of each column, from a number or a tensor that broadcasts to ``(*batch, 1, G)``."""
        value = torch.as_tensor(value, dtype=self.raw_lengthscale.dtype, device=self.raw_lengthscale.device)
        value = value.expand(broadcast_shapes(value.shape, self.raw_lengthscale.shape))
        self.initialize(raw_lengthscale=self.raw_lengthscale_constraint.inverse_transform(value))

    @property
    def lengthscale(self) -> Tensor:
        """ℓ of each input: ``(*batch, 1, D)``."""
        return self.column_lengthscale.index_select(-1, self.groups)

    @lengthscale.setter
    def lengthscale(self, value: float | Tensor) -> None:
        """Set ℓ of each table column, not of each input: the same as setting :attr:`column_lengthscale`."""
        self.column_lengthscale = value


class TiedRBFKernel(TiedLengthscales, RBFKernel):
    """The squared exponential kernel with tied lengthscales.

    Example:
        >>> kernel = TiedRBFKernel([0, 1, 1])          # a number, and a category as two numbers
        >>> kernel.column_lengthscale = torch.tensor([2.0, 3.0])
        >>> kernel.lengthscale.detach()
        tensor([[2., 3., 3.]])
    """


class TiedMaternKernel(TiedLengthscales, MaternKernel):
    """The Matérn kernel with tied lengthscales; ``nu`` in {½, 3⁄2, 5⁄2}.

    Example:
        >>> kernel = TiedMaternKernel([0, 1, 1], nu=0.5)
        >>> kernel.lengthscale = 2.0
        >>> kernel(torch.zeros(1, 3), torch.ones(1, 3)).to_dense().detach()
        tensor([[0.4206]])
    """


class TiedLaplaceKernel(TiedLengthscales, Kernel):
    r"""exp(−‖(x − x') / ℓ‖₁) with tied lengthscales: the product over columns of exponential kernels.

    It is the share of random axis-aligned partitions (Mondrian forests) in which two rows fall into one cell, so that
    it treats columns one by one, as trees do.

    Example:
        >>> kernel = TiedLaplaceKernel([0, 1])
        >>> kernel.lengthscale = 1.0
        >>> kernel(torch.tensor([[0.0, 0.0], [1.0, 1.0]])).to_dense().detach()
        tensor([[1.0000, 0.1353],
                [0.1353, 1.0000]])
    """

    has_lengthscale = True
    is_stationary = True

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object) -> Tensor:
        """k(x1, x2)."""
        z1, z2 = x1 / self.lengthscale, x2 / self.lengthscale
        return torch.exp(-(z1 - z2).abs().sum(-1)) if diag else laplace_gram(z1, z2)


def laplace_gram(z1: Tensor, z2: Tensor | None = None) -> Tensor:
    """The matrix exp(−‖z1_i − z2_j‖₁), differentiable in ``z1`` and ``z2``; ``z2=None`` means ``z1``."""
    matrix: Tensor = _LaplaceGram.apply(z1, z2)
    return matrix


class _LaplaceGram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor | None) -> Tensor:
        """K = exp(−D)."""
        D = torch.cdist(z1, z1 if z2 is None else z2, p=1.0)
        K = D.neg().exp_()
        ctx.save_for_backward(z1, z2, D, K)
        return K

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """∂q/∂z = −Σ_j M_ij sign(z_i − z'_j), M = G∘K."""
        z1, z2, D, K = ctx.saved_tensors
        M, other = (G * K).neg_(), z1 if z2 is None else z2
        weighted_signs = _plain_weighted_signs if torch.is_grad_enabled() else _weighted_signs
        if z2 is None:
            return weighted_signs(M + M.mT, z1, z1, D), None
        first = weighted_signs(M, z1, other, D) if ctx.needs_input_grad[0] else None
        second = weighted_signs(M.mT, other, z1, D.mT) if ctx.needs_input_grad[1] else None
        return first, second


def _weighted_signs(M: Tensor, z1: Tensor, z2: Tensor, D: Tensor) -> Tensor:
    """Σ_j M_ij sign(z1_i − z2_j)."""
    total: Tensor = torch.ops.aten._cdist_backward(*(part.contiguous() for part in (M, z1, z2)), 1.0, D.contiguous())
    return total


def _plain_weighted_signs(M: Tensor, z1: Tensor, z2: Tensor, D: Tensor) -> Tensor:
    """The same, differentiable in M."""
    columns = zip(z1.unbind(-1), z2.unbind(-1), strict=True)
    signs = (torch.sign(a.unsqueeze(-1) - b.unsqueeze(-2)).detach() for a, b in columns)
    return torch.stack([(M * sign).sum(-1) for sign in signs], dim=-1)


register(TiedRBFKernel, like=RBFKernel)
register(TiedMaternKernel, like=MaternKernel)
register(
    TiedLaplaceKernel,
    gram=lambda kernel, x, z: laplace_gram(x / kernel.lengthscale, None if z is None else z / kernel.lengthscale),
    supremum=lambda kernel, x: x.new_ones(kernel.batch_shape),
)
