"""Objectives are values: they are called, added, scaled, shown, and used in anybody's training loop."""

import copy
import math

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

import kernel_embed as ke

from ..conftest import make_problem, named_kernels, rbf
from . import OBJECTIVES


def test_objectives_add_subtract_and_scale(problem):
    a, b, embedding = ke.EmpiricalRisk(1e-3), ke.RademacherComplexity(), ke.MulticlassEmbedding(rbf(), problem.m)
    one, other = (objective(embedding, problem.x, problem.y) for objective in (a, b))
    for objective, expected in [
        (a + b, one + other),
        (a - b, one - other),
        (a * 3, 3 * one),
        (a / 4, one / 4),
        (2 * (a + 0.5 * b) + a, 3 * one + other),
        (sum([a, b]), one + other),
    ]:
        torch.testing.assert_close(objective(embedding, problem.x, problem.y), expected)
    for add, scale in ((1, "2"), ("risk", None), (None, b)):
        with pytest.raises(TypeError):
            a + add
        with pytest.raises(TypeError):
            a * scale


RATE = "RademacherComplexity(rate='4e/sqrt(n)')"
REPRS = {
    "LeaveOneOutRisk(epsilon=0.001) + 0.5 * " + RATE: ke.LeaveOneOutRisk() + 0.5 * ke.RademacherComplexity("4e/√n"),
    "2 * LeaveOneOutRisk(epsilon=0.01)": 2 * ke.LeaveOneOutRisk(1e-2),
    "0.5 * EmpiricalRisk(epsilon=1e-15)": ke.EmpiricalRisk() / 2,
    "EmpiricalRisk(epsilon=1e-15, below='linear')": ke.EmpiricalRisk(below="linear"),
    "ConditionalEvidence()": ke.ConditionalEvidence(),
    "CrossValidationRisk(num_folds=5, norm_penalty=True, seed=3)": ke.CrossValidationRisk(5, True, 3),
}


def test_reprs_say_what_is_in_force_and_tell_objectives_apart():
    """A checkpoint knows its objective by its repr."""
    assert [repr(objective) for objective in REPRS.values()] == list(REPRS)
    assert f"complexity={RATE}" in repr(ke.BatchValidationRisk(complexity=ke.RademacherComplexity("4e/sqrt(n)")))
    for one, other in [
        (ke.BatchValidationRisk(below="linear"), ke.BatchValidationRisk()),
        (ke.BatchValidationRisk(seed=1), ke.BatchValidationRisk()),
        (ke.CalibratedLeaveOneOutRisk(2.0), ke.CalibratedLeaveOneOutRisk()),
    ]:
        assert repr(one) != repr(other)


def test_means_and_sums_over_data_do_not_mix():
    with pytest.raises(ValueError, match=r"adds means over data to sums over data"):
        ke.EmpiricalRisk() + ke.ConditionalEvidence()
    assert not (0.5 * ke.ConditionalEvidence()).per_datum
    assert (ke.EmpiricalRisk() + ke.RademacherComplexity()).per_datum


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_training_loop_of_ones_own(name, problem):
    embedding, objective = ke.MulticlassEmbedding(rbf(), problem.m), OBJECTIVES[name]()
    optimizer = torch.optim.Adam(embedding.parameters(), lr=0.02)
    values = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = objective(embedding, problem.x, problem.y)
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    assert min(values[5:]) < values[0]
    assert all(math.isfinite(value) for value in values)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_batches_give_one_value_each(name, problem):
    kernel = RBFKernel(ard_num_dims=3, batch_shape=torch.Size([2])).double()
    scale = torch.tensor([0.6, 1.5], dtype=torch.float64)
    kernel.lengthscale = scale[:, None, None].expand(2, 1, 3)
    embedding, objective = ke.MulticlassEmbedding(kernel, problem.m), OBJECTIVES[name]()
    embedding.regularization = torch.tensor([0.01, 0.1], dtype=torch.float64)
    together = objective(embedding, problem.x, problem.y)
    assert together.shape == (2,)
    gradients = torch.autograd.grad(together.sum(), list(embedding.parameters()))
    for s in range(2):
        one = ke.MulticlassEmbedding(rbf(lengthscale=scale[s].expand(3)), problem.m)
        one.regularization = embedding.regularization[s].detach()
        value = objective(one, problem.x, problem.y)
        torch.testing.assert_close(together[s], value, rtol=1e-8, atol=1e-10)
        alone = torch.autograd.grad(value, list(one.parameters()))
        # parameters come in the same order: raw λ, then raw lengthscales
        for mine, other in zip(gradients, alone, strict=True):
            torch.testing.assert_close(mine[s].flatten(), other.flatten(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_both_precisions_agree(name, dtype, problem):
    exact = OBJECTIVES[name]()(ke.MulticlassEmbedding(rbf(), problem.m), problem.x, problem.y)
    embedding = ke.MulticlassEmbedding(rbf().to(dtype), problem.m)
    value = OBJECTIVES[name]()(embedding, problem.x.to(dtype), problem.y)
    assert value.dtype == dtype
    torch.testing.assert_close(value.double(), exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", [n for n in OBJECTIVES if "Evidence" not in n])
def test_only_the_ratio_of_regularization_and_outputscale_is_identified(name, problem):
    """Design notes 4.3, the reason why ``fit`` holds a lone outputscale fixed."""
    objective = OBJECTIVES[name]()
    assert not objective.identifies_scale
    values = []
    for factor in (1.0, 7.0):
        kernel = named_kernels()["matern52"]
        kernel.outputscale = torch.tensor(factor, dtype=torch.float64)
        values.append(objective(ke.MulticlassEmbedding(kernel, problem.m, 0.02 * factor), problem.x, problem.y).item())
    assert values[0] == pytest.approx(values[1], rel=1e-9)


@pytest.mark.parametrize(
    "objective",
    [ke.EmpiricalRisk(), ke.LeaveOneOutRisk(), ke.BatchValidationRisk(), ke.CalibratedLeaveOneOutRisk()],
    ids=lambda o: type(o).__name__,
)
def test_classification_risks_say_that_they_need_classes(objective, problem):
    embedding = ke.ConditionalEmbedding(rbf())
    with pytest.raises((TypeError, ValueError), match=r"needs a MulticlassEmbedding, got"):
        objective(embedding, problem.x, problem.x[:, 0])


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_evaluation_copies_no_parameters(name, problem, monkeypatch):
    """Neither the state of the kernel nor the kernel itself, on the way there or back."""
    embedding = ke.MulticlassEmbedding(rbf(), problem.m)

    def refuse(*args, **kwargs):
        raise AssertionError("Expected no copy of the parameters during an evaluation.")

    monkeypatch.setattr(copy, "deepcopy", refuse)
    monkeypatch.setattr(torch.nn.Module, "state_dict", refuse)
    OBJECTIVES[name]()(embedding, problem.x, problem.y).backward()
    with pytest.raises(AssertionError, match="no copy"):
        embedding.condition(problem.x, problem.y)


def test_data_that_do_not_fit_the_embedding_are_named(problem):
    mean = ke.BayesianMeanEmbedding(rbf())
    for call in (
        lambda *data: ke.EmbeddingEvidence()(mean, *data),
        lambda *d: ke.fit(mean, ke.EmbeddingEvidence(), *d),
    ):
        with pytest.raises(TypeError, match="BayesianMeanEmbedding embeds a sample and takes no targets y"):
            call(problem.x, problem.y)
    with pytest.raises(TypeError, match="MulticlassEmbedding is a conditional embedding and needs targets y"):
        ke.fit(ke.MulticlassEmbedding(rbf(), problem.m), ke.EmpiricalRisk(), problem.x)


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "product", "linear"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradients_equal_finite_differences(name, kernel):
    problem = make_problem(n=14)
    embedding = ke.MulticlassEmbedding(named_kernels()[kernel], problem.m, 0.05)
    objective = OBJECTIVES[name]()
    objective(embedding, problem.x, problem.y).backward()
    for parameter in embedding.parameters():
        for i in range(parameter.numel()):
            values = []
            for step in (1e-5, -1e-5):
                with torch.no_grad():
                    parameter.view(-1)[i] += step
                    values.append(objective(embedding, problem.x, problem.y).item())
                    parameter.view(-1)[i] -= step
            difference = (values[0] - values[1]) / 2e-5
            assert parameter.grad.view(-1)[i].item() == pytest.approx(difference, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5, None])
def test_duplicated_rows_and_points_far_apart_have_finite_gradients(name, nu, problem):
    x, kernel = problem.x, RBFKernel().double()
    if nu is None:  # K = I: nothing left to tell points apart, and nothing to divide by
        kernel.lengthscale = torch.tensor(1e-4, dtype=torch.float64)
    else:
        x, kernel = x[:8].repeat(3, 1), ScaleKernel(MaternKernel(nu, ard_num_dims=3)).double()
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    value = OBJECTIVES[name]()(embedding, x, problem.y)
    value.backward()
    assert torch.isfinite(value)
    assert all(torch.isfinite(p.grad).all() for p in embedding.parameters())


def test_inputs_may_ask_for_gradients(problem):
    x = problem.x.clone().requires_grad_()
    ke.EmpiricalRisk()(ke.MulticlassEmbedding(rbf(), problem.m), x, problem.y).backward()
    assert torch.isfinite(x.grad).all()
    assert bool((x.grad != 0).any())
