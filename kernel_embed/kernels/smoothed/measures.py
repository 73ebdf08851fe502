r"""The measures ν of the smoothed kernel :math:`r(x, y) = \int k(x, u)\, k(u, y)\, \nu(du)`, eq. (4).

For any finite measure, draws of the prior GP(0, r) lie in the RKHS of k (appendix A.2). Lebesgue measure is not finite;
it is the limit of ever wider Gaussians, and the paper uses its stationary r in the experiments.
"""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.priors import Prior
from torch import Tensor

from ...validation import check_features, check_number, check_tensor
from ..parameters import PositiveParameter, register_positive

NUM_ATOMS = 256


class Measure(gpytorch.Module):
    """A measure ν on the space of inputs.

    Example:
        >>> import kernel_embed as ke
        >>> isinstance(ke.kernels.LebesgueMeasure(), ke.kernels.Measure)
        True
    """


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
        """The scaling of r, if it is not exact."""
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
    """η."""

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
        value = torch.as_tensor(scale, dtype=None if isinstance(scale, Tensor) else torch.get_default_dtype())
        register_positive(self, "scale", value, scale_prior, learn=learn)
        self.register_buffer("center", center)
        self.scale = value

    def extra_repr(self) -> str:
        """η, if it is one number."""
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
        if weights is None:
            weights = atoms.new_full((atoms.shape[-2],), 1.0 / atoms.shape[-2])
        check_tensor(weights, "weights")
        if weights.shape != atoms.shape[-2:-1]:
            raise ValueError(
                f"Expected one weight for each of the {atoms.shape[-2]} atoms, got weights of shape "
                f"{tuple(weights.shape)}."
            )
        if not bool((torch.isfinite(weights) & (weights >= 0)).all() and (weights > 0).any()):
            raise ValueError("The weights of the atoms must be finite, none negative and at least one positive.")
        self.register_buffer("atoms", atoms)
        self.register_buffer("weights", weights.to(atoms))

    @classmethod
    def from_sample(cls, x: Tensor, num_atoms: int = NUM_ATOMS) -> DiscreteMeasure:
        """The empirical distribution of some rows of ``x``, evenly spaced in their order, repeated rows merged.

        Rows are sorted first, so that their order does not matter: a test with a kernel that was learned under this
        measure on a pooled sample is exact.

        Example:
            >>> DiscreteMeasure.from_sample(torch.arange(1000.0).unsqueeze(-1), num_atoms=100)
            DiscreteMeasure(num_atoms=100)
        """
        rows = x.detach().reshape(-1, x.shape[-1])
        count = min(num_atoms, rows.shape[0])
        # sorted by the first column, those that agree there by the second, and so on
        place: Tensor = rows.unique(dim=0, return_inverse=True)[1]
        rows = rows[place.argsort(stable=True)]
        # floor(i·n/M): spread over the whole sample, and the same in every call.
        spaced = torch.div(torch.arange(count, device=x.device) * rows.shape[0], count, rounding_mode="floor")
        atoms, counts = rows[spaced].unique(dim=0, return_counts=True)
        return cls(atoms, counts.to(atoms) / count)

    @property
    def num_atoms(self) -> int:
        """M."""
        return int(self.atoms.shape[-2])

    def extra_repr(self) -> str:
        """The number of atoms."""
        return f"num_atoms={self.num_atoms}"
