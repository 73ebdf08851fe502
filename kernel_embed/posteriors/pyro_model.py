"""The posterior as part of a larger Pyro program: ``pyro_model(embedding, objective, x, y)``."""

from __future__ import annotations

import functools
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

from ..linalg.derivatives import with_gradient
from ..validation import check_features
from .potential import REJECTED_ERRORS, AnyObjective, Potential, quiet_numbers
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
        if torch.jit.is_tracing():  # type: ignore[attr-defined]
            raise NotImplementedError(
                "pyro_model cannot be compiled: it factorizes matrices outside of the graph. Use Trace_ELBO instead of "
                "JitTrace_ELBO, and leave out jit_compile=True."
            )
        fixed = _reshaped(owned, values or {})
        sites = {
            site.name: fixed[site.name] if site.name in fixed else pyro.sample(name + site.name, priors[site.name])
            for site in owned
        }
        with quiet_numbers():
            factor = _log_factors(potential, owned, sites)
        pyro.factor(f"{name}objective", factor)
        return sites

    return model


def _reshaped(owned: list[PriorSite], values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The user's values, in the shapes of their sites."""
    shapes = {site.name: site.value().shape for site in owned}
    reshaped = {}
    for name, value in values.items():
        is_value = name in shapes and isinstance(value, Tensor)
        is_batch = is_value and value.shape[value.dim() - len(shapes[name]) :] == shapes[name]
        if not is_batch and not (is_value and value.numel() in (1, shapes[name].numel())):
            sizes = ", ".join(f"{site} ({shape.numel()})" for site, shape in shapes.items())
            size = value.numel() if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(
                f"{name} ({size}) is not a value of a hyperparameter. Give tensors for some of {sizes}, with so many "
                "entries each."
            )
        shape = shapes[name]
        reshaped[name] = value if is_batch else value.expand(shape) if value.numel() == 1 else value.reshape(shape)
    return reshaped


def _log_factors(potential: Potential, owned: list[PriorSite], values: Mapping[str, Tensor]) -> Tensor:
    """−c q and the priors that are factors, for each element of the batch of values: particles, or a plate."""
    shapes = {site.name: site.value().shape for site in owned}
    for name, value in values.items():
        if value.shape[value.dim() - len(shapes[name]) :] != shapes[name]:
            raise ValueError(f"{name} has shape {tuple(value.shape)}, which does not end in {tuple(shapes[name])}.")
    batches = [value.shape[: value.dim() - len(shapes[name])] for name, value in values.items()]
    batch = torch.broadcast_shapes(*batches)
    parts = [value.expand((*batch, *shapes[name])).reshape((*batch, -1)) for name, value in values.items()]
    rows = torch.cat(parts, dim=-1).reshape(-1, sum(shape.numel() for shape in shapes.values()))
    factors = torch.stack([_log_factor(potential, owned, row) for row in rows])
    return factors.reshape(batch)


def _log_factor(potential: Potential, owned: list[PriorSite], flat: Tensor) -> Tensor:
    """The factor of one element, with its gradient in v, (∂/∂u) / (∂v/∂u)."""
    try:
        _set(owned, flat.detach())
        potential.vector.clear_gradient()
        total = _factor(potential)
        if total.requires_grad:
            total.backward()
        gradient = torch.cat([_gradient(site).reshape(-1) for site in owned])
        value = total.item()
    except REJECTED_ERRORS:
        value, gradient = float("-inf"), torch.zeros_like(flat.detach())
    if not bool(torch.isfinite(gradient).all()):
        value, gradient = float("-inf"), torch.zeros_like(flat.detach())
    return with_gradient(flat, value, gradient, functools.partial(_differentiable_factor, potential, owned))


def _set(owned: list[PriorSite], flat: Tensor) -> None:
    sizes = [site.value().numel() for site in owned]
    for site, value in zip(owned, flat.split(sizes), strict=True):
        site.set(value.reshape(site.value().shape))


def _differentiable_factor(potential: Potential, owned: list[PriorSite], flat: Tensor) -> Tensor:
    """The factor as a function of v that autograd differentiates twice.

    u(v) is expanded to second order, which has the same first and second derivatives.
    """
    _set(owned, flat.detach())
    raws = {}
    for site, value in zip(owned, flat.split([site.value().numel() for site in owned]), strict=True):
        assert site.raw is not None
        assert site.parameter is not None
        v = site.value()
        (slope,) = torch.autograd.grad(v.sum(), site.raw, create_graph=True)
        curvature = torch.zeros_like(slope)
        if slope.requires_grad:
            (curvature,) = torch.autograd.grad(slope.sum(), site.raw)
        slope, step = slope.detach(), value.reshape(v.shape) - v.detach()
        raws[site.parameter] = site.raw.detach() + step / slope - 0.5 * curvature * step.square() / slope.pow(3)
    total: Tensor = torch.func.functional_call(_Factor(potential), {f"embedding.{k}": v for k, v in raws.items()}, ())
    return total


class _Factor(torch.nn.Module):
    """−c q and the priors that are factors, as a module whose parameters can be replaced."""

    def __init__(self, potential: Potential) -> None:
        super().__init__()
        self.embedding = potential.embedding
        self._potential = [potential]  # in a list: not a part of the module

    def forward(self) -> Tensor:
        """The factor at the parameters that the embedding has."""
        return _factor(self._potential[0])


def _factor(potential: Potential) -> Tensor:
    total = -potential.multiplier * potential.objective(potential.embedding, potential.x, potential.y).sum()
    factors = [site for site in potential.sites if site.is_factor]
    return total + log_density(factors) if factors else total


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
