"""Learned kernel embeddings for GPyTorch and Pyro.

The workflow is kernel → embedding → objective → fit → condition → predict. The most common names are here, all others
in one module each:

=============================  ==============================================================================
``kernel_embed.kernels``       Gram matrices, features, suprema, smoothed kernels, and ``register`` for your own
``kernel_embed.tabular``       encoders of table columns, input transforms, and kernels for tables
``kernel_embed.embeddings``    embeddings, conditioned embeddings, and predictors
``kernel_embed.objectives``    risks, complexity, evidence, bounds
``kernel_embed.learning``      ``fit``, optimizers, local maxima
``kernel_embed.scale``         statistics, approximations, shards, compression
``kernel_embed.posteriors``    priors, samplers, posteriors and their predictions
``kernel_embed.hypothesis``    tests of samples, independence and conditional independence
``kernel_embed.voting``        voted kernel regularization
``kernel_embed.estimators``    scikit-learn front ends
``kernel_embed.plots``         pictures
``kernel_embed.testing``       contract suites for your own kernels, embeddings, objectives, samplers
=============================  ==============================================================================

The comparison, the papers and the benchmarks are in ``kernel_embed.lab``, which nothing else imports.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from . import embeddings, hypothesis, kernels, learning, objectives, posteriors, scale, tabular
from .archive import load, save
from .embeddings import BayesianMeanEmbedding, ConditionalEmbedding, MeanEmbedding, MulticlassEmbedding, Witness
from .hypothesis import conditional_independence_test, independence_test, k_sample_test, two_sample_test
from .kernels import FeatureKernel, LipschitzBound, default_kernel, gram, register, set_lengthscales_by_median
from .learning import LBFGS, Adam, fit, local_maxima
from .objectives import (
    BatchValidationRisk,
    CalibratedLeaveOneOutRisk,
    ConditionalEvidence,
    CrossValidationRisk,
    EmbeddingEvidence,
    EmpiricalRisk,
    LeaveOneOutRisk,
    LeaveOneOutScore,
    Objective,
    RademacherComplexity,
    default_objective,
    generalization_bound,
)
from .posteriors import NUTS, SMC, SVI, Laplace, load_posterior, pyro_model, sample_posterior
from .scale import Nystrom, RandomFeatures, approximate
from .version import __version__ as __version__

if TYPE_CHECKING:
    from . import estimators, plots, testing, voting
    from .estimators import ConditionalEmbeddingRegressor, MulticlassEmbeddingClassifier, VotedKernelClassifier
    from .lab.compare.comparison import compare

__all__ = [
    "LBFGS", "NUTS", "SMC", "SVI", "Adam", "BatchValidationRisk", "BayesianMeanEmbedding", "CalibratedLeaveOneOutRisk",
    "ConditionalEmbedding", "ConditionalEmbeddingRegressor", "ConditionalEvidence", "CrossValidationRisk",
    "EmbeddingEvidence", "EmpiricalRisk", "FeatureKernel", "Laplace", "LeaveOneOutRisk", "LeaveOneOutScore",
    "LipschitzBound", "MeanEmbedding", "MulticlassEmbedding", "MulticlassEmbeddingClassifier", "Nystrom", "Objective",
    "RademacherComplexity", "RandomFeatures", "VotedKernelClassifier", "Witness", "approximate", "compare",
    "conditional_independence_test", "default_kernel", "default_objective", "embeddings", "estimators", "fit",
    "generalization_bound", "gram", "hypothesis", "independence_test", "k_sample_test", "kernels", "learning", "load",
    "load_posterior", "local_maxima", "objectives", "plots", "posteriors", "pyro_model", "register", "sample_posterior",
    "save", "scale", "set_lengthscales_by_median", "tabular", "testing", "two_sample_test", "voting",
]  # fmt: skip

# Imported on first use: scikit-learn, matplotlib and HiGHS are not loaded by a process that does not use them.
_LAZY_MODULES = ("estimators", "plots", "testing", "voting")
_LAZY_NAMES = {
    "ConditionalEmbeddingRegressor": "estimators",
    "MulticlassEmbeddingClassifier": "estimators",
    "VotedKernelClassifier": "estimators",
    "compare": "lab.compare.comparison",
}


def __getattr__(name: str) -> object:
    if name in _LAZY_MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(f".{_LAZY_NAMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY_NAMES, *_LAZY_MODULES})
