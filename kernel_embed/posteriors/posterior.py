r"""The posterior over hyperparameters: draws, their diagnostics, and predictions averaged over them.

Draws are one more batch dimension: an embedding whose parameters have shape ``(S, …)`` predicts for S draws at once.
All formulas of this library support leading dimensions, and so do GPyTorch's kernels. A feature map does not: if draws
concern its weights, or a kernel gives other values for a batch than alone, draws are evaluated one by one.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gpytorch
import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ScaleKernel
from torch import Tensor
from typing_extensions import Self

from ..kernels import gram
from ..kernels.structure import nodes_of
from ..runtime import cpu_by_default
from ..validation import check_count, check_tensor
from .draws import Draws, Summary, summarize
from .potential import Potential, quiet_numbers
from .smc import mode_weights

if TYPE_CHECKING:
    from arviz import InferenceData

CACHED_ENTRIES = 2**26  # of Gram matrices kept between calls: 512 MiB in float64, and as much for the factors
BLOCK_ENTRIES = 2**24  # entries of the Gram matrices of draws in memory at once: 128 MiB in float64


class KernelDraws(NamedTuple):
    """The kernels of all draws, in as few batches as memory allows.

    Attributes:
        kernels: each with a leading batch dimension of b draws, or without one for a single draw.
        weights: of the draws in each batch, ``(b,)`` or ``(1,)``; all together sum to 1.

    Example:
        >>> KernelDraws((gpytorch.kernels.RBFKernel(),), (torch.ones(1),)).weights
        (tensor([1.]),)
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[Tensor, ...]


class Posterior:
    """Draws of the hyperparameters of an embedding given data; made by :func:`kernel_embed.sample_posterior`.

    Predictions are computed for every draw and averaged with ``weights``. ``num_chains`` have ``num_samples`` draws
    each; ``interrupted``, ``seconds``, ``num_evaluations`` and ``log_evidence`` are those of the draws. The evidence is
    ∫ exp(−U) du with all priors as they were registered; it is not renormalized if a constraint truncates one.

    Args:
        potential: the density that was sampled.
        draws: result of the sampler.
        method: name of the sampler.
        weights: of the draws, ``(S,)``, summing to 1; equal by default.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding, x = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel()), torch.randn(20, 1)
        >>> posterior = ke.sample_posterior(embedding, ke.EmbeddingEvidence(), x, num_samples=10, sampler=ke.Laplace())
        >>> posterior.samples["kernel.lengthscale"].shape
        torch.Size([40, 1, 1])
    """

    def __init__(self, potential: Potential, draws: Draws, method: str, weights: Tensor | None = None) -> None:
        self.potential, self.draws, self.method = potential, draws, method
        self.num_chains, self.num_samples = draws.u.shape[:2]
        S = self.num_chains * self.num_samples
        self.weights = torch.full((S,), 1.0 / S, dtype=torch.float64, device="cpu") if weights is None else weights
        self._cached: list[Any] | None = None
        self.interrupted, self.seconds = draws.interrupted, draws.seconds
        self.num_evaluations, self.log_evidence = draws.num_evaluations, draws.log_evidence

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
        """Mean, sd, quantiles, ``n_eff``, ``n_eff_tail`` and ``r_hat`` of every parameter, as by ArviZ; prints a table.

        ``num_divergences``, ``e_bfmi`` and ``tree_depth`` describe the trajectories.
        """
        return summarize(self.samples_by_chain, self.weights, self.draws)

    def __repr__(self) -> str:
        head = f"{type(self).__name__}({self.num_chains} chains × {self.num_samples} draws by {self.method}"
        return f"{head}{', interrupted' if self.interrupted else ''}; {self.kind})\n{self.summary()}"

    def to_arviz(self, feature_names: Sequence[str] | None = None) -> InferenceData:
        """The draws as ``arviz.InferenceData``.

        Args:
            feature_names: names of the columns of x; coordinates of lengthscales per column.

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
            name, columns = f"{names[node.kernel]}.lengthscale", node.select(torch.arange(d, device="cpu")).tolist()
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
            ValueError: if there is not one weight for each draw, or one is negative.
        """
        check_tensor(weights, "weights")
        if weights.shape != self.weights.shape or not bool((weights >= 0).all()) or not float(weights.sum()) > 0:
            raise ValueError(f"weights must have the shape {tuple(self.weights.shape)}, one per draw, and be ≥ 0.")
        return type(self)(self.potential, self.draws, self.method, weights.double() / weights.double().sum())

    def weigh_modes(self, seed: int = 0) -> Self:
        """The same draws with chains in different modes weighted by a bridge estimate of the evidence of their mode.

        Raises:
            ValueError: if the draws come from an approximation around one mode.
        """
        if self.draws.is_approximate:
            raise ValueError(f"These are draws of {self.method}, around one mode. Sample with NUTS() or SMC().")
        return self.reweighted(mode_weights(self.potential, self.draws, seed))

    def thinned(self, num_draws: int) -> Self:
        """At most ``num_draws`` draws, evenly spaced over each chain, for expensive predictions."""
        count = min(max(1, num_draws // self.num_chains), self.num_samples)
        keep = torch.linspace(0, self.num_samples - 1, count, dtype=torch.float64, device="cpu").round().long()
        weights = self.weights.reshape(self.num_chains, self.num_samples)[:, keep].reshape(-1)
        return type(self)(self.potential, self.draws.at(keep), self.method, weights / weights.sum())

    def kernel_draws(self) -> KernelDraws:
        """The kernels of all draws, as batches of kernels, with the draws' weights."""
        lengths = [len(piece) for piece in self._pieces()]
        return KernelDraws(tuple(embedding.kernel for embedding in self.embeddings()), self.weights.split(lengths))

    @cpu_by_default()
    def average_kernel(self, num_draws: int = 20) -> Kernel:
        """The kernel Σ_s k_s / S over ``num_draws`` draws, selected by weight.

        Raises:
            ValueError: if ``num_draws`` is below 1.
        """
        check_count("num_draws", num_draws)
        ticks = (torch.arange(num_draws, dtype=torch.float64, device=self.weights.device) + 0.5) / num_draws
        rows = torch.searchsorted(self.weights.cumsum(0), ticks).clamp_max(len(self.weights) - 1)
        parts = [ScaleKernel(self.potential.loaded(u).kernel) for u in self.draws.u.flatten(0, 1)[rows]]
        for part in parts:
            part.to(self.potential.x).outputscale = self.potential.x.new_tensor(1.0 / num_draws)
        return AdditiveKernel(*parts).requires_grad_(False)

    @functools.cached_property
    def _is_batched(self) -> bool:
        """Whether a batch of draws gives the same Gram matrices as each draw alone."""
        potential = self.potential
        owners = {name.rpartition(".")[0] for name in potential.vector.named}
        if not all(isinstance(potential.embedding.get_submodule(owner), gpytorch.Module) for owner in owners):
            return False
        rows, pair = potential.x[:5], torch.stack([self.draws.u[0, 0], self.draws.u[-1, -1]])
        try:
            with torch.no_grad():
                together = gram(potential.loaded(pair).kernel, rows)
                alone = torch.stack([gram(potential.loaded(draw).kernel, rows) for draw in pair])
        except (RuntimeError, ValueError, IndexError):
            return False
        return together.shape == alone.shape and torch.allclose(together, alone, rtol=1e-6, atol=1e-9)

    def _pieces(self) -> tuple[Tensor, ...]:
        """The draws of each embedding: ``(b, dimension)``."""
        size = max(1, BLOCK_ENTRIES // self.potential.x.shape[-2] ** 2) if self._is_batched else 1
        return tuple(self.draws.u.flatten(0, 1).split(size))

    def embeddings(self) -> Iterator[Any]:
        """Embeddings that together have all draws as their leading batch dimension; or one for each draw, without."""
        for piece in self._pieces():
            yield self.potential.loaded(piece if self._is_batched else piece[0])

    def conditioned(self) -> Iterator[Any]:
        """The same, with the data attached. They are kept between calls while their matrices are small."""
        # ``attach`` instead of ``condition``: these copies are private, so they need no freezing.
        attached = (embedding.attach(*self.potential.data) for embedding in self.embeddings())
        if len(self.weights) * self.potential.x.shape[-2] ** 2 > CACHED_ENTRIES:
            return attached
        if self._cached is None:
            self._cached = list(attached)
        return iter(self._cached)

    def each(self, function: Callable[[Any], Tensor]) -> Tensor:
        """``function(conditioned)`` for every draw, ``(S, *shape)``; conditioned embeddings have batches of draws."""
        with torch.no_grad(), quiet_numbers():
            values = [function(conditioned) for conditioned in self.conditioned()]
        return torch.cat(values) if self._is_batched else torch.stack(values)

    def average(self, function: Callable[[Any], Tensor]) -> Tensor:
        """Σ_s w_s function_s: the prediction with the hyperparameters integrated out."""
        return self.weighted_average(self.each(function))

    def weighted_average(self, values: Tensor) -> Tensor:
        """Σ_s w_s v_s for ``values`` ``(S, *shape)``."""
        return torch.tensordot(self.weights.to(values), values, dims=1)  # type: ignore[no-any-return]
