"""The posterior as part of a larger Pyro program: ``pyro_model(embedding, objective, x, y)``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import gpytorch
import pyro
import pyro.distributions
import torch
from pyro.distributions import TorchDistribution
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import Distribution, LogNormal, TransformedDistribution

from ..linalg.derivatives import with_gradient
from ..validation import check_features
from .potential import REJECTED_ERRORS, AnyObjective, Potential, quiet_numbers
from .priors import PriorSite, describe


def pyro_model(
    embedding: gpytorch.Module,
    objective: AnyObjective,
    x: Tensor,
    y: Tensor | None = None,
    *,
    temperature: float = 1.0,
    name: str = "",
) -> Callable[..., dict[str, Tensor]]:
    """A Pyro model that samples every hyperparameter from its prior and adds −c q to the log density of the program.

    Call it inside your own model, or pass it to any of Pyro's algorithms. The embedding is not changed.

    Args:
        embedding: any embedding of this package, with GPyTorch priors or default ones.
        objective: q.
        x: inputs.
        y: targets, for embeddings that have them.
        temperature: see :func:`kernel_embed.sample_posterior`.
        name: prefix of the names of the sites, for programs with several embeddings.

    Returns:
        A function that samples the sites and returns their values by name. Pass it hyperparameters that the larger
        program samples itself, ``model({"kernel.lengthscale": value})``: they have no prior here, and the gradient
        reaches them.

    Raises:
        TypeError: if ``x`` is not a tensor of real numbers.
        ValueError: if ``x`` is empty or not finite.

    Example:
        >>> import kernel_embed as ke
        >>> from pyro.infer import MCMC, NUTS
        >>> kernel = gpytorch.kernels.RBFKernel(lengthscale_prior=gpytorch.priors.GammaPrior(2.0, 2.0))
        >>> model = ke.pyro_model(ke.BayesianMeanEmbedding(kernel), ke.EmbeddingEvidence(), torch.randn(20, 1).double())
        >>> mcmc = MCMC(NUTS(model), num_samples=20, warmup_steps=20, disable_progbar=True)
        >>> mcmc.run()
        >>> mcmc.get_samples()["kernel.lengthscale"].shape
        torch.Size([20, 1, 1])
    """
    potential = Potential(embedding, objective, check_features(x), y, temperature)
    owned = [site for site in potential.sites if not site.is_factor]
    priors = {site.name: _pyro_prior(site) for site in owned}
    shapes = {site.name: site.value().shape for site in owned}

    def model(values: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        if torch.jit.is_tracing():  # type: ignore[attr-defined]
            raise NotImplementedError("pyro_model cannot be compiled. Use Trace_ELBO, and leave jit_compile out.")
        fixed = _reshaped(shapes, values or {})
        sites = {key: fixed[key] if key in fixed else pyro.sample(name + key, prior) for key, prior in priors.items()}
        # Values have batch dimensions in front of their shapes: particles, or a plate.
        batches = [value.shape[: value.dim() - len(shapes[key])] for key, value in sites.items()]
        batch = torch.broadcast_shapes(*batches)
        parts = [value.expand((*batch, *shapes[key])).reshape((*batch, -1)) for key, value in sites.items()]
        rows = torch.cat(parts, dim=-1).flatten(0, -2) if batch else torch.cat(parts, dim=-1).unsqueeze(0)
        with quiet_numbers():
            factors = torch.stack([_log_factor(potential, owned, row) for row in rows])
        pyro.factor(f"{name}objective", factors.reshape(batch))
        return sites

    return model


def _reshaped(shapes: Mapping[str, torch.Size], values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The user's values, in the shapes of their sites."""
    reshaped = {}
    for name, value in values.items():
        is_value = name in shapes and isinstance(value, Tensor)
        is_batch = is_value and value.shape[value.dim() - len(shapes[name]) :] == shapes[name]
        if not is_batch and not (is_value and value.numel() in (1, shapes[name].numel())):
            sizes = ", ".join(f"{site} ({shape.numel()})" for site, shape in shapes.items())
            size = value.numel() if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"{name} ({size}) is not a value of a hyperparameter. Give tensors for some of {sizes}.")
        shape = shapes[name]
        reshaped[name] = value if is_batch else value.expand(shape) if value.numel() == 1 else value.reshape(shape)
    return reshaped


def _log_factor(potential: Potential, owned: list[PriorSite], flat: Tensor) -> Tensor:
    """−c q and the priors that are factors at the values ``flat`` of all sites; −∞ if they are rejected."""
    value, gradient = -math.inf, torch.zeros_like(flat.detach())
    try:
        raws, values = _set(owned, flat)
        total = potential.log_factors()
        slopes = torch.autograd.grad([v.sum() for v in values], raws)
        if total.requires_grad:
            by_raw = torch.autograd.grad(total, raws, allow_unused=True, materialize_grads=True)
            gradient = torch.cat([(g / slope).reshape(-1) for g, slope in zip(by_raw, slopes, strict=True)])
        value = total.item() if bool(torch.isfinite(gradient).all()) else value
    except REJECTED_ERRORS:
        pass
    if value == -math.inf:
        gradient = torch.zeros_like(flat.detach())
    return with_gradient(flat, value, gradient, functools.partial(_differentiable_factor, potential, owned))


def _set(owned: list[PriorSite], flat: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Write the values into the embedding; returns u and v of every site."""
    shapes = [site.value().shape for site in owned]
    for site, shape, value in zip(owned, shapes, flat.detach().split([s.numel() for s in shapes]), strict=True):
        site.set(value.reshape(shape))
    return [site.raw for site in owned if site.raw is not None], [site.value() for site in owned]


def _differentiable_factor(potential: Potential, owned: list[PriorSite], flat: Tensor) -> Tensor:
    """The factor as a function of v that autograd differentiates twice.

    u(v) is expanded to second order, which has the same first and second derivatives.
    """
    raws, values = _set(owned, flat)
    parameters = {}
    for site, raw, v, own in zip(owned, raws, values, flat.split([v.numel() for v in values]), strict=True):
        (slope,) = torch.autograd.grad(v.sum(), raw, create_graph=True)
        curvature = torch.zeros_like(slope)
        if slope.requires_grad:
            (curvature,) = torch.autograd.grad(slope.sum(), raw)
        slope, step = slope.detach(), own.reshape(v.shape) - v.detach()
        u = raw.detach() + step / slope - 0.5 * curvature * step.square() / slope.pow(3)
        parameters[f"embedding.{site.parameter}"] = u
    total: Tensor = torch.func.functional_call(_Factor(potential), parameters, ())
    return total


class _Factor(torch.nn.Module):
    """The factor as a module whose parameters can be replaced."""

    def __init__(self, potential: Potential) -> None:
        super().__init__()
        self.embedding = potential.embedding
        self.log_factors = potential.log_factors

    def forward(self) -> Tensor:
        """The factor at the parameters that the embedding has."""
        return self.log_factors()


def _pyro_prior(site: PriorSite) -> TorchDistribution:
    """The prior of a site as a distribution for ``pyro.sample``, for all entries of its value."""
    shape = site.value().shape
    prior = site.prior
    try:
        expanded = prior if prior.batch_shape + prior.event_shape == shape else prior.expand(shape)
        if not isinstance(expanded, TorchDistributionMixin):
            expanded = _pyro_equivalent(expanded)
        expanded = expanded.to_event(len(expanded.batch_shape))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            expanded.sample()
    except (NotImplementedError, AttributeError, RuntimeError, TypeError) as error:
        raise TypeError(
            f"Pyro cannot sample the prior {describe(prior)} on {site.name}. Use GammaPrior, LogNormalPrior, "
            "NormalPrior, HalfCauchyPrior or UniformPrior, or sample_posterior."
        ) from error
    return expanded


def _pyro_equivalent(distribution: Distribution) -> TorchDistribution:
    """Pyro's distribution of the same name and parameters; some of GPyTorch's lose Pyro's methods when expanded."""
    if isinstance(distribution, TransformedDistribution) and not isinstance(distribution, LogNormal):
        base = _pyro_equivalent(distribution.base_dist)
        return pyro.distributions.TransformedDistribution(base, distribution.transforms)
    kind = getattr(pyro.distributions, type(distribution).__name__.removesuffix("Prior"))
    parameters = {
        key: getattr(distribution, key)
        for key in distribution.arg_constraints
        if key in type(distribution).__init__.__code__.co_varnames and key != "covariance_matrix"
    }
    return kind(**parameters)
