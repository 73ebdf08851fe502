"""A factor extended by a block of rows is the factor of all rows."""

import pytest
import torch

from kernel_embed.linalg import DenseSystem, extended


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
