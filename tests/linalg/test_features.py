"""The p × p system against the n × n one: values, gradients, hard numbers."""

import pytest
import torch
from linear_operator.utils.errors import NanError
from linear_operator.utils.warnings import NumericalWarning

from kernel_embed.linalg import DenseSystem, FeatureSystem, RidgePath


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_values(batch):
    Z = torch.randn(*batch, 9, 4, dtype=torch.float64)
    ridge = 0.5 + torch.rand(batch, dtype=torch.float64)
    Y = torch.randn(9, 2, dtype=torch.float64)
    one, other = FeatureSystem(Z, ridge), DenseSystem(Z @ Z.mT, ridge)
    values = ((*s.regress(Y), s.solve(Y), s.inverse_diagonal(), s.log_determinant()) for s in (one, other))
    for left, right in zip(*values, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(Z @ one.coefficients(Y), one.regress(Y)[1])
    assert not one.jitter.any()


def test_one_set_of_features_serves_a_batch_of_ridges():
    Z, ridge = torch.randn(6, 2, dtype=torch.float64), torch.tensor([0.1, 1.0], dtype=torch.float64)
    Y = torch.randn(6, 1, dtype=torch.float64)
    together = FeatureSystem(Z, ridge).solve(Y)
    torch.testing.assert_close(together[1], FeatureSystem(Z, ridge[1]).solve(Y))


@pytest.mark.parametrize("ridge", [1e-9, 1e-4, 1.0, 1e6])
def test_digits_hold_over_fifteen_orders_of_the_ridge(ridge):
    torch.manual_seed(1)
    Z = torch.randn(40, 6, dtype=torch.float64)
    Y = torch.randn(40, 2, dtype=torch.float64)
    eta = torch.tensor(ridge, dtype=torch.float64)
    system = FeatureSystem(Z, eta)
    W = torch.linalg.lstsq(
        torch.cat([Z, eta.sqrt() * torch.eye(6, dtype=Z.dtype)]), torch.cat([Y, torch.zeros(6, 2, dtype=Z.dtype)])
    ).solution
    torch.testing.assert_close(system.coefficients(Y), W, rtol=1e-9, atol=1e-13)
    torch.testing.assert_close(system.regress(Y)[1], Z @ W, rtol=1e-9, atol=1e-13)
    # leave-one-out against a fit without the row
    V, _ = system.regress(Y)
    left_out = Y[3] - V[3] / system.inverse_diagonal()[3]
    rest = FeatureSystem(Z[torch.arange(40) != 3], eta).coefficients(Y[torch.arange(40) != 3])
    torch.testing.assert_close(left_out, Z[3] @ rest, rtol=1e-8, atol=1e-12)


def test_a_point_alone_in_its_feature_keeps_a_positive_diagonal():
    Z = torch.zeros(3, 2, dtype=torch.float64)
    Z[0, 0], Z[1:, 1] = 1e8, 1.0
    c = FeatureSystem(Z, torch.tensor(1e-3, dtype=torch.float64)).inverse_diagonal()
    assert c[0].item() == pytest.approx(1e-16, rel=1e-6)


def test_jitter_is_announced_and_in_force():
    Z = torch.ones(5, 3, dtype=torch.float64)
    with pytest.warns(NumericalWarning, match=r"ZᵀZ \+ ηI was not numerically positive definite"):
        system = FeatureSystem(Z, torch.tensor(1e-30, dtype=torch.float64))
    assert system.jitter > 0
    assert system.ridge.item() == pytest.approx(system.jitter)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_features_that_are_not_finite_are_explained(bad):
    Z = torch.ones(5, 3, dtype=torch.float64)
    Z[2, 1] = bad
    with pytest.raises(NanError, match=r"Expected finite features, got 1 .* 15.*feature map"):
        FeatureSystem(Z, torch.tensor(1.0, dtype=torch.float64))


# --- every ridge at once ----------------------------------------------------------------------------------------------


def rows(n, p, weighted):
    generator = torch.Generator().manual_seed(0)
    Z = torch.randn(n, p, dtype=torch.float64, generator=generator)
    Y = torch.randn(n, 2, dtype=torch.float64, generator=generator)
    w = torch.arange(n).double() % 3 + 1 if weighted else None
    return Z, Y, w, (Z if w is None else w.unsqueeze(-1) * Z).mT


@pytest.mark.parametrize("ridge", [1e-6, 0.1, 100.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_path_agrees_with_one_system(ridge, weighted):
    Z, Y, w, left = rows(30, 5, weighted)
    path, system = RidgePath.from_sums(left @ Z), FeatureSystem(Z, torch.tensor(ridge, dtype=torch.float64), w)
    torch.testing.assert_close(path.coefficients(left @ Y, ridge), system.coefficients(Y))
    expected = Y - system.solve(Y) / system.inverse_diagonal().unsqueeze(-1)
    values = path.leave_one_out(path.rotate(Z), Y, left @ Y, ridge, w)
    torch.testing.assert_close(values, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("p", [4, 30])
def test_rows_give_the_same_path_as_sums_also_with_fewer_rows_than_features(p, weighted):
    Z, Y, w, left = rows(12, p, weighted)
    paths = RidgePath.from_rows(Z, w), RidgePath.from_sums(left @ Z)
    torch.testing.assert_close(*(path.coefficients(left @ Y, 0.3) for path in paths))
    own = None if w is None else w[:5]
    torch.testing.assert_close(*(p.leave_one_out(p.rotate(Z[:5]), Y[:5], left @ Y, 0.3, own) for p in paths))


def test_squared_errors_of_a_grid_are_those_of_its_leave_one_out_values():
    Z, Y, _, left = rows(20, 6, False)
    ridges = torch.tensor([0.01, 1.0, 30.0], dtype=torch.float64)
    path = RidgePath.from_rows(Z).truncated(1e-7)
    ZQ = path.rotate(Z)
    errors = path.squared_errors(ZQ, Y, ridges, path.leverage(ZQ, ridges))
    each = [(Y - path.leave_one_out(ZQ, Y, left @ Y, float(ridge))).square().sum(0) for ridge in ridges]
    torch.testing.assert_close(errors, torch.stack(each))
    freedom = path.leverage(ZQ, ridges).sum(0)
    torch.testing.assert_close(path.degrees_of_freedom(ridges), freedom)
    assert len(RidgePath.from_rows(torch.cat([Z, Z], dim=1)[:4]).truncated(1e-7).eigenvalues) == 4
