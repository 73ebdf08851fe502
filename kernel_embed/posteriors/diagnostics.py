"""Do the chains agree, and how many draws are they worth: R-hat, effective sample size, and warnings in words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import torch
from pyro.ops.stats import effective_sample_size, split_gelman_rubin
from torch import Tensor

from .priors import PosteriorWarning

LARGEST_R_HAT = 1.1
FEWEST_DRAWS = 20
"""Of a chain, for its R-hat to be worth a warning."""
TOLERATED_DIVERGENCES = 0.01
"""Share of the draws; a single one after a short warm-up is common, and is counted in any case."""
SAME_MODE = 1.5
"""Two chains whose R-hat is below this in every parameter are in one mode; chains apart by 2 sd have 1.5 and more."""


class Summary(dict[str, dict[str, Tensor]]):
    """For each parameter its mean, sd, quantiles, ``n_eff`` and ``r_hat``, each of its shape; printed, a table."""

    def __str__(self) -> str:
        rows = [["", "mean", "std", "10%", "median", "90%", "n_eff", "r_hat"]]
        for name, statistics in self.items():
            columns = {key: value.reshape(-1).tolist() for key, value in statistics.items()}
            count = len(columns["mean"])
            for i in range(count):
                label = name if count == 1 else f"{name}[{i}]"
                numbers = [f"{columns[key][i]:.3g}" for key in ("mean", "std", "10%", "median", "90%")]
                rows.append([label, *numbers, f"{columns['n_eff'][i]:.0f}", f"{columns['r_hat'][i]:.2f}"])
        widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        )


def summarize(by_chain: Mapping[str, Tensor], weights: Tensor) -> Summary:
    """Statistics of draws ``(num_chains, num_samples, *shape)`` by name, with weights ``(num_chains, num_samples)``."""
    summary = Summary()
    for name, draws in by_chain.items():
        flat, w = draws.flatten(0, 1).double(), weights.reshape(-1)
        column = w.reshape(-1, *[1] * (flat.dim() - 1))
        mean = (column * flat).sum(0)
        summary[name] = {
            "mean": mean,
            "std": (column * (flat - mean).square()).sum(0).sqrt(),
            "10%": weighted_quantile(flat, w, 0.1),
            "median": weighted_quantile(flat, w, 0.5),
            "90%": weighted_quantile(flat, w, 0.9),
            "n_eff": n_eff(draws.double()),
            "r_hat": r_hat(draws.double()),
        }
    return summary


def r_hat(draws: Tensor) -> Tensor:
    """Split R-hat of ``(num_chains, num_samples, *shape)``; NaN for fewer than four draws."""
    if draws.shape[1] < 4:
        return draws.new_full(draws.shape[2:], math.nan)
    value: Tensor = split_gelman_rubin(draws)
    # Chains that never move have no variance: alike they agree, apart they could not disagree more.
    still = draws.var(dim=1).amax(dim=0) <= 0
    apart = draws.amax(dim=(0, 1)) > draws.amin(dim=(0, 1))
    return torch.where(still, torch.where(apart, math.inf, 1.0), value)


def n_eff(draws: Tensor) -> Tensor:
    """Effective sample size of ``(num_chains, num_samples, *shape)``."""
    if draws.shape[1] < 4:
        return draws.new_full(draws.shape[2:], float(draws.shape[0] * draws.shape[1]))
    value: Tensor = effective_sample_size(draws)
    return torch.where(torch.isfinite(value), value, 1.0)


def weighted_quantile(draws: Tensor, weights: Tensor, level: float) -> Tensor:
    """The smallest draw with at least ``level`` of the weight at or below it, for ``draws`` ``(S, *shape)``.

    Example:
        >>> weighted_quantile(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.1, 0.8, 0.1]), 0.5)
        tensor(1.)
    """
    ordered, order = draws.sort(dim=0)
    total = weights.to(draws)[order].cumsum(dim=0)
    # Rounding must not push the level past the last draw.
    position = (total < level * total[-1] - 1e-12).sum(dim=0, keepdim=True).clamp_max(draws.shape[0] - 1)
    return ordered.gather(0, position).squeeze(0)


def modes(u: Tensor) -> list[list[int]]:
    """The chains ``(num_chains, num_samples, dimension)`` in groups that overlap: each group is in a mode of its own.

    Example:
        >>> u = torch.randn(4, 50, 1, generator=torch.Generator().manual_seed(0))
        >>> u[1] += 20.0
        >>> modes(u)
        [[0, 2, 3], [1]]
    """
    groups: list[list[int]] = []
    for chain in range(u.shape[0]):
        joined = [g for g in groups if any(_overlap(u[[chain, other]]) for other in g)]
        groups = [g for g in groups if g not in joined] + [sorted(sum(joined, [chain]))]
    return sorted(groups)


def _overlap(pair: Tensor) -> bool:
    return pair.shape[1] < 4 or bool((r_hat(pair) < SAME_MODE).all())


def tell(u: Tensor, by_chain: Mapping[str, Tensor], diverging: Tensor) -> None:
    """Warn in words where chains disagree or trajectories diverge."""
    for concern in (_disagreement(u, by_chain), _divergence(diverging)):
        if concern is not None:
            warnings.warn(concern, PosteriorWarning, stacklevel=3)


def _disagreement(u: Tensor, by_chain: Mapping[str, Tensor]) -> str | None:
    largest = {name: float(r_hat(draws.double()).max()) for name, draws in by_chain.items()}
    worst = max(largest, key=lambda name: largest[name])
    if not largest[worst] > LARGEST_R_HAT or u.shape[1] < FEWEST_DRAWS:
        return None
    groups = modes(u)
    advice = "They have not mixed yet: raise warmup_steps and num_samples."
    if len(groups) > 1:
        places = "; ".join(f"chains {_listed(g)} around {_centre(by_chain[worst][g])}" for g in groups)
        advice = (
            f"They sit in {len(groups)} places ({places}) and do not pass between them, so that their shares say "
            "nothing about the weight of each. Weigh them by evidence, posterior.weigh_modes(), or sample with "
            "sampler=SMC(), which gets the weights right."
        )
    return (
        f"The chains disagree: R-hat of {worst} is {largest[worst]:.2f}, and should be below {LARGEST_R_HAT}. {advice}"
    )


def _divergence(diverging: Tensor) -> str | None:
    count = int(diverging.sum())
    if count <= max(2.0, TOLERATED_DIVERGENCES * diverging.numel()):
        return None
    return (
        f"{count} of {diverging.numel()} trajectories diverged: the density has places too steep for the step "
        "size, or where K cannot be factorized, and draws near them may be missing. Take smaller steps, "
        "sampler=NUTS(target_accept_prob=0.95), or use priors that keep parameters from extremes."
    )


def _listed(chains: list[int]) -> str:
    return ", ".join(str(chain) for chain in chains)


def _centre(draws: Tensor) -> str:
    return ", ".join(f"{value:.3g}" for value in draws.flatten(0, 1).double().mean(0).reshape(-1)[:4].tolist())
