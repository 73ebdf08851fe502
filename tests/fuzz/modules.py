"""Everything else: measures, the calculus, conformal sets, bounds, optimizers, statistics, theorems, plots."""

from __future__ import annotations

import pathlib
import tempfile

import gpytorch
import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed import (
    embeddings,
    hypothesis,
    kernels,
    learning,
    objectives,
    plots,
    posteriors,
    scale,
    tabular,
    voting,
)
from kernel_embed.lab import studies

from .entries import TEST_SETTINGS, Probabilities, array, bayesian, conditional, entry, linear_map, multiclass
from .inputs import NAN, NUMBERS, SEEDS, Inputs, M, N, clean_x

SHARES = (0.0, 1.0, -0.1, 1.5, NAN, None, "0.9", [0.9])
LEVELS = (0.0, 1.0, -0.5, 2.0, NAN, None, "0.9")


def line() -> torch.Tensor:
    return torch.linspace(-1, 1, N, dtype=torch.float64)


# kernels -------------------------------------------------------------------------------------------------------------


@entry
def measures(i: Inputs) -> object:
    measure = i.pick(
        (
            lambda: kernels.GaussianMeasure(i.setting("scale", 1.0)),
            lambda: kernels.DiscreteMeasure(i.x("atoms", 2), i.setting("weights", None)),
            lambda: kernels.LebesgueMeasure(i.setting("unit", False, (True, None, "yes"))),
            lambda: i.setting("measure", None, (kernels.LebesgueMeasure, "gauss", 3)),
        )
    )()
    return ke.gram(kernels.SmoothedKernel(i.kernel(), measure), i.x())


@entry
def tied_kernels(i: Inputs) -> object:
    kind = i.pick((tabular.TiedRBFKernel, tabular.TiedMaternKernel, tabular.TiedLaplaceKernel))
    groups = i.setting("groups", (0, 1), ((0, 0), (), (-1, 0), (0.5, 1), (0, 2), "01", None, 3, (0, NAN)))
    more = {"nu": i.setting("nu", 1.5, (0.5, 2.5, *NUMBERS))} if kind is tabular.TiedMaternKernel else {}
    return ke.gram(kind(groups, **more).double(), i.x(), i.x("x2", 1))


@entry
def warpings(i: Inputs) -> object:
    numbers = i.setting("numbers", torch.tensor([True, False]), (torch.tensor([True]), None, [True, False], "all"))
    warp = tabular.make_input_transform(i.setting("kind", "squash", ("quantile", "no", None, 3)), i.x(), numbers)
    return ke.gram(ke.FeatureKernel(warp, RBFKernel().double()), i.x("query", 1))


@entry
def partitions(i: Inputs) -> object:
    columns = torch.tensor([i.setting("column", 0, (1, 7, -3)), 0, 0])
    below = torch.tensor([i.setting("below", 1, (-1, 0, 2, 9)), -1, -1])
    thresholds = i.setting("thresholds", torch.tensor([0.5, 0.0, 0.0]), (torch.zeros(2), torch.tensor(0.5), None, "0"))
    tree = tabular.Tree(columns, thresholds, below, torch.tensor([2, -1, -1]))
    trees = i.setting("trees", [tree], ([], [tree, tree], tree, None, [None]))
    return ke.gram(ke.FeatureKernel(tabular.Partitions(trees)), i.x())


@entry
def distances_of_bags(i: Inputs) -> object:
    packed = kernels.pack_bags([i.x(), i.x("x2", 1), clean_x(2, 5)])
    return ke.gram(kernels.MMDKernel(i.kernel(), i.setting("num_features", 2)), packed)


@entry
def diagonal_bounds(i: Inputs) -> object:
    bound = i.pick(
        (
            lambda: ke.LipschitzBound(i.setting("radius", 1e3)),
            lambda: kernels.NominalDiagonal(i.setting("value", 1.0)),
            kernels.MeanDiagonal,
        )
    )()
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
    kind = i.pick((None, "rbf", RBFKernel(), torch.nn.Module, type("Own", (gpytorch.kernels.Kernel,), {})))
    i.chosen["kind"] = kind
    ke.register(kind, like=i.pick((None, "rbf", torch.nn.Module)), profile=i.pick((None, 3, "exp")))


# embeddings ----------------------------------------------------------------------------------------------------------


def likelihood(i: Inputs) -> embeddings.ConditionedEmbedding:
    target = i.pick((RBFKernel().double(), RBFKernel().double(), None))
    return ke.ConditionalEmbedding(RBFKernel().double(), 0.01, target).condition(clean_x(), i.targets())


@entry
def rules_of_probability(i: Inputs) -> object:
    conditioned = likelihood(i)
    prior = ke.MeanEmbedding(i.kernel()).condition(i.x())
    total, joint = embeddings.sum_rule(conditioned, prior), embeddings.chain_rule(conditioned, prior)
    posterior = embeddings.bayes_rule(conditioned, prior, i.setting("regularization", 1e-3))
    return total.weights, joint.weights, posterior.mean(conditioned.y[:3].reshape(3, -1))


@entry
def weighted_embedding(i: Inputs) -> object:
    weights = i.setting("weights", torch.full((N,), 1.0 / N, dtype=torch.float64), (None, torch.ones(3), "1", 1.0))
    weighted = embeddings.WeightedEmbedding(i.kernel(), i.x(), weights)
    return weighted(i.x("query", 1)), weighted.inner(weighted), weighted.expectation(torch.square)


@entry
def jackknife_plus(i: Inputs) -> object:
    y = line() if i.broken not in ("y", "all") else i.targets()
    conditioned = conditional(i).condition(i.x(), y)
    return embeddings.jackknife_plus_interval(conditioned, i.x("query", 1), i.setting("coverage", 0.8, SHARES))


@entry
def conformal_scores(i: Inputs) -> object:
    coverage = i.setting("coverage", 0.8, SHARES)
    return (
        embeddings.conformal_quantile(line() if i.broken not in ("x", "all") else i.x(), coverage),
        embeddings.interval_scores(i.x("query", 1), line()),
    )


@entry
def prediction_sets(i: Inputs) -> object:
    p = torch.softmax(clean_x(3), -1)
    y = torch.arange(N) % 2 if i.broken not in ("y", "all") else i.labels()
    left_out = p if i.broken not in ("x", "all") else i.x()
    query = p if i.broken not in ("query", "all") else i.x("query", 1)
    return embeddings.prediction_sets(left_out, y, query, i.setting("coverage", 0.9, SHARES))


@entry
def clip_normalize(i: Inputs) -> object:
    return Probabilities(embeddings.clip_normalize(i.x()))


@entry
def calibrated_and_updated(i: Inputs) -> object:
    conditioned = multiclass(i).condition(i.x(), i.labels())
    more = conditioned.updated(i.x("query", 1), torch.arange(N) % M)
    calibrated = conditioned.calibrated()
    return Probabilities(calibrated.probabilities(clean_x(2))), Probabilities(more.probabilities(clean_x(2)))


# objectives and learning ---------------------------------------------------------------------------------------------


@entry
def bounds_of_losses(i: Inputs) -> object:
    losses = torch.linspace(0, 1, N, dtype=torch.float64) if i.broken not in ("x", "all") else i.x()
    confidence = i.setting("confidence", 0.95, LEVELS)
    held_out = objectives.holdout_bound(losses, confidence, i.setting("candidates", 1))
    rows = losses.expand(2, N) if i.broken not in ("x", "all") else losses
    gibbs = objectives.pac_bayes_bound(rows, confidence, temperature=i.setting("temperature", 1.0))
    return held_out.value, Probabilities(gibbs.value)


@entry
def kl_inverse(i: Inputs) -> object:
    return Probabilities(objectives.kl_inverse(i.setting("q", 0.1), i.setting("c", 0.1)))


@entry
def pool(i: Inputs) -> object:
    log_p = torch.log_softmax(torch.stack([clean_x(1), clean_x(2)]), -1)
    Y = torch.nn.functional.one_hot(torch.arange(N) % 2, 2).double()
    found = objectives.pool(
        log_p if i.broken not in ("x", "all") else i.x(),
        Y if i.broken not in ("y", "all") else i.targets(),
        i.setting("pull", 0.3),
    )
    return found.weights, found.offset


@entry
def scores_and_bounds(i: Inputs) -> object:
    target = i.setting("target_kernel", RBFKernel().double(), (None, "rbf", RBFKernel))
    conditioned = conditional(i).condition(i.x(), i.targets())
    bound = objectives.score_bound(conditioned, i.setting("confidence", 0.95, LEVELS), target)
    return bound.value, objectives.rademacher_complexity(conditioned), objectives.leave_one_out_scores(conditioned)


@entry
def empirical_score(i: Inputs) -> object:
    target = i.setting("target_kernel", RBFKernel().double(), (None, "rbf", RBFKernel))
    return objectives.EmpiricalScore(target)(conditional(i), i.x(), i.targets())


@entry
def optimizers(i: Inputs) -> object:
    sgd = i.setting("factory", lambda p: torch.optim.SGD(p, lr=0.1), (None, "sgd", torch.optim.SGD, lambda p: None))
    optimizer = i.pick(
        (
            lambda: ke.LBFGS(i.setting("max_evaluations", 3), i.setting("tolerance", 1e-5)),
            lambda: ke.LBFGS(3, num_restarts=i.setting("num_restarts", 0, (0, 1, -1, 1.5, "1", None, NAN))),
            lambda: ke.Adam(i.setting("num_epochs", 2, (0, -1, 1.5, "3", NAN)), i.setting("learning_rate", 0.1)),
            lambda: learning.TorchOptimizer(sgd, 2, i.setting("batch_size", None, (1, 5, N + 1, -1, 1.5, "5"))),
        )
    )()
    embedding = multiclass(i)
    result = ke.fit(embedding, ke.EmpiricalRisk(), i.x(), i.labels(), optimizer=optimizer)
    return result.value, [p.detach() for p in embedding.parameters()]


@entry
def bound(i: Inputs) -> object:
    return objectives.attach(multiclass(i), i.x(), i.labels()).P


# scale ---------------------------------------------------------------------------------------------------------------


@entry
def statistics(i: Inputs) -> object:
    embedding = ke.MulticlassEmbedding(ke.FeatureKernel(linear_map()), M)
    found = scale.FeatureStatistics(embedding).update(i.x(), i.labels())
    answers = scale.reduce_statistics(found).condition() if i.pick((False, True)) else found.condition()
    return Probabilities(answers.probabilities(i.x("query", 1)))


@entry
def feature_maps(i: Inputs) -> object:
    fourier = scale.FourierFeatures(i.x("Omega", 2).mT if i.broken not in ("query", "all") else i.x("Omega", 2))
    return fourier(i.x()), scale.NystromFeatures(i.kernel(), i.x("points", 3))(i.x())


@entry
def expansion(i: Inputs) -> object:
    coefficients = torch.ones(N, M, dtype=torch.float64) / M
    coefficients = i.setting("coefficients", coefficients, (None, torch.ones(3, M), coefficients * NAN, "1"))
    found = scale.MulticlassExpansion(multiclass(i), i.x(), coefficients)
    return Probabilities(found.probabilities(i.x("query", 1)))


@entry
def real_expansion(i: Inputs) -> object:
    return scale.Expansion(conditional(i), i.x(), torch.ones(N, 1, dtype=torch.float64)).mean(i.x("query", 1))


@entry
def sharded(i: Inputs) -> object:
    """Without a process group there is nothing to share."""
    embedding = scale.ShardedEmbedding(ke.MulticlassEmbedding(ke.FeatureKernel(linear_map()), M))
    return embedding.condition(i.x(), i.labels()).probabilities(i.x("query", 1))


# posteriors ----------------------------------------------------------------------------------------------------------


def draws(i: Inputs) -> object:
    return ke.sample_posterior(
        ke.MulticlassEmbedding(RBFKernel().double(), M), ke.ConditionalEvidence(), clean_x(), torch.arange(N) % M,
        num_samples=3, num_chains=1, seed=0, sampler=ke.Laplace(),
    )  # fmt: skip


@entry
def posterior_questions(i: Inputs) -> object:
    posterior = draws(i)
    return i.pick(
        (
            lambda: posterior.reweighted(i.setting("weights", torch.ones(3), (None, torch.ones(2), "1"))).weights,
            lambda: posterior.thinned(i.setting("num_draws", 2)).samples["kernel.lengthscale"],
            lambda: [p.detach() for p in posterior.average_kernel(i.setting("num_draws", 2)).parameters()],
            lambda: Probabilities(posterior.probabilities(i.x(), i.setting("calibrated", False, (True, None, "yes")))),
            lambda: list(posterior.entropy_parts(i.x())),
            lambda: posterior.mean(i.x()),
            lambda: posterior.weigh_modes(i.setting("seed", 0, SEEDS)).weights,
            lambda: ke.two_sample_test(i.x(), clean_x(2), kernel=posterior, num_permutations=19, seed=0).statistic,
        )
    )()  # fmt: skip


@entry
def mean_posterior_questions(i: Inputs) -> object:
    posterior = ke.sample_posterior(
        bayesian(i), ke.EmbeddingEvidence(), clean_x(), num_samples=3, num_chains=1, seed=0, sampler=ke.Laplace()
    )
    level = i.setting("level", 0.8, LEVELS)
    witness = posterior.witness(i.x(), i.x("query", 1))
    return (
        posterior.band(i.x("query", 1), level),
        witness.band(clean_x(2), level),
        posterior.mixture(i.x()).quantile(0.3),
    )


@entry
def save_posterior(i: Inputs) -> object:
    posterior = draws(i)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "posterior"
        posterior.save(i.setting("path", path, (None, 3, folder, "")))
        whole = path.read_bytes()
        if i.broken in ("settings", "all"):
            path.write_bytes(i.pick((whole, whole[:50], whole[:-30], b"PK" + whole[2:40], b"pickle")))
        embedding = ke.MulticlassEmbedding(i.kernel(), i.setting("num_classes", M))
        return list(ke.load_posterior(path, embedding, ke.ConditionalEvidence()).samples.values())


@entry
def potential(i: Inputs) -> object:
    found = posteriors.Potential(
        multiclass(i), ke.ConditionalEvidence(), i.x(), i.labels(), i.setting("temperature", 1.0)
    )
    return found.value(found.vector.get()) == 0.0


@entry
def default_prior(i: Inputs) -> object:
    raw = i.setting("raw", torch.zeros(2), (None, 3.0, "0", torch.tensor([NAN])))
    constraint = i.setting("constraint", kernels.log_scaled(), (None, "positive", gpytorch.constraints.Interval(0, 1)))
    posteriors.default_prior(raw, constraint)


# tests ---------------------------------------------------------------------------------------------------------------


@entry
def conditional_two_sample_test(i: Inputs) -> object:
    y = line() if i.broken not in ("y", "all") else i.targets()
    result = hypothesis.conditional_two_sample_test(
        i.x(), y, i.x("query", 1), line(),
        num_permutations=i.setting("num_permutations", 19, TEST_SETTINGS), seed=i.setting("seed", 0, SEEDS),
    )  # fmt: skip
    return Probabilities(result.pvalue), result.statistic


@entry
def differences(i: Inputs) -> object:
    result = ke.two_sample_test(i.x(), i.x("query", 1), num_permutations=19, seed=0)
    found = result.differences(level=i.setting("level", 0.95, LEVELS), seed=i.setting("seed", 0, SEEDS))
    return found.witness, found.band, Probabilities(found.pvalues)


@entry
def rejection_study(i: Inputs) -> object:
    study = studies.rejection_study(
        {"test": i.setting("test", lambda x, seed: 0.5, (None, "test", lambda x, seed: NAN))},
        {"data": i.setting("simulator", lambda number: (number,), (None, "data"))},
        num_repetitions=i.setting("num_repetitions", 3),
        level=i.setting("level", 0.05, LEVELS),
        progress=False,
    )
    return Probabilities(study.rate("data", "test"))


@entry
def register_causal_test(i: Inputs) -> object:
    """Refusals alone where causal-learn is installed: what is taken stays registered."""
    hypothesis.register_causal_test(
        i.pick(("", None, 3)), num_permutations=i.setting("num_permutations", 19, TEST_SETTINGS)
    )


# votes ---------------------------------------------------------------------------------------------------------------


def grams(i: Inputs) -> list[np.ndarray]:
    K = np.exp(-np.square(clean_x().numpy()[:, None] - clean_x().numpy()[None]).sum(-1))
    odd = {"nan": K * NAN, "short": K[:3], "list": K.tolist(), "nothing": None, "huge": K * 1e300, "zero": 0 * K}
    name = i.pick(("clean", *odd)) if i.broken in ("x", "kernel", "all") else "clean"
    i.chosen["K"] = name
    return [K, odd.get(name, K)]


def signs(i: Inputs) -> object:
    return array(i.labels()) if i.broken in ("y", "all") else np.where(np.arange(N) % 2 == 1, 1.0, -1.0)


@entry
def vote_problem(i: Inputs) -> object:
    problem = voting.VoteProblem(grams(i), signs(i), i.setting("elastic", 0.0))
    r = i.setting("r", np.ones(2), (None, np.ones(3), -np.ones(2), np.ones(2) * NAN, "11"))
    solver = i.pick(
        (
            lambda: None,
            lambda: voting.CoordinateDescent(max_rounds=i.setting("max_rounds", 20)),
            lambda: voting.ColumnGeneration(max_rounds=i.setting("max_rounds", 20)),
        )
    )()
    found = voting.problem_path(
        problem, r, (i.setting("lam", 0.1),), (i.setting("beta", 0.1),),
        solver=solver, tolerance=i.setting("tolerance", 1e-6),
    )  # fmt: skip
    return [point.solution.objective for point in found], voting.penalties(0.1, 0.1, np.ones(2))


@entry
def vote_complexities(i: Inputs) -> object:
    K = grams(i)[1]
    return i.pick(
        (
            lambda: voting.dimension_bound(K, i.setting("num_features", 2), i.setting("degree", 2)),
            lambda: float(voting.feature_dimension(i.setting("num_features", 2), i.setting("degree", 2))),
            lambda: voting.monte_carlo(K, i.setting("num_draws", 10), i.setting("seed", 0, SEEDS)),
            lambda: voting.own_radius(K),
            lambda: voting.penalties(i.setting("lam", 0.1), i.setting("beta", 0.1), np.ones(2)),
        )
    )()


@entry
def theorems(i: Inputs) -> object:
    theorem = i.pick((voting.theorem_1, voting.theorem_2))
    margins = np.linspace(-1, 1, N) if i.broken not in ("x", "all") else array(i.x())
    return theorem(
        margins, i.setting("mean_complexity", 0.1), i.setting("p", 2), i.setting("rho", 0.5),
        i.setting("confidence", 0.95, LEVELS),
    ).value  # fmt: skip


@entry
def kernel_families(i: Inputs) -> object:
    family = voting.KernelFamily([i.kernel(), RBFKernel().double()])
    chosen = voting.Votes(np.array([0, 1]), np.array([0, 1]), np.array([0.5, -0.5]))
    return voting.SparseVote(family, [chosen], array(i.x()))(array(i.x("query", 1)))


# estimators and pictures ---------------------------------------------------------------------------------------------

FRAMES = {
    "clean": lambda: pd.DataFrame(clean_x().numpy(), columns=["a", "b"]),
    "words": lambda: pd.DataFrame({"a": list("abcabcabcabcab"), "b": np.arange(N)}),
    "missing": lambda: pd.DataFrame({"a": [None, 1.0] * 7, "b": [None] * N}),
    "dates": lambda: pd.DataFrame({"a": pd.date_range("2020", periods=N), "b": [True, False] * 7}),
    "mixed": lambda: pd.DataFrame({"a": [1, "x"] * 7, "b": [NAN, np.inf] * 7}),
    "twice": lambda: pd.DataFrame(clean_x().numpy(), columns=["a", "a"]),
    "categories": lambda: pd.DataFrame({"a": pd.Categorical(list("xyxyxyxyxyxyxy")), "b": np.arange(N) * 1e160}),
    "lists": lambda: pd.DataFrame({"a": [[1, 2]] * N, "b": [{}] * N}),
    "complex": lambda: pd.DataFrame({"a": [1j] * N, "b": np.arange(N)}),
    "no rows": lambda: pd.DataFrame({"a": [], "b": []}),
    "no columns": lambda: pd.DataFrame(index=range(N)),
}


def frame(i: Inputs, name: str) -> object:
    choice = i.pick(tuple(FRAMES))
    i.chosen[name] = choice
    return FRAMES[choice]()


@entry
def table_encoder(i: Inputs) -> object:
    encoder = tabular.TableEncoder(i.setting("max_categories", 40)).fit(frame(i, "frame"))
    return np.nan_to_num(encoder.transform(frame(i, "new frame")))  # a missing number stays one


@entry
def classifier_of_tables(i: Inputs) -> object:
    model = ke.MulticlassEmbeddingClassifier(max_evaluations=2, random_state=0)
    model.fit(frame(i, "frame"), array(i.labels()))
    return Probabilities(model.predict_proba(frame(i, "new frame")))


@entry
def further_classifier(i: Inputs) -> object:
    model = ke.MulticlassEmbeddingClassifier(RBFKernel().double(), max_evaluations=2, random_state=0)
    weight = i.setting("sample_weight", None, (np.ones(N), np.zeros(N), -np.ones(N), np.ones(3), np.full(N, NAN), "1"))
    model.fit(clean_x().numpy(), np.arange(N) % M, sample_weight=weight)
    model.partial_fit(array(i.x()), array(i.labels()))
    return Probabilities(model.predict_proba(array(i.x("query", 1))))


@entry
def pictures_of_numbers(i: Inputs) -> object:
    axes = plots.free_figure(2.0, 2.0).subplots()
    values = np.linspace(0.1, 1.0, N) if i.broken not in ("x", "all") else array(i.x())
    others = np.linspace(1.0, 0.1, N) if i.broken not in ("query", "all") else array(i.x("query", 1))
    kind = i.pick(tuple(PICTURES))
    i.chosen["kind"] = kind
    PICTURES[kind](i, values, others, axes)


NAME = "kernel.lengthscale"
PICTURES = {
    "convergence": lambda i, v, w, ax: plots.plot_convergence({"a": v}, ax=ax),
    "differences": lambda i, v, w, ax: plots.plot_differences(v, w, torch.ones(N), ax=ax),
    "draws": lambda i, v, w, ax: plots.plot_draws(v, "a", ax=ax),
    "evidence": lambda i, v, w, ax: plots.plot_evidence_curve(v, w, median=i.setting("median", 1.0), ax=ax),
    "learning": lambda i, v, w, ax: plots.plot_learning_curve(
        i.setting("history", [{"a": 1.0}, {"a": 0.5}], ([], None, [{"a": NAN}], [{}])), ax=ax
    ),
    "probabilities": lambda i, v, w, ax: plots.plot_probability_map(
        lambda x: np.full((len(x), 2), 0.5), array(i.x()), np.arange(N) % 2, i.setting("num_classes", 2), ax=ax
    ),
    "ranking": lambda i, v, w, ax: plots.plot_ranking(list("abcdefghijklmn"), v, w, ax=ax),
    "ratios": lambda i, v, w, ax: plots.plot_ratios({"a": i.setting("ratio", 2.0), "b": 1.0}, ax=ax),
    "reliability": lambda i, v, w, ax: plots.plot_reliability(v, np.arange(N) % 2 == 0, ax=ax),
    "seconds": lambda i, v, w, ax: plots.plot_seconds({"a": (v, w)}, ax=ax),
    "traces": lambda i, v, w, ax: plots.plot_traces(draws(i), i.setting("name", NAME, ("no", None, 3)), ax=ax),
    "density": lambda i, v, w, ax: plots.plot_density(draws(i), NAME, entry=i.setting("entry", 0), ax=ax),
    "file": lambda i, v, w, ax: plots.save_picture(ax.figure, i.setting("path", "/nowhere/a.png", ("", None, 3)), 50),
}  # fmt: skip
