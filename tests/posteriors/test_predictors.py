"""Predictions averaged over draws, against plain loops over embeddings with each draw's parameters; draws in files."""

import copy

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior

import kernel_embed as ke
from kernel_embed.kernels.classes import FeatureKernel
from kernel_embed.posteriors import Laplace

from .conftest import draw
from .test_potential import Flat


class OwnEvidence(Flat):
    """A likelihood that nobody but its author knows of."""

    is_log_likelihood = True


def one_by_one(posterior, embedding):
    """The embedding with each draw written into it by name, the slow way."""
    for s in range(len(posterior.weights)):
        single = copy.deepcopy(embedding).double()
        single.initialize(**{name: values[s] for name, values in posterior.samples.items()})
        yield single


def test_probabilities_are_the_mean_over_draws(multiclass, problem):
    embedding, posterior = multiclass
    conditioned = [e.condition(problem.x, problem.y) for e in one_by_one(posterior, embedding)]
    p = torch.stack([c.probabilities(problem.query) for c in conditioned]).detach()
    f = torch.stack([c.decision_probabilities(problem.query) for c in conditioned]).detach()
    assert torch.allclose(posterior.probabilities(problem.query), p.mean(0))
    assert torch.allclose(posterior.decision_probabilities(problem.query), f.mean(0))
    assert torch.equal(posterior.predict(problem.query), p.mean(0).argmax(-1))
    parts = posterior.entropy_parts(problem.query)
    mean = p.mean(0)
    assert torch.allclose(parts.total, -(mean * mean.clamp_min(1e-300).log()).sum(-1))
    assert torch.allclose(parts.aleatoric, -(p * p.clamp_min(1e-300).log()).sum(-1).mean(0))
    assert (parts.epistemic >= -1e-12).all()
    assert torch.allclose(parts.total, posterior.entropy(problem.query))
    values = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64)
    assert torch.allclose(posterior.expectation(values, problem.query), f.mean(0) @ values)
    calibrated = posterior.probabilities(problem.query, calibrated=True)
    expected = [
        ke.objectives.calibrate(c.leave_one_out(), c.Y).probabilities(c.decision_probabilities(problem.query))
        for c in conditioned
    ]
    assert torch.allclose(calibrated, torch.stack(expected).mean(0).detach(), atol=1e-6)


def test_weights_count(multiclass, problem):
    _, posterior = multiclass
    weights = torch.zeros(12, dtype=torch.float64)
    weights[7] = 3.0
    single = posterior.probabilities_of_draws(problem.query)[7]
    assert torch.allclose(posterior.reweighted(weights).probabilities(problem.query), single)
    thinned = posterior.thinned(4)
    assert type(thinned) is type(posterior)
    assert thinned.samples["regularization"].shape == (4,)
    with pytest.raises(ValueError, match="weights must have the shape"):
        posterior.reweighted(-weights)


def test_expectation_of_continuous_targets(problem):
    embedding = ke.ConditionalEmbedding(RBFKernel(ard_num_dims=3))
    y = problem.x[:, 0] ** 2
    posterior = draw(embedding, ke.ConditionalEvidence(), problem.x, y)
    assert type(posterior) is ke.posteriors.ConditionalPosterior
    expected = [
        e.condition(problem.x, y).expectation(lambda t: t, problem.query) for e in one_by_one(posterior, embedding)
    ]
    mean = torch.stack(expected).mean(0).detach()
    assert torch.allclose(posterior.expectation(lambda t: t, problem.query), mean)
    assert torch.allclose(posterior.mean(problem.query), mean.unsqueeze(-1))


@pytest.fixture
def samples():
    generator = np.random.RandomState(0)
    return torch.as_tensor(generator.randn(15, 1)), torch.as_tensor(generator.randn(12, 1) + 1.0)


@pytest.mark.parametrize(
    "kernel",
    # The evidence of a polynomial rises with its offset as far as numbers reach: only a prior makes it a posterior.
    [RBFKernel(), ScaleKernel(MaternKernel(0.5)), PolynomialKernel(2, offset_prior=LogNormalPrior(0.0, 0.2))],
    ids=lambda k: type(k).__name__,
)
def test_mean_embedding_bands_are_those_of_the_mixture(samples, kernel):
    x, y = samples
    grid = torch.linspace(-2, 2, 5, dtype=torch.float64).unsqueeze(-1)
    embedding = ke.BayesianMeanEmbedding(kernel)
    posterior = draw(embedding, ke.EmbeddingEvidence(), x)
    singles = list(one_by_one(posterior, embedding))
    gaussians = [e.condition(x)(grid) for e in singles]
    means = torch.stack([g.mean for g in gaussians]).detach()
    covariances = torch.stack([g.covariance_matrix for g in gaussians]).detach()
    matched = posterior(grid)
    assert torch.allclose(matched.mean, means.mean(0))
    assert torch.allclose(posterior.mean(grid), means.mean(0))
    centred = means - means.mean(0)
    expected = covariances.mean(0) + centred.mT @ centred / len(means)
    assert torch.allclose(matched.covariance_matrix, expected, atol=1e-8)
    # Quantiles of the mixture against draws of it: 0.02 is six standard errors of a probability from 20,000.
    lower, upper = posterior.band(grid, 0.8)
    generator = torch.Generator().manual_seed(0)
    which = torch.randint(len(means), (20_000,), generator=generator)
    deviations = covariances.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt()
    z = torch.randn(20_000, 5, generator=generator, dtype=torch.float64)
    points = means[which] + deviations[which] * z
    assert ((points < lower).double().mean(0) - 0.1).abs().max() < 0.02
    assert ((points > upper).double().mean(0) - 0.1).abs().max() < 0.02
    witness = posterior.witness(x, y)
    expected = torch.stack([ke.Witness(e, x, y)(grid).mean for e in singles]).mean(0).detach()
    assert torch.allclose(witness(grid).mean, expected, atol=1e-7 * max(1.0, expected.abs().max().item()))
    assert (witness.band(grid)[0] < witness.band(grid)[1]).all()


def test_average_kernel_is_the_mean_of_the_kernels_of_draws(samples):
    x, _ = samples
    embedding = ke.BayesianMeanEmbedding(RBFKernel())
    posterior = draw(embedding, ke.EmbeddingEvidence(), x)
    expected = torch.stack([ke.gram(e.kernel, x) for e in one_by_one(posterior, embedding)]).mean(0)
    assert torch.allclose(ke.gram(posterior.average_kernel(num_draws=12), x), expected.detach(), atol=1e-6)
    with pytest.raises(ValueError, match="num_draws"):
        posterior.average_kernel(0)


def test_kernel_draws_are_the_kernels_of_all_draws_with_their_weights(samples):
    x, _ = samples
    embedding = ke.BayesianMeanEmbedding(ScaleKernel(RBFKernel()))
    posterior = draw(embedding, ke.EmbeddingEvidence(), x)
    posterior = posterior.reweighted(torch.arange(1.0, 13.0))
    (kernel,), (weights,) = posterior.kernel_draws()
    assert torch.equal(weights, posterior.weights)
    expected = torch.stack([ke.gram(e.kernel, x) for e in one_by_one(posterior, embedding)])
    grams = ke.gram(kernel, x)
    assert torch.allclose(grams, expected.detach(), atol=1e-6)
    assert not grams.requires_grad


def test_draws_that_reach_into_a_network_are_taken_one_by_one(problem):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    embedding = ke.MulticlassEmbedding(FeatureKernel(network, RBFKernel()), problem.m)
    with pytest.warns(ke.posteriors.PosteriorWarning, match="Register a prior"):
        posterior = ke.sample_posterior(
            embedding, ke.ConditionalEvidence(), problem.x, problem.y, num_samples=3, num_chains=1,
            sampler=Laplace(max_evaluations=5),
        )  # fmt: skip
    assert posterior.probabilities(problem.query).shape == (7, 3)
    assert posterior.samples["kernel.feature_map.0.weight"].shape == (3, 4, 3)
    kernels, weights = posterior.kernel_draws()
    assert [len(w) for w in weights] == [1, 1, 1]
    assert sum(weights).item() == pytest.approx(1.0)
    assert all(ke.gram(kernel, problem.x).shape == (24, 24) for kernel in kernels)
    assert not torch.allclose(ke.gram(kernels[0], problem.x), ke.gram(kernels[1], problem.x))


def test_kind_says_which_posterior(problem):
    def kind(objective, **settings):
        return draw(ke.MulticlassEmbedding(RBFKernel(), problem.m), objective, problem.x, problem.y, **settings).kind

    twice = OwnEvidence() + OwnEvidence()
    assert not twice.is_log_likelihood
    assert kind(ke.ConditionalEvidence()).startswith("posterior")
    assert kind(OwnEvidence()).startswith("posterior"), "an evidence of the user's own counts"
    assert kind(0.5 * ke.ConditionalEvidence(), temperature=2.0).startswith("posterior"), "the two factors cancel"
    assert "Gibbs" in kind(0.5 * ke.ConditionalEvidence())
    assert "Gibbs" in kind(twice)
    risk = ke.LeaveOneOutRisk() + ke.RademacherComplexity("1/n")
    gibbs = draw(ke.MulticlassEmbedding(RBFKernel(), problem.m), risk, problem.x, problem.y, temperature=2.0)
    for words in ("Gibbs", "−24·2·q"):
        assert words in gibbs.kind
    for words in ("Gibbs", "r_hat"):
        assert words in repr(gibbs)


def test_choose_temperature_returns_the_lowest_risk(problem):
    embedding, data = ke.MulticlassEmbedding(RBFKernel(), problem.m), (problem.x, problem.y)
    choose = ke.posteriors.choose_temperature
    few = {"temperatures": (0.1, 1.0), "num_folds": 2, "num_samples": 4, "progress": False}
    choice = choose(embedding, ke.LeaveOneOutRisk(), *data, **few)
    assert choice.risks[choice.temperature] == min(choice.risks.values())
    with pytest.raises(TypeError, match="MulticlassEmbedding"):
        choose(ke.ConditionalEmbedding(RBFKernel()), ke.ConditionalEvidence(), *data, num_folds=2)
    with pytest.raises(ValueError, match="at least 2 folds"):
        choose(embedding, ke.LeaveOneOutRisk(), *data, num_folds=1)


def test_kernels_that_complete_themselves_stay_the_same():
    """Random Fourier features are drawn once, and every draw of the posterior is about the same ones."""
    x = torch.as_tensor(np.random.RandomState(0).randn(10, 2))
    y = (x[:, 0] > 0).long()
    embedding = ke.MulticlassEmbedding(gpytorch.kernels.RFFKernel(num_samples=5), 2)
    first, second = (draw(embedding, ke.ConditionalEvidence(), x, y, num_samples=3) for _ in range(2))
    assert torch.equal(first.probabilities(x), second.probabilities(x))


def test_save_and_load_without_pickle(tmp_path, multiclass, problem):
    embedding, posterior = multiclass
    posterior.save(tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz", allow_pickle=False) as archive:
        assert "u" in archive.files
    again = ke.load_posterior(tmp_path / "p.npz", embedding, ke.ConditionalEvidence())
    assert type(again) is type(posterior) is ke.posteriors.MulticlassPosterior
    assert torch.equal(again.probabilities(problem.query), posterior.probabilities(problem.query))
    assert again.method == "laplace"
    assert again.kind == posterior.kind
    more = copy.deepcopy(embedding)
    more.num_classes = problem.m + 1
    (tmp_path / "no.npz").write_bytes(b"something else")
    np.savez_compressed(tmp_path / "old.npz", u=np.zeros(3), settings=np.array("{}"))
    evidence, other = ke.ConditionalEvidence(), ke.MulticlassEmbedding(RBFKernel(), problem.m)
    for message, name, *arguments in (
        ("Give the objective", "p", embedding, ke.LeaveOneOutRisk()),
        ("in the same way as for sampling", "p", other, evidence),
        (f"has num_classes={problem.m}", "p", more, evidence),
        (r"no\.npz is not a posterior file", "no", embedding, evidence),
        (r"old\.npz was written by an earlier development version.*save again", "old", embedding, evidence),
    ):
        with pytest.raises(ValueError, match=message):
            ke.load_posterior(tmp_path / f"{name}.npz", *arguments)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_lengthscales_in_arviz_have_the_names_of_their_columns():
    pytest.importorskip("arviz")
    x = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2, active_dims=[2, 0]) + RBFKernel(ard_num_dims=3)) + RBFKernel()
    embedding = ke.BayesianMeanEmbedding(kernel.double())
    posterior = ke.sample_posterior(embedding, ke.EmbeddingEvidence(), x, num_samples=5, sampler=ke.Laplace())
    data = posterior.to_arviz(feature_names=["age", "height", "weight"]).posterior
    prefix = "kernel.kernels.0.base_kernel.kernels"
    assert data[f"{prefix}.0.lengthscale_dim_1"].values.tolist() == ["weight", "age"]
    assert data[f"{prefix}.1.lengthscale_dim_1"].values.tolist() == ["age", "height", "weight"]
    assert data["kernel.kernels.1.lengthscale_dim_1"].values.tolist() == [0]  # one for all columns
    age = data[f"{prefix}.0.lengthscale"].sel({f"{prefix}.0.lengthscale_dim_1": "age"}).values
    assert np.array_equal(age, posterior.samples_by_chain[f"{prefix}.0.lengthscale"][..., 1].numpy())
    with pytest.raises(ValueError, match="x has 3 columns, but feature_names has 1 names"):
        posterior.to_arviz(feature_names=["age"])


def test_a_number_is_no_path_and_the_file_of_that_number_stays_open(tmp_path):
    embedding = ke.MulticlassEmbedding(RBFKernel(), 3)
    with (tmp_path / "of_the_caller").open("wb") as file:
        with pytest.raises(TypeError, match=r"A path must be a str or a pathlib\.Path, not \d+"):
            ke.load_posterior(file.fileno(), embedding, ke.ConditionalEvidence())
        file.write(b"still open")
