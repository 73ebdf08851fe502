"""Conditional embeddings, eqs. (1) and (2), and what conditioning promises."""

import copy

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, RFFKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior
from linear_operator.utils.warnings import NumericalWarning

import kernel_embed as ke

from .. import oracles
from ..conftest import named_kernels, rbf

LAM = 0.03
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def continuous(problem):
    """Scalar targets."""
    return problem.x, torch.sin(problem.x.sum(-1)), problem.query


def grams(kernel, x, query):
    with torch.no_grad():
        return kernel(x).to_dense().numpy(), kernel(query, x).to_dense().numpy()


@pytest.mark.parametrize("name", named_kernels())
def test_expectations_equal_loops(name, continuous):
    x, y, query = continuous
    kernel = named_kernels()[name]
    K, K_x = grams(kernel, x, query)
    conditioned = ke.ConditionalEmbedding(kernel, LAM).condition(x, y)
    expected = [oracles.expectation(K, k, y.numpy() ** 2, LAM) for k in K_x]
    np.testing.assert_allclose(conditioned.expectation(lambda y: y**2, query).detach(), expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(conditioned.expectation(y**2, query).detach(), expected, rtol=1e-8, atol=1e-10)


def test_vector_targets(problem):
    y = torch.stack([problem.x.sum(-1), problem.x.prod(-1)], dim=-1)
    conditioned = ke.ConditionalEmbedding(rbf(), LAM).condition(problem.x, y)
    norm = conditioned.expectation(lambda y: y.norm(dim=-1), problem.query)
    K, K_x = grams(rbf(), problem.x, problem.query)
    expected = [oracles.expectation(K, k, np.linalg.norm(y.numpy(), axis=1), LAM) for k in K_x]
    np.testing.assert_allclose(norm.detach(), expected, rtol=1e-8)
    assert conditioned.V.shape == (24, 2)


def test_regression_weights_and_leave_one_out_equal_loops(continuous):
    x, y, query = continuous
    conditioned = ke.ConditionalEmbedding(rbf(), LAM).condition(x, y)
    (K, K_x), Y = grams(rbf(), x, query), y.numpy()[:, None]
    np.testing.assert_allclose(conditioned.V.detach(), oracles.coefficients(K, Y, LAM), rtol=1e-8)
    np.testing.assert_allclose(conditioned.P.detach(), K @ oracles.coefficients(K, Y, LAM), rtol=1e-8)
    np.testing.assert_allclose(conditioned.leave_one_out().detach(), oracles.leave_one_out(K, Y, LAM), rtol=1e-8)
    weights = np.linalg.solve(oracles.ridge_matrix(K, LAM), K_x.T)
    np.testing.assert_allclose(conditioned.weights(query).detach(), weights, rtol=1e-8, atol=1e-11)


def test_restriction_is_conditioning_on_fewer_rows(continuous):
    x, y, query = continuous
    embedding, rows = ke.ConditionalEmbedding(rbf(), LAM), torch.tensor([5, 1, 7, 20, 3])
    part = embedding.condition(x, y).restricted(rows)
    alone = embedding.condition(x[rows], y[rows])
    torch.testing.assert_close(part.expectation(y[rows], query), alone.expectation(y[rows], query))


def predictions(conditioned, query):
    """Every prediction of a conditioned embedding."""
    return {
        "decision": conditioned.decision_probabilities(query),
        "probabilities": conditioned.probabilities(query),
        "entropy": conditioned.entropy(query),
        "information": conditioned.entropy(query, "expected-information"),
        "expectation": conditioned.expectation(torch.arange(3.0), query),
        "weights": conditioned.weights(query),
        "leave one out": conditioned.leave_one_out(),
        "sup": conditioned.sup_diagonal.value,
        "K": conditioned.K,
        "V": conditioned.V,
    }


def evaluations(conditioned, query):
    """Predictions and objectives of a conditioned embedding."""
    return predictions(conditioned, query) | {
        "r": ke.RademacherComplexity().evaluate(conditioned),
        "batch validation": ke.BatchValidationRisk(epsilon=1e-3).evaluate(conditioned),
        "cross validation": ke.CrossValidationRisk(4, norm_penalty=True).evaluate(conditioned),
        "evidence": ke.ConditionalEvidence().evaluate(conditioned),
        "bound": torch.tensor(ke.generalization_bound(conditioned).value, dtype=torch.float64),
    }


@pytest.mark.parametrize("name", ["matern52", "sum", "rq"])
def test_predictions_stay_when_the_embedding_is_learned_further_or_converted(name, problem):
    embedding = ke.MulticlassEmbedding(named_kernels()[name], problem.m, LAM)
    with torch.no_grad():
        before = evaluations(embedding.condition(problem.x, problem.y), problem.query)
        conditioned = embedding.condition(problem.x, problem.y)
        for parameter in embedding.parameters():
            parameter.add_(0.7)
        embedding.float()
        after = evaluations(conditioned, problem.query)
    for key, value in before.items():
        torch.testing.assert_close(after[key], value, msg=f"{key} changed with the embedding")


def test_regularization_is_a_registered_parameter_with_constraint_and_prior():
    constraint, prior = GreaterThan(1e-4), LogNormalPrior(-2.0, 1.0)
    embedding = ke.MulticlassEmbedding(rbf(), 2, 0.2, regularization_constraint=constraint, regularization_prior=prior)
    assert isinstance(embedding, gpytorch.Module)
    assert "raw_regularization" in dict(embedding.named_parameters())
    assert embedding.raw_regularization_constraint is constraint
    (entry,) = [row for row in embedding.named_priors() if row[0] == "regularization_prior"]
    _, owner, registered, closure, setting = entry
    assert registered is prior
    assert closure(owner).item() == pytest.approx(0.2)
    for value, change in (
        (0.3, lambda: setting(owner, torch.tensor(0.3))),
        (0.5, lambda: setattr(embedding, "regularization", 0.5)),
        (0.7, lambda: embedding.initialize(regularization=0.7)),
    ):
        change()
        assert embedding.regularization.item() == pytest.approx(value)
    assert embedding.regularization.dtype == torch.float64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rbf",), r"Expected a gpytorch.kernels.Kernel, got str"),
        *[((rbf(), value), r"Expected a positive, finite regularization, got") for value in (0.0, -1.0, NAN, INF)],
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ke.ConditionalEmbedding(*arguments)
    with pytest.raises((ValueError, RuntimeError), match=r"(?s)bounds.*Interval\(1.000E-01, 1.000E\+00\)"):
        ke.MulticlassEmbedding(rbf(), 2, 0.01, regularization_constraint=Interval(0.1, 1.0))


def test_load_state_dict_warns_of_lost_digits(problem):
    embedding = ke.MulticlassEmbedding(rbf(), problem.m, 0.2).double()
    narrow = copy.deepcopy(embedding).float()
    with pytest.warns(NumericalWarning, match=r"raw_regularization.* are rounded to torch.float32"):
        narrow.load_state_dict(embedding.state_dict())
    embedding.load_state_dict(narrow.state_dict())  # nothing is lost this way, or in what was rounded before
    narrow.load_state_dict(embedding.state_dict())


def test_wrong_values_of_g_are_rejected(continuous):
    x, y, query = continuous
    conditioned = ke.ConditionalEmbedding(rbf()).condition(x, y)
    for g in (torch.zeros(5), torch.tensor(1.0), torch.zeros(24, 2, 2), lambda y: y.sum()):
        with pytest.raises(ValueError, match=r"Expected the values of g at the 24 training targets.*got"):
            conditioned.expectation(g, query)


def batched_kernels():
    S = torch.Size([3])
    scale = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    rbf_ = RBFKernel(ard_num_dims=3, batch_shape=S).double()
    rbf_.lengthscale = scale[:, None, None] * torch.tensor([1.0, 0.8, 1.2], dtype=torch.float64)
    scaled = ScaleKernel(MaternKernel(1.5, batch_shape=S), batch_shape=S).double()
    scaled.base_kernel.lengthscale = scale[:, None, None]
    scaled.outputscale = scale.flip(0)
    linear = LinearKernel(batch_shape=S).double()
    linear.variance = scale[:, None, None]
    return {"rbf": rbf_, "scaled": scaled, "sum": rbf_ + scaled, "linear": linear}


@pytest.mark.parametrize("name", batched_kernels())
def test_a_batch_of_hyperparameters_is_so_many_embeddings(name, problem):
    kernel = batched_kernels()[name]
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    assert embedding.regularization.shape == (3,)
    lams = torch.tensor([0.01, 0.05, 0.2], dtype=torch.float64)
    embedding.regularization = lams
    conditioned = embedding.condition(problem.x, problem.y)
    assert conditioned.predict(problem.query).shape == (3, 7)
    together = predictions(conditioned, problem.query)
    for s in range(3):
        one = ke.MulticlassEmbedding(kernel[s], problem.m, lams[s].item()).condition(problem.x, problem.y)
        alone = predictions(one, problem.query)
        for key, value in alone.items():
            torch.testing.assert_close(together[key][s], value, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel_dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["rbf", "matern12", "sum", "linear", "rq"])
def test_data_decide_the_dtype(name, dtype, kernel_dtype, problem):
    embedding = ke.MulticlassEmbedding(named_kernels()[name].to(kernel_dtype), problem.m)
    conditioned = embedding.condition(problem.x.to(dtype), problem.y)
    assert conditioned.decision_probabilities(problem.query.to(dtype)).dtype == dtype
    assert ke.EmpiricalRisk()(embedding, problem.x.to(dtype), problem.y).dtype == dtype


@pytest.mark.parametrize("name", ["rff", "polynomial"])
def test_kernels_that_do_not_mix_dtypes_say_so(name, problem):
    kernel = RFFKernel(20, num_dims=3) if name == "rff" else gpytorch.kernels.PolynomialKernel(2)
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    with pytest.raises(TypeError, match=r"the parameters of .*torch.float64, got torch.float32. Use embedding.to"):
        embedding.condition(problem.x, problem.y)
    ke.fit(embedding, ke.EmpiricalRisk(), problem.x, problem.y, max_evaluations=2)
    assert embedding.condition(problem.x, problem.y).P.dtype == torch.float64


def test_predictions_stay_where_the_regularization_has_no_transform(problem):
    constraint = Interval(1e-4, 1.0, transform=None, initial_value=0.02)
    embedding = ke.MulticlassEmbedding(rbf(), problem.m, 0.02, regularization_constraint=constraint)
    with torch.no_grad():
        conditioned = embedding.condition(problem.x, problem.y)
        before = ke.BatchValidationRisk().evaluate(conditioned).item()
        embedding.regularization = 0.5
        assert conditioned.regularization.item() == pytest.approx(0.02)
        assert ke.BatchValidationRisk().evaluate(conditioned).item() == before
