"""How scaled points z follow from x, and how a slope in z becomes one in x."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Metric(Protocol):
    """The linear map x → z of a radial kernel φ(‖z − z'‖²)."""

    def scaled(self, x: Tensor) -> Tensor:
        """z, of shape ``(*batch, n, D)``."""
        ...  # pragma: no cover

    def slope(self, v: Tensor) -> Tensor:
        """∂q/∂x from v = ∂q/∂z, both ``(*batch, n, D)``."""
        ...  # pragma: no cover

    def noise(self, size: Tensor) -> Tensor:
        """The rounding error of ‖∂q/∂x‖ from that of ‖∂q/∂z‖, both ``(*batch, n)``."""
        ...  # pragma: no cover


class Lengthscale:
    """z = x / ℓ for a lengthscale ℓ of shape ``(*batch, 1, 1 | D)``; ``None`` for z = x.

    Example:
        >>> Lengthscale(torch.tensor([[2.0, 4.0]])).scaled(torch.tensor([[1.0, 1.0]]))
        tensor([[0.5000, 0.2500]])
    """

    def __init__(self, lengthscale: Tensor | None) -> None:
        self.lengthscale = lengthscale

    def scaled(self, x: Tensor) -> Tensor:
        """x / ℓ."""
        return x if self.lengthscale is None else x / self.lengthscale

    def slope(self, v: Tensor) -> Tensor:
        """v / ℓ."""
        return v if self.lengthscale is None else v / self.lengthscale

    def noise(self, size: Tensor) -> Tensor:
        """size / max ℓ."""
        return size if self.lengthscale is None else size / self.lengthscale.amax(dim=(-2, -1))[..., None]


class Whitening:
    """z = Lᵀx for a factor L of shape ``(*batch, D, D)``.

    Example:
        >>> Whitening(2.0 * torch.eye(2)).scaled(torch.tensor([[1.0, 3.0]]))
        tensor([[2., 6.]])
    """

    def __init__(self, factor: Tensor) -> None:
        self.factor = factor

    def scaled(self, x: Tensor) -> Tensor:
        """Lᵀx."""
        if x.shape[-1] != self.factor.shape[-1]:
            raise ValueError(f"Expected {self.factor.shape[-1]} features (num_dims), got x with {x.shape[-1]}.")
        return x @ self.factor

    def slope(self, v: Tensor) -> Tensor:
        """Lv."""
        return v @ self.factor.mT

    def noise(self, size: Tensor) -> Tensor:
        """As it is."""
        return size
