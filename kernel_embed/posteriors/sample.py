"""``sample_posterior(embedding, objective, x, y)``, and the points where its chains start."""

from __future__ import annotations

import dataclasses
import math
import os
import threading
import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict, overload

import gpytorch
import numpy as np
import torch
from torch import Tensor

from ..embeddings import BayesianMeanEmbedding, ConditionalEmbedding, MulticlassEmbedding
from ..learning.loss import fingerprint
from ..learning.parameters import Vector, user_name
from ..objectives import Objective
from ..runtime import cpu_by_default, enabled_gradients, few_threads, progress_bar, usable_for_gradients
from ..validation import check_count, check_features, check_seed
from .draws import Draws, problems
from .nuts import NUTS
from .posterior import Posterior
from .potential import AnyObjective, Potential, quiet_numbers
from .predictors import (
    ConditionalObjective,
    ConditionalPosterior,
    MeanObjective,
    MeanPosterior,
    MulticlassObjective,
    MulticlassPosterior,
)
from .priors import PosteriorWarning, PriorSite, describe, prior_draw
from .sampler import Checkpoint, Plan, Sampler

if TYPE_CHECKING:
    from typing_extensions import Unpack

Path: TypeAlias = str | os.PathLike[str]
Initial: TypeAlias = Literal["prior", "current"] | Mapping[str, Tensor]
MAX_TRIES = 200
SUPPORT_DRAWS = 1000
CHECKPOINT_FORMAT = 3  # of the state of a chain in a file
MAX_OUTSIDE = 0.005  # share of the prior mass outside the constraint above which there is a warning
_LOCK = threading.RLock()  # Pyro draws from torch's global generator, so that only one thread samples at a time


class Settings(TypedDict, total=False):
    """The keyword arguments of :func:`sample_posterior`."""

    num_samples: int
    warmup_steps: int
    num_chains: int
    seed: int | None
    sampler: Sampler | None
    temperature: float
    power: float
    initial: Initial
    progress: bool | None
    checkpoint: Path | None


@overload
def sample_posterior(
    embedding: MulticlassEmbedding, objective: MulticlassObjective, x: Tensor, y: Tensor, **settings: Unpack[Settings]
) -> MulticlassPosterior:
    """The posterior of a multiclass embedding."""


@overload
def sample_posterior(
    embedding: ConditionalEmbedding, objective: ConditionalObjective, x: Tensor, y: Tensor, **settings: Unpack[Settings]
) -> ConditionalPosterior:
    """The posterior of a conditional embedding."""


@overload
def sample_posterior(
    embedding: BayesianMeanEmbedding, objective: MeanObjective, x: Tensor, y: None = None, **settings: Unpack[Settings]
) -> MeanPosterior:
    """The posterior of a Bayesian mean embedding, given the sample ``x`` alone."""


@overload
def sample_posterior(
    embedding: gpytorch.Module,
    objective: AnyObjective,
    x: Tensor,
    y: Tensor | None = None,
    **settings: Unpack[Settings],
) -> Posterior:
    """The posterior of an embedding whose class a type checker does not know."""


@cpu_by_default()
@enabled_gradients()
def sample_posterior(
    embedding: gpytorch.Module,
    objective: AnyObjective,
    x: Tensor,
    y: Tensor | None = None,
    *,
    num_samples: int = 500,
    warmup_steps: int = 500,
    num_chains: int = 4,
    seed: int | None = None,
    sampler: Sampler | None = None,
    temperature: float = 1.0,
    power: float = 1.0,
    initial: Initial = "prior",
    progress: bool | None = None,
    checkpoint: Path | None = None,
) -> Posterior:
    """Draw the hyperparameters of ``embedding`` given data, for predictions averaged over them.

    The density is that of the priors registered on the modules (default ones for parameters without, see
    :func:`kernel_embed.posteriors.default_prior`) times exp(−c q), with q the objective: a posterior for an evidence,
    and a Gibbs posterior with c = n · temperature for a risk. ``posterior.kind`` names it. The embedding is not
    changed. Ctrl-C ends the sampling and returns the draws so far.

    Args:
        embedding: any embedding of this package.
        objective: what ``fit`` would minimize.
        x: inputs ``(n, d)``.
        y: targets, for embeddings that have them.
        num_samples: draws of each chain, after warm-up.
        warmup_steps: draws of each chain before, in which step size and mass matrix are adapted.
        num_chains: number of chains, each with its own starting point.
        seed: the same seed gives the same draws, even if other threads sample too: they wait for each other.
        sampler: :class:`~kernel_embed.NUTS` by default; :class:`~kernel_embed.SMC` finds the weights of several modes
            and estimates the evidence; :class:`~kernel_embed.Laplace` and :class:`~kernel_embed.SVI` are fast
            approximations; or your own :class:`~kernel_embed.posteriors.Sampler`.
        temperature: multiplies the exponent; see :func:`kernel_embed.posteriors.choose_temperature`.
        power: the power of the whole density, priors included: the larger, the nearer all draws are to the mode;
            see :func:`kernel_embed.posteriors.choose_power`.
        initial: starting points: ``"prior"``, ``"current"`` for the embedding as it is, or values by name
            (``{"kernel.lengthscale": values}``), with a leading dimension of ``num_chains`` or the same for all.
        progress: show a progress bar; by default on a terminal or in a notebook.
        checkpoint: chains are written to the files ``checkpoint.0``, ``checkpoint.1``, … The same call resumes a run
            with the same draws; a larger ``num_samples`` extends it. Needs a seed and :class:`~kernel_embed.NUTS`.

    Returns:
        A posterior with ``samples``, ``summary()``, ``to_arviz()`` and the methods of ``embedding.condition(x, y)``.

    Raises:
        TypeError: if ``objective`` or ``sampler`` is of another kind, ``x`` is not a tensor of real numbers, or a count
            is not a whole number.
        ValueError: if ``x`` is empty or not finite, ``temperature`` or ``power`` not positive and finite, a prior
            has no mass inside its constraint, or the sampler returns draws of another shape.

    Example:
        >>> import kernel_embed as ke
        >>> x = torch.linspace(0, 1, 30, dtype=torch.float64).unsqueeze(-1)
        >>> y = (x.squeeze(-1) > 0.5).long()
        >>> kernel = gpytorch.kernels.RBFKernel(lengthscale_prior=gpytorch.priors.LogNormalPrior(-1.0, 1.0))
        >>> embedding = ke.MulticlassEmbedding(kernel, num_classes=2)
        >>> posterior = ke.sample_posterior(
        ...     embedding, ke.ConditionalEvidence(), x, y, num_samples=15, warmup_steps=60, num_chains=2, seed=0
        ... )
        >>> posterior.kind, posterior.samples["kernel.lengthscale"].shape, posterior.probabilities(x).shape
        ('posterior: prior × evidence', torch.Size([30, 1, 1]), torch.Size([30, 2]))
    """
    sampler = NUTS() if sampler is None else sampler
    if not isinstance(objective, Objective):
        raise TypeError(f"objective must be an Objective, such as ConditionalEvidence(), not {objective!r:.80}.")
    if not isinstance(sampler, Sampler):
        raise TypeError(f"The sampler must be a Sampler, such as NUTS() or SMC(), not {sampler!r}.")
    num_samples, num_chains = check_count("num_samples", num_samples), check_count("num_chains", num_chains)
    warmup_steps = check_count("warmup_steps", warmup_steps, 0)
    check_seed(seed)
    seed = None if seed is None else int(seed)  # NumPy's integers cannot be written to a checkpoint
    x, y, embedding = check_features(x), usable_for_gradients(y), usable_for_gradients(embedding)
    first, *seeds = (int(s) for s in np.random.SeedSequence(seed).generate_state(num_chains + 1))
    with _LOCK, few_threads(x.shape[-2]), torch.random.fork_rng(devices=[]), quiet_numbers():
        torch.manual_seed(first)
        potential = Potential(embedding, objective, x, y, temperature, power)
        check_support(potential.sites, potential.embedding)
        starts = starting_points(potential, initial, num_chains, first) if sampler.uses_starts else []
        steps = num_samples + (warmup_steps if sampler.uses_warmup else 0)
        with progress_bar(steps * num_chains, sampler.name, progress) as bar:
            files = None if checkpoint is None else _checkpoint(checkpoint, potential, sampler, seed, warmup_steps)
            plan = Plan(starts, num_samples, warmup_steps, seeds, bar, files, from_prior=initial == "prior")
            started = time.perf_counter()
            draws = sampler.sample(potential, plan)
            seconds = time.perf_counter() - started
    _check_draws(draws, sampler, potential.dimension)
    num_evaluations, num_rejected = potential.num_evaluations, potential.num_rejected
    draws = dataclasses.replace(draws, seconds=seconds, num_evaluations=num_evaluations, num_rejected=num_rejected)
    posterior = posterior_class(embedding)(potential, draws, sampler.name)
    if not sampler.is_independent:
        for problem in problems(draws, posterior.samples_by_chain, getattr(sampler, "max_tree_depth", None)):
            warnings.warn(problem, PosteriorWarning, stacklevel=3)
    return posterior


def posterior_class(embedding: gpytorch.Module) -> type[Posterior]:
    """The class of posteriors of this embedding."""
    if isinstance(embedding, ConditionalEmbedding):
        return MulticlassPosterior if isinstance(embedding, MulticlassEmbedding) else ConditionalPosterior
    return MeanPosterior if isinstance(embedding, BayesianMeanEmbedding) else Posterior


def _check_draws(draws: Draws, sampler: Sampler, dimension: int) -> None:
    """Check the result of a user's sampler."""
    if not isinstance(draws, Draws):
        raise TypeError(f"{sampler!r} must return Draws, not {type(draws).__name__}.")
    shape = tuple(draws.u.shape)
    if len(shape) != 3 or shape[-1] != dimension or 0 in shape:
        raise ValueError(f"u of {sampler!r} must have the shape (num_chains, num_samples, {dimension}), not {shape}.")
    for name, values in (("log_density", draws.log_density), ("diverging", draws.diverging)):
        if values.shape != draws.u.shape[:2]:
            raise ValueError(f"{name} of {sampler!r} must have the shape {shape[:2]}, not {tuple(values.shape)}.")


def _checkpoint(path: Path, potential: Potential, sampler: Sampler, seed: int | None, warmup_steps: int) -> Checkpoint:
    """The files of the chains, with everything that identifies this posterior."""
    if not sampler.can_resume or seed is None:
        raise ValueError(f"checkpoint= needs NUTS() and a seed, not {sampler!r} and {seed}. Give both, or neither.")
    identity = {
        "format": CHECKPOINT_FORMAT,
        "objective": f"{potential.objective!r} at temperature {potential.temperature!r}, power {potential.power!r}",
        "priors": {site.name: site.describe() for site in potential.sites},
        "data": fingerprint(*potential.data),
        "sampler": repr(dataclasses.replace(sampler, **({"parallel": None} if hasattr(sampler, "parallel") else {}))),
        "seed": seed,
        "warmup_steps": warmup_steps,
        "point": potential.vector.get().tolist(),
    }
    return Checkpoint(os.fspath(path), identity)


def starting_points(potential: Potential, initial: Initial, num_chains: int, seed: int) -> list[Vector]:
    """One raw vector for each chain; ``initial`` and ``seed`` as in :func:`kernel_embed.sample_posterior`."""
    if initial == "prior":
        return prior_draws(potential, num_chains, seed)
    if not isinstance(initial, Mapping) and initial != "current":
        raise ValueError(f"initial must be 'prior', 'current' or a dictionary of values by name, not {initial!r}.")
    current, points = potential.vector.get(), []
    dims = {name: value.dim() for name, value in potential.constrained(torch.from_numpy(current)).items()}
    for chain in range(num_chains):
        given = initial.items() if isinstance(initial, Mapping) else ()
        values = {name: torch.as_tensor(value, device="cpu") for name, value in given}
        for name, value in values.items():
            by_chain = value.dim() > dims.get(name, 0) and value.shape[0] == num_chains
            if by_chain or (value.dim() == 1 and len(value) == num_chains > 1):
                values[name] = value[chain]
        potential.vector.set(current)
        points.append(potential.unconstrained(values))
        if not math.isfinite(potential.value(points[-1])):
            start = potential.constrained(torch.from_numpy(points[-1])).items()
            text = ", ".join(f"{name} = {value.flatten()[:4].tolist()}" for name, value in start)
            raise ValueError(f"The posterior density is not finite at the starting point {text}. Use initial='prior'.")
    return points


def prior_draws(potential: Potential, count: int, seed: int) -> list[Vector]:
    """Draws from the prior at which the likelihood exists; the others are drawn again."""
    current, points = potential.vector.get(), list[Vector]()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(count):
            for _ in range(MAX_TRIES):
                point = prior_draw(potential.sites, potential.vector, current)
                if point is not None and math.isfinite(potential.value(point)):
                    break
            else:
                raise ValueError(
                    f"The objective cannot be evaluated under the prior: at none of {MAX_TRIES} draws does K factorize "
                    "with finite values. Narrow the prior, or start at initial='current'."
                )
            points.append(point)
    return points


def check_support(sites: list[PriorSite], embedding: gpytorch.Module) -> None:
    """Warn of priors with mass outside the constraint of their parameter, by draws with the global generator."""
    for site in sites:
        constraint = None if site.parameter is None else embedding.constraint_for_parameter_name(site.parameter)
        if site.is_default or constraint is None or site.name != user_name(str(site.parameter)):
            continue
        try:
            draws = site.draw(SUPPORT_DRAWS)
        except TypeError:
            continue
        share = float((~((draws >= constraint.lower_bound) & (draws <= constraint.upper_bound))).double().mean())
        prior = f"{describe(site.prior)} on {site.name}"
        if share > 1.0 - MAX_OUTSIDE:
            raise ValueError(f"All draws from {prior} lie outside its constraint {constraint}. Change one of them.")
        if share > MAX_OUTSIDE:
            warnings.warn(
                f"The prior {prior} has {100 * share:.0f} % of its mass outside the constraint {constraint}, and is "
                "truncated. Use a prior on positive numbers, such as LogNormalPrior.",
                PosteriorWarning,
                stacklevel=4,
            )
