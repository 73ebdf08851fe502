"""Results do not depend on the gradient mode and the default dtype of the process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import nn

import kernel_embed as ke

X = np.random.default_rng(0).normal(size=(60, 2))
LABELS = (X[:, 0] * X[:, 1] > 0).astype(int)


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    """New tensors, which belong to the mode that they are made in."""
    return torch.as_tensor(X) + 0, torch.as_tensor(LABELS) + 0


def with_network() -> float:
    torch.manual_seed(0)
    embedding = ke.MulticlassEmbedding(ke.FeatureKernel(nn.Linear(2, 3)), 2).double()
    return ke.fit(embedding, ke.LeaveOneOutRisk(), *rows(), progress=False, max_evaluations=5).value


def with_adam() -> float:
    embedding = ke.MulticlassEmbedding(RBFKernel().double(), 2)
    return ke.fit(embedding, ke.LeaveOneOutRisk(), *rows(), progress=False, optimizer=ke.Adam(3), seed=0).value


def with_nuts() -> list[float]:
    embedding = ke.MulticlassEmbedding(RBFKernel().double(), 2)
    settings = {"num_samples": 4, "warmup_steps": 4, "num_chains": 1, "seed": 0, "progress": False}
    posterior = ke.sample_posterior(embedding, ke.ConditionalEvidence(), *rows(), **settings)
    return posterior.samples["regularization"].tolist()


def with_classifier() -> list[float]:
    return ke.MulticlassEmbeddingClassifier(progress=False).fit(X, LABELS).predict_proba(X[:3]).ravel().tolist()


def with_given_kernel() -> list[float]:
    model = ke.MulticlassEmbeddingClassifier(RBFKernel(), ke.LeaveOneOutRisk(), progress=False).fit(X, LABELS)
    return model.predict_proba(X[:3]).ravel().tolist()


def with_regressor() -> list[float]:
    return ke.ConditionalEmbeddingRegressor().fit(X, X[:, 0]).predict(X[:3]).tolist()


def with_votes() -> list[float]:
    kernels = ke.voting.gaussian_kernels([0.3, 0.7])
    return [kernel.lengthscale.item() for kernel in kernels]


@pytest.mark.parametrize("task", [with_network, with_adam, with_nuts, with_classifier, with_regressor])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_enabled_where_they_are_needed(task: Callable[[], object], mode: Callable) -> None:
    expected = task()
    with mode():
        assert task() == expected


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("task", [with_classifier, with_given_kernel, with_regressor, with_votes, with_nuts])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_default_dtype_has_no_influence(task: Callable[[], object], dtype: torch.dtype) -> None:
    expected = task()
    with default_dtype(dtype):
        np.testing.assert_allclose(task(), expected, rtol=1e-12)


def test_the_network_of_the_comparison_starts_from_the_same_weights() -> None:
    from kernel_embed.lab.compare.embedding_classifiers import perceptron

    with default_dtype(torch.float64):
        assert next(perceptron(2, (4,)).parameters()).dtype is torch.float32


def test_the_first_draws_of_a_process_are_those_of_the_second() -> None:
    """The libraries that the first call loads must obey its limit of threads."""
    code = """
import warnings, torch, kernel_embed as ke
from gpytorch.kernels import RBFKernel
warnings.simplefilter("ignore")
torch.set_num_threads(2)
x = torch.rand(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
settings = {"num_samples": 20, "warmup_steps": 20, "num_chains": 2, "seed": 3, "progress": False}
first, second = (
    ke.sample_posterior(
        ke.MulticlassEmbedding(RBFKernel(ard_num_dims=2).double(), 2), ke.ConditionalEvidence(), x,
        (x[:, 0] > 0.5).long(), **settings,
    ).samples["regularization"]
    for _ in range(2)
)
assert torch.equal(first, second), (first - second).abs().max()
"""
    threads = {name: "2" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **threads}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_seeds_of_numpy_are_seeds(tmp_path) -> None:
    x, y = rows()
    kernel = RBFKernel().double()
    draws = {"num_samples": 2, "warmup_steps": 2, "num_chains": 1, "progress": False}

    def classes() -> ke.MulticlassEmbedding:
        return ke.MulticlassEmbedding(RBFKernel().double(), 2)

    calls: list[Callable[[object], object]] = [
        lambda seed: ke.fit(classes(), ke.LeaveOneOutRisk(), x, y, seed=seed, max_evaluations=2, progress=False).value,
        lambda seed: (
            ke.sample_posterior(
                classes(), ke.ConditionalEvidence(), x, y, seed=seed, checkpoint=tmp_path / f"{type(seed)}", **draws
            )
            .samples["regularization"]
            .tolist()
        ),
        lambda seed: (
            ke.approximate(classes(), x, y, method=ke.RandomFeatures(8, seed=seed))[0].probabilities(x[:2]).tolist()
        ),
        lambda seed: ke.EmbeddingEvidence(10, seed=seed)(ke.BayesianMeanEmbedding(kernel), x).item(),
        lambda seed: ke.two_sample_test(x[:30], x[30:], seed=seed).pvalue,
        lambda seed: ke.independence_test(x[:, :1], x[:, 1:], seed=seed).pvalue,
        lambda seed: ke.approximate(classes(), x, y, method=ke.Nystrom(10, seed=seed))[0].probabilities(x[:2]).tolist(),
    ]
    for call in calls:
        assert call(np.int64(3)) == call(3)
