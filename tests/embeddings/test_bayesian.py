"""Mean embeddings, shrinkage, and the posterior: equivalences with GPyTorch and with eq. (9)."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import PeriodicKernel, RBFKernel

import kernel_embed as ke
from kernel_embed.embeddings.bayesian import BayesianMeanEmbedding
from kernel_embed.embeddings.mean import MeanEmbedding, ShrinkageMeanEmbedding
from kernel_embed.embeddings.witness import Witness, feature_weights
from kernel_embed.kernels.smoothed import DiscreteMeasure, GaussianMeasure, SmoothedKernel
from kernel_embed.objectives.evidence import EmbeddingEvidence

from ..bayesian_kernels import ExactGP, rbf


def exact_gp(x, y, noise, covariance, query):
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise.expand(len(x)).clone())
    model = ExactGP(x, y, likelihood, covariance).double().eval()
    with gpytorch.settings.fast_computations(False, False, False), torch.no_grad():
        return model(query)


MEASURES = {
    "lebesgue": lambda x: None,
    "gaussian": lambda x: GaussianMeasure(torch.tensor(2.0, dtype=torch.float64)),
    "discrete": lambda x: DiscreteMeasure.from_sample(x, 8),
}


@pytest.mark.parametrize("measure", MEASURES)
def test_posterior_is_that_of_an_exact_gp(measure, x):
    kernel = rbf(0.7, 1.1)
    embedding = BayesianMeanEmbedding(kernel, noise=0.05, measure=MEASURES[measure](x))
    query = torch.randn(6, 2, dtype=torch.float64)
    posterior = embedding.condition(x)
    expected = exact_gp(x, posterior.observed, torch.tensor(0.05).double(), embedding.covariance, query)
    actual = posterior(query)
    assert isinstance(actual, gpytorch.distributions.MultivariateNormal)
    torch.testing.assert_close(actual.mean, expected.mean, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(actual.covariance_matrix, expected.covariance_matrix, rtol=1e-5, atol=1e-7)
    # eq. (7), at the data themselves
    R = embedding.covariance(x).to_dense()
    A = R + 0.05 * torch.eye(20, dtype=torch.float64)
    torch.testing.assert_close(posterior(x).mean, R @ torch.linalg.solve(A, posterior.observed), rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(posterior(x).covariance_matrix, R - R @ torch.linalg.solve(A, R), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(posterior.mean(query), actual.mean)
    noise = posterior.predictive(x).covariance_matrix - posterior(x).covariance_matrix
    torch.testing.assert_close(noise, 0.05 * torch.eye(20, dtype=torch.float64))
    torch.testing.assert_close(embedding.prior(x).covariance_matrix, R)
    assert torch.equal(embedding.prior(x).mean, torch.zeros(20, dtype=torch.float64))


def density(A, y):
    """−log N(y; 0, A)."""
    return -torch.distributions.MultivariateNormal(torch.zeros(20, dtype=torch.float64), A).log_prob(y)


def test_heteroscedastic_noise(x):
    kernel = rbf(0.7)
    posterior = BayesianMeanEmbedding(kernel, noise="heteroscedastic").condition(x)
    K = kernel(x).to_dense()
    torch.testing.assert_close(posterior.noise, K.var(dim=-1, correction=1) / 20, rtol=1e-5, atol=1e-10)
    query = torch.randn(5, 2, dtype=torch.float64)
    expected = exact_gp(x, posterior.observed, posterior.noise, SmoothedKernel(kernel), query)
    torch.testing.assert_close(posterior(query).mean, expected.mean, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(posterior(query).covariance_matrix, expected.covariance_matrix, rtol=1e-4, atol=1e-6)
    A = SmoothedKernel(kernel).gram(x) + posterior.noise.diag_embed()
    torch.testing.assert_close(posterior.negative_log_density(), density(A, posterior.observed))
    low_rank = BayesianMeanEmbedding(kernel, noise="heteroscedastic", measure=DiscreteMeasure(x[:7])).condition(x)
    Phi = low_rank.representation(x)
    expected = density(Phi @ Phi.mT + low_rank.noise.diag_embed(), low_rank.observed)
    torch.testing.assert_close(low_rank.negative_log_density(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("measure", [None, "discrete"])
def test_noise_of_the_central_limit_theorem(measure, x):
    kernel = rbf(0.7)
    measure = None if measure is None else DiscreteMeasure(x[:7])
    embedding = BayesianMeanEmbedding(kernel, noise="central-limit", measure=measure)
    posterior = embedding.condition(x)
    C = torch.cov(kernel(x).to_dense()) / 20
    C = C + 1e-4 * C.diagonal().mean() * torch.eye(20, dtype=torch.float64)
    R = embedding.covariance.gram(x)
    expected = density(R + C, posterior.observed)
    torch.testing.assert_close(posterior.negative_log_density(), expected, rtol=1e-5, atol=1e-4)
    query = torch.randn(5, 2, dtype=torch.float64)
    cross = embedding.covariance.gram(x, query)
    expected = cross.mT @ torch.linalg.solve(R + C, posterior.observed)
    torch.testing.assert_close(posterior(query).mean, expected, rtol=1e-3, atol=1e-4)
    observed = posterior.predictive(x).covariance_matrix - posterior(x).covariance_matrix
    torch.testing.assert_close(observed, C, rtol=1e-4, atol=1e-8)
    if measure is not None:
        mean, covariance = feature_weights(posterior)
        Phi = embedding.covariance.features(query)
        torch.testing.assert_close(Phi @ mean, posterior(query).mean)
        torch.testing.assert_close(Phi @ covariance @ Phi.mT, posterior(query).covariance_matrix)


def test_shrinkage_is_the_posterior_mean_when_r_is_k(x):
    kernel = rbf(0.7, 0.9)
    shrunk = ShrinkageMeanEmbedding(kernel, regularization=0.03).condition(x)
    bayes = BayesianMeanEmbedding(kernel, noise=20 * 0.03, covariance=kernel).condition(x)
    query = torch.randn(6, 2, dtype=torch.float64)
    torch.testing.assert_close(shrunk(query), bayes(query).mean)
    # eq. (9) itself, Σ̂(Σ̂ + λI)⁻¹μ̂, in the coordinates of an orthonormal basis of span{k(·, x_i)}
    K = kernel(x).to_dense()
    values, vectors = torch.linalg.eigh(K)
    features = vectors * values.clamp_min(0).sqrt()
    Sigma = features.mT @ features / 20
    mean = features.mean(0)
    estimate = Sigma @ torch.linalg.solve(Sigma + 0.03 * torch.eye(20, dtype=torch.float64), mean)
    torch.testing.assert_close(features @ estimate, shrunk(x))


def test_mean_embedding(x):
    kernel = rbf(0.7)
    mean = MeanEmbedding(kernel).condition(x)
    other = MeanEmbedding(kernel).condition(x + 0.5)
    K = kernel(torch.cat([x, x + 0.5])).to_dense()
    sign = torch.cat([torch.full((20,), 1 / 20), torch.full((20,), -1 / 20)]).double()
    torch.testing.assert_close(mean.squared_distance(other), sign @ K @ sign)
    torch.testing.assert_close(mean(x), kernel(x).to_dense().mean(-1))
    torch.testing.assert_close(mean.expectation(lambda x: x[:, 0]), x[:, 0].mean())
    with pytest.raises(ValueError, match="samples of one width"):
        mean.inner(MeanEmbedding(kernel).condition(x[:, :1]))
    with pytest.raises(TypeError, match=r"gpytorch\.kernels\.Kernel"):
        MeanEmbedding("rbf")


def test_condition_predicts_with_the_parameters_it_saw(x):
    embedding = BayesianMeanEmbedding(rbf(0.7))
    posterior = embedding.condition(x)
    before = posterior(x[:3]).mean.detach()
    unused = embedding.condition(x)
    evidence = EmbeddingEvidence()(embedding, x).detach()
    embedding.kernel.lengthscale = 5.0
    embedding.noise = 1.0
    torch.testing.assert_close(posterior(x[:3]).mean, before)
    # factorized at the first prediction, with the parameters at the time of conditioning
    torch.testing.assert_close(unused(x[:3]).mean, before)
    torch.testing.assert_close(EmbeddingEvidence().evaluate(unused), evidence)


def test_locations(x):
    embedding = BayesianMeanEmbedding(rbf(0.7), noise=0.01)
    rows = torch.tensor([1, 5, 9])
    some = embedding.condition(x, locations=rows)
    points = embedding.condition(x, locations=x[rows])
    query = torch.randn(4, 2, dtype=torch.float64)
    torch.testing.assert_close(some(query).mean, points(query).mean)
    torch.testing.assert_close(some.observed, embedding.condition(x).observed[rows])
    torch.testing.assert_close(embedding.condition(x).at(rows)(query).mean, some(query).mean)


def test_draws_are_one_more_batch_dimension(x):
    kernel = RBFKernel(batch_shape=torch.Size([3])).double()
    kernel.lengthscale = torch.tensor([0.3, 0.6, 1.2]).double()[:, None, None]
    query = torch.randn(5, 2, dtype=torch.float64)
    for noise in (0.2, "heteroscedastic", "central-limit"):
        for measure in (None, DiscreteMeasure(x[:5])):
            embedding = BayesianMeanEmbedding(kernel, noise=noise, measure=measure)
            together = embedding.condition(x)
            value = EmbeddingEvidence()(embedding, x)
            assert value.shape == (3,)
            for i in range(3):
                alone = BayesianMeanEmbedding(rbf(kernel.lengthscale[i].item()), noise=noise, measure=measure)
                torch.testing.assert_close(together(query).mean[i], alone.condition(x)(query).mean)
                torch.testing.assert_close(
                    together(query).covariance_matrix[i], alone.condition(x)(query).covariance_matrix
                )
                torch.testing.assert_close(value[i], EmbeddingEvidence()(alone, x))


def test_samples_of_every_parameter_load(x):
    embedding = BayesianMeanEmbedding(
        RBFKernel(lengthscale_prior=gpytorch.priors.GammaPrior(2.0, 2.0)),
        measure=GaussianMeasure(2.0, learn=True, scale_prior=gpytorch.priors.GammaPrior(2.0, 1.0)),
        noise_prior=gpytorch.priors.LogNormalPrior(-2.0, 1.0),
    ).double()
    draws = {
        "kernel.lengthscale_prior": torch.tensor([0.4, 0.9]).double()[:, None, None],
        "measure.scale_prior": torch.tensor([1.5, 2.5]).double(),
        "noise_prior": torch.tensor([0.1, 0.3]).double(),
    }
    embedding.pyro_load_from_samples(draws)
    together = EmbeddingEvidence()(embedding, x)
    for i in range(2):
        scale = GaussianMeasure(draws["measure.scale_prior"][i])
        kernel = rbf(draws["kernel.lengthscale_prior"][i].item())
        alone = BayesianMeanEmbedding(kernel, noise=draws["noise_prior"][i].item(), measure=scale)
        torch.testing.assert_close(together[i], EmbeddingEvidence()(alone, x))
        torch.testing.assert_close(embedding.condition(x)(x[:3]).mean[i], alone.condition(x)(x[:3]).mean)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_follows_the_data(dtype, x):
    embedding = BayesianMeanEmbedding(RBFKernel()).to(dtype)
    posterior = embedding.condition(x.to(dtype))(x[:2].to(dtype))
    assert posterior.mean.dtype == dtype
    assert EmbeddingEvidence()(embedding, x.to(dtype)).dtype == dtype
    wide = BayesianMeanEmbedding(rbf(0.7)).condition(x)(x[:2]).mean
    narrow = BayesianMeanEmbedding(rbf(0.7).float()).condition(x.float())(x[:2].float()).mean
    torch.testing.assert_close(narrow.double(), wide, rtol=1e-4, atol=1e-4)


def test_a_learned_noise_and_a_learned_measure(x):
    measure = GaussianMeasure(torch.tensor(1.0, dtype=torch.float64), learn=True)
    prior = gpytorch.priors.LogNormalPrior(-2.0, 1.0)
    embedding = BayesianMeanEmbedding(rbf(0.7), measure=measure, noise_prior=prior)
    names = [name for name, p in embedding.named_parameters() if p.requires_grad]
    assert names == ["raw_noise", "kernel.raw_lengthscale", "measure.raw_scale"]
    start = {name: p.detach().clone() for name, p in embedding.named_parameters()}
    result = ke.fit(embedding, EmbeddingEvidence(), x)
    assert result.value < result.history[0]["value"]
    assert all(not torch.equal(p, start[name]) for name, p in embedding.named_parameters())


def test_coverage_of_the_bands_is_measured():
    """80 % bands over simulated data, as found: see the page on Bayesian embeddings."""
    generator = torch.Generator().manual_seed(0)
    kernel = rbf(0.8)
    query = torch.linspace(-2, 2, 9, dtype=torch.float64).unsqueeze(-1)
    # μ_P for P = N(0, 1): the convolution of two Gaussians
    variance = 0.8**2 + 1.0
    truth = (0.8 / variance**0.5) * torch.exp(-0.5 * query.squeeze(-1).square() / variance)
    shares = {}
    for noise in (0.1, "heteroscedastic", "central-limit"):
        inside = []
        for _ in range(60):
            sample = torch.randn(50, 1, generator=generator, dtype=torch.float64)
            lower, upper = BayesianMeanEmbedding(kernel, noise=noise).condition(sample).band(query, 0.8)
            inside.append(((lower <= truth) & (truth <= upper)).double().mean().item())
        shares[noise] = sum(inside) / len(inside)
    # The likelihood (5) takes the errors of μ̂ at different locations for independent; they are one smooth error, and n
    # observations with its variance narrow the band as if there were more data. The joint covariance knows better.
    assert shares[0.1] > 0.95
    assert 0.2 < shares["heteroscedastic"] < 0.7
    assert 0.72 < shares["central-limit"] < 0.88


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: BayesianMeanEmbedding(RBFKernel(), noise="clt"), "a number or one of"),
        (lambda x: BayesianMeanEmbedding(RBFKernel(), noise=0.0), "positive, finite noise"),
        (lambda x: BayesianMeanEmbedding(rbf(1), measure=GaussianMeasure(1.0), covariance=rbf(1)), "or a covariance"),
        (lambda x: BayesianMeanEmbedding(rbf(1), noise="central-limit", learn_noise=True), "cannot be learned"),
        (lambda x: BayesianMeanEmbedding(torch.nn.Linear(1, 1)), r"gpytorch\.kernels\.Kernel"),
        (lambda x: BayesianMeanEmbedding(RBFKernel(), noise="central-limit").noise, "depends on the sample"),
        (lambda x: BayesianMeanEmbedding(rbf(0.7)).condition(x).band(x, 80), "level between 0 and 1"),
        (lambda x: BayesianMeanEmbedding(rbf(0.7)).condition(x)(x[:, :1]), "2 features, as in training"),
        (lambda x: BayesianMeanEmbedding(rbf(0.7)).condition(x, locations=torch.tensor([20])), "numbers from 0 to 19"),
    ],
)
def test_bad_arguments(call, message, x):
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        call(x)


# --- the witness ------------------------------------------------------------------------------------------------------


@pytest.fixture
def samples(x):
    return x, 1.5 * x[:13] + 0.7


def test_posterior_of_the_difference(samples):
    x, y = samples
    embedding = BayesianMeanEmbedding(rbf(0.7), noise=0.05)
    witness = Witness(embedding, x, y)
    query = torch.randn(6, 2, dtype=torch.float64)
    p, q = embedding.condition(x)(query), embedding.condition(y)(query)
    torch.testing.assert_close(witness(query).mean, p.mean - q.mean)
    torch.testing.assert_close(witness(query).covariance_matrix, p.covariance_matrix + q.covariance_matrix)
    lower, upper = witness.band(query, 0.8)
    deviation = witness(query).variance.sqrt()
    torch.testing.assert_close(upper - lower, 2 * 1.2815515655446004 * deviation)
    torch.testing.assert_close(0.5 * (upper + lower), witness(query).mean)


def test_squared_distance_is_the_norm_of_draws(samples):
    x, y = samples
    kernel = rbf(0.7)
    measure = DiscreteMeasure(torch.randn(5, 2, dtype=torch.float64))
    embedding = BayesianMeanEmbedding(kernel, noise=0.05, measure=measure)
    witness = Witness(embedding, x, y)
    posterior = witness.squared_distance()
    # a draw of the witness at the atoms determines it: ‖f‖² = fᵀ K_uu⁻¹ f
    at_atoms = witness(measure.atoms)
    K = kernel(measure.atoms).to_dense()
    root = torch.linalg.cholesky(at_atoms.covariance_matrix + 1e-14 * torch.eye(5, dtype=torch.float64))
    draws = at_atoms.mean + torch.randn(200_000, 5, dtype=torch.float64) @ root.mT
    norms = (draws * torch.linalg.solve(K, draws.mT).mT).sum(-1)
    assert posterior.mean.item() == pytest.approx(norms.mean().item(), rel=0.02)
    assert posterior.variance.item() == pytest.approx(norms.var().item(), rel=0.05)
    own = posterior.sample(200_000, seed=0)
    assert own.mean().item() == pytest.approx(posterior.mean.item(), rel=0.02)
    assert own.var().item() == pytest.approx(posterior.variance.item(), rel=0.05)
    lower, upper = posterior.interval(0.8)
    torch.testing.assert_close(lower, norms.quantile(0.1), rtol=0.05, atol=1e-3)
    torch.testing.assert_close(upper, norms.quantile(0.9), rtol=0.05, atol=1e-3)


def test_the_distance_grows_with_the_difference(samples):
    x, _ = samples
    embedding = BayesianMeanEmbedding(rbf(0.7), noise=0.01, measure=DiscreteMeasure.from_sample(x))
    means = [Witness(embedding, x, x + shift).squared_distance().mean.item() for shift in (0.0, 0.5, 1.5)]
    assert means == sorted(means)
    # of two equal samples the posteriors are equal but independent: what is left is their uncertainty
    equal = Witness(embedding, x, x).squared_distance()
    assert equal.between_means.item() == pytest.approx(0.0, abs=1e-12)
    assert equal.mean.item() == pytest.approx((equal._G * equal._S).sum().item())


def test_an_infinite_measure_is_replaced_and_named(samples):
    posterior = Witness(BayesianMeanEmbedding(rbf(0.7)), *samples).squared_distance(num_atoms=12)
    assert repr(posterior) == "SquaredDistancePosterior(discrete measure with 12 atoms)"
    assert posterior.mean > 0


def test_both_samples_share_their_atoms(samples):
    witness = Witness(BayesianMeanEmbedding(PeriodicKernel().double()), *samples)
    torch.testing.assert_close(witness.first.covariance.measure.atoms, witness.second.covariance.measure.atoms)


def test_draws_are_one_more_batch_dimension_of_the_witness(samples):
    kernel = RBFKernel(batch_shape=torch.Size([2])).double()
    kernel.lengthscale = torch.tensor([0.4, 0.9]).double()[:, None, None]
    witness = Witness(BayesianMeanEmbedding(kernel), *samples)
    query = torch.randn(4, 2, dtype=torch.float64)
    assert witness(query).mean.shape == (2, 4)
    together = witness.squared_distance()
    assert together.sample(7).shape == (7, 2)
    alone = Witness(BayesianMeanEmbedding(rbf(kernel.lengthscale[1].item())), *samples).squared_distance()
    torch.testing.assert_close(together.mean[1], alone.mean)
    torch.testing.assert_close(together.variance[1], alone.variance)


def test_samples_of_different_width(samples):
    x, y = samples
    with pytest.raises(ValueError, match=r"one width, got 2 columns in x and 1 in y"):
        Witness(BayesianMeanEmbedding(rbf(0.7)), x, y[:, :1])
