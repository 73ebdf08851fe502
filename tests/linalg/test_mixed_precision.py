"""Factors in single precision: against double, in values and gradients, and where they are refused."""

import warnings

import gpytorch
import pytest
import torch
from linear_operator.utils.warnings import NumericalWarning

import kernel_embed as ke
from kernel_embed.linalg import DenseSystem, single_precision

OBJECTIVES = [
    ke.EmpiricalRisk() + ke.RademacherComplexity("4e/n"),
    ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"),
    ke.CalibratedLeaveOneOutRisk(),
    ke.ConditionalEvidence(),
    ke.LeaveOneOutScore(gpytorch.kernels.RBFKernel().double()),
]


def problem(regularization=1e-2):
    x = torch.rand(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] * 3).long()
    embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(ard_num_dims=3), 3, regularization).double()
    embedding.kernel.lengthscale = 0.5
    return embedding, x, y


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_values_and_gradients_have_the_digits_that_are_promised(objective):
    found = []
    for single in (True, False):
        embedding, x, y = problem()
        with single_precision(single), warnings.catch_warnings():
            warnings.simplefilter("error")
            value = objective(embedding, x, y)
        value.backward()
        assert value.dtype == torch.float64
        found.append((value.detach(), embedding.kernel.raw_lengthscale.grad, embedding.raw_regularization.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        assert not torch.equal(one, other), "single precision was not used"


@pytest.mark.parametrize("weights", [None, torch.linspace(0.5, 2.0, 30, dtype=torch.float64)])
def test_solutions_are_refined(weights):
    Z = torch.randn(30, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    Y, ridge = torch.eye(30, 2, dtype=torch.float64), torch.tensor(0.1, dtype=torch.float64)
    with single_precision():
        system = DenseSystem(Z @ Z.mT, ridge, weights)
    assert system._factor.dtype == torch.float32
    expected = DenseSystem(Z @ Z.mT, ridge, weights).solve(Y)
    error = (system.solve(Y) - expected).norm() / expected.norm()
    unrefined = torch.cholesky_solve(Y.float(), system._factor).double() - expected
    assert error < 1e-8 < unrefined.norm() / expected.norm()


def test_a_condition_number_too_large_is_said_and_done_in_double():
    Z = torch.randn(30, 4, dtype=torch.float64)
    ridge = torch.tensor(1e-6, dtype=torch.float64)
    with single_precision(), pytest.warns(NumericalWarning, match=r"condition number .* went on in double"):
        system = DenseSystem(Z @ Z.mT, ridge)
    assert system._factor.dtype == torch.float64


def test_data_in_single_precision_are_left_alone():
    with single_precision():
        system = DenseSystem(torch.eye(3), torch.tensor(1e-6))
    assert system._factor.dtype == torch.float32


def test_fit_learns_the_same_and_answers_in_double():
    points, answers = [], []
    for precision in ("double", "single"):
        embedding, x, y = problem()
        result = ke.fit(
            embedding, ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/sqrt(n)"), x, y, precision=precision
        )
        points.append(result.value)
        conditioned = embedding.condition(x, y)
        assert conditioned.system._factor.dtype == torch.float64
        answers.append(conditioned.probabilities(x))
    assert points[1] == pytest.approx(points[0], rel=1e-3)
    torch.testing.assert_close(answers[1], answers[0], rtol=0.0, atol=0.02)


def test_another_precision_is_refused():
    embedding, x, y = problem()
    with pytest.raises(ValueError, match="precision must be 'double' or 'single', not 'half'"):
        ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, precision="half")
