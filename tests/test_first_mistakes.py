"""Mistakes of a first hour with the library: each message says what to do instead."""

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch

import kernel_embed as ke
from kernel_embed import plots
from kernel_embed.lab.compare import Categories
from kernel_embed.tabular import TableEncoder
from kernel_embed.testing import KernelContract


class Constant(gpytorch.kernels.Kernel):
    """A kernel without parameters."""

    def forward(self, x1, x2, diag=False, **params):
        K = torch.ones(x1.shape[-2], x2.shape[-2]).to(x1)
        return K.diagonal() if diag else K


@pytest.fixture
def embedding():
    return ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)


def test_a_number_is_no_rule():
    with pytest.raises(TypeError, match="supremum= of Constant must be a function"):
        ke.register(Constant, supremum=2.0)


def test_text_labels_are_sent_to_the_classifier(embedding):
    x = torch.randn(4, 1, dtype=torch.float64)
    with pytest.raises(TypeError, match="MulticlassEmbeddingClassifier, which takes any labels"):
        ke.fit(embedding, ke.EmpiricalRisk(), x, np.array(["a", "b", "a", "b"]))
    with pytest.raises(TypeError, match=r"Convert it with torch.as_tensor\(y\)"):
        ke.fit(embedding, ke.EmpiricalRisk(), x, np.array([0, 1, 0, 1]))


def test_arguments_of_fit_in_the_wrong_order(embedding):
    with pytest.raises(TypeError, match=r"Write fit\(embedding, objective"):
        ke.fit(ke.EmpiricalRisk(), embedding, torch.randn(4, 1), torch.tensor([0, 1, 0, 1]))


def test_a_contract_of_a_class_in_place_of_a_kernel():
    class OfAClass(KernelContract):
        def make_kernel(self):
            return gpytorch.kernels.RBFKernel

    with pytest.raises(TypeError, match="got the class RBFKernel"):
        OfAClass().test_gram_is_the_kernel_itself()


def test_a_contract_of_a_kernel_without_parameters():
    class OfConstant(KernelContract):
        def make_kernel(self):
            return Constant()

    OfConstant().test_gram_has_the_gradient_of_the_kernel()


def test_posteriors_have_files_of_their_own(embedding, tmp_path):
    x, y = torch.randn(12, 1, dtype=torch.float64), torch.arange(12) % 2
    posterior = ke.sample_posterior(
        embedding.double(), ke.ConditionalEvidence(), x, y, num_samples=4, sampler=ke.Laplace(), seed=0
    )
    with pytest.raises(ValueError, match=r"Use posterior.save\(path\)"):
        ke.save(posterior, tmp_path / "posterior.ke")
    posterior.save(tmp_path / "posterior.npz")
    with pytest.raises(ValueError, match="read by load_posterior"):
        ke.load(tmp_path / "posterior.npz")


def test_one_class_of_your_own(tmp_path):
    path = ke.save(ke.MulticlassEmbedding(Constant(), num_classes=2), tmp_path / "own.ke")
    assert isinstance(ke.load(path, classes=Constant).kernel, Constant)


def test_relevances_of_an_estimator():
    rows = np.random.default_rng(0).normal(size=(24, 2))
    regressor = ke.ConditionalEmbeddingRegressor(max_evaluations=2, progress=False).fit(rows, rows.sum(1))
    with pytest.raises(TypeError, match="feature_relevances_"):
        plots.plot_relevance(regressor)


def test_a_grid_may_be_an_array():
    x, y = torch.randn(20, 1, dtype=torch.float64), 1 + torch.randn(20, 1, dtype=torch.float64)
    witness = ke.two_sample_test(x, y, kernel="median", num_permutations=19, seed=0).witness()
    grid = np.linspace(-1, 1, 7)[:, None]
    drawn = [
        plots.plot_witness(witness, one, ax=plots.free_figure(4, 3).subplots()).lines[0].get_ydata()
        for one in (grid, torch.as_tensor(grid))
    ]
    np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize("form", [TableEncoder(), Categories()], ids=["numbers", "categories"])
def test_dates_come_as_text_from_a_file(form):
    table = pd.DataFrame({"day": pd.date_range("2026-01-01", periods=6), "size": np.arange(6.0)})
    as_read = table.assign(day=table.day.astype(str))
    form.fit(table)
    np.testing.assert_array_equal(np.asarray(form.transform(as_read)), np.asarray(form.transform(table)))
    with pytest.raises(ValueError, match="Column 'day' held dates"):
        form.transform(table.assign(day=list("abcdef")))
