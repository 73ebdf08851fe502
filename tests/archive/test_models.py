"""Models as files: the same answers in another process, and nothing of the file is run."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
import zipfile

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch import constraints, kernels, priors
from sklearn.datasets import load_wine

import kernel_embed as ke
from kernel_embed.archive import names
from kernel_embed.files import read_sealed, write_sealed
from kernel_embed.kernels import DeltaKernel
from kernel_embed.lab.compare.learners import learners
from kernel_embed.tabular import TiedLaplaceKernel, TiedMaternKernel, TiedRBFKernel

from ..testing.test_kernels import KERNELS

X, Y = load_wine(return_X_y=True)
X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
POINTS, LABELS = torch.tensor(X), torch.tensor(Y)
PLANE = torch.linspace(0.1, 1.0, 40, dtype=torch.float64).reshape(20, 2)
HALVES = torch.arange(20) % 2


def classifier(**settings):
    return ke.MulticlassEmbeddingClassifier(max_evaluations=4, progress=False, **settings).fit(X, Y)


def embedding():
    prior = gpytorch.priors.GammaPrior(2.0, 3.0)
    matern = gpytorch.kernels.MaternKernel(1.5, ard_num_dims=13, lengthscale_prior=prior)
    kernel = gpytorch.kernels.ScaleKernel(matern + gpytorch.kernels.RBFKernel(active_dims=[0, 2]))
    return ke.MulticlassEmbedding(kernel, 3).double()


def frame():
    made = pd.DataFrame(X[:, :4], columns=list("abcd"))
    made["t"] = np.array(["u", "v", None], dtype=object)[Y % 3]
    return made


def approximated(method):
    embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(ard_num_dims=2), 2).double()
    return ke.approximate(embedding, PLANE, HALVES, method=method)[0]


def embedded(kind):
    return kind(gpytorch.kernels.RBFKernel()).double().condition(PLANE)


MODELS = {
    "mean embedding": (lambda: embedded(ke.MeanEmbedding), lambda m: m(PLANE).detach()),
    "shrinkage embedding": (lambda: embedded(ke.embeddings.ShrinkageMeanEmbedding), lambda m: m(PLANE).detach()),
    "Bayesian embedding": (lambda: embedded(ke.BayesianMeanEmbedding), lambda m: m.mean(PLANE).detach()),
    "Nyström": (lambda: approximated(ke.Nystrom(8)), lambda m: m.probabilities(PLANE).detach()),
    "random features": (lambda: approximated(ke.RandomFeatures(16)), lambda m: m.probabilities(PLANE).detach()),
    "classifier": (classifier, lambda m: m.predict_proba(X)),
    "embedding": (embedding, lambda m: m.condition(POINTS, LABELS).probabilities(POINTS).detach()),
    "conditioned": (lambda: embedding().condition(POINTS, LABELS), lambda m: m.probabilities(POINTS).detach()),
    "votes": (lambda: ke.VotedKernelClassifier().fit(X[:60], Y[:60]), lambda m: m.predict_proba(X)),
    "regressor": (
        lambda: ke.ConditionalEmbeddingRegressor(progress=False).fit(X[:50, :2], X[:50, 5]),
        lambda m: m.predict(X[:, :2]),
    ),
    "pipeline": (
        lambda: learners()["median heuristic"].for_tables().fit(frame(), Y),
        lambda m: m.predict_proba(frame()),
    ),
    "logistic": (lambda: learners()["logistic"].for_tables().fit(frame(), Y), lambda m: m.predict_proba(frame())),
    "svc": (lambda: learners()["svc grid"].for_tables().fit(frame(), Y), lambda m: m.predict_proba(frame())),
}


@pytest.mark.parametrize("name", list(MODELS))
def test_a_model_answers_the_same_after_loading(name, tmp_path):
    make, ask = MODELS[name]
    model = make()
    np.testing.assert_array_equal(ask(ke.load(ke.save(model, tmp_path / "m.ke"))), ask(model))


def test_plain_values_stay_what_they_are(tmp_path):
    values = [
        np.dtype("float32"),
        np.float64(0.1),
        slice(1, None, 2),
        torch.float32,
        torch.device("cpu"),
        torch.Size([2]),
    ]
    assert ke.load(ke.save(values, tmp_path / "m.ke")) == values


def test_another_process_answers_the_same(tmp_path):
    model = classifier()
    ke.save(model, tmp_path / "m.ke")
    np.save(tmp_path / "x.npy", X[:5])
    code = (
        "import sys, numpy as np, kernel_embed as ke\n"
        "model = ke.load(sys.argv[1] + '/m.ke')\n"
        "np.save(sys.argv[1] + '/p.npy', model.predict_proba(np.load(sys.argv[1] + '/x.npy')))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=120)
    np.testing.assert_array_equal(np.load(tmp_path / "p.npy"), model.predict_proba(X[:5]))


def test_what_is_shared_stays_shared_and_priors_work(tmp_path):
    model = embedding()
    model.also = model.kernel
    again = ke.load(ke.save(model, tmp_path / "m.ke"))
    assert again.also is again.kernel
    (_, module, prior, read, write), *_ = again.named_priors()
    torch.testing.assert_close(
        prior.log_prob(read(module)),
        model.kernel.base_kernel.kernels[0].lengthscale_prior.log_prob(model.kernel.base_kernel.kernels[0].lengthscale),
    )
    write(module, torch.full((1, 13), 0.7, dtype=torch.float64))
    assert module.lengthscale.detach().unique().item() == pytest.approx(0.7)
    ke.fit(again, ke.EmpiricalRisk(), POINTS, LABELS, max_evaluations=2, progress=False)  # parameters are still leaves


class Own(gpytorch.kernels.RBFKernel):
    """A kernel of the user's."""


def test_classes_of_the_user_are_named_when_loading(tmp_path):
    path = ke.save(ke.MulticlassEmbedding(Own(), 3).double(), tmp_path / "m.ke")
    with pytest.raises(ValueError, match=r"m\.ke .* the class tests\.archive\.test_models\.Own.*classes="):
        ke.load(path)
    for classes in ([Own], Own):
        assert isinstance(ke.load(path, classes=classes).kernel, Own)


def test_posteriors_have_files_of_their_own(tmp_path):
    objective, settings = ke.ConditionalEvidence(), {"num_samples": 4, "sampler": ke.Laplace(), "seed": 0}
    posterior = ke.sample_posterior(embedding(), objective, POINTS[::9], LABELS[::9], **settings)
    with pytest.raises(ValueError, match=r"Use posterior.save\(path\)"):
        ke.save(posterior, tmp_path / "posterior.ke")
    posterior.save(tmp_path / "posterior.npz")
    with pytest.raises(ValueError, match="read by load_posterior"):
        ke.load(tmp_path / "posterior.npz")


def rewritten(path, change):
    """The same file with another manifest, and a checksum that fits."""
    content, arrays = read_sealed(path, "model")
    change(content)
    write_sealed(path, "model", content, arrays)


def test_other_versions_earlier_formats_and_other_files_are_refused(tmp_path):
    path = ke.save({"a": np.arange(3), "b": float("nan")}, tmp_path / "m.ke")
    rewritten(path, lambda content: content.update(kernel_embed="9.9"))
    with pytest.raises(ValueError, match=r"m\.ke was written by kernel_embed 9\.9"):
        ke.load(path)
    rewritten(path, lambda content: content.update(format=99))
    with pytest.raises(ValueError, match=r"m\.ke .*format of another version"):
        ke.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("description.json", "{}")
    with pytest.raises(ValueError, match=r"m\.ke was written by an earlier development version.* Fit and save again"):
        ke.load(path)
    path.write_bytes(b"PK half a file")
    with pytest.raises(ValueError, match=r"m\.ke is not a model file"):
        ke.load(path)
    with pytest.raises(FileNotFoundError, match=r"File not found: .*none\.ke"):
        ke.load(tmp_path / "none.ke")


def test_another_version_of_a_library_is_said(tmp_path):
    path = ke.save({}, tmp_path / "m.ke")
    rewritten(path, lambda content: content["libraries"].update(torch="0.0.1"))
    with pytest.warns(UserWarning, match=r"saved with torch 0\.0\.1"):
        ke.load(path)


def test_other_code_of_the_classes_in_one_version_is_said(tmp_path):
    path, name = ke.save(embedding(), tmp_path / "m.ke"), ke.MulticlassEmbedding.__module__
    rewritten(path, lambda content: content["sources"].update({name: content["sources"][name] + 1}))
    with pytest.warns(UserWarning, match=rf"another state of kernel_embed .* in {name}\."):
        again = ke.load(path)
    assert torch.equal(again.kernel.outputscale, embedding().kernel.outputscale)


@pytest.mark.parametrize("package", ["lightgbm", "catboost"])
def test_models_of_boosting_libraries_are_refused_when_saving(package, tmp_path):
    library = pytest.importorskip(package)
    x, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    settings = (
        {"verbose": -1} if package == "lightgbm" else {"verbose": 0, "iterations": 3, "allow_writing_files": False}
    )
    model = getattr(library, {"lightgbm": "LGBMClassifier", "catboost": "CatBoostClassifier"}[package])(**settings)
    with pytest.raises(ValueError, match=r"[Ss]ave that part with its own library"):
        ke.save({"member": model.fit(x, y)}, tmp_path / "model.ke")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_described_is_named_and_nothing_is_written(tmp_path):
    def inner(x):
        return gpytorch.kernels.RBFKernel()

    with pytest.raises(ValueError, match=r"model\.kernel cannot be saved: .*inner"):
        ke.save(ke.MulticlassEmbeddingClassifier(kernel=inner), tmp_path / "m.ke")
    assert not list(tmp_path.iterdir())
    forest = learners()["random forest"].make().fit(X, Y)
    with pytest.raises(ValueError, match=r"model\S* cannot be saved: .*Tree"):
        ke.save(forest, tmp_path / "m.ke")


# --- the list of names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", names.CLASSES)
def test_every_class_on_the_list_is_defined_there_and_runs_nothing_when_it_is_freed(name):
    found = names.find_class(name)
    assert names.name_of(found) == name
    assert not hasattr(found, "__del__")
    assert not issubclass(found, dict | list | str | bytes)


@pytest.mark.parametrize("name", names.FUNCTIONS)
def test_every_function_on_the_list_has_its_name(name):
    function = names.find_function(name)
    assert names.find_function(names.function_name(function)) is function


def own_classes():
    """Classes of this package that the list names, by where they are defined."""
    found = {}
    for module in pkgutil.walk_packages(ke.__path__, "kernel_embed."):
        own = names.OWN_MODULE.fullmatch(module.name)
        if own and own[1] in names.OWN:
            for name in names.OWN[own[1]].split():
                kind = vars(importlib.import_module(module.name)).get(name)
                if getattr(kind, "__module__", None) == module.name:
                    found[own[1], name] = kind
    return found


def test_every_own_class_on_the_list_exists_once_and_touches_no_files_and_no_processes():
    found = own_classes()
    assert sorted(found) == sorted((part, name) for part, text in names.OWN.items() for name in text.split())
    for kind in found.values():
        assert names.find_class(names.name_of(kind)) is kind
        assert not hasattr(kind, "__del__")
        text = inspect.getsource(kind)
        for word in (" open(", ".open(", "subprocess", "os.system", " eval(", "exec(", "write_whole", "import_module"):
            assert word not in text, (kind, word)


def test_every_public_kernel_objective_and_column_type_is_on_the_list():
    parents = (kernels.Kernel, ke.Objective, ke.tabular.ColumnEncoder)
    public = [getattr(package, name) for package in (ke.kernels, ke.objectives, ke.tabular) for name in package.__all__]
    for kind in public:
        if isinstance(kind, type) and issubclass(kind, parents) and kind not in parents:
            assert names.find_class(names.name_of(kind)) is kind


SAVED_KERNELS = {
    **KERNELS,
    "cosine": kernels.CosineKernel,
    "constant": kernels.ConstantKernel,
    "scale": lambda: kernels.ScaleKernel(kernels.RBFKernel(), outputscale_prior=priors.GammaPrior(2.0, 1.0)),
    "spectral mixture": lambda: kernels.SpectralMixtureKernel(num_mixtures=2, ard_num_dims=2),
    "piecewise polynomial": kernels.PiecewisePolynomialKernel,
    "tied rbf": lambda: TiedRBFKernel([0, 0]),
    "tied matern": lambda: TiedMaternKernel([0, 1], nu=1.5),
    "tied laplace": lambda: TiedLaplaceKernel([0, 1]),
    "delta": DeltaKernel,
    "deep network": lambda: ke.FeatureKernel(
        torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.GELU(), torch.nn.Dropout(0.1))
    ),
}
PRIORS = {
    "gamma": lambda: priors.GammaPrior(2.0, 1.0),
    "normal": lambda: priors.NormalPrior(0.0, 1.0),
    "half normal": lambda: priors.HalfNormalPrior(1.0),
    "log normal": lambda: priors.LogNormalPrior(0.0, 1.0),
    "half Cauchy": lambda: priors.HalfCauchyPrior(1.0),
    "uniform": lambda: priors.UniformPrior(0.0, 2.0),
    "smoothed box": lambda: priors.SmoothedBoxPrior(0.1, 1.0),
    "horseshoe": lambda: priors.HorseshoePrior(0.1),
}
CONSTRAINTS = {
    "positive": constraints.Positive,
    "greater": lambda: constraints.GreaterThan(0.1),
    "less": lambda: constraints.LessThan(2.0),
    "interval": lambda: constraints.Interval(0.1, 2.0),
    "exponential": lambda: constraints.Positive(transform=torch.exp, inv_transform=torch.log),
}


def check(kernel, tmp_path):
    embedding = ke.MulticlassEmbedding(kernel, 2).double().eval()
    again = ke.load(ke.save(embedding, tmp_path / "m.ke"))
    with torch.no_grad():
        expected = embedding.condition(PLANE, HALVES).probabilities(PLANE)
        torch.testing.assert_close(again.condition(PLANE, HALVES).probabilities(PLANE), expected, rtol=0, atol=0)
    assert [name for name, *_ in again.named_priors()] == [name for name, *_ in embedding.named_priors()]
    for (_, module, prior, read, _), (_, old, was, had, _) in zip(
        again.named_priors(), embedding.named_priors(), strict=True
    ):
        assert type(prior) is type(was)
        assert torch.equal(read(module), had(old))
    again.load_state_dict(embedding.state_dict())
    ke.load(ke.save(again, tmp_path / "again.ke"))
    return again


@pytest.mark.parametrize("name", SAVED_KERNELS)
def test_every_kernel_is_saved(name, tmp_path):
    check(SAVED_KERNELS[name](), tmp_path)


@pytest.mark.parametrize("prior", list(PRIORS))
@pytest.mark.parametrize("constraint", list(CONSTRAINTS))
def test_every_prior_and_constraint_is_saved(prior, constraint, tmp_path):
    again = check(
        kernels.RBFKernel(lengthscale_prior=PRIORS[prior](), lengthscale_constraint=CONSTRAINTS[constraint]()), tmp_path
    )
    again.kernel.lengthscale = 0.7
    assert again.kernel.lengthscale.item() == pytest.approx(0.7)


OBJECTIVES = [
    *(ke.EmpiricalRisk(), ke.LeaveOneOutRisk(), ke.ConditionalEvidence(), ke.CalibratedLeaveOneOutRisk()),
    *(ke.CrossValidationRisk(num_folds=3), ke.EmpiricalRisk() + 2.0 * ke.RademacherComplexity("4e/n")),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_an_estimator_with_every_objective_is_saved(objective, tmp_path):
    settings = {"objective": objective, "max_evaluations": 3, "progress": False}
    model = ke.MulticlassEmbeddingClassifier(kernels.RBFKernel(), **settings).fit(PLANE.numpy(), HALVES.numpy())
    again = ke.load(ke.save(model, tmp_path / "m.ke"))
    np.testing.assert_array_equal(again.predict_proba(PLANE.numpy()), model.predict_proba(PLANE.numpy()))
    assert repr(again.objective) == repr(objective)


SAVED = ("one kernel", "evidence", "rademacher 4e/n", "cross validation", "voted kernels")


@pytest.mark.filterwarnings("ignore:The fit is degenerate")  # the labels are random, and the risk may learn nothing
@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_compared_learners_are_saved(name, kernel, tmp_path):
    model = learners(kernel=kernel)[name].make().fit(PLANE.numpy(), HALVES.numpy())
    again = ke.load(ke.save(model, tmp_path / "m.ke"))
    np.testing.assert_allclose(again.predict_proba(PLANE.numpy()), model.predict_proba(PLANE.numpy()), rtol=1e-12)


def test_hooks_and_priors_on_functions_are_not_lost_in_silence(tmp_path):
    net, kernel = torch.nn.Linear(2, 2), kernels.RBFKernel()
    net.register_forward_hook(lambda *_: None)
    kernel.register_prior("squared", priors.GammaPrior(2.0, 1.0), lambda module: module.lengthscale**2)
    for message, unsaved in (
        ("hooks, which cannot be saved", ke.FeatureKernel(net)),
        ("prior squared is on a function of the parameters", kernel),
    ):
        with pytest.raises(ValueError, match=message):
            ke.save(ke.MulticlassEmbedding(unsaved, 2), tmp_path / "m.ke")
