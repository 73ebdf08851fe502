"""Distributions of real targets: against loops, and the same from exact and approximate predictors."""

import copy
import math

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, RFFKernel
from torch.utils.data import DataLoader, TensorDataset

import kernel_embed as ke
from kernel_embed.embeddings import (
    Distribution,
    conformal_quantile,
    interval_scores,
    jackknife_plus_interval,
    prediction_sets,
)
from kernel_embed.embeddings.distribution import MAX_SUPPORT, resampled_rows, support_of


def problem(n: int = 40):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    y = torch.sin(6 * x.squeeze(-1)) + 0.3 * torch.randn(n, generator=generator, dtype=torch.float64)
    y[3] = y[8]
    return x, y


def embedding(kernel=None, regularization=0.01) -> ke.ConditionalEmbedding:
    kernel = kernel or RBFKernel()
    made = ke.ConditionalEmbedding(kernel, regularization).double()
    if isinstance(kernel, RBFKernel):
        kernel.lengthscale = 0.2
    return made


def test_the_distribution_function_is_that_of_the_weights_rearranged():
    x, y = problem()
    query = torch.tensor([[0.1], [0.5], [3.0]], dtype=torch.float64)
    conditioned = embedding().condition(x, y)
    w = conditioned.weights(query).numpy()
    support = np.unique(y.numpy())
    for k in range(3):
        v = 1.0 / len(y) + w[:, k] - w[:, k].sum() / len(y)
        raw = [sum(v[j] for j in range(len(y)) if y[j] <= t) for t in support]
        expected = np.clip(np.sort(raw), 0.0, 1.0)
        np.testing.assert_allclose(conditioned.distribution(query).F[k].numpy(), expected, atol=1e-10)
    # far from all data, the marginal distribution
    marginal = [(y.numpy() <= t).mean() for t in support]
    np.testing.assert_allclose(conditioned.distribution(query).F[2].numpy(), marginal, atol=1e-10)


def test_left_out_distributions_are_those_of_refits():
    x, y = problem(15)
    made = embedding()
    left_out = made.condition(x, y).leave_one_out_distribution()
    support, n = np.unique(y.numpy()), 15
    for i in (0, 7):
        others = torch.arange(n) != i
        refit = embedding(regularization=made.regularization.item() * n / (n - 1)).condition(x[others], y[others])
        w = refit.weights(x[i : i + 1]).squeeze(-1).numpy()
        rest, everyone = y[others].numpy(), y.numpy()
        raw = [(w * (rest <= t)).sum() + (1 - w.sum()) * (everyone <= t).mean() for t in support]
        np.testing.assert_allclose(left_out.F[i].numpy(), np.clip(np.sort(raw), 0, 1), atol=1e-8)


def test_predictions_follow_from_the_distribution_function():
    x, y = problem()
    query = torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
    conditioned = embedding().condition(x, y)
    d = conditioned.distribution(query)
    F, t, p = d.F.numpy(), d.support.numpy(), d.probabilities.numpy()
    assert (p >= 0).all()
    np.testing.assert_allclose(p.sum(1), 1.0)
    np.testing.assert_allclose(d.mean.numpy(), p @ t)
    np.testing.assert_allclose(conditioned.variance(query).numpy(), p @ t**2 - (p @ t) ** 2, atol=1e-12)
    levels = torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)
    quantiles = conditioned.quantile(levels, query).numpy()
    for k in range(5):
        for j, q in enumerate(levels.tolist()):
            assert quantiles[k, j] == t[np.argmax(F[k] >= q)]
    assert (np.diff(quantiles, axis=1) >= 0).all()
    np.testing.assert_array_equal(conditioned.interval(0.9, query).numpy(), quantiles[:, [0, 2]])
    np.testing.assert_array_equal(conditioned.quantile(0.5, query).numpy(), quantiles[:, 1])
    thresholds = torch.tensor([-9.0, 0.2, float(t[3]), 9.0], dtype=torch.float64)
    cdf = conditioned.cdf(thresholds, query).numpy()
    np.testing.assert_allclose(
        cdf, [[(p[k] * (t <= s)).sum() for s in thresholds.numpy()] for k in range(5)], atol=1e-12
    )
    np.testing.assert_allclose(conditioned.exceedance(0.2, query).numpy(), 1 - cdf[:, 1])
    grid = torch.linspace(-4, 4, 2001, dtype=torch.float64)
    density = conditioned.density(grid, query, bandwidth=0.1)
    np.testing.assert_allclose(torch.trapezoid(density, grid).numpy(), 1.0, atol=1e-6)


def test_crps_is_the_integral():
    d = Distribution(torch.tensor([0.0, 1.0, 3.0]).double(), torch.tensor([[0.2, 0.5, 1.0]] * 4).double())
    outcomes = torch.tensor([-1.0, 0.5, 2.0, 4.5]).double()
    fine = torch.linspace(-3, 6, 900_001, dtype=torch.float64)
    for y, ours in zip(outcomes, d.crps(outcomes), strict=True):
        integrand = (d.cdf(fine)[0] - (y <= fine).double()).square()
        assert ours.item() == pytest.approx(torch.trapezoid(integrand, fine).item(), abs=1e-4)
    read_only = outcomes.numpy().copy()
    read_only.flags.writeable = False  # as arrays of pandas are; no warning
    torch.testing.assert_close(d.crps(read_only), d.crps(outcomes))
    # and E|Y − y| − ½E|Y − Y′|
    t, p = d.support, d.probabilities[0]
    for y, ours in zip(outcomes, d.crps(outcomes), strict=True):
        kernel = (p * (t - y).abs()).sum() - 0.5 * (p[:, None] * p * (t[:, None] - t).abs()).sum()
        assert ours.item() == pytest.approx(kernel.item(), abs=1e-12)


def test_draws_have_the_distribution():
    x, y = problem()
    conditioned = embedding().condition(x, y)
    d = conditioned.distribution(x[:2])
    draws = conditioned.sample(20_000, x[:2], seed=0)
    assert draws.shape == (2, 20_000)
    # Kolmogorov's statistic exceeds 1.95/√k once in a thousand samples
    for k in range(2):
        empirical = (draws[k][:, None] <= d.support).double().mean(0)
        assert (empirical - d.F[k]).abs().max() < 1.95 / 20_000**0.5
    torch.testing.assert_close(draws, conditioned.sample(20_000, x[:2], seed=0))
    rows = conditioned.sample_rows(2000, x[:2], seed=0)
    assert (y[rows].mean(1) - d.mean).abs().max() < 0.15
    assert rows.shape == (2, 2000)


def test_features_and_approximations_agree():
    x, y = problem(60)
    query = torch.linspace(0, 1, 4, dtype=torch.float64).unsqueeze(-1)
    made = embedding()
    exact = made.condition(x, y).distribution(query)
    near, _ = ke.approximate(made, x, y, method=ke.Nystrom(60))
    torch.testing.assert_close(near.distribution(query).F, exact.F, atol=1e-4, rtol=0)
    torch.manual_seed(0)
    through = embedding(RFFKernel(5, num_dims=1)).condition(x, y)
    w = through.weights(query).mT
    v = 1.0 / 60 + w - w.sum(-1, keepdim=True) / 60
    raw = v @ (y[:, None] <= exact.support).double()
    torch.testing.assert_close(through.distribution(query).F, raw.sort().values.clamp(0, 1))


def test_many_targets_are_kept_at_their_quantiles():
    y = torch.randn(5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    support = support_of(y)
    assert len(support) == MAX_SUPPORT
    assert support[0] == y.min()
    assert support[-1] == y.max()
    assert bool((support.diff() > 0).all())
    assert len(support_of(torch.arange(7).repeat(1000).double())) == 7


def test_gradients_reach_the_kernel_through_an_attached_embedding():
    x, y = problem()
    made = embedding()
    made.attach(x, y).distribution(x[:3]).crps(y[:3]).sum().backward()
    assert made.kernel.raw_lengthscale.grad.abs().sum() > 0


X, Y = problem()
NAN = float("nan")
REJECTED = [
    *[
        (lambda c, q=q: c.quantile(q, X), "Expected quantile levels between 0 and 1")
        for q in (0.0, 1.0, -0.5, 2.0, NAN)
    ],
    *[(lambda c, q=q: c.interval(q, X), "Expected coverage between 0 and 1") for q in (0.0, 1.0, -0.5, 2.0, NAN)],
    *[
        (lambda c, bad=bad: c.distribution(X[:3]).crps(bad), r"Expected .* got .*")
        for bad in ("0", torch.full((3,), NAN), torch.zeros(2), 0.0)
    ],
    *[(lambda c, t=t: c.distribution(X[:3]).cdf(t), r"Expected .* got .*") for t in (NAN, None, torch.zeros(2, 2))],
    (lambda c: c.distribution(X[:3]).quantile("0.5"), r"Expected .* got .*"),
    (lambda c: c.density(Y, X, bandwidth=0.0), "bandwidth"),
    # predictors without real targets have no distribution
    (
        lambda c: ke.MulticlassEmbedding(RBFKernel().double(), 2).condition(X, (Y > 0).long()).cdf(0.0, X),
        "For class labels",
    ),
    (lambda c: embedding().condition(X, torch.stack([Y, Y], 1)).quantile(0.5, X), "one real target for each row"),
    (lambda c: ke.embeddings.Expansion(embedding(), X, torch.ones_like(X)).cdf(0.0, X), "which holds its targets"),
]


@pytest.mark.parametrize(("call", "message"), REJECTED, ids=[str(i) for i in range(len(REJECTED))])
def test_bad_arguments(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(embedding().condition(X, Y))


def test_rows_of_vectors_are_drawn_and_every_number_is_below_infinity():
    assert embedding().condition(X, torch.stack([Y, Y], 1)).sample_rows(3, X[:2], seed=1).shape == (2, 3)
    distribution = embedding().condition(X, Y).distribution(X[:3])
    assert distribution.cdf(float("inf")).tolist() == pytest.approx([1.0] * 3, abs=0.1)


def test_batches_of_kernels():
    x, y = problem(20)
    kernel = RBFKernel(batch_shape=torch.Size([2])).double()
    kernel.lengthscale = torch.tensor([[[0.1]], [[0.5]]])
    conditioned = ke.ConditionalEmbedding(kernel).condition(x, y)
    assert conditioned.quantile(torch.tensor([0.1, 0.9]), x[:3]).shape == (2, 3, 2)
    one = gpytorch.kernels.RBFKernel().double()
    one.lengthscale = 0.5
    alone = ke.ConditionalEmbedding(one).condition(x, y).distribution(x[:3]).F
    torch.testing.assert_close(conditioned.distribution(x[:3]).F[1], alone, atol=1e-7, rtol=0)


QUERY = torch.linspace(0, 1, 4, dtype=torch.float64).unsqueeze(-1)


def test_approximate_weights_are_near_the_exact_ones():
    exact = embedding().condition(X, Y)
    near, _ = ke.approximate(embedding(), X, Y, method=ke.Nystrom(40))
    torch.testing.assert_close(near.weights(QUERY), exact.weights(QUERY), atol=1e-4, rtol=0)
    # w is what carries any g: E[g(Y) | X = x] = Σ w_i(x) g(y_i)
    torch.testing.assert_close(near.weights(QUERY).mT @ Y.square(), near.expectation(torch.square, QUERY))
    assert torch.equal(near.sample_rows(5, QUERY, seed=0), exact.sample_rows(5, QUERY, seed=0))


def test_left_out_distributions_through_features_are_those_of_the_same_kernel():
    near, _ = ke.approximate(embedding(), X, Y, method=ke.Nystrom(12))
    same = ke.ConditionalEmbedding(near.embedding.kernel, 0.01).double().condition(X, Y)
    torch.testing.assert_close(
        near.leave_one_out_distribution().F, same.leave_one_out_distribution().F, atol=1e-8, rtol=0
    )


def test_a_posterior_averages_the_weights_of_its_draws():
    posterior = ke.sample_posterior(
        embedding(), ke.LeaveOneOutScore(), X, Y, num_samples=3, sampler=ke.Laplace(), seed=0
    )
    weights, left_out = 0.0, 0.0
    num_draws = len(posterior.weights)
    for s in range(num_draws):
        one = copy.deepcopy(embedding())
        one.initialize(**{name: values[s] for name, values in posterior.samples.items()})
        conditioned = one.condition(X, Y)
        weights = weights + conditioned.weights(QUERY) / num_draws
        left_out = left_out + conditioned.leave_one_out_distribution().F / num_draws
    torch.testing.assert_close(posterior.row_weights(QUERY), weights)
    torch.testing.assert_close(posterior.leave_one_out_distribution().F, left_out)
    torch.testing.assert_close(posterior.row_weights(QUERY).mT @ Y, posterior.mean(QUERY).squeeze(-1))
    assert torch.equal(posterior.sample_rows(4, QUERY, seed=2), resampled_rows(weights, 4, seed=2))


def test_rows_are_drawn_by_their_shares():
    w = torch.tensor([[0.5, -0.2], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    p = torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64)
    rows = resampled_rows(w, 40_000, seed=0, row_weights=p)
    for k in range(2):
        v = (w[:, k] + (1 - w[:, k].sum()) * p / 4).clamp_min(0)
        shares = torch.bincount(rows[k], minlength=3) / 40_000
        torch.testing.assert_close(shares.double(), v / v.sum(), atol=0.01, rtol=0)


def test_predictors_without_data_reject_what_needs_it():
    loader = DataLoader(TensorDataset(X, Y), batch_size=20)
    sums, _ = ke.approximate(embedding(), loader, method=ke.Nystrom(10))
    for call in (lambda: sums.weights(QUERY), lambda: sums.sample_rows(2, QUERY)):
        with pytest.raises(TypeError, match="does not hold its training data"):
            call()
    with pytest.raises(TypeError, match="which holds its targets"):
        sums.leave_one_out_distribution()
    labels = ke.MulticlassEmbedding(RBFKernel().double(), 2).condition(X, (Y > 0).long())
    with pytest.raises(TypeError, match="For class labels use"):
        labels.leave_one_out_distribution()
    with pytest.raises(ValueError, match="Expected k of at least 1"):
        labels.sample_rows(0, QUERY)


# --- conformal intervals and sets -------------------------------------------------------------------------------------


def sample(n: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    noise = (0.1 + 0.5 * x.squeeze(-1)) * torch.randn(n, generator=generator, dtype=torch.float64)
    return x, torch.sin(6 * x.squeeze(-1)) + noise


def embedding_for(n: int, ridge: float = 0.5) -> ke.ConditionalEmbedding:
    kernel = RBFKernel().double()
    kernel.lengthscale = 0.2
    return ke.ConditionalEmbedding(kernel, ridge / n).double()


def test_the_quantile_counts_the_new_row():
    scores = torch.tensor([3.0, 1.0, 2.0, 5.0])
    assert conformal_quantile(scores, 0.8) == 5.0
    assert conformal_quantile(scores, 0.6) == 3.0
    assert conformal_quantile(scores, 0.81) == math.inf
    assert conformal_quantile(torch.arange(9.0), 0.9) == 8.0  # 0.9 · 10 is not rounded up


def test_the_interval_is_that_of_n_refits_by_loops():
    n, coverage = 19, 0.8
    x, y = sample(n, 1)
    new = torch.tensor([[0.3], [0.8]], dtype=torch.float64)
    ours = jackknife_plus_interval(embedding_for(n).condition(x, y), new, coverage)
    support = y.sort().values
    ends = [[], []]
    for i in range(n):
        others = torch.arange(n) != i
        refit = embedding_for(n - 1).condition(x[others], y[others])

        def quantiles(points, refit=refit, others=others):
            w = refit.weights(points).mT
            v = w + (1.0 - w.sum(-1, keepdim=True)) / (n - 1)
            F = (v @ (y[others, None] <= support).double()).sort().values
            return [[support[next(j for j in range(n) if f[j] >= q)] for q in (0.1, 0.9)] for f in F]

        (low, high) = quantiles(x[i : i + 1])[0]
        score = max(low - y[i], y[i] - high)
        for k, (at_low, at_high) in enumerate(quantiles(new)):
            ends[k].append((at_low - score, at_high + score))
    for k in range(2):
        lows, highs = sorted(e[0].item() for e in ends[k]), sorted(e[1].item() for e in ends[k])
        assert ours[k, 0].item() == pytest.approx(lows[math.floor(0.2 * 20 + 1e-9) - 1], abs=1e-9)
        assert ours[k, 1].item() == pytest.approx(highs[math.ceil(0.8 * 20 - 1e-9) - 1], abs=1e-9)


def covered(n: int, draws: int, rule) -> float:
    hits = 0
    for seed in range(draws):
        x, y = sample(n + 1, seed)
        low, high = rule(x[:n], y[:n], x[n:])[0]
        hits += int(low <= y[n] <= high)
    return hits / draws


@pytest.mark.parametrize("n", [50, 200])
def test_coverage_over_many_samples(n):
    """Within 3.5 standard errors of 0.9 (one failure in 2,000 for a rule that is exact), and so far above 1 − 2α."""
    rate = covered(n, 500, lambda x, y, new: jackknife_plus_interval(embedding_for(n).condition(x, y), new, 0.9))
    assert abs(rate - 0.9) < 3.5 * math.sqrt(0.09 / 500)


def test_split_sets_of_classes_cover():
    """P ≥ 0.9 by the theorem: 1,000 samples fall 3.5 standard errors below it once in 4,000 times."""
    hits = sizes = 0
    for seed in range(1000):
        generator = torch.Generator().manual_seed(seed)
        p = torch.rand(31, 3, generator=generator).softmax(-1)
        y = torch.multinomial(p.pow(3), 1, generator=generator).squeeze(-1)  # the probabilities are wrong
        chosen = prediction_sets(p[:30], y[:30], p[30:], 0.9)
        hits += int(chosen[0, y[30]])
        sizes += int(chosen.sum())
    assert hits / 1000 > 0.9 - 3.5 * math.sqrt(0.09 / 1000)
    assert sizes < 3000
    assert bool(prediction_sets(p[:3], y[:3], p, 0.9).all())  # too few rows: every class


def test_too_few_rows_give_the_whole_line_and_weights_are_refused():
    x, y = sample(5, 0)
    interval = jackknife_plus_interval(embedding_for(5).condition(x, y), x, 0.9)
    assert torch.isinf(interval).all()
    with pytest.raises(ValueError, match="Expected coverage between 0 and 1"):
        jackknife_plus_interval(embedding_for(5).condition(x, y), x, 1.0)


def test_an_interval_without_ends_has_no_score():
    interval, y = torch.tensor([[0.0, math.inf], [0.0, 1.0]]), torch.tensor([1.0, 3.0])
    assert interval_scores(interval, y).tolist() == [-1.0, 2.0]
    with pytest.raises(ValueError, match="Expected intervals without NaN, got 1 NaN"):
        interval_scores(torch.tensor([[0.0, math.nan], [0.0, 1.0]]), y)
    with pytest.raises(ValueError, match="Expected finite values in y"):
        interval_scores(interval, y * math.nan)
