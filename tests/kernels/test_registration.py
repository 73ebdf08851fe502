"""Kernels from outside the package: registered in one call, they get every closed form."""

import math

import pytest
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, RBFKernel, RFFKernel, ScaleKernel

import kernel_embed as ke
from kernel_embed.kernels import (
    FeatureKernel,
    Initialization,
    SmoothedKernel,
    has_explicit_features,
    initialize_from_data,
    plain_profile,
    register,
)
from kernel_embed.kernels.approximations import random_feature_kernel
from kernel_embed.kernels.supremum import gram_diagonal

from .. import oracles
from ..explicit_kernels import network

D = 2


@pytest.fixture
def x():
    return torch.randn(9, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_a_subclass_like_its_parent_is_smoothed_and_approximated_like_it(x):
    class Renamed(RBFKernel):
        """The squared exponential under another name."""

    register(Renamed, like=RBFKernel)
    scaled = [ScaleKernel(kind(ard_num_dims=D)).double() for kind in (Renamed, RBFKernel)]
    for make in (SmoothedKernel, lambda kernel: random_feature_kernel(kernel, D, 8)):
        torch.testing.assert_close(*(ke.gram(make(kernel), x) for kernel in scaled), rtol=0, atol=0)


class Cubes(Kernel):
    """⟨x³, x'³⟩: features of its own."""

    def forward(self, x1, x2, diag=False, **params):
        return (x1**3 * x2**3).sum(-1) if diag else x1**3 @ (x2**3).mT


def test_features_and_a_gram_matrix_by_rule(x):
    assert ke.kernels.explicit_features(Cubes(), x) is None
    register(
        Cubes,
        features=lambda kernel, x, limit: x**3,
        gram=lambda kernel, x1, x2: x1**3 @ (x1 if x2 is None else x2).mT ** 3,
    )
    for kernel in (Cubes(), Cubes(active_dims=[1]), Cubes() + ScaleKernel(LinearKernel())):
        kernel = kernel.double()
        Z = ke.kernels.explicit_features(kernel, x)
        torch.testing.assert_close(Z @ Z[:2].mT, kernel(x, x[:2]).to_dense())
        torch.testing.assert_close(ke.gram(kernel, x, x[:2]), kernel(x, x[:2]).to_dense())


class Bounded(Kernel):
    """1 + x·x'/(1 + |x|)(1 + |x'|) in one column, below 2."""

    def forward(self, x1, x2, diag=False, **params):
        z1, z2 = (x / (1.0 + x.abs()) for x in (x1, x2))
        return 1.0 + ((z1 * z2).sum(-1) if diag else z1 @ z2.mT)


def test_a_supremum_that_the_user_knows(x):
    assert ke.kernels.sup_diagonal(Bounded(), x[:, :1]).source == "maximum over the data"
    register(Bounded, supremum=lambda kernel, x: x.new_tensor(2.0))
    kernel = ScaleKernel(Bounded(active_dims=[0])).double() + RBFKernel().double()
    kernel.kernels[0].outputscale = 3.0
    found = ke.kernels.sup_diagonal(kernel, x)
    assert (found.source, round(found.value.item(), 10)) == ("closed form", 7.0)


@pytest.mark.parametrize("value", [-2.0, math.nan, math.inf])
def test_a_supremum_that_cannot_be_one_is_refused(x, value):
    class Wrong(Bounded):
        pass

    register(Wrong, supremum=lambda kernel, x: x.new_tensor(value))
    with pytest.raises(ValueError, match="registered supremum of Wrong must be finite and not negative"):
        ke.kernels.sup_diagonal(ScaleKernel(Wrong(active_dims=[0])).double() + RBFKernel().double(), x)


class Tent(Kernel):
    """max(0, 1 − |x − x'|) in one column: r is its convolution with itself."""

    def forward(self, x1, x2, diag=False, **params):
        return (1.0 - self.covar_dist(x1, x2, diag)).clamp_min(0.0)


def test_a_smoothed_form_by_rule():
    def smoothed(x1, x2):
        distance = (x1 - (x1 if x2 is None else x2).mT).abs()
        far = (2.0 - distance).clamp_min(0.0).pow(3) / 6.0
        return torch.where(distance < 1, 2.0 / 3.0 - distance.square() + 0.5 * distance.pow(3), far)

    def rule(kernel, width, h):
        return ("spline", smoothed) if width == 1 and h is None else None

    register(Tent, smoothing=rule)
    kernel = ScaleKernel(Tent()).double()
    kernel.outputscale = 2.0
    assert SmoothedKernel(kernel).form(1) == "closed form: spline"
    assert SmoothedKernel(kernel).form(2) == "discrete measure"
    x = torch.tensor([[0.0], [0.3], [1.4], [5.0]], dtype=torch.float64)
    grid = torch.linspace(-2.0, 7.0, 9001, dtype=torch.float64).unsqueeze(-1)
    K = kernel(x, grid).to_dense().detach()
    torch.testing.assert_close(ke.gram(SmoothedKernel(kernel), x).detach(), K @ K.mT * 1e-3, rtol=1e-5, atol=1e-5)


def test_a_spectrum_by_rule(x):
    def cauchy_of_columns(kernel, d, count, generator):
        # exp(−|δ|) in each column has Cauchy frequencies
        return torch.tan(math.pi * (torch.rand(d, count, generator=generator, dtype=torch.float64) - 0.5))

    class Laplace(Kernel):
        def forward(self, x1, x2, diag=False, **params):
            return torch.exp(-((x1 - x2) if diag else (x1.unsqueeze(-2) - x2.unsqueeze(-3))).abs().sum(-1))

    with pytest.raises(TypeError, match="got Laplace"):
        random_feature_kernel(Laplace(), D, 10)
    register(Laplace, spectrum=cauchy_of_columns)
    approximation = random_feature_kernel(Laplace(active_dims=[1]), D, 40_000)
    torch.testing.assert_close(ke.gram(approximation, x), ke.gram(Laplace(active_dims=[1]), x), rtol=0, atol=0.03)


def test_bad_rules_are_rejected_and_leave_nothing_behind():
    class Fresh(RBFKernel):
        pass

    for kind in (torch.nn.Linear, RBFKernel(), "RBFKernel"):
        with pytest.raises(TypeError, match=r"Expected a subclass of gpytorch.kernels.Kernel, got .*Give the class"):
            register(kind, like=RBFKernel)
    with pytest.raises(ValueError, match=r"No rule for Fresh"):
        register(Fresh)
    with pytest.raises(TypeError, match=r"gram= of Fresh must be a function"):
        register(Fresh, gram=3)
    with pytest.raises(TypeError, match=r"Fresh is not a subclass of MaternKernel"):
        register(Fresh, like=MaternKernel)
    with pytest.raises(ValueError, match=r"Fresh has no registered rules"):
        register(type("Finer", (Fresh,), {}), like=Fresh)
    register(Fresh, like=RBFKernel)
    register(Fresh, like=RBFKernel)  # the same again, as when a notebook cell runs twice
    with pytest.raises(ValueError, match=r"Fresh already has a registered profile.*replace=True"):
        register(Fresh, supremum=lambda kernel, x: x.new_tensor(3.0), profile=plain_profile(torch.exp))
    assert ke.kernels.sup_diagonal(Fresh(), torch.rand(2, 1)).value.item() == 1.0  # nothing of it was taken
    register(Fresh, like=RBFKernel, supremum=lambda kernel, x: x.new_tensor(3.0), replace=True)
    assert ke.kernels.sup_diagonal(Fresh(), torch.rand(2, 1)).value.item() == 3.0


def test_an_unregistered_subclass_inherits_no_rule(x):
    class Doubled(RBFKernel):
        def forward(self, x1, x2, diag=False, **params):
            return 2.0 * super().forward(x1, x2, diag=diag, **params)

    class Half(ScaleKernel):
        def forward(self, x1, x2, **params):
            return 0.5 * super().forward(x1, x2, **params)

    class Plain(ScaleKernel):
        """The same under another name."""

    register(Plain, like=ScaleKernel)
    for kernel, value in ((Doubled(), 2.0), (Half(RBFKernel()), 0.5 * Half(RBFKernel()).outputscale.item())):
        assert ke.gram(kernel.double(), x)[0, 0].item() == pytest.approx(value)
        assert ke.kernels.sup_diagonal(kernel, x).source == "maximum over the data"
    assert ke.kernels.sup_diagonal(Plain(RBFKernel()).double(), x).source == "closed form"


# --- kernels that see data first --------------------------------------------------------------------------------------


INCOMPLETE = {
    "alone": (lambda: RFFKernel(5), 3),
    "columns": (lambda: ScaleKernel(RFFKernel(5, active_dims=[0, 2])), 2),
    "sum": (lambda: RBFKernel() + RFFKernel(5, active_dims=[1]), 1),
    "product": (lambda: LinearKernel() * RFFKernel(5), 3),
    "features": (lambda: FeatureKernel(network(p=4), RFFKernel(5)), 4),
    "batch": (lambda: RFFKernel(5, batch_shape=torch.Size([2])), 3),
}


def fourier(kernel: Kernel) -> RFFKernel:
    return next(module for module in kernel.modules() if isinstance(module, RFFKernel))


@pytest.mark.parametrize("name", INCOMPLETE)
def test_the_step_completes_what_evaluation_refuses(name):
    make, width = INCOMPLETE[name]
    kernel, x = make().double(), torch.randn(6, 3, dtype=torch.float64)
    for evaluate in (ke.gram, gram_diagonal, ke.kernels.sup_diagonal):
        with pytest.raises(ValueError, match=r"RFFKernel must be initialized from data.*num_dims"):
            evaluate(kernel, x)
    if has_explicit_features(kernel):
        with pytest.raises(ValueError, match="initialize_from_data"):
            ke.kernels.explicit_features(kernel, x)
    assert not hasattr(fourier(kernel), "randn_weights")
    assert initialize_from_data(kernel, x) is kernel
    weights = fourier(kernel).randn_weights
    assert weights.shape == (*fourier(kernel).batch_shape, width, 5)
    assert weights.dtype == torch.float64
    initialize_from_data(kernel, torch.randn(6, 3, dtype=torch.float64))
    assert fourier(kernel).randn_weights is weights
    assert ke.gram(kernel, x).shape[-2:] == (6, 6)


def test_features_are_evaluated_without_learning_from_them():
    norm = torch.nn.BatchNorm1d(4).double()
    kernel = FeatureKernel(torch.nn.Sequential(network(), norm), RFFKernel(5)).double()
    initialize_from_data(kernel, torch.randn(6, 3, dtype=torch.float64))
    assert norm.num_batches_tracked.item() == 0
    assert norm.training


def test_condition_refuses_and_fit_does_it(problem):
    embedding = ke.MulticlassEmbedding(RFFKernel(10).double(), problem.m)
    with pytest.raises(ValueError, match="RFFKernel must be initialized from data"):
        embedding.condition(problem.x, problem.y)
    ke.fit(embedding, ke.LeaveOneOutRisk(), problem.x, problem.y, max_evaluations=3)
    assert embedding.condition(problem.x, problem.y).predict(problem.x).shape == problem.y.shape


def test_a_kernel_of_ones_own():
    class Centred(Kernel):
        centre = None

        def forward(self, x1, x2, diag=False, **params):
            K = (x1 - self.centre) @ (x2 - self.centre).mT
            return K.diagonal(dim1=-2, dim2=-1) if diag else K

    def complete(kernel, x):
        kernel.centre = x.mean(0)

    register(
        Centred,
        initialize=Initialization(lambda kernel: kernel.centre is not None, complete),
    )
    kernel, x = ScaleKernel(Centred(active_dims=[1])), torch.randn(5, 2)
    with pytest.raises(ValueError, match="Centred must be initialized from data"):
        ke.gram(kernel, x)
    initialize_from_data(kernel, x)
    torch.testing.assert_close(kernel.base_kernel.centre, x[:, 1:].mean(0))
    assert torch.isfinite(ke.gram(kernel, x)).all()


@pytest.mark.parametrize("n", [3, 4, 5, 8, 11])
def test_median_distance_equals_loops(n):
    x = torch.randn(n, 3, dtype=torch.float64)
    assert ke.kernels.median_distance(x).item() == pytest.approx(oracles.median_distance(x.numpy()), rel=1e-12)


def test_median_distance_in_special_cases():
    assert ke.kernels.median_distance(torch.tensor([[0], [1], [3]])).item() == 2.0
    assert ke.kernels.median_distance(torch.zeros(5, 2)).item() == 1.0
    mostly = torch.zeros(6, 1)
    mostly[0] = 3.0
    assert ke.kernels.median_distance(mostly).item() == 3.0
    assert ke.kernels.median_distance(torch.zeros(1, 2)).item() == 1.0
    with pytest.raises(ValueError, match=r"Expected x of shape \(n, d\), got \(2, 3, 1\)"):
        ke.kernels.median_distance(torch.zeros(2, 3, 1))
    with pytest.raises(ValueError, match=r"Expected a kernel with a lengthscale, got LinearKernel.*fit"):
        ke.set_lengthscales_by_median(LinearKernel(), torch.randn(4, 2))
    with pytest.raises(ValueError, match=r"leaves the range of torch\.float32: inf\. Standardize x"):
        ke.kernels.median_distance(3e38 * torch.eye(3))
    x = torch.randn(4001, 2, dtype=torch.float64)
    # For Gaussian differences ‖x − x'‖²/2 is χ² with 2 degrees of freedom: median √(4 log 2).
    assert ke.kernels.median_distance(x).item() == pytest.approx(math.sqrt(4 * math.log(2)), rel=0.03)


@pytest.mark.parametrize("x", [3e38 * torch.eye(3), 1e60 * torch.eye(3).double(), 1e-60 * torch.eye(3).double()])
def test_a_lengthscale_outside_of_the_range_is_refused(x):
    kernel = RBFKernel()
    with pytest.raises(ValueError, match=r"median distance leaves the range of torch\.float32.*Standardize x"):
        ke.set_lengthscales_by_median(kernel, x)
    assert kernel.lengthscale.item() == pytest.approx(math.log(2))
    assert ke.set_lengthscales_by_median(kernel, 1e20 * torch.eye(3)).lengthscale.item() == pytest.approx(2**0.5 * 1e20)


def test_every_lengthscale_is_set_from_its_own_columns():
    x = torch.tensor([[0.0, 0.0], [1.0, 100.0], [3.0, 300.0]], dtype=torch.float64)
    kernel = (ScaleKernel(RBFKernel(active_dims=[0])) + MaternKernel(active_dims=[1])).double()
    assert ke.set_lengthscales_by_median(kernel, x) is kernel
    assert kernel.kernels[0].base_kernel.lengthscale.item() == pytest.approx(2.0)
    assert kernel.kernels[1].lengthscale.item() == pytest.approx(200.0)
    kernel = ScaleKernel(RBFKernel(), active_dims=torch.tensor([0])).double()
    ke.set_lengthscales_by_median(kernel, x)
    assert kernel.base_kernel.lengthscale.item() == pytest.approx(2.0)
    x = torch.randn(9, 3, dtype=torch.float64)
    kernel = RBFKernel(ard_num_dims=3, batch_shape=torch.Size([2])).double()
    ke.set_lengthscales_by_median(kernel, x)
    expected = oracles.median_distance(x.numpy())
    torch.testing.assert_close(kernel.lengthscale.detach(), torch.full((2, 1, 3), expected, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_default_kernel_is_in_the_units_of_the_data(dtype):
    x = torch.rand(20, 3, dtype=dtype) * torch.tensor([1.0, 100.0, 0.0], dtype=dtype)
    kernel = ke.default_kernel(x)
    spread = x.amax(0) - x.amin(0)
    spread[2] = 1.0  # a constant column
    torch.testing.assert_close(kernel.lengthscale.detach()[0], 0.15 * spread * math.sqrt(3))
    torch.testing.assert_close(ke.default_kernel(x, lengthscale=2.0).lengthscale.detach()[0], 2.0 * spread)
    assert kernel.lengthscale.dtype == dtype
    # The prior is highest where it says: at the start.
    at = [(0.15 * spread * math.sqrt(3) * factor).unsqueeze(0) for factor in (0.99, 1.0, 1.01)]
    low, top, high = (kernel.lengthscale_prior.log_prob(value).sum().item() for value in at)
    assert top > max(low, high)
