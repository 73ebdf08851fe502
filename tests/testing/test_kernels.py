"""The library's kernels through the suite that it ships for others, and wrong registrations caught by it."""

import pytest
import torch
from gpytorch import kernels
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel, SpectralMixtureKernel

from kernel_embed.kernels import FeatureKernel, MahalanobisKernel, plain_profile, register
from kernel_embed.kernels.radial import RadialProfile
from kernel_embed.tabular import TiedLaplaceKernel, TiedRBFKernel
from kernel_embed.testing import KernelContract

from . import checks, suite

KERNELS = {
    "rbf": lambda: RBFKernel(ard_num_dims=2),
    "matern 1/2": lambda: MaternKernel(0.5),
    "matern 3/2": lambda: MaternKernel(1.5, ard_num_dims=2),
    "matern 5/2": lambda: ScaleKernel(MaternKernel(2.5)),
    "rational quadratic": kernels.RQKernel,
    "periodic": kernels.PeriodicKernel,
    "linear": lambda: LinearKernel(ard_num_dims=2),
    "polynomial": lambda: kernels.PolynomialKernel(2),
    "fourier": lambda: kernels.RFFKernel(4, num_dims=2),
    "mahalanobis": lambda: MahalanobisKernel(2),
    "network": lambda: FeatureKernel(torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh())),
    "network, rbf": lambda: FeatureKernel(torch.nn.Linear(2, 3), RBFKernel()),
    "sum": lambda: ScaleKernel(RBFKernel(active_dims=[0])) + MaternKernel(1.5),
    "product": lambda: ScaleKernel(RBFKernel(active_dims=[1]) * LinearKernel()) + kernels.ConstantKernel(),
}


def tied(kind):
    """Three columns, of which one is encoded by two numbers."""
    kernel = kind([0, 1, 1])
    kernel.column_lengthscale = torch.tensor([0.7, 1.3])
    return kernel


def spectral_mixture():
    kernel = SpectralMixtureKernel(num_mixtures=2)
    kernel.mixture_means = torch.tensor([0.1, 0.4]).reshape(2, 1, 1)
    kernel.mixture_scales = torch.tensor([0.3, 0.2]).reshape(2, 1, 1)
    return kernel


class Fixed(kernels.Kernel):
    """A kernel without parameters."""

    def forward(self, x1, x2, diag=False, **params):
        difference = x1 - x2 if diag else x1.unsqueeze(-2) - x2.unsqueeze(-3)
        return torch.exp(-difference.square().sum(-1))


class Renamed(RBFKernel):
    """The squared exponential under another name."""


class Cauchy(kernels.Kernel):
    """φ(s) = 1 / (1 + s), with its three derivatives: E = −log(1 + s)."""

    has_lengthscale = True

    def forward(self, x1, x2, diag=False, **params):
        return 1.0 / (1.0 + self.covar_dist(x1 / self.lengthscale, x2 / self.lengthscale, diag, square_dist=True))


class PlainCauchy(Cauchy):
    """The same, of which only φ is written down."""


register(Renamed, like=RBFKernel)
register(PlainCauchy, profile=plain_profile(lambda s: 1.0 / (1.0 + s)))
register(
    Cauchy,
    profile=RadialProfile(
        exponent=lambda halves: -torch.log1p(-2.0 * halves),
        factors=lambda E: (1.0, -E.exp()),
        curvature=lambda E: 2.0 * (2.0 * E).exp(),
    ),
)
OTHER_WIDTHS = {
    "registered like its parent": (2, lambda: Renamed(ard_num_dims=2)),
    "registered profile": (2, lambda: ScaleKernel(Cauchy(active_dims=[1])) + RBFKernel()),
    "registered profile without derivatives": (2, PlainCauchy),
    "no parameters": (2, Fixed),
    "rbf, one column": (1, RBFKernel),
    "matern, one column": (1, lambda: ScaleKernel(MaternKernel(1.5))),
    "spectral mixture": (1, spectral_mixture),
    "cosine": (1, kernels.CosineKernel),
    "tied rbf": (3, lambda: tied(TiedRBFKernel)),
    "tied laplace": (3, lambda: tied(TiedLaplaceKernel)),
}


@pytest.mark.parametrize("check", checks(KernelContract))
@pytest.mark.parametrize("name", [*KERNELS, *OTHER_WIDTHS])
def test_kernels(name, check):
    width, make = OTHER_WIDTHS[name] if name in OTHER_WIDTHS else (2, KERNELS[name])
    contract = suite(KernelContract, num_columns=width, make_kernel=lambda: (torch.manual_seed(1), make())[1])
    getattr(contract, check)()


# --- registrations that contradict their kernel -----------------------------------------------------------------------


class WrongGradient(RBFKernel):
    """Registered with a slope of the wrong size."""


class WrongShape(RBFKernel):
    """Registered with a Gram matrix that has lost its rows."""


class WrongFeatures(LinearKernel):
    """Registered with features of another kernel."""


class WrongSupremum(LinearKernel):
    """Registered as bounded, which it is not."""


register(
    WrongGradient, profile=RadialProfile(lambda halves: halves, lambda E: (1.0, -0.4), lambda E: 0.25, constant=True)
)
register(WrongShape, gram=lambda kernel, x1, x2: torch.ones(3, 3, dtype=x1.dtype))
register(WrongFeatures, features=lambda kernel, x, limit: 2.0 * x)
register(WrongSupremum, supremum=lambda kernel, x: torch.ones((), dtype=x.dtype))


@pytest.mark.parametrize(
    ("kind", "check", "message"),
    [
        (WrongGradient, "test_gram_has_the_gradient_of_the_kernel", "gradient of the Gram of WrongGradient in raw_l"),
        (WrongShape, "test_gram_is_the_kernel_itself", r"registered Gram of WrongShape.*shape \(9, 9\), got \(3, 3\)"),
        (WrongFeatures, "test_features_make_the_gram", "ZZᵀ of the registered features of WrongFeatures"),
        (WrongSupremum, "test_supremum_bounds_the_diagonal", r"k\(x, x\) of WrongSupremum at most 1, its registered"),
    ],
)
def test_a_registration_that_contradicts_its_kernel_is_named(kind, check, message):
    with pytest.raises(AssertionError, match=message):
        getattr(suite(KernelContract, make_kernel=kind), check)()
