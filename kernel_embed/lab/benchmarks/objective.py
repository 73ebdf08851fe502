"""Objectives of classes, a problem for them, plain autograd beside them, and the peak of memory of a call."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from ...embeddings import ConditionedMulticlass, MulticlassEmbedding
from ...objectives import (
    CalibratedLeaveOneOutRisk,
    ConditionalEvidence,
    EmpiricalRisk,
    LeaveOneOutRisk,
    Objective,
    RademacherComplexity,
)
from .cases import Call

OBJECTIVES: dict[str, Objective[ConditionedMulticlass]] = {
    "EmpiricalRisk + RademacherComplexity": EmpiricalRisk() + RademacherComplexity("4e/n"),
    "LeaveOneOutRisk + RademacherComplexity": LeaveOneOutRisk() + RademacherComplexity("4e/n"),
    "CalibratedLeaveOneOutRisk": CalibratedLeaveOneOutRisk(),
    "ConditionalEvidence": ConditionalEvidence(),
}


def problem(n: int, d: int = 20, m: int = 7) -> tuple[MulticlassEmbedding, Tensor, Tensor]:
    """An ARD embedding and data for it."""
    x = torch.rand(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] * m).long().clamp_max(m - 1)
    kernel = RBFKernel(ard_num_dims=d).double()
    kernel.lengthscale = 1.5
    return MulticlassEmbedding(kernel, m, regularization=1e-3), x, y


def plain_autograd(embedding: MulticlassEmbedding, x: Tensor, y: Tensor) -> None:
    """The first objective as one would write it: GPyTorch's Gram matrix, and autograd through the factor."""
    n = len(y)
    K = embedding.kernel(x).to_dense()
    L = torch.linalg.cholesky(K + n * embedding.regularization * torch.eye(n, dtype=x.dtype))
    Y = torch.nn.functional.one_hot(y, embedding.num_classes).to(x.dtype)
    V = torch.cholesky_solve(Y, L)
    P = K @ V
    risk = -P.gather(1, y[:, None]).clamp(1e-15, 1.0).log().mean()
    (risk + 4 * math.e / n * (V * P).sum().sqrt()).backward()


@contextlib.contextmanager
def _silent_errors() -> Iterator[None]:
    """Nothing on the error stream of the process: the profiler writes lines there from C++."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def peak_doubles(call: Call) -> float:
    """The highest sum of live allocations during ``call``, in doubles, from the allocator's own record."""
    with _silent_errors(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        call()
    live = peak = 0
    for event in sorted(record.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak / 8.0
