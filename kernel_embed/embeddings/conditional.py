r"""Embeddings without data: a kernel, λ, and the targets of conditional and multiclass embeddings.

.. math::
    \hat{\mathcal U}_{Y|X} &= \Psi (K + n\lambda I)^{-1} \Phi^\top                                       & (1) \\
    \hat{\mathbf p}(x) &= \mathbf Y^\top (K + n\lambda I)^{-1} \mathbf k(x)                              & (5)
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from ..kernels import DeltaKernel, DiagonalBound
from ..kernels.parameters import PositiveParameter, frozen, register_positive
from ..kernels.structure import batch_shape_of, check_columns, check_kernel
from ..linalg import Groups, Units
from ..validation import check_count, check_features, check_finite, check_lengths, check_sample, check_weights
from .conditioned import ConditionedEmbedding, ConditionedMulticlass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    class Module(torch.nn.Module):
        """The part of ``gpytorch.Module`` that is used here, with types, which GPyTorch does not ship."""

        initialize: Callable[..., Any]
        constraint_for_parameter_name: Callable[[str], Interval | None]
        register_constraint: Callable[..., None]
        register_prior: Callable[..., None]
        pyro_sample_from_prior: Callable[[], Any]
        named_priors: Callable[[], Iterator[tuple[str, Any, Prior, Callable[[Any], Tensor], Any]]]

else:
    from gpytorch import Module

Weights = Tensor | None


class KernelEmbedding(Module):
    """A module with a kernel; ``attach`` joins it with data, ``condition`` a frozen copy of it."""

    kernel: Kernel

    takes_targets: ClassVar[bool] = False
    """Whether data are inputs with targets, or a sample alone."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        check_kernel(kernel)
        self.kernel = kernel

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load parameters and buffers, with a warning if rounding to a narrower dtype changes them."""
        own = {} if assign else self.state_dict()
        shared = [name for name, value in state_dict.items() if name in own and isinstance(value, Tensor)]
        if rounded := [name for name in shared if not _fits(state_dict[name], own[name].dtype)]:
            message = (
                f"{', '.join(rounded)} are rounded to {own[rounded[0]].dtype}. Call embedding.double() before "
                "load_state_dict to keep all digits."
            )
            warnings.warn(message, NumericalWarning, stacklevel=2)
        return super().load_state_dict(state_dict, strict=strict, assign=assign)

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the kernel, and so of every parameter and prediction."""
        return batch_shape_of(self.kernel)

    def check_single(self) -> None:
        """Raise unless the batch shape is empty."""
        if len(self.batch_shape) > 0:
            batch = tuple(self.batch_shape)
            raise ValueError(f"Expected an embedding without batch shape, got {batch}. Give its kernel no batch_shape.")

    def checked_sample(self, x: Tensor) -> Tensor:
        """A sample ``x`` ``(n, d)``, in the dtype of the kernel's parameters if that is wider."""
        x = check_sample(x, self.kernel.parameters())
        check_columns(self.kernel, x.shape[-1])
        return x

    def forward(self, *inputs: object, **options: object) -> object:
        """Raise, and say how to predict: without data an embedding is not a function of x."""
        raise TypeError(
            f"{type(self).__name__} is not a function of x. Call embedding.condition(x, y).probabilities(x_new), or "
            "objective(embedding, x, y)."
        )


def _fits(value: Tensor, dtype: torch.dtype) -> bool:
    floating = value.is_floating_point() and dtype.is_floating_point
    return not floating or torch.equal(value.to(dtype).to(value.dtype).nan_to_num(), value.nan_to_num())


class RegularizedEmbedding(KernelEmbedding):
    """A kernel and λ, of the kernel's batch shape."""

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


class ConditionalEmbedding(RegularizedEmbedding):
    """The embedding of P(Y | X) for targets of any kind.

    Args:
        kernel: k, any GPyTorch kernel on the inputs. Its ``batch_shape`` is the batch shape of every prediction.
        regularization: the starting value of λ.
        target_kernel: l, a kernel on the targets, for objectives that measure distance between embedded targets. It is
            never learned: choose its scale yourself, or with :func:`kernel_embed.set_lengthscales_by_median`.
        sup_diagonal: α², a bound of k(x, x) where the kernel has none in closed form: a number, or a function such
            as :class:`kernel_embed.LipschitzBound`.
        regularization_prior: a GPyTorch prior on λ.
        regularization_constraint: a GPyTorch constraint on λ; positive, on a logarithmic scale, by default.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> conditioned = ConditionalEmbedding(RBFKernel(), 1e-5).condition(torch.zeros(2, 1), torch.tensor([1.0, 3.0]))
        >>> round(conditioned.expectation(lambda y: y**2, torch.zeros(1, 1)).item(), 2)     # E[Y² | X = 0]
        5.0
    """

    takes_targets = True

    def __init__(
        self,
        kernel: Kernel,
        regularization: float = 0.01,
        target_kernel: Kernel | None = None,
        *,
        sup_diagonal: float | DiagonalBound | None = None,
        regularization_prior: Prior | None = None,
        regularization_constraint: Interval | None = None,
    ) -> None:
        prior, constraint = regularization_prior, regularization_constraint
        super().__init__(kernel, regularization, regularization_prior=prior, regularization_constraint=constraint)
        self.target_kernel, self.sup_diagonal_bound = target_kernel, sup_diagonal

    def attach(self, x: Tensor, y: Tensor, weights: Weights = None, groups: Groups = None) -> ConditionedEmbedding:
        """The embedding with its data, differentiable in the parameters as they are: what an objective evaluates.

        Args:
            x: inputs of shape ``(n, d)``.
            y: targets with n rows, of any further shape.
            weights: how many rows each row stands for, ``(n,)`` and positive; 1 each by default.
            groups: a number for each row, ``(n,)``: rows of one group, such as a patient, are left out together. By
                default rows equal in x and y are, unless other rows have the same x and another y.
        """
        x, y, weights = self.checked(x, y, weights)
        return ConditionedEmbedding(self, x, y, weights=weights, units=Units.of(x, groups))

    def condition(self, x: Tensor, y: Tensor, weights: Weights = None, groups: Groups = None) -> ConditionedEmbedding:
        """Factorize K + nλW⁻¹ for the data that :meth:`attach` takes, with a frozen copy of this embedding."""
        return frozen(self).attach(x, y, weights, groups)

    def checked(self, x: Tensor, y: Tensor, weights: Weights) -> tuple[Tensor, Tensor, Weights]:
        """Validate and convert the data of :meth:`attach`."""
        x = check_features(x)
        check_lengths(x, y)
        if y.is_floating_point():
            check_finite(y, "y")
        return x, y, check_weights(x, weights)

    def targets(self, y: Tensor, like: Tensor) -> Tensor:
        """Y, the targets as an n × m matrix of numbers in the dtype and on the device of ``like``."""
        Y = y.to(like).reshape(y.shape[0], -1)
        if Y.numel() == 0:
            raise ValueError(f"Every target needs at least one number, but y has shape {tuple(y.shape)}.")
        if not (largest := float(Y.detach().abs().amax())) < torch.finfo(Y.dtype).max ** 0.5:
            raise ValueError(f"The squares of targets up to {largest:.2g} overflow in {Y.dtype}. Rescale y.")
        return Y


class MulticlassEmbedding(ConditionalEmbedding):
    """A probabilistic multiclass classifier: the conditional embedding of class labels 0 … m − 1.

    Args:
        num_classes: m. The other arguments are those of :class:`ConditionalEmbedding`.

    Raises:
        ValueError: if ``num_classes`` is below 1.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> x, y = torch.tensor([[0.0], [0.1], [1.0], [1.1]]), torch.tensor([0, 0, 1, 1])
        >>> MulticlassEmbedding(RBFKernel(), num_classes=2).condition(x, y).predict(torch.tensor([[0.2], [0.9]]))
        tensor([0, 1])
    """

    def __init__(
        self,
        kernel: Kernel,
        num_classes: int,
        regularization: float = 0.01,
        *,
        sup_diagonal: float | DiagonalBound | None = None,
        regularization_prior: Prior | None = None,
        regularization_constraint: Interval | None = None,
    ) -> None:
        num_classes = check_count("num_classes", num_classes)
        options = {"regularization_prior": regularization_prior, "regularization_constraint": regularization_constraint}
        super().__init__(kernel, regularization, DeltaKernel(), sup_diagonal=sup_diagonal, **options)
        self.num_classes = num_classes

    def attach(self, x: Tensor, y: Tensor, weights: Weights = None, groups: Groups = None) -> ConditionedMulticlass:
        """As :meth:`ConditionalEmbedding.attach`, for class numbers ``(n,)`` or rows of m probabilities ``(n, m)``."""
        x, y, weights = self.checked(x, y, weights)
        return ConditionedMulticlass(self, x, y, weights=weights, units=Units.of(x, groups))

    def condition(self, x: Tensor, y: Tensor, weights: Weights = None, groups: Groups = None) -> ConditionedMulticlass:
        """Factorize K + nλW⁻¹ for the data that :meth:`attach` takes, with a frozen embedding."""
        return frozen(self).attach(x, y, weights, groups)

    def checked(self, x: Tensor, y: Tensor, weights: Weights) -> tuple[Tensor, Tensor, Weights]:
        """Validate and convert the data of :meth:`attach`."""
        x = check_features(x)
        return x, check_labels(x, y, self.num_classes), check_weights(x, weights)

    def targets(self, y: Tensor, like: Tensor) -> Tensor:
        """Y ∈ [0, 1]^{n×m}, the one-hot labels of eq. (5), or the soft labels as they are."""
        return y.to(like) if y.dim() == 2 else torch.nn.functional.one_hot(y, self.num_classes).to(like)


def check_labels(x: Tensor, y: Tensor | None, num_classes: int) -> Tensor:
    """``y`` as class numbers 0 … m − 1, one for each row of ``x``, or as soft labels, m probabilities each."""
    y = check_lengths(x, y)
    y = y.squeeze(1) if y.dim() == 2 and y.shape[1] == 1 else y
    if y.dim() == 2 and y.shape[1] == num_classes and y.is_floating_point():
        check_finite(y, "y")
        wrong = (y < 0).any(-1) | ((y.sum(-1) - 1.0).abs() > 1e-4)
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            got = f"{y[row].tolist()} in row {row}. Divide each row by its sum."
            raise ValueError(f"Expected rows of probabilities in y, got {got}")
        return y.to(x)
    if y.dim() != 1:
        shape = tuple(y.shape)
        raise ValueError(f"Expected a vector of class numbers, or {num_classes} probabilities a row, got {shape}.")
    if y.is_complex():
        raise TypeError(f"Expected class numbers in y, got {y.dtype}. Number the classes from 0.")
    if y.is_floating_point() and not bool((y == y.round()).all()):
        raise ValueError("Expected class numbers in y, got values that are not whole. Use ConditionalEmbedding.")
    y = y.long().to(x.device)
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"Expected class numbers from 0 to {num_classes - 1} (num_classes={num_classes}), got {low} to {high}. "
            "Number the classes from 0, or use MulticlassEmbeddingClassifier, which takes labels of any kind."
        )
    return y
