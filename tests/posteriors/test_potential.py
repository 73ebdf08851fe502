"""The density: priors, Jacobians, gradients and rejections, against independent computations."""

import copy
import math

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import MaternKernel, PolynomialKernel, RBFKernel, ScaleKernel, SpectralMixtureKernel
from gpytorch.priors import GammaPrior, HalfCauchyPrior, HalfNormalPrior, LogNormalPrior, NormalPrior, UniformPrior
from scipy import stats

import kernel_embed as ke
from kernel_embed.learning.priors import default_prior
from kernel_embed.posteriors.potential import SITE, Potential, quiet_numbers
from kernel_embed.posteriors.priors import describe
from kernel_embed.posteriors.sample import prior_draws


class Flat(ke.Objective):
    """A likelihood that says nothing: the posterior is the prior."""

    per_datum = False
    identifies_scale = True

    def evaluate(self, conditioned):
        return 0.0 * conditioned.x.sum()

    def __repr__(self):
        return "Flat()"


def bayesian(kernel):
    return ke.BayesianMeanEmbedding(kernel)


@pytest.fixture
def x():
    return torch.as_tensor(np.random.RandomState(0).randn(12, 2))


@pytest.mark.parametrize(
    ("prior", "reference"),
    [
        (GammaPrior(2.0, 3.0), stats.gamma(2.0, scale=1 / 3.0)),
        (LogNormalPrior(0.3, 0.7), stats.lognorm(0.7, scale=math.exp(0.3))),
        (HalfCauchyPrior(0.5), stats.halfcauchy(scale=0.5)),
        (HalfNormalPrior(0.8), stats.halfnorm(scale=0.8)),
        (UniformPrior(0.1, 4.0), stats.uniform(0.1, 3.9)),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("constraint", ["softplus", "exp"])
def test_prior_density_integrates_to_one_in_raw_parameters(x, prior, reference, constraint):
    """∫ p(u) du = 1 and the mean of ℓ is the prior's: the Jacobian is right whatever the transform."""
    positive = gpytorch.constraints.Positive()
    if constraint == "exp":
        positive = gpytorch.constraints.Positive(transform=torch.exp, inv_transform=torch.log)
    kernel = RBFKernel(lengthscale_prior=prior, lengthscale_constraint=positive)
    potential = Potential(bayesian(kernel), Flat(), x, None)
    grid = np.linspace(-25, 30, 2001) if constraint == "softplus" else np.linspace(-12, 12, 1001)
    density = np.exp([-potential.value(np.array([u])) for u in grid])
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=0.03)
    values = potential.constrained(torch.from_numpy(grid[:, None]))["kernel.lengthscale"].flatten().numpy()
    inside = (values > 0.2) & (values < 2.0)
    assert np.trapezoid((density * inside), grid) == pytest.approx(reference.cdf(2.0) - reference.cdf(0.2), abs=0.01)


def test_prior_of_a_closure_is_a_density_of_its_value(x):
    """A sparse prior on v = τ/ℓ², as in SAAS: v has the HalfCauchy distribution, and ℓ what follows from it."""
    kernel = RBFKernel(ard_num_dims=2)
    kernel.register_prior(
        "inverse_square_prior",
        HalfCauchyPrior(1.0),
        lambda module: 0.1 / module.lengthscale.square(),
        lambda module, value: module._set_lengthscale((0.1 / value).sqrt()),
    )
    potential = Potential(bayesian(kernel), Flat(), x, None)
    (site,) = potential.sites
    assert site.name == "kernel.inverse_square"
    assert site.parameter == "kernel.raw_lengthscale"
    u = potential.unconstrained({"kernel.lengthscale": torch.tensor([[0.4, 1.3]])})
    expected = 0.0
    for length, raw in zip((0.4, 1.3), u, strict=True):
        assert raw == pytest.approx(math.log(length))
        expected += stats.halfcauchy.logpdf(0.1 / length**2) + math.log(0.2 / length**3) + math.log(length)
    assert -potential.value(u) == pytest.approx(expected, rel=1e-6)


def test_a_prior_of_two_parameters_and_a_second_prior_of_one_are_factors(x):
    kernel = ScaleKernel(RBFKernel(lengthscale_prior=GammaPrior(2.0, 1.0)))
    ratio = LogNormalPrior(0.0, 1.0)
    kernel.register_prior("ratio_prior", ratio, lambda m: m.outputscale / m.base_kernel.lengthscale.squeeze())
    kernel.base_kernel.register_prior("second_prior", NormalPrior(0.0, 1.0), lambda m: m.lengthscale.log())
    owners = [site.parameter for site in Potential(bayesian(kernel), Flat(), x, None).sites]
    assert sorted(map(str, owners)) == ["None", "None", "kernel.base_kernel.raw_lengthscale", "kernel.raw_outputscale"]


@pytest.mark.parametrize(
    "objective", [ke.ConditionalEvidence(), ke.default_objective(), ke.LeaveOneOutRisk()], ids=repr
)
def test_gradient_is_that_of_the_value(problem, objective):
    kernel = ScaleKernel(RBFKernel(ard_num_dims=3, lengthscale_prior=GammaPrior(2.0, 1.0)))
    potential = Potential(ke.MulticlassEmbedding(kernel, problem.m), objective, problem.x, problem.y, 0.7)
    u = potential.vector.get() + 0.1 * np.random.RandomState(0).randn(potential.dimension)
    value, gradient = potential.value_and_gradient(u)
    assert value == pytest.approx(potential.value(u))
    for j in range(len(u)):
        step = 1e-5 * np.eye(len(u))[j]
        slope = (potential.value(u + step) - potential.value(u - step)) / 2e-5
        assert gradient[j] == pytest.approx(slope, rel=1e-4, abs=1e-5)


def test_exponent_is_n_times_temperature_for_means_and_one_for_sums(problem):
    embedding = ke.MulticlassEmbedding(RBFKernel(ard_num_dims=3), problem.m)
    for objective, expected in ((ke.LeaveOneOutRisk(), 24 * 0.5), (ke.ConditionalEvidence(), 0.5)):
        potential = Potential(embedding, objective, problem.x, problem.y, temperature=0.5)
        u = potential.vector.get()
        likelihood, _ = potential.parts(u)
        embedding.double()
        assert likelihood == pytest.approx(-expected * objective(embedding, problem.x, problem.y).item())


def test_pyro_sees_value_and_gradient_and_the_embedding_is_not_changed(x):
    embedding = bayesian(RBFKernel())
    before = {name: value.clone() for name, value in embedding.state_dict().items()}
    potential = Potential(embedding, ke.EmbeddingEvidence(), x, None)
    u = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    energy = potential({SITE: u})
    energy.backward()
    value, gradient = potential.value_and_gradient(u.detach().numpy())
    assert energy.item() == value
    assert u.grad.numpy() == pytest.approx(gradient)
    assert all(torch.equal(value, before[name]) for name, value in embedding.state_dict().items())
    assert next(embedding.parameters()).grad is None


def test_where_the_kernel_is_not_valid_and_beyond_bounds_the_energy_is_infinite(x):
    potential = Potential(bayesian(RBFKernel()), ke.EmbeddingEvidence(), x, None)
    value, gradient = potential.value_and_gradient(np.array([-1e3]))
    assert value == math.inf
    assert (gradient == 0).all()
    assert potential.num_rejected == 1
    kernel = RBFKernel(lengthscale_constraint=Interval(0.1, 2.0, transform=None))
    kernel.raw_lengthscale.data.fill_(1.0)
    potential = Potential(bayesian(kernel), ke.EmbeddingEvidence(), x, None)
    assert math.isfinite(potential.value(np.array([1.5])))
    assert potential.value(np.array([2.5])) == math.inf


def test_default_priors_by_constraint():
    raw = torch.zeros(2)
    assert describe(default_prior(raw, gpytorch.constraints.Positive())).startswith("LogNormal(loc=-0.367")
    assert describe(default_prior(raw, gpytorch.constraints.Interval(0.0, 2.0))) == "Uniform(low=0, high=2)"
    shifted = default_prior(raw, gpytorch.constraints.GreaterThan(0.5))
    assert (shifted.sample((100,)) > 0.5).all()
    assert default_prior(torch.zeros(3, 4), None, in_network=True).scale[0, 0].item() == pytest.approx(0.5)


KERNELS = [RBFKernel(ard_num_dims=2), ScaleKernel(MaternKernel(1.5)), PolynomialKernel(2)]


@pytest.mark.parametrize(
    "kernel", [*KERNELS, SpectralMixtureKernel(2, ard_num_dims=2)], ids=lambda kernel: type(kernel).__name__
)
def test_draws_of_the_prior_have_its_distribution(kernel, x):
    """The first entry of the first parameter, by a Kolmogorov–Smirnov test that fails once in a thousand seeds."""
    potential = Potential(bayesian(kernel), Flat(), x, None)
    site = potential.sites[0]
    draws = torch.from_numpy(np.stack(prior_draws(potential, 200, seed=0)))
    values = potential.constrained(draws)[site.name].reshape(200, -1)[:, 0]
    prior = site.prior
    assert stats.kstest(values.numpy(), lambda v: _cdf(prior, v)).pvalue > 1e-3


def _cdf(prior, values):
    entry = type(prior)(*(getattr(prior, name).reshape(-1)[0] for name in prior.arg_constraints))
    return entry.cdf(torch.as_tensor(values)).numpy()


def test_unidentified_outputscale_is_fixed_and_no_parameters_are_an_error(problem):
    embedding = ke.MulticlassEmbedding(ScaleKernel(RBFKernel()), problem.m)
    potential = Potential(embedding, ke.LeaveOneOutRisk(), problem.x, problem.y)
    assert potential.fixed == ("kernel.raw_outputscale",)
    assert [site.name for site in potential.sites] == ["regularization", "kernel.base_kernel.lengthscale"]
    with pytest.raises(ValueError, match="parameters to sample"):
        Potential(bayesian(RBFKernel().requires_grad_(False)), ke.EmbeddingEvidence(), problem.x, None)


def test_positive_parameters_are_sampled_on_the_log_scale(x):
    """θ = b + softplus becomes θ = b + exp in the copy, with the same values; other transforms stay as they are."""
    kernel = ScaleKernel(RBFKernel(lengthscale_constraint=GreaterThan(0.1)), outputscale_constraint=Interval(0.5, 2.0))
    kernel.base_kernel.lengthscale = 0.7
    embedding = bayesian(kernel)
    potential = Potential(embedding, Flat(), x, None)
    u = potential.unconstrained({})
    values = potential.constrained(torch.from_numpy(u))
    assert values["kernel.base_kernel.lengthscale"].item() == pytest.approx(0.7, rel=1e-6)
    raw = dict(zip(potential.vector.named, u, strict=True))
    assert raw["kernel.base_kernel.raw_lengthscale"] == pytest.approx(math.log(0.6), rel=1e-6)
    assert raw["kernel.raw_outputscale"] == pytest.approx(kernel.raw_outputscale.item())
    # The embedding that was given keeps its own form.
    assert isinstance(embedding.kernel.base_kernel.raw_lengthscale_constraint._transform, torch.nn.Softplus)


def test_a_prior_of_another_quantity_is_not_taken_for_one_of_the_parameter_where_both_are_equal(x):
    """1/ℓ² is ℓ at ℓ = 1, but another function of it."""
    kernel = RBFKernel().double()
    kernel.lengthscale = 1.0
    kernel.register_prior("sparse", GammaPrior(2.0, 2.0), lambda module: module.lengthscale.pow(-2))
    (site,) = Potential(bayesian(kernel), Flat(), x, None).sites
    assert (site.name, site.on_log_scale) == ("kernel.sparse", False)


# --- evaluation without modules and graph -----------------------------------------------------------------------------


X = torch.as_tensor(np.random.RandomState(0).randn(25, 2))
Y = (X[:, 0] > 0).long()


def labels(kernel, objective=None, y=Y, **options):
    objective = ke.ConditionalEvidence() if objective is None else objective
    return Potential(ke.MulticlassEmbedding(kernel, 2).double(), objective, X, y, **options)


def sample(kernel, x=X, **options):
    return Potential(ke.BayesianMeanEmbedding(kernel, **options).double(), ke.EmbeddingEvidence(), x, None)


POTENTIALS = {
    "rbf": lambda: labels(RBFKernel(lengthscale_prior=GammaPrior(2.0, 3.0))),
    "ard": lambda: labels(ScaleKernel(RBFKernel(ard_num_dims=2), outputscale_prior=LogNormalPrior(0.1, 0.5))),
    "matern 3/2": lambda: labels(MaternKernel(nu=1.5)),
    "matern 5/2 ard": lambda: labels(ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2))),
    "sum": lambda: labels(RBFKernel() + RBFKernel()),
    "other prior": lambda: labels(RBFKernel(lengthscale_prior=HalfCauchyPrior(1.0)).double()),
    "cross validation": lambda: labels(RBFKernel(), ke.CrossValidationRisk(5)),
    "tempered": lambda: labels(RBFKernel(), temperature=0.3),
    "Gibbs": lambda: labels(RBFKernel(ard_num_dims=2), ke.LeaveOneOutRisk() + ke.RademacherComplexity("1/n")),
    "calibrated": lambda: labels(RBFKernel(), ke.CalibratedLeaveOneOutRisk()),
    "twice the evidence": lambda: labels(RBFKernel(), 2.0 * ke.ConditionalEvidence()),
    "regression": lambda: Potential(
        ke.ConditionalEmbedding(RBFKernel()).double(), ke.ConditionalEvidence(), X, X.sin()
    ),
    "labels as floats": lambda: labels(RBFKernel(), y=Y.double()),
    "mean": lambda: sample(RBFKernel(lengthscale_prior=GammaPrior(1.0, 1.0))),
    "mean on the line": lambda: sample(RBFKernel(), X[:, :1], noise=0.2),
}


@pytest.mark.parametrize("name", POTENTIALS)
def test_direct_evaluation_agrees_with_autograd(name):
    potential = POTENTIALS[name]()
    start = potential.vector.get()
    assert potential._direct is not None
    for step in 0.5 * np.random.default_rng(0).standard_normal((5, len(start))):
        value, gradient = potential.value_and_gradient(start + step)
        expected, slope = potential.by_autograd(start + step)
        # The same sums in another order.
        assert value == pytest.approx(expected, rel=1e-9)
        np.testing.assert_allclose(gradient, slope, rtol=1e-8, atol=1e-8 * (1.0 + np.abs(slope).max()))
        assert potential.value(start + step) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sample(RBFKernel(), torch.cat([X, X[:3]])),
        lambda: sample(RBFKernel(ard_num_dims=2)),
        lambda: sample(RBFKernel(), covariance=RBFKernel()),
        lambda: Potential(ke.MulticlassEmbedding(RBFKernel(), 2), ke.ConditionalEvidence(), X.float(), Y),
    ],
)
def test_other_samples_and_single_precision_use_autograd(make):
    assert make()._direct is None


def test_points_that_lose_digits_use_autograd():
    potential = labels(RBFKernel())
    names = list(potential.vector.named)
    far, near_zero = potential.vector.get(), potential.vector.get()
    far[names.index("kernel.raw_lengthscale")] = -12.0  # norms beyond which squared distances lose digits
    near_zero[names.index("kernel.raw_lengthscale")], near_zero[names.index("raw_regularization")] = 9.0, -45.0
    for u in (far, near_zero, np.full(len(far), np.nan), np.full(len(far), 1e4)):
        assert potential._direct(u) is None
    evaluations = potential.num_evaluations
    assert np.isfinite(potential.value_and_gradient(far)[0])
    assert potential.num_evaluations == evaluations + 1
    assert potential.value_and_gradient(np.full(len(far), 1e4))[0] == np.inf
    assert potential.num_rejected == 1


@pytest.mark.parametrize("far", [-400.0, -370.0, 340.0, 400.0])
@pytest.mark.parametrize("name", POTENTIALS)
def test_a_wild_step_is_refused_and_does_not_end_the_chain(name, far):
    potential = POTENTIALS[name]()
    with quiet_numbers():  # as samplers do
        value, gradient = potential.value_and_gradient(np.full(len(potential.vector.get()), far))
    assert value == np.inf or np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_a_copy_makes_its_own_workspace():
    potential = labels(RBFKernel())
    u = potential.vector.get()
    value, gradient = potential.value_and_gradient(u)
    again = copy.deepcopy(potential)
    assert "_direct" not in vars(again)
    assert again.value_and_gradient(u)[0] == value
    np.testing.assert_array_equal(again.value_and_gradient(u)[1], gradient)
