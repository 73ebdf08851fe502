r"""Tests of conditional independence of x and y given z.

**Transforms**, the default: features of x and y with mean zero given z, compared by permutations among neighbors in z
(:mod:`.transform_test`).

**Residuals** (Flaxman et al.): the residuals of Gaussian-process regressions of x and y on z are tested for
independence by HSIC. The posterior mean is the conditional embedding of eq. (2), its kernel learned by the evidence:

.. math::  r = x - K_z A^{-1} x = n\lambda A^{-1} x, \qquad A = K_z + n\lambda I .

**Kernel** (Zhang et al., 2011). With :math:`\ddot x = (x, z)`, :math:`R = \varepsilon (K_z + \varepsilon I)^{-1}`,
:math:`K = R K_{\ddot x} R` and :math:`L = R K_y R`,

.. math::  T = \tfrac1n \operatorname{tr} K L \;\to\; \tfrac1n \sum_l \lambda_l \chi^2_1 ,

λ the eigenvalues of :math:`K \circ L`. Their sum, its trace, and the sum of their squares, its squared norm, need no
decomposition.
"""

from __future__ import annotations

import dataclasses
import warnings
from typing import Literal, get_args

import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from linear_operator.utils.warnings import NumericalWarning
from numpy.typing import ArrayLike
from torch import Tensor

from ..embeddings import ConditionalEmbedding
from ..kernels import log_scaled, median_distance
from ..learning import fit
from ..linalg import DenseSystem
from ..objectives import ConditionalEvidence
from ..runtime import cpu_by_default
from ..validation import check_count, check_memory, generator_of
from .checks import Categorical, Encoding, check_choice, check_pairs, finite_gram, read_samples
from .conditioning_set import ConditioningSet
from .independence import independence_test
from .kernel_choice import KernelChoice, choose_kernels
from .result import KernelTestResult, by_gamma
from .smoothers import MEMORY_REMEDY
from .transform_test import ConditionalTestResult, transform_test

Method = Literal["transforms", "residuals", "kernel"]
MAX_ROWS = 300  # from which the kernel of a regression is learned; the regression itself uses all
MAX_EVALUATIONS = 30
RIDGE = 1e-3  # ε of the kernel test, as in the paper


@cpu_by_default()
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
    """Test whether ``x`` and ``y`` are independent given ``z``; without ``z``, :func:`independence_test`.

    No test of conditional independence has a level that holds for all distributions (Shah and Peters, 2020). The
    default method returns a :class:`~kernel_embed.hypothesis.ConditionalTestResult` with diagnostics, and warns where
    the level may not hold.

    Args:
        x: n observations, ``(n, d)``, as a tensor, a NumPy array, a data frame of numbers or lists.
        y: the second variable of each observation, ``(n, d')``.
        z: the conditioning variables, ``(n, p)``.
        kernel: of the residuals of x (of x and z together for the kernel test); as in :func:`two_sample_test`. The test
            by transforms has its own features and takes no kernel.
        num_permutations: B; for the kernel test the number of draws from the null distribution.
        seed: of all random numbers.
        kernel_y: of the residuals of y, or of y.
        method: ``"transforms"``, the default without a kernel; ``"residuals"``, the default with one, for
            Gaussian-process residuals and HSIC as in the paper; ``"kernel"`` for the kernel conditional test.
        categorical: the categorical columns of x; by default all where x is integer or bool.
        categorical_y: those of y.
        categorical_z: those of z.
        progress: as in :func:`two_sample_test`, for ``method="residuals"`` and without ``z``.

    Raises:
        TypeError: if a sample is not made of real numbers.
        ValueError: if the samples have different numbers of rows, fewer than four, or values that are not finite; if
            an option is unknown; or if ``method="transforms"`` is combined with a kernel.

    Example:
        >>> z, a, b = torch.randn(3, 200, 1, generator=torch.Generator().manual_seed(0))
        >>> x, y = z + 0.5 * a, z.square() + 0.5 * b
        >>> independence_test(x, y, seed=0).pvalue < 0.01, conditional_independence_test(x, y, z, seed=0).pvalue > 0.05
        (True, True)
    """
    no_kernel = kernel is None and kernel_y is None
    method = method or ("transforms" if no_kernel else "residuals")
    check_choice(method, get_args(Method), "method")
    if method == "transforms" and not no_kernel:
        raise ValueError("method='transforms' takes no kernel. Omit the kernel, or use method='residuals'.")
    check_count("num_permutations", num_permutations)
    if z is None:
        return independence_test(
            x, y, kernel, num_permutations, seed, kernel_y=kernel_y, categorical=categorical,
            categorical_y=categorical_y, progress=progress,
        )  # fmt: skip
    (x,), columns_x = read_samples({"x": x}, categorical, minimum=4)
    (y,), columns_y = read_samples({"y": y}, categorical_y, minimum=4)
    (z,), columns_z = read_samples({"z": z}, categorical_z, minimum=4)
    check_pairs(x=x, y=y, z=z)
    y, z = y.to(x.device), z.to(x.device)
    generator = generator_of(seed)
    if method == "transforms":
        conditioning = ConditioningSet(z, columns_z, generator)
        features_x = conditioning.features_of(x, columns_x, generator)
        features_y = conditioning.features_of(y, columns_y, generator)
        return transform_test(features_x, features_y, conditioning, num_permutations, generator)
    # Categories become coordinates, so that regressions are on real numbers.
    a, b, c = (Encoding(data, which)(data) for data, which in ((x, columns_x), (y, columns_y), (z, columns_z)))
    if method == "kernel":
        return _kernel_test(a, b, c, kernel, kernel_y, num_permutations, generator)
    x, y = residuals(a, c, generator), residuals(b, c, generator)
    inner = int(torch.randint(2**31, (), generator=generator, device="cpu"))
    result = independence_test(x, y, kernel, num_permutations, inner, kernel_y=kernel_y, progress=progress)
    return dataclasses.replace(result, test="conditional independence test (residuals)")


@cpu_by_default()
def conditional_two_sample_test(
    x: Tensor | ArrayLike,
    y: Tensor | ArrayLike,
    other_x: Tensor | ArrayLike,
    other_y: Tensor | ArrayLike,
    num_permutations: int = 1000,
    seed: int | None = None,
    *,
    categorical: Categorical = None,
    categorical_y: Categorical = None,
) -> ConditionalTestResult:
    """Test whether P(y | x) is the same in two samples: concept shift as opposed to covariate shift.

    With s the sample that a row comes from, P(y | x) is the same in both if and only if y and s are independent given
    x, which is tested by transforms. There is no power where the two x have no values in common.

    Args:
        x: n rows of the first sample, ``(n, p)``.
        y: their targets, ``(n, d)``.
        other_x: m rows of the second sample, ``(m, p)``.
        other_y: their targets, ``(m, d)``.
        num_permutations: B, the number of permutations among neighbors in x.
        seed: of the permutations.
        categorical: the categorical columns of x; by default all where both x are integer or bool.
        categorical_y: those of y.

    Raises:
        TypeError: if a sample is not made of numbers.
        ValueError: if x and y have different numbers of rows, the two samples different columns, or
            ``num_permutations`` is below 1.

    Example:
        >>> x, e, other_x, f = torch.randn(4, 100, 1, generator=torch.Generator().manual_seed(0))
        >>> y, other_y = x + 0.3 * e, 0.5 * other_x + 0.3 * f
        >>> conditional_two_sample_test(x, y, other_x, other_y, seed=0).pvalue < 0.01
        True
    """
    check_count("num_permutations", num_permutations)
    inputs, columns_x = read_samples({"x": x, "other_x": other_x}, categorical)
    targets, columns_y = read_samples({"y": y, "other_y": other_y}, categorical_y)
    check_pairs(x=inputs[0], y=targets[0])
    check_pairs(other_x=inputs[1], other_y=targets[1])
    generator = generator_of(seed)
    sizes = tuple(map(len, inputs))
    conditioning = ConditioningSet(torch.cat(inputs), columns_x, generator)
    sample = torch.cat([inputs[0].new_full((size, 1), float(k)) for k, size in enumerate(sizes)])
    features_y = conditioning.features_of(torch.cat(targets), columns_y, generator)
    features_s = conditioning.features_of(sample, (0,), generator)
    result = transform_test(features_y, features_s, conditioning, num_permutations, generator)
    diagnostics = dict(zip(("y", "sample"), result.diagnostics.values(), strict=True))
    return dataclasses.replace(result, test="conditional two-sample test", sizes=sizes, diagnostics=diagnostics)


def residuals(x: Tensor, z: Tensor, generator: torch.Generator) -> Tensor:
    """Each standardized column of ``x`` (``(n, d)``) minus its regression on the points ``z`` (``(n, p)``)."""
    deviation = x.std(dim=0, keepdim=True)
    x = (x - x.mean(dim=0, keepdim=True)) / torch.where(deviation > 0, deviation, 1.0)
    rows = torch.randperm(len(x), generator=generator, device="cpu")[:MAX_ROWS].to(x.device)
    kernel = ScaleKernel(RBFKernel(lengthscale_constraint=log_scaled()), outputscale_constraint=log_scaled()).to(x)
    kernel.base_kernel.lengthscale = median_distance(z[rows])
    kernel.outputscale = kernel.raw_outputscale.new_tensor(0.5)
    embedding = ConditionalEmbedding(kernel, regularization=0.5 / len(rows))
    embedding.to(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        fit(embedding, ConditionalEvidence(), z[rows], x[rows], max_evaluations=MAX_EVALUATIONS, progress=False)
        # The noise of the process is nλ, the same number for any n.
        embedding.regularization = embedding.regularization.detach() * len(rows) / len(x)
        with torch.no_grad():
            conditioned = embedding.condition(z, x)
            return conditioned.Y - conditioned.P


def _kernel_test(
    x: Tensor, y: Tensor, z: Tensor, kernel: KernelChoice, kernel_y: KernelChoice, num_draws: int,
    generator: torch.Generator,
) -> KernelTestResult:  # fmt: skip
    n = len(x)
    check_memory(n, x, 1, MEMORY_REMEDY, matrices=7)
    xz = torch.cat([x, 0.5 * z], dim=1)
    kernels_x = choose_kernels(xz, "best" if kernel is None else kernel, (), generator)
    kernels_y = choose_kernels(y, "best" if kernel_y is None else kernel_y, (), generator, "y")
    if len(kernels_x.kernels) > 1 or len(kernels_y.kernels) > 1:
        raise ValueError("method='kernel' takes one kernel for x and one for y. Use kernel='best', or residuals.")
    pair = kernels_x.kernels[0], kernels_y.kernels[0]
    kernel_z = RBFKernel().to(z).requires_grad_(False)
    kernel_z.lengthscale = median_distance(z)
    # R = ε(K_z + εI)⁻¹
    system = DenseSystem(_centred(kernel_z, z), z.new_tensor(RIDGE))
    R = RIDGE * system.solve(torch.eye(n, dtype=z.dtype, device=z.device))
    product = (R @ _centred(pair[0], xz) @ R) * (R @ _centred(pair[1], y) @ R)
    # Σ λ_l = tr (K∘L), Σ λ_l² = ‖K∘L‖²
    mean, variance = product.diagonal().sum() / n, 2.0 * product.square().sum() / n**2
    decision = by_gamma(product.sum() / n, mean, variance, num_draws, generator)
    name = "conditional independence test (kernel)"
    return decision.result(KernelTestResult, name, (pair,), kernels_x.how, sizes=(n,))


def _centred(kernel: Kernel, x: Tensor) -> Tensor:
    """HKH."""
    K = finite_gram(kernel, x)
    K = K - K.mean(dim=0, keepdim=True)
    return K - K.mean(dim=1, keepdim=True)
