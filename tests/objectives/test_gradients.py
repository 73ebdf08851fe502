"""Gradients of every objective against plain autograd through GPyTorch and the factor."""

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

import kernel_embed as ke
from kernel_embed.objectives.cross_validation import permutation

from ..conftest import named_kernels, rbf
from . import OBJECTIVES


def plain(name: str, embedding, x, y):
    """The same objective through ``kernel(x).to_dense()`` and ``torch.linalg.cholesky``, by autograd alone."""
    K, n, lam = embedding.kernel(x).to_dense(), len(x), embedding.regularization
    Y = torch.nn.functional.one_hot(y, embedding.num_classes).to(x)
    sup = K.diagonal().max()

    def solve(K, Y):
        A = K + len(K) * lam * torch.eye(len(K)).to(K)
        return torch.cholesky_solve(Y, torch.linalg.cholesky(A))

    def risk(F, y, epsilon, linear=False):
        f = F[torch.arange(len(y)), y]
        loss = -f.clamp(epsilon, 1.0).log()
        return (loss + (epsilon - f).clamp_min(0.0) / epsilon if linear else loss).mean()

    V = solve(K, Y)
    inverse = solve(K, torch.eye(n).to(K))
    loo = Y - V / inverse.diagonal()[:, None]
    r = (sup * (V * (K @ V)).sum()).sqrt()
    e = torch.e
    if name == "EmpiricalRisk":
        return risk(K @ V, y, 1e-15)
    if name == "EmpiricalRisk linear":
        return risk(K @ V, y, 0.3, True)
    if name == "LeaveOneOutRisk":
        return risk(loo, y, 1e-3)
    if name == "LeaveOneOutRisk linear":
        return risk(loo, y, 0.1, True)
    if name == "RademacherComplexity":
        return 4 * e / n**0.5 * r
    if name == "sum":
        return risk(loo, y, 1e-3) + 0.5 * 4 * e / n * r
    if name == "ConditionalEvidence":
        normal = torch.distributions.MultivariateNormal(torch.zeros(n).to(x), K + n * lam * torch.eye(n).to(K))
        return -sum(normal.log_prob(Y[:, c]) for c in range(Y.shape[1]))
    if name == "BatchValidationRisk":
        order = permutation(n, 0)
        v, t = order[: round(0.4 * n)], order[round(0.4 * n) :]
        V_t = solve(K[t][:, t], Y[t])
        r_t = (K.diagonal()[t].max() * (V_t * (K[t][:, t] @ V_t)).sum()).sqrt()
        return risk(K[v][:, t] @ V_t, y[v], 0.05) + 0.1 * r_t
    total, order = 0.0, permutation(n, 0)
    for fold in range(4):
        v = order[fold::4]
        t = torch.tensor([i for i in order.tolist() if i not in v.tolist()])
        V_t = solve(K[t][:, t], Y[t])
        total = total + (Y[v] - K[v][:, t] @ V_t).square().sum()
        if name == "CrossValidationRisk Song":
            total = total + len(v) * lam * (V_t * (K[t][:, t] @ V_t)).sum()
    return total / n


PLAIN = [name for name in OBJECTIVES if name != "CalibratedLeaveOneOutRisk"]


@pytest.mark.parametrize("kernel", named_kernels())
@pytest.mark.parametrize("name", PLAIN)
def test_gradients_equal_plain_autograd(name, kernel, problem):
    embedding = ke.MulticlassEmbedding(named_kernels()[kernel], problem.m, 0.05)
    parameters = list(embedding.parameters())
    value = OBJECTIVES[name]()(embedding, problem.x, problem.y)
    expected = plain(name, embedding, problem.x, problem.y)
    torch.testing.assert_close(value, expected, rtol=1e-7, atol=1e-9)
    ours, theirs = torch.autograd.grad(value, parameters), torch.autograd.grad(expected, parameters)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5, None])
def test_duplicated_rows_and_points_far_apart_have_finite_gradients(name, nu, problem):
    x, kernel = problem.x, RBFKernel().double()
    if nu is None:  # K = I: nothing left to tell points apart, and nothing to divide by
        kernel.lengthscale = torch.tensor(1e-4, dtype=torch.float64)
    else:
        x, kernel = x[:8].repeat(3, 1), ScaleKernel(MaternKernel(nu, ard_num_dims=3)).double()
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    value = OBJECTIVES[name]()(embedding, x, problem.y)
    value.backward()
    assert torch.isfinite(value)
    assert all(torch.isfinite(p.grad).all() for p in embedding.parameters())


def test_inputs_may_ask_for_gradients(problem):
    x = problem.x.clone().requires_grad_()
    ke.EmpiricalRisk()(ke.MulticlassEmbedding(rbf(), problem.m), x, problem.y).backward()
    assert torch.isfinite(x.grad).all()
    assert bool((x.grad != 0).any())
