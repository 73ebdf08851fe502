"""Sum, chain and Bayes' rule on embeddings: against loops, and against the linear Gaussian case."""

import pytest
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed.embeddings import bayes_rule, chain_rule, sum_rule
from kernel_embed.kernels.features import nystrom_kernel
from kernel_embed.lab.benchmarks.validity import relative_errors


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


def test_linear_gaussian_posterior_means_come_near_with_the_rows():
    """Means over two samples; ``kernel-embed benchmark --parts calculus`` has more and larger ones."""
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


def test_what_is_missing_is_named():
    x, y = pairs()
    without = ke.ConditionalEmbedding(RBFKernel().double()).condition(x, y)
    prior = ke.MeanEmbedding(RBFKernel().double()).condition(x[:3])
    with pytest.raises(ValueError, match="Expected an embedding with a target kernel"):
        sum_rule(without, prior)
    far = ke.MeanEmbedding(RBFKernel().double()).condition(torch.full((2, 1), 1e6, dtype=torch.float64))
    with pytest.raises(ValueError, match="under which no pair counts"):
        bayes_rule(made().condition(x, y), far)
    with pytest.raises(ValueError, match="regularization"):
        bayes_rule(made().condition(x, y), prior, 0.0)


def test_arguments_of_another_kind_are_refused_in_words():
    x, y = pairs()
    conditioned = made().condition(x, y)
    prior = ke.MeanEmbedding(made().kernel).condition(x)
    for rule in (sum_rule, chain_rule, bayes_rule):
        with pytest.raises(TypeError, match=r"got WeightedEmbedding\. Give ConditionalEmbedding"):
            rule(prior, conditioned)
        with pytest.raises(TypeError, match="Expected an embedded distribution of X, got Tensor"):
            rule(conditioned, x)
    with pytest.raises(ValueError, match="Expected one value of g for each pair"):
        chain_rule(conditioned, prior).expectation(lambda y, x: y)
