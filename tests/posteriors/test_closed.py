"""Potentials in closed form agree with the general road, and step aside where they should."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior, HalfCauchyPrior, LogNormalPrior

import kernel_embed as ke
from kernel_embed.posteriors.closed import ClosedForm
from kernel_embed.posteriors.potential import Potential, quiet_numbers

X = torch.as_tensor(np.random.RandomState(0).randn(25, 2))
Y = (X[:, 0] > 0).long()
KERNELS = {
    "rbf": lambda: RBFKernel(lengthscale_prior=GammaPrior(2.0, 3.0)),
    "ard": lambda: ScaleKernel(RBFKernel(ard_num_dims=2), outputscale_prior=LogNormalPrior(0.1, 0.5)),
    "matern 3/2": lambda: MaternKernel(nu=1.5),
    "matern 5/2 ard": lambda: ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=2)),
}


def labels(kernel, objective=None):
    objective = ke.ConditionalEvidence() if objective is None else objective
    return Potential(ke.MulticlassEmbedding(kernel, 2).double(), objective, X, Y)


def sample(kernel, x=X, **options):
    return Potential(ke.BayesianMeanEmbedding(kernel, **options).double(), ke.EmbeddingEvidence(), x, None)


POTENTIALS = {
    **{name: lambda make=make: labels(make()) for name, make in KERNELS.items()},
    "tempered": lambda: Potential(
        ke.MulticlassEmbedding(RBFKernel(), 2).double(), ke.ConditionalEvidence(), X, Y, temperature=0.3
    ),
    "Gibbs": lambda: labels(RBFKernel(ard_num_dims=2), ke.LeaveOneOutRisk() + ke.RademacherComplexity("1/n")),
    "calibrated": lambda: labels(RBFKernel(), ke.CalibratedLeaveOneOutRisk()),
    "twice the evidence": lambda: labels(RBFKernel(), 2.0 * ke.ConditionalEvidence()),
    "regression": lambda: Potential(
        ke.ConditionalEmbedding(RBFKernel()).double(), ke.ConditionalEvidence(), X, X.sin()
    ),
    "labels as floats": lambda: Potential(
        ke.MulticlassEmbedding(RBFKernel(), 2).double(), ke.ConditionalEvidence(), X, Y.double()
    ),
    "mean": lambda: sample(RBFKernel(lengthscale_prior=GammaPrior(1.0, 1.0))),
    "mean on the line": lambda: sample(RBFKernel(), X[:, :1], noise=0.2),
}


@pytest.mark.parametrize("name", POTENTIALS)
def test_a_closed_form_agrees_with_the_general_road(name):
    potential = POTENTIALS[name]()
    closed, start = potential._closed, potential.vector.get()
    assert closed is not None
    for step in 0.5 * np.random.default_rng(0).standard_normal((5, len(start))):
        value, gradient = closed(start + step)
        expected, slope = potential.general(start + step)
        # The same sums in another order.
        assert value == pytest.approx(expected, rel=1e-9)
        np.testing.assert_allclose(gradient, slope, rtol=1e-8, atol=1e-8 * (1.0 + np.abs(slope).max()))
        assert potential.value(start + step) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda: labels(MaternKernel(nu=0.5)),
        lambda: labels(RBFKernel() + RBFKernel()),
        lambda: labels(RBFKernel(active_dims=(0,))),
        lambda: labels(RBFKernel(lengthscale_prior=HalfCauchyPrior(1.0))),
        lambda: labels(RBFKernel(), ke.CrossValidationRisk()),
        lambda: sample(RBFKernel(), torch.cat([X, X[:3]])),
        lambda: sample(RBFKernel(ard_num_dims=2)),
        lambda: Potential(ke.MulticlassEmbedding(RBFKernel(), 2), ke.ConditionalEvidence(), X.float(), Y),
    ],
)
def test_what_is_not_known_takes_the_general_road(make):
    assert make()._closed is None


def test_a_closed_form_that_disagrees_is_not_used_and_not_in_silence(monkeypatch):
    evaluate = ClosedForm.__call__

    def off(self, u, with_gradient=True):
        value, gradient = evaluate(self, u, with_gradient)
        return value * (1.0 + 1e-6), gradient

    monkeypatch.setattr(ClosedForm, "__call__", off)
    with pytest.warns(RuntimeWarning, match="the general ones are used"):
        posterior = ke.sample_posterior(
            ke.MulticlassEmbedding(RBFKernel(), 2).double(), ke.ConditionalEvidence(), X, Y,
            num_samples=2, warmup_steps=2, num_chains=1, seed=0, sampler=ke.NUTS(max_tree_depth=2),
        )  # fmt: skip
    potential = labels(RBFKernel())
    with pytest.warns(RuntimeWarning, match="close to singular"):
        assert potential._closed is None
    assert potential.value_and_gradient(potential.vector.get())[0] == potential.general(potential.vector.get())[0]
    assert all(bool(values.isfinite().all()) for values in posterior.samples.values())


def test_numbers_out_of_the_ordinary_take_the_general_road():
    potential = labels(RBFKernel())
    names = list(potential.vector.named)
    far, near_zero = potential.vector.get(), potential.vector.get()
    far[names.index("kernel.raw_lengthscale")] = -12.0  # norms beyond which squared distances lose digits
    near_zero[names.index("kernel.raw_lengthscale")], near_zero[names.index("raw_regularization")] = 9.0, -45.0
    for u in (far, near_zero, np.full(len(far), np.nan), np.full(len(far), 1e4)):
        assert potential._closed(u) is None
    evaluations = potential.num_evaluations
    assert np.isfinite(potential.value_and_gradient(far)[0])
    assert potential.num_evaluations == evaluations + 1
    assert potential.value_and_gradient(np.full(len(far), 1e4))[0] == np.inf
    assert potential.num_refused == 1


@pytest.mark.parametrize("far", [-400.0, -370.0, 340.0, 400.0])
@pytest.mark.parametrize("name", POTENTIALS)
def test_a_wild_step_is_refused_and_does_not_end_the_chain(name, far):
    potential = POTENTIALS[name]()
    with quiet_numbers():  # as samplers do
        value, gradient = potential.value_and_gradient(np.full(len(potential.vector.get()), far))
    assert value == np.inf or np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_a_copy_finds_its_own_closed_form():
    potential = labels(RBFKernel())
    u = potential.vector.get()
    value, gradient = potential.value_and_gradient(u)
    again = copy.deepcopy(potential)
    assert "_closed" not in vars(again)
    assert again.value_and_gradient(u)[0] == value
    np.testing.assert_array_equal(again.value_and_gradient(u)[1], gradient)
