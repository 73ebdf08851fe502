"""The leave-one-out score: against n refits, against CRPS by integration, energy and Brier scores, and its gradient."""

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, RFFKernel

import kernel_embed as ke
from kernel_embed.embeddings import ConditionedEmbedding
from kernel_embed.linalg import DenseSystem, FeatureSystem
from kernel_embed.objectives import leave_one_out_scores
from kernel_embed.testing import ObjectiveContract

from ..testing import checks, suite

N, LAMBDA = 24, 0.02


def data(q: int | None = None):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(N, 2, generator=generator, dtype=torch.float64)
    y = torch.randn(N, *(() if q is None else (q,)), generator=generator, dtype=torch.float64)
    y[5] = y[2]
    return x, y


def embedding(kernel=None, **options) -> ke.ConditionalEmbedding:
    kernel = kernel or MaternKernel(nu=2.5, ard_num_dims=2)
    return ke.ConditionalEmbedding(kernel, LAMBDA, **options).double()


def left_out_weights(made, x) -> list[torch.Tensor]:
    """v_j of the measure that predicts row i, from a solve without row i: rows that are not i, ridge nλ held."""
    K = ke.gram(made.kernel, x).detach()
    answers = []
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i]
        A = K[others][:, others] + len(x) * made.regularization.item() * torch.eye(len(x) - 1, dtype=K.dtype)
        w = torch.zeros(len(x), dtype=K.dtype)
        w[others] = torch.linalg.solve(A, K[others, i])
        answers.append(1.0 / len(x) + w - w.sum() / len(x))
    return answers


def test_it_is_the_crps_of_n_refits_by_integration():
    x, y = data()
    made = embedding()
    ours = leave_one_out_scores(made.condition(x, y))
    order = y.sort()
    edges = order.values.numpy()
    for i, v in enumerate(left_out_weights(made, x)):
        F = v[order.indices].cumsum(0).numpy()
        total = 0.0
        for j in range(len(edges) - 1):
            # F and the indicator are constant on [t_j, t_{j+1})
            total += (F[j] - float(y[i] <= edges[j])) ** 2 * (edges[j + 1] - edges[j])
        assert ours[i].item() == pytest.approx(total, rel=1e-9, abs=1e-12)
    assert ke.LeaveOneOutScore()(made, x, y).item() == pytest.approx(ours.mean().item(), rel=1e-12)


def test_it_is_the_energy_score_of_n_refits_for_vectors():
    x, y = data(q=3)
    made = embedding()
    ours = leave_one_out_scores(made.condition(x, y))
    for i, v in enumerate(left_out_weights(made, x)):
        to_outcome = (v * (y - y[i]).norm(dim=1)).sum()
        among = (v[:, None] * v * (y[:, None] - y).norm(dim=2)).sum()
        torch.testing.assert_close(ours[i], to_outcome - 0.5 * among, rtol=1e-8, atol=1e-10)


def test_with_the_delta_kernel_it_is_the_brier_score():
    x, _ = data()
    labels = torch.arange(N) % 3
    made = ke.MulticlassEmbedding(RBFKernel(), 3, LAMBDA).double()
    conditioned = made.condition(x, labels)
    brier = (conditioned.Y - conditioned.leave_one_out()).square().sum(-1).mean()
    torch.testing.assert_close(ke.LeaveOneOutScore()(made, x, labels), brier)
    by_matrix = leave_one_out_scores(embedding(made.kernel).condition(x, labels), ke.kernels.DeltaKernel(), False)
    torch.testing.assert_close(by_matrix.mean(), brier)


def test_with_the_linear_kernel_it_is_the_squared_error_of_the_mean():
    x, y = data()
    conditioned = embedding().condition(x, y - y.mean())
    kernel = LinearKernel().double()
    kernel.variance = 1.0
    squares = (conditioned.Y - conditioned.leave_one_out()).square().squeeze(-1)
    torch.testing.assert_close(leave_one_out_scores(conditioned, kernel), squares)


def test_a_target_kernel_of_the_embedding_is_used_and_held():
    x, y = data()
    target = RBFKernel().double()
    one, other = embedding(target_kernel=target), embedding()
    value = ke.LeaveOneOutScore()(one, x, y)
    torch.testing.assert_close(value, ke.LeaveOneOutScore(target)(other, x, y))
    value.backward()
    assert target.raw_lengthscale.grad is None


def test_features_and_the_dense_system_agree():
    x, y = data()
    torch.manual_seed(0)
    kernel = RFFKernel(5, num_dims=2)
    made = embedding(kernel)
    assert isinstance(made.attach(x, y).system, FeatureSystem)
    dense = embedding(gpytorch.kernels.AdditiveKernel(kernel))
    K = ke.gram(kernel, x).detach()
    value = ke.LeaveOneOutScore()(made, x, y)
    system = DenseSystem(K, N * dense.regularization.detach())
    other = ke.LeaveOneOutScore().evaluate(ConditionedEmbedding(dense, x, y, system))
    torch.testing.assert_close(value.detach(), other.detach())


def test_weights_of_rows_count():
    x, y = data()
    made, w = embedding(), torch.ones(N, dtype=torch.float64)
    K, ridge = ke.gram(made.kernel, x).detach(), N * made.regularization.detach()

    def score(system, rows=slice(None)):
        return ke.LeaveOneOutScore().evaluate(ConditionedEmbedding(made, x[rows], y[rows], system))

    torch.testing.assert_close(score(DenseSystem(K, ridge)), score(DenseSystem(K, ridge, w)))
    w[0] = 1e-9  # as good as absent from the mean, the marginal and the embedding
    rest = score(DenseSystem(K[1:, 1:], ridge), slice(1, None))
    torch.testing.assert_close(score(DenseSystem(K, ridge, w)), rest, rtol=1e-6, atol=1e-9)


def through_features():
    torch.manual_seed(0)
    return embedding(RFFKernel(4, num_dims=2))


CASES = {
    "numbers": {"make_embedding": embedding, "make_data": data},
    "vectors": {"make_embedding": embedding, "make_data": lambda: data(q=2)},
    "features": {"make_embedding": through_features, "make_data": data},
    "classes": {},
}


@pytest.mark.parametrize("check", checks(ObjectiveContract))
@pytest.mark.parametrize("case", CASES)
def test_the_contract_of_objectives(case, check):
    getattr(suite(ObjectiveContract, **{"make_objective": ke.LeaveOneOutScore} | CASES[case]), check)()


def test_learning_finds_the_noise_and_a_bad_kernel_is_named():
    x = torch.linspace(0, 1, 60, dtype=torch.float64).unsqueeze(-1)
    y = torch.sin(6 * x.squeeze(-1))
    made = embedding(RBFKernel())
    assert ke.fit(made, ke.LeaveOneOutScore(), x, y).value < 0.04
    with pytest.raises(TypeError, match=r"target_kernel must be a gpytorch\.kernels\.Kernel"):
        ke.LeaveOneOutScore("rbf")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="so centered=False is not possible"):
        ke.LeaveOneOutScore(centered=False)(made, x, y)
    assert (
        repr(0.5 * ke.LeaveOneOutScore(RBFKernel(), centered=True))
        == "0.5 * LeaveOneOutScore(RBFKernel, centered=True)"
    )


def test_the_scale_of_targets_is_the_scale_of_the_score():
    x, y = data()
    one = ke.LeaveOneOutScore()(embedding(), x, y).item()
    assert ke.LeaveOneOutScore()(embedding(), x, 1e9 * y + 1e9).item() == pytest.approx(1e9 * one, rel=1e-9)
    assert ke.LeaveOneOutScore()(embedding(), x, torch.full((N,), 7.0, dtype=torch.float64)).item() == 0.0
    assert np.isfinite(one)
