"""Every ridge at once, against one system for each."""

from __future__ import annotations

import pytest
import torch

from kernel_embed.linalg import FeatureSystem, RidgePath, left_out


@pytest.mark.parametrize("ridge", [1e-6, 0.1, 100.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_path_has_what_one_system_has(ridge, weighted):
    generator = torch.Generator().manual_seed(0)
    Z = torch.randn(30, 5, dtype=torch.float64, generator=generator)
    Y = torch.randn(30, 2, dtype=torch.float64, generator=generator)
    w = torch.arange(30).double() % 3 + 1 if weighted else None
    left = Z if w is None else w.unsqueeze(-1) * Z
    path = RidgePath(left.mT @ Z, left.mT @ Y)
    system = FeatureSystem(Z, torch.tensor(ridge, dtype=torch.float64), w)
    torch.testing.assert_close(path.coefficients(ridge), system.coefficients(Y))
    expected = left_out(Y, system.solve(Y), system.inverse_diagonal(), system.ridge, w)
    torch.testing.assert_close(path.leave_one_out(path.rotated(Z), Y, ridge, w), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("p", [4, 30])
def test_rows_give_the_same_path_as_sums(p, weighted):
    """Of fewer rows than features, too."""
    generator = torch.Generator().manual_seed(0)
    Z = torch.randn(12, p, dtype=torch.float64, generator=generator)
    Y = torch.randn(12, 2, dtype=torch.float64, generator=generator)
    w = torch.arange(12).double() % 3 + 1 if weighted else None
    left = Z if w is None else w.unsqueeze(-1) * Z
    path, sums = RidgePath.of_rows(Z, Y, w), RidgePath(left.mT @ Z, left.mT @ Y)
    torch.testing.assert_close(path.coefficients(0.3), sums.coefficients(0.3))
    values = [one.leave_one_out(one.rotated(Z[:5]), Y[:5], 0.3, None if w is None else w[:5]) for one in (path, sums)]
    torch.testing.assert_close(*values)
