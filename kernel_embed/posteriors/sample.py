"""``sample_posterior(embedding, objective, x, y)``: any embedding with any objective, fully Bayesian."""

from __future__ import annotations

import dataclasses
import hashlib
import operator
import os
import threading
from typing import TYPE_CHECKING, TypedDict, overload

import gpytorch
import numpy as np
import torch
from torch import Tensor

from ..embeddings import (
    BayesianMeanEmbedding,
    ConditionalEmbedding,
    ConditionedEmbedding,
    ConditionedMeanEmbedding,
    ConditionedMulticlass,
    MulticlassEmbedding,
)
from ..objectives import Objective
from ..progress import progress_bar
from ..threads import few_threads
from ..validation import check_features, check_seed
from .checkpoint import Checkpoint
from .diagnostics import tell
from .draws import Draws
from .posterior import Posterior
from .potential import AnyObjective, Potential, quiet_numbers
from .predictors import ConditionalPosterior, MeanPosterior, MulticlassPosterior, posterior_class
from .priors import check_support
from .samplers.base import Sampler
from .samplers.nuts import NUTS
from .starts import Initial, Plan, Starts, starting_points

if TYPE_CHECKING:
    from typing_extensions import Unpack


_ONE_AT_A_TIME = threading.RLock()
"""Pyro draws from torch's global generator, which is lent to one call at a time: threads wait for one another."""


class Settings(TypedDict, total=False):
    """The arguments of :func:`sample_posterior` by keyword."""

    num_samples: int
    warmup_steps: int
    num_chains: int
    seed: int | None
    sampler: Sampler | None
    temperature: float
    power: float
    initial: Initial
    progress: bool | None
    checkpoint: str | os.PathLike[str] | None


@overload
def sample_posterior(
    embedding: MulticlassEmbedding,
    objective: Objective[ConditionedMulticlass],
    x: Tensor,
    y: Tensor,
    **settings: Unpack[Settings],
) -> MulticlassPosterior:
    """Of a multiclass embedding."""


@overload
def sample_posterior(
    embedding: ConditionalEmbedding,
    objective: Objective[ConditionedEmbedding],
    x: Tensor,
    y: Tensor,
    **settings: Unpack[Settings],
) -> ConditionalPosterior:
    """Of a conditional embedding."""


@overload
def sample_posterior(
    embedding: BayesianMeanEmbedding,
    objective: Objective[ConditionedMeanEmbedding],
    x: Tensor,
    y: None = None,
    **settings: Unpack[Settings],
) -> MeanPosterior:
    """Of a mean embedding."""


@overload
def sample_posterior(
    embedding: gpytorch.Module,
    objective: AnyObjective,
    x: Tensor,
    y: Tensor | None = None,
    **settings: Unpack[Settings],
) -> Posterior:
    """Of any other."""


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
    checkpoint: str | os.PathLike[str] | None = None,
) -> Posterior:
    r"""Draws of the hyperparameters of ``embedding`` given data, and every question averaged over them.

    The density is that of the priors registered on the modules (default ones for parameters without, see
    :func:`kernel_embed.posteriors.priors.default_prior`) times exp(−c q), with q the objective. For
    :class:`kernel_embed.EmbeddingEvidence` and :class:`kernel_embed.ConditionalEvidence` this is the posterior of a
    model; for risks and the Rademacher complexity, with c = n · temperature, a Gibbs posterior. ``posterior.kind`` says
    which. The embedding is not changed. Ctrl-C ends the sampling and returns the draws so far.

    Args:
        embedding: any embedding of this package.
        objective: what ``fit`` would minimize.
        x: inputs ``(n, d)``.
        y: targets, for embeddings that have them.
        num_samples: draws of each chain, after warm-up.
        warmup_steps: draws of each chain before, in which step size and mass matrix are adapted.
        num_chains: chains, each from a start of its own.
        seed: the same seed gives the same draws, whatever other threads sample: they take turns.
        sampler: :class:`~kernel_embed.NUTS` with its options, by default;
            :class:`~kernel_embed.SMC`, sequential Monte Carlo from the prior, which weighs several modes
            rightly and estimates the evidence; a fast answer, :class:`~kernel_embed.Laplace`, the Gaussian
            at the highest mode, or :class:`~kernel_embed.SVI`, a Gaussian guide fitted by Pyro; or a
            :class:`~kernel_embed.posteriors.Sampler` of your own.
        temperature: multiplies the exponent; see :func:`kernel_embed.posteriors.choose_temperature`.
        power: the power of the whole density, priors included: the larger, the nearer all draws are to the mode;
            see :func:`kernel_embed.posteriors.choose_power`.
        initial: where chains start: ``"prior"``, ``"current"`` for the embedding as it is, or values by name
            (``{"kernel.lengthscale": values}``), with a leading dimension of ``num_chains`` or the same for all.
        progress: show a progress bar; by default on a terminal or in a notebook.
        checkpoint: where chains are written while they run, ``checkpoint.0`` and so on, and resumed from after an
            interruption: the same call gives the draws of a run that never stopped. More ``num_samples`` go on
            where the chains ended. Of :class:`~kernel_embed.NUTS` only, and with a seed.

    Returns:
        A posterior with ``samples``, ``summary()``, ``to_arviz()`` and the questions of ``embedding.condition(x, y)``.

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
        >>> posterior.kind, posterior.samples["kernel.lengthscale"].shape
        ('posterior: prior × evidence', torch.Size([30, 1, 1]))
        >>> posterior.probabilities(x).shape, sorted(posterior.summary()["regularization"])[-4:]
        (torch.Size([30, 2]), ['n_eff', 'n_eff_tail', 'r_hat', 'std'])
    """
    sampler = NUTS() if sampler is None else sampler
    _check_values(objective, sampler)
    num_samples = _count(num_samples, "num_samples", 1)
    warmup_steps, num_chains = _count(warmup_steps, "warmup_steps", 0), _count(num_chains, "num_chains", 1)
    check_seed(seed)
    x = check_features(x)
    first, *seeds = (int(s) for s in np.random.SeedSequence(seed).generate_state(num_chains + 1))
    with _ONE_AT_A_TIME, few_threads(x.shape[-2]), torch.random.fork_rng(devices=[]), quiet_numbers():
        torch.manual_seed(first)
        potential = Potential(embedding, objective, x, y, temperature, power)
        check_support(potential.sites, potential.embedding)
        starts = starting_points(potential, initial, num_chains, first) if sampler.uses_starts else Starts()
        steps = num_samples + (warmup_steps if sampler.uses_warmup else 0)
        with progress_bar(steps * num_chains, sampler.name, progress) as bar:
            files = None if checkpoint is None else _checkpoint(checkpoint, potential, sampler, seed, warmup_steps)
            draws = sampler.sample(potential, Plan(starts, num_samples, warmup_steps, seeds, bar, files))
    _check_draws(draws, sampler, potential.dimension)
    posterior = posterior_class(embedding)(potential, draws, sampler.name)
    if not sampler.is_independent:
        tell(draws, posterior.samples_by_chain, getattr(sampler, "max_tree_depth", None))
    return posterior


def _check_values(objective: AnyObjective, sampler: Sampler) -> None:
    if not isinstance(objective, Objective):
        raise TypeError(
            f"Expected an Objective, such as ConditionalEvidence(), got {type(objective).__name__}. Pass an instance."
        )
    if not isinstance(sampler, Sampler):
        raise TypeError(f"Expected a Sampler, such as NUTS() or SMC(), got {sampler!r}. Pass an instance.")


def _checkpoint(
    path: str | os.PathLike[str], potential: Potential, sampler: Sampler, seed: int | None, warmup_steps: int
) -> Checkpoint:
    """Where chains are written, and what makes them chains of this posterior and no other."""
    if not sampler.can_resume or seed is None:
        got = "seed=None" if sampler.can_resume else repr(sampler)
        raise ValueError(f"Expected NUTS() and a seed with checkpoint=, got {got}. Give both, or no checkpoint.")
    data = " ".join(hashlib.sha256(part.cpu().numpy().tobytes()).hexdigest()[:16] for part in potential.data)
    identity = {
        "objective": f"{potential.objective!r} at temperature {potential.temperature!r}, power {potential.power!r}",
        "priors": {site.name: site.describe() for site in potential.sites},
        "data": data,
        "sampler": repr(dataclasses.replace(sampler, **({"parallel": None} if hasattr(sampler, "parallel") else {}))),
        "seed": seed,
        "warmup_steps": warmup_steps,
        "point": potential.vector.get().tolist(),
    }
    return Checkpoint(os.fspath(path), identity)


def _check_draws(draws: Draws, sampler: Sampler, dimension: int) -> None:
    """What a sampler of the user's own may get wrong."""
    if not isinstance(draws, Draws):
        raise TypeError(f"Expected {sampler!r} to return Draws, got {type(draws).__name__}. Return Draws.")
    shape = tuple(draws.u.shape)
    if len(shape) != 3 or shape[-1] != dimension or 0 in shape:
        raise ValueError(
            f"Expected draws u of {sampler!r} of shape (num_chains, num_samples, {dimension}), got {shape}. "
            "Return u in that shape."
        )
    for name, values in (("log_density", draws.log_density), ("diverging", draws.diverging)):
        if values.shape != draws.u.shape[:2]:
            raise ValueError(
                f"Expected {name} of {sampler!r} of shape {shape[:2]}, got {tuple(values.shape)}. Return that shape."
            )


def _count(value: int, name: str, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"Expected {name} as a whole number, got {value!r}. Give an int.") from None
    if number < least:
        remedy = "A posterior without draws answers nothing." if name == "num_samples" else "Give a larger number."
        raise ValueError(f"Expected {name} of at least {least}, got {number}. {remedy}")
    return number
