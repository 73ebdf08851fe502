"""Random features, Nyström, conjugate gradients: against the exact embedding, and their reported error."""

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from linear_operator.utils.errors import NanError
from linear_operator.utils.warnings import NumericalWarning
from torch.utils.data import DataLoader, TensorDataset

import kernel_embed as ke
from kernel_embed.kernels.classes import FeatureKernel
from kernel_embed.linalg import whitening
from kernel_embed.scale import (
    ConjugateGradients,
    Nystrom,
    RandomFeatures,
    approximate,
    nystrom_kernel,
    random_feature_kernel,
)

from ..conftest import make_problem, rbf
from ..explicit_kernels import network


def stationary():
    scaled = ScaleKernel(MaternKernel(2.5, active_dims=[0, 2]))
    scaled.outputscale = 2.0
    deep = FeatureKernel(network(p=2), RBFKernel())
    deep.num_features = 2
    kernels = {
        "rbf": rbf(),
        "matern12": MaternKernel(0.5),
        "matern32": MaternKernel(1.5, ard_num_dims=3),
        "scaled, columns": scaled,
        "sum": RBFKernel() + LinearKernel() + ScaleKernel(MaternKernel(1.5)),
        "network": deep,
    }
    return {name: kernel.double() for name, kernel in kernels.items()}


@pytest.mark.parametrize("name", sorted(stationary()))
def test_random_features_approach_the_kernel(name, problem):
    kernel = stationary()[name]
    errors = []
    for num_features in (100, 20_000):
        approximation = random_feature_kernel(kernel, 3, num_features, seed=1)
        errors.append((ke.gram(approximation, problem.x) - ke.gram(kernel, problem.x)).abs().max().item())
    assert errors[1] < 0.06
    assert errors[1] < errors[0]


def test_random_features_are_seeded_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    one, other, third = (random_feature_kernel(rbf(), 3, 10, seed).feature_map.Omega for seed in (1, 1, 2))
    assert torch.equal(one, other)
    assert not torch.equal(one, third)
    assert torch.equal(before, torch.get_rng_state())


def test_nystrom_with_all_points_is_exact(problem):
    kernel = (ScaleKernel(rbf()) + PeriodicKernel()).double()
    approximation = nystrom_kernel(kernel, problem.x)
    torch.testing.assert_close(ke.gram(approximation, problem.x), ke.gram(kernel, problem.x), rtol=1e-6, atol=1e-7)
    twice = nystrom_kernel(kernel, torch.cat([problem.x, problem.x]))  # a singular matrix
    torch.testing.assert_close(ke.gram(twice, problem.x), ke.gram(kernel, problem.x), rtol=1e-6, atol=1e-7)


METHODS = {
    "random features": (RandomFeatures(2000), 0.1),
    "nystrom": (Nystrom(60), 5e-3),
    "conjugate gradients": (ConjugateGradients(1e-9), 1e-6),
}


@pytest.mark.parametrize("name", METHODS)
def test_predictions_approach_the_exact_ones_and_the_error_is_reported(name):
    method, tolerance = METHODS[name]
    p = make_problem(n=400)
    embedding = ke.MulticlassEmbedding(rbf(lengthscale=[1.5, 1.5, 1.5]), p.m, 0.01)
    exact = embedding.condition(p.x, p.y)
    predictor, error = approximate(embedding, p.x, p.y, method=method, probe_size=200)
    with torch.no_grad():
        difference = predictor.decision_probabilities(p.query) - exact.decision_probabilities(p.query)
    assert difference.abs().max() < tolerance
    assert error.regression < tolerance
    assert error.num_rows == 200
    assert (error.kernel == 0) == (name == "conjugate gradients")
    assert error.kernel < tolerance
    assert (error.num_iterations is not None) == (name == "conjugate gradients")


def test_a_worse_approximation_reports_a_larger_error():
    p = make_problem(n=400)
    embedding = ke.MulticlassEmbedding(rbf(), p.m, 0.01)
    _, coarse = approximate(embedding, p.x, p.y, method=Nystrom(5))
    _, fine = approximate(embedding, p.x, p.y, method=Nystrom(100))
    assert coarse.kernel > 3 * fine.kernel
    assert coarse.regression > 3 * fine.regression


def test_inducing_points_and_loaders():
    p = make_problem(n=400)
    embedding = ke.MulticlassEmbedding(rbf(), p.m, 0.01)
    data = DataLoader(TensorDataset(p.x, p.y), 100)
    by_loader, _ = approximate(embedding, data, method=Nystrom(points=p.x[:50]))
    by_tensor, _ = approximate(embedding, p.x, p.y, method=Nystrom(points=p.x[:50]))
    torch.testing.assert_close(by_loader.probabilities(p.query), by_tensor.probabilities(p.query))
    with pytest.raises(TypeError, match="ConjugateGradients needs tensors x and y"):
        approximate(embedding, data, method=ConjugateGradients())


def test_an_unreached_tolerance_is_announced():
    p = make_problem(n=200)
    embedding = ke.MulticlassEmbedding(rbf(), p.m, 1e-6)
    with pytest.warns(NumericalWarning, match=r"Conjugate gradients ended after .* above the tolerance"):
        _, error = approximate(embedding, p.x, p.y, method=ConjugateGradients(1e-12, max_iterations=3, num_points=2))
    assert error.regression > 1e-6


def test_the_embedding_is_not_changed():
    p = make_problem(n=100)
    embedding = ke.MulticlassEmbedding(rbf(), p.m, 0.01)
    kernel, names = embedding.kernel, [name for name, _ in embedding.named_parameters()]
    predictor, _ = approximate(embedding, p.x, p.y, method=RandomFeatures(50))
    assert embedding.kernel is kernel
    assert [name for name, _ in embedding.named_parameters()] == names
    before = predictor.probabilities(p.query)
    embedding.kernel.lengthscale = 0.1
    embedding.regularization = 1.0
    assert torch.equal(predictor.probabilities(p.query), before)


BATCHED = ke.MulticlassEmbedding(RBFKernel(batch_shape=torch.Size([2])), 3)
REJECTED = [
    (
        lambda e, p: random_feature_kernel(PeriodicKernel(), 3, 10),
        "got PeriodicKernel. Nystrom approximates every kernel",
    ),
    (lambda e, p: random_feature_kernel(RBFKernel(), 3, 7), "even number"),
    (lambda e, p: random_feature_kernel(RBFKernel(), True, 8), "Expected d as a whole number, got True"),
    (lambda e, p: whitening(torch.full((2, 2), float("nan"))), "finite"),
    (lambda e, p: approximate(e, p.x, p.y, method="nystrom"), "Expected RandomFeatures"),
    (lambda e, p: approximate(e, p.x, method=Nystrom(5)), "Targets y are missing"),
    (lambda e, p: approximate(BATCHED, p.x, p.y, method=Nystrom(5)), "without batch shape"),
]


@pytest.mark.parametrize(("call", "message"), REJECTED, ids=[message for _, message in REJECTED])
def test_bad_arguments(call, message, problem):
    with pytest.raises((TypeError, ValueError, NanError), match=message):
        call(ke.MulticlassEmbedding(rbf(), problem.m), problem)
