"""The posterior as part of a larger Pyro program: ``pyro_model(embedding, objective, x, y)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import gpytorch
import pyro
import pyro.distributions
import torch
from pyro.distributions import TorchDistribution
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor
from torch.distributions import Distribution, LogNormal, TransformedDistribution

from ..validation import check_features
from .potential import REJECTED_ERRORS, AnyObjective, Potential, quiet_numbers, with_gradient
from .priors import PriorSite, describe, log_density


class PyroModel(Protocol):
    """Result of :func:`pyro_model`."""

    def __call__(self, values: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Sample the hyperparameters that have no ``values``, and return all of them by name."""


def pyro_model(
    embedding: gpytorch.Module,
    objective: AnyObjective,
    x: Tensor,
    y: Tensor | None = None,
    *,
    temperature: float = 1.0,
    name: str = "",
) -> PyroModel:
    """A Pyro model that samples every hyperparameter from its prior and adds −c q to the log density of the program.

    Call it inside your own model, or pass it to any of Pyro's algorithms. Its gradient is one node of the graph; the
    embedding is not changed.

    Args:
        embedding: any embedding of this package, with GPyTorch priors or default ones.
        objective: q.
        x: inputs.
        y: targets, for embeddings that have them.
        temperature: see :func:`kernel_embed.sample_posterior`.
        name: prefix of the names of the sites, for programs with several embeddings.

    Returns:
        A function that samples the sites and returns their values by name. Pass it hyperparameters that the larger
        program samples itself, for several groups in one plate, for example, by name,
        ``model({"kernel.lengthscale": value})``: they have no prior here, and the gradient reaches them.

    Raises:
        TypeError: if ``x`` is not a tensor of real numbers.
        ValueError: if ``x`` is empty or not finite.

    Example:
        >>> import kernel_embed as ke
        >>> from pyro.infer import MCMC, NUTS
        >>> x = torch.linspace(-1, 1, 20, dtype=torch.float64).unsqueeze(-1)
        >>> kernel = gpytorch.kernels.RBFKernel(lengthscale_prior=gpytorch.priors.GammaPrior(2.0, 2.0))
        >>> model = ke.pyro_model(ke.BayesianMeanEmbedding(kernel), ke.EmbeddingEvidence(), x)
        >>> mcmc = MCMC(NUTS(model), num_samples=20, warmup_steps=20, disable_progbar=True)
        >>> mcmc.run()
        >>> mcmc.get_samples()["kernel.lengthscale"].shape
        torch.Size([20, 1, 1])
    """
    potential = Potential(embedding, objective, check_features(x), y, temperature)
    owned = [site for site in potential.sites if not site.is_factor]
    priors = {site.name: _pyro_prior(site) for site in owned}

    def model(values: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        fixed = _reshaped(owned, values or {})
        sites = {
            site.name: fixed[site.name] if site.name in fixed else pyro.sample(name + site.name, priors[site.name])
            for site in owned
        }
        flat = torch.cat([value.reshape(-1) for value in sites.values()])
        with quiet_numbers():
            factor = _log_factor(potential, owned, sites, flat)
        pyro.factor(f"{name}objective", factor)
        return sites

    return model


def _reshaped(owned: list[PriorSite], values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The user's values, in the shapes of their sites."""
    shapes = {site.name: site.value().shape for site in owned}
    for name, value in values.items():
        if name not in shapes or not isinstance(value, Tensor) or value.numel() not in (1, shapes[name].numel()):
            sizes = ", ".join(f"{site} ({shape.numel()})" for site, shape in shapes.items())
            size = value.numel() if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"{name} ({size}) is not a value of a hyperparameter. Give tensors for some of {sizes}, with so many "
                "entries each."
            )
    return {k: v.expand(shapes[k]) if v.numel() == 1 else v.reshape(shapes[k]) for k, v in values.items()}


def _log_factor(potential: Potential, owned: list[PriorSite], values: dict[str, Tensor], flat: Tensor) -> Tensor:
    """−c q and the priors that are factors, with their gradient in v, (∂/∂u) / (∂v/∂u)."""
    try:
        for site in owned:
            site.set(values[site.name].detach())
        potential.vector.clear_gradient()
        total = -potential.multiplier * potential.objective(potential.embedding, potential.x, potential.y).sum()
        factors = [site for site in potential.sites if site.is_factor]
        total = total + log_density(factors) if factors else total
        if total.requires_grad:
            total.backward()
        gradient = torch.cat([_gradient(site).reshape(-1) for site in owned])
        value = total.item()
    except REJECTED_ERRORS:
        value, gradient = float("-inf"), torch.zeros_like(flat.detach())
    if not bool(torch.isfinite(gradient).all()):
        value, gradient = float("-inf"), torch.zeros_like(flat.detach())
    return with_gradient(flat, value, gradient)


def _gradient(site: PriorSite) -> Tensor:
    """(∂/∂u) / (∂v/∂u); zero for a parameter that the objective does not use."""
    assert site.raw is not None
    if site.raw.grad is None:
        return torch.zeros_like(site.raw)
    (slope,) = torch.autograd.grad(site.value().sum(), site.raw)
    return site.raw.grad / slope


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
            "NormalPrior, HalfCauchyPrior or UniformPrior, or sample_posterior, which needs only log_prob and starting "
            "points."
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
