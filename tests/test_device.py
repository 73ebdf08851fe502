"""Everything follows the device of the data, whatever the default device of the process is."""

import copy
import pathlib
import re
import subprocess
import sys

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

import kernel_embed as ke
from kernel_embed import voting
from kernel_embed.objectives import holdout_bound, pac_bayes_bound, score_bound

from .conftest import make_problem, named_kernels
from .objectives import OBJECTIVES

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
LABELS = (X[:, 0] * X[:, 1] > 0).astype(int)
TARGETS = X[:, 0] + 0.1 * RNG.normal(size=60)
PROBLEM = make_problem()
x, y, query = torch.tensor(X), torch.tensor(LABELS), torch.tensor(X[:5] + 0.1)
real = torch.tensor(TARGETS)
MULTICLASS = ke.MulticlassEmbedding(ScaleKernel(RBFKernel(ard_num_dims=2)).double(), 2, 0.1)
REAL = ke.ConditionalEmbedding(MaternKernel(1.5).double(), 0.1, RBFKernel().double())
KERNELS = named_kernels()
PLAIN = RBFKernel().double()
MEAN = ke.BayesianMeanEmbedding(RBFKernel().double(), noise=0.1, learn_noise=True)
SETTINGS = {"num_samples": 4, "num_chains": 2, "seed": 0, "progress": False}


def every(values):
    """The tensors in what a call returned, however nested; arrays and numbers have no device."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, gpytorch.distributions.MultivariateNormal):
        yield from (values.mean, values.covariance_matrix)
    elif isinstance(values, dict):
        yield from every(list(values.values()))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from every(value)
    elif isinstance(values, torch.nn.Module):
        yield from [*values.parameters(), *values.buffers()]


def evaluated(name):
    embedding = ke.MulticlassEmbedding(KERNELS["sum"], PROBLEM.m)
    value = OBJECTIVES[name]()(embedding, PROBLEM.x, PROBLEM.y)
    value.backward()
    return value, [p.grad for p in embedding.parameters() if p.grad is not None]


def learned(embedding, objective, *data, **settings):
    embedding = copy.deepcopy(embedding)
    result = ke.fit(embedding, objective, *data, seed=0, progress=False, **settings)
    return embedding, result.value, repr(result)


def classes_of(conditioned):
    g = torch.tensor([0.0, 1.0], device="cpu")
    return [
        conditioned.probabilities(query), conditioned.predict(query), conditioned.entropy(query),
        conditioned.expectation(g, query), conditioned.expectation(lambda c: c.double(), query),
        conditioned.sample_rows(2, query, seed=0), getattr(conditioned, "leave_one_out", list)(),
    ]  # fmt: skip


def values_of(conditioned):
    distribution = conditioned.distribution(query)
    return [
        conditioned.quantile(0.5, query), conditioned.leave_one_out_distribution().F,
        conditioned.expectation(lambda y: y, query), conditioned.sample_rows(2, query, seed=0), distribution.mean,
        distribution.quantile([0.1, 0.9]), distribution.cdf(0.0), distribution.interval(0.8),
        distribution.sample(3, seed=0), distribution.variance,
    ]  # fmt: skip


def sampled(embedding, objective, *data, sampler=None, predict=classes_of, **settings):
    posterior = ke.sample_posterior(embedding, objective, *data, sampler=sampler, **SETTINGS, **settings)
    text = repr(posterior), posterior.summary()
    return posterior.samples, text, predict(posterior), posterior.thinned(2).weights, posterior.average_kernel(2)


def with_prior(prior):
    kernel = RBFKernel(lengthscale_prior=prior).double()
    return ke.MulticlassEmbedding(kernel, 2, 0.1)


def approximated(approximation, embedding, target, predict):
    predictor, error = ke.approximate(embedding, x, target, method=approximation)
    return predict(predictor), error


def outcome(result):
    return result.pvalue, repr(result)


def classified(**settings):
    model = ke.MulticlassEmbeddingClassifier(max_evaluations=3, random_state=0, progress=False, **settings)
    model.fit(X, LABELS)
    importances = model.permutation_importance(num_repeats=1, max_rows=20, random_state=0)
    return model.predict(X), model.predict_proba(X[:3]), model.predict_set(X[:3]), repr(importances)


def regressed(**settings):
    model = ke.ConditionalEmbeddingRegressor(max_evaluations=3, random_state=0, progress=False, **settings)
    model.fit(X, TARGETS)
    rows = X[:3]
    return [
        model.predict(rows), model.predict_quantile(rows, [0.1, 0.9]), model.predict_interval(rows),
        model.predict_cdf(rows, 0.0), model.sample(rows, 2), repr(model.influential_rows(rows)),
        repr(model.permutation_importance(num_repeats=1, max_rows=20, random_state=0)),
    ]  # fmt: skip


def voted(data=X, labels=LABELS, **settings):
    model = ke.VotedKernelClassifier(**settings).fit(data, labels)
    return model.predict(data), model.predict_proba(data)


def accumulated():
    embedding = ke.MulticlassEmbedding(KERNELS["linear"], 2)
    return ke.scale.accumulate(embedding, x, y).condition().probabilities(query)


def witnessed():
    witness = ke.Witness(MEAN, x[:30], x[30:] + 1.0)
    return witness(query), witness.band(query)


z = x[:, :1] + 0.3 * real[:, None]
CALLS = {
    **{f"objective {name}": (lambda name=name: evaluated(name)) for name in OBJECTIVES},
    "batch validation": lambda: ke.BatchValidationRisk()(MULTICLASS, x, y),
    "cross validation": lambda: ke.CrossValidationRisk(3)(MULTICLASS, x, y),
    "embedding evidence": lambda: ke.EmbeddingEvidence(num_locations=10)(MEAN, x),
    "leave-one-out score": lambda: ke.LeaveOneOutScore()(REAL, x, real),
    "fit by L-BFGS": lambda: learned(MULTICLASS, ke.LeaveOneOutRisk(), x, y, max_evaluations=4, num_restarts=1),
    "fit by Adam": lambda: learned(MULTICLASS, ke.EmpiricalRisk(), x, y, optimizer=ke.Adam(3, batch_size=20)),
    "fit a mean": lambda: learned(MEAN, ke.EmbeddingEvidence(), x, max_evaluations=3),
    "fit a real target": lambda: learned(REAL, ke.LeaveOneOutScore(), x, real, max_evaluations=3),
    "local maxima": lambda: [
        one.parameters for one in ke.local_maxima(MEAN, ke.EmbeddingEvidence(), x, max_evaluations=3)
    ],
    "condition on classes": lambda: classes_of(MULTICLASS.condition(x, y)),
    "calibrated": lambda: [MULTICLASS.condition(x, y).calibrated().band(query)],
    "condition on numbers": lambda: values_of(REAL.condition(x, real)),
    "mean embedding": lambda: [MEAN.condition(x)(query), ke.MeanEmbedding(PLAIN).condition(x)(query)],
    "construction": lambda: classes_of(ke.MulticlassEmbedding(ke.default_kernel(x), 2, 0.1).condition(x, y)),
    "NUTS": lambda: sampled(MULTICLASS, ke.ConditionalEvidence(), x, y, warmup_steps=4),
    "Laplace": lambda: sampled(MULTICLASS, ke.LeaveOneOutRisk(), x, y, sampler=ke.Laplace()),
    "SVI": lambda: sampled(MULTICLASS, ke.LeaveOneOutRisk(), x, y, sampler=ke.SVI(num_steps=5)),
    "SMC": lambda: sampled(MULTICLASS, ke.LeaveOneOutRisk(), x, y, sampler=ke.SMC()),
    "posterior of a mean": lambda: sampled(
        MEAN, ke.EmbeddingEvidence(), x, sampler=ke.Laplace(), predict=lambda p: [p(query), p.band(query)]
    ),
    "posterior of a real target": lambda: sampled(
        REAL, ke.LeaveOneOutScore(), x, real, sampler=ke.Laplace(), predict=lambda p: p.distribution(query).F
    ),
    "gram": lambda: ke.gram(PLAIN, x, query),
    "default kernel": lambda: ke.default_kernel(x),
    "sampled default kernel": lambda: ke.set_lengthscales_by_median(copy.deepcopy(PLAIN), x),
    "linear-time test": lambda: outcome(ke.two_sample_test(x[:30], x[30:] + 0.5, statistic="linear", seed=0)),
    "two samples": lambda: outcome(ke.two_sample_test(x[:30], x[30:] + 0.5, num_permutations=49, seed=0)),
    "k samples": lambda: outcome(ke.k_sample_test(x[:20], x[20:40], x[40:], num_permutations=49, seed=0)),
    "independence": lambda: outcome(ke.independence_test(x, z, num_permutations=49, seed=0)),
    "conditional independence": lambda: outcome(ke.conditional_independence_test(x[:, :1], x[:, 1:], z, seed=0)),
    "Nyström": lambda: approximated(ke.Nystrom(10, seed=0), MULTICLASS, y, classes_of),
    "random features": lambda: approximated(ke.RandomFeatures(20, seed=0), REAL, real, values_of),
    "accumulate": accumulated,
    "classifier": classified,
    "classifier of one kernel": lambda: classified(kernel=PLAIN),
    "regressor": regressed,
    "regressor with a split": lambda: regressed(conformal="split", max_rows=20, subset_size=20),
    "vote": voted,
    "vote on kernels": lambda: voted(kernels=voting.polynomial_kernels([1, 2])),
    "witness": witnessed,
    "generalization bound": lambda: [
        repr(ke.generalization_bound(MULTICLASS.condition(x, y), form=form)) for form in ("paper", "peeled")
    ],
    "score bound": lambda: repr(score_bound(REAL.condition(x, real))),
    "holdout bound": lambda: repr(holdout_bound(torch.full((30,), 0.1, device="cpu"))),
    "PAC-Bayes bound": lambda: pac_bayes_bound(x.abs().clamp_max(1.0).mT).details["weights"],
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_default_device_does_not_matter(name):
    torch.manual_seed(0)
    try:
        torch.set_default_device("meta")
        values = CALLS[name]()
    finally:
        torch.set_default_device(None)
    assert all(value.device.type == "cpu" for value in every(values))


def test_the_contract_suites_pass_on_a_simulated_device():
    """In a process of its own: the device is registered in the whole process, where other tests would find it."""
    path = pathlib.Path(__file__).with_name("contracts_elsewhere.py")
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=path.parents[1])
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
    assert int(re.findall(r"(\d+) passed", run.stdout)[-1]) >= 85
