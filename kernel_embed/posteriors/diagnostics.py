"""Do the chains agree, and how many draws are they worth: R-hat, effective sample size, and warnings in words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import torch
from pyro.ops.stats import split_gelman_rubin
from torch import Tensor

from .draws import Draws
from .effective import bulk_size, energy_information, rank_r_hat, tail_size
from .priors import PosteriorWarning

LARGEST_R_HAT = 1.1
FEWEST_DRAWS = 20
"""Of a chain, for its R-hat to be worth a warning."""
TOLERATED_DIVERGENCES = 0.01
"""Share of the draws; a single one after a short warm-up is common, and is counted in any case."""
SMALLEST_E_BFMI = 0.3
TOLERATED_CUTS = 0.1
"""Share of trajectories that end at the largest depth."""
SAME_MODE = 1.5
"""Two chains whose R-hat is below this in every parameter are in one mode; chains apart by 2 sd have 1.5 and more."""


class Summary(dict[str, dict[str, Tensor]]):
    """For each parameter its mean, sd, quantiles, ``n_eff``, ``n_eff_tail`` and ``r_hat``; printed, a table.

    Attributes:
        num_divergences: trajectories that diverged.
        e_bfmi: of each chain, ``(num_chains,)``; ``None`` for samplers without trajectories.
        tree_depth: the largest of any trajectory; likewise.
    """

    num_divergences: int = 0
    e_bfmi: Tensor | None = None
    tree_depth: int | None = None

    def __str__(self) -> str:
        rows = [["", "mean", "std", "10%", "median", "90%", "n_eff", "tail", "r_hat"]]
        for name, statistics in self.items():
            columns = {key: value.reshape(-1).tolist() for key, value in statistics.items()}
            count = len(columns["mean"])
            for i in range(count):
                label = name if count == 1 else f"{name}[{i}]"
                numbers = [f"{columns[key][i]:.3g}" for key in ("mean", "std", "10%", "median", "90%")]
                sizes = [f"{columns[key][i]:.0f}" for key in ("n_eff", "n_eff_tail")]
                rows.append([label, *numbers, *sizes, f"{columns['r_hat'][i]:.2f}"])
        widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        return "\n".join(lines if self.e_bfmi is None else [*lines, self._trajectories(self.e_bfmi)])

    def _trajectories(self, e_bfmi: Tensor) -> str:
        return (
            f"{self.num_divergences} divergences, tree depth up to {self.tree_depth}, "
            f"E-BFMI {float(e_bfmi.min()):.2f} or more"
        )


def summarize(by_chain: Mapping[str, Tensor], weights: Tensor, draws: Draws) -> Summary:
    """Statistics of draws ``(num_chains, num_samples, *shape)`` by name, with weights ``(num_chains, num_samples)``."""
    summary = Summary()
    for name, values in by_chain.items():
        flat, w = values.flatten(0, 1).double(), weights.reshape(-1)
        column = w.reshape(-1, *[1] * (flat.dim() - 1))
        mean = (column * flat).sum(0)
        summary[name] = {
            "mean": mean,
            "std": (column * (flat - mean).square()).sum(0).sqrt(),
            "10%": weighted_quantile(flat, w, 0.1),
            "median": weighted_quantile(flat, w, 0.5),
            "90%": weighted_quantile(flat, w, 0.9),
            "n_eff": n_eff(values),
            "n_eff_tail": tail_size(values),
            "r_hat": rank_r_hat(values),
        }
    summary.num_divergences = int(draws.diverging.sum())
    if draws.energy is not None and draws.depth is not None:
        summary.e_bfmi, summary.tree_depth = energy_information(draws.energy), int(draws.depth.max())
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
    """Effective sample size of ``(num_chains, num_samples, *shape)``, for the middle of the distribution."""
    return bulk_size(draws)


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


def tell(draws: Draws, by_chain: Mapping[str, Tensor], max_depth: int | None) -> None:
    """Warn in words where chains stand still or disagree, or trajectories diverge or are cut off."""
    concerns = (
        _stillness(draws.u),
        _disagreement(draws.u, by_chain),
        _divergence(draws.diverging),
        _inertia(draws.energy),
        _shortness(draws.depth, max_depth),
    )
    for concern in concerns:
        if concern is not None:
            warnings.warn(concern, PosteriorWarning, stacklevel=3)


def _stillness(u: Tensor) -> str | None:
    if u.shape[1] < FEWEST_DRAWS:
        return None
    still = (u == u[:, :1]).all(-1).all(-1).nonzero().flatten().tolist()
    if not still:
        return None
    return (
        f"Chains that never moved: {_listed(still)}, of {u.shape[0]}. Every proposal was rejected there. Start "
        "elsewhere, initial='current' or values of yours, or take smaller steps, sampler=NUTS(step_size=0.01)."
    )


def _inertia(energy: Tensor | None) -> str | None:
    if energy is None or energy.shape[1] < FEWEST_DRAWS or not bool((energy.var(1) > 0).all()):
        return None
    smallest = float(energy_information(energy).min())
    if smallest >= SMALLEST_E_BFMI:
        return None
    return (
        f"The energy of a chain moves slowly: its E-BFMI is {smallest:.2f}, and should be above {SMALLEST_E_BFMI}. The "
        "posterior has long tails that momenta do not reach. Use priors that hold the tails, or raise num_samples."
    )


def _shortness(depth: Tensor | None, max_depth: int | None) -> str | None:
    if depth is None or max_depth is None:
        return None
    share = float((depth >= max_depth).double().mean())
    if share <= TOLERATED_CUTS:
        return None
    return (
        f"{share:.0%} of the trajectories were cut off at max_tree_depth={max_depth}, so that draws are closer to one "
        "another than they need be. Raise it, or warmup_steps, in which the mass matrix is learned."
    )


def _disagreement(u: Tensor, by_chain: Mapping[str, Tensor]) -> str | None:
    largest = {name: float(rank_r_hat(draws).max()) for name, draws in by_chain.items()}
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
