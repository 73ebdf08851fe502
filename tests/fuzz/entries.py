"""Every public entry point, called with what :class:`Inputs` chooses; what it returns is looked through for NaN."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable

import numpy as np
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed import hypothesis, kernels, linalg, objectives, posteriors, scale, voting
from kernel_embed.embeddings import EmpiricalEmbedding, ShrinkageMeanEmbedding, empirical_embedding

from .inputs import NUMBERS, SEEDS, D, Inputs, M, N, clean_x

ENTRIES: dict[str, Callable[[Inputs], object]] = {}


class Probabilities:
    """Numbers that must lie in [0, 1]."""

    def __init__(self, values: object) -> None:
        self.values = values


def entry(function: Callable[[Inputs], object]) -> Callable[[Inputs], object]:
    ENTRIES[function.__name__] = function
    return function


# kernels -------------------------------------------------------------------------------------------------------------


@entry
def gram(i: Inputs) -> object:
    return ke.gram(i.kernel(), i.x())


@entry
def gram_between(i: Inputs) -> object:
    return ke.gram(i.kernel(), i.x(), i.x("x2", 1))


@entry
def gram_diagonal(i: Inputs) -> object:
    return kernels.gram_diagonal(i.kernel(), i.x())


@entry
def default_kernel(i: Inputs) -> object:
    kernel = ke.default_kernel(i.x(), i.setting("lengthscale", None, NUMBERS))
    return [p.detach() for p in kernel.parameters()]


@entry
def median_distance(i: Inputs) -> object:
    return kernels.median_distance(i.x()), kernels.feature_ranges(i.x())


@entry
def set_lengthscales(i: Inputs) -> object:
    return [p.detach() for p in ke.set_lengthscales_by_median(i.kernel(), i.x()).parameters()]


@entry
def sup_diagonal(i: Inputs) -> object:
    return kernels.sup_diagonal(i.kernel(), i.x(), i.setting("bound", None))


@entry
def explicit_features(i: Inputs) -> object:
    return kernels.explicit_features(i.kernel(), i.x())


@entry
def initialize_from_data(i: Inputs) -> object:
    kernels.initialize_from_data(i.kernel(), i.x())
    return None


@entry
def nystrom_kernel(i: Inputs) -> object:
    return ke.gram(scale.nystrom_kernel(i.kernel(), i.x()), i.x("query", 1))


@entry
def random_feature_kernel(i: Inputs) -> object:
    kernel = scale.random_feature_kernel(
        i.kernel(), i.setting("d", D), i.setting("num_features", 6), i.setting("seed", 0, SEEDS)
    )
    return ke.gram(kernel, i.x())


@entry
def smoothed_kernel(i: Inputs) -> object:
    return ke.gram(kernels.SmoothedKernel(i.kernel()), i.x())


def linear_map() -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        return torch.nn.Linear(D, 3).double()


@entry
def feature_kernel(i: Inputs) -> object:
    features = i.setting("features", linear_map(), (None, torch.sin, torch.nn.ReLU(), "net", 3))
    return ke.gram(ke.FeatureKernel(features, i.kernel()), i.x())


@entry
def delta_kernel(i: Inputs) -> object:
    return ke.gram(kernels.DeltaKernel(), i.x(), i.x("x2", 1))


@entry
def mahalanobis_kernel(i: Inputs) -> object:
    return ke.gram(kernels.MahalanobisKernel(i.setting("num_dims", D)).double(), i.x())


@entry
def bags(i: Inputs) -> object:
    packed = kernels.pack_bags([i.x(), i.x("x2", 1), clean_x(2, 5)], i.setting("size", None))
    return ke.gram(kernels.BagKernel(i.kernel(), i.setting("num_features", D)), packed)


# linear algebra ------------------------------------------------------------------------------------------------------


@entry
def dense_system(i: Inputs) -> object:
    K = ke.gram(i.kernel(), i.x())
    system = linalg.DenseSystem(K, torch.as_tensor(i.setting("ridge", 0.1, (0.0, 1e-300, 1e300)), dtype=K.dtype))
    return system.solve(torch.ones(K.shape[-1], 1, dtype=K.dtype)), system.log_determinant


# embeddings ----------------------------------------------------------------------------------------------------------


def multiclass(i: Inputs) -> ke.MulticlassEmbedding:
    return ke.MulticlassEmbedding(i.kernel(), i.setting("num_classes", M), i.setting("regularization", 0.01))


def conditional(i: Inputs) -> ke.ConditionalEmbedding:
    return ke.ConditionalEmbedding(i.kernel(), i.setting("regularization", 0.01))


def bayesian(i: Inputs) -> ke.BayesianMeanEmbedding:
    return ke.BayesianMeanEmbedding(i.kernel(), i.setting("noise", 0.1))


@entry
def multiclass_embedding(i: Inputs) -> object:
    conditioned = multiclass(i).condition(i.x(), i.labels())
    query = i.x("query", 1)
    p = conditioned.probabilities(query)
    return Probabilities(p), conditioned.decision_probabilities(query), conditioned.predict(query)


@entry
def multiclass_entropy(i: Inputs) -> object:
    conditioned = multiclass(i).condition(i.x(), i.labels())
    return conditioned.entropy(i.x("query", 1)), conditioned.leave_one_out, conditioned.squared_norm


@entry
def conditional_embedding(i: Inputs) -> object:
    conditioned = conditional(i).condition(i.x(), i.targets())
    query = i.x("query", 1)
    return conditioned.mean(query), conditioned.weights(query), conditioned.expectation(torch.square, query)


@entry
def bayesian_embedding(i: Inputs) -> object:
    conditioned = bayesian(i).condition(i.x())
    query = i.x("query", 1)
    answer = conditioned(query)
    return answer.mean, answer.variance, conditioned.band(query, i.setting("level", 0.8))


@entry
def bayesian_predictive(i: Inputs) -> object:
    conditioned = bayesian(i).condition(i.x())
    return conditioned.predictive(i.x("query", 1)).variance, conditioned.observed


@entry
def mean_embedding(i: Inputs) -> object:
    embedding = ke.MeanEmbedding(i.kernel())
    one, other = embedding.condition(i.x()), embedding.condition(clean_x(2))
    return one(i.x("query", 1)), one.inner(other), one.squared_distance(other)


@entry
def shrinkage_embedding(i: Inputs) -> object:
    embedding = ShrinkageMeanEmbedding(i.kernel(), i.setting("regularization", 0.01))
    return embedding.condition(i.x())(i.x("query", 1))


@entry
def empirical(i: Inputs) -> object:
    found = empirical_embedding(i.kernel(), i.x())
    return (found.mean, found.log_slope) if isinstance(found, EmpiricalEmbedding) else found


@entry
def witness(i: Inputs) -> object:
    found = ke.Witness(bayesian(i), i.x(), i.x("query", 1))
    answer = found(clean_x(2))
    return answer.mean, found.band(clean_x(2), i.setting("level", 0.8)), found.squared_distance().mean


# objectives ----------------------------------------------------------------------------------------------------------

CLASS_OBJECTIVES = {
    "EmpiricalRisk": ke.EmpiricalRisk,
    "LeaveOneOutRisk": ke.LeaveOneOutRisk,
    "RademacherComplexity": ke.RademacherComplexity,
    "CalibratedLeaveOneOutRisk": ke.CalibratedLeaveOneOutRisk,
    "BatchValidationRisk": ke.BatchValidationRisk,
    "CrossValidationRisk": lambda: ke.CrossValidationRisk(num_folds=3),
    "ConditionalEvidence": ke.ConditionalEvidence,
    "default": ke.default_objective,
}


@entry
def class_objectives(i: Inputs) -> object:
    objective = CLASS_OBJECTIVES[i.pick(tuple(CLASS_OBJECTIVES))]()
    i.chosen["objective"] = objective
    embedding = multiclass(i)
    value = objective(embedding, i.x(), i.labels())
    value.sum().backward()
    return value, [p.grad for p in embedding.parameters() if p.grad is not None]


@entry
def evidence(i: Inputs) -> object:
    embedding = bayesian(i)
    value = ke.EmbeddingEvidence()(embedding, i.x())
    value.sum().backward()
    return value, [p.grad for p in embedding.parameters() if p.grad is not None]


@entry
def conditional_evidence(i: Inputs) -> object:
    return ke.ConditionalEvidence()(conditional(i), i.x(), i.targets())


@entry
def objective_settings(i: Inputs) -> object:
    objective = i.pick(
        (
            lambda: ke.EmpiricalRisk(i.setting("epsilon", 1e-3)),
            lambda: ke.LeaveOneOutRisk(i.setting("epsilon", 1e-3)),
            lambda: ke.RademacherComplexity(i.setting("rate", "4e/n", (*NUMBERS, "4e", "no"))),
            lambda: ke.CrossValidationRisk(i.setting("num_folds", 3)),
            lambda: ke.BatchValidationRisk(i.setting("validation_fraction", 0.3)),
            lambda: ke.CalibratedLeaveOneOutRisk(i.setting("penalty", 1.0)),
            lambda: i.setting("factor", 2.0) * ke.EmpiricalRisk(),
            lambda: ke.EmpiricalRisk() / i.setting("divisor", 2.0),
            lambda: ke.EmpiricalRisk() + i.setting("other", ke.LeaveOneOutRisk()),
        )
    )()
    return objective(ke.MulticlassEmbedding(RBFKernel().double(), M), clean_x(), torch.arange(N) % M)


@entry
def generalization_bound(i: Inputs) -> object:
    bound = ke.generalization_bound(
        multiclass(i).condition(i.x(), i.labels()),
        i.setting("confidence", 0.95),
        form=i.setting("form", "paper", ("tight", "no")),
    )
    return bound.value, bound.complexity_term


@entry
def risk_bound(i: Inputs) -> object:
    objective = objectives.RiskBound(i.setting("confidence", 0.95), i.setting("candidates", 3))
    return objective(multiclass(i), i.x(), i.labels())


@entry
def calibrate(i: Inputs) -> object:
    Y = torch.nn.functional.one_hot(torch.arange(N) % D, D).double()
    found = objectives.calibrate(i.x(), Y, i.setting("penalty", 1.0))
    return Probabilities(found.probabilities(clean_x(1)))


# learning ------------------------------------------------------------------------------------------------------------


@entry
def fit(i: Inputs) -> object:
    embedding = multiclass(i)
    result = ke.fit(
        embedding,
        i.setting("objective", ke.EmpiricalRisk(), (None, "risk", ke.EmbeddingEvidence(), ke.EmpiricalRisk)),
        i.x(),
        i.labels(),
        max_evaluations=i.setting("max_evaluations", 4, (0, -1, 1.5, "3", 1)),
        tolerance=i.setting("tolerance", None),
        num_restarts=i.setting("num_restarts", None, (0, 1, -1, 1.5, "1")),
        seed=i.setting("seed", 0, SEEDS),
    )
    return result.value, [p.detach() for p in embedding.parameters()]


@entry
def fit_in_batches(i: Inputs) -> object:
    embedding = multiclass(i)
    result = ke.fit(
        embedding,
        ke.EmpiricalRisk(),
        i.x(),
        i.labels(),
        batch_size=i.setting("batch_size", 5, (1, N + 1, *NUMBERS)),
        num_epochs=i.setting("num_epochs", 2, (0, -1, 1.5, "3", 1)),
        learning_rate=i.setting("learning_rate", 0.1),
        seed=i.setting("seed", 0, SEEDS),
    )
    return result.value, [p.detach() for p in embedding.parameters()]


@entry
def fit_conditional(i: Inputs) -> object:
    embedding = conditional(i)
    result = ke.fit(embedding, ke.ConditionalEvidence(), i.x(), i.targets(), max_evaluations=4)
    return result.value, [p.detach() for p in embedding.parameters()]


@entry
def fit_mean(i: Inputs) -> object:
    embedding = bayesian(i)
    result = ke.fit(embedding, ke.EmbeddingEvidence(), i.x(), max_evaluations=4)
    return result.value, [p.detach() for p in embedding.parameters()]


@entry
def local_maxima(i: Inputs) -> object:
    found = ke.local_maxima(
        bayesian(i),
        ke.EmbeddingEvidence(),
        i.x(),
        num_points=i.setting("num_points", 5, (0, 1, -1, 1.5, "4")),
        span=i.setting("span", None, ((0.0, 1.0), (2.0, 1.0), (1.0, float("nan")), (1.0,), 3.0)),
        prominence=i.setting("prominence", 6.0),
        max_evaluations=i.setting("max_evaluations", 3, (0, -1, 1.5)),
    )
    return [m.value for m in found]


# posteriors ----------------------------------------------------------------------------------------------------------


@entry
def sample_posterior(i: Inputs) -> object:
    sampler = i.pick(
        (ke.NUTS(max_tree_depth=3), ke.SMC(num_particles=8), ke.Laplace(), ke.SVI(num_steps=5), ke.Laplace())
    )
    sampler = i.setting("sampler", sampler, (None, "nuts", ke.NUTS))
    posterior = ke.sample_posterior(
        multiclass(i),
        ke.ConditionalEvidence(),
        i.x(),
        i.labels(),
        num_samples=i.setting("num_samples", 3, (0, -1, 1.5, "3", True)),
        warmup_steps=i.setting("warmup_steps", 2, (0, -1, 1.5)) if sampler is not None else 2,
        num_chains=i.setting("num_chains", 1, (0, -1, 1.5, 2)),
        seed=i.setting("seed", 0, SEEDS),
        sampler=ke.NUTS(max_tree_depth=2) if sampler is None else sampler,
        temperature=i.setting("temperature", 1.0),
        initial=i.setting("initial", "prior", ("current", "no", {}, {"kernel.lengthscale": -1.0}, 3)),
    )
    return list(posterior.samples.values()), Probabilities(posterior.probabilities(i.x("query", 1)))


@entry
def sample_mean_posterior(i: Inputs) -> object:
    posterior = ke.sample_posterior(
        bayesian(i), ke.EmbeddingEvidence(), i.x(), num_samples=3, num_chains=1, seed=0, sampler=ke.Laplace()
    )
    return list(posterior.samples.values()), posterior(i.x("query", 1)).mean


@entry
def sampler_settings(i: Inputs) -> object:
    i.pick(
        (
            lambda: ke.NUTS(max_tree_depth=i.setting("max_tree_depth", 3)),
            lambda: ke.NUTS(step_size=i.setting("step_size", 1.0)),
            lambda: ke.NUTS(target_accept_prob=i.setting("target_accept_prob", 0.8)),
            lambda: ke.SMC(num_particles=i.setting("num_particles", 8)),
            lambda: ke.SVI(num_steps=i.setting("num_steps", 8)),
        )
    )()


@entry
def choose_temperature(i: Inputs) -> object:
    choice = posteriors.choose_temperature(
        multiclass(i),
        ke.EmpiricalRisk(),
        i.x(),
        i.labels(),
        temperatures=i.setting("temperatures", (1.0,), ((), (0.0,), (float("nan"),), 1.0, "1")),
        num_folds=i.setting("num_folds", 2, (0, 1, 1.5, 100)),
        num_samples=i.setting("num_samples", 2, (0, 1.5)),
        warmup_steps=2,
        sampler=ke.Laplace(),
        seed=i.setting("seed", 0, (0, -1, 1.5)),
    )
    return choice.temperature


@entry
def choose_power(i: Inputs) -> object:
    choice = posteriors.choose_power(
        multiclass(i),
        ke.EmpiricalRisk(),
        i.x(),
        i.labels(),
        powers=i.setting("powers", (1.0, 4.0), ((), (0.0,), (float("nan"),), 1.0, "1")),
        num_samples=i.setting("num_samples", 2, (0, 1.5)),
        sampler=ke.Laplace(),
        seed=i.setting("seed", 0, (0, -1, 1.5)),
    )
    return choice.power, choice.scores[choice.power]


@entry
def pyro_model(i: Inputs) -> object:
    ke.pyro_model(multiclass(i), ke.ConditionalEvidence(), i.x(), i.labels(), temperature=i.setting("temperature", 1.0))


@entry
def load_posterior(i: Inputs) -> object:
    content = i.pick((b"", b"PK\x03\x04", b"\x80\x04N.", b"{}", b"\x93NUMPY\x01\x00", None))
    i.chosen["content"] = content
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "posterior"
        if content is not None:
            path.write_bytes(content)
        return ke.load_posterior(i.setting("path", path, (None, 3, folder)), multiclass(i), ke.ConditionalEvidence())


# tests ---------------------------------------------------------------------------------------------------------------

TEST_SETTINGS = (0, -1, 1.5, "20", 19)


def test_kernel(i: Inputs) -> object:
    return i.kernel() if i.broken in ("kernel", "all") else i.pick((None, RBFKernel().double()))


def permutations(i: Inputs) -> dict[str, object]:
    return {
        "kernel": test_kernel(i),
        "num_permutations": i.setting("num_permutations", 19, TEST_SETTINGS),
        "seed": i.setting("seed", 0, SEEDS),
    }


@entry
def two_sample_test(i: Inputs) -> object:
    result = ke.two_sample_test(i.x(), i.x("query", 1), **permutations(i))
    return Probabilities(result.pvalue), result.statistic


@entry
def k_sample_test(i: Inputs) -> object:
    result = ke.k_sample_test([i.x(), i.x("query", 1), clean_x(2)], **permutations(i))
    return Probabilities(result.pvalue), result.statistic


@entry
def independence_test(i: Inputs) -> object:
    settings = permutations(i)
    settings.pop("kernel")
    result = ke.independence_test(i.x(), i.x("query", 1), **settings)
    return Probabilities(result.pvalue), result.statistic


@entry
def conditional_independence_test(i: Inputs) -> object:
    settings = permutations(i)
    settings.pop("kernel")
    result = ke.conditional_independence_test(i.x(), i.x("query", 1), clean_x(2), **settings)
    return Probabilities(result.pvalue), result.statistic


@entry
def log_bayes_factor(i: Inputs) -> object:
    return hypothesis.log_bayes_factor(
        i.x(), i.x("query", 1), test_kernel(i), i.setting("seed", 0, SEEDS), num_locations=i.setting("num_locations", 5)
    )


@entry
def linear_time_test(i: Inputs) -> object:
    test = hypothesis.LinearTimeTwoSampleTest(i.kernel())
    test.update(i.x(), i.x("query", 1))
    result = test.result()
    return Probabilities(result.pvalue), result.statistic


# scale ---------------------------------------------------------------------------------------------------------------


@entry
def approximate(i: Inputs) -> object:
    method = i.pick(
        (
            lambda: ke.RandomFeatures(i.setting("num_features", 8), seed=i.setting("seed", 0, SEEDS)),
            lambda: ke.Nystrom(i.setting("num_points", 5), seed=i.setting("seed", 0, SEEDS)),
            lambda: scale.ConjugateGradients(tolerance=i.setting("tolerance", 1e-6)),
            lambda: i.setting("method", ke.Nystrom(5), (None, "nystrom", ke.Nystrom, 3)),
        )
    )()
    answers, error = ke.approximate(
        multiclass(i), i.x(), i.labels(), method=method, probe_size=i.setting("probe_size", 5, (0, -1, 1.5))
    )
    return Probabilities(answers.probabilities(i.x("query", 1))), error


@entry
def accumulate(i: Inputs) -> object:
    embedding = ke.MulticlassEmbedding(ke.FeatureKernel(linear_map()), M)
    answers = scale.accumulate(embedding, i.x(), i.labels()).condition()
    return Probabilities(answers.probabilities(i.x("query", 1)))


@entry
def compress(i: Inputs) -> object:
    answers, report = scale.compress(
        multiclass(i).condition(i.x(), i.labels()),
        i.setting("num_points", 3),
        i.setting("choice", "greedy", ("no", None, 3)),
    )
    return Probabilities(answers.probabilities(i.x("query", 1))), report


# votes and estimators ------------------------------------------------------------------------------------------------


def array(value: object) -> object:
    """Tensors without more ado as arrays, which is what estimators are given."""
    try:
        return value.detach().numpy() if isinstance(value, torch.Tensor) else value
    except (TypeError, RuntimeError, NotImplementedError):
        return value


@entry
def classifier(i: Inputs) -> object:
    model = ke.MulticlassEmbeddingClassifier(
        kernel=test_kernel(i), max_evaluations=i.setting("max_evaluations", 3), random_state=i.setting("seed", 0, SEEDS)
    )
    model.fit(array(i.x()), array(i.labels()))
    return Probabilities(model.predict_proba(array(i.x("query", 1))))


@entry
def voted_classifier(i: Inputs) -> object:
    model = ke.VotedKernelClassifier(
        kernels=i.setting("kernels", None, ("rbf", [], [None], 3, [lambda a, b: a])),
        lam=i.setting("lam", 0.01),
        beta=i.setting("beta", 0.01),
        complexity=i.setting("complexity", "trace", ("dimension", "local", "monte_carlo", "no", [1.0], float("nan"))),
    )
    model.fit(array(i.x()), array(i.labels()))
    return Probabilities(model.predict_proba(array(i.x("query", 1)))), model.objective_, model.gap_


@entry
def vote_guarantee(i: Inputs) -> object:
    y = np.arange(N) % 2
    model = ke.VotedKernelClassifier(lam=0.001, beta=0.001).fit(clean_x().numpy() + y[:, None], y)
    promise = model.guarantee(
        rho=i.setting("rho", None),
        theorem=i.setting("theorem", 1, (2, 3, "1")),
        confidence=i.setting("confidence", 0.95),
    )
    return promise.value


@entry
def vote_path(i: Inputs) -> object:
    found = voting.vote_path(
        None,
        array(i.x()),
        array(i.labels()) if i.broken in ("y", "all") else np.arange(N) % 2,
        lams=i.setting("lams", (0.1,), ((), (-1.0,), (float("nan"),), 0.1)),
        betas=i.setting("betas", (0.1,), ((), (-1.0,), (float("nan"),), 0.1)),
        tolerance=i.setting("tolerance", 1e-6),
        solver=i.setting("solver", None, (voting.CoordinateDescent(), "lp", voting.ColumnGeneration)),
    )
    return [point.solution.gap for point in found]


@entry
def cross_validate_votes(i: Inputs) -> object:
    found = voting.cross_validate_votes(
        voting.polynomial_kernels((1, 2)),
        array(i.x()),
        array(i.labels()) if i.broken in ("y", "all") else np.arange(N) % 2,
        lams=(0.1,),
        betas=(0.1,),
        num_folds=i.setting("num_folds", 3),
        seed=i.setting("seed", 0, SEEDS),
    )
    return Probabilities(found.error)


@entry
def complexities(i: Inputs) -> object:
    return voting.complexities(
        voting.polynomial_kernels((1, 2)),
        array(i.x()),
        i.pick(("trace", "dimension", "local", "monte_carlo")),
        radius=i.setting("radius", None),
        num_draws=i.setting("num_draws", 10),
        seed=i.setting("seed", 0, SEEDS),
    ).values


@entry
def base_kernels(i: Inputs) -> object:
    voting.polynomial_kernels(i.setting("degrees", (1, 2), ((), (0,), (-1,), (1.5,), 3)), i.setting("offset", 1.0))
    voting.gaussian_kernels(i.setting("gammas", (0.1,), ((), (0.0,), (-1.0,), (float("nan"),), 3)))


@entry
def trace_bounds(i: Inputs) -> object:
    K = array(ke.gram(i.kernel(), i.x()))
    return voting.trace_bound(K), voting.local_bound(K, i.setting("radius", None)), voting.massart_bound(K)
