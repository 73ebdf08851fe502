"""Quadratic forms of the targets, and what the systems make of them: against plain matrices, and gradients."""

import pytest
import torch
from torch.autograd import gradcheck

from kernel_embed.linalg import DenseForm, DenseSystem, DistanceForm, FeatureSystem
from kernel_embed.linalg.products import inverse_from, mutual_product_, symmetric_product


def targets(n: int = 9) -> torch.Tensor:
    y = torch.randn(n, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    y[4] = y[1]  # a tie
    return y


@pytest.mark.parametrize("weights", [None, torch.linspace(0.5, 2.0, 9, dtype=torch.float64)])
def test_cumulative_sums_are_the_centered_matrix_of_distances(weights):
    y, n = targets(), 9
    p = torch.full((n,), 1.0 / n, dtype=torch.float64) if weights is None else weights / weights.sum()
    H = torch.eye(n, dtype=torch.float64) - torch.outer(torch.ones(n, dtype=torch.float64), p)
    L = H @ (-0.5 * (y[:, None] - y).abs()) @ H.T
    form, B = DistanceForm(y, weights), torch.randn(2, n, 4, dtype=torch.float64)
    torch.testing.assert_close(form.apply(B), L @ B)
    torch.testing.assert_close(form.diagonal(), L.diagonal())
    torch.testing.assert_close(DenseForm.centered(-0.5 * (y[:, None] - y).abs(), weights).L, L)
    assert torch.linalg.eigvalsh(L).min() > -1e-12


def test_one_target_alone_has_a_form_of_zero():
    form = DistanceForm(torch.tensor([3.0], dtype=torch.float64))
    assert form.apply(torch.ones(1, 2, dtype=torch.float64)).tolist() == [[0.0, 0.0]]
    assert form.diagonal().tolist() == [0.0]


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("weights", [None, torch.linspace(0.5, 2.0, 9, dtype=torch.float64)])
@pytest.mark.parametrize("kind", ["distance", "dense"])
def test_systems_give_the_diagonals_and_their_gradients(batch, weights, kind):
    y = targets()
    form = DistanceForm(y, weights) if kind == "distance" else DenseForm(torch.exp(-((y[:, None] - y) ** 2)))
    Z = torch.randn(*batch, 9, 3, dtype=torch.float64, requires_grad=True)
    ridge = (0.5 + torch.rand(batch, dtype=torch.float64)).requires_grad_()
    L, K = form.apply(torch.eye(9, dtype=torch.float64)), Z @ Z.mT
    noise = torch.diag_embed(ridge.unsqueeze(-1) / (torch.ones(9).to(Z) if weights is None else weights))
    inverse = torch.linalg.inv(K + noise)
    expected = ((inverse @ L @ inverse).diagonal(dim1=-2, dim2=-1), inverse.diagonal(dim1=-2, dim2=-1))
    for system in (DenseSystem(K, ridge, weights), FeatureSystem(Z, ridge, weights)):
        for one, other in zip(system.inverse_forms(form), expected, strict=True):
            torch.testing.assert_close(one, other)
    assert gradcheck(lambda Z, ridge: DenseSystem(Z @ Z.mT, ridge, weights).inverse_forms(form), (Z, ridge))
    assert gradcheck(lambda Z, ridge: FeatureSystem(Z, ridge, weights).inverse_forms(form), (Z, ridge))


def test_a_symmetric_product_is_mirrored(monkeypatch):
    monkeypatch.setattr("kernel_embed.linalg.products.SMALLEST_BLOCK", 4)
    C = torch.randn(10, 10, dtype=torch.float64)
    C, g = C + C.T, torch.randn(10, dtype=torch.float64)
    torch.testing.assert_close(symmetric_product(C, C, g)[0], C @ g.diag() @ C)
    torch.testing.assert_close(symmetric_product(C, C)[0], C @ C)


def test_an_inverse_is_formed_in_blocks_for_several_threads(monkeypatch):
    monkeypatch.setattr("kernel_embed.linalg.products.SMALLEST_BLOCK", 4)
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    B = torch.randn(3, 10, 10, dtype=torch.float64)
    A = B @ B.mT + torch.eye(10, dtype=torch.float64)
    for matrix in (A, A[0]):
        inverse = inverse_from(torch.linalg.cholesky(matrix))
        torch.testing.assert_close(inverse, torch.linalg.inv(matrix))
        assert torch.equal(inverse, inverse.mT)


def test_a_mutual_product_takes_the_place_of_one_factor(monkeypatch):
    monkeypatch.setattr("kernel_embed.linalg.products.SMALLEST_BLOCK", 4)
    C, M = (B + B.mT for B in torch.randn(2, 3, 10, 10, dtype=torch.float64))
    a, g = torch.randn(2, 3, 10, dtype=torch.float64)
    D, G = torch.diag_embed(a), torch.diag_embed(g)
    expected = C @ D @ M + M @ D @ C + C @ G @ C
    torch.testing.assert_close(mutual_product_(C, M, a, g), expected)
    torch.testing.assert_close(M, expected)


def test_a_retained_graph_gives_the_gradient_twice_in_blocks(monkeypatch):
    monkeypatch.setattr("kernel_embed.linalg.products.SMALLEST_BLOCK", 4)
    Z, ridge = torch.randn(9, 3, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64)
    K = (Z @ Z.mT).requires_grad_()
    form = DistanceForm(targets())
    q, c = DenseSystem(K, ridge).inverse_forms(form)
    value = (q / c.square()).sum()
    first, second = (torch.autograd.grad(value, K, retain_graph=True)[0] for _ in range(2))
    inverse = torch.linalg.inv(K + ridge * torch.eye(9, dtype=torch.float64))
    plain = (
        (inverse @ form.apply(torch.eye(9, dtype=torch.float64)) @ inverse).diagonal() / inverse.diagonal() ** 2
    ).sum()
    (expected,) = torch.autograd.grad(plain, K)
    torch.testing.assert_close(first, 0.5 * (expected + expected.mT))
    torch.testing.assert_close(second, first, rtol=0.0, atol=0.0)
