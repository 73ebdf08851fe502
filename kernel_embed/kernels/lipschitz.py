r"""α² = sup k(x, x) of a linear kernel on a network, from a Lipschitz constant of the network: a bound for ‖x‖ ≤ R."""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from ..validation import check_number
from .classes.feature import FeatureKernel
from .structure import Algebra, Node, fold

NON_EXPANSIVE = (
    nn.Identity, nn.Flatten, nn.Unflatten, nn.ReLU, nn.ReLU6, nn.CELU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.Hardtanh,
    nn.Softsign, nn.LogSigmoid, nn.Tanhshrink, nn.Softshrink,
)  # fmt: skip
"""Modules with ‖f(x) − f(x')‖ ≤ ‖x − x'‖, whatever their settings."""

STEEPEST = {nn.SELU: 1.7581, nn.GELU: 1.13, nn.SiLU: 1.1, nn.Mish: 1.09}
"""The largest slope of smooth activations that exceed 1 somewhere; rounded up."""


class LipschitzBound:
    """α² = (‖φ(0)‖ + Lip(φ) R)², which bounds ‖φ(x)‖² for every ‖x‖ ≤ R; for a linear kernel on a feature map.

    Args:
        radius: R, such that ‖x‖ ≤ R for every x the embedding will meet; √d for features scaled to [0, 1].

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
        scale, kernel = fold(kernel, _Unscaled(diagonal.new_ones(diagonal.shape[:-1]))) or (1.0, kernel)
        if not isinstance(kernel, FeatureKernel) or kernel.base_kernel is not None:
            raise TypeError(
                f"Expected a linear kernel on a feature map, FeatureKernel(feature_map), got {type(kernel).__name__}. "
                "Give a number, or none, and the largest value over the data is taken."
            )
        return (
            scale * (norm_at_zero(kernel.feature_map, diagonal) + lipschitz(kernel.feature_map) * self.radius).square()
        )


class _Unscaled(Algebra[tuple[Tensor, Kernel]]):
    """A kernel as a factor times one that is not scaled."""

    def __init__(self, one: Tensor) -> None:
        self.one = one

    def leaf(self, node: Node) -> tuple[Tensor, Kernel]:
        """1 times the kernel."""
        return self.one, node.kernel

    def scale(self, node: Node, part: tuple[Tensor, Kernel] | None) -> tuple[Tensor, Kernel] | None:
        """One factor more."""
        return part and (part[0] * node.factor, part[1])

    def add(self, node: Node, parts: object) -> tuple[Tensor, Kernel]:
        """1 times the sum."""
        return self.leaf(node)

    def multiply(self, node: Node, parts: object) -> tuple[Tensor, Kernel]:
        """1 times the product."""
        return self.leaf(node)


def norm_at_zero(feature_map: nn.Module, like: Tensor) -> Tensor:
    """‖φ(0)‖, with φ in evaluation mode."""
    first = next((m for m in feature_map.modules() if isinstance(m, nn.Linear | nn.Conv2d | nn.Unflatten)), None)
    if isinstance(first, nn.Linear):
        width = first.in_features
    elif isinstance(first, nn.Unflatten):
        width = math.prod(first.unflattened_size)
    else:
        raise TypeError(
            f"Expected a feature map of flat rows, got {type(feature_map).__name__}, whose width is unknown. "
            "Flatten what it returns, or begin with a torch.nn.Linear."
        )
    modes = {module: module.training for module in feature_map.modules()}
    feature_map.eval()
    try:
        norm: Tensor = torch.linalg.vector_norm(feature_map(like.new_zeros(1, width)))
    finally:
        for module, training in modes.items():
            module.training = training
    return norm


def lipschitz(module: nn.Module) -> Tensor | float:
    """A Lipschitz constant of ``module`` in the Euclidean norm, in evaluation mode.

    Example:
        >>> layer = nn.Linear(2, 2, bias=False)
        >>> layer.weight.data = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
        >>> round(lipschitz(nn.Sequential(layer, nn.ReLU(), nn.Dropout(0.5))).item(), 4)
        3.0
    """
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
    if isinstance(module, nn.modules.dropout._DropoutNd) or type(module) in NON_EXPANSIVE:
        return 1.0
    if type(module) in STEEPEST:
        return STEEPEST[type(module)]
    if type(module) is nn.ELU:
        return max(1.0, abs(module.alpha))  # α eˣ for x < 0
    if type(module) is nn.LeakyReLU:
        return max(1.0, abs(module.negative_slope))
    if type(module) is nn.PReLU:
        return module.weight.abs().amax().clamp_min(1.0)
    raise TypeError(
        f"Expected layers whose Lipschitz constant is known, got {type(module).__name__}. "
        "Give the bound as a number, or as a function of your own."
    )
