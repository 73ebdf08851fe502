"""The evidence of an embedding with its gradient: against plain autograd, one factorization, and on a large sample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ...embeddings import BayesianMeanEmbedding
from ...kernels import DiscreteMeasure
from ...objectives import EmbeddingEvidence
from ...results import Record
from ..compare.resources import peak_memory
from .cases import OURS, Call, Case, Scope

LINE = "evidence of an embedding with its gradient, d = 1"
SPACE = "evidence of an embedding with its gradient, d = 10, ARD"
LARGE = "evidence of a large sample, d = 5, 256 atoms, 2000 locations"
CHOLESKY = "one Cholesky factorization"


def plain_autograd(log_lengthscale: Tensor, x: Tensor, noise: float) -> Tensor:
    """Eq. (13) for the squared exponential as one would first write it, everything left to autograd."""
    n, d = x.shape
    lengthscale = log_lengthscale.exp()
    z = x / lengthscale
    squares = (z.unsqueeze(-2) - z.unsqueeze(-3)).square().sum(-1) if d == 1 else torch.cdist(z, z).square()
    K = torch.exp(-0.5 * squares)
    R = math.pi ** (d / 2) * lengthscale.expand(d).prod() * torch.exp(-0.25 * squares)
    mean = K.mean(-1)
    slope = (K @ z - K.sum(-1, keepdim=True) * z) / (n * lengthscale)
    density = torch.distributions.MultivariateNormal(torch.zeros_like(mean), R + noise * torch.eye(n, dtype=x.dtype))
    value: Tensor = -density.log_prob(mean) - 0.5 * slope.square().sum(-1).log().sum()
    return value


def problem(n: int, d: int) -> tuple[BayesianMeanEmbedding, Tensor]:
    """A normal sample, and a squared exponential of about its width."""
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * (3.0 if d == 1 else 1.0)
    kernel = RBFKernel(ard_num_dims=d).double()
    kernel.lengthscale = {1: 0.5, 5: 1.0, 10: 3.0}[d]
    return BayesianMeanEmbedding(kernel), x


def _step(embedding: BayesianMeanEmbedding, x: Tensor, objective: EmbeddingEvidence) -> Record:
    embedding.zero_grad()
    value = objective(embedding, x)
    value.backward()
    return {"value": value.item()}


def _ours(n: int, d: int) -> Call:
    return partial(_step, *problem(n, d), EmbeddingEvidence())


def _plain(n: int) -> Call:
    _, x = problem(n, 1)
    parameter = torch.tensor(math.log(0.5), dtype=torch.float64, requires_grad=True)

    def call() -> Record:
        parameter.grad = None
        value = plain_autograd(parameter, x, 0.1)
        value.backward()
        return {"value": value.item()}

    return call


def _cholesky(n: int) -> Call:
    embedding, x = problem(n, 10)
    A = embedding.kernel(x).to_dense().detach() + torch.eye(n, dtype=torch.float64)
    return lambda: torch.linalg.cholesky(A)


def _large(n: int) -> Call:
    plain, x = problem(n, 5)

    def call() -> Record:
        with peak_memory() as peak:
            embedding = BayesianMeanEmbedding(plain.kernel, measure=DiscreteMeasure.from_sample(x, 256))
            found = _step(embedding, x, EmbeddingEvidence(num_locations=2000))
        return {**found, "peak_megabytes": peak.megabytes}

    return call


def cases(scope: Scope) -> Iterator[Case]:
    """Ours and plain autograd on the line, ours and one factorization in space, and a sample of 100,000 points."""
    few, many, most = (100, 200, 5_000) if scope.quick else (600, 2_000, 100_000)
    yield Case(LINE, OURS, few, partial(_ours, few, 1), repeats=30)
    yield Case(LINE, "plain autograd", few, partial(_plain, few), repeats=30)
    yield Case(SPACE, CHOLESKY, many, partial(_cholesky, many), against=CHOLESKY, repeats=10)
    yield Case(SPACE, OURS, many, partial(_ours, many, 10), against=CHOLESKY, repeats=10)
    yield Case(LARGE, OURS, most, partial(_large, most))
