"""Every plot draws on the right axes, shows its data, and leaves no figure open."""

import inspect
import warnings

import matplotlib
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import GammaPrior
from matplotlib import pyplot
from matplotlib.axes import Axes

import kernel_embed as ke
from kernel_embed import plots
from kernel_embed.estimators import FeatureImportances

matplotlib.use("Agg")
PUBLIC = [name for name in plots.__all__ if name.startswith("plot_")]


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def embedding_of(lengthscale=0.7):
    kernel = RBFKernel(lengthscale_prior=GammaPrior(2, 2)).double()
    kernel.lengthscale = lengthscale
    return ke.BayesianMeanEmbedding(kernel)


IMPORTANCES = FeatureImportances(("town", "age"), np.array([0.5, 0.1]), np.array([0.05, 0.02]), "log loss", 80)


@pytest.fixture(scope="module")
def classifier():
    x = normal(20, 2)
    return ke.MulticlassEmbedding(RBFKernel().double(), num_classes=3).condition(x, torch.arange(20) % 3)


@pytest.fixture(scope="module")
def posterior():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ke.posteriors.PosteriorWarning)  # few draws, which are enough for a picture
        steps = {"num_samples": 10, "warmup_steps": 5, "num_chains": 2, "seed": 0}
        return ke.sample_posterior(embedding_of(), ke.EmbeddingEvidence(), normal(15, 1), **steps)


def witness(width):
    x, y = normal(2, 12, width)
    return ke.Witness(embedding_of(), x, y + 1.0)


def axes():
    return plots.free_figure(3, 2).subplots()


def uniform(x):
    return np.full((len(x), 2), 0.5)


@pytest.fixture(scope="module")
def drawings(classifier, posterior):
    """Each public function with something to draw, as a function of the axes."""
    history = [{"start": 0, "value": 3.0 - i, "risk": 2.0 - i, "penalty": 1.0} for i in range(3)]
    places, labels = normal(10, 2).numpy(), np.arange(10) % 2
    grid = np.geomspace(0.1, 10.0, 8)
    calls = {
        "plot_convergence": lambda **k: plots.plot_convergence({"ours": np.array([3.0, 2.0, 1.0])}, **k),
        "plot_decision_map": lambda **k: plots.plot_decision_map(classifier, low=-1.0, high=1.0, **k),
        "plot_density": lambda **k: plots.plot_density(posterior, "kernel.lengthscale", **k),
        "plot_differences": lambda **k: plots.plot_differences(normal(30), normal(30), torch.ones(30), **k),
        "plot_draws": lambda **k: plots.plot_draws(np.exp(places), "lengthscale", **k),
        "plot_embedding": lambda **k: plots.plot_embedding(embedding_of().condition(normal(12, 1)), **k),
        "plot_evidence_curve": lambda **k: plots.plot_evidence_curve(grid, -(np.log(grid) ** 2), maxima=[1.0], **k),
        "plot_importances": lambda **k: plots.plot_importances(IMPORTANCES, **k),
        "plot_learning_curve": lambda **k: plots.plot_learning_curve(history, **k),
        "plot_null": lambda **k: plots.plot_null(normal(50), 2.0, **k),
        "plot_probability_map": lambda **k: plots.plot_probability_map(uniform, places, labels, 2, **k),
        "plot_ranking": lambda **k: plots.plot_ranking(["a", "b"], [0.4, 0.5], [0.01, 0.02], highlight="a", **k),
        "plot_relevance": lambda **k: plots.plot_relevance(torch.tensor([1.0, 4.0]), ["long", "short"], **k),
        "plot_reliability": lambda **k: plots.plot_reliability(np.linspace(0.5, 1.0, 10), labels == 0, **k),
        "plot_traces": lambda **k: plots.plot_traces(posterior, "kernel.lengthscale", **k),
        "plot_witness": lambda **k: plots.plot_witness(witness(1), **k),
    }
    assert sorted(calls) == sorted(PUBLIC), "a picture for each public function"
    return calls


@pytest.mark.parametrize("name", PUBLIC)
def test_one_rule_for_axes(drawings, name):
    """``plot_…(thing, …, *, ax=None) -> Axes``: on the given axes without pyplot, or on one new pyplot figure."""
    signature = inspect.signature(getattr(plots, name))
    ax = signature.parameters["ax"]
    assert ax.kind is inspect.Parameter.KEYWORD_ONLY
    assert ax.default is None
    assert list(signature.parameters)[-1] == "ax"
    assert signature.return_annotation == "Axes"
    before, ax = pyplot.get_fignums(), axes()
    assert drawings[name](ax=ax) is ax
    assert ax.has_data()
    ax.figure.canvas.draw()
    assert pyplot.get_fignums() == before
    ax = drawings[name]()
    assert isinstance(ax, Axes)
    assert ax.has_data()
    (new,) = set(pyplot.get_fignums()) - set(before)
    assert ax.figure is pyplot.figure(new)
    pyplot.close(new)


def test_witness_of_one_two_and_more_columns_and_refusals_open_nothing(posterior):
    assert plots.plot_witness(witness(1), ax=axes()).lines
    assert plots.plot_witness(witness(2), ax=axes()).images
    before = pyplot.get_fignums()
    wide = ke.MulticlassEmbedding(RBFKernel().double(), num_classes=2).condition(normal(6, 3), torch.arange(6) % 2)
    for message, picture, *arguments in (
        ("one or two columns", plots.plot_witness, witness(4)),
        ("two-dimensional inputs and at most 7 classes, not 3 dimensions", plots.plot_decision_map, wide),
        ("The posterior has no parameter", plots.plot_traces, posterior, "lengthscale"),
        ("The posterior has no parameter", plots.plot_density, posterior, "lengthscale"),
    ):
        with pytest.raises(ValueError, match=message):
            picture(*arguments)
    assert pyplot.get_fignums() == before


def test_maps_name_their_classes(classifier):
    def legend(ax):
        return [text.get_text() for text in ax.get_legend().get_texts()]

    m = classifier.embedding.num_classes
    names = [f"kind {number}" for number in range(m)]
    assert legend(plots.plot_decision_map(classifier, class_names=names, ax=axes())) == names
    assert legend(plots.plot_decision_map(classifier, ax=axes()))[0] == "class 0"
    places, labels = np.random.default_rng(0).random((6, 2)), np.arange(6) % 2
    ax = axes()
    assert legend(plots.plot_probability_map(uniform, places, labels, 2, class_names=["no", 1], ax=ax)) == ["no", "1"]
    with pytest.raises(ValueError, match="a name for each of 2 classes, but it has 1"):
        plots.plot_probability_map(uniform, places, labels, 2, class_names=["no"], ax=ax)


def test_contents_of_plots(drawings):
    assert len(drawings["plot_traces"](ax=axes()).lines) == 2, "one for each chain"
    assert len(drawings["plot_density"](ax=axes()).lines) == 3, "and one for all chains"
    ax = drawings["plot_importances"](ax=axes())
    assert [bar.get_width() for bar in ax.patches] == [0.1, 0.5]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["age", "town"]
    ax = drawings["plot_relevance"](ax=axes())
    assert [bar.get_width() for bar in ax.patches] == [0.25, 1.0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["short", "long"]
    names = [line.get_label() for line in drawings["plot_learning_curve"](ax=axes()).lines]
    assert names == ["value", "risk", "penalty"]
