"""The regularized system: values, implicit gradients, jitter."""

import warnings

import gpytorch
import numpy as np
import pytest
import torch
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from torch.autograd import gradcheck

import kernel_embed as ke
from kernel_embed.linalg import (
    DenseForm,
    DenseSystem,
    DistanceForm,
    FeatureSystem,
    extended,
    sandwich,
    single_precision,
)
from kernel_embed.linalg.factorization import inverse_from


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


def test_a_repeated_row_can_be_added():
    K = torch.ones(2, 2, dtype=torch.float64)
    grown = extended(DenseSystem(K[:1, :1], torch.tensor(1e-3).double()), K[:1, 1:], K[1:, 1:])
    torch.testing.assert_close(grown.solve(torch.ones(2, 1).double()), torch.full((2, 1), 1 / 2.001).double())


# --- quadratic forms --------------------------------------------------------------------------------------------------


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


def test_an_inverse_is_formed_in_blocks_for_several_threads(monkeypatch):
    monkeypatch.setattr("kernel_embed.linalg.factorization.SMALLEST_BLOCK", 4)
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    B = torch.randn(3, 10, 10, dtype=torch.float64)
    A = B @ B.mT + torch.eye(10, dtype=torch.float64)
    for matrix in (A, A[0]):
        inverse = inverse_from(torch.linalg.cholesky(matrix))
        torch.testing.assert_close(inverse, torch.linalg.inv(matrix))
        assert torch.equal(inverse, inverse.mT)


def test_a_mutual_product_takes_the_place_of_one_factor(monkeypatch):
    monkeypatch.setattr("kernel_embed.linalg.factorization.SMALLEST_BLOCK", 4)
    C, M = (B + B.mT for B in torch.randn(2, 3, 10, 10, dtype=torch.float64))
    a, g = torch.randn(2, 3, 10, dtype=torch.float64)
    D, G = torch.diag_embed(a), torch.diag_embed(g)
    expected = C @ D @ M + M @ D @ C + C @ G @ C
    torch.testing.assert_close(DenseForm.pull_back_(C, M, a, g), expected)
    torch.testing.assert_close(M, expected)


def test_a_retained_graph_gives_the_gradient_twice_in_blocks(monkeypatch):
    monkeypatch.setattr("kernel_embed.linalg.factorization.SMALLEST_BLOCK", 4)
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


# --- single precision -------------------------------------------------------------------------------------------------


OBJECTIVES = [
    ke.EmpiricalRisk() + ke.RademacherComplexity("4e/n"),
    ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"),
    ke.CalibratedLeaveOneOutRisk(),
    ke.ConditionalEvidence(),
    ke.LeaveOneOutScore(gpytorch.kernels.RBFKernel().double()),
]


def problem(regularization=1e-2):
    x = torch.rand(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] * 3).long()
    embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(ard_num_dims=3), 3, regularization).double()
    embedding.kernel.lengthscale = 0.5
    return embedding, x, y


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_values_and_gradients_have_the_digits_that_are_promised(objective):
    found = []
    for single in (True, False):
        embedding, x, y = problem()
        with single_precision(single), warnings.catch_warnings():
            warnings.simplefilter("error")
            value = objective(embedding, x, y)
        value.backward()
        assert value.dtype == torch.float64
        found.append((value.detach(), embedding.kernel.raw_lengthscale.grad, embedding.raw_regularization.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        assert not torch.equal(one, other), "single precision was not used"


@pytest.mark.parametrize("weights", [None, torch.linspace(0.5, 2.0, 30, dtype=torch.float64)])
def test_solutions_are_refined(weights):
    Z = torch.randn(30, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    Y, ridge = torch.eye(30, 2, dtype=torch.float64), torch.tensor(0.1, dtype=torch.float64)
    with single_precision():
        system = DenseSystem(Z @ Z.mT, ridge, weights)
    assert system._factor.dtype == torch.float32
    expected = DenseSystem(Z @ Z.mT, ridge, weights).solve(Y)
    error = (system.solve(Y) - expected).norm() / expected.norm()
    unrefined = torch.cholesky_solve(Y.float(), system._factor).double() - expected
    assert error < 1e-8 < unrefined.norm() / expected.norm()


def test_a_condition_number_too_large_is_said_and_done_in_double():
    Z = torch.randn(30, 4, dtype=torch.float64)
    ridge = torch.tensor(1e-6, dtype=torch.float64)
    with single_precision(), pytest.warns(NumericalWarning, match=r"condition number .* went on in double"):
        system = DenseSystem(Z @ Z.mT, ridge)
    assert system._factor.dtype == torch.float64


def test_data_in_single_precision_are_left_alone():
    with single_precision():
        system = DenseSystem(torch.eye(3), torch.tensor(1e-6))
    assert system._factor.dtype == torch.float32


def test_fit_learns_the_same_and_answers_in_double():
    points, answers = [], []
    for precision in ("double", "single"):
        embedding, x, y = problem()
        result = ke.fit(
            embedding, ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/sqrt(n)"), x, y, precision=precision
        )
        points.append(result.value)
        conditioned = embedding.condition(x, y)
        assert conditioned.system._factor.dtype == torch.float64
        answers.append(conditioned.probabilities(x))
    assert points[1] == pytest.approx(points[0], rel=1e-3)
    torch.testing.assert_close(answers[1], answers[0], rtol=0.0, atol=0.02)


def test_another_precision_is_refused():
    embedding, x, y = problem()
    with pytest.raises(ValueError, match="precision must be 'double' or 'single', not 'half'"):
        ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, precision="half")
