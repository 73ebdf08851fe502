"""Random features, Nyström, conjugate gradients: against the exact embedding, and their reported error."""

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RFFKernel, ScaleKernel
from linear_operator.utils.errors import NanError
from linear_operator.utils.warnings import NumericalWarning
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import kernel_embed as ke
from kernel_embed.kernels.classes import FeatureKernel
from kernel_embed.linalg import whitening
from kernel_embed.objectives import rademacher_complexity
from kernel_embed.scale import (
    ConjugateGradients,
    FeatureStatistics,
    Nystrom,
    RandomFeatures,
    accumulate,
    approximate,
    compress,
    nystrom_kernel,
    random_feature_kernel,
)

from ..conftest import make_problem, rbf
from ..explicit_kernels import explicit_kernels, network


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


# --- compression ------------------------------------------------------------------------------------------------------


@pytest.fixture
def conditioned():
    p = make_problem(n=120)
    return ke.MulticlassEmbedding(rbf(), p.m, 0.001).condition(p.x, p.y)


@pytest.mark.parametrize("choice", ["greedy", "herding"])
def test_the_compressed_function_is_the_projection(conditioned, choice):
    few, report = compress(conditioned, 15, choice)
    S = few.points
    K_SS = ke.gram(conditioned.embedding.kernel, S)
    B = torch.linalg.solve(K_SS, conditioned.decision_probabilities(S))
    torch.testing.assert_close(few.coefficients, B, rtol=1e-5, atol=1e-6)
    V, K = conditioned.V, conditioned.K
    cross = ke.gram(conditioned.embedding.kernel, conditioned.x, S)
    squared = (V * (K @ V)).sum() - 2 * (V * (cross @ B)).sum() + (B * (K_SS @ B)).sum()
    assert report.relative_norm == pytest.approx((squared / conditioned.squared_norm).sqrt().item(), rel=1e-5)
    difference = few.decision_probabilities(conditioned.x) - conditioned.P
    assert report.largest_difference == pytest.approx(difference.abs().max().item(), rel=1e-9)


def test_greedy_is_nearer_than_herding_and_both_approach(conditioned):
    errors = {c: [compress(conditioned, s, c)[1].relative_norm for s in (5, 20, 60)] for c in ("greedy", "herding")}
    for error in errors.values():
        assert error[0] > error[1] > error[2]
    assert errors["greedy"][1] < errors["herding"][1]
    assert errors["greedy"][2] < 0.2
    few, report = compress(conditioned, 1)
    best = (conditioned.P.square().sum(-1) / conditioned.K.diagonal()).argmax()
    assert torch.equal(few.points[0], conditioned.x[best])  # the best single step
    assert report.num_points == 1


def test_accuracy_is_reported_on_request_and_for_classes_only(conditioned):
    other = make_problem(n=50, seed=0)
    few, report = compress(conditioned, 60, x=other.x, y=other.y)
    assert report.accuracy == (conditioned.predict(other.x) == other.y).double().mean().item()
    assert report.compressed_accuracy == (few.predict(other.x) == other.y).double().mean().item()
    assert report.accuracy_loss == report.accuracy - report.compressed_accuracy
    assert abs(compress(conditioned, 60)[1].accuracy_loss) < 0.1
    p = make_problem(n=60)
    numbers = ke.ConditionalEmbedding(rbf(), 0.001).condition(p.x, p.x.sin())
    few, report = compress(numbers, 40)
    assert report.accuracy is report.accuracy_loss is None
    assert (few.mean(p.x) - numbers.P).abs().max() < 0.1


def test_four_features_need_no_more_than_four_points():
    p = make_problem(n=60)
    conditioned = ke.MulticlassEmbedding(FeatureKernel(network()), p.m, 0.001).condition(p.x, p.y)
    few, report = compress(conditioned, 40)
    assert report.num_points <= 4
    torch.testing.assert_close(
        few.decision_probabilities(p.query), conditioned.decision_probabilities(p.query), rtol=1e-6, atol=1e-6
    )
    assert report.relative_norm < 1e-6


def test_predictions_stay_when_the_kernel_learns_on(conditioned):
    few, _ = compress(conditioned, 10)
    before = few.probabilities(conditioned.x[:5]).detach()
    conditioned.embedding.kernel.lengthscale = 0.1
    assert torch.equal(few.probabilities(conditioned.x[:5]), before)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: compress(c, 0), "Expected num_points from 1 to the 120 rows"),
        (lambda c: compress(c, 121), "Expected num_points from 1 to the 120 rows"),
        (lambda c: compress(c, 3, "random"), "Expected choice"),
        (lambda c: compress(c, 3, x=c.x), "pass both x and y"),
        (lambda c: compress(batch_of_two().condition(c.x, c.y), 3), "without batch shape"),
    ],
)
def test_bad_arguments_of_compression(call, message, conditioned):
    with pytest.raises(ValueError, match=message):
        call(conditioned)


def batch_of_two():
    return ke.MulticlassEmbedding(RBFKernel(batch_shape=torch.Size([2])).double(), 3)


# --- sufficient statistics --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(explicit_kernels()))
@pytest.mark.parametrize("batch_size", [1, 7, 60])
def test_predictions_are_those_of_condition(name, batch_size):
    p = make_problem(n=60)
    embedding = ke.MulticlassEmbedding(explicit_kernels()[name], p.m, 0.003)
    exact = embedding.condition(p.x, p.y)
    predictor = accumulate(embedding, DataLoader(TensorDataset(p.x, p.y), batch_size)).condition()
    close = {"rtol": 1e-8, "atol": 1e-8}
    for method in ("decision_probabilities", "probabilities", "entropy"):
        torch.testing.assert_close(getattr(predictor, method)(p.query), getattr(exact, method)(p.query), **close)
    assert torch.equal(predictor.predict(p.query), exact.predict(p.query))
    values = torch.arange(3.0, dtype=torch.float64)
    torch.testing.assert_close(predictor.expectation(values, p.query), exact.expectation(values, p.query), **close)
    torch.testing.assert_close(rademacher_complexity(predictor), rademacher_complexity(exact), **close)
    assert predictor.num_data == 60


def test_blocks_and_sums_of_parts():
    p = make_problem(n=900)
    embedding = ke.MulticlassEmbedding(FeatureKernel(network()), p.m)
    whole = accumulate(embedding, p.x, p.y)
    parts = accumulate(embedding, p.x[:300], p.y[:300]) + accumulate(embedding, p.x[300:], p.y[300:])
    both = FeatureStatistics(embedding) + whole  # an empty part
    for other in (parts, both):
        torch.testing.assert_close(other.G, whole.G)
        torch.testing.assert_close(other.C, whole.C)
        assert (other.num_data, other.largest_diagonal) == (900, whole.largest_diagonal)
    torch.testing.assert_close(parts.condition().predict(p.query), whole.condition().predict(p.query))


def test_sums_are_in_float64():
    x = torch.full((200_000, 1), 0.1)
    embedding = ke.MulticlassEmbedding(FeatureKernel(nn.Identity()), 2)
    statistics = accumulate(embedding, DataLoader(TensorDataset(x, torch.zeros(200_000)), 1000))
    assert statistics.G.dtype == torch.float64
    assert statistics.G.item() == pytest.approx(2000.0, rel=1e-4)
    assert statistics.condition().decision_probabilities(x[:3]).dtype == torch.float32


def test_the_kernel_stays_what_it_was_at_the_first_row(problem):
    embedding = ke.MulticlassEmbedding(LinearKernel().double(), problem.m)
    statistics = FeatureStatistics(embedding).update(problem.x[:10], problem.y[:10])
    expected = accumulate(embedding, problem.x, problem.y)
    embedding.kernel.variance = 7.0
    torch.testing.assert_close(statistics.update(problem.x[10:], problem.y[10:]).G, expected.G)


def network_embedding():
    return ke.MulticlassEmbedding(FeatureKernel(network()), 3)


RFF, BATCHED_LINEAR = RFFKernel(9, num_dims=3).double(), LinearKernel(batch_shape=torch.Size([2]))
REJECTED_ROWS = [
    (lambda e, p: FeatureStatistics(ke.MulticlassEmbedding(RBFKernel(), 2)), r"got RBFKernel. Approximate it"),
    (lambda e, p: FeatureStatistics(ke.MulticlassEmbedding(BATCHED_LINEAR, 2)), "without batch shape"),
    (lambda e, p: FeatureStatistics(e).condition(), r"There are no rows yet. Call update"),
    (lambda e, p: accumulate(e, p.x), "Targets y are missing"),
    (lambda e, p: accumulate(e, p.x, p.y + 1), "Expected class numbers from 0 to 2"),
    (lambda e, p: accumulate(e, DataLoader(p.x, 4)), "yields only x"),
    (
        lambda e, p: accumulate(e, p.x, p.y) + accumulate(ke.MulticlassEmbedding(RFF, 3), p.x, p.y),
        "of 4 .*, got 18 and 3",
    ),
]


@pytest.mark.parametrize(("call", "message"), REJECTED_ROWS, ids=[message for _, message in REJECTED_ROWS])
def test_bad_rows(call, message, problem):
    with pytest.raises((TypeError, ValueError), match=message):
        call(network_embedding(), problem)


def test_features_that_change_or_are_not_finite(problem):
    class Broken(nn.Module):
        def forward(self, x):
            return x * float("nan") if len(x) == 4 else x[:, : 1 + len(x) % 2]

    broken = ke.MulticlassEmbedding(FeatureKernel(Broken()), problem.m)
    with pytest.raises(NanError, match=r"Expected finite features, got NaN or infinite ones among rows 0 to 3"):
        accumulate(broken, problem.x[:4], problem.y[:4])
    changing = FeatureStatistics(broken).update(problem.x[:5], problem.y[:5])
    with pytest.raises(ValueError, match=r"returned 1 features, but 2 for the training data"):
        changing.update(problem.x[:6], problem.y[:6])
    assert changing.num_data == 5


@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_values_at_rows_that_were_seen(weighted):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(40, 2, dtype=torch.float64, generator=generator)
    y = (x[:, 0] > 0).long()
    w = torch.randint(1, 4, (40,), generator=generator).double() if weighted else None
    embedding = ke.MulticlassEmbedding(RFFKernel(6, num_dims=2), 2, 0.01).double()
    predictor = FeatureStatistics(embedding).update(x, y, w).condition()
    expected = embedding.condition(x, y, w).leave_one_out()
    values = predictor.leave_one_out_at(x[5:20], y[5:20], None if w is None else w[5:20])
    torch.testing.assert_close(values, expected[5:20], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_half_of_the_sums_stand_for_the_whole(dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 450, generator=generator, dtype=torch.float64).to(dtype)  # more features than one block holds
    y, weights = torch.randn(300, 2, generator=generator).to(dtype), torch.rand(300, generator=generator).to(dtype)
    embedding = ke.ConditionalEmbedding(FeatureKernel(nn.Identity())).to(dtype)
    statistics = FeatureStatistics(embedding).update(x[:100], y[:100], weights[:100])
    statistics.update(x[100:], y[100:], weights[100:])
    Z, W = x.double(), weights.double().unsqueeze(-1)
    close = {"rtol": 1e-10, "atol": 1e-10} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-3}
    torch.testing.assert_close(statistics.G, Z.mT @ (W * Z), **close)
    torch.testing.assert_close(statistics.C, Z.mT @ (W * y.double()), **close)
    x[290, 3] = 1e200 if dtype == torch.float64 else 1e30  # finite, but its square is not
    with pytest.raises(NanError, match="Expected finite features"):
        statistics.update(x, y, weights)
    torch.testing.assert_close(statistics.G, statistics.G.mT, **close)  # both halves, up to the row that failed
