"""Conformal sets: closed forms against refits, and coverage counted over many samples."""

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed.embeddings import conformal_quantile, interval_scores, jackknife_plus_interval, prediction_sets


def sample(n: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    noise = (0.1 + 0.5 * x.squeeze(-1)) * torch.randn(n, generator=generator, dtype=torch.float64)
    return x, torch.sin(6 * x.squeeze(-1)) + noise


def embedding(n: int, ridge: float = 0.5) -> ke.ConditionalEmbedding:
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
    ours = jackknife_plus_interval(embedding(n).condition(x, y), new, coverage)
    support = y.sort().values
    ends = [[], []]
    for i in range(n):
        others = torch.arange(n) != i
        refit = embedding(n - 1).condition(x[others], y[others])

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
    rate = covered(n, 500, lambda x, y, new: jackknife_plus_interval(embedding(n).condition(x, y), new, 0.9))
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
    interval = jackknife_plus_interval(embedding(5).condition(x, y), x, 0.9)
    assert torch.isinf(interval).all()
    with pytest.raises(ValueError, match="Expected coverage between 0 and 1"):
        jackknife_plus_interval(embedding(5).condition(x, y), x, 1.0)


def test_an_interval_without_ends_has_no_score():
    interval, y = torch.tensor([[0.0, math.inf], [0.0, 1.0]]), torch.tensor([1.0, 3.0])
    assert interval_scores(interval, y).tolist() == [-1.0, 2.0]
    with pytest.raises(ValueError, match="Expected intervals without NaN, got 1 NaN"):
        interval_scores(torch.tensor([[0.0, math.nan], [0.0, 1.0]]), y)
    with pytest.raises(ValueError, match="Expected finite values in y"):
        interval_scores(interval, y * math.nan)
