"""Table 1 of Hsu et al.: the paper's own procedure."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

from kernel_embed.lab.compare import PaperClassifier
from kernel_embed.lab.papers.hsu2018_uci import PUBLISHED


def by_hand(x, y, num_steps):
    """Eq. (12) with 4e/n in place of 4e, from ones, by torch.optim.Adam on the logarithms."""
    x, n = torch.as_tensor(x), len(x)
    Y = torch.nn.functional.one_hot(torch.as_tensor(y)).double()
    log = torch.zeros(x.shape[1] + 1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([log], lr=0.1)

    def coefficients():
        z = x / log[1:].exp()
        K = torch.exp(-0.5 * torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist").square())
        return K, torch.linalg.solve(K + n * log[0].exp() * torch.eye(n, dtype=x.dtype), Y)

    for _ in range(num_steps - 1):  # the last evaluation is that of the result
        K, V = coefficients()
        risk = -((K @ V) * Y).sum(1).clamp(1e-15, 1.0).log().mean()
        loss = risk + 4 * np.e / n * (V * (K @ V)).sum().sqrt()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    K, V = coefficients()
    P = (K @ V).clamp_min(0.0).detach()
    return (P / P.sum(1, keepdim=True)).numpy()


def test_all_rows_by_hand():
    x, y = load_iris(return_X_y=True)
    x = ((x - x.min(0)) / np.ptp(x, axis=0) + 1e-3 * np.random.default_rng(0).normal(size=x.shape))[::3]
    model = PaperClassifier(num_steps=20).fit(x, y[::3])
    np.testing.assert_allclose(model.predict_proba(x), by_hand(x, y[::3], 20), atol=1e-6)


def test_batches_take_as_many_steps_and_published_rows_have_six_cells():
    x, y = load_iris(return_X_y=True)
    x = (x - x.min(0)) / np.ptp(x, axis=0)
    model = PaperClassifier(batches=10, num_steps=100).fit(x, y)
    assert model.result_.num_evaluations == 100
    assert model.score(x, y) > 0.9
    assert {len(cells) for cells in PUBLISHED.values()} == {6}
    assert PUBLISHED["paper, batches"]["yeast"] == pytest.approx((60.3, 4.4))
