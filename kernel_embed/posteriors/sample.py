"""``sample_posterior(embedding, objective, x, y)``: any embedding with any objective, fully Bayesian."""

from __future__ import annotations

import math
import operator
from typing import Any, Literal, get_args

import gpytorch
import numpy as np
import torch
from torch import Tensor

from ..embeddings import BayesianMeanEmbedding, ConditionalEmbedding, MulticlassEmbedding
from ..objectives import Objective
from ..progress import progress_bar
from ..threads import few_threads
from ..validation import check_features
from .answers import ConditionalPosterior, MeanPosterior, MulticlassPosterior
from .diagnostics import tell
from .posterior import Posterior
from .potential import Potential
from .priors import check_support
from .samplers.laplace import laplace
from .samplers.nuts import nuts, quiet_numbers
from .samplers.parallel import parallel_nuts, worthwhile
from .samplers.smc import smc
from .samplers.svi import svi
from .starts import Initial, starting_points

Method = Literal["nuts", "smc", "svi", "laplace"]


def sample_posterior(
    embedding: gpytorch.Module,
    objective: Objective,
    x: Tensor,
    y: Tensor | None = None,
    *,
    num_samples: int = 500,
    warmup_steps: int = 500,
    num_chains: int = 4,
    seed: int | None = None,
    method: Method = "nuts",
    temperature: float = 1.0,
    initial: Initial = "prior",
    parallel: bool | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Any:
    r"""Draws of the hyperparameters of ``embedding`` given data, and every question averaged over them.

    The density is that of the priors registered on the modules (default ones for parameters without, see
    :func:`kernel_embed.posteriors.priors.default_prior`) times exp(−c q), with q the objective. For
    :class:`kernel_embed.EmbeddingEvidence` and :class:`kernel_embed.ConditionalEvidence` this is the posterior of a
    model; for risks and the Rademacher complexity, with c = n · temperature, a Gibbs posterior. ``posterior.kind`` says
    which. The embedding is not changed. Ctrl-C ends the sampling and returns the draws so far.

    Args:
        embedding: any embedding of this package.
        objective: what ``fit`` would minimise.
        x: inputs ``(n, d)``.
        y: targets, for embeddings that have them.
        num_samples: draws of each chain, after warm-up.
        warmup_steps: draws of each chain before, in which step size and mass matrix are adapted.
        num_chains: chains, each from a start of its own.
        seed: the same seed gives the same draws.
        method: ``"nuts"``, Pyro's No-U-Turn sampler; ``"smc"``, sequential Monte Carlo from the prior, which weighs
            several modes rightly and estimates the evidence; or a fast answer: ``"laplace"``, the Gaussian at the
            highest mode, ``"svi"``, a Gaussian guide fitted by Pyro.
        temperature: multiplies the exponent; see :func:`kernel_embed.choose_temperature`.
        initial: where chains start: ``"prior"``, ``"current"`` for the embedding as it is, or values by name
            (``{"kernel.lengthscale": values}``), with a leading dimension of ``num_chains`` or the same for all.
        parallel: run chains in processes of their own; ``None`` does so where it saves at least some seconds.
        progress: show a progress bar; by default on a terminal or in a notebook.
        **options: for NUTS those of ``pyro.infer.NUTS`` (``target_accept_prob``, ``max_tree_depth``, ``full_mass``),
            ``walk``, random-walk steps between its draws, by default for up to five parameters, and ``settle``, such
            steps before the first, by default for starts from the prior; for the others see
            ``kernel_embed.posteriors``.

    Returns:
        A posterior with ``samples``, ``summary()``, ``to_arviz()`` and the questions of ``embedding.condition(x, y)``.

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
        >>> posterior.probabilities(x).shape, sorted(posterior.summary()["regularization"])[-3:]
        (torch.Size([30, 2]), ['n_eff', 'r_hat', 'std'])
    """
    if not isinstance(objective, Objective):
        raise TypeError(f"Expected an Objective, such as ConditionalEvidence(), got {type(objective).__name__}.")
    if method not in get_args(Method):
        raise ValueError(f"Expected method among {', '.join(get_args(Method))}, got {method!r}.")
    num_samples = _count(num_samples, "num_samples", 1)
    warmup_steps, num_chains = _count(warmup_steps, "warmup_steps", 0), _count(num_chains, "num_chains", 1)
    if not (math.isfinite(temperature) and temperature > 0):
        raise ValueError(f"Expected a positive, finite temperature, got {temperature}.")
    x = check_features(x)
    first, *seeds = (int(s) for s in np.random.SeedSequence(seed).generate_state(num_chains + 1))
    with few_threads(x.shape[-2]), torch.random.fork_rng(devices=[]), quiet_numbers():
        torch.manual_seed(first)
        potential = Potential(embedding, objective, x, y, temperature)
        check_support(potential.sites, potential.embedding)
        starts = [] if method == "smc" else starting_points(potential, initial, num_chains, first)
        steps = (warmup_steps + num_samples) * num_chains
        with progress_bar(steps, method, progress) as bar:
            if method == "nuts":
                parallel = worthwhile(potential, num_chains, steps) if parallel is None else parallel
                run = parallel_nuts if parallel else nuts
                options.setdefault("settle", initial == "prior")
                draws = run(potential, starts, num_samples, warmup_steps, seeds, options, bar)
            elif method == "smc":
                draws = smc(potential, num_samples, seeds, bar, **options)
            else:
                run_fast = laplace if method == "laplace" else svi
                draws = run_fast(potential, starts, num_samples, seeds, bar, **options)
    posterior = posterior_class(embedding)(potential, draws, method)
    tell(draws.u, posterior.samples_by_chain, draws.diverging, method)
    return posterior


def posterior_class(embedding: gpytorch.Module) -> type[Posterior]:
    """The answers that belong to a kind of embedding."""
    if isinstance(embedding, MulticlassEmbedding):
        return MulticlassPosterior
    if isinstance(embedding, ConditionalEmbedding):
        return ConditionalPosterior
    return MeanPosterior if isinstance(embedding, BayesianMeanEmbedding) else Posterior


def _count(value: int, name: str, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"Expected {name} as a whole number, got {value!r}.") from None
    if number < least:
        remedy = " A posterior without draws answers nothing." if name == "num_samples" else ""
        raise ValueError(f"Expected {name} of at least {least}, got {number}.{remedy}")
    return number
