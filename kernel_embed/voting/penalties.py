"""Which complexity the penalties Λ_k = λ r_k + β are made of: the caller's choice, applied to every kernel."""

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
    """r_k of every kernel, by which rule each was found, and the radius r of local ones, infinite for the others.

    A local r_k counts only functions with E[h²] ≤ r.
    """

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

    Lemma 3 and the local bound hold for positive semidefinite kernels. Where a Gram shows that its kernel is not one,
    Massart's lemma takes their place, and ``rules`` says so. The local bound can exceed Lemma 3, which holds for all
    functions of the kernel: the lesser of the two is taken.

    Args:
        kernels: GPyTorch kernels or callables; ``None`` for polynomials of degree 1 to 10.
        x: the sample.
        choice: ``"trace"``, ``"dimension"``, ``"local"`` or ``"monte_carlo"``, or one number per kernel.
        grams: the Grams on ``x``, where they are known.
        radius: r of the local complexity; ``None`` takes each kernel's own.
        num_draws: of the Monte Carlo estimate.
        seed: of its draws.

    Returns:
        The values r_k, and the rule by which each was found.

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
        return _given(np.asarray(choice, dtype=np.float64), len(family))
    if choice not in NAMES:
        raise ValueError(
            f"Expected complexity to be one of {', '.join(NAMES)} or one number per kernel, got {choice!r}. "
            "Choose one of these."
        )
    points = family.points(x)
    grams = family.grams(points, points) if grams is None else grams
    if choice == "dimension":
        return _everywhere(_dimensions(family, grams, points), "Lemma 4")
    if choice == "monte_carlo":
        values = [bounds.monte_carlo(K, num_draws, seed).value for K in grams]
        return _everywhere(np.array(values), "Monte Carlo")
    found = [_by_spectrum(K, choice, radius) for K in grams]
    return Complexities(
        np.array([value for value, _, _ in found]), [rule for _, rule, _ in found], np.array([r for _, _, r in found])
    )


def _everywhere(values: Array, rule: str) -> Complexities:
    """Complexities by one rule, of all functions."""
    return Complexities(values, [rule] * len(values), np.full(len(values), np.inf))


def _given(values: Array, num_kernels: int) -> Complexities:
    if values.shape != (num_kernels,):
        raise ValueError(
            f"Expected one complexity per kernel, {num_kernels} in all, got an array of shape {values.shape}. "
            "Give a vector as long as the list of kernels."
        )
    if not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"Expected finite complexities ≥ 0, got {values.tolist()}. Give other values.")
    return _everywhere(values, "given")


def _dimensions(family: KernelFamily, grams: Sequence[Array], x: Points) -> Array:
    values = []
    for k, (kernel, K) in enumerate(zip(family.kernels, grams, strict=True)):
        power = degree(kernel)
        if power is None or x.ndim != 2:
            raise ValueError(
                f"Expected polynomial kernels for complexity='dimension' (Lemma 4), got {family.names()[k]} as kernel "
                f"{k}. Use 'trace', 'local' or 'monte_carlo', or give one number per kernel."
            )
        values.append(bounds.dimension_bound(K, x.shape[1], power))
    return np.array(values)


def _by_spectrum(K: Array, choice: str, radius: float | None) -> tuple[float, str, float]:
    """r_k by the trace or the eigenvalues of a Gram, or by its columns where those do not bound it; rule and radius."""
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
            raise ValueError(f"Expected {name} ≥ 0 and finite, got {value}. The grid of the paper is 1e-6 to 1.")
    return lam * check_array(r, "r") + beta
