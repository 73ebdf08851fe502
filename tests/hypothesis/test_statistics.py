"""Every statistic against loops, other libraries, and its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel
from scipy import stats
from scipy.spatial.distance import cdist

import kernel_embed as ke
from kernel_embed.hypothesis import independence, mmd, result

from .data import KERNELS, centered, loop_gram, normal, rbf


@pytest.fixture
def data():
    return tuple(normal(3 + n, n, 2) for n in (13, 9, 11))


@pytest.fixture
def pairs():
    x = normal(4, 12, 1)
    return x, x.square() + normal(5, 12, 2)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("statistic", ["biased", "unbiased"])
def test_mmd_is_its_double_sum(data, statistic, name):
    kernel, parts = KERNELS[name]
    x, y, _ = (sample.numpy() for sample in data)
    n, m = len(x), len(y)
    Kxx, Kyy, Kxy = loop_gram(x, x, parts), loop_gram(y, y, parts), loop_gram(x, y, parts)
    if statistic == "biased":
        expected = Kxx.sum() / n**2 + Kyy.sum() / m**2 - 2 * Kxy.mean()
    else:
        expected = (Kxx.sum() - n) / (n * (n - 1)) + (Kyy.sum() - m) / (m * (m - 1)) - 2 * Kxy.mean()
    result = ke.two_sample_test(*data[:2], kernel, 20, seed=0, statistic=statistic)
    assert result.statistic == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("name", KERNELS)
def test_the_gamma_distribution_has_the_moments_of_the_kernel(data, name):
    kernel, parts = KERNELS[name]
    pooled = torch.cat(data[:2]).numpy()
    eigenvalues = np.linalg.eigvalsh(centered(loop_gram(pooled, pooled, parts))) / len(pooled)
    factor = 1 / 13 + 1 / 9
    mean, variance = factor * eigenvalues.sum(), 2 * factor**2 * np.square(eigenvalues).sum()
    result = ke.two_sample_test(*data[:2], kernel, null="gamma")
    expected = stats.gamma.sf(result.statistic, mean**2 / variance, scale=variance / mean)
    assert result.pvalue == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", [*mmd.STATISTICS, "between samples"])
def test_the_null_distribution_of_a_statistic_has_the_moments_it_states(name):
    statistic = mmd.STATISTICS.get(name, mmd.BETWEEN_SAMPLES)
    pooled, sizes = normal(6, 200, 2), [120, 80]
    E = mmd.indicators(sizes, 4000, torch.Generator().manual_seed(1), pooled)
    T, scale = mmd.statistics([rbf(0.7)], pooled, E, sizes, statistic)
    assert (T.mean() / scale.mean + scale.shift).item() == pytest.approx(1.0, rel=0.02)
    assert (T.var() / scale.variance).item() == pytest.approx(1.0, rel=0.1)


def test_every_permuted_statistic_is_the_statistic_of_the_permuted_sample(data, monkeypatch):
    """In one block, and in blocks of a few rows."""
    x, y, _ = data
    pooled = torch.cat([x, y])
    E = mmd.indicators([13, 9], 7, torch.Generator().manual_seed(1), pooled)
    assert (E.sum(0) == 13).all()
    three = mmd.indicators([3, 2, 4], 7, torch.Generator().manual_seed(1), pooled)
    assert (three.sum(1) == 1).all()
    assert (three.sum(0) == torch.tensor([[3.0], [2.0], [4.0]])).all()
    for block in (mmd.BLOCK, 3):
        monkeypatch.setattr(mmd, "BLOCK", block)
        T, _ = mmd.statistics([rbf(0.7)], pooled, E, [13, 9], mmd.STATISTICS["biased"])
        for b in range(8):
            first = E[:, 0, b].bool()
            one = ke.two_sample_test(pooled[first], pooled[~first], rbf(0.7), 1).statistic
            assert T[0, b].item() == pytest.approx(one, abs=1e-13)


@pytest.mark.parametrize("name", KERNELS)
def test_k_samples_are_distances_to_the_pooled_embedding(data, name):
    kernel, parts = KERNELS[name]
    pooled = torch.cat(data).numpy()
    K = loop_gram(pooled, pooled, parts)
    expected, start = 0.0, 0
    for sample in data:
        weights = -np.full(len(pooled), 1 / len(pooled))
        weights[start : start + len(sample)] += 1 / len(sample)
        expected += len(sample) * weights @ K @ weights
        start += len(sample)
    assert ke.k_sample_test(*data, kernel=kernel, seed=0).statistic == pytest.approx(expected, abs=1e-12)
    two, pair = ke.k_sample_test(*data[:2], kernel=kernel, seed=5), ke.two_sample_test(*data[:2], kernel, seed=5)
    assert two.statistic == pytest.approx(13 * 9 / 22 * pair.statistic)
    assert two.pvalue == pair.pvalue


@pytest.mark.parametrize("n", [11, 12])
@pytest.mark.parametrize("memory", [independence.MEMORY, 1])
def test_hsic_of_every_rotation_is_its_trace(pairs, n, memory, monkeypatch):
    """Both statistics, even and odd n, from the Gram matrix and pair by pair."""
    monkeypatch.setattr(independence, "MEMORY", memory)
    x, y = (sample[:n] for sample in pairs)
    K, L = loop_gram(x.numpy(), x.numpy(), 0.8), loop_gram(y.numpy(), y.numpy(), 1.5)
    generator = torch.Generator().manual_seed(2)
    orders = [torch.randperm(n, generator=generator) for _ in range(2)]
    kernels = (rbf(0.8),), (rbf(1.5),)
    (biased, scale), (unbiased, _) = (
        independence.rotated_hsic(*kernels, x, y, orders, which) for which in (False, True)
    )
    biased, unbiased = biased[0, 0], unbiased[0, 0]
    first, second = (order.numpy() for order in orders)
    assert len(biased) == 2 * n
    for b, (order, s) in enumerate([(order, s) for order in (first, second) for s in range(n)]):
        turned = np.roll(order, -s)
        A, B = K[np.ix_(first, first)], L[np.ix_(turned, turned)]
        assert biased[b].item() == pytest.approx(np.trace(centered(A) @ B) / n**2, abs=1e-12)
        A, B = A - np.diag(np.diag(A)), B - np.diag(np.diag(B))
        value = np.trace(A @ B) - 2 / (n - 2) * (A @ B).sum() + A.sum() * B.sum() / ((n - 1) * (n - 2))
        assert unbiased[b].item() == pytest.approx(value / (n * (n - 3)), abs=1e-12)
    norms = np.sum(centered(K) ** 2) * np.sum(centered(L) ** 2)
    assert scale.variance.item() == pytest.approx(2 * norms / n**6)
    assert scale.mean.item() == pytest.approx(np.trace(centered(K)) * np.trace(centered(L)) / n**3)


def test_equal_to_hyppo_where_defined_alike():
    """hyppo normalizes HSIC to a correlation and takes its root; its MMD is that of points and labels."""
    hsic_of = pytest.importorskip("hyppo.independence").Hsic
    mmd_of = pytest.importorskip("hyppo.ksample").MMD
    x, y = normal(0, 40, 2), normal(1, 40, 2) + 0.5
    gamma = 0.4
    kernel = rbf((0.5 / gamma) ** 0.5)

    def statistic(a, b):
        return ke.independence_test(a, b, kernel, 1, seed=0, kernel_y=kernel).statistic

    def correlation(a, b):
        return statistic(a, b) / np.sqrt(statistic(a, a) * statistic(b, b))

    theirs = hsic_of(bias=True, gamma=gamma).statistic(x.numpy(), y.numpy())
    assert theirs**2 == pytest.approx(correlation(x, y), rel=1e-9)
    theirs = (mmd_of(bias=True, gamma=gamma).statistic(x.numpy(), y.numpy()) / (2 * 40**4 / 80**4)) ** 2
    pooled, labels = torch.cat([x, y]), torch.cat([torch.zeros(40, 1), torch.ones(40, 1)]).double()
    assert theirs == pytest.approx(correlation(pooled, labels), rel=1e-9)
    # and that HSIC is MMD² up to a factor: L = (1 − ρ)δ + const
    mmd = ke.two_sample_test(x, y, kernel, 1, seed=0).statistic
    assert statistic(pooled, labels) == pytest.approx(2 * (1 - np.exp(-gamma)) * 0.25**2 * mmd, rel=1e-9)


def test_energy_distance_is_a_special_case():
    """MMD² with k(x, y) = (‖x‖ + ‖y‖ − ‖x − y‖)/2 is half the energy distance, by a kernel of one's own."""

    class EnergyKernel(Kernel):
        def forward(self, x1, x2, diag=False, **params):
            if diag:
                return 0.5 * (x1.norm(dim=-1) + x2.norm(dim=-1) - (x1 - x2).norm(dim=-1))
            return 0.5 * (x1.norm(dim=-1)[..., None] + x2.norm(dim=-1)[..., None, :] - torch.cdist(x1, x2))

    x, y = normal(0, 20, 2), normal(1, 25, 2) + 0.5
    energy = 2 * cdist(x, y).mean() - cdist(x, x).mean() - cdist(y, y).mean()
    assert ke.two_sample_test(x, y, EnergyKernel(), 10, seed=0).statistic == pytest.approx(energy / 2, rel=1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_linear_time_is_its_definition_whole_and_in_a_stream(name):
    kernel, parts = KERNELS[name]
    x, y = normal(0, 2, 33, 2)
    Kx, Ky, Kxy = (loop_gram(a.numpy(), b.numpy(), parts) for a, b in ((x, x), (y, y), (x, y)))
    i = np.arange(0, 32, 2)
    h = Kx[i, i + 1] + Ky[i, i + 1] - Kxy[i, i + 1] - Kxy[i + 1, i]
    whole = ke.two_sample_test(x, y, kernel, 20_000, seed=0, statistic="linear")
    assert whole.statistic == pytest.approx(h.mean())
    # all 2^16 ways to flip the signs, as a sum of independent coins: exact by doubling
    flipped = np.zeros(1)
    for value in h:
        flipped = np.concatenate([flipped + value, flipped - value])
    exact = np.mean(flipped >= sum(h) - 1e-12)
    assert whole.pvalue == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 20_000))
    one, stream = (ke.hypothesis.LinearTimeTwoSampleTest(kernel, num_permutations=99, seed=3) for _ in range(2))
    one.update(x, y)
    for part in range(0, 33, 5):
        stream.update(x[part : part + 5], y[part : part + 5])
    assert stream.result().statistic == pytest.approx(whole.statistic)
    assert torch.allclose(stream.result().null, one.result().null)
    assert stream.result().pvalue == one.result().pvalue


def test_linear_time_is_exact_for_a_few_skewed_points_and_a_learned_kernel():
    """Five pairs of skewed points: 0.05 is rejected with probability at most 0.05; more than 12 of 60 has 2e-5."""
    rejected = 0
    for seed in range(60):
        draw = np.random.RandomState(seed)
        x, y = draw.exponential(size=(2, 10, 1)) ** 2
        rejected += ke.two_sample_test(x, y, "best", 99, seed, statistic="linear").pvalue <= 0.05
    assert rejected <= 12


def test_many_points_by_features_agree_with_the_whole_matrix():
    """Nearly with a few of them, and exactly with one for each point."""
    x, y = normal(0, 150, 2), normal(1, 120, 2) + 0.25
    whole = ke.two_sample_test(x, y, rbf(1.0), 199, seed=0)
    some, every = (ke.two_sample_test(x, y, rbf(1.0), 199, seed=0, num_features=p) for p in (60, 270))
    assert some.statistic == pytest.approx(whole.statistic, rel=0.02)
    assert every.statistic == pytest.approx(whole.statistic, rel=1e-6)
    assert every.null.mean().item() == pytest.approx(whole.null.mean().item(), rel=0.1)  # of other permutations
    assert "60 features" in some.summary()


def test_aggregation_by_hand():
    T = torch.tensor([[3.0, 1.0, 2.0, 2.0], [1.0, 9.0, 1.0, 1.0]], dtype=torch.float64)
    mean, variance = torch.tensor([2.0, 1.0]).double(), torch.tensor([0.5, 2.0]).double()
    answer = result.by_permutations(T, result.NullScale(mean, variance, torch.ones(2).double()))
    a = (mean**2 / variance)[:, None]
    z = 2 * a.sqrt() * ((T / mean[:, None]).sqrt() - 1 + 1 / (8 * a))
    S = z.max(0).values
    assert answer.statistic == pytest.approx(S[0].item())
    assert torch.allclose(answer.null, S[1:])
    assert torch.equal(answer.statistics, T[:, 0])
    assert answer.pvalue == 0.5
    assert answer.pvalues.tolist() == [0.25, 1.0]
    assert answer.best == 0
    scale = result.NullScale(mean, variance, torch.ones(2).double(), shift=1.0)
    moved = result.by_permutations(T - mean[:, None], scale)
    assert moved.statistic == pytest.approx(answer.statistic)
    assert torch.allclose(moved.null, answer.null)


def test_the_summary_says_where_the_p_value_is_the_smallest_possible():
    x = torch.randn(40, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    apart, together = (ke.two_sample_test(x, x + d, kernel="median", num_permutations=99, seed=0) for d in (3.0, 0.0))
    assert apart.pvalue == 0.01
    assert "p = 1/(B + 1), the smallest possible" in apart.summary()
    assert "smallest possible" not in together.summary()


# --- where samples differ ---------------------------------------------------------------------------------------------


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
