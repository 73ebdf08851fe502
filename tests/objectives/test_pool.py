"""The logarithmic pool against a general solver, weights against repeated rows."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, RFFKernel
from scipy.optimize import minimize

import kernel_embed as ke
from kernel_embed.objectives import calibrate, pool


@pytest.fixture
def members():
    generator = torch.Generator().manual_seed(0)
    Y = torch.nn.functional.one_hot(torch.randint(3, (60,), generator=generator), 3).double()
    logits = torch.stack(
        [c * Y + torch.randn(60, 3, generator=generator, dtype=torch.float64) for c in (2.0, 1.0, 0.0)]
    )
    return logits.log_softmax(-1), Y


def test_pool_is_the_constrained_minimum(members):
    log_p, Y = members
    found = pool(log_p, Y, pull=0.3)
    T = (60 * Y + 1 / 3).numpy() / 61

    def value(u):
        z = np.einsum("k,knm->nm", u[:3], log_p.numpy()) + u[3:]
        q = z - np.log(np.exp(z).sum(1, keepdims=True))
        return -(T * q).sum() / 60 + 0.3 * 3 / 120 * ((u[:3] - 1 / 3) ** 2).sum() + (u[3:] ** 2).sum() / 120

    expected = minimize(value, np.full(6, 0.1), bounds=[(0, None)] * 3 + [(None, None)] * 3, tol=1e-12)
    assert value(np.concatenate([found.weights, found.offset])) == pytest.approx(expected.fun, abs=1e-8)
    np.testing.assert_allclose(found.weights, expected.x[:3], atol=2e-3)
    assert found.weights[0] > found.weights[1] > found.weights[2]


def test_few_rows_pool_to_the_geometric_mean(members):
    log_p, Y = members
    found = pool(log_p, Y, pull=1e6)
    torch.testing.assert_close(found.weights, torch.full((3,), 1 / 3, dtype=torch.float64), atol=1e-3, rtol=0)


def test_weights_are_repeated_rows(members):
    log_p, Y = members
    weights = torch.arange(60) % 3 + 1
    weighted = pool(log_p, Y, weights=weights.double())
    repeated = pool(log_p.repeat_interleave(weights, dim=1), Y.repeat_interleave(weights, dim=0))
    torch.testing.assert_close(weighted.weights, repeated.weights, atol=1e-4, rtol=0)
    F = log_p[0].exp()
    one = calibrate(F, Y, weights=weights.double())
    other = calibrate(F.repeat_interleave(weights, dim=0), Y.repeat_interleave(weights, dim=0))
    torch.testing.assert_close(one.scales, other.scales)
    torch.testing.assert_close(one.offset, other.offset)


@pytest.fixture
def weighted_rows():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(25, 2, dtype=torch.float64, generator=generator)
    y = torch.randint(3, (25,), generator=generator)
    return x, y, torch.arange(25) % 3 + 1


OBJECTIVES = [
    ke.EmpiricalRisk(),
    ke.LeaveOneOutRisk(),
    ke.CalibratedLeaveOneOutRisk(),
    ke.RademacherComplexity("4e/sqrt(n)"),
]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@pytest.mark.parametrize("featured", [False, True])
def test_an_objective_of_weighted_rows_is_that_of_repeated_ones(objective, featured, weighted_rows):
    x, y, weights = weighted_rows
    kernel = RFFKernel(10, num_dims=2) if featured else RBFKernel()
    embedding = ke.MulticlassEmbedding(kernel, 3, 0.05).double()
    one = objective.evaluate(embedding.attach(x, y, weights.double()))
    other = objective.evaluate(embedding.attach(x.repeat_interleave(weights, dim=0), y.repeat_interleave(weights)))
    torch.testing.assert_close(one, other)
    gradients = [torch.autograd.grad(value, list(embedding.parameters()), allow_unused=True) for value in (one, other)]
    for left, right in zip(*gradients, strict=True):
        if left is not None:
            torch.testing.assert_close(left, right)


def test_answers_and_leave_one_out_of_weighted_rows_are_those_of_repeated_ones(weighted_rows):
    x, y, weights = weighted_rows
    embedding = ke.MulticlassEmbedding(RBFKernel(), 3, 0.05).double()
    one = embedding.condition(x, y, weights.double())
    other = embedding.condition(x.repeat_interleave(weights, dim=0), y.repeat_interleave(weights))
    torch.testing.assert_close(one.probabilities(x + 0.1), other.probabilities(x + 0.1))
    torch.testing.assert_close(one.leave_one_out().repeat_interleave(weights, dim=0), other.leave_one_out())


def test_soft_labels_are_shared_rows(weighted_rows):
    """A row that is half of one class and half of another is two rows of half the weight."""
    x, y, _ = weighted_rows
    embedding = ke.MulticlassEmbedding(RBFKernel(), 3, 0.05).double()
    hard = torch.nn.functional.one_hot(y, 3).double()
    soft = 0.5 * hard + 0.5 * hard.roll(1, dims=-1)
    halves = torch.full((50,), 0.5, dtype=torch.float64)
    two = embedding.condition(x.repeat(2, 1), torch.cat([y, (y + 1) % 3]), halves)
    torch.testing.assert_close(embedding.condition(x, soft).probabilities(x), two.probabilities(x))
    torch.testing.assert_close(
        ke.EmpiricalRisk().evaluate(embedding.condition(x, hard)), ke.EmpiricalRisk()(embedding, x, y)
    )


@pytest.mark.parametrize(
    ("y", "weights", "message"),
    [
        (None, torch.ones(3), r"Expected one weight for each of the 25 rows of x, got shape \(3,\)"),
        (None, -torch.ones(25), r"Expected positive weights, got 25 that are not"),
        (None, torch.full((25,), torch.nan), r"Expected finite values in weights"),
        (torch.ones(25, 3), None, r"Expected rows of probabilities in y.*Divide each row by its sum"),
    ],
)
def test_weights_and_soft_labels_are_checked(y, weights, message, weighted_rows):
    with pytest.raises(ValueError, match=message):
        ke.MulticlassEmbedding(RBFKernel(), 3).attach(weighted_rows[0], weighted_rows[1] if y is None else y, weights)


def test_fit_takes_weights_with_full_batches(weighted_rows):
    x, y, weights = weighted_rows
    found = []
    for data in ((x, y, weights.double()), (x.repeat_interleave(weights, dim=0), y.repeat_interleave(weights), None)):
        embedding = ke.MulticlassEmbedding(RBFKernel(), 3)
        ke.fit(embedding, ke.LeaveOneOutRisk(), *data[:2], weights=data[2], max_evaluations=10)
        found.append(embedding.kernel.lengthscale.item())
    assert found[0] == pytest.approx(found[1], rel=1e-6)
    with pytest.raises(ValueError, match=r"Weights need all 25 rows at once, got a mini-batch"):
        ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, weights=weights.double(), batch_size=10, num_epochs=1)
