"""scikit-learn's ``random_state`` as the seeds of this package."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ..validation import check_seed

RandomState: TypeAlias = int | np.random.RandomState | None
"""What scikit-learn accepts as ``random_state``."""


def seed_of(random_state: RandomState) -> int | None:
    """An integer seed, drawn from a generator; ``None`` stays ``None``.

    Example:
        >>> import numpy as np
        >>> seed_of(3), seed_of(None), seed_of(np.random.RandomState(0)) == seed_of(np.random.RandomState(0))
        (3, None, True)
    """
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    check_seed(random_state)
    return None if random_state is None else int(random_state)
