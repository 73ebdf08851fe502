r"""The kernels of a test: given by the user, or learned without labels.

By default a test uses the lengthscales at which the evidence has its maxima, and the median heuristic.

The evidence (13) of the pooled sample does not depend on which point came from which sample (or which x goes with which
y), so that a relabeling leaves the kernels unchanged and the test is exact without a held-out part of the data. The
evidence often has several maxima, and the highest need not be the scale at which samples differ, so all of them are
used. The median heuristic is included for data where it is the right scale.
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
from ..kernels import LebesgueMeasure, median_distance, set_lengthscales_by_median
from ..kernels.initialization import scan_span
from ..objectives.evidence import EmbeddingEvidence, prominent
from ..posteriors.posterior import KernelDraws
from .average_kernel import AverageKernel, average_over_batch
from .checks import Encoding, check_choice, check_real

Rule = Literal["evidence+median", "evidence", "best", "median", "split"]
"""How kernels are learned."""

MEDIAN_MULTIPLES = (0.5, 1.0, 4.0)
"""The first detects rings and changes of scale better than the median; the last, nearly linear over the data, detects
differences of means best."""
SPLIT_MULTIPLES = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
NUM_POINTS = 1000
"""Rows of the pooled sample in the evidence."""
NUM_LOCATIONS = 200
"""Rows at which the embedding of those is evaluated."""
SCAN_POINTS = 20
FINE_POINTS = 7
"""Around each maximum of the scan: lengthscales to a few percent are precise enough for a test."""
PROMINENCE = 6.0
"""The descent in nats that separates two maxima."""
BATCH_ENTRIES = 2**22
"""Kernel values of one batch."""
MEASURE = LebesgueMeasure(unit=True)
"""r(x, x) = 1, so that the maxima scale with the units of the data."""


@runtime_checkable
class HasKernelDraws(Protocol):
    """An object with weighted kernels: a posterior, or a class of your own.

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
    """The kernels of a test, none with a batch dimension.

    Attributes:
        kernels: the kernels.
        how: how they were chosen, for the summary.
        multiples: the multiple of the median distance that each is; ``None`` for maxima and given kernels.
    """

    kernels: tuple[Kernel, ...]
    how: str
    multiples: tuple[float | None, ...] = (None,)


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
        return [average_over_batch(kernel)]
    if isinstance(kernel, HasKernelDraws):
        return [AverageKernel(kernel.kernel_draws())]
    if isinstance(kernel, Sequence) and kernel and all(isinstance(one, Kernel) for one in kernel):
        return [average_over_batch(one) for one in kernel]
    raise TypeError(
        "kernel must be a gpytorch.kernels.Kernel, several of them, a posterior (anything with kernel_draws()), None, "
        f"or one of {get_args(Rule)}, not {type(kernel).__name__}."
    )


def kernels_by_rule(x: Tensor, rule: Rule, categorical: tuple[int, ...], generator: torch.Generator) -> Kernels:
    """The kernels that ``rule`` chooses for the pooled sample ``x`` (``(N, d)``, float64)."""
    # Rows in random order, so that a choice from some rows does not favor one sample.
    x = x[torch.randperm(x.shape[0], generator=generator)[:NUM_POINTS].to(x.device)]
    if rule == "median" and not categorical:
        kernel = set_lengthscales_by_median(RBFKernel().to(x), x).requires_grad_(False)
        return Kernels((kernel,), "median heuristic", (1.0,))
    encoding = Encoding(x, categorical)
    z = encoding(x)
    median = float(median_distance(z))

    def kernels(lengthscales: list[float]) -> tuple[Kernel, ...]:
        return tuple(encoding.kernel(lengthscale).requires_grad_(False) for lengthscale in lengthscales)

    if rule == "split":
        candidates = kernels([m * median for m in SPLIT_MULTIPLES])
        return Kernels(candidates, "candidates for a split", (None,) * len(candidates))
    num_real = len(encoding.real)
    maxima = evidence_lengthscales(z[:, :num_real]) if rule != "median" and num_real else []
    multiples: tuple[float, ...] = () if maxima and rule != "evidence+median" else (1.0,)
    # For one categorical column all lengthscales give the same test.
    if rule == "evidence+median" and (num_real or len(categorical) > 1):
        multiples = MEDIAN_MULTIPLES
    how = "median heuristic"
    if rule == "best" and num_real:
        maxima, how = maxima[:1], "highest evidence"
    elif maxima:
        how = "evidence" if len(maxima) == 1 else f"{len(maxima)} maxima of the evidence"
        how += " and the median" if multiples else ""
    return Kernels(kernels([*maxima, *(m * median for m in multiples)]), how, (*(None for _ in maxima), *multiples))


def evidence_lengthscales(z: Tensor) -> list[float]:
    """The lengthscales of all local maxima of the evidence of ``z`` (``(n, d)``), the highest first.

    There are none where the evidence does not exist (copies of one point, points on a grid at every scale).

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> centres = torch.tensor([-20.0, 20.0]).repeat(40).unsqueeze(-1)
        >>> x = centres + torch.randn(80, 1, generator=generator, dtype=torch.float64)
        >>> [round(lengthscale) for lengthscale in evidence_lengthscales(x)]
        [1, 29]
    """
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
        kernel.lengthscale = torch.as_tensor(part).to(z).reshape(-1, 1, 1)
        embedding = BayesianMeanEmbedding(kernel, noise=0.1, measure=MEASURE)
        with torch.no_grad():
            values.append(-EmbeddingEvidence(num_locations=t)(embedding, z).cpu().numpy())
    return np.concatenate(values)
