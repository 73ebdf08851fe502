"""The conditional test in causal-learn's PC algorithm; needs ``kernel-embed[causal]``."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..validation import generator_of
from .checks import Encoding, categorical_columns
from .conditional import Method, conditional_independence_test, residuals
from .conditioning_set import ConditionalFeatures, ConditioningSet
from .independence import independence_test
from .kernel_choice import KernelChoice
from .transform_test import transform_test


def register_causal_test(
    name: str = "kernel_embed",
    *,
    kernel: KernelChoice = None,
    num_permutations: int = 1000,
    seed: int | None = None,
    kernel_y: KernelChoice = None,
    method: Method | None = None,
    categorical: bool | Sequence[int] = False,
) -> str:
    """Register :func:`kernel_embed.conditional_independence_test` with causal-learn under ``name``; returns the name.

    One line then runs the PC algorithm with it::

        pc(data, 0.05, ke.hypothesis.register_causal_test(seed=0))

    Args:
        name: the name for causal-learn's ``pc``, ``fci`` and others.
        kernel: as in :func:`kernel_embed.conditional_independence_test`, such as ``"median"``.
        num_permutations: B.
        seed: of all random numbers, the same for every pair.
        kernel_y: of the second of a pair.
        method: as in :func:`kernel_embed.conditional_independence_test`.
        categorical: the categorical columns of the data: none or all of them, or their indices.

    Raises:
        ImportError: if causal-learn is not installed.

    Example:
        >>> import kernel_embed as ke
        >>> def skeleton(data):                           # data: a NumPy array, one column for each variable
        ...     from causallearn.search.ConstraintBased.PC import pc
        ...     return pc(data, 0.05, ke.hypothesis.register_causal_test(seed=0)).G
    """
    try:
        from causallearn.utils.cit import CIT_Base, register_ci_test
    except ImportError as error:
        raise ImportError("The PC algorithm needs causal-learn: pip install 'kernel-embed[causal]'.") from error

    class KernelEmbedTest(CIT_Base):  # type: ignore[misc, unused-ignore]
        """p-values of pairs of columns given others, each computed once."""

        def __init__(self, data: NDArray[np.float64], **kwargs: object) -> None:
            super().__init__(data, **kwargs)
            options = (kernel, num_permutations, seed, kernel_y, method, categorical)
            self.check_cache_method_consistent(name, repr(options))
            self.assert_input_data_is_valid()
            self.columns = ColumnTests(torch.as_tensor(np.asarray(data, dtype=np.float64), device="cpu"), *options)

        def __call__(self, X: int, Y: int, condition_set: Iterable[int] | None = None) -> float:
            """The p-value of columns X and Y given the columns of ``condition_set``."""
            (first,), (second,), others, key = self.get_formatted_XYZ_and_cachekey(X, Y, condition_set)
            if key not in self.pvalue_cache:
                self.pvalue_cache[key] = self.columns.pvalue(first, second, tuple(others))
            return float(self.pvalue_cache[key])

    register_ci_test(name, KernelEmbedTest)
    return name


class ColumnTests:
    """Tests whether two columns of ``data`` ``(n, d)`` are independent given others; each regression is computed once.

    The other arguments are those of :func:`register_causal_test`.
    """

    def __init__(
        self, data: Tensor, kernel: KernelChoice, num_permutations: int, seed: int | None, kernel_y: KernelChoice,
        method: Method | None, categorical: bool | Sequence[int],
    ) -> None:  # fmt: skip
        self.data, self.arguments, self.kernel_y = data, (kernel, num_permutations, seed), kernel_y
        self.categories = categorical_columns([data], categorical)
        self.no_kernel = kernel is None and kernel_y is None
        self.method: Method = method or ("transforms" if self.no_kernel else "residuals")
        self.generator = functools.partial(generator_of, seed)
        self.conditioning = functools.cache(self._conditioning)
        self.features = functools.cache(self._features)
        self.residuals = functools.cache(self._residuals)

    def pvalue(self, first: int, second: int, others: tuple[int, ...]) -> float:
        """The p-value of the independence of two columns given others."""
        if others and self.method == "transforms" and self.no_kernel:
            x, y = self.features(first, others), self.features(second, others)
            return transform_test(x, y, self.conditioning(others), self.arguments[1], self.generator()).pvalue
        if others and self.method == "residuals":
            rest_x, rest_y = self.residuals(first, others), self.residuals(second, others)
            return independence_test(rest_x, rest_y, *self.arguments, kernel_y=self.kernel_y).pvalue
        (a, in_a), (b, in_b), (c, in_c) = (self.columns(which) for which in ((first,), (second,), others))
        return conditional_independence_test(
            a, b, c if others else None, *self.arguments, kernel_y=self.kernel_y, method=self.method,
            categorical=in_a, categorical_y=in_b, categorical_z=in_c,
        ).pvalue  # fmt: skip

    def columns(self, columns: tuple[int, ...]) -> tuple[Tensor, list[int]]:
        """These columns, and the places of categorical ones among them."""
        return self.data[:, columns], [place for place, column in enumerate(columns) if column in self.categories]

    def _conditioning(self, others: tuple[int, ...]) -> ConditioningSet:
        return ConditioningSet(*self.columns(others), self.generator())

    def _features(self, column: int, others: tuple[int, ...]) -> ConditionalFeatures:
        return self.conditioning(others).features_of(*self.columns((column,)), self.generator())

    def _residuals(self, column: int, others: tuple[int, ...]) -> Tensor:
        (x, in_x), (z, in_z) = self.columns((column,)), self.columns(others)
        return residuals(Encoding(x, in_x)(x), Encoding(z, in_z)(z), self.generator())
