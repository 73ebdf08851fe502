"""r = ∫ k k dν: every closed form against quadrature, discrete measures, gradients, and what the repr says."""

import math

import pytest
import torch
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    MaternKernel,
    PeriodicKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)

from kernel_embed.kernels.classes import MahalanobisKernel
from kernel_embed.kernels.smoothed import DiscreteMeasure, GaussianMeasure, LebesgueMeasure, SmoothedKernel

from .. import oracles
from ..bayesian_kernels import rbf, shaken

LINE = {
    "rbf": lambda: RBFKernel(),
    "scaled": lambda: ScaleKernel(RBFKernel()),
    "sum": lambda: ScaleKernel(RBFKernel()) + RBFKernel(),
    "product": lambda: RBFKernel() * ScaleKernel(RBFKernel()),
    "mahalanobis": lambda: MahalanobisKernel(1),
    "spectral mixture": lambda: SpectralMixtureKernel(3),
    "spectral mixture + rbf": lambda: SpectralMixtureKernel(2) + RBFKernel(),
    "spectral mixture * rbf": lambda: RBFKernel() * SpectralMixtureKernel(2),
    "damped cosine": lambda: CosineKernel() * RBFKernel(),
}
LEBESGUE_LINE = {
    **LINE,
    "matern 1/2": lambda: MaternKernel(nu=0.5),
    "matern 3/2": lambda: ScaleKernel(MaternKernel(nu=1.5)),
    "matern 5/2": lambda: MaternKernel(nu=2.5),
}
GAUSSIAN_LINE = {
    **LINE,
    "constant": lambda: ConstantKernel(),
    "constant + rbf": lambda: ConstantKernel() + RBFKernel(),
    "cosine": lambda: CosineKernel(),
}
PLANE = {
    "ard": lambda: RBFKernel(ard_num_dims=2),
    "sum": lambda: RBFKernel(ard_num_dims=2) + ScaleKernel(RBFKernel()),
    "mahalanobis": lambda: ScaleKernel(MahalanobisKernel(2)),
    "rbf by columns": lambda: RBFKernel(active_dims=[0]) * ScaleKernel(RBFKernel(active_dims=[1])),
}


@pytest.mark.parametrize(
    ("kernels", "name", "scale"),
    [*((LEBESGUE_LINE, name, None) for name in LEBESGUE_LINE), *((GAUSSIAN_LINE, name, 1.3) for name in GAUSSIAN_LINE)],
)
def test_closed_form_on_the_line_is_quadrature(kernels, name, scale, line):
    kernel = shaken(kernels[name]())
    r = SmoothedKernel(kernel, scale and GaussianMeasure(torch.tensor(scale, dtype=torch.float64)))
    assert r.form(1).startswith("closed form")
    rtol, atol = (1e-9, 1e-11) if scale else (1e-4, 1e-4) if "1/2" in name else (1e-8, 1e-8)
    expected = oracles.smoothed(kernel, line, precision=scale**-2 if scale else 0.0)
    torch.testing.assert_close(r(line).to_dense(), expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", PLANE)
@pytest.mark.parametrize("scale", [None, 0.8])
def test_closed_form_in_the_plane_is_quadrature(name, scale, x):
    kernel = shaken(PLANE[name]())
    measure = scale and GaussianMeasure(torch.tensor(scale, dtype=torch.float64))
    expected = oracles.smoothed(kernel, x[:5], scale**-2 if scale else 0.0, half=12.0, num_points=201)
    torch.testing.assert_close(SmoothedKernel(kernel, measure)(x[:5]).to_dense(), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    ("make", "tolerance"),
    [
        (lambda: MaternKernel(nu=0.5, ard_num_dims=2), 5e-3),
        (lambda: MaternKernel(nu=1.5), 1e-4),
        (lambda: MaternKernel(nu=2.5, ard_num_dims=2, active_dims=[1, 0]), 1e-5),
        (lambda: MaternKernel(nu=1.5, active_dims=[1]) * ScaleKernel(MaternKernel(nu=2.5, active_dims=[0])), 1e-3),
        (lambda: MaternKernel(nu=1.5, active_dims=[0]) * RBFKernel(active_dims=[1]), 1e-3),
        (lambda: SpectralMixtureKernel(2, ard_num_dims=2), 1e-6),
    ],
)
def test_products_and_even_dimensions(make, tolerance, x):
    kernel = shaken(make())
    expected = oracles.smoothed(kernel, x[:5], half=14.0, num_points=701)
    actual = SmoothedKernel(kernel)(x[:5]).to_dense()
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance * float(expected.max()))


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
def test_matern_in_three_dimensions_has_the_mass_of_its_square(nu):
    # ∫∫ k(x, u) k(u, y) du dy = (∫ k)²; radially, ∫ r = 4π ∫ t² r(t) dt
    kernel = MaternKernel(nu=nu).double()
    kernel.lengthscale = torch.tensor(0.7, dtype=torch.float64)
    t = torch.linspace(0, 40, 40001, dtype=torch.float64)
    points = torch.zeros(len(t), 3, dtype=torch.float64)
    points[:, 0] = t
    weight = 4 * math.pi * t.square() * (t[1] - t[0])
    mass = (kernel(points[:1], points).to_dense()[0] * weight).sum()
    assert SmoothedKernel(kernel).form(3) == f"closed form: Matérn of order {2 * nu + 1.5:g}"
    smoothed = (SmoothedKernel(kernel)(points[:1], points).to_dense()[0] * weight).sum()
    torch.testing.assert_close(smoothed, mass.square(), rtol=1e-6, atol=0.0)


def test_the_center_of_a_gaussian_measure(x):
    measure = GaussianMeasure(torch.tensor(0.7, dtype=torch.float64), center=torch.tensor([1.0, -2.0]).double())
    plain = GaussianMeasure(torch.tensor(0.7, dtype=torch.float64))
    assert not plain.raw_scale.requires_grad
    shifted = SmoothedKernel(rbf(0.5), plain)(x - measure.center).to_dense()
    torch.testing.assert_close(SmoothedKernel(rbf(0.5), measure)(x).to_dense(), shifted)


def test_unit_scale_is_that_of_the_papers_program(x):
    kernel = rbf(0.5)
    expected = torch.exp(-0.25 * torch.cdist(x, x).square() / 0.25)
    actual = SmoothedKernel(kernel, LebesgueMeasure(unit=True))(x).to_dense()
    torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-12)


def test_discrete_measure_is_its_sum(x):
    kernel = shaken(PeriodicKernel())
    measure = DiscreteMeasure(x[:3], torch.tensor([0.2, 0.0, 2.0], dtype=torch.float64))
    expected = sum(
        w * kernel(x, u[None]).to_dense() @ kernel(u[None], x).to_dense()
        for u, w in zip(measure.atoms, measure.weights, strict=True)
    )
    r = SmoothedKernel(kernel, measure)
    torch.testing.assert_close(r(x).to_dense(), expected)
    torch.testing.assert_close(r(x, x[:4]).to_dense(), expected[:, :4])
    torch.testing.assert_close(r(x, diag=True), expected.diagonal())
    torch.testing.assert_close(r.features(x) @ r.features(x).mT, expected)


def test_atoms_of_a_sample_are_its_distribution():
    x = torch.tensor([[1.0], [1.0], [2.0], [3.0]])
    measure = DiscreteMeasure.from_sample(x)
    torch.testing.assert_close(measure.atoms, torch.tensor([[1.0], [2.0], [3.0]]))
    torch.testing.assert_close(measure.weights, torch.tensor([0.5, 0.25, 0.25]))
    assert DiscreteMeasure.from_sample(torch.randn(999, 2), 10).num_atoms == 10


def test_the_form_is_named(x):
    assert "ν: automatic, closed form: Gaussian terms" in repr(SmoothedKernel(RBFKernel()))
    assert "discrete measure" in repr(SmoothedKernel(RQKernel()))
    resolved = SmoothedKernel(RQKernel()).resolved(torch.randn(10, 1))
    assert "DiscreteMeasure(num_atoms=10)" in repr(resolved)
    assert "Matérn of order 3" in repr(SmoothedKernel(MaternKernel(nu=0.5, ard_num_dims=4)))
    kernel = RBFKernel(active_dims=[0]) + RBFKernel(active_dims=[1])
    assert SmoothedKernel(kernel).form(2) == "discrete measure"
    assert SmoothedKernel(RBFKernel(active_dims=[0])).form(2) == "discrete measure"
    assert SmoothedKernel(kernel, GaussianMeasure(1.0)).form(2).startswith("closed form")


def check_gradients(r, x1, x2=None):
    """The gradient of every parameter of r against central differences."""
    parameters = [p for p in r.parameters() if p.requires_grad]
    weight = torch.randn(r.gram(x1, x2).shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = torch.autograd.grad((weight * r.gram(x1, x2)).sum(), parameters)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        flat, numerical = parameter.data.view(-1), []
        for i in range(flat.numel()):
            ends = []
            for step in (1e-6, -2e-6, 1e-6):
                flat[i] += step
                ends.append((weight * r.gram(x1, x2)).sum().item())
            numerical.append((ends[0] - ends[1]) / 2e-6)
        expected = torch.tensor(numerical, dtype=torch.float64).reshape(gradient.shape)
        torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "scale"), [*((name, None) for name in LEBESGUE_LINE), *((name, 1.1) for name in LINE)]
)
def test_gradients(name, scale, line):
    measure = scale and GaussianMeasure(torch.tensor(scale, dtype=torch.float64), learn=True)
    check_gradients(SmoothedKernel(shaken(LEBESGUE_LINE[name]()), measure), line[:6], line[:4] + 0.1)


def test_a_constant_in_a_sum_leaves_the_gradient_finite(x):
    """Terms with p = 0 have a root without a derivative, which must not reach the other parameters."""
    check_gradients(SmoothedKernel(ConstantKernel() + rbf(0.8), GaussianMeasure(2.0, learn=True)).double(), x)


RBF, GAUSSIAN = SmoothedKernel(RBFKernel()), GaussianMeasure(1.0)
REJECTED = [
    (
        lambda x: SmoothedKernel(PeriodicKernel())(x).to_dense(),
        r"no closed form under LebesgueMeasure.*DiscreteMeasure",
    ),
    (lambda x: SmoothedKernel(PeriodicKernel(), GAUSSIAN).resolved(x), "no closed form under GaussianMeasure"),
    (lambda x: DiscreteMeasure(x, torch.ones(3)), "one weight for each of the 20 atoms"),
    (lambda x: DiscreteMeasure(x, -torch.ones(20)), "none negative"),
    (lambda x: GaussianMeasure(0.0), "positive, finite scale"),
    (lambda x: RBF.features(x), "no finite features"),
    (lambda x: SmoothedKernel(RBFKernel(), DiscreteMeasure(x)).features(x[:, :1]), "of the atoms"),
    (lambda x: RBF.forward(x, x, last_dim_is_batch=True), "last_dim_is"),
]


@pytest.mark.parametrize(("call", "message"), REJECTED, ids=[message for _, message in REJECTED])
def test_errors_say_what_to_do(call, message, x):
    with pytest.raises((ValueError, RuntimeError), match=message):
        call(x)
