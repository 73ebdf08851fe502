"""Second derivatives of every objective, against differences of its gradient."""

import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel, SpectralMixtureKernel

import kernel_embed as ke
from kernel_embed.kernels.registration import matern
from kernel_embed.tabular.tied_kernels import laplace_gram
from kernel_embed.testing.checks import second_derivatives

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


KERNELS = {
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
OBJECTIVES = {
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


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_hessian_of_every_objective_and_kernel(kernel, objective):
    check(*loss(KERNELS[kernel](), OBJECTIVES[objective]))


@pytest.mark.parametrize("objective", ["leave one out", "calibrated", "score"])
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("options", [(WEIGHTS,), (None, GROUPS), (WEIGHTS, GROUPS)], ids=["weights", "groups", "both"])
def test_hessian_with_weights_and_groups(kernel, objective, options):
    function, parameters = loss(KERNELS[kernel](), OBJECTIVES[objective])
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
