"""The regularized system: values, implicit gradients, jitter."""

import numpy as np
import pytest
import torch
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from torch.autograd import gradcheck

from kernel_embed.linalg import DenseSystem, FeatureSystem, extended, sandwich


def positive(*shape: int) -> torch.Tensor:
    R = torch.randn(*shape, shape[-1], dtype=torch.float64)
    return R @ R.mT


@pytest.fixture(params=[(), (2,), (2, 3)])
def system(request):
    K, ridge = positive(*request.param, 5), 0.5 + torch.rand(request.param, dtype=torch.float64)
    return K, ridge, K + ridge[..., None, None] * torch.eye(5, dtype=torch.float64)


def test_values(system):
    K, ridge, A = system
    Y = torch.randn(*K.shape[:-1], 2, dtype=torch.float64)
    answer = DenseSystem(K, ridge)
    V, P = answer.regress(Y)
    inverse = torch.linalg.inv(A)
    torch.testing.assert_close(V, inverse @ Y, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(P, K @ inverse @ Y, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(answer.solve(Y), V)
    torch.testing.assert_close(answer.inverse_diagonal(), inverse.diagonal(dim1=-2, dim2=-1), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(answer.log_determinant(), torch.logdet(A), rtol=1e-9, atol=1e-11)
    one_for_all = answer.solve(torch.eye(5, dtype=torch.float64))  # one right-hand side for the whole batch
    torch.testing.assert_close(one_for_all, inverse, rtol=1e-9, atol=1e-11)
    assert not answer.jitter.any()
    assert answer.log_determinant().shape == K.shape[:-2]


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize(
    "make", [lambda R, ridge: DenseSystem(R @ R.mT, ridge), FeatureSystem], ids=["dense", "features"]
)
def test_gradients_pass_gradcheck(make, batch):
    # K = RRᵀ: only symmetric perturbations make sense to a Cholesky factor.
    R = torch.randn(*batch, 4, 3, dtype=torch.float64, requires_grad=True)
    ridge = (0.5 + torch.rand(batch, dtype=torch.float64)).requires_grad_()
    Y = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    for evaluate in (
        lambda s, Y: s.regress(Y),
        lambda s, Y: s.regress(Y)[0],
        lambda s, Y: s.regress(Y)[1],
        lambda s, Y: s.coefficients(Y),
        lambda s, Y: (s.inverse_diagonal(), s.log_determinant()),
    ):
        assert gradcheck(lambda R, ridge, Y, evaluate=evaluate: evaluate(make(R, ridge), Y), (R, ridge, Y))


@pytest.mark.parametrize("batch", [(), (2,)])
def test_left_out_values_have_one_gradient(batch):
    R = torch.randn(*batch, 4, 4, dtype=torch.float64, requires_grad=True)
    ridge = (0.5 + torch.rand(batch, dtype=torch.float64)).requires_grad_()
    Y = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    for parts in (slice(0, 3), slice(0, 1), slice(1, 2), slice(2, 3)):
        assert gradcheck(lambda R, r, Y, p=parts: DenseSystem(R @ R.mT, r).regress_left_out(Y)[p], (R, ridge, Y))
    system = DenseSystem(R @ R.mT, ridge)
    V, P, c = system.regress_left_out(Y)
    # The factor was given up for the inverse; what needs it makes it again.
    torch.testing.assert_close(system.solve(Y), V)
    torch.testing.assert_close(system.regress(Y)[1], P)
    torch.testing.assert_close(system.inverse_diagonal(), c)
    with torch.no_grad():
        for one, other in zip(DenseSystem(R @ R.mT, ridge).regress_left_out(Y), (V, P, c), strict=True):
            torch.testing.assert_close(one, other)


def test_gradients_reach_only_what_asks_for_them():
    K, Y = positive(4), torch.randn(4, 1, dtype=torch.float64)
    ridge = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    DenseSystem(K, ridge).solve(Y).sum().backward()
    eigenvalues, U = torch.linalg.eigh(K)
    expected = -(U.mT.sum(-1) * (U.mT @ Y).squeeze(-1) / (eigenvalues + 0.3) ** 2).sum()
    torch.testing.assert_close(ridge.grad, expected)


@pytest.mark.parametrize("shape", [(7,), (512,), (700,), (2, 600)])
def test_sandwich_is_the_plain_product(shape):
    n = shape[-1]
    C, g = positive(*shape) / n, torch.randn(*shape, dtype=torch.float64)
    torch.testing.assert_close(sandwich(C, g)[0], C @ torch.diag_embed(g) @ C, rtol=1e-9, atol=1e-10)
    g[..., torch.randperm(n)[: (3 * n) // 4]] = 0.0
    torch.testing.assert_close(sandwich(C, g)[0], C @ torch.diag_embed(g) @ C, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(sandwich(C, torch.zeros_like(g))[0], torch.zeros_like(C))


def test_inverse_diagonal_gradient_of_a_large_system():
    """Above the block size of the symmetric product."""
    x = torch.linspace(0, 30, 540, dtype=torch.float64, requires_grad=True)
    g = torch.randn(540, dtype=torch.float64)
    ridge = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)

    def K():
        return torch.exp(-0.5 * (x[:, None] - x[None, :]) ** 2)

    ours = torch.autograd.grad((DenseSystem(K(), ridge).inverse_diagonal() * g).sum(), (x, ridge))
    A = K() + ridge * torch.eye(540, dtype=torch.float64)
    plain = torch.autograd.grad((torch.linalg.inv(A).diagonal() * g).sum(), (x, ridge))
    for mine, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_jitter_is_announced_and_counted(dtype):
    # Rank one, no ridge to speak of.
    K = torch.ones(30, 30, dtype=dtype)
    ridge = torch.tensor(torch.finfo(dtype).eps ** 2, dtype=dtype)
    with pytest.warns(NumericalWarning, match=r"not numerically positive definite.*added jitter.*regularization"):
        system = DenseSystem(K, ridge)
    assert system.jitter > 0
    assert system.ridge.item() == pytest.approx(ridge.item() + system.jitter.item())
    # The system solved is the one with the ridge it reports.
    Y = torch.ones(30, 1, dtype=dtype)
    V, P = system.regress(Y)
    torch.testing.assert_close(P + system.ridge * V, Y, rtol=0, atol=torch.finfo(dtype).eps ** 0.5)
    assert torch.isfinite(system.inverse_diagonal()).all()
    assert torch.isfinite(system.log_determinant())


def test_an_indefinite_matrix_is_refused_with_advice():
    K = torch.tensor([[1.0, 3.0], [3.0, 1.0]], dtype=torch.float64)
    with pytest.raises(NotPSDError, match=r"Expected a positive definite.*η = 0.1.*Is the kernel positive definite\?"):
        DenseSystem(K, torch.tensor(0.1, dtype=torch.float64))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_matrix_that_is_not_finite_is_refused(bad):
    K = torch.eye(4, dtype=torch.float64)
    K[1, 2] = K[2, 1] = bad
    with pytest.raises(NanError, match=r"Expected a finite kernel matrix, got 2 values.*16.*hyperparameters"):
        DenseSystem(K, torch.tensor(0.1, dtype=torch.float64))


def test_log_determinant_is_exact_for_large_matrices():
    """linear_operator goes over to stochastic estimates above n = 800."""
    x = torch.linspace(0, 1, 900, dtype=torch.float64)
    K = torch.exp(-50 * (x[:, None] - x[None, :]) ** 2)
    value = DenseSystem(K, torch.tensor(0.01, dtype=torch.float64)).log_determinant().item()
    assert value == pytest.approx(np.linalg.slogdet(K.numpy() + 0.01 * np.eye(900))[1], rel=1e-10)


def test_jitter_of_one_batch_element_leaves_the_others_alone():
    good = torch.eye(4, dtype=torch.float64)
    bad = torch.ones(4, 4, dtype=torch.float64)
    with pytest.warns(NumericalWarning, match="added jitter"):
        system = DenseSystem(torch.stack([good, bad]), torch.zeros(2, dtype=torch.float64))
    assert system.jitter[0] == 0.0
    assert system.jitter[1] > 0.0
    torch.testing.assert_close(system.solve(good)[0], good, rtol=0, atol=0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_an_extended_system_is_the_system_of_all_rows(weighted, batch):
    generator = torch.Generator().manual_seed(0)
    Z = torch.randn(*batch, 9, 4, dtype=torch.float64, generator=generator)
    K, ridge = Z @ Z.mT, torch.full(batch, 0.3, dtype=torch.float64)
    w = torch.rand(9, dtype=torch.float64, generator=generator) + 0.5 if weighted else None
    Y = torch.randn(9, 3, dtype=torch.float64, generator=generator)
    whole = DenseSystem(K, ridge, w)
    old = DenseSystem(K[..., :6, :6], ridge, None if w is None else w[:6])
    grown = extended(old, K[..., :6, 6:], K[..., 6:, 6:], None if w is None else w[6:])
    values = ((s.solve(Y), s.inverse_diagonal(), s.log_determinant()) for s in (grown, whole))
    for one, other in zip(*values, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(grown.gram(), K)


def test_a_repeated_row_can_be_added():
    K = torch.ones(2, 2, dtype=torch.float64)
    grown = extended(DenseSystem(K[:1, :1], torch.tensor(1e-3).double()), K[:1, 1:], K[1:, 1:])
    torch.testing.assert_close(grown.solve(torch.ones(2, 1).double()), torch.full((2, 1), 1 / 2.001).double())
