"""Every backend answers the same questions: exact, features, Nyström, random features, conjugate gradients, one pass,
sharded, compressed, and averaged over a posterior."""

import gpytorch
import pytest
import torch
import torch.distributed as dist
from gpytorch.kernels import RBFKernel, RFFKernel

import kernel_embed as ke
from kernel_embed.embeddings import ConditionalEmbedding, MulticlassEmbedding
from kernel_embed.posteriors import Laplace, sample_posterior
from kernel_embed.scale import (
    ConjugateGradients,
    Nystrom,
    RandomFeatures,
    ShardedEmbedding,
    accumulate,
    approximate,
    compress,
)
from kernel_embed.testing import MulticlassPredictorContract, PredictorContract

from . import checks, suite

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(60, 2, generator=GENERATOR, dtype=torch.float64)
LABELS = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()
VALUES = torch.stack([X[:, 0].sin(), X[:, 1] * X[:, 0]], dim=-1)
QUERY = torch.randn(7, 2, generator=GENERATOR, dtype=torch.float64)


def features():
    torch.manual_seed(0)
    return RFFKernel(8, num_dims=2)


def posterior(embedding, y):
    kernel = RBFKernel(lengthscale_prior=gpytorch.priors.LogNormalPrior(0.0, 0.5))
    twin = (
        MulticlassEmbedding(kernel, 3) if isinstance(embedding, MulticlassEmbedding) else ConditionalEmbedding(kernel)
    )
    settings = {"num_samples": 4, "num_chains": 2, "seed": 0, "sampler": Laplace(), "progress": False}
    return sample_posterior(twin, ke.ConditionalEvidence(), X, y, **settings)


BACKENDS = {
    "exact": lambda make, y: make(RBFKernel()).condition(X, y),
    "bound": lambda make, y: make(RBFKernel()).attach(X, y),
    "features": lambda make, y: make(features()).condition(X, y),
    "nystrom": lambda make, y: approximate(make(RBFKernel()), X, y, method=Nystrom(20))[0],
    "random features": lambda make, y: approximate(make(RBFKernel()), X, y, method=RandomFeatures(40))[0],
    "conjugate gradients": lambda make, y: approximate(make(RBFKernel()), X, y, method=ConjugateGradients(1e-9))[0],
    "one pass": lambda make, y: accumulate(make(features()), X, y).condition(),
    "compressed": lambda make, y: compress(make(RBFKernel()).condition(X, y), 15)[0],
    "posterior": lambda make, y: posterior(make(RBFKernel()), y),
}
WITHOUT_TARGETS, TOLERANCE = {"one pass", "compressed"}, {"conjugate gradients": 1e-6}


def multiclass(kernel):
    return MulticlassEmbedding(kernel, 3, 0.01).double()


def conditional(kernel):
    return ConditionalEmbedding(kernel, 0.01).double()


def check_backend(contract, check, backend, tolerance=1e-8, **members):
    made = suite(contract, make_predictor=backend, make_points=lambda: QUERY, tolerance=tolerance, **members)
    getattr(made, check)()


@pytest.mark.parametrize("check", checks(PredictorContract))
@pytest.mark.parametrize("name", BACKENDS)
def test_answers_about_numbers(name, check):
    members = {"holds_targets": name not in WITHOUT_TARGETS, "tolerance": TOLERANCE.get(name, 1e-8)}
    check_backend(PredictorContract, check, lambda: BACKENDS[name](conditional, VALUES), **members)


@pytest.mark.parametrize("check", checks(MulticlassPredictorContract))
@pytest.mark.parametrize("name", BACKENDS)
def test_answers_about_classes(name, check):
    backend = lambda: BACKENDS[name](multiclass, LABELS)  # noqa: E731
    check_backend(MulticlassPredictorContract, check, backend, TOLERANCE.get(name, 1e-8))


@pytest.fixture(scope="module")
def one_rank(tmp_path_factory):
    store = dist.FileStore(str(tmp_path_factory.mktemp("ranks") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("check", checks(MulticlassPredictorContract))
def test_answers_about_classes_from_shards(one_rank, check):
    backend = lambda: ShardedEmbedding(multiclass(features())).condition(X, LABELS)  # noqa: E731
    check_backend(MulticlassPredictorContract, check, backend)


def test_a_bound_of_answers_without_data_is_refused_in_words():
    answers, _ = approximate(multiclass(RBFKernel()), X, LABELS, method=Nystrom(20))
    with pytest.raises(TypeError, match=r"generalization_bound needs the training data"):
        ke.generalization_bound(answers)
