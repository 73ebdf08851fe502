"""The conditional test inside causal-learn's PC algorithm; needs ``kernel-embed[causal]``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from .conditional import conditional_independence_test

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
        """p-values of pairs of columns given others, each computed once."""

        def __init__(self, data: Any, **kwargs: Any) -> None:
            super().__init__(data, **kwargs)
            self.check_cache_method_consistent(name, repr(sorted(options.items(), key=str)))
            self.assert_input_data_is_valid()
            self.tensor = torch.as_tensor(np.asarray(data, dtype=np.float64))

        def __call__(self, X: int, Y: int, condition_set: Iterable[int] | None = None) -> float:
            """p of column X against column Y given the columns of ``condition_set``."""
            first, second, given, key = self.get_formatted_XYZ_and_cachekey(X, Y, condition_set)
            if key not in self.pvalue_cache:
                z = self.tensor[:, given] if given else None
                result = conditional_independence_test(self.tensor[:, first], self.tensor[:, second], z, **options)
                self.pvalue_cache[key] = result.pvalue
            return float(self.pvalue_cache[key])

    register_ci_test(name, KernelEmbedTest)
    return name
