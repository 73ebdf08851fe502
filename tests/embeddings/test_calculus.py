"""Sum, chain and Bayes' rule on embeddings: against loops, and against the linear Gaussian case."""

import pytest
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed.embeddings import bayes_rule, chain_rule, sum_rule
from kernel_embed.kernels.approximations import nystrom_kernel


def pairs(n: int = 30):
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(-2, 2, n, dtype=torch.float64).unsqueeze(-1)
    return x, x + 0.3 * torch.randn(n, 1, generator=generator, dtype=torch.float64)


def made() -> ke.ConditionalEmbedding:
    return ke.ConditionalEmbedding(RBFKernel(), 1e-2, RBFKernel()).double()


def test_the_rules_are_their_formulas():
    x, y = pairs()
    embedding = made()
    conditioned = embedding.condition(x, y)
    u = torch.tensor([[0.1], [0.7], [-0.4]], dtype=torch.float64)
    prior = ke.MeanEmbedding(embedding.kernel).condition(u)
    K = ke.gram(embedding.kernel, x).detach()
    B = torch.linalg.solve(
        K + 30 * embedding.regularization.item() * torch.eye(30).double(), ke.gram(embedding.kernel, x, u)
    )
    alpha = (B @ prior.weights).detach()
    torch.testing.assert_close(sum_rule(conditioned, prior).weights, alpha)
    joint = chain_rule(conditioned, prior)
    torch.testing.assert_close(joint.weights, (B * prior.weights).detach())
    g = torch.cos(y) * u.squeeze(-1)
    torch.testing.assert_close(joint.expectation(g), (joint.weights * g).sum())
    torch.testing.assert_close(joint.expectation(lambda y, x: torch.cos(y) * x), joint.expectation(g))
    torch.testing.assert_close(joint.expectation(lambda y, x: (torch.cos(y) * x).sum(-1)), joint.expectation(g))
    # the joint has the sum rule as its margin
    torch.testing.assert_close(joint.weights.sum(1), alpha)
    # Bayes: (L + ηD⁻¹)⁻¹ l(y), over the pairs that count
    kept = alpha > 0
    D = alpha[kept] * (kept.sum() / alpha[kept].sum())
    L = ke.gram(embedding.target_kernel, y[kept]).detach()
    eta = 0.05 * kept.sum()
    at = torch.tensor([[0.3]], dtype=torch.float64)
    w = torch.linalg.solve(L + eta * torch.diag(1 / D), ke.gram(embedding.target_kernel, y[kept], at).detach())
    posterior = bayes_rule(conditioned, prior, 0.05)
    torch.testing.assert_close(posterior.weights(at), w, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(posterior.y, x[kept].squeeze(-1))


def gaussian(lengthscale: float, n: int):
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    if n <= 2000:
        return kernel
    return nystrom_kernel(kernel, torch.linspace(-4.5, 5.5, 100, dtype=torch.float64).unsqueeze(-1))


def relative_errors(n: int, seeds: int = 4):
    """For each sample of n pairs, mean |m̂(y) − m(y)| over that of |m(y)|, m(y) = E[X | Y = y].

    X ~ N(½, 0.7²) by 300 of its quantiles, Y = X + ½ε from n pairs whose X is spread evenly over [−2.5, 3.5]; y within
    1.5 standard deviations of its mean. λ of the likelihood is 10⁻³, that of the posterior 1/n.
    """
    y = torch.linspace(-0.8, 1.8, 14, dtype=torch.float64).unsqueeze(-1)
    precision = 0.7**-2 + 0.5**-2
    exact = ((0.5 * 0.7**-2 + y * 0.5**-2) / precision).squeeze(-1)
    levels = (torch.arange(300, dtype=torch.float64) + 0.5) / 300
    u = (0.5 + 0.7 * torch.special.ndtri(levels)).unsqueeze(-1)
    kernel, target = gaussian(0.5, n), gaussian(2.0, n)
    embedding = ke.ConditionalEmbedding(kernel, 1e-3, target).double()
    x = torch.linspace(-2.5, 3.5, n, dtype=torch.float64).unsqueeze(-1)
    errors = []
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)
        pairs = embedding.condition(x, x + 0.5 * torch.randn(n, 1, generator=generator, dtype=torch.float64))
        posterior = bayes_rule(pairs, ke.MeanEmbedding(kernel).condition(u), 1.0 / n)
        errors.append((posterior.distribution(y).mean - exact).abs().mean() / exact.abs().mean())
    return torch.stack(errors)


def test_linear_gaussian_posterior_means_come_near_with_the_rows():
    """Means over two samples."""
    assert relative_errors(300, seeds=2).mean() < 0.12
    assert relative_errors(1000, seeds=2).mean() < 0.06
    assert relative_errors(8000, seeds=2).mean() < 0.02  # through features


def test_the_posterior_through_features_is_the_exact_one():
    x, y = pairs()
    prior = torch.tensor([[0.1], [0.7], [-0.4]], dtype=torch.float64)
    at = torch.tensor([[0.3], [-1.0]], dtype=torch.float64)
    answers = []
    for make in (lambda kernel: kernel, lambda kernel: nystrom_kernel(kernel, torch.cat([x, y]))):
        kernel, target = make(RBFKernel().double()), make(RBFKernel().double())
        embedding = ke.ConditionalEmbedding(kernel, 1e-2, target).double()
        posterior = bayes_rule(embedding.condition(x, y), ke.MeanEmbedding(kernel).condition(prior), 0.05)
        answers.append(posterior.distribution(at).mean)
    torch.testing.assert_close(answers[1], answers[0], rtol=1e-5, atol=1e-7)


def test_what_is_missing_or_of_another_kind_is_named():
    x, y = pairs()
    conditioned, prior = made().condition(x, y), ke.MeanEmbedding(made().kernel).condition(x)
    far = ke.MeanEmbedding(RBFKernel().double()).condition(torch.full((2, 1), 1e6, dtype=torch.float64))
    for call, error, message in [
        (
            lambda: sum_rule(ke.ConditionalEmbedding(made().kernel).condition(x, y), prior),
            ValueError,
            "no target kernel",
        ),
        (lambda: bayes_rule(conditioned, far), ValueError, "No training pair has a positive weight"),
        (lambda: bayes_rule(conditioned, prior, 0.0), ValueError, "regularization"),
        (
            lambda: chain_rule(conditioned, prior).expectation(lambda y, x: y),
            ValueError,
            "one value of g for each pair",
        ),
        *[
            (lambda rule=rule, pair=pair: rule(*pair), TypeError, message)
            for rule in (sum_rule, chain_rule, bayes_rule)
            for pair, message in (
                ((prior, conditioned), r"got WeightedEmbedding\. Give ConditionalEmbedding"),
                ((conditioned, x), "Expected an embedded distribution of X, got Tensor"),
            )
        ],
    ]:
        with pytest.raises(error, match=message):
            call()
