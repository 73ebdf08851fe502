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


def contract(kernel):
    suite = KernelContract()
    suite.make_kernel = lambda: kernel
    return suite


def test_a_contract_of_a_kernel_without_parameters():
    contract(Constant()).test_gram_has_the_gradient_of_the_kernel()


def regressor():
    rows = np.random.default_rng(0).normal(size=(24, 2))
    return ke.ConditionalEmbeddingRegressor(max_evaluations=2, progress=False).fit(rows, rows.sum(1))


X, RISK = torch.randn(4, 1, dtype=torch.float64), ke.EmpiricalRisk()
MISTAKES = [
    (lambda e: ke.register(Constant, supremum=2.0), "supremum= of Constant must be a function"),
    (lambda e: ke.fit(e, RISK, X, np.array([*"abab"])), "MulticlassEmbeddingClassifier, which takes any labels"),
    (lambda e: ke.fit(e, RISK, X, np.array([0, 1, 0, 1])), r"Convert it with torch.as_tensor\(y\)"),
    (lambda e: ke.fit(RISK, e, X, torch.tensor([0, 1, 0, 1])), r"Write fit\(embedding, objective"),
    (lambda e: contract(gpytorch.kernels.RBFKernel).test_gram_is_the_kernel_itself(), "got the class RBFKernel"),
    (lambda e: plots.plot_relevance(regressor()), "permutation_importance"),
    (lambda e: plots.plot_importances(regressor()), "permutation_importance"),
]


@pytest.mark.parametrize(("call", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_the_message_says_what_to_do(call, message, embedding):
    with pytest.raises(TypeError, match=message):
        call(embedding)


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


def test_calling_an_embedding_says_what_to_call_instead():
    embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
    with pytest.raises(TypeError, match=r"not a function of x\. .*embedding\.condition\(x, y\)\.probabilities"):
        embedding(torch.rand(3, 1))
