r"""The representation of points by a kernel, values k(x, x_i) or explicit features φ(x), and maps f(x) = Cᵀφ(x).

A frozen kernel is resolved once: its structure, parameters and everything computed from the training points become one
function of x. A trainable kernel is evaluated by :func:`kernel_embed.kernels.gram`.
"""

from __future__ import annotations

import dataclasses

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import FeatureKernel, check_width, explicit_features, gram, has_explicit_features
from ..kernels.features import resolved_features
from ..kernels.gram import Function, finite_values, resolved_gram
from ..validation import check_features, check_query_points

BLOCK_NUMBERS = 2**23  # kernel values computed at once: 64 MiB in float64
FEATURE_NUMBERS = 2**19
"""Features computed at once: 4 MiB in float64, so that they are used while they are still in the cache."""


@dataclasses.dataclass(frozen=True, eq=False)
class Representation:
    """A function of new points ``(t, d)``: k(x, x_i) ``(*batch, t, n)``, or p explicit features ``(*batch, t, p)``.

    With features the ``data`` only show which columns and dtype points have; ``None`` for any.
    """

    kernel: Kernel
    data: Tensor | None = None
    num_features: int | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The representation of the points ``x``."""
        return self.values(self.check(x))

    def check(self, x: Tensor) -> Tensor:
        """New points with the columns, the dtype and the device of the data."""
        if self.data is not None:
            return check_query_points(x, self.data)
        dtype = next((parameter.dtype for parameter in self.kernel.parameters()), None)
        return check_features(x, integers_as=dtype, fewest=0)

    def values(self, x: Tensor) -> Tensor:
        """The representation of checked points."""
        if self.num_features is None:
            assert self.data is not None
            return gram(self.kernel, x, self.data).to(self.data)
        if x.shape[-2] == 0:
            return x.new_zeros(*self.kernel.batch_shape, 0, self.num_features)
        Z = explicit_features(self.kernel, x)
        assert Z is not None
        check_width(Z, self.num_features)
        return Z.to(x)

    def resolved(self, coefficients: Tensor) -> tuple[Function, Tensor] | None:
        """φ for a frozen kernel, with C for it: where kernel values are products of features Z, those and ZᵀC."""
        kernel, data = self.kernel, self.data
        if not _is_fixed(kernel, data, coefficients):
            return None
        if self.num_features is not None:
            return resolved_features(kernel), coefficients
        assert data is not None
        Z = explicit_features(kernel, data) if has_explicit_features(kernel) else None
        if Z is not None:
            return resolved_features(kernel), Z.mT.to(data) @ coefficients
        return resolved_gram(kernel, data.detach()), coefficients


class LinearMap:
    """x ↦ φ(x) C for checked points ``x``, a block of rows at a time where no gradient is needed."""

    def __init__(self, representation: Representation, coefficients: Tensor) -> None:
        self._kernel, self._like = representation.kernel, representation.data
        with torch.inference_mode(False), torch.no_grad():  # gradients in x may be needed later
            resolved = representation.resolved(coefficients)
        self.is_resolved = resolved is not None
        self._phi, self._C = resolved or (representation.values, coefficients)
        numbers = BLOCK_NUMBERS if representation.num_features is None else FEATURE_NUMBERS
        self._rows = max(1, numbers // coefficients.shape[-2])

    def __call__(self, x: Tensor) -> Tensor:
        """``(*batch, t, m)``; an error where values are not finite."""
        if x.shape[0] == 0:
            return self._C.new_zeros(*self._C.shape[:-2], 0, self._C.shape[-1])
        needs_gradient = torch.is_grad_enabled() and (x.requires_grad or not self.is_resolved)
        values = self._product(x) if needs_gradient else by_rows(self._product, x, self._rows)
        if not bool(torch.isfinite(values.detach().sum())):
            finite_values(values, self._kernel)
        return values

    def _product(self, x: Tensor) -> Tensor:
        phi, C = self._phi(x), self._C
        if phi.shape[-1] != C.shape[-2]:
            check_width(phi, C.shape[-2])
        if self._like is not None:
            phi = phi.to(self._like)
        return phi @ C.to(phi.dtype)


def by_rows(function: Function, x: Tensor, rows: int) -> Tensor:
    """``function(x)`` ``(*batch, t, m)`` for ``rows`` points at a time: one call can predict for millions of points."""
    if x.shape[0] <= rows:
        return function(x)
    first = function(x[:rows])
    values = first.new_empty(*first.shape[:-2], x.shape[0], first.shape[-1])
    values[..., :rows, :] = first
    for start in range(rows, x.shape[0], rows):
        values[..., start : start + rows, :] = function(x[start : start + rows])
    return values


def _is_fixed(kernel: Kernel, *tensors: Tensor | None) -> bool:
    """Whether no parameter is trainable, and no feature map is random or stateful, as in training mode."""
    if any(tensor is not None and tensor.requires_grad for tensor in (*kernel.parameters(), *tensors)):
        return False
    maps = [part.feature_map for part in kernel.modules() if isinstance(part, FeatureKernel)]
    parts = [part for map in maps for part in map.modules()]
    return not any(part.training and not getattr(part, "is_deterministic", False) for part in parts)
