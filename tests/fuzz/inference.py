"""Posteriors, tests and large data."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed import hypothesis, kernels, posteriors, scale
from kernel_embed.lab import studies

from .entries import (
    ENTRIES,
    Probabilities,
    ask,
    bayesian,
    classes,
    conditioned,
    linear_map,
    multiclass,
    parameters,
)
from .inputs import LINE, NAN, NUMBERS, Inputs, M, N, clean_x

# posteriors ----------------------------------------------------------------------------------------------------------


def sampled(i: Inputs, sampler: object) -> object:
    settings = {"num_samples": 3, "warmup_steps": 3, "num_chains": 1, "seed": 0, "temperature": 1.0, "initial": "prior"}
    posterior = i.call(ke.sample_posterior, *classes(i, ke.ConditionalEvidence()), sampler=sampler, **settings)
    return list(posterior.samples.values()), ask(posterior, "probabilities", i.query())


def sample_posterior(i: Inputs) -> object:
    samplers = (ke.NUTS(max_tree_depth=3), ke.SMC(num_particles=8), ke.Laplace(), ke.SVI(num_steps=5), ke.Laplace())
    return sampled(i, i.pick("sampler", samplers))


def nutpie(i: Inputs) -> object:
    depth = i.setting("max_tree_depth", 3, (1, *NUMBERS))
    return sampled(i, i.call(posteriors.Nutpie, max_tree_depth=depth, target_accept_prob=0.8, full_mass=False))


FAST = {"num_samples": 3, "num_chains": 1, "seed": 0, "sampler": ke.Laplace()}


def mean_posterior(i: Inputs, x: object) -> object:
    return ke.sample_posterior(bayesian(i), ke.EmbeddingEvidence(), x, **FAST)


def draws() -> object:
    embedding = ke.MulticlassEmbedding(RBFKernel().double(), M)
    return ke.sample_posterior(embedding, ke.ConditionalEvidence(), clean_x(), torch.arange(N) % M, **FAST)


ENTRIES |= {
    "sample_mean_posterior": lambda i: mean_posterior(i, i.x())(i.query()).mean,
    "sampler_settings": lambda i: i.one_of(
        lambda: i.call(ke.NUTS, max_tree_depth=3, step_size=1.0, target_accept_prob=0.8),
        lambda: i.call(ke.SMC, num_particles=8),
        lambda: i.call(ke.SVI, num_steps=8),
    ),
    "choose_temperature": lambda i: ask(
        i.call(posteriors.choose_temperature, *classes(i, ke.EmpiricalRisk()), temperatures=(1.0,), num_folds=2,
               num_samples=2, sampler=ke.Laplace(), seed=0), "temperature"),
    "choose_power": lambda i: ask(
        i.call(posteriors.choose_power, *classes(i, ke.EmpiricalRisk()), powers=(1.0, 4.0),
               num_samples=2, sampler=ke.Laplace(), seed=0), "power"),
    "pyro_model": lambda i: i.call(ke.pyro_model, *classes(i, ke.ConditionalEvidence()), temperature=1.0),
    "default_prior": lambda i: posteriors.default_prior(
        i.setting("raw", torch.zeros(2), (None, 3.0, "0", torch.tensor([NAN]))),
        i.setting("constraint", kernels.log_scaled(), (None, "positive", gpytorch.constraints.Interval(0, 1))),
    ),
}  # fmt: skip


def potential(i: Inputs) -> object:
    density = i.call(posteriors.Potential, *classes(i, ke.ConditionalEvidence()), temperature=1.0)
    return density.value(density.vector.get()) == 0.0


def posterior_questions(i: Inputs) -> object:
    posterior = draws()
    return i.one_of(
        lambda: posterior.reweighted(i.setting("weights", torch.ones(3))).weights,
        lambda: i.call(posterior.thinned, num_draws=2).samples["kernel.lengthscale"],
        lambda: parameters(i.call(posterior.average_kernel, num_draws=2)),
        lambda: Probabilities(i.call(posterior.probabilities, i.x(), calibrated=False)),
        lambda: list(posterior.entropy_parts(i.x())),
        lambda: posterior.mean(i.x()),
        lambda: i.call(posterior.weigh_modes, seed=0).weights,
        lambda: ke.two_sample_test(i.x(), clean_x(2), kernel=posterior, num_permutations=19, seed=0).statistic,
    )


def mean_posterior_questions(i: Inputs) -> object:
    posterior = mean_posterior(i, clean_x())
    bands = (posterior.band, i.query()), (posterior.witness(i.x(), i.query()).band, clean_x(2))
    return [i.call(band, query, level=0.8) for band, query in bands], posterior.mixture(i.x()).quantile(0.3)


# tests ---------------------------------------------------------------------------------------------------------------


def maybe_kernel(i: Inputs) -> Any:
    return i.kernel() if i.is_broken("kernel") else i.pick("kernel", (None, RBFKernel().double()))


def tested(i: Inputs, test: object, *data: object, **settings: object) -> list[object]:
    result = i.call(test, *data, num_permutations=19, seed=0, **settings)
    return ask(result, "pvalue statistic")


ENTRIES |= {
    "two_sample_test": lambda i: tested(i, ke.two_sample_test, i.x(), i.query(), kernel=maybe_kernel(i)),
    "k_sample_test": lambda i: tested(i, ke.k_sample_test, [i.x(), i.query(), clean_x(2)], kernel=maybe_kernel(i)),
    "independence_test": lambda i: tested(i, ke.independence_test, i.x(), i.query()),
    "conditional_independence_test": lambda i: tested(
        i, ke.conditional_independence_test, i.x(), i.query(), clean_x(2)),
    "conditional_two_sample_test": lambda i: tested(
        i, hypothesis.conditional_two_sample_test, i.x(), i.targets(), i.query(), LINE),
    "log_bayes_factor": lambda i: i.call(
        hypothesis.log_bayes_factor, i.x(), i.query(), maybe_kernel(i), seed=0, num_locations=5),
    "linear_time_test": lambda i: ask(
        hypothesis.LinearTimeTwoSampleTest(i.kernel()).update(i.x(), i.query()).result(), "pvalue statistic"),
    "differences": lambda i: ask(
        i.call(ke.two_sample_test(i.x(), i.query(), num_permutations=19, seed=0).differences, level=0.95, seed=0),
        "witness band pvalues"),
    # refusals alone where causal-learn is installed: what is taken stays registered
    "register_causal_test": lambda i: i.call(
        hypothesis.register_causal_test, i.pick("name", ("", None, 3)), num_permutations=19),
}  # fmt: skip


def rejection_study(i: Inputs) -> object:
    test = i.setting("test", lambda x, seed: 0.5, (None, "test", lambda x, seed: NAN))
    simulator = i.setting("simulator", lambda number: (number,), (None, "data"))
    settings = {"num_repetitions": 3, "level": 0.05, "progress": False}
    study = i.call(studies.rejection_study, {"test": test}, {"data": simulator}, **settings)
    return Probabilities(study.rate("data", "test"))


# large data ----------------------------------------------------------------------------------------------------------


def approximate(i: Inputs) -> object:
    method = i.one_of(
        lambda: i.call(ke.RandomFeatures, num_features=8, seed=0),
        lambda: i.call(ke.Nystrom, num_points=5, seed=0),
        lambda: i.call(scale.ConjugateGradients, tolerance=1e-6),
        lambda: i.setting("method", ke.Nystrom(5), (None, "nystrom", ke.Nystrom, 3)),
    )
    predictor, error = i.call(ke.approximate, multiclass(i), i.x(), i.labels(), method=method, probe_size=5)
    return ask(predictor, "probabilities", i.query()), error


def on_features() -> ke.MulticlassEmbedding:
    return ke.MulticlassEmbedding(ke.FeatureKernel(linear_map()), M)


def compress(i: Inputs) -> object:
    predictor, report = i.call(scale.compress, conditioned(i), num_points=3, choice="greedy")
    return ask(predictor, "probabilities", i.query()), report


def statistics(i: Inputs) -> object:
    sums = scale.FeatureStatistics(on_features()).update(i.x(), i.labels())
    sums = scale.reduce_statistics(sums) if i.pick("reduced", (False, True)) else sums
    return ask(sums.condition(), "probabilities", i.query())


ENTRIES |= {
    "accumulate": lambda i: ask(
        scale.accumulate(on_features(), i.x(), i.labels()).condition(), "probabilities", i.query()
    ),
    # without a process group there is nothing to share
    "sharded": lambda i: scale.ShardedEmbedding(on_features()).condition(i.x(), i.labels()).probabilities(i.query()),
}
