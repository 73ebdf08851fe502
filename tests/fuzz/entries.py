"""Embeddings, objectives and optimizers, called with what :class:`Inputs` chooses."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed import embeddings, learning, objectives

from .inputs import LINE, NUMBERS, D, Inputs, M, N, clean_x

ENTRIES: dict[str, Callable[[Inputs], object]] = {}
"""Every public entry point by name; what a call returns is looked through for NaN."""


def collect(module: ModuleType) -> None:
    """Add the functions of ``module`` that take :class:`Inputs` alone and return what is to be looked through."""
    for name, function in vars(module).items():
        if getattr(function, "__annotations__", {}) == {"i": "Inputs", "return": "object"}:
            ENTRIES[name] = function


class Probabilities:
    """Numbers that must lie in [0, 1]."""

    def __init__(self, values: object) -> None:
        self.values = values


def ask(result: object, names: str, *arguments: object) -> list[object]:
    """Attributes of a result, or what its methods return for ``arguments``."""
    values = {name: getattr(result, name) for name in names.split()}
    values = {name: value(*arguments) if callable(value) else value for name, value in values.items()}
    likely = ("probabilities", "predict_proba", "cdf", "predict_cdf", "pvalue", "pvalues")
    return [Probabilities(value) if name in likely else value for name, value in values.items()]


def parameters(module: torch.nn.Module) -> list[torch.Tensor]:
    return [p.detach() for p in module.parameters()]


def multiclass(i: Inputs) -> ke.MulticlassEmbedding:
    return i.call(ke.MulticlassEmbedding, i.kernel(), num_classes=M, regularization=0.01)


def conditional(i: Inputs) -> ke.ConditionalEmbedding:
    return i.call(ke.ConditionalEmbedding, i.kernel(), regularization=0.01)


def bayesian(i: Inputs) -> ke.BayesianMeanEmbedding:
    return i.call(ke.BayesianMeanEmbedding, i.kernel(), noise=0.1)


def conditioned(i: Inputs) -> Any:
    return multiclass(i).condition(i.x(), i.labels())


def classes(i: Inputs, objective: object) -> tuple[object, ...]:
    return multiclass(i), objective, i.x(), i.labels()


def linear_map() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        return torch.nn.Linear(D, 3).double()


# embeddings ----------------------------------------------------------------------------------------------------------

ENTRIES |= {
    "multiclass_embedding": lambda i: ask(conditioned(i), "probabilities decision_probabilities predict", i.query()),
    "multiclass_entropy": lambda i: (
        conditioned(i).entropy(i.query()), ask(conditioned(i), "leave_one_out squared_norm")
    ),
    "conditional_embedding": lambda i: ask(conditional(i).condition(i.x(), i.targets()), "mean weights", i.query()),
    "expectation": lambda i: conditional(i).condition(i.x(), i.targets()).expectation(torch.square, i.query()),
    "bayesian_embedding": lambda i: ask(bayesian(i).condition(i.x())(i.query()), "mean variance"),
    "bayesian_band": lambda i: i.call(bayesian(i).condition(i.x()).band, i.query(), level=0.8),
    "bayesian_predictive": lambda i: (
        bayesian(i).condition(i.x()).predictive(i.query()).variance, bayesian(i).condition(i.x()).observed
    ),
    "shrinkage_embedding": lambda i: i.call(
        embeddings.ShrinkageMeanEmbedding, i.kernel(), regularization=0.01
    ).condition(i.x())(i.query()),
    "jackknife_plus": lambda i: i.call(
        embeddings.jackknife_plus_interval, conditional(i).condition(i.x(), i.targets()), i.query(), coverage=0.8
    ),
    "conformal_scores": lambda i: (
        i.call(embeddings.conformal_quantile, i.x(usual=LINE), coverage=0.8),
        embeddings.interval_scores(i.query(), LINE),
    ),
    "clip_normalize": lambda i: Probabilities(embeddings.clip_normalize(i.x())),
}  # fmt: skip


def mean_embedding(i: Inputs) -> object:
    embedding = ke.MeanEmbedding(i.kernel())
    one, other = embedding.condition(i.x()), embedding.condition(clean_x(2))
    return one(i.query()), one.inner(other), one.squared_distance(other)


def witness(i: Inputs) -> object:
    result = ke.Witness(bayesian(i), i.x(), i.query())
    return result(clean_x(2)).mean, i.call(result.band, clean_x(2), level=0.8), result.squared_distance().mean


def rules_of_probability(i: Inputs) -> object:
    target = i.pick("target kernel", (RBFKernel().double(), RBFKernel().double(), None))
    likelihood = ke.ConditionalEmbedding(RBFKernel().double(), 0.01, target).condition(clean_x(), i.targets())
    prior = ke.MeanEmbedding(i.kernel()).condition(i.x())
    total, joint = embeddings.sum_rule(likelihood, prior), embeddings.chain_rule(likelihood, prior)
    posterior = i.call(embeddings.bayes_rule, likelihood, prior, regularization=1e-3)
    return total.weights, joint.weights, posterior.mean(likelihood.y[:3].reshape(3, -1))


def weighted_embedding(i: Inputs) -> object:
    weights = torch.full((N,), 1.0 / N, dtype=torch.float64)
    weighted = i.call(embeddings.WeightedEmbedding, i.kernel(), i.x(), weights=weights)
    return weighted(i.query()), weighted.inner(weighted), weighted.expectation(torch.square)


def prediction_sets(i: Inputs) -> object:
    p = torch.softmax(clean_x(3), -1)
    return i.call(embeddings.prediction_sets, i.x(usual=p), i.labels(2), i.x("query", p), coverage=0.9)


def answers(i: Inputs) -> object:
    model, query = conditioned(i), i.query()
    return i.one_of(
        lambda: i.call(model.calibrated().band, query, coverage=0.9, num_draws=20, seed=0),
        lambda: model.expectation(i.setting("g", torch.ones(M).double()), query),
        lambda: i.call(model.entropy, query, kind="clip-normalized"),
        lambda: model.updated(query, torch.arange(N) % M, i.setting("sample_weight", None)).V,
        lambda: ask(model.calibrated(), "probabilities", clean_x(2)),
        lambda: ask(model.updated(query, torch.arange(N) % M), "probabilities", clean_x(2)),
    )


def distribution(i: Inputs) -> object:
    law = conditional(i).condition(i.x(), i.targets()).distribution(i.query())
    return i.one_of(
        lambda: (i.call(law.sample, k=2, seed=0), law.mean, law.variance),
        lambda: (i.call(law.quantile, q=0.5), i.call(law.interval, coverage=0.9)),
        lambda: Probabilities(law.cdf(i.setting("t", 0.0))),
        lambda: law.crps(i.setting("at", LINE)),
    )


# objectives and learning ---------------------------------------------------------------------------------------------

CLASS_OBJECTIVES = (
    *(ke.EmpiricalRisk, ke.LeaveOneOutRisk, ke.RademacherComplexity, ke.CalibratedLeaveOneOutRisk),
    *(
        ke.BatchValidationRisk,
        ke.ConditionalEvidence,
        ke.default_objective,
        lambda: ke.CrossValidationRisk(num_folds=3),
    ),
)


def differentiated(objective: object, embedding: torch.nn.Module, *data: object) -> object:
    value = objective(embedding, *data)
    value.sum().backward()
    return value, [p.grad for p in embedding.parameters() if p.grad is not None]


def fitted(i: Inputs, embedding: torch.nn.Module, objective: object, *data: object, **settings: object) -> object:
    result = i.call(ke.fit, embedding, objective, *data, **settings)
    return result.value, parameters(embedding)


ENTRIES |= {
    "class_objectives": lambda i: differentiated(
        i.pick("objective", CLASS_OBJECTIVES)(), multiclass(i), i.x(), i.labels()),
    "evidence": lambda i: differentiated(ke.EmbeddingEvidence(), bayesian(i), i.x()),
    "conditional_evidence": lambda i: ke.ConditionalEvidence()(conditional(i), i.x(), i.targets()),
    "leave_one_out_score": lambda i: ke.LeaveOneOutScore()(conditional(i), i.x(), i.targets()),
    "empirical_score": lambda i: i.call(objectives.EmpiricalScore, target_kernel=RBFKernel().double())(
        conditional(i), i.x(), i.targets()),
    "generalization_bound": lambda i: ask(
        i.call(ke.generalization_bound, conditioned(i), confidence=0.95, form="paper"), "value complexity_term"),
    "risk_bound": lambda i: i.call(objectives.RiskBound, confidence=0.95, candidates=3)(
        multiclass(i), i.x(), i.labels()),
    "calibrate": lambda i: ask(
        i.call(objectives.calibrate, i.x(), torch.eye(D).double()[torch.arange(N) % D], penalty=1.0),
        "probabilities", clean_x(1)),
    "fit": lambda i: fitted(
        i, *classes(i, i.setting("objective", ke.EmpiricalRisk())),
        max_evaluations=4, tolerance=None, num_restarts=None, seed=0),
    "fit_in_batches": lambda i: fitted(
        i, *classes(i, ke.EmpiricalRisk()), batch_size=5, num_epochs=2, learning_rate=0.1, seed=0),
    "fit_conditional": lambda i: fitted(
        i, conditional(i), ke.ConditionalEvidence(), i.x(), i.targets(), max_evaluations=4),
    "fit_mean": lambda i: fitted(i, bayesian(i), ke.EmbeddingEvidence(), i.x(), max_evaluations=4),
    "optimizers": lambda i: fitted(i, *classes(i, ke.EmpiricalRisk()), optimizer=optimizer(i)),
}  # fmt: skip


def objective_settings(i: Inputs) -> object:
    objective = i.one_of(
        lambda: i.call(ke.EmpiricalRisk, epsilon=1e-3),
        lambda: i.call(ke.LeaveOneOutRisk, epsilon=1e-3),
        lambda: ke.RademacherComplexity(i.setting("rate", "4e/n", (*NUMBERS, "4e", "no"))),
        lambda: ke.CrossValidationRisk(i.setting("num_folds", 3, NUMBERS)),
        lambda: i.call(ke.BatchValidationRisk, validation_fraction=0.3),
        lambda: i.call(ke.CalibratedLeaveOneOutRisk, penalty=1.0),
        lambda: i.setting("factor", 2.0) * ke.EmpiricalRisk(),
        lambda: ke.EmpiricalRisk() / i.setting("divisor", 2.0),
        lambda: ke.EmpiricalRisk() + i.setting("other", ke.LeaveOneOutRisk()),
    )
    return objective(ke.MulticlassEmbedding(RBFKernel().double(), M), clean_x(), torch.arange(N) % M)


def bounds_of_losses(i: Inputs) -> object:
    losses = torch.linspace(0, 1, N, dtype=torch.float64)
    held_out = i.call(objectives.holdout_bound, i.x(usual=losses), confidence=0.95, candidates=1)
    gibbs = i.call(objectives.pac_bayes_bound, i.x(usual=losses.expand(2, N)), confidence=0.95, temperature=1.0)
    return held_out.value, Probabilities(gibbs.value)


def pool(i: Inputs) -> object:
    log_p = torch.log_softmax(torch.stack([clean_x(1), clean_x(2)]), -1)
    Y = torch.eye(2).double()[torch.arange(N) % 2]
    return ask(
        objectives.pool(i.x(usual=log_p), i.targets() if i.is_broken("y") else Y, i.setting("pull", 0.3)),
        "weights offset",
    )


def scores_and_bounds(i: Inputs) -> object:
    model = conditional(i).condition(i.x(), i.targets())
    bound = i.call(objectives.score_bound, model, confidence=0.95, target_kernel=RBFKernel().double())
    return bound.value, objectives.leave_one_out_scores(model)


def optimizer(i: Inputs) -> Any:
    sgd = i.setting("factory", lambda p: torch.optim.SGD(p, lr=0.1), (None, "sgd", torch.optim.SGD, lambda p: None))
    return i.one_of(
        lambda: i.call(ke.LBFGS, max_evaluations=3, tolerance=1e-5, num_restarts=0),
        lambda: i.call(ke.Adam, num_epochs=2, learning_rate=0.1),
        lambda: learning.TorchOptimizer(sgd, 2, i.setting("batch_size", None)),
    )


def local_maxima(i: Inputs) -> object:
    settings = {"num_points": i.setting("num_points", 5, (0, 1, -1, 1.5, "4")), "max_evaluations": 3}
    maxima = i.call(ke.local_maxima, bayesian(i), ke.EmbeddingEvidence(), i.x(), span=None, prominence=6.0, **settings)
    return [maximum.value for maximum in maxima]
