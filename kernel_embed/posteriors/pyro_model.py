"""The posterior as a part of a larger Pyro program: ``pyro_model(embedding, objective, x, y)``."""

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
from .potential import REFUSALS, AnyObjective, Potential, quiet_numbers, with_gradient
from .site import PriorSite, describe, log_density


class PyroPart(Protocol):
    """What :func:`pyro_model` returns."""

    def __call__(self, given: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Sample the hyperparameters that are not ``given``, and return all of them by name."""


def pyro_model(
    embedding: gpytorch.Module,
    objective: AnyObjective,
    x: Tensor,
    y: Tensor | None = None,
    *,
    temperature: float = 1.0,
    name: str = "",
) -> PyroPart:
    """A Pyro model: samples every hyperparameter from its prior, and adds −c q to the log density of the program.

    Call it inside a model of your own, or give it to any of Pyro's algorithms. The gradient is the library's closed
    form, one node of the graph; the embedding is not changed.

    Args:
        embedding: any embedding of this package, with GPyTorch priors or default ones.
        objective: q.
        x: inputs.
        y: targets, for embeddings that have them.
        temperature: see :func:`kernel_embed.sample_posterior`.
        name: put before the names of the sites, for programs with several embeddings.

    Returns:
        A function whose call samples the sites and returns their values by name. Hyperparameters that the larger
        program samples itself, for several groups in one plate, say, are given to it by name,
        ``part({"kernel.lengthscale": value})``: they have no prior here, and the gradient reaches them.

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
    priors = {site.name: pyro_prior(site) for site in owned}

    def model(given: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        known = _as_sites(owned, given or {})
        values = {
            site.name: known[site.name] if site.name in known else pyro.sample(name + site.name, priors[site.name])
            for site in owned
        }
        flat = torch.cat([value.reshape(-1) for value in values.values()])
        with quiet_numbers():
            factor = _log_factor(potential, owned, values, flat)
        pyro.factor(f"{name}objective", factor)
        return values

    return model


def _as_sites(owned: list[PriorSite], given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Values that are given, in the shapes of their sites."""
    shapes = {site.name: site.value().shape for site in owned}
    for name, value in given.items():
        if name not in shapes or not isinstance(value, Tensor) or value.numel() not in (1, shapes[name].numel()):
            sizes = ", ".join(f"{known} ({shape.numel()})" for known, shape in shapes.items())
            size = value.numel() if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"Expected tensors for some of {sizes}, with so many numbers, got {name} ({size}). Name "
                "hyperparameters of the embedding, each with its value."
            )
    return {name: value.expand(shapes[name]) if value.numel() == 1 else value.reshape(shapes[name])
            for name, value in given.items()}  # fmt: skip


def _log_factor(potential: Potential, owned: list[PriorSite], values: dict[str, Tensor], flat: Tensor) -> Tensor:
    """−c q and the priors that are factors, with their gradient in the sampled values v: (∂/∂u) / (∂v/∂u)."""
    try:
        for site in owned:
            site.set(values[site.name].detach())
        potential.vector.clear_gradient()
        total = -potential.multiplier * potential.objective(potential.embedding, potential.x, potential.y).sum()
        factors = [site for site in potential.sites if site.is_factor]
        total = total + log_density(factors) if factors else total
        if total.requires_grad:
            total.backward()
        gradient = torch.cat([_slope(site).reshape(-1) for site in owned])
        value = total.item()
    except REFUSALS:
        value, gradient = float("-inf"), torch.zeros_like(flat.detach())
    if not bool(torch.isfinite(gradient).all()):
        value, gradient = float("-inf"), torch.zeros_like(flat.detach())
    return with_gradient(flat, value, gradient)


def _slope(site: PriorSite) -> Tensor:
    """(∂/∂u) / (∂v/∂u); zero for a parameter that the objective does not ask for."""
    assert site.raw is not None
    return torch.zeros_like(site.raw) if site.raw.grad is None else site.raw.grad / site.slope()


def pyro_prior(site: PriorSite) -> TorchDistribution:
    """The prior of a site as a distribution that ``pyro.sample`` takes, for all entries of its value."""
    shape = site.value().shape
    prior = site.prior
    try:
        expanded = prior if prior.batch_shape + prior.event_shape == shape else prior.expand(shape)
        if not isinstance(expanded, TorchDistributionMixin):
            expanded = _pyro_twin(expanded)
        expanded = expanded.to_event(len(expanded.batch_shape))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            expanded.sample()
    except (NotImplementedError, AttributeError, RuntimeError, TypeError) as error:
        raise TypeError(
            f"Expected a prior on {site.name} that Pyro can sample, got {describe(prior)}. Use GammaPrior, "
            "LogNormalPrior, NormalPrior, HalfCauchyPrior or UniformPrior, or sample_posterior, which needs only "
            "log_prob and starting points."
        ) from error
    return expanded


def _pyro_twin(distribution: Distribution) -> TorchDistribution:
    """Pyro's distribution of the same name and parameters; some of GPyTorch's lose Pyro's methods when expanded."""
    if isinstance(distribution, TransformedDistribution) and not isinstance(distribution, LogNormal):
        return pyro.distributions.TransformedDistribution(_pyro_twin(distribution.base_dist), distribution.transforms)
    twin = getattr(pyro.distributions, type(distribution).__name__.removesuffix("Prior"))
    parameters = {
        key: getattr(distribution, key)
        for key in distribution.arg_constraints
        if key in type(distribution).__init__.__code__.co_varnames and key != "covariance_matrix"
    }
    return twin(**parameters)
