"""The scikit-learn front end, held to scikit-learn's own checks and to the paper's figures."""

import copy
import dataclasses

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernel_embed as ke
from kernel_embed.estimators import PooledPredictor, candidates, conditioning, default, pooled
from kernel_embed.lab.datasets import data_directory, load_table
from kernel_embed.objectives import calibrate, default_objective
from kernel_embed.splits import distinct_rows, stratified_folds, stratified_sample

FAST = {"max_evaluations": 15, "objective": default_objective()}
"""One kernel, and not the pool of the default."""


@pytest.fixture(scope="module")
def iris():
    x, y = load_iris(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    return x[order], y[order]


def one_kernel(*arguments, **options):
    return ke.MulticlassEmbeddingClassifier(*arguments, **FAST | options)


@pytest.fixture(scope="module")
def fitted(iris):
    x, y = iris
    return one_kernel().fit(x[:100], y[:100])


FEW_CHECKS = (
    "check_sample_weight_equivalence_on_dense_data",
    "check_estimators_pickle",
    "check_dataframe_column_names_consistency",
    "check_fit2d_1sample",
    "check_classifiers_one_label",
    "check_estimators_unfitted",
)
"""Of the default, whose fits take seconds; ``--all-checks`` runs the others as well."""


@parametrize_with_checks([ke.MulticlassEmbeddingClassifier(), ke.MulticlassEmbeddingClassifier(**FAST)])
def test_scikit_learn_checks(estimator, check, request):
    is_default = estimator.objective is None
    if is_default and check.func.__name__ not in FEW_CHECKS and not request.config.getoption("--all-checks"):
        pytest.skip("the same check of one kernel runs; --all-checks runs it for the default")
    check(estimator)


def test_it_classifies(fitted, iris):
    x, y = iris
    assert fitted.score(x[100:], y[100:]) >= 0.94
    p = fitted.predict_proba(x[100:])
    np.testing.assert_allclose(p.sum(1), 1.0)
    assert (p >= 0).all()
    np.testing.assert_array_equal(fitted.predict(x[100:]), fitted.classes_[p.argmax(1)])
    np.testing.assert_array_equal(fitted.decision_function(x[100:]).argmax(1), p.argmax(1))
    assert -np.log(p[np.arange(50), y[100:]]).mean() < 0.3


def test_it_reports_its_terms_and_its_bound(fitted, iris):
    x, y = (torch.as_tensor(part[:100]) for part in iris)
    assert set(fitted.terms_) == {*(repr(term) for _, term in default_objective().terms()), "priors"}
    assert sum(fitted.terms_.values()) == pytest.approx(fitted.result_.value)
    conditioned = fitted.embedding_.condition(x, y)
    for bound, form in ((fitted.bound_, "paper"), (fitted.tight_bound_, "tight")):
        assert bound.value == pytest.approx(ke.generalization_bound(conditioned, 0.95, form).value, rel=1e-9)
        assert bound.form == form
        assert bound.sup_diagonal_source == "closed form"
    assert isinstance(fitted.result_, ke.learning.FitResult)
    # Probabilities are calibrated on leave-one-out values.
    calibration = calibrate(conditioned.leave_one_out(), conditioned.Y)
    expected = calibration.probabilities(conditioned.decision_probabilities(torch.as_tensor(iris[0][100:])))
    np.testing.assert_allclose(fitted.predict_proba(iris[0][100:]), expected.detach(), atol=1e-6)


def test_without_calibration_probabilities_are_clip_normalized(iris):
    x, y = iris
    plain = one_kernel(calibrated=False).fit(x[:100], y[:100])
    assert plain.calibration_ is None
    expected = plain.conditioned_.probabilities(torch.as_tensor(x[100:])).detach()
    np.testing.assert_allclose(plain.predict_proba(x[100:]), expected)


@pytest.mark.parametrize(
    "names",
    [["setosa", "versicolor", "virginica"], np.array(["a", "b", "c"], dtype=object), [-5, 0, 17], [1.0, 2.0, 3.0]],
)
def test_labels_of_any_kind(names, iris):
    x, y = iris
    names = np.asarray(names)
    plain, named = one_kernel().fit(x[:60], y[:60]), one_kernel().fit(x[:60], names[y[:60]])
    np.testing.assert_array_equal(named.classes_, names)
    np.testing.assert_array_equal(named.predict(x), names[plain.predict(x)])
    np.testing.assert_allclose(named.predict_proba(x), plain.predict_proba(x))
    assert named.score(x, names[y]) > 0.9


def test_boolean_labels_and_two_classes(iris):
    x, y = iris
    classifier = one_kernel().fit(x[:60], y[:60] == 1)
    assert classifier.classes_.tolist() == [False, True]
    assert classifier.predict(x).dtype == bool
    scores = classifier.decision_function(x)
    assert scores.shape == (150,)
    np.testing.assert_array_equal(scores > 0, classifier.predict(x))


def test_the_kernel_given_is_never_changed(iris):
    x, y = iris
    kernel = RBFKernel(ard_num_dims=4)
    before = copy.deepcopy(kernel.state_dict())
    one_kernel(kernel).fit(x[:60], y[:60])
    assert all(torch.equal(value, before[key]) for key, value in kernel.state_dict().items())
    assert kernel.raw_lengthscale.dtype == torch.float32


def test_pipeline_and_grid_search(iris):
    x, y = iris
    pipeline = make_pipeline(StandardScaler(), one_kernel(max_evaluations=8))
    assert cross_val_score(pipeline, x, y, cv=KFold(3)).mean() > 0.9
    grid = {
        "multiclassembeddingclassifier__kernel": [None, RBFKernel()],
        "multiclassembeddingclassifier__objective": [default_objective(), ke.ConditionalEvidence()],
    }
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(x[:80], y[:80])
    assert search.score(x[80:], y[80:]) > 0.85


KERNELS = {
    "matern": lambda: MaternKernel(2.5, ard_num_dims=4),
    "scaled sum": lambda: ScaleKernel(RBFKernel()) + gpytorch.kernels.LinearKernel(),
    "polynomial": lambda: gpytorch.kernels.PolynomialKernel(2),
    "rff": lambda: gpytorch.kernels.RFFKernel(num_samples=40),
    "spectral mixture": lambda: gpytorch.kernels.SpectralMixtureKernel(num_mixtures=2, ard_num_dims=4),
}


@pytest.mark.parametrize("name", KERNELS)
def test_any_kernel(name, iris):
    x, y = iris
    x = (x - x.mean(0)) / x.std(0)
    classifier = one_kernel(KERNELS[name]()).fit(x[:100], y[:100])
    assert classifier.score(x[100:], y[100:]) > 0.8
    assert np.isfinite(classifier.predict_proba(x)).all()


@pytest.mark.parametrize("state", [0, np.random.RandomState(0), np.int64(3)], ids=["int", "RandomState", "int64"])
def test_random_state_repeats(state, iris):
    x, y = iris
    answers = []
    for _ in range(2):
        classifier = ke.MulticlassEmbeddingClassifier(batch_size=20, num_epochs=2, random_state=copy.deepcopy(state))
        answers.append(classifier.fit(x[:60], y[:60]).predict_proba(x))
    np.testing.assert_array_equal(*answers)


def test_units_do_not_matter(iris):
    x, y = iris
    scaled = x * np.array([1e-3, 1.0, 1e4, 1e6]) + np.array([0.0, 10.0, -5e4, 0.0])
    one, other = (one_kernel().fit(z[:80], y[:80]).predict_proba(z[80:]) for z in (x, scaled))
    np.testing.assert_allclose(one, other, atol=1e-3)


def test_interruption_gives_a_usable_classifier(iris, monkeypatch):
    x, y = iris
    calls = []

    def interrupted(self, *arguments):
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return original(self, *arguments)

    original = ke.CalibratedLeaveOneOutRisk.value_and_gradient
    monkeypatch.setattr(ke.CalibratedLeaveOneOutRisk, "value_and_gradient", interrupted)
    classifier = ke.MulticlassEmbeddingClassifier(objective=default_objective()).fit(x[:60], y[:60])
    assert classifier.result_.interrupted
    assert "interrupted" in classifier.result_.message
    assert len(calls) == 1, "no later stage goes on"
    assert classifier.terms_ == {}
    assert classifier.score(x, y) > 0.8


def test_wine_out_of_the_box():
    x, y = load_wine(return_X_y=True)
    order = np.random.RandomState(0).permutation(len(x))
    scores = cross_val_score(ke.MulticlassEmbeddingClassifier(), x[order], y[order], cv=KFold(3))
    assert scores.mean() > 0.95


def test_the_classifier_keeps_its_own_data(iris):
    x, y = iris[0][:60].copy(), iris[1][:60].copy()
    classifier = one_kernel().fit(x, y)
    before = classifier.predict_proba(iris[0])
    x[:], y[:] = 0.0, 0
    np.testing.assert_array_equal(classifier.predict_proba(iris[0]), before)


def test_a_function_may_build_the_kernel(iris):
    x, y = iris
    seen = []

    def build(inputs):
        seen.append(inputs.shape)
        return RBFKernel(ard_num_dims=inputs.shape[-1])

    assert one_kernel(build).fit(x[:100], y[:100]).score(x[100:], y[100:]) > 0.9
    assert seen == [(100, 4)]
    with pytest.raises(TypeError, match=r"kernel must be a kernel, or a function .* takes \(a, b\)"):
        one_kernel(lambda a, b: None).fit([[0.0], [1.0]], [0, 1])


def test_learning_may_start_on_a_subset(iris):
    x, y = iris
    one, other = (
        one_kernel(max_evaluations=200, subset_size=size, random_state=0).fit(x[:100], y[:100]) for size in (40, None)
    )
    # The objectives differ by their priors, which sit around the lengthscale that each start has found.
    risks = [c.terms_["CalibratedLeaveOneOutRisk(penalty=1)"] for c in (one, other)]
    assert risks[0] == pytest.approx(risks[1], abs=0.02)
    assert one.conditioned_.num_data == 100
    assert one.score(x[100:], y[100:]) >= 0.92


@pytest.mark.data
@pytest.mark.skipif(data_directory() is None, reason="KERNEL_EMBED_DATA is not set: no copy of the papers' data sets")
@pytest.mark.parametrize(("name", "mean", "deviation"), [("wine", 97.2, 3.7), ("ecoli", 87.5, 4.4)])
def test_table_1_with_the_rate_of_the_released_code(name, mean, deviation):
    """Table 1, row GMCE: accuracy over 10 folds, mean ± standard deviation, to the published decimal."""
    x, labels = load_table(name)
    x = (x - x.min(0)) / (x.max(0) - x.min(0))
    classes, y = np.unique(labels, return_inverse=True)
    order = np.random.RandomState(0).permutation(len(x))
    x, y = torch.as_tensor(x[order]), torch.as_tensor(y[order])
    accuracies = []
    for training, test in KFold(10).split(x):
        kernel = RBFKernel(
            ard_num_dims=x.shape[1], lengthscale_constraint=Positive(transform=torch.exp, inv_transform=torch.log)
        ).double()
        kernel.lengthscale = 1.0
        embedding = ke.MulticlassEmbedding(kernel, len(classes), regularization=1.0)
        objective = ke.EmpiricalRisk() + ke.RademacherComplexity("4e/n")
        ke.fit(embedding, objective, x[training], y[training])
        with torch.no_grad():
            predicted = embedding.condition(x[training], y[training]).predict(x[test])
        accuracies.append(100.0 * (predicted == y[test]).double().mean().item())
    assert round(float(np.mean(accuracies)), 1) == mean
    assert round(float(np.std(accuracies)), 1) == deviation


# --- the default pool -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table():
    """An irrelevant number, a heavy tail that decides, and a category that turns the answer over."""
    generator = np.random.default_rng(0)
    n = 240
    heavy = np.exp(2.0 * generator.standard_normal(n))
    kind = np.array(["u", "v", "w"])[generator.integers(3, size=n)]
    noise = generator.standard_normal(n)
    y = np.where((heavy > 1.0) ^ (kind == "w"), "yes", "no")
    X = pd.DataFrame({"noise": noise, "heavy": heavy, "kind": kind})
    X.loc[::17, "noise"] = np.nan
    return X, y


def fit_pool(X, y, **options):
    return ke.MulticlassEmbeddingClassifier(random_state=0, **options).fit(X, y)


@pytest.fixture(scope="module")
def fitted_pool(table):
    X, y = table
    return fit_pool(X[:160], y[:160])


@pytest.fixture(scope="module")
def first(table):
    X, y = table
    return fit_pool(X[:120], y[:120])


def nll(classifier, X, y):
    p = classifier.predict_proba(X)
    return -np.log(p[np.arange(len(y)), np.searchsorted(classifier.classes_, y)]).mean()


def test_it_learns_from_a_data_frame(fitted_pool, table):
    X, y = table
    assert fitted_pool.score(X[160:], y[160:]) > 0.9
    assert nll(fitted_pool, X[160:], y[160:]) < 0.25
    np.testing.assert_array_equal(fitted_pool.feature_names_in_, ["noise", "heavy", "kind"])
    shares = fitted_pool.inverse_lengthscales_
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["heavy"] > shares["noise"]


def test_one_can_look_inside_and_left_out_values_are_honest(fitted_pool, table):
    """Their loss is near that of new rows; that of the training rows themselves is far below."""
    X, y = table
    answers = fitted_pool.conditioned_
    assert isinstance(answers, PooledPredictor)
    assert {str(member.candidate) for member in answers.members} >= {"squash rbf columns", "quantile laplace common"}
    assert (answers.pool.weights >= 0).all()
    assert "quantile" in repr(answers)
    assert answers.left_out.exp().sum(-1).allclose(torch.ones(160).double())
    labels = fitted_pool._table.y[answers.left_out_rows]
    left_out = -answers.left_out.gather(-1, labels.unsqueeze(-1)).mean().item()
    assert left_out == pytest.approx(nll(fitted_pool, X[160:], y[160:]), abs=0.12)
    transforms = {
        id(predictor.embedding.kernel.feature_map)
        for member in answers.members
        for predictor in member.predictors
        if member.candidate.input_transform == "quantile" and member.candidate.family != "partition"
    }
    assert len(transforms) == 1, "members share their input transform"


def test_sets_cover(fitted_pool, table):
    X, y = table
    sets = fitted_pool.predict_set(X[160:], coverage=0.9)
    inside = sets[np.arange(80), np.searchsorted(fitted_pool.classes_, y[160:])].mean()
    assert inside > 0.8
    assert sets.any(axis=1).all()
    assert (fitted_pool.predict_set(X[160:], 0.99) >= sets).all()


def test_unknown_and_missing_cells_at_prediction(fitted_pool, table):
    new = table[0][:2].assign(kind=["never seen", None], heavy=[np.nan, 1e12])
    p = fitted_pool.predict_proba(new)
    np.testing.assert_allclose(p.sum(1), 1.0)
    with pytest.raises(ValueError, match=r"Input contains infinity, in row 0 of column 'heavy'"):
        fitted_pool.predict_proba(new.assign(heavy=[np.inf, 1.0]))


def test_rows_without_a_label_and_soft_labels(table):
    X, y = table
    X = X[:80]
    missing = y[:80].astype(object)
    missing[::9] = None
    known = np.array([label is not None for label in missing])
    with pytest.warns(UserWarning, match="9 of 80 rows have no label"):
        classifier = ke.MulticlassEmbeddingClassifier().fit(X, missing)
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert len(classifier._table.x) == known.sum()
    soft = np.where(y[:80, None] == np.array(["no", "yes"]), 0.9, 0.1)
    assert ke.MulticlassEmbeddingClassifier().fit(X, soft).predict_proba(X).shape == (80, 2)
    with pytest.raises(ValueError, match=r"or as soft labels, rows of probabilities that add up to 1"):
        ke.MulticlassEmbeddingClassifier().fit(X, 2.0 * soft)


def test_one_outlier_changes_nothing():
    generator = np.random.default_rng(1)
    X = generator.standard_normal((100, 3))
    y = (X[:, 0] > 0).astype(int)
    far = X.copy()
    far[0, 1] = 1000.0
    new = generator.standard_normal((300, 3))
    assert ke.MulticlassEmbeddingClassifier().fit(far, y).score(new, new[:, 0] > 0) > 0.9


def test_class_weight_moves_the_answer(table):
    X, y = table
    plain, heavy = (fit_pool(X[:80], y[:80], class_weight=weight) for weight in (None, {"no": 1.0, "yes": 20.0}))
    assert heavy.predict_proba(X[160:])[:, 1].mean() > plain.predict_proba(X[160:])[:, 1].mean()


def test_inside_scikit_learn():
    x, y = load_iris(return_X_y=True, as_frame=True)
    rows = np.random.RandomState(0).permutation(150)[:60]
    model = make_pipeline(StandardScaler().set_output(transform="pandas"), ke.MulticlassEmbeddingClassifier())
    calibrated = CalibratedClassifierCV(model, cv=2, ensemble=False).fit(x.iloc[rows], y.iloc[rows])
    assert calibrated.score(x, y) > 0.9


def test_beyond_exact_sizes_it_goes_on_through_features(monkeypatch):
    """The same road as for 10⁶ rows, at sizes that take no time."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((900, 3))
    y = (np.hypot(X[:, 0], X[:, 1]) > 1.1).astype(int)
    y[:4] = 2  # a rare class
    monkeypatch.setattr(default, "CROSS_FITTED", 200)
    monkeypatch.setattr(default, "SAMPLE", 120)
    exact = fit_pool(X[:600], y[:600])
    monkeypatch.setattr(conditioning, "EXACT", 300)
    featured = fit_pool(X[:600], y[:600])
    losses = [nll(classifier, X[600:], y[600:]) for classifier in (exact, featured)]
    assert max(losses) < 0.25
    assert losses[0] == pytest.approx(losses[1], abs=0.05)
    assert len(exact.conditioned_.members) == len(featured.conditioned_.members) == 6


def test_many_columns_have_a_common_lengthscale(monkeypatch):
    generator = np.random.default_rng(0)
    X = generator.standard_normal((40, 12))
    monkeypatch.setattr(candidates, "MANY_COLUMNS", 10)
    members = [member.candidate for member in fit_pool(X, X[:, 0] > 0).conditioned_.members]
    assert {candidate.relevance for candidate in members if candidate.family in ("rbf", "laplace")} == {"common"}


@pytest.mark.parametrize("family", ["rbf", "matern", "linear"])
def test_rows_with_many_columns_are_learned_in_few_coordinates(monkeypatch, family):
    generator = np.random.default_rng(0)
    x = torch.as_tensor(generator.standard_normal((30, 50)))
    y = (x[:, :5].sum(1) > 0).long()
    rows = conditioning.Table(x, y, None, torch.arange(50), torch.ones(50, dtype=torch.bool), 2)
    few = candidates.narrow_coordinates(x)
    assert few.shape == (30, 30)
    torch.testing.assert_close(few @ few.T, x @ x.T)
    torch.testing.assert_close(torch.pdist(few), torch.pdist(x))
    monkeypatch.setattr(candidates, "MANY_COLUMNS", 40)
    search = candidates.Search(
        ke.default_objective(),
        lambda kernel, start, prior: ke.MulticlassEmbedding(kernel, 2, start, regularization_prior=prior),
    )
    with monkeypatch.context() as patch:
        patch.setattr(candidates, "is_wide", lambda rows: False)
        direct = search.learn(family, rows)
    start = search.learn(family, dataclasses.replace(rows, coordinates=few))
    for relevance, embedding in start.items():
        torch.testing.assert_close(embedding.regularization, direct[relevance].regularization, rtol=1e-4, atol=0.0)
        K, expected = ke.kernels.gram(embedding.kernel, x), ke.kernels.gram(direct[relevance].kernel, x)
        torch.testing.assert_close(K, expected, rtol=1e-4, atol=1e-6)
    assert search.learn(family, rows, start).keys() == start.keys()


def test_ctrl_c_leaves_no_half_classifier(monkeypatch, table):
    X, y = table

    def interrupted(self, bound):
        raise KeyboardInterrupt

    monkeypatch.setattr(ke.CalibratedLeaveOneOutRisk, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ke.MulticlassEmbeddingClassifier().fit(X[:60], y[:60])


def test_rows_are_chosen_with_every_class():
    labels = np.array([0] * 95 + [1] * 5)
    generator = np.random.default_rng(0)
    chosen = stratified_sample(labels, 20, generator)
    assert len(chosen) == 20
    assert (labels[chosen] == 1).sum() >= 3
    part = stratified_folds(labels, 3, generator)
    assert all(abs(int((part[labels == c] == k).sum()) - (labels == c).sum() / 3) < 1 for c in (0, 1) for k in range(3))
    twice = distinct_rows(np.array([[0.0], [-0.0], [1.0]]), np.ones((3, 1)), np.array([1.0, 2.0, 0.0]))
    assert twice.weights.tolist() == [2.0]  # half of the only row is left out at a time
    assert (twice.rows.tolist(), twice.shares.tolist(), twice.scale) == ([0], [0.5], 2 / 3)


def test_rows_in_parts_are_rows_at_once(table, first):
    """Coefficients are those of all rows, whatever the parts; kernels and the pool stay."""
    X, y = table
    twice = copy.deepcopy(first).partial_fit(X[120:150], y[120:150]).partial_fit(X[150:200], y[150:200])
    once = copy.deepcopy(first).partial_fit(X[120:200], y[120:200])
    np.testing.assert_allclose(twice.predict_proba(X), once.predict_proba(X), rtol=1e-7, atol=1e-10)
    assert nll(once, X[200:], y[200:]) < nll(first, X[200:], y[200:])
    member = once.conditioned_.members[0]
    embedding = member.predictors[0].embedding
    x, labels = torch.tensor(once.encoder_.transform(X[:200])), torch.tensor(np.searchsorted(once.classes_, y[:200]))
    torch.testing.assert_close(
        member.predictors[0].mean(x), embedding.condition(x, labels).mean(x), rtol=1e-7, atol=1e-9
    )


def test_rows_in_parts_through_features(table, monkeypatch):
    """Sums grow, and the table that is held does not."""
    X, y = table
    monkeypatch.setattr(conditioning, "EXACT", 100)
    first = fit_pool(X[:120], y[:120])
    grown = copy.deepcopy(first).partial_fit(X[120:200], y[120:200])
    assert grown.conditioned_.members[0].predictors[0].num_data == 200
    assert len(grown._table.x) == len(first._table.x)
    assert nll(grown, X[200:], y[200:]) < nll(first, X[200:], y[200:])


def test_exact_members_turn_to_features_where_rows_are_many(table, first, monkeypatch):
    X, y = table
    exact = copy.deepcopy(first).partial_fit(X[120:200], y[120:200])
    monkeypatch.setattr(conditioning, "EXACT", 150)
    monkeypatch.setattr(pooled, "num_points", lambda n: n)  # as many points as rows: the features are exact
    grown = copy.deepcopy(first).partial_fit(X[120:200], y[120:200])
    np.testing.assert_allclose(grown.predict_proba(X), exact.predict_proba(X), atol=1e-4)


def test_a_class_that_comes_later(table):
    X, y = table
    few = ke.MulticlassEmbeddingClassifier(random_state=0)
    few.partial_fit(X[:60], y[:60], classes=["no", "perhaps", "yes"])
    late = np.where(X["heavy"][60:200] > 8, "perhaps", y[60:200])
    few.partial_fit(X[60:200], late)
    assert few.predict_proba(X[:3]).shape == (3, 3)
    with pytest.raises(ValueError, match=r"Expected labels among \['no', 'perhaps', 'yes'\], got \['never'\]"):
        few.partial_fit(X[:2], ["never", "yes"])


def test_one_kernel_grows_by_a_block():
    order = np.random.default_rng(0).permutation(150)
    x, y = (part[order] for part in load_iris(return_X_y=True))
    x = x / 5.0
    first = ke.MulticlassEmbeddingClassifier(gpytorch.kernels.RBFKernel(), max_evaluations=5).fit(x[:100], y[:100])
    grown = copy.deepcopy(first).partial_fit(x[100:], y[100:])
    expected = first.conditioned_.updated(torch.tensor(x[100:]), torch.tensor(y[100:])).mean(torch.tensor(x))
    torch.testing.assert_close(grown.conditioned_.mean(torch.tensor(x)), expected)


def test_a_table_beyond_memory_is_refused_before_it_is_encoded(monkeypatch):
    sizes = {"SC_PHYS_PAGES": 10, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr("os.sysconf", sizes.__getitem__)
    with pytest.raises(MemoryError, match=r"got n = 2000, whose 2000 × 300 matrices need"):
        ke.MulticlassEmbeddingClassifier().fit(np.random.default_rng(0).normal(size=(2000, 300)), np.arange(2000) % 2)


def test_few_points_are_enough_where_a_member_counts_little(table, monkeypatch):
    """The ridge is learned through them, too."""
    X, y = table
    monkeypatch.setattr(conditioning, "EXACT", 100)
    one = fit_pool(X[:160], y[:160])
    for module in (conditioning, default):
        monkeypatch.setattr(module, "PROBES", 20)
    other = fit_pool(X[:160], y[:160])
    assert nll(other, X[160:], y[160:]) == pytest.approx(nll(one, X[160:], y[160:]), abs=0.05)
