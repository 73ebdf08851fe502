"""Time and memory of the embedding evidence with its gradient.

    python tests/benchmarks/evidence.py            # ratios and the large sample
    python tests/benchmarks/evidence.py --small    # ratios only

Ratios are of minima over alternating repetitions in one process.
"""

from __future__ import annotations

import argparse
import math
import resource
import time
from collections.abc import Callable

import gpytorch
import torch
from torch import Tensor

from kernel_embed.embeddings.bayesian import BayesianMeanEmbedding
from kernel_embed.kernels.smoothed.measures import DiscreteMeasure
from kernel_embed.objectives.embedding_evidence import EmbeddingEvidence


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
    return -density.log_prob(mean) - 0.5 * slope.square().sum(-1).log().sum()


def seconds(*actions: Callable[[], object], repetitions: int) -> list[float]:
    """The least time of each action over alternating repetitions."""
    best = [math.inf] * len(actions)
    for _ in range(repetitions):
        for i, action in enumerate(actions):
            start = time.perf_counter()
            action()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def evidence_step(embedding: BayesianMeanEmbedding, x: Tensor, objective: EmbeddingEvidence) -> Callable[[], Tensor]:
    """Evidence and gradient, once."""

    def step() -> Tensor:
        embedding.zero_grad()
        value = objective(embedding, x)
        value.backward()
        return value.detach()

    return step


def against_autograd() -> None:
    """n = 600, one dimension."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 1, generator=generator, dtype=torch.float64) * 3
    kernel = gpytorch.kernels.RBFKernel().double()
    kernel.lengthscale = 0.5
    theirs = torch.tensor(math.log(0.5), dtype=torch.float64, requires_grad=True)

    def plain() -> Tensor:
        theirs.grad = None
        value = plain_autograd(theirs, x, 0.1)
        value.backward()
        return value.detach()

    ours = evidence_step(BayesianMeanEmbedding(kernel), x, EmbeddingEvidence())
    difference = abs((ours() - plain()).item())
    a, b = seconds(ours, plain, repetitions=30)
    print(
        f"n=600 d=1: evidence and gradient {a * 1e3:.1f} ms, plain autograd {b * 1e3:.1f} ms, ratio {a / b:.2f} "
        f"(at most 0.5); values differ by {difference:.1e}"
    )


def against_cholesky() -> None:
    """n = 2000, d = 10, ARD."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 10, generator=generator, dtype=torch.float64)
    kernel = gpytorch.kernels.RBFKernel(ard_num_dims=10).double()
    kernel.lengthscale = 3.0
    A = kernel(x).to_dense().detach() + torch.eye(2000, dtype=torch.float64)
    ours = evidence_step(BayesianMeanEmbedding(kernel), x, EmbeddingEvidence())
    a, b = seconds(ours, lambda: torch.linalg.cholesky(A), repetitions=10)
    print(
        f"n=2000 d=10 ARD: evidence and gradient {a * 1e3:.0f} ms, Cholesky {b * 1e3:.0f} ms, ratio {a / b:.1f} "
        "(at most 8)"
    )


def large_sample() -> None:
    """n = 100,000 in 5 dimensions, M = 256 atoms, 2,000 locations."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100_000, 5, generator=generator, dtype=torch.float64)
    kernel = gpytorch.kernels.RBFKernel(ard_num_dims=5).double()
    kernel.lengthscale = 1.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    embedding = BayesianMeanEmbedding(kernel, measure=DiscreteMeasure.from_sample(x, 256))
    start = time.perf_counter()
    value = evidence_step(embedding, x, EmbeddingEvidence(num_locations=2000))()
    elapsed = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"n=100000 d=5 M=256, 2000 locations: {elapsed:.1f} s (under 30), peak of the process {peak / 2**20:.2f} GiB, "
        f"of which {(peak - before) / 2**20:.2f} GiB for this (under 2); value {value.item():.1f}"
    )


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="leave out the large sample")
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    against_autograd()
    against_cholesky()
    if not arguments.small:
        large_sample()


if __name__ == "__main__":
    main()
