"""Evidence, gradient and posterior for every kernel class that GPyTorch exports and that takes plain real inputs."""

import warnings

import gpytorch
import pytest
import torch
from gpytorch import kernels
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from linear_operator.utils.errors import NanError

from kernel_embed.embeddings.bayesian import BayesianMeanEmbedding
from kernel_embed.objectives.evidence import EmbeddingEvidence

from .test_embedding_evidence import check_gradient

# Cylindrical and grid kernels want the unit ball, an arc kernel the unit cube.
X = torch.rand(30, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.5 + 0.1


def _deprecated(make):
    def build():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return make()

    return build


def _inducing():
    points = torch.rand(8, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 0.5 + 0.1
    return kernels.InducingPointKernel(MaternKernel(nu=2.5), points, gpytorch.likelihoods.GaussianLikelihood())


KERNELS = {
    "AdditiveKernel": lambda: kernels.AdditiveKernel(RBFKernel(active_dims=[0]), MaternKernel(active_dims=[1])),
    "AdditiveStructureKernel": _deprecated(lambda: kernels.AdditiveStructureKernel(RBFKernel(), 2)),
    "ArcKernel": lambda: kernels.ArcKernel(MaternKernel(nu=2.5), ard_num_dims=2),
    "CosineKernel": kernels.CosineKernel,
    "CylindricalKernel": lambda: kernels.CylindricalKernel(3, MaternKernel(nu=2.5)),
    "GridInterpolationKernel": lambda: kernels.GridInterpolationKernel(RBFKernel(), 20, grid_bounds=[(0, 1)] * 2),
    "HammingIMQKernel": lambda: kernels.HammingIMQKernel(2),
    "InducingPointKernel": _inducing,
    "LinearKernel": kernels.LinearKernel,
    "MaternKernel": MaternKernel,
    "NewtonGirardAdditiveKernel": _deprecated(lambda: kernels.NewtonGirardAdditiveKernel(RBFKernel(), 2)),
    "PeriodicKernel": kernels.PeriodicKernel,
    "PiecewisePolynomialKernel": kernels.PiecewisePolynomialKernel,
    "PolynomialKernel": lambda: kernels.PolynomialKernel(2),
    "ProductKernel": lambda: kernels.ProductKernel(RBFKernel(), kernels.RQKernel()),
    "ProductStructureKernel": _deprecated(lambda: kernels.ProductStructureKernel(RBFKernel(), 2)),
    "RBFKernel": RBFKernel,
    "RFFKernel": lambda: kernels.RFFKernel(64, num_dims=2),
    "RQKernel": kernels.RQKernel,
    "ScaleKernel": lambda: ScaleKernel(kernels.RQKernel()),
    "SpectralDeltaKernel": lambda: kernels.SpectralDeltaKernel(num_dims=2),
    "SpectralMixtureKernel": lambda: kernels.SpectralMixtureKernel(3, ard_num_dims=2),
}

EXCEPTIONS = {
    "Kernel": "the abstract base class",
    "ConstantKernel": "constant in x: the slope of its embedding is zero, so eq. (13) is −∞ alone and scaled "
    "(summed and multiplied it works, see below)",
    "DistributionalInputKernel": "inputs are distributions",
    "GaussianSymmetrizedKLKernel": "inputs are distributions",
    "GridKernel": "inputs must be its own grid",
    "IndexKernel": "inputs are indices",
    "LCMKernel": "several outputs for each input",
    "Matern52KernelGrad": "several outputs for each input",
    "MultiDeviceKernel": "distributes another kernel over several GPUs",
    "MultitaskKernel": "several outputs for each input",
    "PolynomialKernelGrad": "several outputs for each input",
    "RBFKernelGrad": "several outputs for each input",
    "RBFKernelGradGrad": "several outputs for each input",
    "keops": "a module of kernels that need pykeops",
}

FORMS = {
    "alone": lambda kernel: kernel,
    "scaled": ScaleKernel,
    "summed": lambda kernel: kernel + MaternKernel(nu=1.5),
    "multiplied": lambda kernel: kernel * MaternKernel(nu=0.5),
}


def test_no_exported_kernel_is_forgotten():
    assert {*KERNELS, *EXCEPTIONS} == set(kernels.__all__)


@pytest.mark.filterwarnings("ignore:.*last_dim_is_batch.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", KERNELS)
def test_evidence_gradient_and_posterior_are_finite(name, form):
    kernel = FORMS[form](KERNELS[name]()).double()
    embedding = BayesianMeanEmbedding(kernel)
    # GPyTorch sums the Newton-Girard formulae in the default dtype, single precision here.
    single = name == "NewtonGirardAdditiveKernel"
    check_gradient(embedding, X, rtol=0.05 if single else 1e-3, step=1e-3 if single else 3e-5)
    # every parameter of the kernel takes part; the likelihood inside an inducing-point kernel is not the kernel's
    for parameter_name, parameter in embedding.named_parameters():
        if parameter.requires_grad and "likelihood" not in parameter_name:
            assert parameter.grad is not None, parameter_name
            assert torch.isfinite(parameter.grad).all(), parameter_name
    with torch.no_grad():
        assert torch.isfinite(EmbeddingEvidence()(embedding, X))
        posterior = embedding.condition(X)(X[:5] + 0.01)
    assert torch.isfinite(posterior.mean).all()
    assert torch.isfinite(posterior.covariance_matrix).all()
    assert (posterior.covariance_matrix.diagonal() > -1e-8).all()


@pytest.mark.parametrize("form", FORMS)
def test_the_constant_kernel_says_why_not(form):
    embedding = BayesianMeanEmbedding(FORMS[form](kernels.ConstantKernel()).double())
    if form in ("alone", "scaled"):
        with pytest.raises(NanError, match="kernel is constant"):
            EmbeddingEvidence()(embedding, X)
    else:
        assert torch.isfinite(EmbeddingEvidence()(embedding, X))
