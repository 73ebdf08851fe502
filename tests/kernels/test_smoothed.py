"""r = ∫ k k dν: every closed form against quadrature, discrete measures, gradients, and what the repr says."""

from __future__ import annotations

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

from kernel_embed.kernels.classes.mahalanobis import MahalanobisKernel
from kernel_embed.kernels.smoothed.kernel import SmoothedKernel
from kernel_embed.kernels.smoothed.measures import DiscreteMeasure, GaussianMeasure, LebesgueMeasure

from .. import bayesian_oracles as oracles
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
    "matern 1/2": lambda: MaternKernel(nu=0.5),
    "matern 3/2": lambda: ScaleKernel(MaternKernel(nu=1.5)),
    "matern 5/2": lambda: MaternKernel(nu=2.5),
}
GAUSSIAN_LINE = {
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


def columns(x, count=5):
    return x[:count]


@pytest.mark.parametrize("name", [*LINE, *LEBESGUE_LINE])
def test_closed_form_on_the_line_is_quadrature_under_lebesgue_measure(name, line):
    kernel = shaken({**LINE, **LEBESGUE_LINE}[name]())
    r = SmoothedKernel(kernel)
    assert r.form(1).startswith("closed form")
    tolerance = 1e-4 if "1/2" in name else 1e-8
    torch.testing.assert_close(r(line).to_dense(), oracles.smoothed(kernel, line), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", [*LINE, *GAUSSIAN_LINE])
def test_closed_form_on_the_line_is_quadrature_under_gaussian_measure(name, line):
    kernel = shaken({**LINE, **GAUSSIAN_LINE}[name]())
    r = SmoothedKernel(kernel, GaussianMeasure(torch.tensor(1.3, dtype=torch.float64)))
    assert r.form(1).startswith("closed form")
    torch.testing.assert_close(
        r(line).to_dense(), oracles.smoothed(kernel, line, precision=1.3**-2), rtol=1e-9, atol=1e-11
    )


@pytest.mark.parametrize("name", PLANE)
@pytest.mark.parametrize("scale", [None, 0.8])
def test_closed_form_in_the_plane_is_quadrature(name, scale, x):
    kernel = shaken(PLANE[name]())
    measure = None if scale is None else GaussianMeasure(torch.tensor(scale, dtype=torch.float64))
    precision = 0.0 if scale is None else scale**-2
    expected = oracles.smoothed(kernel, columns(x), precision, half=12.0, num_points=201)
    torch.testing.assert_close(SmoothedKernel(kernel, measure)(columns(x)).to_dense(), expected, rtol=1e-8, atol=1e-10)


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
    expected = oracles.smoothed(kernel, columns(x), half=14.0, num_points=701)
    actual = SmoothedKernel(kernel)(columns(x)).to_dense()
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


def test_first_example_of_a_matern(line):
    kernel = MaternKernel(nu=0.5).double()
    kernel.lengthscale = torch.tensor(0.8, dtype=torch.float64)
    distance = (line - line.mT).abs()
    torch.testing.assert_close(SmoothedKernel(kernel)(line).to_dense(), (0.8 + distance) * torch.exp(-distance / 0.8))


def test_a_wide_gaussian_measure_is_lebesgue_measure(x):
    kernel = rbf(0.5, 0.9)
    wide = SmoothedKernel(kernel, GaussianMeasure(torch.tensor(1e5, dtype=torch.float64)))
    torch.testing.assert_close(wide(x).to_dense(), SmoothedKernel(kernel)(x).to_dense(), rtol=1e-8, atol=1e-10)


def test_the_center_of_a_gaussian_measure(x):
    measure = GaussianMeasure(torch.tensor(0.7, dtype=torch.float64), center=torch.tensor([1.0, -2.0]).double())
    plain = GaussianMeasure(torch.tensor(0.7, dtype=torch.float64))
    shifted = SmoothedKernel(rbf(0.5), plain)(x - measure.center).to_dense()
    torch.testing.assert_close(SmoothedKernel(rbf(0.5), measure)(x).to_dense(), shifted)


def test_unit_scale_is_that_of_the_papers_program(x):
    kernel = rbf(0.5)
    expected = torch.exp(-0.25 * torch.cdist(x, x).square() / 0.25)
    actual = SmoothedKernel(kernel, LebesgueMeasure(unit=True))(x).to_dense()
    torch.testing.assert_close(actual, expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("kernel", [RBFKernel(), MaternKernel(nu=1.5)], ids=["rbf", "matern"])
def test_many_atoms_approach_the_closed_form(kernel, line):
    kernel = shaken(kernel)
    atoms = torch.linspace(-15, 15, 4001, dtype=torch.float64)
    weights = torch.full_like(atoms, 30 / 4000)
    discrete = SmoothedKernel(kernel, DiscreteMeasure(atoms, weights))
    torch.testing.assert_close(discrete(line).to_dense(), SmoothedKernel(kernel)(line).to_dense(), rtol=1e-5, atol=1e-5)


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


def test_the_choice_is_named():
    assert "ν: automatic, closed form: Gaussian terms" in repr(SmoothedKernel(RBFKernel()))
    assert "discrete measure" in repr(SmoothedKernel(RQKernel()))
    resolved = SmoothedKernel(RQKernel()).resolved(torch.randn(10, 1))
    assert "DiscreteMeasure(num_atoms=10)" in repr(resolved)
    assert "Matérn of order 3" in repr(SmoothedKernel(MaternKernel(nu=0.5, ard_num_dims=4)))


def test_columns_without_decay_have_no_lebesgue_form(x):
    kernel = RBFKernel(active_dims=[0]) + RBFKernel(active_dims=[1])
    assert SmoothedKernel(kernel).form(2) == "discrete measure"
    assert SmoothedKernel(RBFKernel(active_dims=[0])).form(2) == "discrete measure"
    assert SmoothedKernel(kernel, GaussianMeasure(1.0)).form(2).startswith("closed form")


def test_parameters_are_shared_and_learned(x):
    kernel = rbf(0.5, 0.7)
    measure = GaussianMeasure(torch.tensor(2.0, dtype=torch.float64), learn=True)
    r = SmoothedKernel(kernel, measure)
    r(x).to_dense().sum().backward()
    assert kernel.raw_lengthscale.grad is not None
    assert measure.raw_scale.grad is not None
    assert not GaussianMeasure(2.0).raw_scale.requires_grad


FORMS = {**LINE, **LEBESGUE_LINE}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("scale", [None, 1.1])
def test_gradients(name, scale, line):
    if scale is not None and name in LEBESGUE_LINE:
        return  # no closed form to differentiate
    kernel = shaken(FORMS[name]())
    measure = None if scale is None else GaussianMeasure(torch.tensor(scale, dtype=torch.float64), learn=True)
    r = SmoothedKernel(kernel, measure)
    parameters = [p for p in r.parameters() if p.requires_grad]

    numerical = []
    weight = torch.randn(6, 4, dtype=torch.float64)
    (r.gram(line[:6], line[:4] + 0.1) * weight).sum().backward()
    for parameter in parameters:
        flat = parameter.data.reshape(-1)
        for i in range(flat.numel()):
            saved = flat[i].item()
            ends = []
            for step in (1e-6, -1e-6):
                flat[i] = saved + step
                ends.append((r.gram(line[:6], line[:4] + 0.1) * weight).sum().item())
            flat[i] = saved
            numerical.append((ends[0] - ends[1]) / 2e-6)
    analytic = torch.cat([p.grad.reshape(-1) for p in parameters])
    torch.testing.assert_close(analytic, torch.tensor(numerical, dtype=torch.float64), rtol=1e-5, atol=1e-6)


def test_gradcheck_of_the_matern_profile():
    from kernel_embed.kernels.radial import radial_gram
    from kernel_embed.kernels.smoothed.matern import general_matern

    z = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    for order in (1.5, 2.0, 3.5, 4.0, 6.0):
        assert torch.autograd.gradcheck(lambda z, o=order: radial_gram(z, None, general_matern(o, 1.0)), z, atol=1e-8)


def test_batches_of_kernels_are_their_members(x):
    kernel = RBFKernel(ard_num_dims=2, batch_shape=torch.Size([3])).double()
    kernel.lengthscale = torch.rand(3, 1, 2, dtype=torch.float64) + 0.3
    for measure in (None, GaussianMeasure(torch.tensor(0.8, dtype=torch.float64)), DiscreteMeasure(x[:4])):
        together = SmoothedKernel(kernel, measure).gram(x)
        for i in range(3):
            alone = rbf(*kernel.lengthscale[i, 0].tolist())
            torch.testing.assert_close(together[i], SmoothedKernel(alone, measure).gram(x))


def test_errors_say_what_to_do(x):
    with pytest.raises(ValueError, match=r"Expected a kernel with a closed form.*DiscreteMeasure"):
        SmoothedKernel(PeriodicKernel())(x).to_dense()
    with pytest.raises(ValueError, match="closed form of r under GaussianMeasure"):
        SmoothedKernel(PeriodicKernel(), GaussianMeasure(1.0)).resolved(x)
    with pytest.raises(ValueError, match="one weight for each of the 20 atoms"):
        DiscreteMeasure(x, torch.ones(3))
    with pytest.raises(ValueError, match="none negative"):
        DiscreteMeasure(x, -torch.ones(20))
    with pytest.raises(ValueError, match="positive, finite scale"):
        GaussianMeasure(0.0)
    with pytest.raises(ValueError, match="no finite features"):
        SmoothedKernel(RBFKernel()).features(x)
    with pytest.raises(ValueError, match="columns of the atoms"):
        SmoothedKernel(RBFKernel(), DiscreteMeasure(x)).features(x[:, :1])
    with pytest.raises(RuntimeError, match="last_dim_is_batch"):
        SmoothedKernel(RBFKernel()).forward(x, x, last_dim_is_batch=True)


def test_a_constant_in_a_sum_leaves_the_gradient_finite(x):
    """Terms with p = 0 have a root without a derivative; nothing of it may reach the other parameters."""
    kernel = ConstantKernel().double() + rbf(0.8)
    smoothed = SmoothedKernel(kernel, GaussianMeasure(2.0, learn=True)).double()
    weights = torch.randn(20, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def value():
        return (weights * smoothed.gram(x)).sum()

    parameters = list(smoothed.parameters())
    found = torch.autograd.grad(value(), parameters)
    for parameter, gradient in zip(parameters, found, strict=True):
        with torch.no_grad():
            parameter.add_(1e-5)
            ahead = value()
            parameter.sub_(2e-5)
            behind = value()
            parameter.add_(1e-5)
        torch.testing.assert_close(gradient.sum(), (ahead - behind) / 2e-5, rtol=1e-5, atol=1e-6)
