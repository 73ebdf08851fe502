"""Base classes of embeddings: a kernel, its batch shape, and the regularization λ."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from linear_operator.utils.warnings import NumericalWarning
from torch.nn.modules.module import _IncompatibleKeys

from ..kernels.parameters import PositiveParameter, register_positive
from ..kernels.structure import batch_shape_of, check_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor
    from typing_extensions import Self

    Closure = Callable[[Any], Tensor]
    Setter = Callable[[Any, Tensor], None]

    class Module(torch.nn.Module):
        """The part of ``gpytorch.Module`` that is used here, with types, which GPyTorch does not ship."""

        def initialize(self, **values: object) -> Self:
            """Set parameters by name."""

        def constraint_for_parameter_name(self, name: str) -> Interval | None:
            """The constraint on the raw parameter of this name."""

        def register_constraint(self, name: str, constraint: Interval, replace: bool = True) -> None:
            """Put a constraint on a raw parameter."""

        def register_prior(
            self, name: str, prior: Prior, closure: str | Closure, setting_closure: Setter | None = None
        ) -> None:
            """Put a prior on what ``closure`` returns."""

        def pyro_sample_from_prior(self) -> Self:
            """A copy whose parameters are Pyro's samples."""

        def named_priors(self) -> Iterator[tuple[str, Module, Prior, Closure, Setter | None]]:
            """Every prior, with the module it is registered on."""

else:
    from gpytorch import Module


class KernelEmbedding(Module):
    """A module with a kernel, which is joined with data in one of two ways.

    ``attach(...)`` uses the kernel as it is and stays differentiable in its parameters: for one evaluation of an
    objective. ``condition(...)`` does the same with a frozen copy of the whole embedding: its predictions do not change
    when this embedding is learned further, and they carry no gradient to its parameters.

    Args:
        kernel: k, any GPyTorch kernel.

    Raises:
        TypeError: if ``kernel`` is not a :class:`gpytorch.kernels.Kernel`.

    Example:
        >>> import kernel_embed as ke
        >>> issubclass(ke.MulticlassEmbedding, ke.embeddings.KernelEmbedding)
        True
    """

    kernel: Kernel

    takes_targets: ClassVar[bool] = False
    """Whether data are inputs with targets, or a sample alone."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        check_kernel(kernel)
        self.kernel = kernel

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Load parameters and buffers, with a warning if rounding to a narrower dtype changes them."""
        own = {} if assign else self.state_dict()
        rounded = [
            name
            for name, value in state_dict.items()
            if name in own and isinstance(value, torch.Tensor) and _loses_digits(value, own[name].dtype)
        ]
        if rounded:
            warnings.warn(
                f"{', '.join(rounded)} are rounded to {own[rounded[0]].dtype} by load_state_dict. Call "
                "embedding.double() before, to keep all digits.",
                NumericalWarning,
                stacklevel=2,
            )
        missing: _IncompatibleKeys = super().load_state_dict(state_dict, strict=strict, assign=assign)
        return missing

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the kernel, and so of every parameter and prediction."""
        return batch_shape_of(self.kernel)

    def forward(self, *inputs: object, **options: object) -> object:
        """Say what to call instead: an embedding has predictions only with data."""
        raise TypeError(
            f"{type(self).__name__} is not a function of x. Condition it on data first, as in "
            "embedding.condition(x, y).probabilities(x_new), or call an objective, as in objective(embedding, x, y)."
        )


def _loses_digits(value: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether ``value`` is another number in ``dtype``."""
    if not (value.is_floating_point() and dtype.is_floating_point):
        return False
    return not torch.equal(value.to(dtype).to(value.dtype).nan_to_num(), value.nan_to_num())


class RegularizedEmbedding(KernelEmbedding):
    """A kernel and λ, of the kernel's batch shape.

    Args:
        kernel: k, any GPyTorch kernel.
        regularization: λ.
        regularization_prior: a GPyTorch prior on λ.
        regularization_constraint: a GPyTorch constraint on λ; positive, on a logarithmic scale, by default.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel(), regularization=0.01)
        >>> isinstance(embedding, ke.embeddings.RegularizedEmbedding), round(embedding.regularization.item(), 4)
        (True, 0.01)
    """

    raw_regularization: torch.nn.Parameter
    regularization = PositiveParameter()
    """λ, of shape ``batch_shape``."""

    def __init__(
        self,
        kernel: Kernel,
        regularization: float = 0.01,
        *,
        regularization_prior: Prior | None = None,
        regularization_constraint: Interval | None = None,
    ) -> None:
        super().__init__(kernel)
        register_positive(self, "regularization", kernel, regularization_prior, regularization_constraint)
        self.regularization = regularization
