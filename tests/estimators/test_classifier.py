"""The scikit-learn front end, held to scikit-learn's own checks and to the paper's figures."""

import copy

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import kernel_embed as ke
from kernel_embed.lab.datasets import data_directory, load_table
from kernel_embed.objectives import calibrate, default_objective

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


def test_clone_and_repr():
    kernel = ScaleKernel(MaternKernel(1.5))
    original = ke.MulticlassEmbeddingClassifier(kernel, ke.LeaveOneOutRisk(), num_restarts=2, random_state=3)
    copied = clone(original)
    assert copied.kernel is not kernel
    assert copied.get_params()["num_restarts"] == 2
    assert "num_restarts=2" in repr(original)
    assert "LeaveOneOutRisk" in repr(original)
    assert repr(ke.MulticlassEmbeddingClassifier()) == "MulticlassEmbeddingClassifier()"


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


@pytest.mark.parametrize(
    "objective",
    [
        ke.EmpiricalRisk() + ke.RademacherComplexity("4e/n"),
        ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"),
        ke.ConditionalEvidence(),
        ke.CrossValidationRisk(5),
        ke.BatchValidationRisk(0.3, ke.RademacherComplexity(0.01), epsilon=1e-3),
    ],
    ids=repr,
)
def test_any_objective(objective, iris):
    x, y = iris
    classifier = one_kernel(objective=objective).fit(x[:100], y[:100])
    assert classifier.score(x[100:], y[100:]) > 0.85


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
