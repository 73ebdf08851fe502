"""Systems, embeddings, objectives, optimizers and samplers of the library through the suites it ships for others."""

import dataclasses

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel

import kernel_embed as ke
from kernel_embed.kernels import FeatureKernel
from kernel_embed.learning import LBFGS, Adam, TorchOptimizer
from kernel_embed.linalg import DenseSystem, FeatureSystem, IterativeSystem
from kernel_embed.posteriors import NUTS, SMC, SVI, Laplace
from kernel_embed.testing import (
    EmbeddingContract,
    ObjectiveContract,
    OptimizerContract,
    SamplerContract,
    SystemContract,
)

from ..objectives import OBJECTIVES
from . import checks, suite

# --- systems ----------------------------------------------------------------------------------------------------------


def matrices():
    generator = torch.Generator().manual_seed(0)
    Z = torch.randn(11, 3, generator=generator, dtype=torch.float64)
    ridge = torch.tensor(0.7, dtype=torch.float64)
    weights = 0.5 + torch.rand(11, generator=generator, dtype=torch.float64)
    return Z, ridge, weights


def system(name):
    Z, ridge, weights = matrices()
    K, w = Z @ Z.T, weights if "weighted" in name else torch.ones_like(weights)
    A = K + torch.diag(ridge / w)
    given = weights if "weighted" in name else None
    if name.startswith("dense"):
        return DenseSystem(K, ridge, given), K, A
    if name.startswith("features"):
        return FeatureSystem(Z, ridge, given), K, A
    near = DenseSystem(K + 0.1 * torch.eye(11, dtype=torch.float64), ridge)
    return IterativeSystem(lambda V: K @ V, K.diagonal(), ridge, near, tolerance=1e-11), K, A


@pytest.mark.parametrize("check", checks(SystemContract))
@pytest.mark.parametrize("name", ["dense", "dense, weighted", "features", "features, weighted", "iterative"])
def test_systems(name, check):
    contract = suite(SystemContract, make_system=lambda: system(name), is_factorized=name != "iterative")
    getattr(contract, check)()


@pytest.mark.parametrize("kind", ["dense", "features"])
def test_gradients_of_weighted_systems(kind):
    Z, ridge, weights = matrices()
    inputs = tuple(t.clone().requires_grad_() for t in (Z[:5], ridge, weights[:5]))
    Y = torch.randn(5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def make(Z, ridge, weights):
        return DenseSystem(Z @ Z.mT, ridge, weights) if kind == "dense" else FeatureSystem(Z, ridge, weights)

    for ask in (
        lambda s: s.regress(Y),
        lambda s: s.inverse_diagonal(),
        lambda s: s.log_determinant(),
        lambda s: s.negative_log_densities(Y),
    ):
        assert torch.autograd.gradcheck(lambda *given, ask=ask: ask(make(*given)), inputs)


# --- embeddings -------------------------------------------------------------------------------------------------------

EMBEDDINGS = {
    "multiclass": lambda: ke.MulticlassEmbedding(MaternKernel(1.5, ard_num_dims=2), 2),
    "multiclass, features": lambda: ke.MulticlassEmbedding(LinearKernel(), 2),
    "multiclass, network": lambda: ke.MulticlassEmbedding(FeatureKernel(torch.nn.Linear(2, 3)), 2),
    "conditional": lambda: ke.ConditionalEmbedding(ScaleKernel(RBFKernel())),
}


@pytest.mark.parametrize("check", checks(EmbeddingContract))
@pytest.mark.parametrize("name", EMBEDDINGS)
def test_embeddings(name, check):
    getattr(suite(EmbeddingContract, make_embedding=lambda: EMBEDDINGS[name]().double()), check)()


# --- objectives -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", checks(ObjectiveContract))
@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives(name, check):
    getattr(suite(ObjectiveContract, make_objective=OBJECTIVES[name]), check)()


class TestEmbeddingEvidence(ObjectiveContract):
    def make_objective(self):
        return ke.EmbeddingEvidence()

    def make_embedding(self):
        return ke.BayesianMeanEmbedding(RBFKernel(ard_num_dims=2), learn_noise=True).double()

    def make_data(self):
        return torch.randn(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64), None


# --- optimizers and samplers ------------------------------------------------------------------------------------------

OPTIMIZERS = {
    "lbfgs": lambda: LBFGS(max_evaluations=40),
    "adam": lambda: Adam(num_epochs=20),
    "sgd": lambda: TorchOptimizer(lambda p: torch.optim.SGD(p, lr=0.5), num_epochs=20),
}


@pytest.mark.parametrize("check", checks(OptimizerContract))
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name, check):
    getattr(suite(OptimizerContract, make_optimizer=OPTIMIZERS[name]), check)()


SAMPLERS = {
    kind.name: suite(SamplerContract, make_sampler=lambda kind=kind: kind(), num_samples=120, warmup_steps=60)
    for kind in (NUTS, SMC, SVI, Laplace)
}


@pytest.mark.parametrize("check", checks(SamplerContract))
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(name, check):
    getattr(SAMPLERS[name], check)()


VALUES = [
    *(LBFGS(max_evaluations=9), Adam(num_epochs=9), TorchOptimizer(torch.optim.SGD, 9)),
    *(NUTS(max_tree_depth=4), SMC(num_moves=3), SVI(num_steps=9), Laplace(max_evaluations=7)),
    *(ke.voting.ColumnGeneration(7), ke.voting.CoordinateDescent(7)),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_optimizers_samplers_and_solvers_are_values(value):
    """Two of the same settings are one, and settings stay."""
    field = next(
        field.name for field in dataclasses.fields(value) if field.type == "int" and getattr(value, field.name)
    )
    assert value == dataclasses.replace(value)
    assert hash(value) == hash(dataclasses.replace(value))
    assert value != dataclasses.replace(value, **{field: 8})
    assert f"{field}={getattr(value, field)}" in repr(value)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, field, 8)


def test_a_suite_says_what_is_missing():
    with pytest.raises(TypeError, match=r"abstract.*make_objective"):
        ObjectiveContract()
