r"""Kernels for a test that names none: where the evidence has its maxima, beside the median heuristic.

The evidence (13) of the pooled sample does not know which point came from which sample (or which x goes with which y),
so that a relabelling leaves the kernels what they are and the test stays exact: no part of the data is set aside. It
often has several maxima, and the highest need not be the scale at which samples differ; all of them take part. The
median heuristic takes part as well, since where it is the right scale nothing should be lost to it.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from numpy.typing import NDArray
from torch import Tensor

from ..embeddings.bayesian import BayesianMeanEmbedding
from ..kernels import LebesgueMeasure, median_distance, set_lengthscales_by_median
from ..learning.maxima import prominent, scan_span
from ..objectives.embedding_evidence import EmbeddingEvidence
from .checks import check_choice, check_real
from .encoding import Encoding

Rule = Literal["evidence+median", "evidence", "best", "median", "split"]
KernelChoice: TypeAlias = Any
"""``None``, a rule by name, a kernel (a batch of kernels: draws, averaged), several kernels, or a posterior."""

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
"""Around each top of the scan: lengthscales to a few per cent, which is all a test can tell."""
PROMINENCE = 6.0
"""Nats of descent between two maxima that count."""
BATCH_NUMBERS = 2**22
"""Kernel values of one batch."""


class Kernels(NamedTuple):
    """Kernels and how they were chosen; a posterior's draws are one kernel with a batch dimension.

    Attributes:
        kernels: the kernels.
        how: in words.
        multiples: for each kernel the multiple of the median distance that it is, ``None`` for maxima and given ones.
    """

    kernels: tuple[Kernel, ...]
    how: str
    multiples: tuple[float | None, ...] = (None,)


def pairs_of(x: Kernels, y: Kernels) -> list[tuple[int, int]]:
    """Which kernel of x goes with which of y: every maximum (or given one) with every other, medians with their like.

    All pairs would be many, and most of them between scales that nobody has asked for.

    Example:
        >>> x, y = Kernels((), "", (None, 1.0, 4.0)), Kernels((), "", (None, None, 1.0, 4.0))
        >>> pairs_of(x, y)
        [(0, 0), (0, 1), (1, 2), (2, 3)]
    """

    def free(kernels: Kernels) -> list[int]:
        maxima = [i for i, multiple in enumerate(kernels.multiples) if multiple is None]
        return maxima or [kernels.multiples.index(1.0)]  # without a maximum the median stands for it

    found = [(i, j) for i in free(x) for j in free(y)]
    like = [(i, j) for i, a in enumerate(x.multiples) for j, b in enumerate(y.multiples) if a is not None and a == b]
    return found + [pair for pair in like if pair not in found]


def choose_kernels(
    x: Tensor, kernel: KernelChoice, categorical: tuple[int, ...], generator: torch.Generator, name: str = "x"
) -> Kernels:
    """The kernels for the pooled sample ``x`` (``(N, d)``, float64)."""
    if kernel is None or isinstance(kernel, str):
        rule = kernel or "evidence+median"
        check_choice(rule, get_args(Rule), "kernel, where it is a word,")
        return _by_rule(x, rule, categorical, generator)
    given = [kernel] if isinstance(kernel, Kernel) else _given(kernel)
    for one in given:
        check_real(one, categorical, name)
    # A copy in float64, so that the caller's kernel stays what it is.
    kernels = tuple(_double(one, x) for one in given)
    return Kernels(kernels, "given" if len(kernels) == 1 else f"{len(kernels)} given", (None,) * len(kernels))


def _given(kernel: Any) -> list[Kernel]:
    if isinstance(kernel, Sequence) and kernel and all(isinstance(one, Kernel) for one in kernel):
        return list(kernel)
    # A posterior over hyperparameters carries its draws as one kernel with a batch dimension.
    for holder in (kernel, getattr(kernel, "embedding", None)):
        inside = getattr(holder, "kernel", None)
        if isinstance(inside, Kernel):
            return [inside]
    raise TypeError(
        f"Expected a gpytorch.kernels.Kernel, several, a posterior with a kernel, None, or one of {get_args(Rule)}; "
        f"got {type(kernel).__name__}."
    )


def _double(kernel: Kernel, x: Tensor) -> Kernel:
    return copy.deepcopy(kernel).to(dtype=torch.float64, device=x.device).requires_grad_(False)


def _by_rule(x: Tensor, rule: str, categorical: tuple[int, ...], generator: torch.Generator) -> Kernels:
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
    lengthscales: list[float] = []
    multiples: tuple[float, ...]
    how = "median heuristic"
    if rule != "median" and len(encoding.real) > 0:
        lengthscales = evidence_lengthscales(z[:, : len(encoding.real)])
        count = len(lengthscales)
        if rule == "best":
            lengthscales, how = lengthscales[:1], "highest evidence"
        elif count:
            how = "evidence" if count == 1 else f"{count} maxima of the evidence"
    if rule == "evidence+median" or not lengthscales:
        if lengthscales:
            how += " and the median"
        # Of one column of categories all lengthscales make one test.
        several = rule == "evidence+median" and (len(encoding.real) > 0 or len(categorical) > 1)
        multiples = MEDIAN_MULTIPLES if several else (1.0,)
    else:
        multiples = ()
    kernels = _kernels(encoding, [*lengthscales, *(m * median for m in multiples)])
    return Kernels(kernels, how, (*(None for _ in lengthscales), *multiples))


def _kernels(encoding: Encoding, lengthscales: list[float]) -> tuple[Kernel, ...]:
    return tuple(encoding.kernel(lengthscale).requires_grad_(False) for lengthscale in lengthscales)


def evidence_lengthscales(z: Tensor) -> list[float]:
    """The lengthscales of all local maxima of the evidence of ``z`` (``(n, d)``), the highest first.

    r is scaled to r(x, x) = 1, which makes the maxima move with the units of the data. Data on which the evidence
    does not exist (copies of one point, points on a grid at every scale) have none.

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
        embedding = BayesianMeanEmbedding(kernel, noise=0.1, measure=LebesgueMeasure(unit=True))
        with torch.no_grad():
            values.append(-EmbeddingEvidence(num_locations=t)(embedding, z).cpu().numpy())
    return np.concatenate(values)
