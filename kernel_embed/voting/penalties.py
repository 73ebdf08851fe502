"""The penalties Λ_k = λ r_k + β, and the complexities r_k of all kernels by one rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..validation import check_array, check_number
from . import complexity as bounds
from .families import Array, KernelFamily, Kernels, Points, degree

NAMES = ("trace", "dimension", "local", "monte_carlo")


class Complexities(NamedTuple):
    """r_k of every kernel, its rule, and its radius r, infinite except for local ones, which cover E[h²] ≤ r."""

    values: Array
    rules: list[str]
    radii: Array


def complexities(
    kernels: Kernels,
    x: ArrayLike,
    choice: str | ArrayLike = "trace",
    *,
    grams: Sequence[Array] | None = None,
    radius: float | None = None,
    num_draws: int = 500,
    seed: int | None = 0,
) -> Complexities:
    """r_k of every kernel on the points ``x``.

    Lemma 3 and the local bound hold for positive semidefinite kernels. If a Gram matrix shows that its kernel is not
    one, Massart's lemma replaces them, and ``rules`` says so. The local bound can exceed Lemma 3, which holds for all
    functions of the kernel: the smaller of the two is used.

    Args:
        kernels: GPyTorch kernels or callables; ``None`` for polynomials of degree 1 to 10.
        x: the sample.
        choice: ``"trace"``, ``"dimension"``, ``"local"`` or ``"monte_carlo"``, or one number per kernel.
        grams: the Gram matrices on ``x`` if they are already computed.
        radius: r of the local complexity; by default the fixed point of each kernel.
        num_draws: of the Monte Carlo estimate.
        seed: of its draws.

    Returns:
        The values r_k and the rule of each.

    Raises:
        ValueError: if the choice is neither a known name nor one number for each kernel.

    Example:
        >>> import numpy as np
        >>> from kernel_embed.voting import polynomial_kernels
        >>> kernels = [*polynomial_kernels([1]), lambda x, z: np.abs(x - z.T)]
        >>> complexities(kernels, np.array([[0.0], [1.0], [2.0]]), "trace").rules
        ['Lemma 3', 'Massart']
    """
    family = KernelFamily.of(kernels)
    if not isinstance(choice, str):
        return _by_rule(_check_values(np.asarray(choice, dtype=np.float64), len(family)), "given")
    if choice not in NAMES:
        raise ValueError(f"complexity must be one of {', '.join(NAMES)}, or one number per kernel, not {choice!r}.")
    points = family.points(x)
    grams = family.grams(points, points) if grams is None else grams
    if choice == "dimension":
        return _by_rule(_dimensions(family, grams, points), "Lemma 4")
    if choice == "monte_carlo":
        return _by_rule(np.array([bounds.monte_carlo(K, num_draws, seed).value for K in grams]), "Monte Carlo")
    values, rules, radii = zip(*(_by_spectrum(K, choice, radius) for K in grams), strict=True)
    return Complexities(np.array(values), list(rules), np.array(radii))


def _by_rule(values: Array, rule: str) -> Complexities:
    return Complexities(values, [rule] * len(values), np.full(len(values), np.inf))


def _check_values(values: Array, num_kernels: int) -> Array:
    if values.shape != (num_kernels,):
        raise ValueError(f"complexity must have {num_kernels} numbers, one per kernel; its shape is {values.shape}.")
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"Complexities must be finite and at least 0, not {values.tolist()}.")
    return values


def _dimensions(family: KernelFamily, grams: Sequence[Array], x: Points) -> Array:
    values = []
    for k, (kernel, K) in enumerate(zip(family.kernels, grams, strict=True)):
        power = degree(kernel)
        if power is None or x.ndim != 2:
            raise ValueError(
                f"complexity='dimension' (Lemma 4) is for polynomial kernels only; kernel {k} is {family.names()[k]}. "
                "Use 'trace', 'local' or 'monte_carlo', or give one number per kernel."
            )
        values.append(bounds.dimension_bound(K, x.shape[1], power))
    return np.array(values)


def _by_spectrum(K: Array, choice: str, radius: float | None) -> tuple[float, str, float]:
    """r_k by the trace or the eigenvalues of a Gram matrix, or by its columns if it is indefinite; rule and radius."""
    if not bounds.may_be_positive_semidefinite(K):
        return bounds.massart_bound(K), "Massart", np.inf
    trace = bounds.trace_bound(K)
    if choice == "trace":
        return trace, "Lemma 3", np.inf
    r = bounds.own_radius(K) if radius is None else radius
    local = bounds.local_bound(K, r)
    return (local, "local", r) if local < trace else (trace, "Lemma 3", np.inf)


def penalties(lam: float, beta: float, r: Array) -> Array:
    """Λ_k = λ r_k + β.

    Example:
        >>> import numpy as np
        >>> penalties(0.1, 0.01, np.array([1.0, 2.0])).tolist()
        [0.11, 0.21000000000000002]
    """
    for name, value in (("lam", lam), ("beta", beta)):
        if not 0.0 <= check_number(name, value) < np.inf:
            raise ValueError(f"{name} must be finite and at least 0, not {value}. The paper uses 1e-6 to 1.")
    return lam * check_array(r, "r") + beta
