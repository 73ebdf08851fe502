r"""The smoothed kernel :math:`r(x, y) = \int k(x, u)\, k(u, y)\, \nu(du)`, eq. (4), built from any GPyTorch kernel.

Draws of GP(0, k) lie outside the RKHS of k; draws of GP(0, r) lie inside it (appendix A.2), which is what a prior over
mean embeddings needs. Closed forms are used where they exist; everywhere else ν is discrete, for which

.. math::  R = K_{xu} \operatorname{diag}(w) K_{ux} = \Phi \Phi^\top, \qquad \Phi = K_{xu} \operatorname{diag}(w)^{1/2},

is exact for this measure, not an approximation.
"""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from linear_operator import LinearOperator
from linear_operator.operators import MatmulLinearOperator, RootLinearOperator
from torch import Tensor

from ...validation import broadcast_shapes
from ..classes.basic import FollowingKernel
from ..gram import GRAMS, gram
from ..structure import check_columns, check_kernel, nodes_of
from .forms import Form, closed_form
from .measures import DiscreteMeasure, GaussianMeasure, LebesgueMeasure, Measure


class SmoothedKernel(FollowingKernel):
    r"""r = ∫ k(·, u) k(u, ·) ν(du) as a GPyTorch kernel that shares the parameters of ``base_kernel``.

    Args:
        base_kernel: k, any GPyTorch kernel.
        measure: ν; :class:`LebesgueMeasure` by default where k has a closed form under it. Other kernels need a
            :class:`DiscreteMeasure`; :meth:`resolved` makes one from a sample.
        active_dims: columns used, before those of ``base_kernel``.

    Raises:
        TypeError: if ``base_kernel`` is not a kernel.

    Example:
        >>> import gpytorch
        >>> kernel = gpytorch.kernels.MaternKernel(nu=0.5).double()
        >>> kernel.lengthscale = 2.0
        >>> x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> SmoothedKernel(kernel)(x).to_dense().detach()         # (ℓ + |δ|) exp(−|δ|/ℓ)
        tensor([[2.0000, 1.8196],
                [1.8196, 2.0000]], dtype=torch.float64)
        >>> SmoothedKernel(gpytorch.kernels.PeriodicKernel()).form(1)
        'discrete measure'
    """

    def __init__(
        self, base_kernel: Kernel, measure: Measure | None = None, active_dims: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(active_dims=active_dims)
        check_kernel(base_kernel)
        self.base_kernel = base_kernel
        self.measure = measure

    @property
    def is_stationary(self) -> bool:
        """Stationary where k is, under Lebesgue measure."""
        return (self.base_kernel.is_stationary and self.measure is None) or isinstance(self.measure, LebesgueMeasure)

    def form(self, width: int | None = None) -> str:
        """``"closed form"`` with its kind, or ``"discrete measure"``, for inputs with ``width`` columns."""
        named = closed_form(self.base_kernel, _width(self.base_kernel) if width is None else width, self.measure)
        return "discrete measure" if named is None else f"closed form: {named[0]}"

    def resolved(self, x: Tensor) -> SmoothedKernel:
        """This kernel where it can be evaluated, else one with a discrete measure taken from the sample ``x``.

        Raises:
            ValueError: if r has no closed form under the measure, or ``x`` has other columns than the kernel takes.
        """
        check_columns(self.base_kernel, x.shape[-1] if self.active_dims is None else len(self.active_dims))
        if self.is_low_rank or closed_form(self.base_kernel, x.shape[-1], self.measure):
            return self
        if self.measure is not None:
            raise ValueError(
                f"r has no closed form under {self.measure} for {_name(self.base_kernel)} on "
                f"{x.shape[-1]} columns. Leave measure=None, which takes a discrete measure from the sample, or give "
                "pass a DiscreteMeasure."
            )
        columns = x if self.active_dims is None else x.index_select(-1, self.active_dims)
        return SmoothedKernel(self.base_kernel, DiscreteMeasure.from_sample(columns), self.active_dims)

    @property
    def is_low_rank(self) -> bool:
        """Whether r has the finite rank M of a discrete measure."""
        return isinstance(self.measure, DiscreteMeasure)

    def features(self, x: Tensor) -> Tensor:
        """Φ with R = ΦΦᵀ, of shape ``(*batch, n, M)``; for discrete measures."""
        return self._features(x if self.active_dims is None else x.index_select(-1, self.active_dims))

    def _features(self, x: Tensor) -> Tensor:
        measure = self.measure
        if not isinstance(measure, DiscreteMeasure):
            raise ValueError(f"Only a DiscreteMeasure has finite features; {measure} has no finite features.")
        if measure.atoms.shape[-1] != x.shape[-1]:
            raise ValueError(
                f"Expected x with the {measure.atoms.shape[-1]} columns of the atoms, got {x.shape[-1]}. "
                "Give x and the atoms the same columns."
            )
        root: Tensor = measure.weights.to(x).sqrt()
        return gram(self.base_kernel, x, measure.atoms.to(x)) * root

    def gram(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """The matrix r(x1_i, x2_j) as a dense tensor; ``x2=None`` means ``x1``."""
        return gram(self, x1, x2)

    def _dense(self, x1: Tensor, x2: Tensor | None) -> Tensor:
        if self.is_low_rank:
            left = self._features(x1)
            return left @ (left if x2 is None else self._features(x2)).mT
        return self._closed(x1.shape[-1])(x1, x2)

    def _closed(self, width: int) -> Form:
        named = closed_form(self.base_kernel, width, self.measure)
        if named is None:
            raise ValueError(
                f"Expected a kernel with a closed form of r, got {_name(self.base_kernel)} on {width} columns. "
                "Give a DiscreteMeasure, or use .resolved(x), which takes one from a sample."
            )
        return named[1]

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: object
    ) -> Tensor | LinearOperator:
        """r between rows; a root operator of rank M under a discrete measure."""
        self.check_last_dim(last_dim_is_batch)
        same = x1.shape == x2.shape and torch.equal(x1, x2)
        if self.is_low_rank:
            left = self._features(x1)
            right = left if same else self._features(x2)
            if diag:
                return (left * right).sum(-1)
            return RootLinearOperator(left) if same else MatmulLinearOperator(left, right.mT)
        form = self._closed(x1.shape[-1])
        if not diag:
            return form(x1, None if same else x2)
        if same and not isinstance(self.measure, GaussianMeasure):
            batch = broadcast_shapes(self.batch_shape, x1.shape[:-2])
            return form(torch.zeros_like(x1[..., :1, :]), None)[..., 0].expand(*batch, x1.shape[-2])
        # In blocks of rows: one row at a time, as a batch, would need other parameter shapes.
        blocks = zip(x1.split(64, dim=-2), x2.split(64, dim=-2), strict=True)
        return torch.cat([form(one, two).diagonal(dim1=-2, dim2=-1) for one, two in blocks], dim=-1)

    def extra_repr(self) -> str:
        """The measure and the form of r."""
        name = "automatic" if self.measure is None else type(self.measure).__name__
        return f"r = ∫ k(x, u) k(u, y) ν(du), ν: {name}, {self.form()}"


GRAMS.register(SmoothedKernel, lambda kernel, x1, x2: kernel._dense(x1, x2))


def _width(kernel: Kernel) -> int:
    """The number of columns of a kernel if it is known, otherwise 1."""
    parts = [part for part in kernel.modules() if isinstance(part, Kernel)]
    ard = [int(part.ard_num_dims) for part in parts if part.ard_num_dims]
    dims = [int(part.active_dims.max()) + 1 for part in parts if part.active_dims is not None]
    return max([1, *ard, *dims])


def _name(kernel: Kernel) -> str:
    return ", ".join(dict.fromkeys(type(node.kernel).__name__ for node in nodes_of(kernel)))
