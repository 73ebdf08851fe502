"""The conditional test inside causal-learn's PC algorithm; needs ``kernel-embed[causal]``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .checks import generator_of
from .conditional import conditional_independence_test, residual_test
from .encoding import Encoding
from .residuals import residuals
from .result import KernelTestResult

NAME = "kernel_embed"


def register_causal_test(name: str = NAME, **options: Any) -> str:
    """Register :func:`conditional_independence_test` with causal-learn under ``name``, and return the name.

    So one line runs the PC algorithm with it::

        pc(data, 0.05, ke.register_causal_test(seed=0))

    Args:
        name: by which causal-learn's ``pc``, ``fci`` and others know the test.
        **options: any of the test's own, such as ``kernel="median"``, ``method="kernel"``, ``num_permutations``,
            ``seed``.
    """
    try:
        from causallearn.utils.cit import CIT_Base, register_ci_test
    except ImportError as error:
        raise ImportError("The PC algorithm is causal-learn's: pip install 'kernel-embed[causal]'.") from error

    class KernelEmbedTest(CIT_Base):  # type: ignore[misc, unused-ignore]
        """p-values of pairs of columns given others; each, and each regression, is computed once."""

        def __init__(self, data: Any, **kwargs: Any) -> None:
            super().__init__(data, **kwargs)
            self.check_cache_method_consistent(name, repr(sorted(options.items(), key=str)))
            self.assert_input_data_is_valid()
            self.tensor = torch.as_tensor(np.asarray(data, dtype=np.float64))
            self.residuals: dict[tuple[int, ...], Tensor] = {}

        def __call__(self, X: int, Y: int, condition_set: Iterable[int] | None = None) -> float:
            """p of column X against column Y given the columns of ``condition_set``."""
            (first,), (second,), given, key = self.get_formatted_XYZ_and_cachekey(X, Y, condition_set)
            if key not in self.pvalue_cache:
                self.pvalue_cache[key] = self.test(first, second, given).pvalue
            return float(self.pvalue_cache[key])

        def test(self, first: int, second: int, given: list[int]) -> KernelTestResult:
            x, y = self.tensor[:, first], self.tensor[:, second]
            if not given or options.get("method", "residuals") != "residuals":
                return conditional_independence_test(x, y, self.tensor[:, given] if given else None, **options)
            own = {word: value for word, value in options.items() if word != "method"}
            return residual_test(self.residual(first, given), self.residual(second, given), **own)

        def residual(self, column: int, given: list[int]) -> Tensor:
            key = (column, *given)
            if key not in self.residuals:
                z = Encoding(self.tensor[:, given])(self.tensor[:, given])
                self.residuals[key] = residuals(self.tensor[:, [column]], z, generator_of(options.get("seed")))
            return self.residuals[key]

    register_ci_test(name, KernelEmbedTest)
    return name
