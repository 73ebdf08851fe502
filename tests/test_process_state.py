"""Results do not depend on the gradient mode and the default dtype of the process."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from torch import nn

import kernel_embed as ke

X = np.random.default_rng(0).normal(size=(60, 2))
LABELS = (X[:, 0] * X[:, 1] > 0).astype(int)
DRAWS = {"num_samples": 4, "warmup_steps": 4, "num_chains": 1, "progress": False}


def rows():
    """New tensors, which belong to the mode that they are made in."""
    return torch.as_tensor(X) + 0, torch.as_tensor(LABELS) + 0


def classes(kernel=RBFKernel):
    torch.manual_seed(0)
    return ke.MulticlassEmbedding(kernel().double(), 2)


def learned(embedding, seed=None, **settings):
    return ke.fit(embedding, ke.LeaveOneOutRisk(), *rows(), progress=False, seed=seed, **settings).value


def drawn(seed=0, **settings):
    posterior = ke.sample_posterior(classes(), ke.ConditionalEvidence(), *rows(), seed=seed, **DRAWS, **settings)
    return posterior.samples["regularization"].tolist()


def classified(*arguments):
    model = ke.MulticlassEmbeddingClassifier(*arguments, progress=False).fit(X, LABELS)
    return model.predict_proba(X[:3]).ravel().tolist()


TASKS = {
    "network": lambda: learned(classes(lambda: ke.FeatureKernel(nn.Linear(2, 3))), max_evaluations=5),
    "adam": lambda: learned(classes(), seed=0, optimizer=ke.Adam(3)),
    "nuts": drawn,
    "classifier": classified,
    "kernel": lambda: classified(RBFKernel(), ke.LeaveOneOutRisk()),
    "regressor": lambda: ke.ConditionalEmbeddingRegressor().fit(X, X[:, 0]).predict(X[:3]).tolist(),
    "votes": lambda: [kernel.lengthscale.item() for kernel in ke.voting.gaussian_kernels([0.3, 0.7])],
}


@pytest.mark.parametrize("task", ["network", "adam", "nuts", "classifier", "regressor"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_are_enabled_where_they_are_needed(task, mode):
    expected = TASKS[task]()
    with mode():
        assert TASKS[task]() == expected


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("task", ["classifier", "kernel", "regressor", "votes", "nuts"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_default_dtype_has_no_influence(task, dtype):
    expected = TASKS[task]()
    with default_dtype(dtype):
        np.testing.assert_allclose(TASKS[task](), expected, rtol=1e-12)


def test_the_network_of_the_comparison_starts_from_the_same_weights():
    from kernel_embed.lab.compare.embedding_classifiers import perceptron

    with default_dtype(torch.float64):
        assert next(perceptron(2, (4,)).parameters()).dtype is torch.float32


def test_the_first_draws_of_a_process_are_those_of_the_second():
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


def test_seeds_of_numpy_are_seeds(tmp_path):
    x, y = rows()

    def approximated(method):
        return ke.approximate(classes(), x, y, method=method)[0].probabilities(x[:2]).tolist()

    for call in (
        lambda seed: learned(classes(), seed=seed, max_evaluations=2),
        lambda seed: drawn(seed, checkpoint=tmp_path / f"{type(seed)}"),
        lambda seed: approximated(ke.RandomFeatures(8, seed=seed)),
        lambda seed: approximated(ke.Nystrom(10, seed=seed)),
        lambda seed: ke.EmbeddingEvidence(10, seed=seed)(ke.BayesianMeanEmbedding(RBFKernel().double()), x).item(),
        lambda seed: ke.two_sample_test(x[:30], x[30:], seed=seed).pvalue,
        lambda seed: ke.independence_test(x[:, :1], x[:, 1:], seed=seed).pvalue,
    ):
        assert call(np.int64(3)) == call(3)
