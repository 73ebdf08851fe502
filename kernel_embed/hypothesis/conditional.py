r"""Tests of conditional independence of x and y given z.

**Transforms**, the default: what is left of x and y when z is known, in functions with a mean of zero given z, compared
by permutations among neighbors in z (:mod:`.transform_test`).

**Residuals** (Flaxman et al.): regress x on z and y on z with Gaussian processes and test the residuals for
independence by HSIC. Whatever of x and y is a function of z plus noise independent of z is decided well; two noises
whose *variances* share a cause in z are not independent, and are found so.

**Kernel** (Zhang et al., 2011). With :math:`\ddot x = (x, z)`, :math:`R = \varepsilon (K_z + \varepsilon I)^{-1}`,
:math:`K = R K_{\ddot x} R` and :math:`L = R K_y R`,

.. math::  T = \tfrac1n \operatorname{tr} K L \;\to\; \tfrac1n \sum_l \lambda_l \chi^2_1 ,

λ the eigenvalues of :math:`K \circ L`, the Gram matrix of all products of a feature of one with a feature of the
other. Their sum, its trace, and the sum of their squares, its squared norm, need no decomposition.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import torch
from gpytorch.kernels import Kernel, RBFKernel
from numpy.typing import ArrayLike
from torch import Tensor

from ..kernels import gram, median_distance
from ..linalg import DenseSystem
from ..validation import check_memory
from .checks import (
    Categorical,
    as_tensor,
    categorical_columns,
    check_choice,
    check_gram,
    check_pairs,
    check_permutations,
    check_sample,
    generator_of,
)
from .conditioning_set import ConditioningSet
from .encoding import Encoding
from .independence import independence_test
from .kernel_choice import KernelChoice, choose_kernels
from .pvalues import by_gamma
from .residuals import residuals
from .result import KernelTestResult
from .smoothers import MEMORY_REMEDY
from .transform_test import transform_test

Method = Literal["transforms", "residuals", "kernel"]
RIDGE = 1e-3
"""ε of the kernel test, as of its authors."""


def conditional_independence_test(
    x: Tensor | ArrayLike,
    y: Tensor | ArrayLike,
    z: Tensor | ArrayLike | None = None,
    kernel: KernelChoice = None,
    num_permutations: int = 1000,
    seed: int | None = None,
    *,
    kernel_y: KernelChoice = None,
    method: Method | None = None,
    categorical: Categorical = None,
    categorical_y: Categorical = None,
    categorical_z: Categorical = None,
    progress: bool | None = None,
) -> KernelTestResult:
    """Whether ``x`` and ``y`` are independent given ``z``; without ``z``, :func:`independence_test`.

    No test of conditional independence has a level that holds for all distributions (Shah and Peters, 2020).
    ``kernel-embed reproduce test-level`` measures the level of every method for ten models. The default answers with a
    :class:`~kernel_embed.hypothesis.ConditionalTestResult`, which says how well z predicts x and y and whether what is
    left still depends on z, and warns in words where the level cannot be trusted.

    Args:
        x: n observations, ``(n, d)``, as a tensor, a NumPy array, a data frame of numbers or lists.
        y: what goes with each, ``(n, d')``.
        z: what is known of each, ``(n, p)``.
        kernel: of the residuals of x (of x and z together for the kernel test); as in :func:`two_sample_test`. The test
            by transforms has features of its own and takes none.
        num_permutations: B; draws of the null distribution for the kernel test.
        seed: of whatever is random.
        kernel_y: of the residuals of y, or of y.
        method: ``"transforms"``, the default where no kernel is given; ``"residuals"``, the default where one is, for
            Gaussian-process residuals and HSIC as in the paper; ``"kernel"`` for the kernel conditional test.
        categorical: columns of x that hold categories; by default all where x is integer or bool.
        categorical_y: those of y.
        categorical_z: those of z.
        progress: as in :func:`two_sample_test`, where residuals, or x and y without ``z``, are compared.

    Returns:
        p-value, statistic and, for the default method, diagnostics.

    Raises:
        TypeError: if a sample is not made of real numbers.
        ValueError: if the samples have different numbers of rows, fewer than four, or values that are not finite; if
            an option is unknown; or if ``method="transforms"`` is given a kernel.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> z, a, b = torch.randn(3, 200, 1, generator=generator)
        >>> x, y = z + 0.5 * a, z.square() + 0.5 * b
        >>> independence_test(x, y, seed=0).pvalue < 0.01, conditional_independence_test(x, y, z, seed=0).pvalue > 0.05
        (True, True)
    """
    if method is None:
        method = "transforms" if kernel is None and kernel_y is None else "residuals"
    check_choice(method, get_args(Method), "method")
    if method == "transforms" and not (kernel is None and kernel_y is None):
        raise ValueError(
            "Expected no kernel for method='transforms', which has features of its own, got one. "
            "Leave it out, or use method='residuals'."
        )
    check_permutations(num_permutations)
    if z is None:
        return independence_test(
            x,
            y,
            kernel,
            num_permutations,
            seed,
            kernel_y=kernel_y,
            categorical=categorical,
            categorical_y=categorical_y,
            progress=progress,
        )
    x, y, z = as_tensor(x, "x"), as_tensor(y, "y"), as_tensor(z, "z")
    columns = [
        categorical_columns([sample], which)
        for sample, which in ((x, categorical), (y, categorical_y), (z, categorical_z))
    ]
    x, y, z = (check_sample(sample, name, minimum=4) for sample, name in zip((x, y, z), "xyz", strict=True))
    check_pairs(x, y, z)
    y, z = y.to(x.device), z.to(x.device)
    generator = generator_of(seed)
    if method == "transforms":
        given = ConditioningSet(z, columns[2], generator)
        left = [given.variable(one, which, generator) for one, which in ((x, columns[0]), (y, columns[1]))]
        return transform_test(left[0], left[1], given, num_permutations, generator)
    # Categories become coordinates, so that a regression on them, or of them, is one of real numbers.
    points = [Encoding(sample, which)(sample) for sample, which in zip((x, y, z), columns, strict=True)]
    if method == "kernel":
        return _kernel_test(points[0], points[1], points[2], kernel, kernel_y, num_permutations, generator)
    rest_x, rest_y = (residuals(sample, points[2], generator) for sample in points[:2])
    inner = int(torch.randint(2**31, (), generator=generator))
    return residual_test(rest_x, rest_y, kernel, num_permutations, inner, kernel_y, progress)


def residual_test(
    rest_x: Tensor,
    rest_y: Tensor,
    kernel: KernelChoice = None,
    num_permutations: int = 1000,
    seed: int | None = None,
    kernel_y: KernelChoice = None,
    progress: bool | None = None,
) -> KernelTestResult:
    """The second half of the test by residuals, for those who have them."""
    answer = independence_test(rest_x, rest_y, kernel, num_permutations, seed, kernel_y=kernel_y, progress=progress)
    return dataclasses.replace(answer, test="conditional independence test (residuals)")


def _kernel_test(
    x: Tensor,
    y: Tensor,
    z: Tensor,
    kernel: KernelChoice,
    kernel_y: KernelChoice,
    num_draws: int,
    generator: torch.Generator,
) -> KernelTestResult:
    n = x.shape[0]
    check_memory(n, x, 1, MEMORY_REMEDY, matrices=7)
    together = torch.cat([x, 0.5 * z], dim=1)
    chosen = [
        choose_kernels(data, "best" if given is None else given, (), generator, name)
        for data, given, name in ((together, kernel, "x"), (y, kernel_y, "y"))
    ]
    if any(len(c.kernels) != 1 for c in chosen):
        raise ValueError(
            "Expected one kernel of each for method='kernel', got several. Use kernel='best', or residuals."
        )
    pair = chosen[0].kernels[0], chosen[1].kernels[0]
    Kz = _centred(_squared_exponential(z), z)
    # R = ε(K_z + εI)⁻¹
    R = RIDGE * DenseSystem(Kz, z.new_tensor(RIDGE)).solve(torch.eye(n, dtype=z.dtype, device=z.device))
    Kx, Ky = (R @ _centred(k, data) @ R for k, data in zip(pair, (together, y), strict=True))
    product = Kx * Ky
    # Σ λ_l = tr (K∘L), Σ λ_l² = ‖K∘L‖²
    mean, variance = product.diagonal().sum() / n, 2.0 * product.square().sum() / n**2
    verdict = by_gamma(product.sum() / n, mean, variance, num_draws, generator)
    return verdict.on((pair,), chosen[0].how, "conditional independence test (kernel)", (n,), KernelTestResult)


def _squared_exponential(z: Tensor) -> Kernel:
    kernel = RBFKernel().to(z).requires_grad_(False)
    kernel.lengthscale = median_distance(z)
    return kernel


def _centred(kernel: Kernel, x: Tensor) -> Tensor:
    """HKH."""
    K = check_gram(gram(kernel, x), kernel)
    K = K - K.mean(dim=0, keepdim=True)
    return K - K.mean(dim=1, keepdim=True)
