r"""The potential energy of a posterior, with closed-form gradients, in the form that Pyro needs.

.. math::  U(u) = s \big( c\, q(\theta(u)) - \log p(u) \big), \qquad
           c = \begin{cases} \text{temperature} & q \text{ is a sum over data, such as a negative log evidence} \\
                             n \cdot \text{temperature} & q \text{ is a mean over data} \end{cases}

The power s is 1 by default: exp(−U) is the density to the power s, narrower about the same mode.
A point where K cannot be factorized, or where anything is not finite, has U = ∞: such a proposal is rejected.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor
from typing_extensions import Never

from ..kernels import DiagonalBoundError
from ..kernels.parameters import initialize_parts
from ..learning.direct import Direct, direct_objective
from ..learning.parameters import ParameterVector, Vector, constrained, move_priors, unidentified, user_name
from ..learning.priors import LogPriors
from ..linalg.derivatives import with_gradient
from ..objectives import Objective
from ..validation import check_number, check_tensor
from .priors import PriorSite, find_sites, log_density, log_priors, on_log_scale

AnyObjective: TypeAlias = Objective[Never]  # for any embedding: objectives are contravariant in what they evaluate
SITE = "u"  # the one site of the chains: all raw parameters in one vector
REJECTED_ERRORS = (NotPSDError, NanError, DiagonalBoundError, torch.linalg.LinAlgError, ValueError)  # type: ignore[attr-defined]
"""Errors of parameters without a valid value; the first evaluation shows every other mistake."""


@contextlib.contextmanager
def quiet_numbers() -> Iterator[None]:
    """Suppress warnings of jitter and flat points, which are common among the proposals of a sampler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        yield


class Potential:
    """U(u) with its gradient.

    ``vector`` has the parameters that are sampled, ``fixed`` names those that the objective cannot identify, ``sites``
    are the priors, and ``multiplier`` is c.

    Args:
        embedding: copied, in the dtype and to the device of ``x``.
        objective: of the posterior.
        x: inputs, ``(n, d)``.
        y: targets, or ``None``.
        temperature: of a Gibbs posterior.
        power: s, the power of the whole density.

    Raises:
        TypeError: if ``temperature`` or ``power`` is not a number, or ``x`` not a tensor of real numbers.
        ValueError: if ``temperature`` or ``power`` is not positive and finite, or no parameter requires a gradient.

    Example:
        >>> import kernel_embed as ke
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> potential = ke.posteriors.Potential(embedding, ke.EmbeddingEvidence(), torch.randn(15, 1), None)
        >>> potential.dimension                                              # the lengthscale, in raw form
        1
    """

    def __init__(
        self,
        embedding: gpytorch.Module,
        objective: AnyObjective,
        x: Tensor,
        y: Tensor | None,
        temperature: float = 1.0,
        power: float = 1.0,
    ) -> None:
        for name, value in (("temperature", temperature), ("power", power)):
            if not 0.0 < check_number(name, value) < math.inf:
                raise ValueError(f"{name} must be positive and finite, not {value}; 1 is usual.")
        check_tensor(x, "x")
        x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
        x, y = x.detach(), y.detach() if isinstance(y, Tensor) else y
        self.embedding: gpytorch.Module = copy.deepcopy(embedding).to(dtype=x.dtype, device=x.device).eval()
        move_priors(self.embedding, x.device)
        initialize_parts(self.embedding, x, y)
        on_log_scale(self.embedding)
        self.objective, self.x, self.y = objective, x, y
        self.temperature, self.power = temperature, power
        self.fixed = unidentified(self.embedding, objective)
        self.vector = ParameterVector(self.embedding, self.fixed)
        if not self.vector.parameters:
            raise ValueError("No parameters to sample: none requires a gradient. Call embedding.requires_grad_().")
        self.multiplier = temperature * (x.shape[-2] if objective.per_datum else 1.0)
        self.num_evaluations = self.num_rejected = 0
        # Mistakes in the arguments raise here, on whichever path evaluates them.
        if self._direct is None or self._direct(self.vector.get(), with_gradient=False) is None:
            with torch.no_grad(), contextlib.suppress(NotPSDError, NanError):
                objective(self.embedding, x, y)
        self.sites: list[PriorSite] = find_sites(self.embedding, self.vector)

    @property
    def dimension(self) -> int:
        """The number of raw parameters."""
        return sum(parameter.numel() for parameter in self.vector.parameters)

    @property
    def is_likelihood(self) -> bool:
        """Whether exp(−c q) is the likelihood of a model, so that the posterior is a true one."""
        (factor, first), *others = self.objective.terms()
        powers = (factor * self.temperature, self.power)
        return not others and first.is_log_likelihood and all(math.isclose(power, 1.0) for power in powers)

    @property
    def data(self) -> tuple[Tensor, ...]:
        """The arguments of ``embedding.attach`` and ``condition``: x, or x and y."""
        return (self.x,) if self.y is None else (self.x, self.y)

    def parts(self, u: Vector) -> tuple[float, float]:
        """The two parts of −U: the log weight of a draw from the prior, and the log density of the prior in u.

        The first is −c q(θ) with the log of the priors that are factors, and what a power adds. Both are −∞ where they
        do not exist.
        """
        self.num_evaluations += 1
        self.vector.set(u)
        try:
            prior = log_density([site for site in self.sites if not site.is_factor]).item()
            with torch.no_grad():
                weight = self.log_factors().item()
        except REJECTED_ERRORS:
            prior = weight = math.nan
        if not math.isfinite(prior + weight) or not self._inside():
            self.num_rejected += 1
            return -math.inf, -math.inf
        return self.power * weight + (self.power - 1.0) * prior, prior

    def log_factors(self) -> Tensor:
        """−c q, and the log of the priors that are factors, at the parameters as they are."""
        q = self.objective(self.embedding, self.x, self.y).sum()
        return log_density([site for site in self.sites if site.is_factor]) - self.multiplier * q

    def value(self, u: Vector) -> float:
        """U(u)."""
        direct = self._evaluate_directly(u, with_gradient=False)
        return -sum(self.parts(u)) if direct is None else self.power * direct[0]

    def value_and_gradient(self, u: Vector) -> tuple[float, Vector]:
        """U(u) and ∂U/∂u; ∞ and zeros where U does not exist."""
        direct = self._evaluate_directly(u)
        value, gradient = self.by_autograd(u) if direct is None else direct
        return (value, gradient) if self.power == 1.0 else (self.power * value, self.power * gradient)

    def by_autograd(self, u: Vector) -> tuple[float, Vector]:
        """U(u) / s and its gradient through the embedding and its objective."""
        self.num_evaluations += 1
        self._write(u)
        try:
            total = self.multiplier * self.objective(self.embedding, self.x, self.y).sum() - log_density(self.sites)
            total.backward()
            value, gradient = total.item(), self.vector.gradient()
        except REJECTED_ERRORS:
            value = math.nan
        if math.isfinite(value) and np.isfinite(gradient).all() and self._inside():
            return value, gradient
        self.num_rejected += 1
        return math.inf, np.zeros(self.dimension)

    def _evaluate_directly(self, u: Vector, with_gradient: bool = True) -> tuple[float, Vector] | None:
        """U(u) / s and its gradient without modules and graph; ``None`` if the autograd path must decide."""
        q = None if self._direct is None else self._direct(u, with_gradient)
        if q is None:
            return None
        priors, c = self._log_priors, self.multiplier
        prior = self._log_prior_by_autograd(u) if priors is None else priors.value_and_derivative(u, np.exp(u))
        value = c * sum(q.terms) - prior[0]
        if not math.isfinite(value):
            return None
        self.num_evaluations += 1
        return value, c * q.gradient - prior[1] if with_gradient else q.gradient

    def _log_prior_by_autograd(self, u: Vector) -> tuple[float, Vector]:
        self._write(u)
        try:
            log_prior = log_density(self.sites)
            if log_prior.requires_grad:  # a uniform prior is constant
                log_prior.backward()
        except REJECTED_ERRORS:
            return math.nan, np.zeros_like(u)
        return (log_prior.item() if self._inside() else math.nan), self.vector.gradient()

    @functools.cached_property
    def _direct(self) -> Direct | None:
        return direct_objective(self.embedding, self.objective, self.x, self.y, self.vector)

    @functools.cached_property
    def _log_priors(self) -> LogPriors | None:
        return log_priors(self.sites, self.vector)

    def __getstate__(self) -> dict[str, object]:
        # Workspaces are not pickled.
        return {name: value for name, value in vars(self).items() if name not in ("_direct", "_log_priors")}

    def __call__(self, z: Mapping[str, Tensor]) -> Tensor:
        """U as a function of Pyro's dictionary of sites, differentiable."""
        u = z[SITE]
        value, gradient = self.value_and_gradient(u.detach().numpy())
        return with_gradient(u, value, torch.from_numpy(gradient))

    def constrained(self, u: Tensor) -> dict[str, Tensor]:
        """Raw vectors ``(*shape, dimension)`` as the values that users see, by name."""
        pieces = self._pieces(u).items()
        return {user_name(name): constrained(self.embedding, name, piece).detach() for name, piece in pieces}

    def _pieces(self, u: Tensor) -> dict[str, Tensor]:
        """Raw vectors ``(*shape, dimension)`` cut into the raw parameters, by their names."""
        named, slices = self.vector.named, self.vector.slices
        return {name: u[..., slices[name]].reshape(u.shape[:-1] + p.shape).to(p) for name, p in named.items()}

    def loaded(self, u: Tensor) -> Any:
        """A copy of the embedding with one draw ``(dimension,)``, or ``(S, dimension)`` as leading batch dimension."""
        self.vector.clear_gradient()
        embedding, batch, sampled = copy.deepcopy(self.embedding), u.shape[:-1], self._pieces(u)
        for name, parameter in list(embedding.named_parameters()):
            owner, _, leaf = name.rpartition(".")
            module = embedding.get_submodule(owner)
            if not batch or isinstance(module, gpytorch.Module):
                value = sampled.get(name, parameter.detach().expand(batch + parameter.shape))
                module._parameters[leaf] = torch.nn.Parameter(value.to(parameter).clone())
        for module in embedding.modules():
            if isinstance(module, Kernel) and hasattr(module, "_batch_shape"):
                module._batch_shape = batch + module._batch_shape
        return embedding.requires_grad_(False)

    def unconstrained(self, values: Mapping[str, Tensor]) -> Vector:
        """The raw vector of values that users see; parameters that are not named keep what they have.

        Raises:
            ValueError: if a name is unknown, or a value is outside its constraint.
        """
        raw_names = {user_name(name): name for name in self.vector.named}
        for name, value in values.items():
            if name not in raw_names:
                raise ValueError(f"There is no parameter {name!r}. Use names among {', '.join(raw_names)} in initial.")
            raw = self.vector.named[raw_names[name]]
            constraint: Interval | None = self.embedding.constraint_for_parameter_name(raw_names[name])
            value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device).expand(raw.shape)
            with torch.no_grad():
                raw.copy_(value if constraint is None else constraint.inverse_transform(value))
        u = self.vector.get()
        if not np.isfinite(u).all():
            raise ValueError("The starting values are not inside the constraints of their parameters. Change initial.")
        return u

    def _write(self, u: Vector) -> None:
        self.vector.set(u)
        self.vector.clear_gradient()

    def _inside(self) -> bool:
        named = self.vector.named.items()
        constraints = [(self.embedding.constraint_for_parameter_name(name), raw) for name, raw in named]
        return all(c is None or c.enforced or c.check(raw) for c, raw in constraints)
