"""Approximations for kernels without explicit features, if the n × n matrix does not fit in memory.

=============================  =========================================================  ==========================
method                         what it does                                               cost
=============================  =========================================================  ==========================
:class:`RandomFeatures`        k ≈ zᵀz' with p random cosines and sines                   O(np²)
:class:`Nystrom`               k ≈ k(x, U) k(U, U)⁻¹ k(U, x') for s points U              O(ns²)
:class:`ConjugateGradients`    the exact kernel, and A V = Y by iteration                 O(n²) for each iteration
=============================  =========================================================  ==========================
"""

from __future__ import annotations

import copy
import dataclasses

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.utils.data import DataLoader

from ..embeddings import ConditionalEmbedding, ConditionedEmbedding, ConditionedMulticlass, MulticlassEmbedding
from ..embeddings.conditional import check_labels
from ..embeddings.representation import BLOCK_NUMBERS, by_rows
from ..kernels import explicit_features, gram, gram_diagonal
from ..kernels.approximations import nystrom_kernel, random_feature_kernel
from ..kernels.parameters import frozen
from ..learning.loss import as_pair
from ..linalg import FeatureSystem, IterativeSystem
from ..runtime import cpu_by_default
from ..validation import check_count, check_features, check_lengths
from .statistics import FeaturePredictor, FeatureStatistics


@dataclasses.dataclass(frozen=True)
class ApproximationError:
    """The error of an approximation, measured on a sample of rows (the probe).

    Attributes:
        kernel: ‖K̂ − K‖ / ‖K‖ in the Frobenius norm.
        regression: with features, the largest difference from exact predictions of one half by the other; with
            conjugate gradients, the largest entry of the residual AV − Y, which does not bound that of predictions.
        num_rows: rows of the probe.
        num_iterations: of conjugate gradients.

    Example:
        >>> ApproximationError(kernel=0.01, regression=0.003, num_rows=500).regression
        0.003
    """

    kernel: float
    regression: float
    num_rows: int
    num_iterations: int | None = None


@dataclasses.dataclass(frozen=True)
class RandomFeatures:
    """p = ``num_features`` random Fourier features, for stationary kernels and those built from them.

    Args:
        num_features: p, an even number.
        seed: of the frequencies.

    Example:
        >>> RandomFeatures(64)
        RandomFeatures(num_features=64, seed=0)
    """

    num_features: int = 512
    seed: int = 0

    def kernel(self, kernel: Kernel, x: Tensor) -> Kernel:
        """``kernel`` with p random features for each stationary part, on inputs with the columns of ``x``."""
        return random_feature_kernel(kernel, x.shape[-1], self.num_features, self.seed)


@dataclasses.dataclass(frozen=True)
class Nystrom:
    """s = ``num_points`` rows of the data, or ``points``, as inducing points; for any kernel.

    Args:
        num_points: s.
        seed: of the choice of rows.
        points: inducing points ``(s, d)`` in place of rows of the data.

    Example:
        >>> Nystrom(4, seed=1)
        Nystrom(num_points=4, seed=1, points=None)
    """

    num_points: int = 500
    seed: int = 0
    points: Tensor | None = None

    def kernel(self, kernel: Kernel, x: Tensor) -> Kernel:
        """k(x, U) k(U, U)⁻¹ k(U, x') with U the ``points``, or rows of ``x`` drawn with the seed."""
        points = x[random_rows(x, self.num_points, self.seed)] if self.points is None else self.points
        return nystrom_kernel(kernel, points.to(x))


@dataclasses.dataclass(frozen=True)
class ConjugateGradients:
    """The exact system by iteration, until ‖AV − Y‖ ≤ ``tolerance`` ‖Y‖; a Nyström system of s points speeds it up.

    Args:
        tolerance: where to stop.
        max_iterations: a limit.
        num_points: s.
        seed: of the choice of the s points.

    Example:
        >>> ConjugateGradients(num_points=20).tolerance
        1e-06
    """

    tolerance: float = 1e-6
    max_iterations: int = 1000
    num_points: int = 200
    seed: int = 0


@cpu_by_default()
def approximate(
    embedding: ConditionalEmbedding,
    x: Tensor | DataLoader[object],
    y: Tensor | None = None,
    *,
    method: RandomFeatures | Nystrom | ConjugateGradients,
    probe_size: int = 500,
) -> tuple[FeaturePredictor | ConditionedEmbedding, ApproximationError]:
    """Condition ``embedding`` on many rows by ``method``; the predictor, and its error on a probe.

    Args:
        embedding: a learned embedding with any kernel; it is not changed.
        x: inputs ``(n, d)``, or, for features, a loader of ``(x, y)``, whose first batch has inducing points and probe.
        y: targets, with a tensor ``x``.
        method: the approximation.
        probe_size: rows on which the error is measured.

    Raises:
        TypeError: if ``embedding`` or ``method`` is of another kind, or conjugate gradients are given a loader.
        ValueError: if the embedding has a batch shape, or targets are missing.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, embedding = torch.rand(2000, 2), ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), 2, 1e-3)
        >>> predictor, error = approximate(embedding, x, (x.sum(-1) > 1).long(), method=Nystrom(50))
        >>> error.regression < 0.01
        True
    """
    if not isinstance(method, RandomFeatures | Nystrom | ConjugateGradients):
        kind = type(method).__name__
        raise TypeError(f"Expected RandomFeatures(...), Nystrom(...) or ConjugateGradients(...), got {kind}.")
    check_count("seed", method.seed, 0, 2**63 - 1)
    embedding.check_single()
    first, targets = as_pair(next(iter(x)), next(embedding.parameters()))[:2] if isinstance(x, DataLoader) else (x, y)
    first = check_features(first)
    if targets is None:
        raise ValueError("Targets y are missing: pass x and y.")
    check_count("probe_size", probe_size)
    if isinstance(embedding, MulticlassEmbedding):
        targets = check_labels(first, targets, embedding.num_classes)
    targets = check_lengths(first, targets)
    with torch.no_grad():
        probe = random_rows(first, probe_size, method.seed + 1)
        if isinstance(method, ConjugateGradients):
            if isinstance(x, DataLoader):
                raise TypeError("ConjugateGradients needs tensors x and y, not a loader.")
            return _by_iteration(embedding, first, targets, method, probe)
        twin = copy.copy(embedding)  # shares its parameters, but not its kernel
        twin._modules = {**embedding._modules, "kernel": method.kernel(embedding.kernel, first)}
        half = -(-len(probe) // 2)
        test, train = probe[:half], probe[half:] if len(probe) > 1 else probe
        K = gram(embedding.kernel, first[test])
        relative = (gram(twin.kernel, first[test]) - K).norm() / K.norm()
        exact, near = (e.condition(first[train], targets[train]).mean(first[test]) for e in (embedding, twin))
        error = ApproximationError(relative.item(), (exact - near).abs().max().item(), len(probe))
        return accumulate(twin, x, y).condition(*() if isinstance(x, DataLoader) else (first, targets)), error


def _by_iteration(
    embedding: ConditionalEmbedding, x: Tensor, y: Tensor, method: ConjugateGradients, probe: Tensor
) -> tuple[ConditionedEmbedding, ApproximationError]:
    """By products with blocks of rows of K, preconditioned by a Nyström system of a few points."""
    twin = frozen(embedding)
    kernel, ridge = twin.kernel, x.shape[0] * twin.regularization.to(x)
    Z = explicit_features(nystrom_kernel(kernel, x[random_rows(x, method.num_points, method.seed)]), x)
    assert Z is not None  # Nyström's features are explicit
    system = IterativeSystem(
        lambda V: by_rows(lambda rows: gram(kernel, rows, x) @ V, x, max(1, BLOCK_NUMBERS // len(x))),
        gram_diagonal(kernel, x),
        ridge,
        FeatureSystem(Z, ridge),
        method.tolerance,
        method.max_iterations,
    )
    kind = ConditionedMulticlass if isinstance(twin, MulticlassEmbedding) else ConditionedEmbedding
    predictor = kind(twin, x, y, system)
    # P = Y − ηV, and K V = P at a solution: the difference is the residual K V + ηV − Y of these rows.
    residual = predictor.mean(x[probe]) - predictor.P[probe]
    return predictor, ApproximationError(0.0, residual.abs().max().item(), len(probe), system.num_iterations)


def random_rows(x: Tensor, num_points: int, seed: int) -> Tensor:
    """``num_points`` different row numbers of ``x``, or all where it has fewer rows."""
    generator = torch.Generator().manual_seed(int(seed))
    order = torch.randperm(len(x), generator=generator, device="cpu")
    return order[: check_count("num_points", num_points)].to(x.device)


def accumulate(
    embedding: ConditionalEmbedding, x: Tensor | DataLoader[object], y: Tensor | None = None
) -> FeatureStatistics:
    """The statistics of all rows of ``x`` and ``y``, or of one pass through a loader that yields ``(x, y)``.

    Args:
        embedding: an embedding whose kernel has explicit features.
        x: inputs, ``(n, d)``, or a loader.
        y: targets, with a tensor ``x``.

    Raises:
        ValueError: if ``y`` is missing.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> accumulate(ke.ConditionalEmbedding(gpytorch.kernels.LinearKernel()), torch.eye(2), torch.ones(2)).num_data
        2
    """
    statistics = FeatureStatistics(embedding)
    if not isinstance(x, DataLoader):
        if y is None:
            raise ValueError("Targets y are missing: pass x and y.")
        return statistics.update(x, y)
    like = next(embedding.parameters())
    for batch in x:
        rows, targets, _ = as_pair(batch, like)
        if targets is None:
            raise TypeError("The loader yields only x. It must yield pairs (x, y).")
        statistics.update(rows, targets)
    return statistics
