"""Where two samples differ: places, rows and columns against loops, and the level of looking everywhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import kernel_embed as ke

from .data import rbf


def samples(seed: int, n: int = 40, m: int = 50, d: int = 1, shift: float = 0.0):
    draw = np.random.RandomState(seed)
    x, y = draw.randn(n, d), draw.randn(m, d)
    y[:, -1] += shift
    return x, y


def test_the_witness_and_its_spread_are_their_sums():
    x, y = samples(0)
    points = torch.linspace(-2, 2, 7, dtype=torch.float64).unsqueeze(-1)
    found = ke.two_sample_test(x, y, rbf(0.7), 99, seed=0).differences(points, num_permutations=400, seed=1)

    def k(a, t):
        return np.exp(-0.5 * (a[:, 0] - t) ** 2 / 0.7**2)

    for t, w, band in zip(points[:, 0].tolist(), found.witness.tolist(), found.band.tolist(), strict=True):
        assert w == pytest.approx(k(x, t).mean() - k(y, t).mean(), rel=1e-5)
        spread = np.sqrt((1 / 40 + 1 / 50) * np.concatenate([k(x, t), k(y, t)]).var(ddof=1))
        assert 1.5 * spread < band < 4.0 * spread
    ratios = found.band / (found.band[0])
    assert found.pvalues.min() > 0.0
    assert ratios.isfinite().all()
    assert bool((found.significant == (found.pvalues <= 0.05)).all())


def test_rows_sum_to_the_statistic():
    x, y = samples(1, shift=1.0)
    result = ke.two_sample_test(x, y, rbf(0.7), 99, seed=0)
    found = result.differences(num_permutations=99)
    assert float(found.rows[0].sum() + found.rows[1].sum()) == pytest.approx(result.statistic, rel=1e-9)
    first, second = found.top_rows(5)
    assert x[first.numpy()].mean() < 0.0 < 1.0 < y[second.numpy()].mean()


def test_the_column_that_differs_is_named():
    pd = pytest.importorskip("pandas")
    x, y = samples(2, 100, 100, d=3, shift=1.0)
    x, y = (pd.DataFrame(part, columns=["age", "weight", "pressure"]) for part in (x, y))
    found = ke.two_sample_test(x, y, None, 99, seed=0).differences(num_permutations=199)
    small = [column.name for column in found.columns if column.pvalue <= 0.05]
    assert small == ["pressure"]
    assert min(found.columns, key=lambda column: column.without).name == "pressure"
    assert "pressure" in found.summary()


def test_categories_and_a_single_column():
    draw = np.random.RandomState(0)
    x = np.column_stack([draw.randint(3, size=80), draw.randn(80)])
    y = np.column_stack([draw.choice(3, size=80, p=[0.7, 0.2, 0.1]), draw.randn(80)])
    found = ke.two_sample_test(x, y, None, 99, seed=0, categorical=[0]).differences(num_permutations=99)
    assert found.columns[0].pvalue <= 0.05 < found.columns[1].pvalue
    alone = ke.two_sample_test(x[:, 1], y[:, 1], None, 99, seed=0).differences(num_permutations=99)
    assert [column.name for column in alone.columns] == ["column 0"]
    assert np.isnan(alone.columns[0].without)
    assert alone.plot().has_data()
    assert found.plot(column=1).get_xlabel() == "column 1"


def test_the_band_holds_everywhere_where_nothing_differs():
    """100 null data sets leave a 95 % band anywhere with probability 0.05 at most; more than 15 of them has 4e-5."""
    left = 0
    for seed in range(100):
        result = ke.two_sample_test(*samples(seed, 15, 20), rbf(0.7), 1, seed=0)
        left += bool(result.differences(num_permutations=99, seed=seed).significant.any())
    assert left <= 15


def test_a_kernel_chosen_among_several_pays_for_the_choice():
    """The choice has seen the labels: with the same permutations the band is that of the largest excursion of all."""
    x, y = samples(3, 20, 25)
    several = [rbf(0.1), rbf(0.7), rbf(3.0)]
    points = torch.linspace(-2, 2, 9, dtype=torch.float64).unsqueeze(-1)
    result = ke.two_sample_test(x, y, several, 99, seed=0)
    together = result.differences(points, num_permutations=99, seed=1)
    best = result.kernels.index(result.kernel)
    bands = [
        ke.two_sample_test(x, y, one, 9, seed=0).differences(points, num_permutations=99, seed=1) for one in several
    ]
    torch.testing.assert_close(together.witness, bands[best].witness)
    assert bool((together.band >= bands[best].band).all())
    assert bool((together.pvalues >= bands[best].pvalues).all())
    pooled = torch.as_tensor(np.concatenate([x, y]))

    def factor(one, kernel):
        return float((one.band / ke.gram(kernel, points, pooled).detach().std(-1)).mean())

    largest = max(factor(alone, one) for one, alone in zip(several, bands, strict=True))
    assert factor(together, several[best]) >= largest * (1 - 1e-6)


def test_bad_places_and_levels():
    result = ke.two_sample_test(*samples(0), rbf(0.7), 9, seed=0)
    with pytest.raises(ValueError, match="level between 0 and 1"):
        result.differences(level=1.0)
    with pytest.raises(ValueError, match="points"):
        result.differences(torch.zeros(3, 2))
