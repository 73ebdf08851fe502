"""The list of names: everything on it is defined where it says, and everything that is public can be saved."""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest
import torch
from gpytorch import constraints, kernels, priors

import kernel_embed as ke
from kernel_embed.archive import names
from kernel_embed.kernels import DeltaKernel
from kernel_embed.lab.compare.learners import learners
from kernel_embed.tabular import TiedLaplaceKernel, TiedMaternKernel, TiedRBFKernel

from ..testing.test_kernels import KERNELS

X = torch.linspace(0.1, 1.0, 40, dtype=torch.float64).reshape(20, 2)
Y = torch.arange(20) % 2


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
        expected = embedding.condition(X, Y).probabilities(X)
        torch.testing.assert_close(again.condition(X, Y).probabilities(X), expected, rtol=0, atol=0)
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
    model = ke.MulticlassEmbeddingClassifier(kernels.RBFKernel(), **settings).fit(X.numpy(), Y.numpy())
    again = ke.load(ke.save(model, tmp_path / "m.ke"))
    np.testing.assert_array_equal(again.predict_proba(X.numpy()), model.predict_proba(X.numpy()))
    assert repr(again.objective) == repr(objective)


@pytest.mark.parametrize("kind", [ke.MeanEmbedding, ke.BayesianMeanEmbedding, ke.embeddings.ShrinkageMeanEmbedding])
def test_embeddings_of_distributions_are_saved(kind, tmp_path):
    conditioned = kind(kernels.RBFKernel()).double().condition(X)
    one, again = (
        getattr(each, "mean", each)(X) for each in (conditioned, ke.load(ke.save(conditioned, tmp_path / "m")))
    )
    torch.testing.assert_close(again, one)


@pytest.mark.parametrize("how", [ke.Nystrom(8), ke.RandomFeatures(16)], ids=repr)
def test_approximations_are_saved(how, tmp_path):
    embedding = ke.MulticlassEmbedding(kernels.RBFKernel(ard_num_dims=2), 2).double()
    answers, _ = ke.approximate(embedding, X, Y, method=how)
    again = ke.load(ke.save(answers, tmp_path / "m.ke"))
    torch.testing.assert_close(again.probabilities(X), answers.probabilities(X))


SAVED = ("one kernel", "evidence", "rademacher 4e/n", "cross validation", "voted kernels")


@pytest.mark.filterwarnings("ignore:The fit is degenerate")  # the labels are random, and the risk may learn nothing
@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("kernel", ["rbf", "matern52"])
def test_compared_learners_are_saved(name, kernel, tmp_path):
    model = learners(kernel=kernel)[name].make().fit(X.numpy(), Y.numpy())
    again = ke.load(ke.save(model, tmp_path / "m.ke"))
    np.testing.assert_allclose(again.predict_proba(X.numpy()), model.predict_proba(X.numpy()), rtol=1e-12)


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
