"""The right-hand side of eq. (11), in both forms."""

import math

import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel

import kernel_embed as ke

from .. import oracles
from ..conftest import named_kernels, rbf

LAM = 0.02


@pytest.mark.parametrize("form", ["paper", "tight"])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("kernel", ["rbf", "matern52", "linear"])
def test_bound_equals_loops(form, confidence, kernel, problem):
    k = named_kernels()[kernel]
    with torch.no_grad():
        K = k(problem.x).to_dense().numpy()
    y = problem.y.numpy()
    Y = oracles.one_hot(y, problem.m)
    risk = oracles.clipped_cross_entropy(K @ oracles.coefficients(K, Y, LAM), y, 1e-15)
    r = oracles.rademacher_complexity(K, Y, LAM, max(K.diagonal()))
    conditioned = ke.MulticlassEmbedding(k, problem.m, LAM).condition(problem.x, problem.y)
    bound = ke.generalization_bound(conditioned, confidence, form)
    assert bound.value == pytest.approx(oracles.bound(risk, r, 24, 1 - confidence, form == "tight"), rel=1e-8)
    assert bound.empirical_risk == pytest.approx(risk, rel=1e-8)
    assert bound.complexity == pytest.approx(r, rel=1e-8)
    assert bound.multiplier == pytest.approx(4 * math.e / (math.sqrt(24) if form == "tight" else 1))
    assert bound.complexity_term == pytest.approx(bound.multiplier * r, rel=1e-8)
    assert bound.confidence_term == pytest.approx(math.sqrt(8 / 24 * math.log(2 / (1 - confidence))))
    assert bound.confidence == confidence
    assert bound.form == form
    assert bound.is_vacuous == (bound.value > 1)
    expected = "maximum over the data" if kernel == "linear" else "closed form"
    assert bound.sup_diagonal_source == expected


def test_a_given_bound_of_the_diagonal_is_named(problem):
    embedding = ke.MulticlassEmbedding(LinearKernel().double(), problem.m, sup_diagonal=30.0)
    assert ke.generalization_bound(embedding.condition(problem.x, problem.y)).sup_diagonal_source == "given"


def test_the_tight_form_can_say_something():
    """Many rows of an easy problem: below 1, where the published form is not."""
    x = torch.cat([torch.zeros(1500, 1), torch.ones(1500, 1)]).double()
    y = torch.arange(3000) // 1500
    embedding = ke.MulticlassEmbedding(rbf(1, 0.1), 2, 0.2).requires_grad_(False)
    conditioned = embedding.condition(x, y)
    tight, paper = (ke.generalization_bound(conditioned, form=form) for form in ("tight", "paper"))
    assert tight.value < paper.value
    assert tight.complexity_term == pytest.approx(paper.complexity_term / math.sqrt(3000))
    assert not tight.is_vacuous
    assert paper.is_vacuous


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.3])
def test_epsilon_reaches_the_empirical_risk(epsilon, problem):
    conditioned = ke.MulticlassEmbedding(rbf(), problem.m).condition(problem.x, problem.y)
    bound = ke.generalization_bound(conditioned, epsilon=epsilon)
    assert bound.empirical_risk == pytest.approx(ke.EmpiricalRisk(epsilon).evaluate(conditioned).item())


def test_arguments_are_checked(problem):
    conditioned = ke.MulticlassEmbedding(rbf(), problem.m).condition(problem.x, problem.y)
    for confidence in (0.0, 1.0, 95, float("nan")):
        with pytest.raises(ValueError, match="confidence must be between 0 and 1"):
            ke.generalization_bound(conditioned, confidence)
    with pytest.raises(ValueError, match=r"Unknown form 'loose'. Choose one of 'paper', 'tight', "):
        ke.generalization_bound(conditioned, form="loose")
    for epsilon in (0.0, 0.4):
        with pytest.raises(ValueError, match="epsilon between 0 and 1/e"):
            ke.generalization_bound(conditioned, epsilon=epsilon)
    batched = ke.MulticlassEmbedding(RBFKernel(batch_shape=torch.Size([2])).double(), problem.m)
    with pytest.raises(ValueError, match=r"batch shape \(2,\)"):
        ke.generalization_bound(batched.condition(problem.x, problem.y))
