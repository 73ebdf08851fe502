"""Figures 1, 3, 4 and 5 of the Bayesian kernel embeddings: mixtures on the line, by maxima and by NUTS chains.

Figure 3 is a mixture of normals against a mixture of Laplace distributions with the same means and variances. The
evidence of their pooled sample, with a Gamma(1, 1) prior on the lengthscale, has two maxima, the scale of a component
and that of the whole. Eight chains (Figure 4) stay in the mode they start in. Figure 5 is the witness at each maximum;
as published it averages the chains equally, and weighted by the evidence of their modes they give another picture.
"""

from __future__ import annotations

import math
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from functools import partial

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from numpy.typing import NDArray
from torch import Tensor

from ...embeddings import BayesianMeanEmbedding, MeanEmbedding, Witness
from ...objectives import EmbeddingEvidence
from ...plots import plot_embedding, plot_traces, plot_witness, save_picture
from ...plots.style import BAND, FIRST, array, legend_below, line_style
from ...posteriors import NUTS, MeanPosterior, PosteriorWarning, Potential, load_posterior, sample_posterior
from ...posteriors.draws import modes, n_eff, r_hat
from ...posteriors.smc import log_evidence
from ...results import Record, number
from ..experiment import Experiment, Settings, new_figure, record_table
from ..runner import Case
from .flaxman2016_grid import curve, evidence_records

CENTRES = (-3.0, 0.0, 3.0)
LAPLACE_SCALE = math.sqrt(0.5)
"""The scale of a Laplace distribution with unit variance."""
PUBLISHED = (0.49, 2.9)
WITNESS_DRAWS = 160
NAME = "kernel.lengthscale"


def mixture_samples(num_per_centre: int = 100, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Samples of the mixture of normals and of the mixture of Laplace distributions."""
    generator = np.random.RandomState(seed)
    centres = np.array(CENTRES).repeat(num_per_centre)
    p = centres + generator.standard_normal(len(centres))
    q = centres + generator.laplace(scale=LAPLACE_SCALE, size=len(centres))
    return torch.as_tensor(p).unsqueeze(-1), torch.as_tensor(q).unsqueeze(-1)


def densities(x: Tensor) -> tuple[Tensor, Tensor]:
    """The densities of the two mixtures at the points ``x``, Figure 3."""
    distances = x.unsqueeze(-1) - torch.tensor(CENTRES, dtype=x.dtype, device=x.device)
    normal = torch.exp(-0.5 * distances.square()) / math.sqrt(2.0 * math.pi)
    laplace = torch.exp(-distances.abs() / LAPLACE_SCALE) / (2.0 * LAPLACE_SCALE)
    return normal.mean(-1), laplace.mean(-1)


def model() -> BayesianMeanEmbedding:
    """Squared exponential with a Gamma(1, 1) prior on its lengthscale, σ² = 0.1, as in the paper's program."""
    prior = gpytorch.priors.GammaPrior(1.0, 1.0)
    return BayesianMeanEmbedding(RBFKernel(lengthscale_prior=prior), noise=0.1).double()


def sample(path: pathlib.Path | None, num_per_centre: int, num_draws: int, seed: int) -> MeanPosterior:
    """The posterior of the lengthscale, from the file ``path`` where an earlier run left it."""
    if path is not None and path.exists():
        loaded = load_posterior(path, model(), EmbeddingEvidence())
        assert isinstance(loaded, MeanPosterior)
        return loaded
    with warnings.catch_warnings():
        # The chains are expected to disagree.
        warnings.simplefilter("ignore", PosteriorWarning)
        posterior = sample_posterior(
            model(), EmbeddingEvidence(), torch.cat(mixture_samples(num_per_centre, seed)), num_samples=num_draws,
            warmup_steps=num_draws, num_chains=8, seed=seed,
            sampler=NUTS(random_walk=False, parallel=False),  # NUTS alone, as in the paper
        )  # fmt: skip
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        posterior.save(path)
    return posterior


def _file_name(num_points: int, num_draws: int, seed: int) -> str:
    return f"chains_{num_points}_{num_draws}_{seed}.npz"


def _cases(settings: Settings) -> Iterator[Case]:
    """The evidence of the pooled sample over lengthscales; then eight chains over the lengthscale with their modes."""
    per_centre, draws = (10, 10) if settings.quick else (100, 200)
    key: Record = {"n": 6 * per_centre, "seed": settings.seed}
    # The maxima are those of the evidence times the prior; their values are those of the evidence alone.
    x = torch.cat(mixture_samples(per_centre, settings.seed))
    maxima = partial(evidence_records, model(), x, np.geomspace(0.2, 8.0, 120), num_points=30)
    yield Case({"experiment": "mixtures", **key}, maxima)
    path = None if settings.out is None else settings.out / _file_name(6 * per_centre, draws, settings.seed)
    run = partial(_chains, path, per_centre, draws, settings.seed)
    yield Case({"experiment": "chains", **key, "num_draws": draws}, run)


def _chains(path: pathlib.Path | None, per_centre: int, draws: int, seed: int) -> list[Record]:
    """One record for each chain, one for each mode, and one for the total cost."""
    posterior = sample(path, per_centre, draws, seed)
    by_chain = posterior.samples_by_chain[NAME].squeeze((-2, -1))

    def place(draws: Tensor) -> Record:
        return {"lengthscale": draws.mean().item(), "sd": draws.std().item(), "n_eff": n_eff(draws).item()}

    records: list[Record] = [{"kind": "chain", "number": i, **place(one[None])} for i, one in enumerate(by_chain)]
    for i, group in enumerate(modes(posterior.draws.u)):
        u, log_density = posterior.draws.u[group].flatten(0, 1), posterior.draws.log_density[group].flatten()
        mode: Record = {"kind": "mode", "number": i, **place(by_chain[group])}
        mode |= {"r_hat": r_hat(by_chain[group]).item(), "chains": len(group)}
        mode["log_evidence"] = log_evidence(posterior.potential, u, log_density)
        mode["by_quadrature"] = _quadrature(posterior.potential, u.numpy())
        records.append(mode)
    cost: Record = {"r_hat": float(r_hat(by_chain)), "seconds": posterior.seconds}
    cost |= {"num_evaluations": posterior.num_evaluations, "num_divergences": posterior.num_divergences}
    return [*records, {"kind": "all", "number": 0, **cost}]


def _quadrature(potential: Potential, u: NDArray[np.float64]) -> float:
    """log Z of a mode by the trapezoidal rule, over the draws ``u`` and as far again to both sides."""
    low, high = u.min(), u.max()
    width = 0.5 * (high - low) or 0.05  # a short chain may never have moved
    grid = np.linspace(low - width, high + width, 101)
    heights = np.array([-potential.value(np.array([point])) for point in grid])
    top = heights.max()
    return float(top + np.log(np.trapezoid(np.exp(heights - top), grid)))


def _draw_model(path: pathlib.Path) -> None:
    """Figure 1: (A) draws of the prior, (B) the empirical embedding, (C) the posterior and the truth."""
    lengthscale, num_data, centres, generator = 0.25, 20, np.array([-1.0, 1.0]), np.random.RandomState(1)
    data = torch.as_tensor(generator.choice(centres, num_data) + 0.5 * generator.standard_normal(num_data))[:, None]
    embedding = BayesianMeanEmbedding(RBFKernel(), noise=0.01).double()
    embedding.kernel.lengthscale = lengthscale
    grid = torch.linspace(-3, 3, 200, dtype=torch.float64).unsqueeze(-1)
    # the convolution of k with a mixture of Gaussians of variance 0.25
    variance = lengthscale**2 + 0.25
    distances = grid - torch.as_tensor(centres)
    truth = lengthscale / math.sqrt(variance) * torch.exp(-0.5 * distances.square() / variance).mean(-1)
    figure, panels = new_figure(7.2, 6.4, 2, 2, sharex=True)  # two columns, which a narrow screen can still show
    *axes, empty = panels.flat
    empty.set_axis_off()
    with torch.no_grad():
        R = embedding.prior(grid).covariance_matrix
        root = torch.linalg.cholesky(R + 1e-8 * torch.eye(len(R), dtype=R.dtype, device=R.device))
        draws = root @ torch.as_tensor(generator.standard_normal((len(R), 3)))
        mean = MeanEmbedding(embedding.kernel).condition(data)(grid)
    x = array(grid.squeeze(-1))
    for i, draw in enumerate(array(draws).T):
        axes[0].plot(x, draw, label=f"draw {i + 1}", **line_style(i))
    axes[0].set(title="(A) draws from the prior", ylabel="embedding μ(x)")
    axes[1].plot(x, array(mean), color=FIRST, label="empirical embedding")
    axes[1].plot(array(data), [0.0] * num_data, "|", color="0.4", label="sample")
    axes[1].set_title("(B) empirical embedding")
    plot_embedding(embedding.condition(data), grid, ax=axes[2])
    axes[2].plot(x, array(truth), label="truth", **line_style(1))
    axes[2].set(title="(C) posterior", ylabel="")
    for panel in axes:
        panel.set_xlabel("x")
        panel.tick_params(labelbottom=True)
        legend_below(panel)
    save_picture(figure, path, 100)


def _draw_witnesses(lengthscales: Sequence[float], p: Tensor, q: Tensor, path: pathlib.Path) -> None:
    """Figure 5 (A, B): the witness with its 80 % band at each maximum, with σ² = 0.1 and by the central limit."""
    figure, axes = new_figure(3.6 * len(lengthscales), 5.6, 2, len(lengthscales), squeeze=False)
    grid = torch.linspace(-5, 5, 200, dtype=p.dtype, device=p.device).unsqueeze(-1)
    for row, noise in zip(axes, (0.1, "central-limit"), strict=True):
        for panel, lengthscale in zip(row, lengthscales, strict=True):
            embedding = BayesianMeanEmbedding(RBFKernel().to(p), noise=noise)  # type: ignore[arg-type]
            embedding.kernel.lengthscale = lengthscale
            plot_witness(Witness(embedding, p, q), grid, ax=panel)
            panel.set_title(f"lengthscale {lengthscale:.2f}, noise {noise}", fontsize=10)
            legend_below(panel)
    save_picture(figure, path, 100)


def _draw_averages(posterior: MeanPosterior, p: Tensor, q: Tensor, path: pathlib.Path) -> None:
    """Figure 5: the witness with its 80 % band near the published modes, over equal chains, and by evidence."""
    grid = torch.linspace(-5, 5, 160, dtype=p.dtype).unsqueeze(-1)
    thin, means = posterior.thinned(WITNESS_DRAWS), posterior.samples_by_chain[NAME].flatten(1).mean(1)
    parts = []
    for value in PUBLISHED:
        near = (means / value > 1 / 1.5) & (means / value < 1.5)
        if near.any():
            only = near.double().repeat_interleave(thin.num_samples)
            parts.append((f"chains around {means[near].mean():.2f}", thin.reweighted(only)))
    parts.append(("equal chains, as published", thin))
    parts.append(("modes weighted by evidence", posterior.weigh_modes().thinned(WITNESS_DRAWS)))
    rows = math.ceil(len(parts) / 2)
    figure, panels = new_figure(7.2, 2.8 * rows, rows, 2, sharex=True, sharey=True, squeeze=False)
    for empty in list(panels.flat)[len(parts) :]:
        empty.set_axis_off()
    x = array(grid.squeeze(-1))
    for axis, (title, part) in zip(panels.flat, parts, strict=False):
        mixture = part.witness(p, q).mixture(grid)
        axis.fill_between(x, *map(array, mixture.band(0.8)), color=BAND, linewidth=0, label="80 % band")
        axis.plot(x, array(mixture.matched.mean), color=FIRST, label="witness")
        axis.axhline(0.0, color="0.5", linewidth=0.8)
        axis.set_title(title, fontsize=10)
        axis.set(xlabel="x", ylabel="witness μ_P(x) − μ_Q(x)")
        axis.label_outer()
    figure.legend(*panels.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    save_picture(figure, path, 100)


def _split(records: Sequence[Record]) -> list[list[Record]]:
    return [[r for r in records if r["experiment"] == tag] for tag in ("mixtures", "chains")]


def _summarize(records: Sequence[Record]) -> str:
    """The maxima and those of the paper, and the modes with their draws and their evidence."""
    by_maxima, by_chains = _split(records)
    columns = {"normal against Laplace: lengthscale": "{lengthscale:.2f}", "log evidence": "{log_evidence:.0f}"}
    maxima = record_table([r for r in by_maxima if r["kind"] == "maximum"], columns)
    columns = {
        "lengthscale in each mode": "{lengthscale:.3f} ± {sd:.3f}", "chains": "{chains}", "n_eff": "{n_eff:.0f}",
        "R-hat": "{r_hat:.2f}", "log evidence: bridge": "{log_evidence:.2f}", "quadrature": "{by_quadrature:.2f}",
    }  # fmt: skip
    chains = record_table([r for r in by_chains if r["kind"] == "mode"], columns)
    cost = next(r for r in by_chains if r["kind"] == "all")
    note = f"All chains together: R-hat {cost['r_hat']:.1f}; {cost['num_evaluations']} evaluations."
    published = f"Published: chains around {PUBLISHED[0]} and {PUBLISHED[1]}."
    return "\n\n".join([maxima, published, chains, note])


def _draw(records: Sequence[Record], out: pathlib.Path) -> None:
    """All pictures; Figure 3 is the densities and the evidence of the pooled sample, Figure 4 the chains."""
    by_maxima, by_chains = _split(records)
    n, draws, seed = (int(number(by_chains[-1], field)) for field in ("n", "num_draws", "seed"))
    p, q = mixture_samples(n // 6, seed)
    _draw_model(out / "figure1.png")
    figure, axes = new_figure(7.2, 3.4, 1, 2)
    grid = torch.linspace(-6, 6, 400, dtype=torch.float64)
    for i, (name, density) in enumerate(zip(("normal", "Laplace"), densities(grid), strict=True)):
        axes[0].plot(array(grid), array(density), label=name, **line_style(i))
    legend_below(axes[0])
    axes[0].set(xlabel="x", ylabel="density")
    curve(by_maxima, axes[1])
    save_picture(figure, out / "figure3.png", 100)
    posterior = sample(out / _file_name(n, draws, seed), n // 6, draws, seed)
    figure, panel = new_figure(7.2, 3.4)
    plot_traces(posterior, NAME, ax=panel)
    for value in PUBLISHED:
        panel.axhline(value, color="0.3", linewidth=1.0, linestyle="--", label=f"published {value}")
    panel.set(yscale="log", ylabel="lengthscale")
    save_picture(figure, out / "figure4.png", 100)
    lengthscales = sorted(number(r, "lengthscale") for r in by_maxima if r["kind"] == "maximum")
    _draw_witnesses(lengthscales, p, q, out / "figure5.png")
    _draw_averages(posterior, p, q, out / "figure5_posterior.png")


WITNESS = Experiment(
    "witness", "two maxima of the evidence, chains at each, and the witness", "ten minutes",
    ("experiment", "kind", "lengthscale"), _cases, _summarize, _draw, options="seed", paper="Flaxman et al.",
    part="Figures 1, 3, 4, 5", tag=("mixtures", "chains"),
)  # fmt: skip
