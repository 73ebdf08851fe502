"""Figures 4 and 5 of the Bayesian kernel embeddings: eight NUTS chains over the lengthscale, and the witness.

The mixtures of :mod:`kernel_embed.papers.flaxman2016.mixtures`, the pooled sample of 600 points, a Gamma(1, 1) prior on
the lengthscale. The chains stay in the mode they start in. Figure 5 as printed averages them equally; weighed by the
evidence of their modes they give another picture. Both are drawn.
"""

from __future__ import annotations

import pathlib
import warnings

import numpy as np
import torch

from ...learning.parameters import Vector
from ...objectives import EmbeddingEvidence
from ...plots import plot_traces
from ...plots.style import BAND, array
from ...posteriors import NUTS, MeanPosterior, PosteriorWarning, Potential, load_posterior, sample_posterior
from ...posteriors.bridge import log_evidence
from ...posteriors.diagnostics import modes, n_eff, r_hat
from ...results import Record, Results, table
from .mixtures import PRINTED, mixture_samples, model

WITNESS_DRAWS = 160
NAME = "kernel.lengthscale"


def sample(
    path: pathlib.Path | None,
    *,
    num_per_centre: int = 100,
    num_chains: int = 8,
    num_draws: int = 200,
    seed: int = 0,
    progress: bool | None = None,
) -> MeanPosterior:
    """The posterior of the lengthscale, from the file ``path`` where an earlier run left it."""
    if path is not None and path.exists():
        loaded = load_posterior(path, model(), EmbeddingEvidence())
        assert isinstance(loaded, MeanPosterior)
        return loaded
    x = torch.cat(mixture_samples(num_per_centre, seed))
    with warnings.catch_warnings():
        # That the chains disagree is the point.
        warnings.simplefilter("ignore", PosteriorWarning)
        posterior = sample_posterior(
            model(),
            EmbeddingEvidence(),
            x,
            num_samples=num_draws,
            warmup_steps=num_draws,
            num_chains=num_chains,
            seed=seed,
            sampler=NUTS(walk=False, parallel=False),  # NUTS alone, as in the paper
            progress=progress,
        )
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        posterior.save(path)
    return posterior


def run(results: Results, out: pathlib.Path, *, num_per_centre: int = 100, num_draws: int = 200, seed: int = 0) -> None:
    """Fill ``results`` with one record for each chain and each mode; draw ``figure4`` and ``figure5_posterior``."""
    path = out / f"chains_{6 * num_per_centre}_{num_draws}_{seed}.npz"
    posterior = sample(path, num_per_centre=num_per_centre, num_draws=num_draws, seed=seed)
    shared: Record = {"experiment": "chains", "n": 6 * num_per_centre, "seed": seed}
    by_chain = posterior.samples_by_chain[NAME].squeeze((-2, -1))
    for chain, draws in enumerate(by_chain):
        place: Record = {
            "lengthscale": draws.mean().item(),
            "sd": draws.std().item(),
            "n_eff": n_eff(draws[None]).item(),
        }
        results.add({**shared, "kind": "chain", "number": chain, **place})
    groups = modes(posterior.draws.u)
    for number, group in enumerate(groups):
        draws = by_chain[group]
        u, log_density = posterior.draws.u[group].flatten(0, 1), posterior.draws.log_density[group].flatten()
        place = {"lengthscale": draws.mean().item(), "sd": draws.std().item(), "n_eff": n_eff(draws).item()}
        place |= {"r_hat": r_hat(draws).item(), "chains": len(group)}
        place["log_evidence"] = log_evidence(posterior.potential, u, log_density)
        place["by_quadrature"] = quadrature(posterior.potential, u.numpy())
        results.add({**shared, "kind": "mode", "number": number, **place})
    cost: Record = {"r_hat": float(r_hat(by_chain)), "seconds": posterior.seconds}
    cost |= {"num_evaluations": posterior.num_evaluations, "num_divergences": posterior.num_divergences}
    results.add({**shared, "kind": "all", "number": 0, **cost})
    draw_traces(posterior, out / "figure4.png")
    draw_witnesses(posterior, groups, num_per_centre, seed, out / "figure5_posterior.png")


def quadrature(potential: Potential, u: Vector, num_points: int = 101) -> float:
    """log Z of a mode by the trapezoidal rule, over the draws ``u`` and as far again to both sides."""
    low, high = u.min(), u.max()
    width = 0.5 * (high - low) or 0.05  # a short chain may never have moved
    grid = np.linspace(low - width, high + width, num_points)
    heights = np.array([-potential.value(np.array([point])) for point in grid])
    top = heights.max()
    return float(top + np.log(np.trapezoid(np.exp(heights - top), grid)))


def draw_traces(posterior: MeanPosterior, path: pathlib.Path) -> None:
    """Figure 4: the lengthscale along each chain."""
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(7, 3.4), layout="constrained")
    plot_traces(posterior, NAME, ax=panel)
    for value in PRINTED:
        panel.axhline(value, color="0.6", linewidth=0.8, linestyle="--")
    panel.set_yscale("log")
    panel.set_ylabel("lengthscale")
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def draw_witnesses(
    posterior: MeanPosterior, groups: list[list[int]], num_per_centre: int, seed: int, path: pathlib.Path
) -> None:
    """Figure 5: the witness with its 80 % band in modes with several chains, over equal chains, and by evidence."""
    from matplotlib import pyplot

    p, q = mixture_samples(num_per_centre, seed)
    grid = torch.linspace(-5, 5, 160, dtype=p.dtype).unsqueeze(-1)
    thin = posterior.thinned(WITNESS_DRAWS)
    weighed = posterior.weigh_modes().thinned(WITNESS_DRAWS)
    panels = [
        (f"chains around {_mean(posterior, g):.2f}", thin.reweighted(_only(thin, g))) for g in groups if len(g) > 1
    ]
    panels += [("equal chains, as printed", thin), ("modes weighed by evidence", weighed)]
    figure, axes = pyplot.subplots(1, len(panels), figsize=(3.4 * len(panels), 3.2), layout="constrained", sharey=True)
    for axis, (title, chosen) in zip(axes, panels, strict=True):
        mixture = chosen.witness(p, q).mixture(grid)
        lower, upper = mixture.band(0.8)
        axis.fill_between(array(grid.squeeze(-1)), array(lower), array(upper), color=BAND, linewidth=0)
        axis.plot(array(grid.squeeze(-1)), array(mixture.matched.mean), color="black")
        axis.axhline(0.0, color="0.5", linewidth=0.8)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("x")
    axes[0].set_ylabel("witness")
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _mean(posterior: MeanPosterior, group: list[int]) -> float:
    return float(posterior.samples_by_chain[NAME][group].mean())


def _only(posterior: MeanPosterior, group: list[int]) -> torch.Tensor:
    weights = torch.zeros(posterior.num_chains, posterior.num_samples, dtype=torch.float64)
    weights[group] = 1.0
    return weights.reshape(-1)


def summary(records: list[Record]) -> str:
    """The modes, their draws and their evidence."""
    rows = [
        [
            f"{r['lengthscale']:.3f} ± {r['sd']:.3f}",
            str(r["chains"]),
            f"{r['n_eff']:.0f}",
            f"{r['r_hat']:.2f}",
            f"{r['log_evidence']:.2f}",
            f"{r['by_quadrature']:.2f}",
        ]
        for r in records
        if r["kind"] == "mode"
    ]
    header = ["lengthscale in each mode", "chains", "n_eff", "R-hat", "log evidence: bridge", "quadrature"]
    (cost,) = [r for r in records if r["kind"] == "all"]
    note = f"All chains together: R-hat {cost['r_hat']:.1f}; {cost['num_evaluations']} evaluations."
    return table(header, rows) + "\n\n" + note
