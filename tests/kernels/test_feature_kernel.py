"""A network as feature map: GPyTorch's contract, modes, α, and what can go wrong."""

import copy

import gpytorch
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PolynomialKernel, RBFKernel, ScaleKernel
from linear_operator.utils.errors import NanError
from torch import nn

import kernel_embed as ke
from kernel_embed.embeddings import representation
from kernel_embed.kernels import explicit_features, has_explicit_features
from kernel_embed.kernels.classes import FeatureKernel
from kernel_embed.kernels.diagonal_bounds import LipschitzBound, MeanDiagonal, NominalDiagonal, lipschitz
from kernel_embed.linalg import DenseSystem, FeatureSystem

from ..conftest import make_problem
from ..embeddings.test_conditional import predictions
from ..explicit_kernels import Implicit, explicit_kernels, network
from ..objectives import OBJECTIVES


@pytest.mark.parametrize("base", [None, RBFKernel(), MaternKernel(1.5), LinearKernel(), ScaleKernel(RBFKernel())])
def test_gram_is_that_of_the_kernel_on_features(base, problem):
    phi = network()
    kernel = FeatureKernel(phi, base).double()
    z, w = phi(problem.x), phi(problem.query)
    inner = LinearKernel().double() if base is None else base
    if base is None:
        inner.variance = 1.0
    for one, other in (((problem.x,), (z,)), ((problem.query, problem.x), (w, z))):
        expected = inner(*other).to_dense()
        torch.testing.assert_close(ke.gram(kernel, *one), expected, rtol=1e-6, atol=1e-8)
        torch.testing.assert_close(kernel(*one).to_dense(), expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(kernel(problem.x, diag=True), inner(z, diag=True), rtol=1e-6, atol=1e-8)


class Counting(nn.Module):
    """Counts its calls."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.count = inner, 0

    def forward(self, x):
        self.count += 1
        return self.inner(x)


@pytest.mark.parametrize("base", [None, RBFKernel()])
@pytest.mark.parametrize("rows", [24, 3])
def test_one_step_evaluates_the_network_once(base, rows, problem):
    phi = Counting(network())
    embedding = ke.MulticlassEmbedding(FeatureKernel(phi, base).double(), problem.m)
    objective = ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n") + ke.BatchValidationRisk(0.4)
    objective(embedding, problem.x[:rows], problem.y[:rows]).backward()
    assert phi.count == 1


@pytest.mark.parametrize("base", [None, RBFKernel()])
def test_dropout_drops_while_learning_and_not_while_predicting(base, problem):
    phi = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Dropout(0.5))
    embedding = ke.MulticlassEmbedding(FeatureKernel(phi, base).double(), problem.m)
    objective = ke.EmpiricalRisk(below="linear")
    assert objective(embedding, problem.x, problem.y) != objective(embedding, problem.x, problem.y)
    eigenvalues = torch.linalg.eigvalsh(embedding.condition(problem.x, problem.y).K)
    assert eigenvalues.min() > -1e-10  # one draw of dropout for all entries: a Gram matrix
    embedding.eval()
    assert objective(embedding, problem.x, problem.y) == objective(embedding, problem.x, problem.y)
    conditioned = embedding.condition(problem.x, problem.y)
    before = conditioned.decision_probabilities(problem.query)
    embedding.train()
    assert torch.equal(conditioned.decision_probabilities(problem.query), before)


def test_batch_norm_uses_its_running_statistics_after_eval(problem):
    phi = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU())
    embedding = ke.MulticlassEmbedding(FeatureKernel(phi).double(), problem.m)
    ke.EmpiricalRisk()(embedding, problem.x, problem.y)
    assert phi[1].num_batches_tracked == 1
    embedding.eval()
    conditioned = embedding.condition(problem.x, problem.y)
    one = torch.cat([conditioned.decision_probabilities(row[None]) for row in problem.query])
    torch.testing.assert_close(one, conditioned.decision_probabilities(problem.query))
    assert phi[1].num_batches_tracked == 1


@pytest.mark.parametrize("rows", [24, 1])
def test_alpha_is_in_closed_form_through_a_stationary_kernel(rows, problem):
    phi = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    kernel = ScaleKernel(FeatureKernel(phi, RBFKernel() + ScaleKernel(MaternKernel()))).double()
    kernel.outputscale = torch.tensor(3.0, dtype=torch.float64)
    kernel.eval()
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    alpha = embedding.condition(problem.x[:rows], problem.y[:rows]).sup_diagonal
    assert alpha.source == "closed form"
    expected = 3.0 * (1.0 + kernel.base_kernel.base_kernel.kernels[1].outputscale)
    torch.testing.assert_close(alpha.value, expected)
    torch.testing.assert_close(ke.kernels.sup_diagonal(kernel, problem.x).value, expected)


def test_alpha_given(problem):
    kernel = FeatureKernel(network())

    def sup_diagonal(bound):
        return ke.MulticlassEmbedding(kernel, 3, sup_diagonal=bound).condition(problem.x, problem.y).sup_diagonal

    assert sup_diagonal(100.0).source == "given"
    nominal = sup_diagonal(NominalDiagonal(1.0))
    assert (nominal.value, nominal.source) == (1.0, "nominal, not a bound")
    torch.testing.assert_close(sup_diagonal(MeanDiagonal()).value, ke.gram(kernel, problem.x).diagonal().mean())
    with pytest.raises(ValueError, match="positive"):
        NominalDiagonal(0.0)


def test_alpha_by_lipschitz_bounds_every_point_and_has_a_gradient(problem):
    torch.manual_seed(0)
    phi = nn.Sequential(
        nn.Unflatten(-1, (1, 4, 4)), nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, 5), nn.Tanh(),
    ).double()  # fmt: skip
    x = torch.randn(200, 16, dtype=torch.float64)
    x = x / x.norm(dim=-1, keepdim=True)
    phi(x)  # running statistics
    embedding = ke.MulticlassEmbedding(ScaleKernel(FeatureKernel(phi)).double(), 2, sup_diagonal=LipschitzBound(1.0))
    alpha = embedding.attach(x, torch.arange(200) % 2).sup_diagonal
    assert alpha.source == "Lipschitz bound"
    embedding.eval()
    assert alpha.value > ke.gram(embedding.kernel, x).diagonal().max()
    alpha.value.backward()
    assert phi[1].weight.grad.abs().sum() > 0
    assert phi.training is False
    pairs = (phi(x[:100]) - phi(x[100:])).norm(dim=-1) / (x[:100] - x[100:]).norm(dim=-1)
    assert lipschitz(phi) >= pairs.max()


class Returning(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.make = make

    def forward(self, x):
        return self.make(x)


@pytest.mark.parametrize(
    ("base", "message"), [(None, "returned 2 features, but 3 for the training data"), (RBFKernel(), "[23]")]
)
def test_features_of_changing_width_are_explained(base, message, problem):
    kernel = FeatureKernel(Returning(lambda x: x[:, : 2 + len(x) // 24]), base)
    conditioned = ke.MulticlassEmbedding(kernel, problem.m).condition(problem.x, problem.y)
    with pytest.raises(ValueError, match=message):
        conditioned.predict(problem.query)


def condition(kernel, p):
    return ke.MulticlassEmbedding(kernel, p.m).condition(p.x, p.y)


SHAPE, LAYERS = r"Expected features of shape \(24, p\) from Returning, got ", (nn.LSTM(2, 2), nn.Threshold(0.1, 20.0))
NOT_FINITE = Returning(lambda x: x * float("nan"))
REJECTED = [
    *[
        (lambda p, b=b: condition(FeatureKernel(NOT_FINITE, b), p), "finite features, got 72")
        for b in (None, RBFKernel())
    ],
    (lambda p: condition(FeatureKernel(Returning(lambda x: x.sum(-1))), p), SHAPE + r"shape \(24,\)"),
    (lambda p: condition(FeatureKernel(Returning(lambda x: x[1:])), p), SHAPE + r"shape \(23, 3\)"),
    (lambda p: condition(FeatureKernel(Returning(lambda x: (x, x))), p), SHAPE + "tuple"),
    (
        lambda p: condition(FeatureKernel(network().float()), p),
        "map in the dtype of x, torch.float64, got torch.float32",
    ),
    (lambda p: FeatureKernel(lambda x: x), "Expected feature_map to be a torch.nn.Module, got function"),
    (lambda p: FeatureKernel(nn.Identity(), nn.Identity()), "Expected base_kernel to be a gpytorch"),
    (lambda p: FeatureKernel(nn.Identity()).forward(p.x, p.x, last_dim_is_batch=True), "last_dim_is_batch"),
    (lambda p: ke.kernels.MahalanobisKernel(3).whiten(torch.randn(4, 2)), "made for 3 features"),
    *[(lambda p, f=f: lipschitz(f), f"Lipschitz constant is known, got {type(f).__name__}") for f in LAYERS],
    (lambda p: LipschitzBound(1.0)(RBFKernel(), torch.ones(3)), "Expected a linear kernel on a feature map"),
    (lambda p: LipschitzBound(1.0)(FeatureKernel(nn.Tanh()), torch.ones(3)), "width is unknown"),
    (lambda p: LipschitzBound(-1.0), "radius"),
]


@pytest.mark.parametrize(("call", "message"), REJECTED, ids=[str(i) for i in range(len(REJECTED))])
def test_bad_arguments(call, message, problem):
    with pytest.raises((TypeError, ValueError, NotImplementedError, NanError), match=message):
        call(problem)


@pytest.mark.parametrize(
    "activation",
    [
        nn.ELU(3.0), nn.ELU(0.5), nn.CELU(3.0), nn.LeakyReLU(2.5), nn.LeakyReLU(), nn.PReLU(init=1.7), nn.SELU(),
        nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Mish(), nn.Softplus(beta=4.0), nn.ReLU6(), nn.Tanhshrink(),
        nn.Softshrink(), nn.LogSigmoid(), nn.Sigmoid(), nn.Softsign(),
    ],
    ids=repr,
)  # fmt: skip
def test_no_activation_is_steeper_than_its_constant(activation):
    x = torch.linspace(-12.0, 12.0, 200_001, dtype=torch.float64)
    with torch.no_grad():
        slope = (activation.double()(x).diff() / x.diff()).abs().max()
    constant = torch.as_tensor(lipschitz(activation)).item()
    assert slope <= constant * (1.0 + 1e-9)
    assert constant <= max(1.0, 1.02 * slope.item())


# --- features read off a kernel ---------------------------------------------------------------------------------------


NAMES = sorted(explicit_kernels())


@pytest.mark.parametrize("name", NAMES)
def test_features_multiply_to_the_gram_matrix(name, problem):
    kernel = explicit_kernels()[name]
    Z = explicit_features(kernel, problem.x)
    torch.testing.assert_close(Z @ Z.mT, kernel(problem.x).to_dense(), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(Z @ Z.mT, ke.gram(kernel, problem.x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("batch", [(2,), (3, 2)])
def test_features_carry_the_batch_of_the_kernel(batch, problem):
    kernel = LinearKernel(batch_shape=torch.Size(batch)) + PolynomialKernel(2, batch_shape=torch.Size(batch))
    kernel = (kernel + gpytorch.kernels.ConstantKernel(batch_shape=torch.Size(batch))).double()
    kernel.initialize(**{"kernels.0.raw_variance": torch.randn(*batch, 1, 1, dtype=torch.float64)})
    Z = explicit_features(kernel, problem.x)
    assert Z.shape[:-1] == (*batch, 24)
    torch.testing.assert_close(Z @ Z.mT, kernel(problem.x).to_dense(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    "kernel",
    [
        RBFKernel(),
        RBFKernel() + LinearKernel(),
        LinearKernel() * RBFKernel(),
        FeatureKernel(network(), RBFKernel()),
        Implicit(LinearKernel()),
        PolynomialKernel(0.5),
    ],
    ids=lambda kernel: type(kernel).__name__,
)
def test_kernels_without_finite_features(kernel, problem):
    assert not has_explicit_features(kernel)
    assert explicit_features(kernel, problem.x) is None


def test_features_that_would_be_too_many_are_not_formed(problem):
    assert explicit_features(PolynomialKernel(3).double(), problem.x, limit=19) is None
    assert explicit_features(PolynomialKernel(3).double(), problem.x, limit=20).shape[-1] == 20
    product = (LinearKernel() * LinearKernel()).double()
    assert explicit_features(product, problem.x, limit=8) is None


@pytest.mark.parametrize("name", NAMES)
def test_the_system_is_chosen_by_structure_and_size(name, problem):
    kernel = explicit_kernels()[name]
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    conditioned = embedding.condition(problem.x, problem.y)
    assert isinstance(conditioned.system, FeatureSystem)
    assert "K" not in vars(conditioned)
    few = embedding.condition(problem.x[:2], problem.y[:2])  # p > n
    assert isinstance(few.system, DenseSystem) == (conditioned.system.num_features >= 2)


@pytest.mark.parametrize("rows", [24, 3])
@pytest.mark.parametrize("name", NAMES)
def test_predictions_equal_the_implicit_form(name, rows, problem):
    kernel, x, y, query = explicit_kernels()[name], problem.x[:rows], problem.y[:rows], problem.query
    explicit = ke.MulticlassEmbedding(kernel, problem.m, 0.003).condition(x, y)
    implicit = ke.MulticlassEmbedding(Implicit(kernel), problem.m, 0.003).condition(x, y)
    assert isinstance(implicit.system, DenseSystem)
    values = [
        predictions(c, query)
        | {
            "P": c.P,
            "squared norm": c.squared_norm,
            "cross": c.cross_gram(query),
            "function": c.expectation(lambda y: y.double() ** 2, query),
            "at labels": c.expectation(torch.linspace(0, 1, rows, dtype=torch.float64), query),
            "determinant": c.system.log_determinant(),
            "restricted": c.restricted(torch.arange(0, rows, 2)).P,
        }
        for c in (explicit, implicit)
    ]
    torch.testing.assert_close(*values, rtol=1e-8, atol=1e-8)
    assert torch.equal(explicit.predict(query), implicit.predict(query))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", NAMES)
def test_objectives_and_gradients_equal_the_implicit_form(name, objective, problem):
    kernel = explicit_kernels()[name]
    kernel_twin = copy.deepcopy(kernel)
    explicit = ke.MulticlassEmbedding(kernel, problem.m, 0.01)
    implicit = ke.MulticlassEmbedding(Implicit(kernel_twin), problem.m, 0.01)
    values = []
    for embedding in (explicit, implicit):
        value = OBJECTIVES[objective]()(embedding, problem.x, problem.y)
        value.backward()
        values.append(value.detach())
    torch.testing.assert_close(values[0], values[1], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(explicit.raw_regularization.grad, implicit.raw_regularization.grad, rtol=1e-7, atol=1e-8)
    for one, other in zip(kernel.parameters(), kernel_twin.parameters(), strict=True):
        gradients = (torch.zeros_like(p) if p.grad is None else p.grad for p in (one, other))
        torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-8)


def test_no_square_matrix_is_formed():
    """2·10⁵ rows: K would take 320 GB."""
    p = make_problem(n=200_000, d=3, m=3)
    embedding = ke.MulticlassEmbedding(FeatureKernel(network()), p.m, 1e-3)
    objective = ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n") + ke.BatchValidationRisk(0.2)
    objective(embedding, p.x, p.y).backward()
    assert all(torch.isfinite(w.grad).all() for w in embedding.parameters())
    with torch.no_grad():
        conditioned = embedding.condition(p.x, p.y)
        assert conditioned.predict(p.x).shape == (200_000,)
        part = conditioned.restricted(torch.arange(0, 200_000, 2))
        assert isinstance(part.system, FeatureSystem)


def test_blocks_of_rows_give_the_same_answer(problem, monkeypatch):
    embedding = ke.MulticlassEmbedding(FeatureKernel(network()), problem.m)
    conditioned = embedding.condition(problem.x, problem.y)
    whole = conditioned.decision_probabilities(problem.query)
    monkeypatch.setattr(representation, "FEATURE_NUMBERS", 12)
    torch.testing.assert_close(embedding.condition(problem.x, problem.y).decision_probabilities(problem.query), whole)
