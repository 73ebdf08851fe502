"""Sampling against Stan and against GPyTorch's own recipe, and 200 chains from the prior.

    python tests/benchmarks/posterior.py recipe      # GPyTorch's pyro_sample_from_prior, n = 200, ARD in 5 dimensions
    python tests/benchmarks/posterior.py stan        # the paper's Stan program, n = 600; needs the extra ``bench``
    python tests/benchmarks/posterior.py modes       # mean and sd of each mode of that program, by quadrature
    python tests/benchmarks/posterior.py chains      # 200 chains from the prior over five kinds of kernels

Rivals run in one process, one after the other, on the same data and with the same priors.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import MaternKernel, PolynomialKernel, RBFKernel, ScaleKernel, SpectralMixtureKernel
from gpytorch.priors import GammaPrior, LogNormalPrior

import kernel_embed as ke
from kernel_embed.papers.flaxman2016.mixtures import mixture_samples, model
from kernel_embed.posteriors import NUTS
from kernel_embed.posteriors.diagnostics import n_eff
from kernel_embed.posteriors.potential import Potential

STAN = """
data { int<lower=1> n; vector[n] x; real sigma2; }
transformed data {
  matrix[n, n] difference; matrix[n, n] square_distance; vector[n] zeros = rep_vector(0, n);
  for (i in 1:n) for (j in 1:n) { difference[i, j] = x[i] - x[j]; square_distance[i, j] = square(x[i] - x[j]); }
}
parameters { real<lower=0> lengthscale; }
transformed parameters { }
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
"""Appendix B in today's syntax, with the factor √π ℓ of R that it drops."""


def against_stan(num_draws: int) -> None:
    """Mean and sd of the lengthscale in each mode, and effective draws per second."""
    import stan

    x = torch.cat(mixture_samples(100))
    data = {"n": len(x), "x": x.squeeze(-1).tolist(), "sigma2": 0.1}
    program = stan.build(STAN, data=data, random_seed=1)
    settings = {"num_chains": 1, "num_warmup": num_draws, "num_samples": num_draws}
    for start in (0.5, 2.9):
        began = time.perf_counter()
        theirs = program.sample(init=[{"lengthscale": start}], **settings)
        stan_seconds = time.perf_counter() - began
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ke.PosteriorWarning)
            ours = ke.sample_posterior(
                model(), ke.EmbeddingEvidence(), x, num_samples=num_draws, warmup_steps=num_draws, num_chains=1, seed=0,
                initial={"kernel.lengthscale": torch.tensor(start)}, sampler=NUTS(parallel=False), progress=False,
            )  # fmt: skip
        rows = [
            ("stan", torch.as_tensor(theirs["lengthscale"]).reshape(1, -1), stan_seconds, theirs["n_leapfrog__"].sum()),
            ("ours", ours.samples["kernel.lengthscale"].reshape(1, -1), ours.seconds, ours.num_evaluations),
        ]
        rates = []
        for name, draws, seconds, count in rows:
            effective = n_eff(draws).item()
            rates.append(effective / seconds)
            print(
                f"mode {start}: {name} mean {draws.mean():.4f} ± {draws.std() / math.sqrt(effective):.4f} sd "
                f"{draws.std():.4f}, n_eff {effective:.0f} of {num_draws}, {seconds:.1f} s, {int(count)} leapfrog "
                f"steps after warm-up (ours: evaluations in all), {rates[-1]:.3f} effective draws per second",
                flush=True,
            )
        print(f"mode {start}: ratio of effective draws per second {rates[1] / rates[0]:.1f} (at least 5)", flush=True)


class ExactGP(gpytorch.models.ExactGP):
    """The model of ConditionalEvidence with one target, as GPyTorch writes it."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: gpytorch.likelihoods.Likelihood) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = kernel(x.shape[-1])

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def modes_by_quadrature() -> None:
    """What every sampler of that model should find: 601 points of the density over each mode."""
    potential = Potential(model(), ke.EmbeddingEvidence(), torch.cat(mixture_samples(100)), None)
    for low, high in ((0.46, 0.57), (2.4, 3.6)):
        lengthscale = np.linspace(low, high, 601)
        u = [potential.unconstrained({"kernel.lengthscale": torch.tensor(value)}) for value in lengthscale]
        log_density = -np.array([potential.value(point) for point in u])
        jacobian = np.gradient(np.concatenate(u), lengthscale)  # the density is that of the raw parameter u
        weight = np.exp(log_density - log_density.max()) * jacobian
        weight /= weight.sum()
        mean = (weight * lengthscale).sum()
        print(f"lengthscale {mean:.4f}, sd {np.sqrt((weight * (lengthscale - mean) ** 2).sum()):.4f}", flush=True)


def kernel(width: int) -> ScaleKernel:
    inner = RBFKernel(ard_num_dims=width, lengthscale_prior=LogNormalPrior(0.0, 0.7))
    return ScaleKernel(inner, outputscale_prior=GammaPrior(2.0, 2.0)).double()


def against_recipe(num_draws: int) -> None:
    """n = 200, five lengthscales, outputscale and noise: the recipe of GPyTorch's tutorial."""
    import pyro.infer

    generator = np.random.RandomState(0)
    x = torch.as_tensor(generator.rand(200, 5))
    y = torch.sin(4 * x[:, 0]) + x[:, 1] + 0.2 * torch.as_tensor(generator.randn(200))
    n = len(y)
    # λ = σ²/n, so that the two noises are one; its prior is that of σ² in other units.
    prior = LogNormalPrior(math.log(0.04), 1.0)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_prior=prior, noise_constraint=gpytorch.constraints.Positive()
    ).double()
    gp = ExactGP(x, y, likelihood)

    def recipe(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        with gpytorch.settings.fast_computations(False, False, False):
            sampled = gp.pyro_sample_from_prior()
            output = sampled.likelihood(sampled(x))
            pyro.sample("obs", output, obs=y)
        return y

    ours_embedding = ke.ConditionalEmbedding(
        kernel(5), regularization=0.04 / n, regularization_prior=LogNormalPrior(math.log(0.04 / n), 1.0)
    )
    torch.manual_seed(0)
    began = time.perf_counter()
    mcmc = pyro.infer.MCMC(pyro.infer.NUTS(recipe), num_samples=num_draws, warmup_steps=num_draws, disable_progbar=True)
    mcmc.run(x, y)
    theirs_seconds = time.perf_counter() - began
    theirs = {name: draws.squeeze() for name, draws in mcmc.get_samples().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ke.PosteriorWarning)
        ours = ke.sample_posterior(
            ours_embedding, ke.ConditionalEvidence(), x, y, num_samples=num_draws, warmup_steps=num_draws,
            num_chains=1, seed=0, sampler=NUTS(parallel=False), progress=False,
        )  # fmt: skip
    samples = ours.samples
    pairs = [
        ("log noise", theirs["likelihood.noise_covar.noise_prior"].log(), (n * samples["regularization"]).log()),
        ("outputscale", theirs["covar_module.outputscale_prior"], samples["kernel.outputscale"]),
    ]
    lengths = theirs["covar_module.base_kernel.lengthscale_prior"].reshape(-1, 5)
    for j in range(5):
        pairs.append(
            (f"log lengthscale {j}", lengths[:, j].log(), samples["kernel.base_kernel.lengthscale"][:, 0, j].log())
        )
    worst = [math.inf, math.inf]
    for name, a, b in pairs:
        effective = [min(n_eff(d.double()[None]).item(), len(d)) for d in (a, b)]
        worst = [min(w, e) for w, e in zip(worst, effective, strict=True)]
        error = math.sqrt(a.var().item() / effective[0] + b.var().item() / effective[1])
        print(
            f"{name}: recipe {a.mean():.3f} ± {a.std():.3f}, ours {b.mean():.3f} ± {b.std():.3f}, difference of means "
            f"{abs(a.mean() - b.mean()) / error:.1f} standard errors"
        )
    print(
        f"recipe {theirs_seconds:.1f} s, ours {ours.seconds:.1f} s for {num_draws} + {num_draws} draws: ratio "
        f"{theirs_seconds / ours.seconds:.1f} (at least 5); least effective draws {worst[0]:.0f} and {worst[1]:.0f}, "
        f"ratio of effective draws per second {worst[1] / ours.seconds / (worst[0] / theirs_seconds):.1f}"
    )


def chains_from_the_prior(count: int) -> None:
    """``count`` chains, each from a start and with a seed of its own, over kernels of five kinds."""
    generator = np.random.RandomState(0)
    x = torch.as_tensor(generator.randn(25, 2))
    y = torch.as_tensor((x[:, 0] + 0.5 * torch.as_tensor(generator.randn(25)) > 0).numpy()).long()
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)).double()
    kinds = {
        "rbf": lambda: ScaleKernel(RBFKernel(ard_num_dims=2, lengthscale_prior=GammaPrior(1.0, 1.0))),
        "matern": lambda: MaternKernel(0.5, lengthscale_prior=LogNormalPrior(0.0, 3.0)),
        "spectral mixture": lambda: SpectralMixtureKernel(3, ard_num_dims=2),
        "polynomial": lambda: ScaleKernel(PolynomialKernel(4)),
        "deep": lambda: ke.FeatureKernel(network, RBFKernel()),
    }
    objectives = [
        ke.ConditionalEvidence(),
        ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"),
        ke.default_objective(),
    ]
    done = refused = diverged = 0
    began = time.perf_counter()
    for number in range(count):
        name, make = list(kinds.items())[number % len(kinds)]
        objective = objectives[(number // len(kinds)) % len(objectives)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ke.PosteriorWarning)
            posterior = ke.sample_posterior(
                ke.MulticlassEmbedding(make().double(), 2), objective, x, y, num_samples=4, warmup_steps=6,
                num_chains=1, seed=number, sampler=NUTS(max_tree_depth=4, parallel=False), progress=False,
            )  # fmt: skip
        assert torch.isfinite(posterior.draws.u).all(), (name, number)
        done, refused = done + 1, refused + posterior.draws.num_refused
        diverged += posterior.num_divergences
        if number % 20 == 19:
            print(f"{done} chains, {time.perf_counter() - began:.0f} s", flush=True)
    print(f"{done} of {count} chains ended without error; {refused} proposals refused, {diverged} draws diverged")


def main() -> int:
    """Run one benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["stan", "modes", "recipe", "chains"])
    parser.add_argument("--draws", type=int, default=100, help="of each chain, after as many of warm-up")
    parser.add_argument("--count", type=int, default=200, help="of chains from the prior")
    options = parser.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads", flush=True)
    actions = {
        "stan": lambda: against_stan(options.draws),
        "modes": modes_by_quadrature,
        "recipe": lambda: against_recipe(options.draws),
        "chains": lambda: chains_from_the_prior(options.count),
    }
    actions[options.what]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
