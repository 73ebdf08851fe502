"""Posteriors and tests against other libraries: effective draws per second, and the times of tests.

Draws come from the same two posteriors by NUTS, nutpie, Stan and GPyTorch's recipe for Pyro. Permutation tests are
compared with hyppo and dcor, conditional tests with causal-learn.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior
from numpy.typing import NDArray
from torch import Tensor

from ...embeddings import BayesianMeanEmbedding, MulticlassEmbedding
from ...hypothesis import conditional_independence_test, independence_test, two_sample_test
from ...hypothesis.conditional import Method
from ...kernels import log_scaled, set_lengthscales_by_median
from ...objectives import ConditionalEvidence, EmbeddingEvidence
from ...posteriors import NUTS, Nutpie, PosteriorWarning, Sampler, sample_posterior
from ...posteriors.draws import n_eff
from ...results import Record
from ..experiment import Settings
from ..papers import flaxman2016_mixtures
from . import OURS, Call, Measurement, part

Array = NDArray[np.float64]
CHAINS = 4
LENGTHSCALE = "kernel.lengthscale"
RECIPE = "GPyTorch with Pyro's recipe, one chain"
START = 2.9
"""Near the longer of the two modes of the sample's lengthscale."""
STAN_LABELS = """
data { int n; int m; matrix[n, m] Y; array[n] vector[1] x; }
parameters { real<lower=0> lengthscale; real<lower=0> regularization; }
model {
  matrix[n, n] L = cholesky_decompose(add_diag(gp_exp_quad_cov(x, 1.0, lengthscale), n * regularization));
  lengthscale ~ lognormal(-1, 1);
  regularization ~ lognormal(-4, 1);
  for (c in 1:m) col(Y, c) ~ multi_normal_cholesky(rep_vector(0, n), L);
}
"""
STAN_SAMPLE = """
data { int n; vector[n] x; real sigma2; }
transformed data {
  matrix[n, n] difference; matrix[n, n] square_distance; vector[n] zeros = rep_vector(0, n);
  for (i in 1:n) for (j in 1:n) { difference[i, j] = x[i] - x[j]; square_distance[i, j] = square(x[i] - x[j]); }
}
parameters { real<lower=0> lengthscale; }
model {
  matrix[n, n] K = exp(-square_distance / (2 * square(lengthscale)));
  matrix[n, n] R = sqrt(pi()) * lengthscale * exp(-square_distance / (4 * square(lengthscale)));
  matrix[n, n] L = cholesky_decompose(add_diag(R, sigma2));
  matrix[n, n] J = -K .* difference / (square(lengthscale) * n);
  vector[n] muhat;
  for (i in 1:n) { muhat[i] = mean(K[i]); target += log(abs(sum(J[i]))); }
  muhat ~ multi_normal_cholesky(zeros, L);
  lengthscale ~ gamma(1, 1);
}
"""
"""Appendix B of Flaxman et al. in today's syntax, with the factor √π ℓ of R that it drops."""


class Model(NamedTuple):
    """A posterior in this library, with the parameters at the start of the chains, and in Stan.

    Draws of the transformed lengthscale are counted. ``sampler`` and ``stan`` are options of the samplers.
    """

    problem: Callable[[int], tuple[Any, Any, Tensor, Tensor | None]]
    program: str
    data: Callable[[Tensor, Any], dict[str, Any]]
    sizes: tuple[int, ...]
    transform: Callable[[Tensor], Tensor]
    sampler: dict[str, int]
    stan: dict[str, Any]


def labels(n: int) -> tuple[MulticlassEmbedding, ConditionalEvidence, Tensor, Tensor]:
    """One feature, two classes, log-normal priors on lengthscale and λ."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, 1, dtype=torch.float64, generator=generator)
    y = (torch.sin(9.0 * x[:, 0]) + 0.5 * torch.randn(n, dtype=torch.float64, generator=generator) > 0).long()
    kernel = RBFKernel(lengthscale_prior=LogNormalPrior(-1.0, 1.0), lengthscale_constraint=log_scaled())
    kernel.lengthscale = 0.3
    embedding = MulticlassEmbedding(kernel, 2, regularization_prior=LogNormalPrior(-4.0, 1.0))
    return embedding.double(), ConditionalEvidence(), x, y


def sample(n: int) -> tuple[BayesianMeanEmbedding, EmbeddingEvidence, Tensor, None]:
    """The paper's mixtures and its model of their lengthscale."""
    embedding = flaxman2016_mixtures.model()
    embedding.kernel.lengthscale = START
    return embedding, EmbeddingEvidence(), torch.cat(flaxman2016_mixtures.mixture_samples(n // 6)), None


MODELS = {
    "labels": Model(
        labels, STAN_LABELS, lambda x, y: {"n": len(x), "m": 2, "x": x.tolist(), "Y": _one_hot(y).tolist()},
        (50, 100, 200, 600), torch.log, {"max_tree_depth": 6}, {"max_depth": 6},
    ),
    "a sample": Model(
        sample, STAN_SAMPLE, lambda x, y: {"n": len(x), "x": x.squeeze(-1).tolist(), "sigma2": 0.1},
        (48, 102, 198), lambda lengthscale: lengthscale, {}, {"init": [{"lengthscale": START}] * CHAINS},
    ),
}  # fmt: skip


def _one_hot(y: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(y, 2).double()


def _ours(model: Model, n: int, draws: int, sampler: Callable[..., Sampler], seed: int) -> Call:
    embedding, objective, x, y = model.problem(n)

    def call() -> Record:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PosteriorWarning)
            posterior = sample_posterior(
                embedding, objective, x, y, num_samples=draws, warmup_steps=draws, num_chains=CHAINS, seed=seed,
                progress=False, initial="current", sampler=sampler(**model.sampler),
            )  # fmt: skip
        return _figures(model, posterior.samples[LENGTHSCALE].reshape(CHAINS, -1))

    return call


def _stan(model: Model, n: int, draws: int, seed: int) -> Call:
    import stan

    x, y = model.problem(n)[2:]
    program = stan.build(model.program, data=model.data(x, y), random_seed=1 + seed)  # compiled, untimed

    def call() -> Record:
        chain = program.sample(num_chains=CHAINS, num_samples=draws, num_warmup=draws, **model.stan)
        # Draws come chain after chain within each row.
        return _figures(model, torch.as_tensor(chain["lengthscale"]).reshape(-1, CHAINS).T)

    return call


def _recipe(n: int, draws: int, seed: int) -> Call:
    """``pyro_sample_from_prior`` inside a Pyro model, as in GPyTorch's example of fully Bayesian models."""
    import pyro.infer

    embedding, _, x, y = labels(n)

    def program() -> None:
        sampled = embedding.pyro_sample_from_prior()
        A = sampled.kernel(x).add_jitter(n * sampled.regularization)
        prior = gpytorch.distributions.MultivariateNormal(torch.zeros(2, n, dtype=x.dtype), A)
        pyro.factor("labels", prior.log_prob(_one_hot(y).mT).sum())

    def call() -> Record:
        with torch.random.fork_rng(devices=[]), gpytorch.settings.fast_computations(False, False, False):
            torch.manual_seed(seed)
            kernel = pyro.infer.NUTS(program, **MODELS["labels"].sampler)
            chain = pyro.infer.MCMC(kernel, num_samples=draws, warmup_steps=draws, disable_progbar=True)
            chain.run()
        return _figures(MODELS["labels"], chain.get_samples()["kernel.lengthscale_prior"].reshape(1, -1))

    return call


def _figures(model: Model, lengthscale: Tensor) -> Record:
    """Mean and deviation, to see that all agree, and effective draws. One row of draws for each chain."""
    values = model.transform(lengthscale.detach().double())
    return {"mean": float(values.mean()), "sd": float(values.std()), "n_eff": max(float(n_eff(values)), 1.0)}


@part("posterior")
def posterior_cases(settings: Settings) -> Iterator[Measurement]:
    """Effective draws per second from the same posterior, compared with Stan, nutpie and GPyTorch's recipe for Pyro."""
    draws, seed = 10 if settings.quick else 200, settings.seed
    for name, model in MODELS.items():
        title = f"posterior of {name}"
        for n in (30,) if settings.quick else model.sizes:
            yield Measurement(title, OURS, n, partial(_ours, model, n, draws, NUTS, seed))
            nutpie = partial(_ours, model, n, draws, Nutpie, seed)
            yield Measurement(title, f"{OURS}, nutpie", n, nutpie, package="nutpie")
            yield Measurement(title, "Stan", n, partial(_stan, model, n, draws, seed), package="stan")
    n = 30 if settings.quick else 100
    yield Measurement("posterior of labels", RECIPE, n, partial(_recipe, n, draws, seed))


TITLES = {False: "two-sample test", True: "independence test"}
"""By whether the rows are pairs."""
FIXED, TRANSFORMS = f"{OURS}, median kernel", f"{OURS}, transforms"
METHODS: dict[str, Method] = {TRANSFORMS: "transforms", f"{OURS}, kernel": "kernel", f"{OURS}, residuals": "residuals"}


LEARNED, BARE = f"{OURS}, kernel learned", "bare Gram and product"


def _triples(n: int) -> tuple[Array, ...]:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, 1))
    return z + rng.normal(size=(n, 1)), np.sin(2 * z) + rng.normal(size=(n, 1)), z


def _test(name: str, n: int, permutations: int, paired: bool) -> Call:
    """A permutation test of a library, or the Gram matrices and their product, a lower bound for any test."""
    rng = np.random.default_rng(0)
    x, y = _triples(n)[:2] if paired else (rng.normal(size=(n, 2)), rng.normal(size=(n, 2)) + 0.2)
    samples = [torch.as_tensor(sample) for sample in (x, y)]
    if name in (FIXED, LEARNED):
        test: Any = partial(independence_test if paired else two_sample_test, samples[0], samples[1])
        points = {"kernel": samples[0], "kernel_y": samples[1]} if paired else {"kernel": torch.cat(samples)}
        kernels = {key: set_lengthscales_by_median(RBFKernel().to(one), one) for key, one in points.items()}
        options = kernels if name == FIXED else {}
        return lambda: {"pvalue": test(num_permutations=permutations, seed=0, **options).pvalue}
    if name == "hyppo":
        from hyppo.independence import Hsic
        from hyppo.ksample import MMD

        test = Hsic if paired else MMD
        test().test(x[:5], y[:5], reps=1, auto=False)  # compile it before the timing starts
        return lambda: {"pvalue": float(test().test(x, y, reps=permutations, auto=False, random_state=0)[1])}
    if name == "dcor":
        import dcor

        test = dcor.independence.distance_covariance_test if paired else dcor.homogeneity.energy_test
        return lambda: {"pvalue": float(test(x, y, num_resamples=permutations, random_state=0).pvalue)}
    samples = samples if paired else [torch.cat(samples)]
    W = torch.rand(len(samples[0]), permutations, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def bare() -> None:
        K, *L = (torch.exp(-0.5 * torch.cdist(one, one).square()) for one in samples)
        _ = (W * ((K * L[0] if L else K) @ W)).sum(0)

    return bare


def _conditional_test(name: str, n: int) -> Call:
    x, y, z = map(torch.as_tensor, _triples(n))
    if name in METHODS:
        return lambda: {"pvalue": conditional_independence_test(x, y, z, seed=0, method=METHODS[name]).pvalue}
    from causallearn.utils.cit import CIT

    data = np.column_stack(_triples(n))
    return lambda: {"pvalue": float(CIT(data, "kci")(0, 1, [2]))}


@part("hypothesis")
def hypothesis_cases(settings: Settings) -> Iterator[Measurement]:
    """Permutation tests against hyppo and dcor, conditional tests against causal-learn."""
    n, b = (60, 100) if settings.quick else (500, 1000)
    for paired, title in TITLES.items():
        for name in (FIXED, LEARNED, BARE, "hyppo", "dcor"):
            package, repeats = name if name in ("hyppo", "dcor") else "", 25 if name in (FIXED, BARE) else 1
            yield Measurement(title, name, n, partial(_test, name, n, b, paired), package, FIXED, repeats)
    for n in (60,) if settings.quick else (300, 1500):
        for name in (*METHODS, "causal-learn"):
            package, repeats = (
                "" if name in METHODS else "causallearn",
                5 if name in (TRANSFORMS, "causal-learn") else 1,
            )
            prepare = partial(_conditional_test, name, n)
            yield Measurement("conditional independence test", name, n, prepare, package, TRANSFORMS, repeats)
