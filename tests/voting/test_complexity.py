"""Complexity bounds against enumeration, against loops, and above the complexity itself."""

import math

import gpytorch
import numpy as np
import pytest

from kernel_embed import voting
from kernel_embed.voting import KernelFamily

from . import oracle


@pytest.fixture(scope="module")
def kernels():
    matern = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5))
    matern.outputscale = 3.0
    return [*voting.polynomial_kernels([1, 3, 7]), *voting.gaussian_kernels([0.01, 1.0, 30.0]), matern]


def test_monte_carlo_agrees_with_all_signs():
    rng = np.random.default_rng(0)
    for K in (rng.normal(size=(8, 8)), np.exp(-((rng.normal(size=(8, 1)) - rng.normal(size=8)) ** 2))):
        exact = oracle.rademacher_by_enumeration(K)
        estimate = voting.monte_carlo(K, num_draws=20_000)
        assert abs(estimate.value - exact) < 5 * estimate.standard_error


def test_every_bound_lies_above_the_complexity(sample, kernels):
    x, _ = sample
    family = KernelFamily(kernels)
    for kernel, K in zip(family.kernels, family.grams(x, x), strict=True):
        estimate = voting.monte_carlo(K)
        above = estimate.value + 5 * estimate.standard_error
        assert voting.trace_bound(K) > above
        assert voting.massart_bound(K) > above
        assert voting.local_bound(K, radius=np.inf) > above
        if isinstance(kernel, gpytorch.kernels.PolynomialKernel):
            assert voting.dimension_bound(K, 2, int(kernel.power)) > above


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_local_bound_lies_above_the_complexity_near_zero(sample, kernels, share):
    """The functions K(·, x_j) with mean square at most r, and no others."""
    x, _ = sample
    for K in KernelFamily(kernels).grams(x, x):
        squares = (K**2).mean(axis=0)
        radius = float(np.quantile(squares, share))
        estimate = voting.monte_carlo(K[:, squares <= radius])
        assert voting.local_bound(K, radius) > estimate.value


def test_trace_bound_in_loops(sample):
    x, _ = sample
    K = KernelFamily(voting.polynomial_kernels([2])).gram(0, x, x)
    diagonal = [(float(a @ a) + 1) ** 2 for a in x]
    expected = math.sqrt(max(diagonal)) * math.sqrt(sum(diagonal)) / len(x)
    assert voting.trace_bound(K) == pytest.approx(expected, rel=1e-12)
    d = oracle.binomial_by_product(2, 2)
    assert voting.dimension_bound(K, 2, 2) == pytest.approx(
        12 * max(diagonal) * math.sqrt(math.pi * d / len(x)), rel=1e-12
    )


def test_feature_dimension_counts_monomials():
    for n, k in [(1, 4), (3, 2), (9, 10), (166, 10)]:
        assert voting.feature_dimension(n, k) == pytest.approx(oracle.binomial_by_product(n, k), rel=1e-12)
    # (xᵀz + 1)^k of n features has a Gram of exactly that rank.
    x = np.random.default_rng(0).normal(size=(40, 3))
    assert np.linalg.matrix_rank(
        KernelFamily(voting.polynomial_kernels([2])).gram(0, x, x)
    ) == voting.feature_dimension(3, 2)


def test_local_bound_in_loops_and_its_limits(sample):
    x, _ = sample
    K = KernelFamily(voting.gaussian_kernels([2.0])).gram(0, x, x)
    values = [max(v, 0.0) for v in np.linalg.eigvals(K / len(x)).real]
    for radius in (1e-4, 1e-2, 1.0):
        expected = math.sqrt(2 / len(x) * sum(min(radius, v) for v in values))
        assert voting.local_bound(K, radius) == pytest.approx(expected, rel=1e-9)
    # The other form of section 5.3: the least over θ of θ r + the tail beyond θ.
    ordered = sorted(values, reverse=True)
    least = min(theta * 1e-2 + sum(ordered[theta:]) for theta in range(len(ordered) + 1))
    assert voting.local_bound(K, 1e-2) == pytest.approx(math.sqrt(2 / len(x) * least), rel=1e-9)
    assert voting.local_bound(K, np.inf) == pytest.approx(math.sqrt(2) * voting.trace_bound(K), rel=1e-9)


def test_own_radius_is_the_fixed_point(sample, kernels):
    x, _ = sample
    for K in KernelFamily(kernels).grams(x, x):
        radius = voting.own_radius(K)
        assert voting.local_bound(K, radius) == pytest.approx(radius, rel=1e-8)
        assert voting.local_bound(K) == pytest.approx(radius, rel=1e-8)
        r = 1.0
        for _ in range(12):  # the map contracts: each step halves the distance at least, in logarithms
            r = voting.local_bound(K, r)
        assert np.log(r / radius) == pytest.approx(0.0, abs=abs(np.log(radius)) / 2**11)


def test_local_complexity_tells_normalised_kernels_apart(sample):
    """Lemma 3 cannot: every Gaussian has κ = 1 and trace m."""
    x, _ = sample
    grams = KernelFamily(voting.gaussian_kernels([0.01, 1.0, 100.0])).grams(x, x)
    assert np.ptp([voting.trace_bound(K) for K in grams]) < 1e-12
    local = [voting.local_bound(K) for K in grams]
    assert local[0] < local[1] < local[2]


def test_choices(sample):
    x, _ = sample
    family = KernelFamily([*voting.polynomial_kernels([1, 2]), lambda a, b: np.abs(a[:, :1] - b[:, 0])])
    grams = family.grams(x, x)
    np.testing.assert_array_equal(
        voting.complexities(family, x, grams=grams).values, voting.complexities(family.kernels, x.tolist()).values
    )
    assert voting.complexities(family, x, "trace").rules == ["Lemma 3", "Lemma 3", "Massart"]
    assert voting.complexities(family, x, "local").rules == ["local", "local", "Massart"]
    assert voting.complexities(family, x, "monte_carlo", grams=grams).rules == ["Monte Carlo"] * 3
    assert voting.complexities(family, x, [1, 2, 3]).values.tolist() == [1.0, 2.0, 3.0]
    for message, call, *arguments in (
        ("for polynomial kernels only; kernel 2", voting.complexities, family, x, "dimension"),
        ("one of trace, dimension", voting.complexities, family, x, "volume"),
        ("3 numbers, one per kernel", voting.complexities, family, x, [1.0]),
        ("finite and at least 0", voting.complexities, family, x, [1.0, -1.0, 0.0]),
        ("lam must be", voting.penalties, -1.0, 0.0, np.ones(2)),
        ("radius", voting.local_bound, grams[0], 0.0),
        ("num_draws", voting.monte_carlo, grams[0], 1),
    ):
        with pytest.raises(ValueError, match=message):
            call(*arguments)


def test_the_local_choice_is_never_above_lemma_3(sample, kernels):
    """At r = ∞ the local bound is √2 times Lemma 3, which holds for all functions."""
    x, _ = sample
    trace = voting.complexities(kernels, x, "trace").values
    for radius in (None, 1e-2, 1.0, 1e3, np.inf):
        result = voting.complexities(kernels, x, "local", radius=radius)
        assert (result.values <= trace).all()
        for k, K in enumerate(KernelFamily(kernels).grams(x, x)):
            local = voting.local_bound(K, radius)
            if result.rules[k] == "local":
                assert result.values[k] == pytest.approx(local, rel=1e-12)
                assert result.radii[k] == pytest.approx(voting.own_radius(K) if radius is None else radius, rel=1e-12)
            else:
                assert local >= trace[k] == result.values[k]
                assert result.radii[k] == np.inf
    assert voting.complexities(kernels, x, "local", radius=np.inf).rules == ["Lemma 3"] * len(kernels)
