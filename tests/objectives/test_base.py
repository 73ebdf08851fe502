"""Objectives are values: they are called, added, scaled, shown, and used in anybody's training loop."""

import copy

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel, SpectralMixtureKernel

import kernel_embed as ke
from kernel_embed.kernels.registration import matern
from kernel_embed.tabular.tied_kernels import laplace_gram
from kernel_embed.testing.checks import second_derivatives

from ..conftest import named_kernels, rbf
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


# --- second derivatives -----------------------------------------------------------------------------------------------


N = 9
X = torch.rand(N, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELS = (X[:, 0] * 2.9).long()
NUMBERS = torch.randn(N, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
GROUPS = torch.tensor([0, 0, 1, 2, 3, 4, 5, 6, 6])
WEIGHTS = torch.linspace(0.5, 2.0, N, dtype=torch.float64)


def deep():
    torch.manual_seed(4)
    network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
    return ke.FeatureKernel(network, RBFKernel())


def spectral():
    torch.manual_seed(0)
    return SpectralMixtureKernel(2, ard_num_dims=2)


SMOOTH_KERNELS = {
    "rbf": lambda: RBFKernel(ard_num_dims=2),
    "scaled": lambda: ScaleKernel(RBFKernel()),
    "matern12": lambda: MaternKernel(nu=0.5),
    "matern32": lambda: MaternKernel(nu=1.5),
    "matern52": lambda: MaternKernel(nu=2.5, ard_num_dims=2),
    "spectral mixture": spectral,
    "rational quadratic": RQKernel,
    "linear": LinearKernel,
    "deep": deep,
}
TWICE_DIFFERENTIABLE = {
    "empirical": ke.EmpiricalRisk() + ke.RademacherComplexity("4e/n"),
    "leave one out": ke.LeaveOneOutRisk(below="linear"),
    "calibrated": ke.CalibratedLeaveOneOutRisk(),
    "evidence": ke.ConditionalEvidence(),
    "cross validation": ke.CrossValidationRisk(num_folds=3),
    "score": ke.LeaveOneOutScore(),
    "evidence of a sample": ke.EmbeddingEvidence(),
}


def loss(kernel, objective):
    """The objective as a function of the parameters of an embedding, and these parameters."""
    if isinstance(objective, ke.EmbeddingEvidence):
        embedding, data = ke.BayesianMeanEmbedding(kernel), (X,)
    elif isinstance(objective, ke.LeaveOneOutScore):
        embedding, data = ke.ConditionalEmbedding(kernel, 0.1), (X, NUMBERS)
    else:
        embedding, data = ke.MulticlassEmbedding(kernel, 3, 0.1), (X, LABELS)
    embedding = embedding.double()
    return lambda *options: objective(embedding, *data, *options), [
        p for p in embedding.parameters() if p.requires_grad
    ]


def check(function, parameters):
    ours, differences = second_derivatives(function, parameters)
    scale = differences.abs().max()
    assert scale > 1e-6
    torch.testing.assert_close(ours, differences, rtol=0.0, atol=3e-6 * scale.item())


@pytest.mark.parametrize("kernel", SMOOTH_KERNELS)
@pytest.mark.parametrize("objective", TWICE_DIFFERENTIABLE)
def test_hessian_of_every_objective_and_kernel(kernel, objective):
    check(*loss(SMOOTH_KERNELS[kernel](), TWICE_DIFFERENTIABLE[objective]))


@pytest.mark.parametrize("objective", ["leave one out", "calibrated", "score"])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("options", [(WEIGHTS,), (None, GROUPS), (WEIGHTS, GROUPS)], ids=["weights", "groups", "both"])
def test_hessian_with_weights_and_groups(kernel, objective, options):
    function, parameters = loss(SMOOTH_KERNELS[kernel](), TWICE_DIFFERENTIABLE[objective])
    check(lambda: function(*options), parameters)


@pytest.mark.parametrize("other", [None, X[:4] + 0.3], ids=["one set", "two sets"])
def test_laplace_gram(other):
    """Away from equal coordinates, where the absolute value has no derivative."""
    weight = torch.randn(N, N if other is None else 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    scale = torch.tensor([0.7, 1.3], dtype=torch.float64, requires_grad=True)
    check(lambda: (weight * laplace_gram(X / scale, None if other is None else other / scale)).sum().square(), [scale])


def test_matern_hessian_at_repeated_rows():
    x = torch.cat([X, X[:2]])
    embedding = ke.MulticlassEmbedding(MaternKernel(nu=0.5), 3, 0.1).double()
    labels = torch.cat([LABELS, LABELS[:2]])
    check(lambda: ke.ConditionalEvidence()(embedding, x, labels), list(embedding.parameters()))


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_profile_has_every_derivative(nu):
    """φ and φ′ of a Matérn kernel, whose own backward pass has φ″ only."""
    s = torch.tensor([0.3, 1.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(matern(nu).value_and_slope, (s,))
