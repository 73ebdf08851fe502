"""The posterior over hyperparameters: draws, their diagnostics, and predictions averaged over them."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, cast

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from torch import Tensor
from typing_extensions import Self, TypeVar

from ..kernels.structure import nodes_of
from ..validation import check_count, check_tensor
from .batched import EmbeddingDraws, load_one
from .diagnostics import Summary, summarize
from .mixture import mode_weights
from .potential import E_co, Potential, quiet_numbers
from .sampler import Draws

if TYPE_CHECKING:
    from arviz import InferenceData

C_co = TypeVar("C_co", covariant=True, default=object)
"""The conditioned embedding, as returned by ``embedding.condition(x, y)``."""

CACHED_ENTRIES = 2**26
"""Largest number of entries of Gram matrices kept between calls: 512 MiB in float64, and as much for the factors."""


class KernelDraws(NamedTuple):
    """The kernels of all draws, in as few batches as memory allows.

    Attributes:
        kernels: each with a leading batch dimension of b draws; or without one, a single draw, if the kernel cannot be
            batched.
        weights: of the draws in each batch, ``(b,)`` or ``(1,)``; all together sum to 1.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> x = torch.randn(15, 1, dtype=torch.float64)
        >>> posterior = ke.sample_posterior(embedding, ke.EmbeddingEvidence(), x, num_samples=5, sampler=ke.Laplace())
        >>> pieces = posterior.kernel_draws()
        >>> round(sum(weights.sum().item() for weights in pieces.weights), 6)
        1.0
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[Tensor, ...]


class Posterior(Generic[E_co, C_co]):
    """Draws of the hyperparameters of an embedding given data; made by :func:`kernel_embed.sample_posterior`.

    Predictions are computed for every draw and averaged with ``weights``.

    Attributes:
        num_chains: number of chains.
        num_samples: draws of each chain.
        interrupted: whether Ctrl-C ended the sampling.
        seconds: wall-clock time of the sampling.
        num_evaluations: of the density.
        log_evidence: log ∫ exp(−c q) p(θ) dθ = log ∫ exp(−U) du, for samplers that estimate it, or ``None``. p is the
            product of all priors as they were registered, including factors; it is not renormalized if a constraint
            truncates it.

    Args:
        potential: the density that was sampled.
        draws: result of the sampler.
        method: name of the sampler.
        weights: of the draws, ``(S,)``, summing to 1; equal by default.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> x = torch.randn(20, 1, dtype=torch.float64)
        >>> posterior = ke.sample_posterior(embedding, ke.EmbeddingEvidence(), x, num_samples=10, sampler=ke.Laplace())
        >>> posterior.method, posterior.samples["kernel.lengthscale"].shape[0] == posterior.num_chains * 10
        ('laplace', True)
    """

    def __init__(self, potential: Potential[E_co], draws: Draws, method: str, weights: Tensor | None = None) -> None:
        self.potential, self.draws, self.method = potential, draws, method
        self.num_chains, self.num_samples = draws.u.shape[:2]
        S = self.num_chains * self.num_samples
        self.weights = torch.full((S,), 1.0 / S, dtype=torch.float64) if weights is None else weights
        self.interrupted, self.seconds = draws.interrupted, draws.seconds
        self.num_evaluations, self.log_evidence = draws.num_evaluations, draws.log_evidence
        self._is_cached = S * potential.x.shape[-2] ** 2 <= CACHED_ENTRIES

    @property
    def kind(self) -> str:
        """The kind in words; a true posterior, or a Gibbs posterior with its temperature and power."""
        if self.potential.is_likelihood:
            return "posterior: prior × evidence"
        power, temperature = self.potential.power, f"{self.potential.temperature:g}"
        n = f"{self.potential.x.shape[-2]}·" if self.potential.objective.per_datum else ""
        kind = f"Gibbs posterior: prior × exp(−{n}{temperature}·q), temperature {temperature}"
        return kind if power == 1.0 else f"{kind}, all to the power {power:g}"

    @property
    def priors(self) -> dict[str, str]:
        """The priors in words, by name."""
        return {site.name: site.describe() for site in self.potential.sites}

    @property
    def fixed(self) -> tuple[str, ...]:
        """Parameters that were not sampled, because the objective cannot identify them."""
        return self.potential.fixed

    @functools.cached_property
    def samples(self) -> dict[str, Tensor]:
        """Draws by name, each ``(num_chains * num_samples, *shape)``, chain after chain."""
        return {name: values.flatten(0, 1) for name, values in self.samples_by_chain.items()}

    @functools.cached_property
    def samples_by_chain(self) -> dict[str, Tensor]:
        """Draws by name, each ``(num_chains, num_samples, *shape)``."""
        return self.potential.constrained(self.draws.u)

    @property
    def num_divergences(self) -> int:
        """Trajectories that reached regions too steep for their step, or without a valid kernel."""
        return int(self.draws.diverging.sum())

    def summary(self) -> Summary:
        """Mean, sd, quantiles, ``n_eff``, ``n_eff_tail`` and ``r_hat`` of every parameter, by name; printed, a table.

        The last three are ArviZ's: effective sample sizes for the centre and for the 5 % and 95 % quantiles, and R-hat
        by ranks. ``num_divergences``, ``e_bfmi`` and ``tree_depth`` describe the trajectories.
        """
        weights = self.weights.reshape(self.num_chains, self.num_samples)
        return summarize(self.samples_by_chain, weights, self.draws)

    def __repr__(self) -> str:
        head = f"{type(self).__name__}({self.num_chains} chains × {self.num_samples} draws by {self.method}"
        return f"{head}{', interrupted' if self.interrupted else ''}; {self.kind})\n{self.summary()}"

    def to_arviz(self, feature_names: Sequence[str] | None = None) -> InferenceData:
        """The draws as ``arviz.InferenceData``.

        Args:
            feature_names: names of the columns of x, such as ``frame.columns``; coordinates of lengthscales per column.

        Raises:
            ImportError: if arviz is not installed, the extra ``posteriors``.
            ValueError: if there are more or fewer names than columns.
        """
        try:
            import arviz
        except ImportError as error:
            raise ImportError("The package arviz is not installed: pip install 'kernel-embed[posteriors]'.") from error
        draws = self.draws
        statistics = {"lp": draws.log_density, "diverging": draws.diverging}
        if draws.energy is not None and draws.depth is not None:
            statistics |= {"energy": draws.energy, "tree_depth": draws.depth}
        groups = {"posterior": self.samples_by_chain, "sample_stats": statistics}
        coords = None if feature_names is None else self._coordinates(list(map(str, feature_names)))
        arrays = {k: {name: v.cpu().numpy() for name, v in g.items()} for k, g in groups.items()}
        return arviz.from_dict(**arrays, coords=coords)

    def _coordinates(self, feature_names: list[str]) -> dict[str, list[str]]:
        """Names of the columns that each lengthscale belongs to, by ArviZ's default names of dimensions."""
        d = self.potential.x.shape[-1]
        if len(feature_names) != d:
            raise ValueError(f"x has {d} columns, but feature_names has {len(feature_names)} names. Name each column.")
        embedding, coordinates = self.potential.embedding, {}
        names = {module: name for name, module in embedding.named_modules()}
        kernel = getattr(embedding, "kernel", None)
        for node in nodes_of(kernel) if isinstance(kernel, Kernel) else ():
            name, columns = f"{names[node.kernel]}.lengthscale", node.select(torch.arange(d)).tolist()
            values = self.samples_by_chain.get(name)
            if values is not None and values.shape[-1] == len(columns):
                coordinates[f"{name}_dim_{values.dim() - 3}"] = [feature_names[j] for j in columns]
        return coordinates

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write draws, data and settings to a file that :func:`kernel_embed.load_posterior` reads."""
        from .archive import write  # which knows all classes of posteriors

        write(path, self.potential, self.draws, self.method, self.weights)

    def reweighted(self, weights: Tensor) -> Self:
        """The same draws with other ``weights`` ``(S,)``, which are normalized.

        Raises:
            TypeError: if ``weights`` is not a tensor of real numbers.
            ValueError: if there is not one weight for each draw, or one is negative.
        """
        check_tensor(weights, "weights")
        if weights.shape != self.weights.shape or not bool((weights >= 0).all()) or not float(weights.sum()) > 0:
            raise ValueError(f"weights must have the shape {tuple(self.weights.shape)}, one per draw, and be ≥ 0.")
        return type(self)(self.potential, self.draws, self.method, weights.double() / weights.double().sum())

    def weigh_modes(self, seed: int = 0) -> Self:
        """The same draws with chains in different modes weighted by a bridge estimate of the evidence of their mode.

        Raises:
            ValueError: if the draws come from an approximation around one mode, :class:`~kernel_embed.Laplace` or
                :class:`~kernel_embed.SVI`.
        """
        if self.draws.is_approximate:
            raise ValueError(
                f"These are draws of {self.method}, an approximation around one mode: there are no modes to weigh. "
                "Sample with NUTS() or SMC()."
            )
        return self.reweighted(mode_weights(self.potential, self.draws.u, self.draws.log_density, seed))

    def thinned(self, num_draws: int) -> Self:
        """At most ``num_draws`` draws, evenly spaced over each chain, for expensive predictions."""
        per_chain = max(1, num_draws // self.num_chains)
        keep = (
            torch.linspace(0, self.num_samples - 1, min(per_chain, self.num_samples), dtype=torch.float64)
            .round()
            .long()
        )
        weights = self.weights.reshape(self.num_chains, self.num_samples)[:, keep].reshape(-1)
        return type(self)(self.potential, self.draws.at(keep), self.method, weights / weights.sum())

    def kernel_draws(self) -> KernelDraws:
        """The kernels of all draws, as batches of kernels, with the draws' weights."""
        lengths = [len(piece) for piece in self._embedding_draws.pieces()]
        kernels = tuple(embedding.kernel for embedding in self._embedding_draws)
        return KernelDraws(kernels, self.weights.split(lengths))

    def average_kernel(self, num_draws: int = 20) -> Kernel:
        """The kernel Σ_s k_s / S over ``num_draws`` draws, selected by weight: for tests averaged over the posterior.

        A posterior given the pooled sample does not depend on which row belongs to which sample, so that a permutation
        test with this kernel stays exact.

        Raises:
            TypeError: if ``num_draws`` is not a whole number.
            ValueError: if it is below 1.
        """
        check_count("num_draws", num_draws)
        ticks = (torch.arange(num_draws, dtype=torch.float64) + 0.5) / num_draws
        rows = torch.searchsorted(self.weights.cumsum(0), ticks).clamp_max(len(self.weights) - 1)
        parts = []
        for u in self.draws.u.flatten(0, 1)[rows]:
            part = ScaleKernel(load_one(self.potential, u).kernel).to(self.potential.x)
            part.outputscale = part.raw_outputscale.new_tensor(1.0 / num_draws)
            parts.append(part.requires_grad_(False))
        return AdditiveKernel(*parts)

    @functools.cached_property
    def _embedding_draws(self) -> EmbeddingDraws[E_co]:
        return EmbeddingDraws(self.potential, self.draws.u.flatten(0, 1))

    def embeddings(self) -> Iterator[E_co]:
        """Embeddings that together have all draws as their leading batch dimension."""
        yield from self._embedding_draws

    def conditioned(self) -> Iterator[C_co]:
        """The same, conditioned on the data. They are kept between calls while their matrices are small."""
        yield from self._cached if self._is_cached else self._attached()

    def each(self, function: Callable[[C_co], Tensor]) -> Tensor:
        """``function(conditioned)`` for every draw: ``(S, *shape)``.

        ``conditioned`` is the conditioned embedding for a batch of draws, and ``function`` keeps the batch in front.
        """
        with torch.no_grad(), quiet_numbers():
            values = [function(conditioned) for conditioned in self.conditioned()]
        return torch.cat(values) if self._embedding_draws.is_batched else torch.stack(values)

    def average(self, function: Callable[[C_co], Tensor]) -> Tensor:
        """Σ_s w_s function_s: the prediction with the hyperparameters integrated out."""
        return self.weighted_average(self.each(function))

    def weighted_average(self, values: Tensor) -> Tensor:
        """Σ_s w_s v_s for ``values`` ``(S, *shape)``."""
        total: Tensor = torch.tensordot(self.weights.to(values), values, dims=1)
        return total

    @functools.cached_property
    def _cached(self) -> list[C_co]:
        return list(self._attached())

    def _attached(self) -> Iterator[C_co]:
        # ``attach`` instead of ``condition``: these copies are private, so they need no freezing.
        return (cast(C_co, embedding.attach(*self.potential.data)) for embedding in self.embeddings())
