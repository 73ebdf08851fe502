r"""α² = sup k(x, x) of a linear kernel on a network, from a Lipschitz constant of the network: a bound for ‖x‖ ≤ R."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from ..validation import check_number
from .classes.feature import FeatureKernel, evaluation_mode
from .structure import Composite, root_of

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
        >>> network = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> kernel, bound, x = FeatureKernel(network), LipschitzBound(radius=1.0), torch.tensor([[0.6, 0.8]])
        >>> bool(bound(kernel, network(x).square().sum(-1)) >= network(x).square().sum())
        True
    """

    source, is_bound = "Lipschitz bound", True

    def __init__(self, radius: float) -> None:
        if not 0.0 < check_number("radius", radius) < math.inf:
            raise ValueError(f"Expected a positive, finite radius, got {radius}. Give the largest norm of the points.")
        self.radius = float(radius)

    def __call__(self, kernel: Kernel, diagonal: Tensor) -> Tensor:
        """The bound, differentiable in the weights."""
        node, scale = root_of(kernel), diagonal.new_ones(diagonal.shape[:-1])
        while node.composite is Composite.SCALE:
            (base,) = node.parts
            node, scale = base, scale * node.factor
        kernel = node.kernel
        if not isinstance(kernel, FeatureKernel) or kernel.base_kernel is not None:
            raise TypeError(
                f"Expected a linear kernel on a feature map, FeatureKernel(feature_map), got {type(kernel).__name__}. "
                "Give a number, or None for the largest value over the data."
            )
        norm = norm_at_zero(kernel.feature_map, diagonal) + lipschitz(kernel.feature_map) * self.radius
        return scale * norm.square()


def norm_at_zero(feature_map: nn.Module, like: Tensor) -> Tensor:
    """‖φ(0)‖, with φ in evaluation mode."""
    first = next((m for m in feature_map.modules() if isinstance(m, nn.Linear | nn.Conv2d | nn.Unflatten)), None)
    if isinstance(first, nn.Linear):
        width = first.in_features
    elif isinstance(first, nn.Unflatten):
        width = math.prod(first.unflattened_size)
    else:
        raise TypeError(
            f"The feature map {type(feature_map).__name__} takes no flat rows, so that its width is unknown. "
            "Begin it with a torch.nn.Linear or torch.nn.Unflatten."
        )
    with evaluation_mode(feature_map):
        norm: Tensor = torch.linalg.vector_norm(feature_map(like.new_zeros(1, width)))
    return norm


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
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) and module.running_var is not None:
        slope: Tensor = (module.running_var + module.eps).rsqrt()
        return (slope if module.weight is None else slope * module.weight.abs()).amax()
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return 1.0
    if type(module) is nn.ELU:
        return max(1.0, abs(module.alpha))  # α eˣ for x < 0
    if type(module) is nn.LeakyReLU:
        return max(1.0, abs(module.negative_slope))
    if type(module) is nn.PReLU:
        return module.weight.abs().amax().clamp_min(1.0)
    if type(module) in LARGEST_SLOPE:
        return LARGEST_SLOPE[type(module)]
    raise TypeError(
        f"Expected layers whose Lipschitz constant is known, got {type(module).__name__}. "
        "Give the bound as a number, or as a function of your own."
    )
