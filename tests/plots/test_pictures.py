"""Every picture is drawn where it is told to be, shows what it is given, and leaves no figure behind."""

from __future__ import annotations

import inspect
import subprocess
import sys
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

matplotlib.use("Agg")
PUBLIC = [name for name in plots.__all__ if name.startswith("plot_")]


def normal(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def embedding_of(lengthscale=0.7):
    kernel = RBFKernel(lengthscale_prior=GammaPrior(2, 2)).double()
    kernel.lengthscale = lengthscale
    return ke.BayesianMeanEmbedding(kernel)


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
        "plot_learning_curve": lambda **k: plots.plot_learning_curve(history, **k),
        "plot_null": lambda **k: plots.plot_null(normal(50), 2.0, **k),
        "plot_probability_map": lambda **k: plots.plot_probability_map(uniform, places, labels, 2, **k),
        "plot_ranking": lambda **k: plots.plot_ranking(["a", "b"], [0.4, 0.5], [0.01, 0.02], chosen="a", **k),
        "plot_ratios": lambda **k: plots.plot_ratios({"theirs": 2.0, "unknown": float("nan")}, **k),
        "plot_relevance": lambda **k: plots.plot_relevance(torch.tensor([1.0, 4.0]), ["long", "short"], **k),
        "plot_reliability": lambda **k: plots.plot_reliability(np.linspace(0.5, 1.0, 10), labels == 0, **k),
        "plot_seconds": lambda **k: plots.plot_seconds({"ours": ([10, 100], [0.1, 1.0])}, **k),
        "plot_traces": lambda **k: plots.plot_traces(posterior, "kernel.lengthscale", **k),
        "plot_witness": lambda **k: plots.plot_witness(witness(1), **k),
    }
    assert sorted(calls) == sorted(PUBLIC), "a picture for each public function"
    return calls


@pytest.mark.parametrize("name", PUBLIC)
def test_given_axes_are_drawn_on_and_pyplot_is_left_alone(drawings, name):
    before = pyplot.get_fignums()
    ax = plots.free_figure(3, 2).subplots()
    assert drawings[name](ax=ax) is ax
    assert ax.has_data()
    ax.figure.canvas.draw()
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize("name", PUBLIC)
def test_without_axes_a_pyplot_figure_is_made(drawings, name):
    before = pyplot.get_fignums()
    ax = drawings[name]()
    assert isinstance(ax, Axes)
    assert ax.has_data()
    (new,) = set(pyplot.get_fignums()) - set(before)
    assert ax.figure is pyplot.figure(new)
    pyplot.close(new)


@pytest.mark.parametrize("name", PUBLIC)
def test_one_convention(name):
    """``plot_…(thing, …, *, ax=None) -> Axes``."""
    signature = inspect.signature(getattr(plots, name))
    ax = signature.parameters["ax"]
    assert ax.kind is inspect.Parameter.KEYWORD_ONLY
    assert ax.default is None
    assert list(signature.parameters)[-1] == "ax"
    assert signature.return_annotation == "Axes"


def test_matplotlib_is_loaded_by_the_first_picture_alone():
    code = "import sys, kernel_embed, kernel_embed.plots; print([m for m in sys.modules if m == 'matplotlib'])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_witness_of_one_two_and_more_columns():
    ax = plots.free_figure(3, 2).subplots()
    assert plots.plot_witness(witness(1), ax=ax).lines
    ax = plots.free_figure(3, 2).subplots()
    assert plots.plot_witness(witness(2), ax=ax).images
    before = pyplot.get_fignums()
    with pytest.raises(ValueError, match="one or two columns"):
        plots.plot_witness(witness(4))
    assert pyplot.get_fignums() == before, "what cannot be drawn opens nothing"


def test_refusals_open_nothing(classifier, posterior):
    before = pyplot.get_fignums()
    wide = ke.MulticlassEmbedding(RBFKernel().double(), num_classes=2).condition(normal(6, 3), torch.arange(6) % 2)
    with pytest.raises(ValueError, match="two-dimensional inputs and at most 7 classes, not 3 dimensions"):
        plots.plot_decision_map(wide)
    for picture in (plots.plot_traces, plots.plot_density):
        with pytest.raises(ValueError, match="The posterior has no parameter"):
            picture(posterior, "lengthscale")
    assert pyplot.get_fignums() == before


def test_maps_name_their_classes(classifier):
    def legend(ax):
        return [text.get_text() for text in ax.get_legend().get_texts()]

    def half(points):
        return np.full((len(points), 2), 0.5)

    m = classifier.embedding.num_classes
    names = [f"kind {number}" for number in range(m)]
    ax = plots.free_figure(3, 2).subplots()
    assert legend(plots.plot_decision_map(classifier, class_names=names, ax=ax)) == names
    assert legend(plots.plot_decision_map(classifier, ax=plots.free_figure(3, 2).subplots()))[0] == "class 0"
    places, labels = np.random.default_rng(0).random((6, 2)), np.arange(6) % 2
    ax = plots.free_figure(3, 2).subplots()
    assert legend(plots.plot_probability_map(half, places, labels, 2, class_names=["no", 1], ax=ax)) == ["no", "1"]
    with pytest.raises(ValueError, match="a name for each of 2 classes, but it has 1"):
        plots.plot_probability_map(half, places, labels, 2, class_names=["no"], ax=ax)


def test_what_the_pictures_say(drawings, posterior):
    ax = plots.free_figure(3, 2).subplots()
    assert len(drawings["plot_traces"](ax=ax).lines) == 2, "one for each chain"
    ax = plots.free_figure(3, 2).subplots()
    assert len(drawings["plot_density"](ax=ax).lines) == 3, "and one for all together"
    ax = plots.free_figure(3, 2).subplots()
    drawings["plot_relevance"](ax=ax)
    assert [bar.get_width() for bar in ax.patches] == [0.25, 1.0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["short", "long"]
    ax = plots.free_figure(3, 2).subplots()
    assert [line.get_label() for line in drawings["plot_learning_curve"](ax=ax).lines] == ["value", "risk", "penalty"]
    ax = plots.free_figure(3, 2).subplots()
    assert len(drawings["plot_ratios"](ax=ax).patches) == 1, "what is not finite is left out"
