"""A posterior that several files ask."""

import pytest
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior

import kernel_embed as ke

from .sampling import draw


@pytest.fixture
def multiclass(problem):
    kernel = ScaleKernel(RBFKernel(ard_num_dims=3, lengthscale_prior=LogNormalPrior(0.0, 0.5))) + MaternKernel(1.5)
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    return embedding, draw(embedding, ke.ConditionalEvidence(), problem.x, problem.y)
