"""α² = sup k(x, x) where it has no closed form: a constant, a mean, or a bound by a Lipschitz constant."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor, nn

from ..validation import check_number
from .classes import FeatureKernel, evaluation_mode
from .structure import root_of


class NominalDiagonal:
    """α² is ``value``, whatever k(x, x) is: a scale, not a bound.

    Args:
        value: α².

    Raises:
        TypeError: if ``value`` is not a number.
        ValueError: if ``value`` is not positive and finite.

    Example:
        >>> NominalDiagonal(1.0)(None, torch.tensor([3.0, 4.0]))
        tensor(1.)
    """

    source = "nominal, not a bound"

    def __init__(self, value: float = 1.0) -> None:
        if not 0.0 < check_number("value", value) < math.inf:
            raise ValueError(f"Expected a positive, finite value, got {value}. Give the largest k(x, x).")
        self.value = float(value)

    def __call__(self, kernel: Kernel, diagonal: Tensor) -> Tensor:
        return diagonal.new_full(diagonal.shape[:-1], self.value)


class MeanDiagonal:
    """α² is the mean of k(x_i, x_i): a scale, not a bound.

    Example:
        >>> MeanDiagonal()(None, torch.tensor([3.0, 4.0]))
        tensor(3.5000)
    """

    source = "mean over the data, not a bound"

    def __call__(self, kernel: Kernel, diagonal: Tensor) -> Tensor:
        return diagonal.mean(dim=-1)


LARGEST_SLOPE: dict[type[nn.Module], float] = {
    **dict.fromkeys((nn.Identity, nn.Flatten, nn.Unflatten, nn.ReLU, nn.ReLU6, nn.CELU, nn.Tanh, nn.Sigmoid), 1.0),
    **dict.fromkeys((nn.Softplus, nn.Hardtanh, nn.Softsign, nn.LogSigmoid, nn.Tanhshrink, nn.Softshrink), 1.0),
    **{nn.SELU: 1.7581, nn.GELU: 1.13, nn.SiLU: 1.1, nn.Mish: 1.09},
}
"""The largest slopes of modules without parameters, for all settings; rounded up."""


class LipschitzBound:
    """α² = (‖φ(0)‖ + Lip(φ) R)², which bounds ‖φ(x)‖² for every ‖x‖ ≤ R; for a linear kernel on a feature map.

    Args:
        radius: R, an upper bound of ‖x‖ for all inputs; √d for features scaled to [0, 1].

    Lip(φ) is the product over the layers of a ``Sequential``: the spectral norm of a linear layer, the sum over taps of
    the spectral norms of a convolution, the largest slope of an activation, 1 for pooling without overlap.

    Raises:
        TypeError: if ``radius`` is not a number; when called, if the kernel is not a linear one on a feature map.
        ValueError: if ``radius`` is not positive and finite.

    Example:
        >>> kernel = FeatureKernel(nn.Sequential(nn.Unflatten(1, (2, 1)), nn.Flatten()))
        >>> LipschitzBound(radius=2.0)(kernel, torch.ones(3))
        tensor(4.)
    """

    source, is_bound = "Lipschitz bound", True

    def __init__(self, radius: float) -> None:
        if not 0.0 < check_number("radius", radius) < math.inf:
            raise ValueError(f"Expected a positive, finite radius, got {radius}. Give the largest norm of the points.")
        self.radius = float(radius)

    def __call__(self, kernel: Kernel, diagonal: Tensor) -> Tensor:
        """The bound, differentiable in the weights."""
        node, scale = root_of(kernel), diagonal.new_ones(diagonal.shape[:-1])
        while node.composite is ScaleKernel:
            node, scale = node.base(), scale * node.factor
        kernel = node.kernel
        if not isinstance(kernel, FeatureKernel) or kernel.base_kernel is not None:
            raise TypeError(f"Expected a linear kernel on a feature map, got {type(kernel).__name__}. Give a number.")
        layers = kernel.feature_map.modules()
        first = next((layer for layer in layers if isinstance(layer, nn.Linear | nn.Conv2d | nn.Unflatten)), None)
        if first is None or isinstance(first, nn.Conv2d):
            raise TypeError("The map's width is unknown. Begin it with torch.nn.Linear or Unflatten.")
        width = first.in_features if isinstance(first, nn.Linear) else math.prod(first.unflattened_size)
        with evaluation_mode(kernel.feature_map):
            at_zero = torch.linalg.vector_norm(kernel.feature_map(diagonal.new_zeros(1, width)))
        bound: Tensor = scale * (at_zero + lipschitz(kernel.feature_map) * self.radius).square()
        return bound


def lipschitz(module: nn.Module) -> Tensor | float:
    """A Lipschitz constant of ``module`` in the Euclidean norm, in evaluation mode."""
    if isinstance(module, nn.Sequential):
        product: Tensor | float = 1.0
        for layer in module:
            product = product * lipschitz(layer)
        return product
    if isinstance(module, nn.Linear):
        norm: Tensor = torch.linalg.matrix_norm(module.weight, 2)
        return norm
    if isinstance(module, nn.Conv2d) and module.groups == 1 and module.padding_mode == "zeros":
        # A convolution is a sum over taps of (a shift) then (a matrix on channels), and no shift is expansive.
        taps: Tensor = torch.linalg.matrix_norm(module.weight.permute(2, 3, 0, 1), 2).sum()
        return taps
    if isinstance(module, nn.MaxPool2d | nn.AvgPool2d) and module.padding == 0 and module.stride == module.kernel_size:
        return 1.0
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return 1.0
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and module.running_var is not None:
        slope: Tensor = (module.running_var + module.eps).rsqrt()
        return (slope if module.weight is None else slope * module.weight.abs()).amax()
    if type(module) is nn.ELU:
        return max(1.0, abs(module.alpha))  # α eˣ for x < 0
    if type(module) is nn.LeakyReLU:
        return max(1.0, abs(module.negative_slope))
    if type(module) is nn.PReLU:
        return module.weight.abs().amax().clamp_min(1.0)
    if type(module) in LARGEST_SLOPE:
        return LARGEST_SLOPE[type(module)]
    name = type(module).__name__
    raise TypeError(f"Expected layers whose Lipschitz constant is known, got {name}. Give the bound as a number.")
