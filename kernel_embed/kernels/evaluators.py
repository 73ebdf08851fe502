r"""The Gram matrix of fixed points as a function of a kernel's parameters, with its vector-Jacobian product.

Radial kernels, alone or scaled, need neither modules nor a graph. With :math:`z = x / \ell`,
:math:`s_{ij} = \lVert z_i - z_j \rVert^2`, a symmetric :math:`G = \partial q / \partial K`,
:math:`M = G \circ \varphi'(s)` and :math:`r = M \mathbf 1`,

.. math::
    \frac{\partial q}{\partial \log \ell_d} = -2 \sum_{ij} M_{ij} (z_{id} - z_{jd})^2
        = -4 \sum_i z_{id} \big( r_i z_{id} - (M z)_{id} \big) .

Every other kernel is evaluated as usual, and autograd differentiates the kernel alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel, ScaleKernel
from numpy.typing import NDArray
from torch import Tensor

from .gram import evaluate_gram
from .radial import CHECKED_NORM, LOST_SPACING, RadialProfile, half_squares, radial_of
from .supremum import DiagonalBound, sup_diagonal

Array = NDArray[np.float64]
Values = dict[str, Array]
"""Parameters θ, or derivatives with respect to them, by the names of the raw parameters."""


class Gram(NamedTuple):
    """σ²K as a matrix and a factor, and α² = sup k(x, x)."""

    K: Array
    scale: float
    sup_diagonal: float


def gram_evaluator(
    kernel: Kernel, x: Tensor, names: list[str], bound: float | DiagonalBound | None, needs_sup: bool
) -> RadialEvaluator | AutogradEvaluator | None:
    """How to evaluate ``kernel`` at the rows ``x`` ``(n, d)``."""
    if any(not isinstance(m, Kernel) for m in kernel.modules() if next(m.parameters(recurse=False), None) is not None):
        return None  # a network, whose evaluation may depend on its mode and on random numbers
    if bound is None or not needs_sup:
        radial = RadialEvaluator.of(kernel, x)
        if radial is not None:
            return radial
    return AutogradEvaluator(kernel, x, names, bound, needs_sup)


class RadialEvaluator:
    """σ² φ(‖z_i − z_j‖²) for rows ``x`` ``(n, d)``."""

    on_log_scale = True  # vjp differentiates with respect to log θ, not to the raw parameters

    def __init__(
        self,
        profile: RadialProfile,
        x: Tensor,
        groups: NDArray[np.int64],
        lengthscale: tuple[str, Array],
        outputscale: tuple[str, Array] | None,
    ) -> None:
        centered = x - x.mean(-2, keepdim=True)
        n, d = x.shape
        self._profile, self._points, self._groups = profile, centered.numpy(), groups
        self._at_zero = profile.at_zero()
        self._lengthscale, self._outputscale = lengthscale, outputscale
        self._largest = float(centered.square().sum(-1).max())
        self._lost = float(x.abs().max()) * float(np.finfo(np.float64).eps) / LOST_SPACING
        # −s/2 for ℓ = 1, where all columns share one lengthscale.
        self._halves = half_squares(centered, None, rough=True)[0].numpy() if groups.max() == 0 else None
        # Equal rows, each with itself too: their distances are 0 without rounding error.
        same = torch.unique(x, dim=0, return_inverse=True)[1].numpy()
        self._equal = np.flatnonzero(same[:, None] == same)
        self._left, self._right = np.ones((n, d + 2)), np.ones((n, d + 2))
        self._M = np.empty((n, n))

    @classmethod
    def of(cls, kernel: Kernel, x: Tensor) -> RadialEvaluator | None:
        """The evaluator of ``kernel``; ``None`` if it has no such form, or φ is not smooth in s."""
        outputscale, prefix, active = None, "kernel.", kernel.active_dims
        if type(kernel) is ScaleKernel and kernel.outputscale.dim() == 0:
            outputscale, prefix = ("kernel.raw_outputscale", _array(kernel.outputscale)), "kernel.base_kernel."
            kernel = kernel.base_kernel
        radial = radial_of(kernel)
        if radial is None or not isinstance(radial.profile, RadialProfile) or radial.profile.rough:
            return None
        if [name for name, _ in kernel.named_parameters()] != ["raw_lengthscale"] or len(kernel.batch_shape) > 0:
            return None
        if radial.lengthscale is None or not torch.equal(radial.lengthscale, kernel.lengthscale):
            return None
        x = x if active is None else x.index_select(-1, active)
        d = x.shape[-1]
        # Tied kernels (kernel_embed.tabular) have one lengthscale for each group of columns.
        if hasattr(kernel, "column_lengthscale"):
            groups, lengthscale = kernel.groups.numpy(), kernel.column_lengthscale
        else:
            groups = np.arange(d) if kernel.lengthscale.numel() == d else np.zeros(d, dtype=np.int64)
            lengthscale = kernel.lengthscale
        return cls(radial.profile, x, groups, (f"{prefix}raw_lengthscale", _array(lengthscale)), outputscale)

    def __call__(self, theta: Values) -> Gram | None:
        """σ²K and α²; ``None`` if distances have lost digits."""
        name, start = self._lengthscale
        self._theta = lengthscale = theta.get(name, start)
        smallest = float(lengthscale.min())
        if smallest < self._lost or not 2.0 * self._largest / smallest**2 < CHECKED_NORM:
            return None
        values, slopes, self._slope = self._profile(torch.from_numpy(self._exponent(lengthscale)))
        K = self._K = values.numpy()
        self._slopes = K if slopes is None else slopes.numpy()
        self._scale = scale = 1.0 if self._outputscale is None else float(theta.get(*self._outputscale)[0])
        return Gram(K, scale, scale * self._at_zero)

    def _exponent(self, lengthscale: Array) -> Array:
        """−s/2 as [z, −‖z‖²/2, 1] [z, 1, −‖z‖²/2]ᵀ."""
        if self._halves is not None:
            scaled: Array = self._halves * (1.0 / float(lengthscale[0]) ** 2)
            return scaled
        z, left, right = self._points / lengthscale[self._groups], self._left, self._right
        d = z.shape[1]
        left[:, :d] = right[:, :d] = z
        np.einsum("ij,ij->i", z, z, out=left[:, d])
        left[:, d] *= -0.5
        right[:, d + 1] = left[:, d]
        exponent: Array = left @ right.T
        torch.from_numpy(exponent).clamp_max_(0.0)
        exponent.reshape(-1)[self._equal] = 0.0
        return exponent

    def vjp(self, G: Array, sup_diagonal: float) -> Values:
        """∂q/∂log ℓ and ∂q/∂log σ²."""
        gradients: Values = {}
        if self._outputscale is not None:
            along = float(np.vdot(G, self._K)) + sup_diagonal * self._at_zero
            gradients[self._outputscale[0]] = np.array([self._scale * along])
        M = np.multiply(G, self._slopes, out=self._M)
        factor = 4.0 * self._scale * self._slope
        if self._halves is not None:
            along = factor / float(self._theta[0]) ** 2 * float(np.vdot(M, self._halves))
            gradients[self._lengthscale[0]] = np.array([along])
            return gradients
        M.reshape(-1)[self._equal] = 0.0  # where z_i − z_j = 0, and M may be so large that r z − Mz loses its digits
        z = self._right[:, :-2]
        sums = M @ self._right
        # The ones are in the second to last column; r is the mean of the row sums and column sums.
        r = 0.5 * (sums[:, -2] + M.sum(0))
        columns = (z * (r[:, None] * z - sums[:, :-2])).sum(0)
        columns *= -factor
        if len(self._theta) < len(columns):
            columns = np.bincount(self._groups, columns, len(self._theta))
        gradients[self._lengthscale[0]] = columns
        return gradients


class AutogradEvaluator:
    """Any kernel: autograd differentiates K and α² with respect to the current raw parameters of the kernel."""

    on_log_scale = False

    def __init__(
        self, kernel: Kernel, x: Tensor, names: list[str], bound: float | DiagonalBound | None, needs_sup: bool
    ) -> None:
        self._kernel, self._x, self._bound, self._needs_sup = kernel, x, bound, needs_sup
        self._parameters = {name: kernel.get_parameter(name.removeprefix("kernel.")) for name in names}

    def __call__(self, theta: Values) -> Gram:
        with torch.enable_grad():
            K = evaluate_gram(self._kernel, self._x, None)
            self._outputs = [K]
            if self._needs_sup:
                self._outputs.append(sup_diagonal(self._kernel, self._x, self._bound, K.diagonal()).value)
        return Gram(K.detach().numpy(), 1.0, float(self._outputs[-1].detach()) if self._needs_sup else 0.0)

    def vjp(self, G: Array, sup_diagonal: float) -> Values:
        """∂q/∂θ for the raw parameters, from G = ∂q/∂K and ∂q/∂α²."""
        K, *sup = self._outputs
        with torch.enable_grad():  # as one number: derivatives of matrices would make torch import SymPy
            q = torch.dot(K.reshape(-1), torch.from_numpy(G).reshape(-1)) + sum(sup_diagonal * value for value in sup)
        if not q.requires_grad:
            return {name: np.zeros(raw.numel()) for name, raw in self._parameters.items()}
        parameters = list(self._parameters.values())
        gradients = torch.autograd.grad(q, parameters, allow_unused=True, materialize_grads=True)
        return {name: g.reshape(-1).numpy() for name, g in zip(self._parameters, gradients, strict=True)}


def _array(value: Tensor) -> Array:
    array: Array = value.detach().double().reshape(-1).numpy().copy()
    return array
