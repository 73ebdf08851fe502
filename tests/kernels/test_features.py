"""Features read off a kernel: K = ZZᵀ, and every answer that of the implicit form."""

import copy

import gpytorch
import pytest
import torch
from gpytorch.kernels import LinearKernel, PolynomialKernel, RBFKernel

import kernel_embed as ke
from kernel_embed.embeddings import representation
from kernel_embed.kernels import explicit_features, has_explicit_features
from kernel_embed.kernels.classes import FeatureKernel
from kernel_embed.linalg import DenseSystem, FeatureSystem

from ..conftest import make_problem
from ..embeddings.test_conditional import predictions
from ..explicit_kernels import Implicit, explicit_kernels, network
from ..objectives import OBJECTIVES

NAMES = sorted(explicit_kernels())


@pytest.mark.parametrize("name", NAMES)
def test_features_multiply_to_the_gram_matrix(name, problem):
    kernel = explicit_kernels()[name]
    Z = explicit_features(kernel, problem.x)
    torch.testing.assert_close(Z @ Z.mT, kernel(problem.x).to_dense(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(Z @ Z.mT, ke.gram(kernel, problem.x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("batch", [(2,), (3, 2)])
def test_features_carry_the_batch_of_the_kernel(batch, problem):
    kernel = LinearKernel(batch_shape=torch.Size(batch)) + PolynomialKernel(2, batch_shape=torch.Size(batch))
    kernel = (kernel + gpytorch.kernels.ConstantKernel(batch_shape=torch.Size(batch))).double()
    kernel.initialize(**{"kernels.0.raw_variance": torch.randn(*batch, 1, 1, dtype=torch.float64)})
    Z = explicit_features(kernel, problem.x)
    assert Z.shape[:-1] == (*batch, 24)
    torch.testing.assert_close(Z @ Z.mT, kernel(problem.x).to_dense(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "kernel",
    [
        RBFKernel(),
        RBFKernel() + LinearKernel(),
        LinearKernel() * RBFKernel(),
        FeatureKernel(network(), RBFKernel()),
        Implicit(LinearKernel()),
        PolynomialKernel(0.5),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_kernels_without_finite_features(kernel, problem):
    assert not has_explicit_features(kernel)
    assert explicit_features(kernel, problem.x) is None


def test_features_that_would_be_too_many_are_not_formed(problem):
    assert explicit_features(PolynomialKernel(3).double(), problem.x, limit=19) is None
    assert explicit_features(PolynomialKernel(3).double(), problem.x, limit=20).shape[-1] == 20
    product = (LinearKernel() * LinearKernel()).double()
    assert explicit_features(product, problem.x, limit=8) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_system_is_chosen_by_structure_and_size(name, problem):
    kernel = explicit_kernels()[name]
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    conditioned = embedding.condition(problem.x, problem.y)
    assert isinstance(conditioned.system, FeatureSystem)
    assert "K" not in vars(conditioned)
    few = embedding.condition(problem.x[:2], problem.y[:2])  # p > n
    assert isinstance(few.system, DenseSystem) == (conditioned.system.num_features >= 2)


@pytest.mark.parametrize("rows", [24, 3])
@pytest.mark.parametrize("name", NAMES)
def test_predictions_equal_the_implicit_form(name, rows, problem):
    kernel, x, y, query = explicit_kernels()[name], problem.x[:rows], problem.y[:rows], problem.query
    explicit = ke.MulticlassEmbedding(kernel, problem.m, 0.003).condition(x, y)
    implicit = ke.MulticlassEmbedding(Implicit(kernel), problem.m, 0.003).condition(x, y)
    assert isinstance(implicit.system, DenseSystem)
    values = [
        predictions(c, query)
        | {
            "P": c.P,
            "squared norm": c.squared_norm,
            "cross": c.cross_gram(query),
            "function": c.expectation(lambda y: y.double() ** 2, query),
            "at labels": c.expectation(torch.linspace(0, 1, rows, dtype=torch.float64), query),
            "determinant": c.system.log_determinant(),
            "restricted": c.restricted(torch.arange(0, rows, 2)).P,
        }
        for c in (explicit, implicit)
    ]
    torch.testing.assert_close(*values, rtol=1e-8, atol=1e-8)
    assert torch.equal(explicit.predict(query), implicit.predict(query))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", NAMES)
def test_objectives_and_gradients_equal_the_implicit_form(name, objective, problem):
    kernel = explicit_kernels()[name]
    kernel_twin = copy.deepcopy(kernel)
    explicit = ke.MulticlassEmbedding(kernel, problem.m, 0.01)
    implicit = ke.MulticlassEmbedding(Implicit(kernel_twin), problem.m, 0.01)
    values = []
    for embedding in (explicit, implicit):
        value = OBJECTIVES[objective]()(embedding, problem.x, problem.y)
        value.backward()
        values.append(value.detach())
    torch.testing.assert_close(values[0], values[1], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(explicit.raw_regularization.grad, implicit.raw_regularization.grad, rtol=1e-7, atol=1e-8)
    for one, other in zip(kernel.parameters(), kernel_twin.parameters(), strict=True):
        gradients = (torch.zeros_like(p) if p.grad is None else p.grad for p in (one, other))
        torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-8)


def test_no_square_matrix_is_formed():
    """2·10⁵ rows: K would take 320 GB."""
    p = make_problem(n=200_000, d=3, m=3)
    embedding = ke.MulticlassEmbedding(FeatureKernel(network()), p.m, 1e-3)
    objective = ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n") + ke.BatchValidationRisk(0.2)
    objective(embedding, p.x, p.y).backward()
    assert all(torch.isfinite(w.grad).all() for w in embedding.parameters())
    with torch.no_grad():
        conditioned = embedding.condition(p.x, p.y)
        assert conditioned.predict(p.x).shape == (200_000,)
        part = conditioned.restricted(torch.arange(0, 200_000, 2))
        assert isinstance(part.system, FeatureSystem)


def test_blocks_of_rows_give_the_same_answer(problem, monkeypatch):
    embedding = ke.MulticlassEmbedding(FeatureKernel(network()), problem.m)
    conditioned = embedding.condition(problem.x, problem.y)
    whole = conditioned.decision_probabilities(problem.query)
    monkeypatch.setattr(representation, "FEATURE_NUMBERS", 12)
    torch.testing.assert_close(embedding.condition(problem.x, problem.y).decision_probabilities(problem.query), whole)
