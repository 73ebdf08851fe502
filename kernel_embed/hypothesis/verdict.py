"""From statistics to a verdict: against their permutations, or against a gamma distribution."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .aggregation import NullScale, aggregate

Null = Literal["permutation", "gamma"]
"""How the null distribution is found."""


class Verdict(NamedTuple):
    """What the statistics of J kernels say together; the fields are those of :class:`KernelTestResult`.

    ``best`` is the number of the kernel whose statistic stands out most.
    """

    statistic: float
    pvalue: float
    null: Tensor
    statistics: Tensor
    pvalues: Tensor
    best: int
    null_kind: str


def by_permutations(T: Tensor, scale: NullScale) -> Verdict:
    """From the statistics ``(J, 1 + B)``, the observed ones first, to a verdict."""
    answer = aggregate(T, scale)
    return Verdict(
        float(answer.statistics[0]),
        answer.pvalue,
        answer.statistics[1:],
        T[:, 0],
        answer.pvalues,
        answer.best,
        f"{T.shape[1] - 1} permutations",
    )


def by_gamma(statistic: Tensor, mean: Tensor, variance: Tensor, num_draws: int, generator: torch.Generator) -> Verdict:
    """Against a gamma distribution with the mean and the variance of the limit; ``num_draws`` of it are for pictures.

    Example:
        >>> one = torch.tensor(1.0, dtype=torch.float64)
        >>> verdict = by_gamma(3.0 * one, one, one, 5, torch.Generator().manual_seed(0))
        >>> round(verdict.pvalue, 4)                                        # exp(−3): shape and scale are 1
        0.0498
    """
    p = gamma_pvalue(float(statistic), mean, variance)
    draws = gamma_draws(mean, variance, num_draws, generator) if p < 1.0 else torch.zeros(num_draws).double()
    pvalues = torch.tensor([p], dtype=torch.float64)
    return Verdict(float(statistic), p, draws, statistic.reshape(1), pvalues, 0, "gamma approximation")


def check_gamma(num_kernels: int, unbiased: bool, what: str = "kernel", several: str = "kernels") -> None:
    """Raise unless there is one kernel and the biased statistic, of which alone the gamma distribution is known."""
    if num_kernels > 1 or unbiased:
        raise ValueError(
            f"Expected one {what} and the biased statistic for null='gamma', got "
            f"{f'{num_kernels} {several}' if num_kernels > 1 else 'the unbiased one'}. "
            "Give a kernel, or kernel='best'; several kernels need permutations."
        )


def gamma_draws(mean: Tensor, variance: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
    """Draws of the gamma distribution with this mean and variance, for pictures: ``(num_draws,)``."""
    from scipy.stats import gamma

    uniform = torch.rand(num_draws, generator=generator, dtype=torch.float64)
    shape, scale = float(mean**2 / variance), float(variance / mean)
    return torch.as_tensor(gamma.ppf(uniform.numpy(), shape, scale=scale))


def gamma_pvalue(statistic: float, mean: Tensor, variance: Tensor) -> float:
    """P(gamma ≥ statistic), at least the smallest number above 0, and 1 where the statistic cannot vary."""
    from scipy.stats import gamma

    if not (float(mean) > 0 and float(variance) > 0):
        return 1.0
    shape, scale = float(mean**2 / variance), float(variance / mean)
    return max(float(gamma.sf(statistic, shape, scale=scale)), torch.finfo(torch.float64).tiny)


def halves(n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, Tensor]:
    """The numbers from 0 to n − 1 in two random halves: one to choose a kernel on, one to test with it."""
    order = torch.randperm(n, generator=generator).to(device)
    return order[: n // 2], order[n // 2 :]
