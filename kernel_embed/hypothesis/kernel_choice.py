r"""The kernels of a test: given by the user, or learned without labels; and averages of kernels.

The evidence (13) of the pooled sample does not depend on which point came from which sample (or which x goes with which
y), so that a relabeling leaves the kernels unchanged and the test is exact without a held-out part of the data. The
highest maximum of the evidence need not be the scale at which samples differ, so all of them are used.

All statistics are linear in the Gram matrix (HSIC in each of its two), so that over draws k_s with weights w_s

.. math::  \sum_s w_s T(k_s) = T(\bar k), \qquad \bar k = \sum_s w_s k_s :

a test averaged over a posterior is the test with the average kernel, and its null distribution is that of one kernel.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias, cast, get_args, runtime_checkable

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from numpy.typing import NDArray
from torch import Tensor

from ..embeddings.bayesian import BayesianMeanEmbedding
from ..kernels import LebesgueMeasure, gram, median_distance, set_lengthscales_by_median
from ..kernels.gram import cross_evaluation
from ..kernels.lengthscales import scan_span
from ..kernels.supremum import batch_rows
from ..objectives.evidence import EmbeddingEvidence, prominent
from ..posteriors.posterior import KernelDraws
from ..runtime import cpu_by_default
from .checks import Encoding, check_choice, check_real

Rule = Literal["evidence+median", "evidence", "best", "median", "split"]
"""Names of the rules for learning kernels."""

# The first detects rings and changes of scale better than the median; the last, nearly linear over the data, detects
# differences of means best.
MEDIAN_MULTIPLES = (0.5, 1.0, 4.0)
SPLIT_MULTIPLES = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
NUM_POINTS = 1000  # rows of the pooled sample in the evidence
NUM_LOCATIONS = 200  # rows at which the embedding of those is evaluated
SCAN_POINTS = 20
FINE_POINTS = 7  # around each maximum of the scan: lengthscales to a few percent are precise enough for a test
PROMINENCE = 6.0  # the descent in nats that separates two maxima
BATCH_ENTRIES = 2**22  # kernel values of one batch
MEASURE = LebesgueMeasure(unit=True)  # r(x, x) = 1, so that the maxima scale with the units of the data
BLOCK_ENTRIES = 2**24  # kernel values of all draws in memory at once
ROUNDING = 1e-6  # the error of a sum of weights in single precision


@runtime_checkable
class HasKernelDraws(Protocol):
    """An object with weighted kernels, such as a posterior or a class of your own.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> class TwoKernels:
        ...     def kernel_draws(self):
        ...         kernels = gpytorch.kernels.RBFKernel(), gpytorch.kernels.MaternKernel()
        ...         return ke.posteriors.KernelDraws(kernels, (torch.tensor([0.7]), torch.tensor([0.3])))
        >>> x, y = torch.randn(2, 20, 1)
        >>> ke.two_sample_test(x, y + 3.0, kernel=TwoKernels(), num_permutations=99, seed=0).pvalue
        0.01
    """

    def kernel_draws(self) -> KernelDraws:
        """The kernels and their weights."""
        ...


KernelChoice: TypeAlias = Rule | Kernel | Sequence[Kernel] | HasKernelDraws | None
"""``None``, a rule by name, a kernel (a batch of kernels is averaged), several kernels, or a posterior."""


class Kernels(NamedTuple):
    """The kernels of a test, none with a batch dimension."""

    kernels: tuple[Kernel, ...]
    how: str  # how they were chosen
    multiples: tuple[float | None, ...] = (None,)  # of the median distance; None for maxima and given kernels


def choose_kernels(
    x: Tensor, kernel: KernelChoice, categorical: tuple[int, ...], generator: torch.Generator, name: str = "x"
) -> Kernels:
    """The kernels for the pooled sample ``x`` (``(N, d)``, float64)."""
    if kernel is None or isinstance(kernel, str):
        rule = kernel or "evidence+median"
        check_choice(rule, get_args(Rule), "kernel")
        return kernels_by_rule(x, cast(Rule, rule), categorical, generator)
    kernels = unbatched_kernels(kernel)
    for one in kernels:
        check_real(one, categorical, name)
    # A copy in float64, so that the caller's kernel does not change.
    kernels = [copy.deepcopy(one).to(dtype=torch.float64, device=x.device).requires_grad_(False) for one in kernels]
    how = "given" if len(kernels) == 1 else f"{len(kernels)} given"
    if len(kernels) == 1 and isinstance(kernels[0], AverageKernel):
        how = f"average of {len(kernels[0].weights)} draws"
    return Kernels(tuple(kernels), how, (None,) * len(kernels))


def unbatched_kernels(kernel: Kernel | Sequence[Kernel] | HasKernelDraws) -> list[Kernel]:
    """The given kernels without batch dimensions: batches and posteriors become averages."""
    if isinstance(kernel, Kernel):
        kernel = [kernel]
    if isinstance(kernel, HasKernelDraws):
        return [AverageKernel(kernel.kernel_draws())]
    if isinstance(kernel, Sequence) and kernel and all(isinstance(one, Kernel) for one in kernel):
        return [AverageKernel(draws_of(one)) if one.batch_shape else one for one in kernel]
    raise TypeError(
        "kernel must be a gpytorch.kernels.Kernel, several of them, a posterior (anything with kernel_draws()), None, "
        f"or one of {get_args(Rule)}, not {type(kernel).__name__}."
    )


def kernels_by_rule(x: Tensor, rule: Rule, categorical: tuple[int, ...], generator: torch.Generator) -> Kernels:
    """The kernels that ``rule`` chooses for the pooled sample ``x`` (``(N, d)``, float64)."""
    # Rows in random order, so that a choice from some rows does not favor one sample.
    x = x[torch.randperm(x.shape[0], generator=generator, device="cpu")[:NUM_POINTS].to(x.device)]
    if rule == "median" and not categorical:
        kernel = set_lengthscales_by_median(RBFKernel().to(x), x).requires_grad_(False)
        return Kernels((kernel,), "median heuristic", (1.0,))
    encoding = Encoding(x, categorical)
    z = encoding(x)
    median, num_real = float(median_distance(z)), len(encoding.real)
    if rule == "split":
        kernels = tuple(encoding.kernel(multiple * median).requires_grad_(False) for multiple in SPLIT_MULTIPLES)
        return Kernels(kernels, "candidates for a split", (None,) * len(kernels))
    maxima = evidence_lengthscales(z[:, :num_real]) if rule != "median" and num_real else []
    if rule == "best":
        maxima = maxima[:1]
    multiples: tuple[float, ...] = () if maxima else (1.0,)
    # For one categorical column all lengthscales give the same test.
    if rule == "evidence+median" and (num_real or len(categorical) > 1):
        multiples = MEDIAN_MULTIPLES
    how = "median heuristic"
    if maxima:
        how = "evidence" if len(maxima) == 1 else f"{len(maxima)} maxima of the evidence"
        how = "highest evidence" if rule == "best" else how + " and the median" * bool(multiples)
    lengthscales = [*maxima, *(multiple * median for multiple in multiples)]
    kernels = tuple(encoding.kernel(lengthscale).requires_grad_(False) for lengthscale in lengthscales)
    return Kernels(kernels, how, (*(None for _ in maxima), *multiples))


def evidence_lengthscales(z: Tensor) -> list[float]:
    """The lengthscales of all local maxima of the evidence of ``z``, the highest first; none if it has no value."""
    with warnings.catch_warnings():
        # A few points without a gradient do not move the maxima.
        warnings.simplefilter("ignore", NumericalWarning)
        try:
            grid = np.geomspace(*scan_span(z), SCAN_POINTS)
            peaks = prominent(log_evidence(z, grid).tolist(), PROMINENCE)
            if not peaks:
                return []
            fine = [np.geomspace(grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)], FINE_POINTS) for i in peaks]
            values = log_evidence(z, np.concatenate(fine)).reshape(len(peaks), -1)
        except (NanError, NotPSDError):
            return []
    maxima = [(float(row.max()), float(scales[int(row.argmax())])) for row, scales in zip(values, fine, strict=True)]
    return [lengthscale for _, lengthscale in sorted(maxima, reverse=True)]


def log_evidence(z: Tensor, lengthscales: NDArray[np.float64]) -> NDArray[np.float64]:
    """The log evidence (13) at each lengthscale, in batches of kernels."""
    t = min(NUM_LOCATIONS, z.shape[0])
    values = []
    for part in np.array_split(lengthscales, -(-len(lengthscales) * t * z.shape[0] // BATCH_ENTRIES)):
        kernel = RBFKernel(batch_shape=torch.Size([len(part)])).to(z)
        kernel.lengthscale = z.new_tensor(part).reshape(-1, 1, 1)
        embedding = BayesianMeanEmbedding(kernel, noise=0.1, measure=MEASURE)
        with torch.no_grad():
            values.append(-EmbeddingEvidence(num_locations=t)(embedding, z).cpu().numpy())
    return np.concatenate(values)


class AverageKernel(Kernel):
    """k̄ = Σ_s w_s k_s as a GPyTorch kernel without a batch dimension, for inputs ``(n, d)``."""

    weights: Tensor

    @cpu_by_default()
    def __init__(self, draws: KernelDraws) -> None:
        super().__init__()
        kernels, weights = draws
        if not kernels or not all(isinstance(kernel, Kernel) for kernel in kernels):
            types = [type(kernel).__name__ for kernel in kernels]
            raise TypeError(f"kernel_draws() must return gpytorch kernels, not {types}.")
        self.counts = [w.numel() for w in weights]
        counts = [torch.Size(kernel.batch_shape).numel() for kernel in kernels]
        if counts != self.counts:
            problem = f"the kernels have {counts} draws, the weights {self.counts} entries"
            raise ValueError(f"kernel_draws() must return one weight for each draw: {problem}.")
        flat = torch.cat([w.detach().double().flatten() for w in weights])
        total, least = float(flat.sum()), float(flat.min())
        if not least >= 0 or not abs(total - 1.0) <= ROUNDING:
            problem = f"they sum to {total:g}, and the smallest is {least:g}"
            raise ValueError(f"The weights of kernel draws must be nonnegative and sum to 1; {problem}.")
        self.kernels = torch.nn.ModuleList(kernels)
        self.register_buffer("weights", flat)

    @property
    def batch_shape(self) -> torch.Size:
        """Empty: the draws are averaged."""
        return torch.Size()

    @batch_shape.setter
    def batch_shape(self, value: torch.Size) -> None:
        """Ignored: GPyTorch sets it in its constructor."""

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: object
    ) -> Tensor:
        """k̄ between rows."""
        if last_dim_is_batch or x1.dim() > 2 or x2.dim() > 2:
            raise RuntimeError(f"AverageKernel takes inputs (n, d), not {tuple(x1.shape)} and {tuple(x2.shape)}.")
        parts = [_average(kernel, w.to(x1), x1, x2, diag) for kernel, w in zip(*draws_of(self), strict=True)]
        return torch.stack(parts).sum(0)


def _average(kernel: Kernel, weights: Tensor, x1: Tensor, x2: Tensor, diag: bool) -> Tensor:
    """Σ_s w_s K_s; a kernel whose values have no batch dimension has the same values for all draws."""

    def average(K: Tensor) -> Tensor:
        K = K.reshape(-1, *(K.shape[-1:] if diag else K.shape[-2:]))
        return torch.tensordot(weights, K.expand(len(weights), *K.shape[1:]), dims=1)  # type: ignore[no-any-return]

    if diag:
        with cross_evaluation(kernel):
            return average(kernel(batch_rows(kernel, x1), batch_rows(kernel, x2), diag=True))
    rows = max(1, BLOCK_ENTRIES // (len(weights) * len(x2)))
    if len(x1) <= rows and x1.shape == x2.shape and torch.equal(x1, x2):
        return average(gram(kernel, x1))
    return torch.cat([average(gram(kernel, block, x2)) for block in x1.split(rows)])


def draws_of(kernel: Kernel) -> KernelDraws:
    """The draws of an average; those of another kernel, one or a batch, have equal weights."""
    if isinstance(kernel, AverageKernel):
        return KernelDraws(tuple(kernel.kernels), kernel.weights.split(kernel.counts))
    count = torch.Size(kernel.batch_shape).numel()
    return KernelDraws((kernel,), (torch.full((count,), 1.0 / count, dtype=torch.float64),))
