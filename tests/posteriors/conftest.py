"""A quick posterior, for tests that ask what it answers and not how it was drawn."""

import warnings

import pytest
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior

import kernel_embed as ke
from kernel_embed.posteriors import Laplace


def draw(embedding, objective, x, y=None, **settings):
    settings = {"sampler": Laplace(), "num_samples": 6, "num_chains": 2, "seed": 0, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ke.posteriors.PosteriorWarning)
        return ke.sample_posterior(embedding, objective, x, y, **settings)


@pytest.fixture
def multiclass(problem):
    kernel = ScaleKernel(RBFKernel(ard_num_dims=3, lengthscale_prior=LogNormalPrior(0.0, 0.5))) + MaternKernel(1.5)
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    return embedding, draw(embedding, ke.ConditionalEvidence(), problem.x, problem.y)
