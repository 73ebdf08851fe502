"""Kernels, embeddings, objectives and optimizers, called with what :class:`Inputs` chooses."""

from __future__ import annotations

from collections.abc import Callable

import gpytorch
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed import embeddings, kernels, learning, linalg, objectives, scale, tabular

from .inputs import NAN, NUMBERS, D, Inputs, M, N, clean_x, line

ENTRIES: dict[str, Callable[[Inputs], object]] = {}
"""Every public entry point by name; what a call returns is looked through for NaN."""


def entry(function: Callable[[Inputs], object]) -> Callable[[Inputs], object]:
    ENTRIES[function.__name__] = function
    return function


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


def conditioned(i: Inputs) -> object:
    return multiclass(i).condition(i.x(), i.labels())


def linear_map() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        return torch.nn.Linear(D, 3).double()


# kernels and linear algebra ------------------------------------------------------------------------------------------

FEATURES = (None, torch.sin, torch.nn.ReLU(), "net", 3)

ENTRIES |= {
    "gram": lambda i: ke.gram(i.kernel(), i.x()),
    "gram_between": lambda i: ke.gram(i.kernel(), i.x(), i.query()),
    "gram_diagonal": lambda i: kernels.gram_diagonal(i.kernel(), i.x()),
    "default_kernel": lambda i: parameters(i.call(ke.default_kernel, i.x(), lengthscale=None)),
    "median_distance": lambda i: (kernels.median_distance(i.x()), kernels.feature_ranges(i.x())),
    "set_lengthscales": lambda i: parameters(ke.set_lengthscales_by_median(i.kernel(), i.x())),
    "sup_diagonal": lambda i: i.call(kernels.sup_diagonal, i.kernel(), i.x(), bound=None),
    "explicit_features": lambda i: kernels.explicit_features(i.kernel(), i.x()),
    "initialize_from_data": lambda i: kernels.initialize_from_data(i.kernel(), i.x()),
    "nystrom_kernel": lambda i: ke.gram(scale.nystrom_kernel(i.kernel(), i.x()), i.query()),
    "random_feature_kernel": lambda i: ke.gram(
        i.call(scale.random_feature_kernel, i.kernel(), d=D, num_features=6, seed=0), i.x()
    ),
    "smoothed_kernel": lambda i: ke.gram(kernels.SmoothedKernel(i.kernel()), i.x()),
    "feature_kernel": lambda i: ke.gram(
        ke.FeatureKernel(i.setting("features", linear_map(), FEATURES), i.kernel()), i.x()
    ),
    "delta_kernel": lambda i: ke.gram(kernels.DeltaKernel(), i.x(), i.query()),
    "mahalanobis_kernel": lambda i: ke.gram(i.call(kernels.MahalanobisKernel, num_dims=D).double(), i.x()),
    "bags": lambda i: ke.gram(
        i.call(kernels.BagKernel, i.kernel(), num_features=D),
        i.call(kernels.pack_bags, [i.x(), i.query(), clean_x(2, 5)], size=None),
    ),
    "distances_of_bags": lambda i: ke.gram(
        i.call(kernels.MMDKernel, i.kernel(), num_features=D), kernels.pack_bags([i.x(), i.query(), clean_x(2, 5)])
    ),
}


@entry
def dense_system(i: Inputs) -> object:
    K = ke.gram(i.kernel(), i.x())
    system = linalg.DenseSystem(K, torch.as_tensor(i.setting("ridge", 0.1, (0.0, 1e-300, 1e300)), dtype=K.dtype))
    return system.solve(torch.ones(K.shape[-1], 1, dtype=K.dtype)), system.log_determinant


@entry
def measures(i: Inputs) -> object:
    measure = i.one_of(
        lambda: i.call(kernels.GaussianMeasure, scale=1.0),
        lambda: kernels.DiscreteMeasure(i.query(), i.setting("weights", None, NUMBERS)),
        lambda: i.call(kernels.LebesgueMeasure, unit=False),
        lambda: i.setting("measure", None, (kernels.LebesgueMeasure, "gauss", 3)),
    )
    return ke.gram(kernels.SmoothedKernel(i.kernel(), measure), i.x())


@entry
def tied_kernels(i: Inputs) -> object:
    kind = i.pick("kind", (tabular.TiedRBFKernel, tabular.TiedMaternKernel, tabular.TiedLaplaceKernel))
    groups = i.setting("groups", (0, 1), ((0, 0), (), (-1, 0), (0.5, 1), (0, 2), "01", None, 3, (0, NAN)))
    more = {"nu": i.setting("nu", 1.5, (0.5, 2.5, *NUMBERS))} if kind is tabular.TiedMaternKernel else {}
    return ke.gram(kind(groups, **more).double(), i.x(), i.query())


@entry
def warpings(i: Inputs) -> object:
    numbers = i.setting("numbers", torch.tensor([True, False]), (torch.tensor([True]), None, [True, False], "all"))
    warp = tabular.make_input_transform(i.setting("kind", "squash", ("quantile", "no", None, 3)), i.x(), numbers)
    return ke.gram(ke.FeatureKernel(warp, RBFKernel().double()), i.query())


@entry
def partitions(i: Inputs) -> object:
    columns = torch.tensor([i.setting("column", 0, (1, 7, -3)), 0, 0])
    below = torch.tensor([i.setting("below", 1, (-1, 0, 2, 9)), -1, -1])
    thresholds = i.setting("thresholds", torch.tensor([0.5, 0.0, 0.0]), (torch.zeros(2), torch.tensor(0.5), None, "0"))
    tree = tabular.Tree(columns, thresholds, below, torch.tensor([2, -1, -1]))
    trees = i.setting("trees", [tree], ([], [tree, tree], tree, None, [None]))
    return ke.gram(ke.FeatureKernel(tabular.Partitions(trees)), i.x())


NODES = (
    *map(torch.tensor, ([1, -1, -1], [1, 2, -1], [-1, -1, -1], [1.0, -1.0, -1.0], [True, False, False], [], [1, -1])),
    *(torch.tensor([-5, -1, -1]), torch.tensor([2**40, 0, 0]), None),
)


@entry
def trees(i: Inputs) -> object:
    """Nodes of every kind, and points beyond all thresholds."""
    thresholds = torch.tensor([0.5, 0.0, 0.0])
    tree = tabular.Tree(
        i.setting("columns", torch.tensor([0, 0, 0]), NODES),
        i.setting("thresholds", thresholds, (thresholds * NAN, thresholds / 0, thresholds.long(), *NODES)),
        i.setting("below", torch.tensor([1, -1, -1]), NODES),
        i.setting("above", torch.tensor([2, -1, -1]), NODES),
    )
    partition = tabular.Partitions([tree])
    kernel = ke.FeatureKernel(partition)
    answers = ask(ke.MulticlassEmbedding(kernel, M).condition(i.x(), torch.arange(N) % M), "probabilities", i.query())
    return answers, ke.gram(kernel, i.x()), i.call(partition.splits, num_columns=2)


@entry
def diagonal_bounds(i: Inputs) -> object:
    bound = i.one_of(
        lambda: i.call(ke.LipschitzBound, radius=1e3),
        lambda: i.call(kernels.NominalDiagonal, value=1.0),
        kernels.MeanDiagonal,
    )
    kernel = ke.FeatureKernel(linear_map()) if isinstance(bound, ke.LipschitzBound) else i.kernel()
    return kernels.sup_diagonal(kernel, i.x(), bound)


@entry
def kernel_structure(i: Inputs) -> object:
    kernel = i.kernel()
    kernels.has_explicit_features(kernel)
    kernels.fold(kernel, kernels.Algebra())
    return len(list(kernels.frozen(kernel).parameters()))


@entry
def register(i: Inputs) -> object:
    """Registrations that are refused; one that is taken would outlive its case."""
    own = type("Own", (gpytorch.kernels.Kernel,), {})
    kind = i.pick("kind", (None, "rbf", RBFKernel(), torch.nn.Module, own))
    like, profile = i.pick("like", (None, "rbf", torch.nn.Module)), i.pick("profile", (None, 3, "exp"))
    ke.register(kind, like=like, profile=profile)


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
        i.call(embeddings.conformal_quantile, i.x(usual=line()), coverage=0.8),
        embeddings.interval_scores(i.query(), line()),
    ),
    "clip_normalize": lambda i: Probabilities(embeddings.clip_normalize(i.x())),
}  # fmt: skip


@entry
def mean_embedding(i: Inputs) -> object:
    embedding = ke.MeanEmbedding(i.kernel())
    one, other = embedding.condition(i.x()), embedding.condition(clean_x(2))
    return one(i.query()), one.inner(other), one.squared_distance(other)


@entry
def empirical(i: Inputs) -> object:
    result = embeddings.empirical_embedding(i.kernel(), i.x())
    return ask(result, "mean log_slope") if isinstance(result, embeddings.EmpiricalEmbedding) else result


@entry
def witness(i: Inputs) -> object:
    result = ke.Witness(bayesian(i), i.x(), i.query())
    return result(clean_x(2)).mean, i.call(result.band, clean_x(2), level=0.8), result.squared_distance().mean


@entry
def rules_of_probability(i: Inputs) -> object:
    target = i.pick("target kernel", (RBFKernel().double(), RBFKernel().double(), None))
    likelihood = ke.ConditionalEmbedding(RBFKernel().double(), 0.01, target).condition(clean_x(), i.targets())
    prior = ke.MeanEmbedding(i.kernel()).condition(i.x())
    total, joint = embeddings.sum_rule(likelihood, prior), embeddings.chain_rule(likelihood, prior)
    posterior = i.call(embeddings.bayes_rule, likelihood, prior, regularization=1e-3)
    return total.weights, joint.weights, posterior.mean(likelihood.y[:3].reshape(3, -1))


@entry
def weighted_embedding(i: Inputs) -> object:
    weights = torch.full((N,), 1.0 / N, dtype=torch.float64)
    weighted = i.call(embeddings.WeightedEmbedding, i.kernel(), i.x(), weights=weights)
    return weighted(i.query()), weighted.inner(weighted), weighted.expectation(torch.square)


@entry
def prediction_sets(i: Inputs) -> object:
    p = torch.softmax(clean_x(3), -1)
    return i.call(embeddings.prediction_sets, i.x(usual=p), i.labels(2), i.x("query", p), coverage=0.9)


@entry
def calibrated_and_updated(i: Inputs) -> object:
    model = conditioned(i)
    more = model.updated(i.query(), torch.arange(N) % M)
    return ask(model.calibrated(), "probabilities", clean_x(2)), ask(more, "probabilities", clean_x(2))


@entry
def answers(i: Inputs) -> object:
    model, query = conditioned(i), i.query()
    return i.one_of(
        lambda: i.call(model.calibrated().band, query, coverage=0.9, num_draws=20, seed=0),
        lambda: model.expectation(i.setting("g", torch.ones(M).double()), query),
        lambda: i.call(model.entropy, query, kind="clip-normalized"),
        lambda: model.updated(query, torch.arange(N) % M, i.setting("sample_weight", None)).V,
    )


@entry
def distribution(i: Inputs) -> object:
    law = conditional(i).condition(i.x(), i.targets()).distribution(i.query())
    drawn = i.call(law.sample, k=2, seed=0)
    limits = i.call(law.quantile, q=0.5), i.call(law.interval, coverage=0.9)
    return Probabilities(law.cdf(i.setting("t", 0.0))), law.mean, law.variance, limits, drawn


@entry
def further_distribution(i: Inputs) -> object:
    law = conditional(i).condition(i.x(), i.targets()).distribution(i.query())
    return law.crps(i.setting("at", line())), law.quantile(0.5)


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
        i.pick("objective", CLASS_OBJECTIVES)(), multiclass(i), i.x(), i.labels()
    ),
    "evidence": lambda i: differentiated(ke.EmbeddingEvidence(), bayesian(i), i.x()),
    "conditional_evidence": lambda i: ke.ConditionalEvidence()(conditional(i), i.x(), i.targets()),
    "leave_one_out_score": lambda i: ke.LeaveOneOutScore()(conditional(i), i.x(), i.targets()),
    "empirical_score": lambda i: i.call(objectives.EmpiricalScore, target_kernel=RBFKernel().double())(
        conditional(i), i.x(), i.targets()
    ),
    "generalization_bound": lambda i: ask(
        i.call(ke.generalization_bound, conditioned(i), confidence=0.95, form="paper"), "value complexity_term"
    ),
    "risk_bound": lambda i: i.call(objectives.RiskBound, confidence=0.95, candidates=3)(
        multiclass(i), i.x(), i.labels()
    ),
    "calibrate": lambda i: ask(
        i.call(objectives.calibrate, i.x(), torch.eye(D).double()[torch.arange(N) % D], penalty=1.0),
        *("probabilities", clean_x(1)),
    ),
    "kl_inverse": lambda i: Probabilities(objectives.kl_inverse(i.setting("x", 0.1), i.setting("c", 0.1))),
    "bound": lambda i: objectives.attach(multiclass(i), i.x(), i.labels()).P,
    "fit": lambda i: fitted(
        *(i, multiclass(i), i.setting("objective", ke.EmpiricalRisk()), i.x(), i.labels()),
        **{"max_evaluations": 4, "tolerance": None, "num_restarts": None, "seed": 0},
    ),
    "fit_in_batches": lambda i: fitted(
        *(i, multiclass(i), ke.EmpiricalRisk(), i.x(), i.labels()),
        **{"batch_size": 5, "num_epochs": 2, "learning_rate": 0.1, "seed": 0},
    ),
    "fit_conditional": lambda i: fitted(
        i, conditional(i), ke.ConditionalEvidence(), i.x(), i.targets(), max_evaluations=4
    ),
    "fit_mean": lambda i: fitted(i, bayesian(i), ke.EmbeddingEvidence(), i.x(), max_evaluations=4),
    "optimizers": lambda i: fitted(i, multiclass(i), ke.EmpiricalRisk(), i.x(), i.labels(), optimizer=optimizer(i)),
}


@entry
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


@entry
def bounds_of_losses(i: Inputs) -> object:
    losses = torch.linspace(0, 1, N, dtype=torch.float64)
    held_out = i.call(objectives.holdout_bound, i.x(usual=losses), confidence=0.95, candidates=1)
    gibbs = i.call(objectives.pac_bayes_bound, i.x(usual=losses.expand(2, N)), confidence=0.95, temperature=1.0)
    return held_out.value, Probabilities(gibbs.value)


@entry
def pool(i: Inputs) -> object:
    log_p = torch.log_softmax(torch.stack([clean_x(1), clean_x(2)]), -1)
    Y = torch.eye(2).double()[torch.arange(N) % 2]
    return ask(
        objectives.pool(i.x(usual=log_p), i.targets() if i.is_broken("y") else Y, i.setting("pull", 0.3)),
        "weights offset",
    )


@entry
def scores_and_bounds(i: Inputs) -> object:
    model = conditional(i).condition(i.x(), i.targets())
    bound = i.call(objectives.score_bound, model, confidence=0.95, target_kernel=RBFKernel().double())
    return bound.value, objectives.rademacher_complexity(model), objectives.leave_one_out_scores(model)


def optimizer(i: Inputs) -> object:
    sgd = i.setting("factory", lambda p: torch.optim.SGD(p, lr=0.1), (None, "sgd", torch.optim.SGD, lambda p: None))
    return i.one_of(
        lambda: i.call(ke.LBFGS, max_evaluations=3, tolerance=1e-5, num_restarts=0),
        lambda: i.call(ke.Adam, num_epochs=2, learning_rate=0.1),
        lambda: learning.TorchOptimizer(sgd, 2, i.setting("batch_size", None)),
    )


@entry
def local_maxima(i: Inputs) -> object:
    settings = {"num_points": i.setting("num_points", 5, (0, 1, -1, 1.5, "4")), "max_evaluations": 3}
    maxima = i.call(ke.local_maxima, bayesian(i), ke.EmbeddingEvidence(), i.x(), span=None, prominence=6.0, **settings)
    return [maximum.value for maximum in maxima]
