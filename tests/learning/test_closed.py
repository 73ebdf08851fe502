"""The loss of ``fit`` in closed form agrees with the general road, and steps aside where it should."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior, HalfCauchyPrior, LogNormalPrior
from linear_operator.utils.warnings import NumericalWarning

import kernel_embed as ke
from kernel_embed.kernels import TiedMaternKernel, TiedRBFKernel
from kernel_embed.learning.closed import closed_loss
from kernel_embed.learning.closed.loss import MOST_ROWS, Place
from kernel_embed.learning.parameters import ParameterVector, unidentified
from kernel_embed.learning.problem import LocalProcess, Loss

X = torch.as_tensor(np.random.RandomState(0).randn(30, 3))
Y = (X[:, 0] * X[:, 1] > 0).long() + (X[:, 2] > 1).long()
REAL = (X[:, 0] * X[:, 1]).sin()
SOFT = torch.nn.functional.one_hot(Y, 3).double() * 0.8 + 0.2 / 3

KERNELS = {
    "rbf": lambda: RBFKernel(),
    "ard": lambda: RBFKernel(ard_num_dims=3, lengthscale_prior=LogNormalPrior(0.0, 1.0)),
    "scaled": lambda: ScaleKernel(RBFKernel(ard_num_dims=3), outputscale_prior=GammaPrior(2.0, 1.0)),
    "matern 3/2": lambda: MaternKernel(nu=1.5),
    "matern 5/2": lambda: ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=3)),
    "tied": lambda: TiedRBFKernel([0, 1, 1], lengthscale_prior=GammaPrior(2.0, 1.0)),
    "default": lambda: ke.default_kernel(X),
    "bounded": lambda: RBFKernel(lengthscale_constraint=gpytorch.constraints.GreaterThan(0.1)),
}
OBJECTIVES = {
    "empirical": ke.EmpiricalRisk() + ke.RademacherComplexity("4e/n"),
    "linear below": ke.EmpiricalRisk(1e-1, below="linear") - 0.1 * ke.LeaveOneOutRisk(0.05, below="linear"),
    "leave-one-out": ke.LeaveOneOutRisk() + 0.5 * ke.RademacherComplexity("1/n"),
    "default": ke.default_objective(),
    "calibrated": ke.CalibratedLeaveOneOutRisk() + ke.CalibratedLeaveOneOutRisk(),
    "evidence": ke.ConditionalEvidence() + 0.5 * ke.ConditionalEvidence(),
}


def classes(kernel, **options):
    prior = LogNormalPrior(-4.0, 1.0)
    return ke.MulticlassEmbedding(kernel, 3, 0.01, regularization_prior=prior, **options).double()


def closed(embedding, objective, x=X, y=Y):
    return closed_loss(embedding, objective, x, y, vector_of(embedding, objective), len(x))


def vector_of(embedding, objective):
    return ParameterVector(embedding, unidentified(embedding, objective))


def check_agrees(embedding, objective, y):
    vector = vector_of(embedding, objective)
    start, pieces = vector.get(), closed(embedding, objective, y=y)
    general = Loss(LocalProcess(embedding), objective, float(len(X)))
    for step in 0.5 * np.random.default_rng(0).standard_normal((4, len(start))):
        known = pieces(start + step)
        vector.set(start + step)
        vector.clear_gradient()
        value, terms = general.backpropagate(X, y)
        assert known.value == pytest.approx(value, rel=1e-11, abs=1e-11)
        slope = vector.gradient()
        np.testing.assert_allclose(known.gradient, slope, rtol=1e-10, atol=1e-10 * (1.0 + np.abs(slope).max()))
        assert sum(known.terms) == pytest.approx(sum(terms.values()), rel=1e-11)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_closed_form_agrees_with_the_general_road(kernel, objective):
    check_agrees(classes(KERNELS[kernel]()), OBJECTIVES[objective], Y)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_soft_labels_agree_too(objective):
    check_agrees(classes(RBFKernel(ard_num_dims=3)), OBJECTIVES[objective], SOFT)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("objective", [ke.LeaveOneOutScore(), 2.0 * ke.LeaveOneOutScore(), ke.ConditionalEvidence()])
def test_real_targets_agree_too(kernel, objective):
    check_agrees(ke.ConditionalEmbedding(KERNELS[kernel](), 0.01).double(), objective, REAL)


def test_held_parameters_keep_their_values():
    embedding = classes(ScaleKernel(RBFKernel()))
    embedding.kernel.base_kernel.raw_lengthscale.requires_grad_(False)
    embedding.kernel.outputscale = 1.7
    check_agrees(embedding, ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"), Y)


@pytest.mark.parametrize("exponential", [True, False])
def test_softplus_and_exponential_are_those_of_torch(exponential):
    u = np.array([-30.0, -1.0, 0.5, 19.9, 20.1, 60.0])
    raw = torch.tensor(u, requires_grad=True)
    theta = 0.25 + (raw.exp() if exponential else torch.nn.functional.softplus(raw))
    (slope,) = torch.autograd.grad(theta.sum(), raw)
    found = Place("lengthscale", slice(0, 6), 0.25, exponential).theta(u)
    np.testing.assert_allclose(found[0], theta.detach().numpy(), rtol=1e-14)
    np.testing.assert_allclose(found[1], slope.numpy(), rtol=3e-9)  # torch's softplus is linear from 20 on


@pytest.mark.parametrize(
    "make",
    [
        lambda: closed(classes(MaternKernel(nu=0.5)), ke.LeaveOneOutRisk()),
        lambda: closed(classes(TiedMaternKernel([0, 1, 1], nu=0.5)), ke.LeaveOneOutRisk()),
        lambda: closed(classes(RBFKernel() + RBFKernel()), ke.LeaveOneOutRisk()),
        lambda: closed(classes(RBFKernel(active_dims=(0,))), ke.LeaveOneOutRisk()),
        lambda: closed(classes(RBFKernel(lengthscale_prior=HalfCauchyPrior(1.0))), ke.LeaveOneOutRisk()),
        lambda: closed(
            classes(RBFKernel(lengthscale_constraint=gpytorch.constraints.Interval(0.1, 2.0))), ke.LeaveOneOutRisk()
        ),
        lambda: closed(classes(RBFKernel()), ke.CrossValidationRisk()),
        lambda: closed(classes(RBFKernel()), ke.LeaveOneOutRisk() + ke.CrossValidationRisk()),
        lambda: closed(classes(RBFKernel(), sup_diagonal=2.0), ke.RademacherComplexity()),
        lambda: closed(classes(RBFKernel()).float(), ke.LeaveOneOutRisk(), X.float()),
        lambda: closed(classes(RBFKernel()), ke.LeaveOneOutScore()),
        lambda: closed(classes(RBFKernel()), ke.LeaveOneOutRisk(), torch.rand(MOST_ROWS + 1, 3).double()),
        lambda: closed(
            ke.ConditionalEmbedding(RBFKernel(), target_kernel=RBFKernel()).double(), ke.LeaveOneOutScore(), y=REAL
        ),
    ],
)
def test_what_is_not_known_takes_the_general_road(make):
    assert make() is None


def test_a_prior_of_something_else_is_not_taken_for_one_of_the_parameter():
    kernel = RBFKernel()
    kernel.lengthscale = 1.0  # where 1/ℓ² is ℓ
    kernel.register_prior("sparse", GammaPrior(2.0, 2.0), lambda module: module.lengthscale.pow(-2))
    assert closed(classes(kernel), ke.LeaveOneOutRisk()) is None


def test_numbers_out_of_the_ordinary_take_the_general_road():
    embedding = classes(RBFKernel())
    pieces = closed(embedding, ke.ConditionalEvidence())
    names = list(vector_of(embedding, ke.ConditionalEvidence()).named)
    far = np.zeros(2)
    far[names.index("kernel.raw_lengthscale")] = -12.0  # norms beyond which squared distances lose digits
    singular = np.full(2, -45.0)
    singular[names.index("kernel.raw_lengthscale")] = 200.0
    for u in (far, singular, np.full(2, np.nan), np.full(2, 1e4)):
        assert pieces(u) is None


@pytest.mark.parametrize("objective", ["empirical", "calibrated", "evidence"])
def test_fit_finds_the_same_by_both_roads(monkeypatch, objective):
    found = []
    for rows in (MOST_ROWS, 0):
        monkeypatch.setattr("kernel_embed.learning.closed.loss.MOST_ROWS", rows)
        embedding = classes(RBFKernel(ard_num_dims=3))
        result = ke.fit(embedding, OBJECTIVES[objective], X, Y, max_evaluations=12)
        found.append((result, embedding.regularization.item(), embedding.kernel.lengthscale.tolist()))
    (one, *first), (other, *second) = found
    assert one.num_evaluations == other.num_evaluations
    assert one.history[-1].keys() == other.history[-1].keys()
    np.testing.assert_allclose(
        [list(record.values()) for record in one.history],
        [list(record.values()) for record in other.history],
        rtol=1e-7,
    )
    np.testing.assert_allclose(
        np.hstack([np.ravel(v) for v in first]), np.hstack([np.ravel(v) for v in second]), rtol=1e-6
    )


def test_a_closed_form_that_disagrees_is_not_used(monkeypatch):
    calls = []

    def off(self, u):
        calls.append(u)
        return None if (known := evaluate(self, u)) is None else known._replace(value=known.value * (1.0 + 1e-6))

    from kernel_embed.learning.closed import Pieces

    evaluate = Pieces.__call__
    monkeypatch.setattr(Pieces, "__call__", off)
    embedding = classes(RBFKernel())
    result = ke.fit(embedding, ke.LeaveOneOutRisk(), X, Y, max_evaluations=6)
    assert len(calls) == 1
    assert result.num_evaluations == len(result.history) > 2


def test_weights_and_single_precision_take_the_general_road(monkeypatch):
    asked = []
    monkeypatch.setattr("kernel_embed.learning.problem.closed_loss", lambda *given: asked.append(given))
    for options in ({"weights": torch.ones(30)}, {"precision": "single"}, {}):
        ke.fit(classes(RBFKernel()), ke.LeaveOneOutRisk(), X, Y, max_evaluations=3, **options)
    assert len(asked) == 1


def test_a_line_search_that_leaves_the_ordinary_comes_back():
    """Duplicate rows and a tiny ridge: some points have jitter, which the general road adds and announces."""
    x = torch.cat([X, X])
    embedding = ke.MulticlassEmbedding(RBFKernel(), 3, 1e-17).double()
    with pytest.warns(NumericalWarning, match="jitter"):
        result = ke.fit(embedding, ke.ConditionalEvidence(), x, torch.cat([Y, Y]), max_evaluations=20)
    assert np.isfinite(result.value)
    assert result.value < result.history[0]["value"]
