"""Small problems are evaluated without modules and graph; the autograd path is the reference."""

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior, HalfCauchyPrior, LogNormalPrior
from linear_operator.utils.warnings import NumericalWarning

import kernel_embed as ke
from kernel_embed.learning.direct import direct_objective
from kernel_embed.learning.loss import Batch, Data, LocalProcess, Loss
from kernel_embed.learning.parameters import MOST_ROWS, Coordinates, ParameterVector, unidentified
from kernel_embed.tabular import TiedMaternKernel, TiedRBFKernel

X = torch.as_tensor(np.random.RandomState(0).randn(30, 3))
Y = (X[:, 0] * X[:, 1] > 0).long() + (X[:, 2] > 1).long()
REAL = (X[:, 0] * X[:, 1]).sin()
SOFT = torch.nn.functional.one_hot(Y, 3).double() * 0.8 + 0.2 / 3


class Plain(gpytorch.kernels.Kernel):
    """A kernel with a ``forward`` and nothing else."""

    has_lengthscale = True

    def forward(self, x1, x2, diag=False, **params):
        return 1.0 / (1.0 + self.covar_dist(x1 / self.lengthscale, x2 / self.lengthscale, diag, square_dist=True))


class Brier(ke.Objective):
    """An objective by torch operations alone, which also uses λ itself."""

    def evaluate(self, attached):
        residuals = attached.Y - attached.leave_one_out()
        return residuals.square().sum(-1).mean(-1) + 0.01 * attached.regularization.log().square()


class DirectBrier(ke.Objective):
    """The first term of it with its derivative."""

    inputs = ("leave_one_out",)

    def value_and_gradient(self, data, F):
        residuals = F - data.Y
        return data.inner(residuals, residuals) / data.num_data, (2.0 / data.num_data * residuals,)


class Mixed(ke.Objective):
    """Every other quantity that an objective may use."""

    inputs = ("coefficients", "fitted", "inverse_diagonal")

    def value_and_gradient(self, data, V, P, c):
        return data.inner(V, P) + c.sum(-1), (P, V, c * 0.0 + 1.0)


KERNELS = {
    "rbf": lambda: RBFKernel(),
    "ard": lambda: RBFKernel(ard_num_dims=3, lengthscale_prior=LogNormalPrior(0.0, 1.0)),
    "scaled": lambda: ScaleKernel(RBFKernel(ard_num_dims=3), outputscale_prior=GammaPrior(2.0, 1.0)),
    "matern 3/2": lambda: MaternKernel(nu=1.5),
    "matern 5/2": lambda: ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=3)),
    "tied": lambda: TiedRBFKernel([0, 1, 1], lengthscale_prior=GammaPrior(2.0, 1.0)),
    "default": lambda: ke.default_kernel(X),
    "bounded": lambda: RBFKernel(lengthscale_constraint=GreaterThan(0.1)),
    "columns": lambda: ScaleKernel(RBFKernel(active_dims=(0, 2))),
    # Parts without a closed form, which autograd differentiates.
    "rough": lambda: TiedMaternKernel([0, 1, 1], nu=0.5),
    "sum": lambda: RBFKernel() + ScaleKernel(PeriodicKernel()),
    "plain": lambda: Plain(),
    "interval": lambda: RBFKernel(lengthscale_constraint=Interval(0.1, 4.0)),
    "other prior": lambda: RBFKernel(lengthscale_prior=HalfCauchyPrior(torch.tensor(1.0, dtype=torch.float64))),
}
OBJECTIVES = {
    "empirical": ke.EmpiricalRisk() + ke.RademacherComplexity("4e/n"),
    "linear below": ke.EmpiricalRisk(1e-1, below="linear") - 0.1 * ke.LeaveOneOutRisk(0.05, below="linear"),
    "leave-one-out": ke.LeaveOneOutRisk() + 0.5 * ke.RademacherComplexity("1/n"),
    "default": ke.default_objective(),
    "calibrated": ke.CalibratedLeaveOneOutRisk() + ke.CalibratedLeaveOneOutRisk(),
    "evidence": ke.ConditionalEvidence() + 0.5 * ke.ConditionalEvidence(),
    "own": ke.LeaveOneOutRisk() + Brier(),
    "own with derivatives": ke.RademacherComplexity() + DirectBrier() + 0.1 * Mixed(),
    "cross validation": ke.CrossValidationRisk(5),
}


def classes(kernel, **options):
    prior = LogNormalPrior(-4.0, 1.0)
    return ke.MulticlassEmbedding(kernel, 3, 0.01, regularization_prior=prior, **options).double()


def vector_of(embedding, objective):
    return ParameterVector(embedding, unidentified(embedding, objective))


def direct(embedding, objective, x=X, y=Y):
    return direct_objective(embedding, objective, x, y, vector_of(embedding, objective))


def check_agrees(embedding, objective, x=X, y=Y):
    vector = vector_of(embedding, objective)
    start, loss = vector.get(), Loss(LocalProcess(embedding), objective, vector, Data(x, y))
    for step in 0.5 * np.random.default_rng(0).standard_normal((3, len(start))):
        vector.set(start + step)
        evaluation = loss.evaluate_directly(start + step)
        vector.clear_gradient()
        expected, expected_terms = loss.backpropagate(Batch(x, y))
        assert evaluation.value == pytest.approx(expected, rel=1e-11, abs=1e-11)
        assert evaluation.terms == pytest.approx(expected_terms, rel=1e-10, abs=1e-11)
        slope = vector.gradient()
        np.testing.assert_allclose(evaluation.gradient, slope, rtol=1e-10, atol=1e-10 * (1.0 + np.abs(slope).max()))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_direct_evaluation_agrees_with_autograd(kernel, objective):
    check_agrees(classes(KERNELS[kernel]()), OBJECTIVES[objective])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("objective", [2.0 * ke.LeaveOneOutScore(), ke.ConditionalEvidence()])
def test_real_targets_agree_too(kernel, objective):
    check_agrees(ke.ConditionalEmbedding(KERNELS[kernel](), 0.01).double(), objective, y=REAL)


def fixed_lengthscale():
    embedding = classes(ScaleKernel(RBFKernel()))
    embedding.kernel.base_kernel.raw_lengthscale.requires_grad_(False)
    embedding.kernel.outputscale = 1.7
    return embedding


def prior_of_another_quantity():
    kernel = RBFKernel()
    kernel.lengthscale = 1.0  # where 1/ℓ² is ℓ
    kernel.register_prior("sparse", GammaPrior(2.0, 2.0), lambda module: module.lengthscale.pow(-2))
    return classes(kernel)


def with_target_kernel():
    return ke.ConditionalEmbedding(RBFKernel(), target_kernel=RBFKernel()).double()


@pytest.mark.parametrize(
    ("embedding", "objective", "y"),
    [
        *[(lambda: classes(RBFKernel(ard_num_dims=3)), objective, SOFT) for objective in OBJECTIVES.values()],
        (lambda: classes(RBFKernel(), sup_diagonal=2.0), ke.RademacherComplexity(), Y),
        (lambda: classes(RBFKernel()), ke.LeaveOneOutScore(), Y),
        (with_target_kernel, ke.LeaveOneOutScore() + ke.RademacherComplexity(), REAL),
        (lambda: ke.BayesianMeanEmbedding(RBFKernel(), learn_noise=True).double(), ke.EmbeddingEvidence(), None),
        (fixed_lengthscale, ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"), Y),
        (prior_of_another_quantity, ke.LeaveOneOutRisk(), Y),
    ],
)
def test_other_embeddings_agree_too(embedding, objective, y):
    check_agrees(embedding(), objective, y=y)


@pytest.mark.parametrize(
    "constraint",
    [
        Positive(),
        GreaterThan(0.25, transform=torch.exp, inv_transform=torch.log),
        GreaterThan(0.25),
        Interval(0.1, 2.0),
        LessThan(3.0),
        Interval(0.1, 2.0, transform=None),
    ],
)
def test_transforms_are_those_of_the_constraints(constraint):
    u = np.array([-30.0, -1.0, 0.5, 19.9, 20.1, 60.0])
    kernel = RBFKernel(ard_num_dims=6, lengthscale_constraint=constraint).double()
    theta, slope = Coordinates(ParameterVector(kernel))(u)
    raw = torch.tensor(u, requires_grad=True)
    expected = constraint.double().transform(raw)
    np.testing.assert_allclose(theta, expected.detach().numpy(), rtol=1e-14)
    (gradient,) = torch.autograd.grad(expected.sum(), raw)
    np.testing.assert_allclose(slope, gradient.numpy(), rtol=3e-9)  # torch's softplus is linear from 20 on


@pytest.mark.parametrize(
    "make",
    [
        lambda: direct(classes(RBFKernel()).float(), ke.LeaveOneOutRisk(), X.float()),
        lambda: direct(classes(RBFKernel()), ke.LeaveOneOutRisk(), torch.rand(MOST_ROWS + 1, 3).double()),
        lambda: direct(classes(RBFKernel(batch_shape=torch.Size([2]))), ke.LeaveOneOutRisk()),
        lambda: direct(classes(gpytorch.kernels.LinearKernel()), ke.LeaveOneOutRisk()),  # explicit features
        lambda: direct(classes(ke.FeatureKernel(torch.nn.Linear(3, 2), RBFKernel())), ke.LeaveOneOutRisk()),
    ],
)
def test_large_batched_and_feature_problems_use_autograd(make):
    assert make() is None


def test_points_that_lose_digits_use_autograd():
    embedding = classes(RBFKernel())
    evaluate = direct(embedding, ke.ConditionalEvidence())
    names = list(vector_of(embedding, ke.ConditionalEvidence()).named)
    far = np.zeros(2)
    far[names.index("kernel.raw_lengthscale")] = -12.0  # norms beyond which squared distances lose digits
    singular = np.full(2, -45.0)
    singular[names.index("kernel.raw_lengthscale")] = 200.0
    for u in (far, singular, np.full(2, np.nan), np.full(2, 1e4)):
        assert evaluate(u) is None


def test_a_subclass_with_its_own_evaluate_is_respected():
    class Shifted(ke.LeaveOneOutRisk):
        def evaluate(self, attached):
            return 1.0 + super().evaluate(attached)

    embedding = classes(RBFKernel())
    check_agrees(embedding, Shifted())
    u = vector_of(embedding, Shifted()).get()
    assert sum(direct(embedding, Shifted())(u).terms) == pytest.approx(
        1.0 + sum(direct(embedding, ke.LeaveOneOutRisk())(u).terms)
    )


@pytest.mark.parametrize("objective", ["empirical", "calibrated", "evidence"])
def test_fit_takes_the_same_steps_with_autograd(monkeypatch, objective):
    runs = []
    for rows in (MOST_ROWS, 0):
        monkeypatch.setattr("kernel_embed.learning.parameters.MOST_ROWS", rows)
        embedding = classes(RBFKernel(ard_num_dims=3))
        result = ke.fit(embedding, OBJECTIVES[objective], X, Y, max_evaluations=12)
        values = [embedding.regularization.item(), *embedding.kernel.lengthscale.flatten().tolist()]
        runs.append(([list(record.values()) for record in result.history], values))
    np.testing.assert_allclose(runs[0][0], runs[1][0], rtol=1e-7)
    np.testing.assert_allclose(runs[0][1], runs[1][1], rtol=1e-6)


def test_single_precision_uses_autograd():
    vector = vector_of(classes(RBFKernel()), ke.LeaveOneOutRisk())
    assert Loss(LocalProcess(vector.module), ke.LeaveOneOutRisk(), vector, Data(X, Y), single=True).direct is None


def test_singular_matrices_get_jitter_from_the_autograd_path():
    """Duplicate rows and a ridge below rounding: A is singular wherever the search goes."""
    embedding = ke.MulticlassEmbedding(RBFKernel(), 3, 1e-30).double()
    embedding.raw_regularization.requires_grad_(False)
    with pytest.warns(NumericalWarning, match="jitter"):
        result = ke.fit(embedding, ke.ConditionalEvidence(), X.repeat(2, 1), Y.repeat(2), max_evaluations=3)
    assert np.isfinite(result.value)


@pytest.mark.parametrize(
    "kernel", [RBFKernel(), RBFKernel(ard_num_dims=3), ScaleKernel(MaternKernel(2.5, ard_num_dims=3))]
)
def test_equal_rows_do_not_drown_the_gradient_in_rounding_errors(kernel):
    """Far apart or equal, points have no gradient in ℓ, though ∂q/∂K is 1/(nλ) where rows are equal."""
    x, y = X.repeat(2, 1), Y.repeat(2)
    embedding = classes(kernel)
    embedding.regularization = 1e-12
    (kernel.base_kernel if isinstance(kernel, ScaleKernel) else kernel).lengthscale = 0.02
    objective = ke.ConditionalEvidence()
    objective(embedding, x, y).backward()
    gradient = next(p.grad for name, p in kernel.named_parameters() if "lengthscale" in name)
    assert gradient.abs().max() < 1e-8
    vector = vector_of(embedding, objective)
    value = direct(embedding, objective, x, y)(vector.get())
    assert value is not None
    entries = next(entries for name, entries in vector.slices.items() if "lengthscale" in name)
    assert np.abs(value.gradient[entries]).max() < 1e-8
