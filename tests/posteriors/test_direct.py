"""Potentials of small problems without modules and graph; the autograd path is the reference."""

import copy

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior, HalfCauchyPrior, LogNormalPrior

import kernel_embed as ke
from kernel_embed.posteriors.potential import Potential, quiet_numbers

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
