"""Which kernels are chosen, what they do not depend on, and what they are good for."""

import matplotlib.pyplot
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

import kernel_embed as ke
from kernel_embed.hypothesis.checks import Encoding
from kernel_embed.hypothesis.kernel_choice import choose_kernels
from kernel_embed.lab.papers.flaxman2016_grid import grid_samples
from kernel_embed.validation import generator_of

from .data import normal, rbf


def clusters(n=100, shift=1.0):
    """Two clusters 40 apart; from one sample to the other each moves by ``shift``, in opposite directions."""
    centres = torch.tensor([0.0, 40.0]).repeat(n // 2).unsqueeze(-1)
    move = torch.tensor([shift, -shift]).repeat(n // 2).unsqueeze(-1)
    return centres + normal(0, n, 1), centres + move + normal(1, n, 1)


def test_the_grid_of_gaussians_is_seen_with_evidence_and_not_with_the_median():
    p, q = grid_samples(ratio=6.0, num_per_centre=50)
    learned = ke.two_sample_test(p, q, num_permutations=200, seed=0)
    assert learned.pvalue < 0.02
    assert learned.kernel.lengthscale.flatten().tolist() == pytest.approx([1.7, 1.7], abs=0.4)
    assert ke.two_sample_test(p, q, "median", 200, seed=0).pvalue > 0.5


def test_all_maxima_take_part():
    x, y = clusters()
    pooled = torch.cat([x, y])
    chosen = choose_kernels(pooled, "evidence", (), generator_of(0))
    lengthscales = sorted(kernel.lengthscale.item() for kernel in chosen.kernels)
    assert len(lengthscales) >= 2
    assert lengthscales[0] < 3
    assert lengthscales[-1] > 10
    assert ke.two_sample_test(x, y, seed=0).pvalue < 0.01
    assert ke.two_sample_test(x, y, "median", seed=0).pvalue > 0.1
    assert len(choose_kernels(pooled, "best", (), generator_of(0)).kernels) == 1


def test_units_do_not_matter():
    """Rescaling y by 100, or single columns, changes nothing."""
    x = normal(0, 60, 2)
    y = x[:, :1].square() + normal(1, 60, 1)
    one, other = (ke.independence_test(x, factor * y, seed=0) for factor in (1.0, 100.0))
    assert one.pvalue == other.pvalue
    assert one.statistic == pytest.approx(other.statistic, rel=1e-6)
    units = torch.tensor([1e-3, 50.0], dtype=torch.float64)
    z = normal(2, 50, 2) + 0.4
    a, b = ke.two_sample_test(x, z, seed=0), ke.two_sample_test(x * units, z * units, seed=0)
    assert a.pvalue == b.pvalue
    assert torch.allclose(b.kernel.lengthscale, a.kernel.lengthscale * units, rtol=1e-4)
    a, b = (ke.conditional_independence_test(x[:, :1], f * y, x[:, 1:] * f, seed=0).pvalue for f in (1.0, 100.0))
    assert a == pytest.approx(b, abs=0.005)


def test_a_seed_is_honoured_and_the_hosts_random_numbers_are_left_alone():
    x, y, z = normal(0, 40, 1), normal(1, 40, 1), normal(2, 40, 1)
    torch.manual_seed(7)
    state = torch.get_rng_state()
    for test in (
        lambda seed: ke.two_sample_test(x, y, seed=seed),
        lambda seed: ke.k_sample_test(x, y, z, seed=seed),
        lambda seed: ke.independence_test(x, y, seed=seed),
        lambda seed: ke.conditional_independence_test(x, y, z, seed=seed),
        lambda seed: ke.conditional_independence_test(x, y, z, seed=seed, method="kernel"),
    ):
        first, second, other = test(3), test(3), test(4)
        assert first.pvalue == second.pvalue
        assert torch.equal(first.null, second.null)
        assert not torch.equal(first.null, other.null)
    assert torch.equal(torch.get_rng_state(), state)
    kernel = RBFKernel()
    ke.two_sample_test(x, y, kernel, seed=0)
    assert kernel.raw_lengthscale.dtype == torch.float32, "the caller's kernel is left alone"


def test_categories():
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(0, 3, (80, 1), generator=generator) for _ in range(2))
    names = torch.tensor([10, -3, 77])
    one = ke.two_sample_test(a, b.clamp_max(1), seed=0)
    assert one.pvalue < 0.01
    assert ke.two_sample_test(names[a], names[b.clamp_max(1)], seed=0).pvalue == one.pvalue, "names mean nothing"
    assert ke.two_sample_test(a, b, seed=0).pvalue > 0.05
    # one column of categories: a test with the delta kernel
    delta = ke.two_sample_test(a, b.clamp_max(1), ke.kernels.DeltaKernel(), seed=0)
    assert delta.pvalue == one.pvalue
    assert ke.independence_test(a, (a == 1).double() + normal(1, 80, 1), seed=0).pvalue < 0.01
    assert ke.independence_test(a.bool(), b.bool(), seed=0).pvalue > 0.05


def test_mixed_columns():
    generator = torch.Generator().manual_seed(0)
    group = torch.randint(0, 2, (2, 100, 1), generator=generator).double()
    sign = 2 * group - 1
    real = normal(1, 2, 100, 1)
    # Each column alone is the same in both; who goes with whom is not.
    x = torch.cat([real[0] + sign[0], group[0]], dim=1)
    y = torch.cat([real[1] - sign[1], group[1]], dim=1)
    assert ke.two_sample_test(x, y, seed=0, categorical=[1]).pvalue < 0.01
    assert ke.two_sample_test(x[:, :1], y[:, :1], seed=0).pvalue > 0.05
    kernel = ke.two_sample_test(x, y, seed=0, categorical=[-1]).kernel
    K = ke.gram(kernel, x[:4])
    spread = Encoding(torch.cat([x, y]), [1]).spread
    ell = kernel.base_kernel.lengthscale.item()
    share = torch.cat([x, y])[:, 1].mean().item()
    variance = 2 * share * (1 - share)
    apart = (x[0, 0] - x[1, 0]).item() / spread.item()
    expected = np.exp(-0.5 * (apart**2 + 2 * float(x[0, 1] != x[1, 1]) / variance) / ell**2)
    assert K[0, 1].item() == pytest.approx(expected, rel=1e-6)


def test_several_kernels_and_one_chosen_on_a_split():
    x, y = clusters(200)
    result = ke.two_sample_test(x, y, [rbf(1.0), rbf(30.0)], seed=0)
    assert result.pvalue < 0.01
    assert result.kernel.lengthscale.item() == pytest.approx(1.0)
    assert len(result.kernels) == len(result.pvalues) == 2
    result = ke.two_sample_test(x, y + 3.0, "split", seed=0)
    assert result.sizes == (100, 100)
    assert result.pvalue < 0.05
    assert ke.independence_test(x, x + y, "split", seed=0).pvalue < 0.05


def test_bayes_factor_points_the_same_way():
    x, y = normal(0, 200, 2), normal(1, 200, 2)
    assert ke.hypothesis.log_bayes_factor(x, y) < -1
    assert ke.hypothesis.log_bayes_factor(x, y + 1.0) > 10
    more = ke.hypothesis.log_bayes_factor(torch.cat([x, normal(2, 400, 2)]), torch.cat([y, normal(3, 400, 2)]))
    assert more < ke.hypothesis.log_bayes_factor(x, y), "with more data more for one distribution"
    each = [np.exp(ke.hypothesis.log_bayes_factor(x, y, rbf(ell))) for ell in (0.5, 2.0)]
    together = ke.hypothesis.log_bayes_factor(x, y, [rbf(0.5), rbf(2.0)])
    assert together == pytest.approx(np.log(np.mean(each)), rel=1e-9), "the mean of the factors"


def test_the_prior_of_a_bayes_factor_knows_a_squared_exponential_however_it_is_written():
    x, y = normal(0, 60, 2), normal(1, 60, 2) + 0.5
    plain, scaled, product = RBFKernel(), ScaleKernel(RBFKernel()), RBFKernel() * RBFKernel()
    plain.lengthscale = scaled.base_kernel.lengthscale = 1.0
    scaled.outputscale = 1.0
    for part in product.kernels:
        part.lengthscale = 2.0**0.5
    expected = ke.hypothesis.log_bayes_factor(x, y, plain)
    assert ke.hypothesis.log_bayes_factor(x, y, scaled) == pytest.approx(expected, rel=1e-4)
    assert ke.hypothesis.log_bayes_factor(x, y, product) == pytest.approx(expected, rel=1e-4)
    # Units do not matter: r(x, x) is 1.
    plain.lengthscale = 100.0
    assert ke.hypothesis.log_bayes_factor(100 * x, 100 * y, plain) == pytest.approx(expected, rel=1e-4)
    # On some columns alone it has no closed form under Lebesgue measure, and a discrete one takes its place.
    assert np.isfinite(ke.hypothesis.log_bayes_factor(x, y, RBFKernel(active_dims=[0])))


def test_the_mean_factor_of_equal_distributions_is_at_most_one():
    """A bet that is fair if there is one distribution: the factor is above 20 with probability 1/20 at most; more than
    14 of 100 times has 1e-4."""
    factors = [
        ke.hypothesis.log_bayes_factor(normal(2 * s, 30, 1), normal(2 * s + 1, 30, 1), "median") for s in range(100)
    ]
    assert sum(factor > np.log(20.0) for factor in factors) <= 14
    assert np.mean(np.exp(factors)) < 1.5


def test_a_result_shows_its_null_distribution_and_where_samples_differ():
    x, y = normal(0, 2, 20, 1)
    result = ke.two_sample_test(x, y + 2, seed=0)
    assert any("p = " in text.get_text() for text in result.plot().get_legend().get_texts())
    first, second = result.witness()(torch.tensor([[0.0], [2.0]], dtype=torch.float64)).mean
    assert first > 0 > second
    assert repr(result).startswith("<two-sample test (n = 20, 20): p = ")
    assert ke.independence_test(x, y, seed=0).plot() is not None
    matplotlib.pyplot.close("all")
