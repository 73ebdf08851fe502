"""The conditional test inside causal-learn's PC algorithm; needs ``kernel-embed[causal]``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .checks import categorical_columns, generator_of
from .conditional import Method, conditional_independence_test, residual_test
from .conditioning_set import ConditioningSet, Variable
from .encoding import Encoding
from .kernel_choice import KernelChoice
from .residuals import residuals
from .result import KernelTestResult
from .transform_test import transform_test

NAME = "kernel_embed"


def register_causal_test(
    name: str = NAME,
    *,
    kernel: KernelChoice = None,
    num_permutations: int = 1000,
    seed: int | None = None,
    kernel_y: KernelChoice = None,
    method: Method | None = None,
    categorical: bool | Sequence[int] = False,
) -> str:
    """Register :func:`kernel_embed.conditional_independence_test` with causal-learn under ``name``; returns the name.

    So one line runs the PC algorithm with it::

        pc(data, 0.05, ke.hypothesis.register_causal_test(seed=0))

    Args:
        name: by which causal-learn's ``pc``, ``fci`` and others know the test.
        kernel: as in :func:`kernel_embed.conditional_independence_test`, such as ``"median"``.
        num_permutations: B.
        seed: of whatever is random, the same for every pair.
        kernel_y: of the second of a pair.
        method: as in :func:`kernel_embed.conditional_independence_test`.
        categorical: the columns of the data that hold categories: none or all of them, or their numbers.

    Returns:
        ``name``.

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
        raise ImportError("The PC algorithm is causal-learn's: pip install 'kernel-embed[causal]'.") from error
    options = Options(kernel, num_permutations, seed, kernel_y, method, categorical)

    class KernelEmbedTest(CIT_Base):  # type: ignore[misc, unused-ignore]
        """p-values of pairs of columns given others, each computed once."""

        def __init__(self, data: NDArray[np.float64], **kwargs: object) -> None:
            super().__init__(data, **kwargs)
            self.check_cache_method_consistent(name, repr(options))
            self.assert_input_data_is_valid()
            self.columns = ColumnTests(torch.as_tensor(np.asarray(data, dtype=np.float64)), options)

        def __call__(self, X: int, Y: int, condition_set: Iterable[int] | None = None) -> float:
            """p of column X against column Y given the columns of ``condition_set``."""
            (first,), (second,), given, key = self.get_formatted_XYZ_and_cachekey(X, Y, condition_set)
            if key not in self.pvalue_cache:
                self.pvalue_cache[key] = self.columns.test(first, second, given).pvalue
            return float(self.pvalue_cache[key])

    register_ci_test(name, KernelEmbedTest)
    return name


@dataclasses.dataclass(frozen=True)
class Options:
    """The arguments of :func:`register_causal_test`."""

    kernel: KernelChoice
    num_permutations: int
    seed: int | None
    kernel_y: KernelChoice
    method: Method | None
    categorical: bool | Sequence[int]


class ColumnTests:
    """Tests of columns of ``data`` (``(n, d)``) given other columns; each regression is computed once."""

    def __init__(self, data: Tensor, options: Options) -> None:
        self.data, self.options = data, options
        self.categories = categorical_columns([data], options.categorical)
        self.residuals: dict[tuple[int, ...], Tensor] = {}
        self.known: dict[tuple[int, ...], ConditioningSet] = {}
        self.variables: dict[tuple[int, ...], Variable] = {}
        no_kernel = options.kernel is None and options.kernel_y is None
        self.method: Method = options.method or ("transforms" if no_kernel else "residuals")

    def test(self, first: int, second: int, given: list[int]) -> KernelTestResult:
        """Whether two columns are independent given others."""
        ask = self.options
        if given and self.method == "transforms" and ask.kernel is None and ask.kernel_y is None:
            left = self.variable(first, given), self.variable(second, given)
            return transform_test(*left, self.known[tuple(given)], ask.num_permutations, generator_of(ask.seed))
        if given and self.method == "residuals":
            rest = self.residual(first, given), self.residual(second, given)
            return residual_test(*rest, ask.kernel, ask.num_permutations, ask.seed, ask.kernel_y)
        return conditional_independence_test(
            self.data[:, first],
            self.data[:, second],
            self.data[:, given] if given else None,
            ask.kernel,
            ask.num_permutations,
            ask.seed,
            kernel_y=ask.kernel_y,
            method=self.method,
            categorical=self.categories_among([first]),
            categorical_y=self.categories_among([second]),
            categorical_z=self.categories_among(given),
        )

    def variable(self, column: int, given: list[int]) -> Variable:
        """What is left of a column when others are known."""
        key, generator = tuple(given), generator_of(self.options.seed)
        if key not in self.known:
            self.known[key] = ConditioningSet(self.data[:, given], self.categories_among(given), generator)
        name = (column, *given)
        if name not in self.variables:
            own = self.categories_among([column])
            self.variables[name] = self.known[key].variable(self.data[:, [column]], own, generator)
        return self.variables[name]

    def residual(self, column: int, given: list[int]) -> Tensor:
        """A column minus its regression on others."""
        key = (column, *given)
        if key not in self.residuals:
            x, z = self.encoded([column]), self.encoded(given)
            self.residuals[key] = residuals(x, z, generator_of(self.options.seed))
        return self.residuals[key]

    def encoded(self, columns: list[int]) -> Tensor:
        """The columns as coordinates, categories included."""
        x = self.data[:, columns]
        points: Tensor = Encoding(x, self.categories_among(columns))(x)
        return points

    def categories_among(self, columns: list[int]) -> list[int]:
        """Which of these columns hold categories, by their place among them."""
        return [place for place, column in enumerate(columns) if column in self.categories]
