"""Figures 1, 3, 4 and 5 of the Bayesian kernel embeddings: mixtures on the line, by maxima and by NUTS chains.

Mixtures: :mod:`kernel_embed.lab.papers.flaxman2016.mixtures`, the pooled sample of 600 points, Gamma(1, 1) prior on
the lengthscale. The eight chains stay in the mode they start in. Figure 5 as published averages them equally; weighted
by the evidence of their modes they give another picture. Both are drawn.
"""

from __future__ import annotations

import math
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from ....objectives import EmbeddingEvidence
from ....plots import plot_traces, save_picture
from ....plots.style import BAND, FIRST, array
from ....posteriors import NUTS, MeanPosterior, PosteriorWarning, Potential, load_posterior, sample_posterior
from ....posteriors.diagnostics import modes, n_eff, r_hat
from ....posteriors.mixture import log_evidence
from ....results import Record, number
from ...experiment import Experiment, Settings, new_figure, record_table
from ...runner import Case
from . import mixtures
from .mixtures import PUBLISHED, mixture_samples, model

WITNESS_DRAWS = 160
NAME = "kernel.lengthscale"


def sample(path: pathlib.Path | None, num_per_centre: int, num_draws: int, seed: int) -> MeanPosterior:
    """The posterior of the lengthscale, from the file ``path`` where an earlier run left it."""
    if path is not None and path.exists():
        loaded = load_posterior(path, model(), EmbeddingEvidence())
        assert isinstance(loaded, MeanPosterior)
        return loaded
    x = torch.cat(mixture_samples(num_per_centre, seed))
    with warnings.catch_warnings():
        # The chains are expected to disagree.
        warnings.simplefilter("ignore", PosteriorWarning)
        posterior = sample_posterior(
            model(),
            EmbeddingEvidence(),
            x,
            num_samples=num_draws,
            warmup_steps=num_draws,
            num_chains=8,
            seed=seed,
            sampler=NUTS(random_walk=False, parallel=False),  # NUTS alone, as in the paper
        )
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        posterior.save(path)
    return posterior


def _file_name(num_points: int, num_draws: int, seed: int) -> str:
    return f"chains_{num_points}_{num_draws}_{seed}.npz"


def cases(settings: Settings) -> Iterator[Case]:
    """The evidence of the pooled sample over lengthscales; then eight chains over the lengthscale with their modes."""
    per_centre, draws = (10, 10) if settings.quick else (100, 200)
    key: Record = {"n": 6 * per_centre, "seed": settings.seed}
    yield Case({"experiment": "mixtures", **key}, partial(mixtures.mixture_records, per_centre, settings.seed))
    path = None if settings.out is None else settings.out / _file_name(6 * per_centre, draws, settings.seed)
    run = partial(_chain_records, path, per_centre, draws, settings.seed)
    yield Case({"experiment": "chains", **key, "num_draws": draws}, run)


def _chain_records(path: pathlib.Path | None, per_centre: int, draws: int, seed: int) -> list[Record]:
    """One record for each chain, one for each mode, and one for the total cost."""
    posterior = sample(path, per_centre, draws, seed)
    by_chain = posterior.samples_by_chain[NAME].squeeze((-2, -1))
    records: list[Record] = [{"kind": "chain", "number": i, **_place(one[None])} for i, one in enumerate(by_chain)]
    for i, group in enumerate(modes(posterior.draws.u)):
        u, log_density = posterior.draws.u[group].flatten(0, 1), posterior.draws.log_density[group].flatten()
        mode: Record = {"kind": "mode", "number": i, **_place(by_chain[group])}
        mode |= {"r_hat": r_hat(by_chain[group]).item(), "chains": len(group)}
        mode["log_evidence"] = log_evidence(posterior.potential, u, log_density)
        mode["by_quadrature"] = quadrature(posterior.potential, u.numpy())
        records.append(mode)
    cost: Record = {"r_hat": float(r_hat(by_chain)), "seconds": posterior.seconds}
    cost |= {"num_evaluations": posterior.num_evaluations, "num_divergences": posterior.num_divergences}
    return [*records, {"kind": "all", "number": 0, **cost}]


def _place(draws: torch.Tensor) -> Record:
    return {"lengthscale": draws.mean().item(), "sd": draws.std().item(), "n_eff": n_eff(draws).item()}


def quadrature(potential: Potential, u: NDArray[np.float64]) -> float:
    """log Z of a mode by the trapezoidal rule, over the draws ``u`` and as far again to both sides."""
    low, high = u.min(), u.max()
    width = 0.5 * (high - low) or 0.05  # a short chain may never have moved
    grid = np.linspace(low - width, high + width, 101)
    heights = np.array([-potential.value(np.array([point])) for point in grid])
    top = heights.max()
    return float(top + np.log(np.trapezoid(np.exp(heights - top), grid)))


def draw_traces(posterior: MeanPosterior, path: pathlib.Path) -> None:
    """Figure 4: the lengthscale along each chain."""
    figure, panel = new_figure(7.2, 3.4)
    plot_traces(posterior, NAME, ax=panel)
    for value in PUBLISHED:
        panel.axhline(value, color="0.3", linewidth=1.0, linestyle="--", label=f"published {value}")
    panel.set_yscale("log")
    panel.set_ylabel("lengthscale")
    save_picture(figure, path, 100)


def draw_witnesses(posterior: MeanPosterior, num_per_centre: int, seed: int, path: pathlib.Path) -> None:
    """Figure 5: the witness with its 80 % band near the published modes, over equal chains, and by evidence."""
    p, q = mixture_samples(num_per_centre, seed)
    grid = torch.linspace(-5, 5, 160, dtype=p.dtype).unsqueeze(-1)
    thin = posterior.thinned(WITNESS_DRAWS)
    weighted = posterior.weigh_modes().thinned(WITNESS_DRAWS)
    near = [group for value in PUBLISHED if (group := _near(posterior, value))]
    parts = [(f"chains around {_mean(posterior, g):.2f}", thin.reweighted(_only(thin, g))) for g in near]
    parts += [("equal chains, as published", thin), ("modes weighted by evidence", weighted)]
    rows = math.ceil(len(parts) / 2)
    figure, panels = new_figure(7.2, 2.8 * rows, rows, 2, sharex=True, sharey=True, squeeze=False)
    axes = list(panels.flat)
    for empty in axes[len(parts) :]:
        empty.set_axis_off()
    for axis, (title, part) in zip(axes, parts, strict=False):
        mixture = part.witness(p, q).mixture(grid)
        lower, upper = mixture.band(0.8)
        axis.fill_between(
            array(grid.squeeze(-1)), array(lower), array(upper), color=BAND, linewidth=0, label="80 % band"
        )
        axis.plot(array(grid.squeeze(-1)), array(mixture.matched.mean), color=FIRST, label="witness")
        axis.axhline(0.0, color="0.5", linewidth=0.8)
        axis.set_title(title, fontsize=10)
        axis.set(xlabel="x", ylabel="witness μ_P(x) − μ_Q(x)")
        axis.label_outer()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    save_picture(figure, path, 100)


def _mean(posterior: MeanPosterior, group: list[int]) -> float:
    return float(posterior.samples_by_chain[NAME][group].mean())


def _near(posterior: MeanPosterior, value: float) -> list[int]:
    """The chains whose mean lengthscale is within a factor of 1.5 of a value."""
    means = posterior.samples_by_chain[NAME].flatten(1).mean(1)
    return [chain for chain, mean in enumerate(means.tolist()) if 1 / 1.5 < mean / value < 1.5]


def _only(posterior: MeanPosterior, group: list[int]) -> torch.Tensor:
    weights = torch.zeros(posterior.num_chains, posterior.num_samples, dtype=torch.float64)
    weights[group] = 1.0
    return weights.reshape(-1)


def summary(records: Sequence[Record]) -> str:
    """The maxima and those of the paper, and the modes with their draws and their evidence."""
    by_maxima, by_chains = _split(records)
    columns = {
        "lengthscale in each mode": "{lengthscale:.3f} ± {sd:.3f}", "chains": "{chains}", "n_eff": "{n_eff:.0f}",
        "R-hat": "{r_hat:.2f}", "log evidence: bridge": "{log_evidence:.2f}", "quadrature": "{by_quadrature:.2f}",
    }  # fmt: skip
    text = record_table([r for r in by_chains if r["kind"] == "mode"], columns)
    cost = next(r for r in by_chains if r["kind"] == "all")
    note = f"All chains together: R-hat {cost['r_hat']:.1f}; {cost['num_evaluations']} evaluations."
    return f"{mixtures.summary(by_maxima)}\n\n{text}\n\n{note}"


def draw(records: Sequence[Record], out: pathlib.Path) -> None:
    """``figure1``, ``figure3``, ``figure4``, ``figure5`` and ``figure5_posterior``."""
    by_maxima, by_chains = _split(records)
    n, draws, seed = (int(number(by_chains[-1], field)) for field in ("n", "num_draws", "seed"))
    mixtures.draw_model(out / "figure1.png")
    mixtures.draw_mixtures(by_maxima, out / "figure3.png")
    lengthscales = sorted(number(r, "lengthscale") for r in by_maxima if r["kind"] == "maximum")
    mixtures.draw_witnesses(lengthscales, *mixture_samples(n // 6, seed), out / "figure5.png")
    posterior = sample(out / _file_name(n, draws, seed), n // 6, draws, seed)
    draw_traces(posterior, out / "figure4.png")
    draw_witnesses(posterior, n // 6, seed, out / "figure5_posterior.png")


def _split(records: Sequence[Record]) -> list[list[Record]]:
    return [[r for r in records if r["experiment"] == tag] for tag in ("mixtures", "chains")]


WITNESS = Experiment(
    "witness", "two maxima of the evidence, chains at each, and the witness", "ten minutes",
    ("experiment", "kind", "lengthscale"), cases, summary, draw, options=frozenset({"seed"}), paper="Flaxman et al.",
    part="Figures 1, 3, 4, 5", tag=("mixtures", "chains"),
)  # fmt: skip
