r"""What a user may say of the kernel of a test, and the kernels that follow from it.

By default those at which the evidence has its maxima, and the median heuristic.

The evidence (13) of the pooled sample does not know which point came from which sample (or which x goes with which y),
so that a relabeling leaves the kernels what they are and the test stays exact: no part of the data is set aside. It
often has several maxima, and the highest need not be the scale at which samples differ; all of them take part. The
median heuristic takes part as well, since where it is the right scale nothing should be lost to it.
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
from ..kernels.median import scan_span
from ..objectives.embedding_evidence import EmbeddingEvidence, prominent
from ..posteriors.draws import KernelDraws
from .averaged import AverageKernel, average_of_batch
from .checks import check_choice, check_real
from .encoding import Encoding

Rule = Literal["evidence+median", "evidence", "best", "median", "split"]
"""How kernels are chosen where none is given."""

MEDIAN_MULTIPLES = (0.5, 1.0, 4.0)
"""The first sees a ring or a change of scale better than the median does; the last, nearly linear over the data, is the
best one where samples differ in their means."""
SPLIT_MULTIPLES = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
NUM_POINTS = 1000
"""Rows of the pooled sample that the evidence sees."""
NUM_LOCATIONS = 200
"""Rows at which it is evaluated, against all of those."""
SCAN_POINTS = 20
FINE_POINTS = 7
"""Around each top of the scan: lengthscales to a few percent, which is all a test can tell."""
PROMINENCE = 6.0
"""Nats of descent between two maxima that count."""
BATCH_NUMBERS = 2**22
"""Kernel values of one batch."""
MEASURE = LebesgueMeasure(unit=True)
"""r(x, x) = 1, which makes the maxima move with the units of the data."""


@runtime_checkable
class HasKernelDraws(Protocol):
    """Whatever knows kernels and how likely they are: a posterior, or a user's own class.

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
"""``None``, a rule by name, a kernel (a batch of kernels: draws, averaged), several kernels, or a posterior."""


class Kernels(NamedTuple):
    """Kernels and how they were chosen; a posterior's draws are one kernel, their average.

    Attributes:
        kernels: the kernels, none with a batch dimension.
        how: in words.
        multiples: for each kernel the multiple of the median distance that it is, ``None`` for maxima and given ones.
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
        check_choice(rule, get_args(Rule), "kernel, where it is a name,")
        return kernels_by_rule(x, cast(Rule, rule), categorical, generator)
    given = given_kernels(kernel)
    for one in given:
        check_real(one, categorical, name)
    # A copy in float64, so that the caller's kernel stays what it is.
    kernels = tuple(copy.deepcopy(one).to(dtype=torch.float64, device=x.device).requires_grad_(False) for one in given)
    how = "given" if len(kernels) == 1 else f"{len(kernels)} given"
    if isinstance(kernels[0], AverageKernel) and len(kernels) == 1:
        how = f"average of {len(kernels[0].weights)} draws"
    return Kernels(kernels, how, (None,) * len(kernels))


def given_kernels(kernel: Kernel | Sequence[Kernel] | HasKernelDraws) -> list[Kernel]:
    """The kernels a user gave, none with a batch dimension: batches and posteriors are averages."""
    if isinstance(kernel, Kernel):
        return [average_of_batch(kernel)]
    if isinstance(kernel, HasKernelDraws):
        return [AverageKernel(kernel.kernel_draws())]
    if isinstance(kernel, Sequence) and kernel and all(isinstance(one, Kernel) for one in kernel):
        return [average_of_batch(one) for one in kernel]
    raise TypeError(
        "Expected a gpytorch.kernels.Kernel, several, a posterior (anything with kernel_draws()), None, or one of "
        f"{get_args(Rule)}; got {type(kernel).__name__}. "
        "Pass kernel=None for the default."
    )


def kernels_by_rule(x: Tensor, rule: Rule, categorical: tuple[int, ...], generator: torch.Generator) -> Kernels:
    """The kernels that ``rule`` chooses for the pooled sample ``x`` (``(N, d)``, float64)."""
    # Rows in a random order: a choice that looks at some rows must not look at one sample's more than another's.
    x = x[torch.randperm(x.shape[0], generator=generator)[:NUM_POINTS].to(x.device)]
    if rule == "median" and not categorical:
        return Kernels(
            (set_lengthscales_by_median(RBFKernel().to(x), x).requires_grad_(False),), "median heuristic", (1.0,)
        )
    encoding = Encoding(x, categorical)
    z = encoding(x)
    median = float(median_distance(z))
    if rule == "split":
        candidates = _kernels(encoding, [m * median for m in SPLIT_MULTIPLES])
        return Kernels(candidates, "candidates for a split", (None,) * len(candidates))
    lengthscales, how = _maxima(z[:, : len(encoding.real)], rule)
    multiples: tuple[float, ...] = ()
    if rule == "evidence+median" or not lengthscales:
        if lengthscales:
            how += " and the median"
        # Of one column of categories all lengthscales make one test.
        several = rule == "evidence+median" and (len(encoding.real) > 0 or len(categorical) > 1)
        multiples = MEDIAN_MULTIPLES if several else (1.0,)
    kernels = _kernels(encoding, [*lengthscales, *(m * median for m in multiples)])
    return Kernels(kernels, how, (*(None for _ in lengthscales), *multiples))


def _maxima(z: Tensor, rule: Rule) -> tuple[list[float], str]:
    """The lengthscales that ``rule`` takes from the evidence of the real columns, and in words how they were chosen."""
    if rule == "median" or z.shape[1] == 0:
        return [], "median heuristic"
    found = evidence_lengthscales(z)
    if rule == "best":
        return found[:1], "highest evidence"
    if not found:
        return [], "median heuristic"
    return found, "evidence" if len(found) == 1 else f"{len(found)} maxima of the evidence"


def _kernels(encoding: Encoding, lengthscales: list[float]) -> tuple[Kernel, ...]:
    return tuple(encoding.kernel(lengthscale).requires_grad_(False) for lengthscale in lengthscales)


def evidence_lengthscales(z: Tensor) -> list[float]:
    """The lengthscales of all local maxima of the evidence of ``z`` (``(n, d)``), the highest first.

    Data on which the evidence does not exist (copies of one point, points on a grid at every scale) have none.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> centres = torch.tensor([-20.0, 20.0]).repeat(40).unsqueeze(-1)
        >>> x = centres + torch.randn(80, 1, generator=generator, dtype=torch.float64)
        >>> [round(lengthscale) for lengthscale in evidence_lengthscales(x)]
        [1, 29]
    """
    with warnings.catch_warnings():
        # Only a scale is asked for: a few points without a slope do not change where the maxima are.
        warnings.simplefilter("ignore", NumericalWarning)
        try:
            grid = np.geomspace(*scan_span(z), SCAN_POINTS)
            values = log_evidence(z, grid)
            tops = prominent(values.tolist(), PROMINENCE)
            if not tops:
                return []
            near = [np.geomspace(grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)], FINE_POINTS) for i in tops]
            finer = log_evidence(z, np.concatenate(near)).reshape(len(tops), -1)
        except (NanError, NotPSDError):
            return []
    found = [(float(row.max()), float(fine[int(row.argmax())])) for row, fine in zip(finer, near, strict=True)]
    return [lengthscale for _, lengthscale in sorted(found, reverse=True)]


def log_evidence(z: Tensor, lengthscales: NDArray[np.float64]) -> NDArray[np.float64]:
    """The log evidence (13) at each lengthscale, all of them as one batch of kernels."""
    t = min(NUM_LOCATIONS, z.shape[0])
    values = []
    for part in np.array_split(lengthscales, -(-len(lengthscales) * t * z.shape[0] // BATCH_NUMBERS)):
        kernel = RBFKernel(batch_shape=torch.Size([len(part)])).to(z)
        kernel.lengthscale = torch.as_tensor(part).to(z).reshape(-1, 1, 1)
        embedding = BayesianMeanEmbedding(kernel, noise=0.1, measure=MEASURE)
        with torch.no_grad():
            values.append(-EmbeddingEvidence(num_locations=t)(embedding, z).cpu().numpy())
    return np.concatenate(values)


def halves(n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, Tensor]:
    """The numbers from 0 to n − 1 in two random halves: one to choose a kernel on, one to test with it."""
    order = torch.randperm(n, generator=generator).to(device)
    return order[: n // 2], order[n // 2 :]
