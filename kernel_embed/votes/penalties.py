"""Which complexity the penalties Λ_k = λ r_k + β are made of: the caller's choice, applied to every kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from . import complexity as bounds
from .families import Array, KernelFamily, degree

NAMES = ("trace", "dimension", "local", "monte_carlo")


class Complexities(NamedTuple):
    """r_k of every kernel, and by which rule each was found."""

    values: Array
    rules: list[str]


def complexities(
    family: KernelFamily,
    grams: Sequence[Array],
    num_features: int | None,
    choice: str | ArrayLike = "trace",
    *,
    radius: float | None = None,
    num_draws: int = 500,
    seed: int | None = 0,
) -> Complexities:
    """r_k by ``choice``: a name of :data:`NAMES`, or one number per kernel.

    Lemma 3 and the local bound hold for positive semidefinite kernels. Where a Gram shows that its kernel is not one,
    Massart's lemma takes their place, and ``rules`` says so.

    Example:
        >>> import numpy as np
        >>> from kernel_embed.votes import KernelFamily, polynomial_kernels
        >>> x = np.array([[0.0], [1.0], [2.0]])
        >>> family = KernelFamily([*polynomial_kernels([1]), lambda x, z: np.abs(x - z.T)])
        >>> complexities(family, family.grams(x, x), 1, "trace").rules
        ['Lemma 3', 'Massart']
    """
    if isinstance(choice, str):
        if choice not in NAMES:
            raise ValueError(
                f"Expected complexity to be one of {', '.join(NAMES)} or one number per kernel, got {choice!r}."
            )
        found = [
            _one(family, k, K, num_features, choice, radius=radius, num_draws=num_draws, seed=seed)
            for k, K in enumerate(grams)
        ]
        return Complexities(np.array([value for value, _ in found]), [rule for _, rule in found])
    values = np.asarray(choice, dtype=np.float64)
    if values.shape != (len(family),):
        raise ValueError(
            f"Expected one complexity per kernel, {len(family)} in all, got an array of shape {values.shape}."
        )
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"Expected finite complexities ≥ 0, got {values.tolist()}.")
    return Complexities(values, ["given"] * len(family))


def _one(
    family: KernelFamily,
    k: int,
    K: Array,
    num_features: int | None,
    choice: str,
    *,
    radius: float | None,
    num_draws: int,
    seed: int | None,
) -> tuple[float, str]:
    if choice == "dimension":
        power = degree(family.kernels[k])
        if power is None or num_features is None:
            raise ValueError(
                f"Expected polynomial kernels for complexity='dimension' (Lemma 4), got {family.names()[k]} as kernel "
                f"{k}. Use 'trace', 'local' or 'monte_carlo', or give one number per kernel."
            )
        return bounds.dimension_bound(K, num_features, power), "Lemma 4"
    if choice == "monte_carlo":
        return bounds.monte_carlo(K, num_draws, seed).value, "Monte Carlo"
    if not bounds.may_be_positive_semidefinite(K):
        return bounds.massart_bound(K), "Massart"
    if choice == "trace":
        return bounds.trace_bound(K), "Lemma 3"
    return bounds.local_bound(K, radius), "local"


def penalties(lam: float, beta: float, r: Array) -> Array:
    """Λ_k = λ r_k + β.

    Example:
        >>> import numpy as np
        >>> penalties(0.1, 0.01, np.array([1.0, 2.0])).tolist()
        [0.11, 0.21000000000000002]
    """
    for name, value in (("lam", lam), ("beta", beta)):
        if not (np.isfinite(value) and value >= 0):
            raise ValueError(f"Expected {name} ≥ 0 and finite, got {value}.")
    return lam * r + beta
