"""Guarantees against the last lines of their proofs, and which of them are certificates."""

import math

import gpytorch
import numpy as np
import pytest

from kernel_embed import VotedKernelClassifier, voting
from kernel_embed.bounds import log_share, round_up
from kernel_embed.voting import KernelFamily, gaussian_kernels, margin_bound, polynomial_kernels
from kernel_embed.voting.generalization import MARGIN_RATIO

from . import oracle


def test_theorem_1_by_hand():
    margins = np.array([0.1, 0.2, 0.5, -0.3] * 50)
    m, p, rho, delta, r = 200, 5, 0.2, 1.0 - 0.9, 0.03
    n = math.ceil(4 / rho**2 * math.log(rho**2 * m / math.log(p)))
    expected = 0.75 + 4 / rho * r + 2 / rho * math.sqrt(math.log(p) / m)
    expected += math.sqrt(n * math.log(p) / m + math.log(2 / delta) / (2 * m))
    result = margin_bound(margins, r, p, rho, confidence=0.9)
    assert (result.value, result.is_vacuous, result.confidence) == (pytest.approx(expected, rel=1e-12), True, 0.9)


def test_theorem_2_by_hand_and_its_faster_rate():
    m, p, rho, delta, r, K = 10**6, 5, 0.5, 1.0 - 0.9, 1e-4, 3.0
    n = math.ceil(8 / rho**2 * math.log(rho**2 * (1 + K / (K - 1)) * m / (40 * K * math.log(p))))
    expected = 6 * K / rho * r + 40 * K / rho**2 * math.log(p) / m + 5 * K * math.log(2 / delta) / m
    expected += 5 * K * n * math.log(p) / m
    assert margin_bound(np.ones(m), r, p, rho, 0.9, theorem=2, K=K).value == pytest.approx(expected, rel=1e-12)
    # The terms of Theorem 2 fall as 1/m, those of Theorem 1 as its root.
    first = [margin_bound(np.ones(size), 0.0, p, rho).confidence_term for size in (10**5, 10**7)]
    second = [margin_bound(np.ones(size), 0.0, p, rho, theorem=2).confidence_term for size in (10**5, 10**7)]
    assert 5 < first[0] / first[1] < 20
    assert 40 < second[0] / second[1] < 120


def margin_grid(rho):
    """The largest margin of the grid that is at most ρ, and its share of δ."""
    inverse, i = round_up(1 / rho, 1.0, MARGIN_RATIO)
    return 1 / inverse, math.exp(-log_share(i))


def union(p, n, delta):
    """log(p^n / δ_n) with δ_n = δ / (2 p^(n − 1)), as in eq. (4): log(2 p^(2n − 1) / δ)."""
    return math.log(2 / delta) + (2 * n - 1) * math.log(p)


def last_line_of_the_proof_1(rho, n, p, m, delta):
    """2 exp(−nϱ²/8) by Hoeffding, twice, and the union bound over the p^n families and all n, with ϱ = 2ρ/3."""
    return 2 * math.exp(-n * (2 * rho / 3) ** 2 / 8) + math.sqrt(union(p, n, delta) / (2 * m))


@pytest.mark.parametrize("p", [2, 10])
@pytest.mark.parametrize("rho", [0.9, 0.5, 0.2])
def test_the_uniform_form_lies_above_the_last_line_of_its_proof(p, rho):
    m = 100_000
    result = margin_bound(np.linspace(-1, 1, m), 0.01, p, rho, confidence=0.9, uniform=True)
    grid, share = margin_grid(rho)
    part = 2 * grid / 3
    n = math.ceil(4 / part**2 * math.log(part**2 * m / math.log(p)))
    proved = last_line_of_the_proof_1(grid, n, p, m, 0.1 * share)
    assert proved <= result.confidence_term < 1.05 * proved
    # The loss falls from ϱ/2 to ϱ with slope 2/ϱ; symmetrization doubles the complexity.
    assert result.complexity_term == pytest.approx(2 * (2 / part) * 0.01)
    assert result.margin_error == pytest.approx((1 + grid) / 2, abs=1e-4)
    assert (result.rho, result.confidence, result.kind) == (grid, 0.9, "certificate")


def test_the_published_theorem_2_lies_below_the_last_line_of_its_proof():
    """eq. (4) has (2n − 1) log p where the theorem prints n log p: why it is never a certificate."""
    m, p, rho, K, delta = 1_000_000, 5, 0.4, 2.0, 0.05
    n = math.ceil(8 / rho**2 * math.log(rho**2 * 3 * m / (40 * K * math.log(p))))
    proved = 3 * math.exp(-n * rho**2 / 8) + 5 * K * union(p, n, delta) / m
    margins = np.full(m, 0.5)
    assert margin_bound(margins, 0.0, p, rho, theorem=2).confidence_term < proved
    result = margin_bound(margins, 0.001, p, rho, uniform=True, theorem=2)
    assert result.kind == "estimate"
    assert "(2n − 1) log p" in result.reasons[0]
    assert result.rho <= rho


def test_the_grid_of_margins_spends_all_of_the_confidence():
    rhos = 2.0 ** (-np.arange(4000) / 8)
    grid, shares = np.array([margin_grid(rho) for rho in rhos]).T
    np.testing.assert_allclose(grid, rhos, rtol=1e-12)
    assert 1 - 1e-3 < shares.sum() < 1
    for rho in (0.7, 0.123, 1e-9):
        rounded, share = margin_grid(rho)
        assert rho / 2 ** (1 / 8) < rounded <= rho
        assert margin_grid(rounded) == pytest.approx((rounded, share), rel=1e-12)
        assert math.log(1 / share) < 2 * math.log(8 * math.log2(2 / rho) + 1)  # the price of appendix B
    assert margin_grid(5.0) == pytest.approx((1.0, 0.5))


@pytest.fixture(scope="module")
def vote(sample):
    x, y = sample
    return VotedKernelClassifier(gaussian_kernels([0.1, 1.0]), lam=1e-2, beta=1e-2, num_calibration_folds=0).fit(x, y)


def test_what_is_printed_is_an_estimate(vote):
    for theorem in (1, 2):
        result = vote.guarantee(theorem=theorem)
        assert result.kind == "estimate"
        assert "3ρ/2" in result.reasons[0]
        assert "those of the sample" in result.reasons[1]
    assert vote.guarantee(uniform=True, theorem=2).kind == "estimate"


def test_bounded_kernels_have_a_certificate(vote):
    result = vote.guarantee(uniform=True)
    assert (result.kind, result.reasons, result.confidence) == ("certificate", (), 0.95)
    A = sum(row["weight"] for row in vote.report())  # κ² = 1
    mean = 1 / math.sqrt(vote.margins_.shape[1])
    expected = margin_bound(vote.margins_[0] / A, mean, 2, (1 - 1e-6) / A, uniform=True)
    assert result == expected
    assert result.rho <= vote.guarantee().rho
    assert result.value > vote.guarantee().value
    assert vote.guarantee(result.rho, uniform=True) == result
    assert vote.guarantee(uniform=True, sup_diagonal=[1.0, 1.0]) == result
    assert vote.guarantee(uniform=True, sup_diagonal=[4.0, 4.0]).value > result.value


def test_a_certificate_takes_the_scale_of_the_kernel(sample):
    x, y = sample
    scaled = [gpytorch.kernels.ScaleKernel(kernel) for kernel in gaussian_kernels([0.1, 1.0])]
    for kernel in scaled:
        kernel.outputscale = 5.0
    settings = {"complexity": [1.0, 1.0], "num_calibration_folds": 0}
    plain = VotedKernelClassifier(gaussian_kernels([0.1, 1.0]), 0.01, 0.0, **settings).fit(x, y)
    other = VotedKernelClassifier(scaled, 0.05, 0.0, **settings).fit(x, y)
    assert other.guarantee(uniform=True).kind == "certificate"
    assert other.guarantee(0.3, uniform=True).value == pytest.approx(plain.guarantee(0.3, uniform=True).value)


def test_unbounded_kernels_need_a_bound_for_a_certificate(sample):
    x, y = sample
    x = x / np.linalg.norm(x, axis=1).max()
    vote = VotedKernelClassifier(polynomial_kernels([1, 2, 3]), num_calibration_folds=0).fit(x, y)
    result = vote.guarantee(uniform=True)
    assert result.kind == "estimate"
    assert "give sup_diagonal" in result.reasons[-1]
    assert vote.guarantee(uniform=True, sup_diagonal=[2.0, 4.0, 8.0]).kind == "certificate"  # ‖x‖ ≤ 1
    with pytest.raises(ValueError, match=r"\|K\| ≤ 3 for polynomial 2, but \|K\| is 4 "):
        vote.guarantee(uniform=True, sup_diagonal=[2.0, 3.0, 8.0])
    with pytest.raises(ValueError, match="one positive number per kernel, 3 in all"):
        vote.guarantee(uniform=True, sup_diagonal=2.0)


def test_what_is_not_positive_semidefinite_has_no_certificate(sample):
    x, y = sample
    kernels = [*gaussian_kernels([1.0]), lambda a, b: np.tanh(a @ b.T - 1.0)]
    vote = VotedKernelClassifier(kernels, num_calibration_folds=0).fit(x, y)
    assert vote.report()[1]["num_votes"] > 0
    assert vote.guarantee(uniform=True, sup_diagonal=[1.0, 1.0]).kind == "estimate"


def test_refusals(vote):
    for message, arguments in (
        *(("margin rho must be between", {"rho": rho}) for rho in (0.0, -1.0, math.nan)),
        ("between 0 and 1", {"confidence": 1.0}),
        ("K > 1", {"theorem": 2, "K": 1.0}),
        ("theorem must be 1 or 2", {"theorem": 3}),
    ):
        with pytest.raises(ValueError, match=message):
            vote.guarantee(uniform=True, **arguments)
    with pytest.raises(ValueError, match="at least one entry"):
        margin_bound(np.ones(0), 0.1, 2, 0.1)


def test_votes_that_the_local_complexity_does_not_count_are_counted(sample):
    x, y = sample
    vote = VotedKernelClassifier(polynomial_kernels([1, 2, 3]), complexity="local", radius=0.5).fit(x, y)
    assert vote.rules_ == ["local"] * 3
    counted = 0
    for k in range(3):
        K = vote.family_.grams(x, x)[k]
        used = np.flatnonzero(vote.vote_.weights[k])
        counted += sum(float((K[:, vote.support_[j]] ** 2).mean()) > 0.5 for j in used)
    result = vote.guarantee(theorem=2)
    assert 0 < counted == result.num_outside_radius == sum(vote.num_outside_radius_)
    assert f"for {counted} of the functions that vote" in result.reasons[-1]
    trace = VotedKernelClassifier(polynomial_kernels([1, 2, 3])).fit(x, y).guarantee(theorem=2)
    assert trace.num_outside_radius == 0


# --- complexities -----------------------------------------------------------------------------------------------------


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
    K = KernelFamily(voting.polynomial_kernels([2])).grams(x, x)[0]
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
        KernelFamily(voting.polynomial_kernels([2])).grams(x, x)[0]
    ) == voting.feature_dimension(3, 2)


def test_local_bound_in_loops_and_its_limits(sample):
    x, _ = sample
    K = KernelFamily(voting.gaussian_kernels([2.0])).grams(x, x)[0]
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
