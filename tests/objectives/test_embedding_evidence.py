"""Eq. (13): a loop-written oracle, appendix A.5, gradients, learning, maxima, and input nobody wants."""

import copy

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, PolynomialKernel, RBFKernel, RQKernel, ScaleKernel
from linear_operator.utils.errors import NanError

import kernel_embed as ke
from kernel_embed.embeddings.bayesian import BayesianMeanEmbedding
from kernel_embed.kernels.smoothed import DiscreteMeasure, GaussianMeasure, LebesgueMeasure
from kernel_embed.learning.maxima import local_maxima
from kernel_embed.objectives.evidence import EmbeddingEvidence

from .. import oracles
from ..bayesian_kernels import rbf, shaken
from ..explicit_kernels import Implicit


@pytest.mark.parametrize("lengthscale", [(0.6,), (0.5, 1.1)])
def test_value_and_gradient_are_those_of_the_paper(lengthscale, x):
    x = x[:, : len(lengthscale)]
    kernel = rbf(*lengthscale)
    embedding = BayesianMeanEmbedding(kernel, noise=0.1)
    value = EmbeddingEvidence()(embedding, x)
    expected = oracles.evidence(x.numpy(), np.array(lengthscale), 0.1)
    assert value.item() == pytest.approx(-expected, rel=1e-9)
    value.backward()
    slope = torch.autograd.grad(kernel.lengthscale.sum(), kernel.raw_lengthscale)[0].numpy().ravel()
    paper = -oracles.evidence_gradient(x.numpy(), np.array(lengthscale), 0.1) * slope
    np.testing.assert_allclose(kernel.raw_lengthscale.grad.numpy().ravel(), paper, rtol=1e-7)


EMBEDDINGS = {
    "rbf": lambda x: BayesianMeanEmbedding(rbf(0.6, 0.9), learn_noise=True),
    "scaled matern": lambda x: BayesianMeanEmbedding(shaken(ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2)))),
    "gaussian measure": lambda x: BayesianMeanEmbedding(
        rbf(0.6), measure=GaussianMeasure(torch.tensor(1.5).double(), learn=True), learn_noise=True
    ),
    "unit": lambda x: BayesianMeanEmbedding(rbf(0.6, 0.9), measure=LebesgueMeasure(unit=True)),
    "discrete": lambda x: BayesianMeanEmbedding(rbf(0.6, 0.9), measure=DiscreteMeasure(x[:6]), learn_noise=True),
    "heteroscedastic": lambda x: BayesianMeanEmbedding(rbf(0.6, 0.9), noise="heteroscedastic"),
    "heteroscedastic, discrete": lambda x: BayesianMeanEmbedding(shaken(RQKernel()), noise="heteroscedastic"),
    "central limit": lambda x: BayesianMeanEmbedding(rbf(0.6, 0.9), noise="central-limit"),
    "central limit, discrete": lambda x: BayesianMeanEmbedding(shaken(RQKernel()), noise="central-limit"),
    "sum": lambda x: BayesianMeanEmbedding(shaken(RBFKernel() + ScaleKernel(MaternKernel(nu=0.5)))),
    "product": lambda x: BayesianMeanEmbedding(shaken(PeriodicKernel() * MaternKernel(nu=2.5))),
}


@pytest.mark.parametrize("name", EMBEDDINGS)
def test_gradient_is_that_of_differences(name, x):
    embedding = EMBEDDINGS[name](x)
    check_gradient(embedding, x)


def check_gradient(embedding, x, objective=None, rtol=1e-5, atol=1e-6, step=3e-5):
    objective = objective or EmbeddingEvidence()
    embedding.zero_grad()
    objective(embedding, x).backward()
    for name, parameter in embedding.named_parameters():
        if not parameter.requires_grad or parameter.grad is None:
            continue
        direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)).to(parameter)
        ends = []
        with torch.no_grad():
            for move in (step, -2.0 * step):
                parameter.add_(move * direction)
                ends.append(objective(embedding, x).item())
            parameter.add_(step * direction)
        numerical = (ends[0] - ends[1]) / (2.0 * step)
        analytic = (parameter.grad * direction).sum().item()
        assert analytic == pytest.approx(numerical, rel=rtol, abs=atol * (1 + abs(ends[0]))), name


def test_a_batch_of_locations(x):
    embedding = BayesianMeanEmbedding(rbf(0.6), measure=DiscreteMeasure(x[:6]))
    objective = EmbeddingEvidence(num_locations=7, seed=3)
    rows = torch.randperm(20, generator=torch.Generator().manual_seed(3))[:7]
    conditioned = embedding.condition(x, locations=rows)
    expected = conditioned.negative_log_density() - conditioned.empirical.log_slope.sum()
    torch.testing.assert_close(objective(embedding, x), expected)
    torch.testing.assert_close(objective(embedding, x), objective(embedding, x))
    torch.testing.assert_close(EmbeddingEvidence(num_locations=50)(embedding, x), EmbeddingEvidence()(embedding, x))
    check_gradient(embedding, x, objective)
    assert repr(objective) == "EmbeddingEvidence(num_locations=7, seed=3)"
    with pytest.raises(ValueError, match="at least 2"):
        EmbeddingEvidence(num_locations=1)


def test_low_rank_and_dense_are_one_density(x):
    embedding = BayesianMeanEmbedding(rbf(0.6), measure=DiscreteMeasure(x[:6]))
    dense = BayesianMeanEmbedding(rbf(0.6), covariance=Implicit(embedding.covariance))
    torch.testing.assert_close(EmbeddingEvidence()(embedding, x), EmbeddingEvidence()(dense, x))


def test_it_is_a_sum_over_data_that_identifies_the_scale(x):
    assert not EmbeddingEvidence().per_datum
    assert EmbeddingEvidence().identifies_scale
    with pytest.raises(ValueError, match="objectives of one kind"):
        EmbeddingEvidence() + ke.EmpiricalRisk()
    with pytest.raises(TypeError, match="BayesianMeanEmbedding conditioned"):
        EmbeddingEvidence().evaluate(ke.ConditionalEmbedding(rbf(0.6)).condition(x, x[:, 0]))


def test_adam_draws_other_locations_in_every_epoch(x):
    embedding = BayesianMeanEmbedding(RBFKernel(ard_num_dims=2), measure=DiscreteMeasure(x[:6]))
    objective = EmbeddingEvidence(num_locations=8)
    result = ke.fit(embedding, objective, x, optimizer=ke.Adam(4, 1e-9), seed=0)
    values = [record["value"] for record in result.history]
    assert len({round(value, 3) for value in values}) == 4


def clusters(seed=0, n=60):
    generator = np.random.RandomState(seed)
    return torch.as_tensor(np.repeat([[-30.0, 0.0], [30.0, 0.0], [0.0, 40.0]], n // 3, axis=0) + generator.randn(n, 2))


def test_local_maxima_are_all_found_and_are_maxima():
    x = clusters()
    embedding = BayesianMeanEmbedding(RBFKernel())
    before = copy.deepcopy(embedding.state_dict())
    maxima = local_maxima(embedding, EmbeddingEvidence(), x, num_points=25)
    assert all(torch.equal(before[name], value) for name, value in embedding.state_dict().items())
    lengthscales = [maximum.parameters["kernel.lengthscale"].item() for maximum in maxima]
    assert len(maxima) == 2
    assert min(lengthscales) < 3
    assert max(lengthscales) > 15
    assert [m.value for m in maxima] == sorted((m.value for m in maxima), reverse=True)
    for maximum in maxima:
        at = -EmbeddingEvidence()(maximum.embedding, x).item()
        assert at == pytest.approx(maximum.value)
        for factor in (0.97, 1.03):
            near = copy.deepcopy(maximum.embedding)
            near.kernel.lengthscale = near.kernel.lengthscale * factor
            assert -EmbeddingEvidence()(near, x).item() < at


def test_local_maxima_without_lengthscales_and_with_priors(x):
    assert len(local_maxima(BayesianMeanEmbedding(PolynomialKernel(2)), EmbeddingEvidence(), x)) == 1
    prior = gpytorch.priors.LogNormalPrior(0.0, 0.5)
    maxima = local_maxima(
        BayesianMeanEmbedding(RBFKernel(lengthscale_prior=prior)), EmbeddingEvidence(), x, num_points=9
    )
    best = maxima[0]
    log_prior = best.embedding.kernel.lengthscale_prior.log_prob(best.embedding.kernel.lengthscale).sum().item()
    assert best.value == pytest.approx(-EmbeddingEvidence()(best.embedding, x).item() + log_prior)
    with pytest.raises(ValueError, match="num_points"):
        local_maxima(BayesianMeanEmbedding(RBFKernel()), EmbeddingEvidence(), x, num_points=2)


AWKWARD = {
    "repeated points": lambda x: torch.cat([x, x[:7], x[:7]]),
    "points far apart": lambda x: 1e5 * x,
    "a constant column": lambda x: torch.cat([x, torch.full((20, 1), 7.0, dtype=torch.float64)], dim=1),
    "large offsets": lambda x: x + 1e6,
    "two points": lambda x: x[:2],
}


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("kernel", [RBFKernel(), MaternKernel(nu=0.5), MaternKernel(nu=1.5)], ids=["rbf", "m12", "m32"])
def test_awkward_samples_have_finite_values_gradients_and_posteriors(kernel, name, x):
    embedding, sample = BayesianMeanEmbedding(copy.deepcopy(kernel).double()), AWKWARD[name](x)
    value = EmbeddingEvidence()(embedding, sample)
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(embedding.kernel.raw_lengthscale.grad).all()
    posterior = embedding.condition(sample)(sample[:3])
    assert torch.isfinite(posterior.mean).all()
    assert torch.isfinite(posterior.covariance_matrix).all()
    if name == "large offsets":
        assert value.item() == pytest.approx(EmbeddingEvidence()(embedding, x).item(), rel=1e-4)


def test_unusable_samples_are_refused(x):
    embedding = BayesianMeanEmbedding(rbf(1.0))
    with pytest.raises(ValueError, match=r"at least 2 points, got 1"):
        EmbeddingEvidence()(embedding, torch.zeros(1, 2, dtype=torch.float64))
    with pytest.raises(NanError, match="copies of one"):
        EmbeddingEvidence()(embedding, torch.zeros(5, 2, dtype=torch.float64))
    # the posterior itself is well defined
    assert torch.isfinite(embedding.condition(torch.zeros(1, 2, dtype=torch.float64))(torch.ones(1, 2).double()).mean)
    for kernel in (rbf(1.0, 2.0, 3.0), MaternKernel(ard_num_dims=3).double()):
        with pytest.raises(ValueError, match=r"Expected 3 features"):
            EmbeddingEvidence()(BayesianMeanEmbedding(kernel), x)
    x[3, 1] = float("nan")
    with pytest.raises(ValueError, match=r"finite values in x, got 1 NaN"):
        EmbeddingEvidence()(embedding, x)
    x = torch.randn(2_000_000, 1, dtype=torch.float64)
    with pytest.raises(MemoryError, match=r"num_locations=2000"):
        _ = BayesianMeanEmbedding(rbf(1.0)).condition(x).system


def test_the_evidence_does_not_know_the_order_of_the_rows():
    """What makes label-blind learning exact: the atoms of a sample are those of the set of its points."""
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[7] = x[3]
    moved = x[torch.randperm(60, generator=torch.Generator().manual_seed(1))]
    for kernel in (MaternKernel(nu=1.5), PolynomialKernel(power=2)):
        embedding = ke.BayesianMeanEmbedding(kernel.double(), measure=DiscreteMeasure.from_sample(x, 20))
        other = ke.BayesianMeanEmbedding(kernel.double(), measure=DiscreteMeasure.from_sample(moved, 20))
        with torch.no_grad():
            one, two = EmbeddingEvidence()(embedding, x), EmbeddingEvidence()(other, moved)
        assert float(one) == pytest.approx(float(two), rel=1e-9)
    default = ke.BayesianMeanEmbedding(PolynomialKernel(power=2).double())
    with torch.no_grad():
        one, two = (EmbeddingEvidence()(default, order) for order in (x, moved))
    assert float(one) == pytest.approx(float(two), rel=1e-9)
