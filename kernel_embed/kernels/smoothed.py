r"""The smoothed kernel :math:`r(x, y) = \int k(x, u)\, k(u, y)\, \nu(du)`, eq. (4), and the measures ν.

Draws of GP(0, k) lie outside the RKHS of k; draws of GP(0, r) lie inside it for any finite measure (appendix A.2). This
is what a prior over mean embeddings needs. Lebesgue measure, the limit of ever wider Gaussians, is not finite. Closed
forms are used where they exist; everywhere else ν is discrete, for which

.. math::  R = K_{xu} \operatorname{diag}(w) K_{ux} = \Phi \Phi^\top, \qquad \Phi = K_{xu} \operatorname{diag}(w)^{1/2},

is exact for this measure, not an approximation.
"""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from linear_operator import LinearOperator
from linear_operator.operators import MatmulLinearOperator, RootLinearOperator
from torch import Tensor

from ..runtime import cpu_by_default
from ..validation import broadcast_shapes, check_features, check_number, check_tensor
from .bags import FollowingKernel
from .classes import equal
from .gram import GRAMS, gram
from .parameters import PositiveParameter, register_positive
from .smoothed_forms import Form, NamedForm, smoothed_form
from .structure import check_columns, check_kernel, nodes_of

NUM_ATOMS = 256


class Measure(gpytorch.Module):
    """A measure ν on the space of inputs."""


class LebesgueMeasure(Measure):
    """ν(du) = du.

    Args:
        unit: rescale r so that r(x, x) = k(x, x)². This drops the factor ``π^{D/2} |Σ|^{1/2}`` of the squared
            exponential, as the paper's code does; the exact form is the default.

    Example:
        >>> LebesgueMeasure()
        LebesgueMeasure()
    """

    def __init__(self, unit: bool = False) -> None:
        super().__init__()
        self.unit = unit

    def extra_repr(self) -> str:
        """``unit=True`` where r is rescaled."""
        return "unit=True" if self.unit else ""


class GaussianMeasure(Measure):
    r"""ν(du) = exp(−‖u − c‖² / 2η²) du, a finite measure of mass (2π)^{D/2} η^D (appendix A.3).

    Args:
        scale: η. Large values approach Lebesgue measure.
        center: c, one number for each input column; the origin by default.
        learn: learn η with the rest of the parameters.
        scale_prior: a GPyTorch prior on η.

    Raises:
        TypeError: if ``scale`` is neither a number nor a tensor.

    Example:
        >>> GaussianMeasure(scale=3.0).scale
        tensor(3.)
    """

    scale = PositiveParameter()

    def __init__(
        self,
        scale: float | Tensor = 1.0,
        center: Tensor | None = None,
        *,
        learn: bool = False,
        scale_prior: Prior | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(scale, Tensor):
            check_number("scale", scale)
        value = scale if isinstance(scale, Tensor) else torch.tensor(scale, dtype=torch.get_default_dtype())
        register_positive(self, "scale", value, scale_prior, learn=learn)
        self.register_buffer("center", center)
        self.scale = value

    def extra_repr(self) -> str:
        """η, or the shape of a batch of them."""
        return f"scale={self.scale.item():.4g}" if self.scale.numel() == 1 else f"scale of shape {self.scale.shape}"


class DiscreteMeasure(Measure):
    r"""ν = Σ_m w_m δ(u_m), for which r = Σ_m w_m k(x, u_m) k(u_m, y) is exact for every kernel, and of rank M.

    Args:
        atoms: u, of shape ``(M, d)``.
        weights: w, of shape ``(M,)``, none negative; 1/M each by default.

    Raises:
        TypeError: if ``atoms`` or ``weights`` is not a tensor of real numbers.
        ValueError: if there is not one weight for each atom, or the weights are negative, all zero or not finite.

    Example:
        >>> DiscreteMeasure(torch.tensor([[0.0], [1.0]]))
        DiscreteMeasure(num_atoms=2)
    """

    def __init__(self, atoms: Tensor, weights: Tensor | None = None) -> None:
        super().__init__()
        atoms = check_features(atoms, "atoms")
        weights = atoms.new_full(atoms.shape[:1], 1.0 / len(atoms)) if weights is None else weights
        check_tensor(weights, "weights")
        if weights.shape != atoms.shape[-2:-1]:
            shape = tuple(weights.shape)
            raise ValueError(f"Expected one weight for each of the {len(atoms)} atoms, got weights of shape {shape}.")
        if not bool((torch.isfinite(weights) & (weights >= 0)).all() and (weights > 0).any()):
            raise ValueError("The weights of the atoms must be finite, none negative and at least one positive.")
        self.register_buffer("atoms", atoms)
        self.register_buffer("weights", weights.to(atoms))

    @classmethod
    def from_sample(cls, x: Tensor, num_atoms: int = NUM_ATOMS) -> DiscreteMeasure:
        """The empirical distribution of some rows of ``x``, evenly spaced in their order, repeated rows merged."""
        # Sorted, so that the order of rows does not matter: a test with a kernel learned under this measure is exact.
        different, repeats = x.detach().reshape(-1, x.shape[-1]).unique(dim=0, return_counts=True)
        rows = different.repeat_interleave(repeats, dim=0)
        count = min(num_atoms, len(rows))
        # floor(i·n/M): spread over the whole sample, and the same in every call.
        spaced = torch.arange(count, device=x.device) * len(rows) // count
        atoms, counts = rows[spaced].unique(dim=0, return_counts=True)
        return cls(atoms, counts.to(atoms) / count)

    @property
    def num_atoms(self) -> int:
        """M, the number of atoms."""
        return int(self.atoms.shape[-2])

    def extra_repr(self) -> str:
        """``num_atoms=M``."""
        return f"num_atoms={self.num_atoms}"


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
        >>> kernel = gpytorch.kernels.MaternKernel(nu=0.5)
        >>> kernel.lengthscale = 2.0
        >>> SmoothedKernel(kernel)(torch.tensor([[0.0], [1.0]])).to_dense()[0].detach()  # (ℓ + |δ|) exp(−|δ|/ℓ)
        tensor([2.0000, 1.8196])
    """

    @cpu_by_default()
    def __init__(
        self, base_kernel: Kernel, measure: Measure | None = None, active_dims: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(active_dims=active_dims)
        check_kernel(base_kernel)
        self.base_kernel, self.measure = base_kernel, measure

    @property
    def is_stationary(self) -> bool:
        """Whether k is stationary and ν left to the default, or ν is Lebesgue measure."""
        return (self.base_kernel.is_stationary and self.measure is None) or isinstance(self.measure, LebesgueMeasure)

    def form(self, width: int | None = None) -> str:
        """``"closed form"`` with its kind, or ``"discrete measure"``, for inputs with ``width`` columns."""
        if width is None:  # if it is known, otherwise 1
            parts = [part for part in self.base_kernel.modules() if isinstance(part, Kernel)]
            known = [int(part.ard_num_dims) for part in parts if part.ard_num_dims]
            width = max([1, *known, *(int(p.active_dims.max()) + 1 for p in parts if p.active_dims is not None)])
        named = self._closed_form(width)
        return "discrete measure" if named is None else f"closed form: {named[0]}"

    def _closed_form(self, width: int) -> NamedForm | None:
        """The kind and the function of r where it exists."""
        measure = self.measure
        if isinstance(measure, GaussianMeasure):
            return smoothed_form(self.base_kernel, width, scale=measure.scale, center=measure.center)
        if measure is None or isinstance(measure, LebesgueMeasure):
            return smoothed_form(self.base_kernel, width, unit=measure is not None and measure.unit)
        return None

    def _form(self, width: int) -> Form:
        named = self._closed_form(width)
        if named is None:
            names = ", ".join(dict.fromkeys(type(node.kernel).__name__ for node in nodes_of(self.base_kernel)))
            raise ValueError(
                f"r has no closed form under {self.measure or LebesgueMeasure()} for {names} on {width} columns. "
                "Give a DiscreteMeasure, or leave measure=None and use .resolved(x), which takes one from the sample."
            )
        return named[1]

    def resolved(self, x: Tensor) -> SmoothedKernel:
        """This kernel where it can be evaluated, else one with a discrete measure taken from the sample ``x``.

        Raises:
            ValueError: if r has no closed form under the measure, or ``x`` has other columns than the kernel takes.
        """
        columns = x if self.active_dims is None else x.index_select(-1, self.active_dims)
        width = columns.shape[-1]
        check_columns(self.base_kernel, width)
        if self.measure is None and self._closed_form(width) is None:
            return SmoothedKernel(self.base_kernel, DiscreteMeasure.from_sample(columns), self.active_dims)
        if not self.is_low_rank:
            self._form(width)  # raises if there is none
        return self

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
            raise ValueError(f"{measure} has no finite features. Pass DiscreteMeasure.from_sample(x).")
        if measure.atoms.shape[-1] != x.shape[-1]:
            raise ValueError(f"Expected x with the {measure.atoms.shape[-1]} columns of the atoms, got {x.shape[-1]}.")
        Phi: Tensor = gram(self.base_kernel, x, measure.atoms.to(x)) * measure.weights.to(x).sqrt()
        return Phi

    def gram(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """The matrix r(x1_i, x2_j) as a dense tensor; ``x2=None`` means ``x1``."""
        return gram(self, x1, x2)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object) -> Tensor | LinearOperator:
        """r between rows; a root operator of rank M under a discrete measure."""
        self.check_last_dim(params)
        same = equal(x1, x2)
        if self.is_low_rank:
            left = self._features(x1)
            right = left if same else self._features(x2)
            if diag:
                return (left * right).sum(-1)
            return RootLinearOperator(left) if same else MatmulLinearOperator(left, right.mT)
        form = self._form(x1.shape[-1])
        if not diag:
            return form(x1, None if same else x2)
        if same and not isinstance(self.measure, GaussianMeasure):
            batch = broadcast_shapes(self.batch_shape, x1.shape[:-2])
            return form(torch.zeros_like(x1[..., :1, :]), None)[..., 0].expand(*batch, x1.shape[-2])
        # In blocks of rows: one row at a time, as a batch, would need other parameter shapes.
        blocks = zip(x1.split(64, dim=-2), x2.split(64, dim=-2), strict=True)
        return torch.cat([form(one, two).diagonal(dim1=-2, dim2=-1) for one, two in blocks], dim=-1)

    def extra_repr(self) -> str:
        """The formula of r, the kind of ν, and how r is computed."""
        name = "automatic" if self.measure is None else type(self.measure).__name__
        return f"r = ∫ k(x, u) k(u, y) ν(du), ν: {name}, {self.form()}"


def _smoothed_gram(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    if not kernel.is_low_rank:
        r: Tensor = kernel._form(x1.shape[-1])(x1, x2)
        return r
    left: Tensor = kernel._features(x1)
    return left @ (left if x2 is None else kernel._features(x2)).mT


GRAMS.register(SmoothedKernel, _smoothed_gram)
