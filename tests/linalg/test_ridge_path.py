"""One decomposition for all ridges gives what one system for each ridge gives."""

import pytest
import torch

from kernel_embed.linalg import FeatureSystem, RidgePath


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
