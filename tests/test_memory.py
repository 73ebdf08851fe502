"""Data that do not fit in memory are rejected at once, with their size and an alternative."""

import sys
import time

import gpytorch
import pytest
import torch

import kernel_embed as ke
from kernel_embed import runtime, validation, voting
from kernel_embed.hypothesis import checks, independence
from kernel_embed.kernels.approximations import FourierFeatures, nystrom_kernel

N = 3000
MEMORY = 2**25
"""Bytes of the simulated machine: 3000 × 3000 numbers are twice that."""


@pytest.fixture(autouse=True)
def _small_machine(monkeypatch):
    monkeypatch.setattr(validation, "available_memory", lambda: MEMORY)
    monkeypatch.setattr(sys.modules["kernel_embed.kernels.gram"], "LARGE", 2**20)


def _kernel():
    return gpytorch.kernels.RBFKernel().double()


X = torch.randn(N, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = (X[:, 0] > 0).long()
Z, REAL = X[:, 1:], X[:, 0] + X[:, 1]
CALLS = {
    "gram": lambda: ke.gram(_kernel(), X),
    "inducing points": lambda: nystrom_kernel(_kernel(), X),
    "random features": lambda: FourierFeatures(X[:3].repeat(1, 2000))(X),
    "condition": lambda: ke.MulticlassEmbedding(_kernel(), 2).condition(X, Y),
    "fit": lambda: ke.fit(ke.MulticlassEmbedding(_kernel(), 2), ke.LeaveOneOutRisk(), X, Y),
    "fit a mean embedding": lambda: ke.fit(ke.BayesianMeanEmbedding(_kernel()), ke.EmbeddingEvidence(), X),
    "sample_posterior": lambda: ke.sample_posterior(
        ke.MulticlassEmbedding(_kernel(), 2), ke.ConditionalEvidence(), X, Y, num_samples=5, warmup_steps=5
    ),
    "score": lambda: ke.LeaveOneOutScore()(ke.ConditionalEmbedding(_kernel()), X, torch.stack([REAL, REAL], 1)),
    "conditional test": lambda: ke.conditional_independence_test(X[:, 0], REAL, Z, seed=0),
    "conditional test by kernels": lambda: ke.conditional_independence_test(X[:, 0], REAL, Z, method="kernel", seed=0),
    "conditional test by residuals": lambda: ke.conditional_independence_test(
        X[:, 0], REAL, Z, method="residuals", seed=0
    ),
    "default classifier": lambda: ke.MulticlassEmbeddingClassifier(progress=False).fit(X.numpy(), Y.numpy()),
    "default classifier of many columns": lambda: ke.MulticlassEmbeddingClassifier(progress=False).fit(
        X[:40].repeat(1, 10**4).numpy(), Y[:40].numpy()
    ),
    "vote": lambda: ke.VotedKernelClassifier().fit(X.numpy(), Y.numpy()),
    "path of votes": lambda: voting.vote_path(None, X.numpy(), Y.numpy()),
    "complexities": lambda: voting.complexities(None, X.numpy()),
    "cross-validated votes": lambda: voting.cross_validate_votes(None, X.numpy(), Y.numpy()),
}


@pytest.mark.parametrize("name", CALLS)
def test_rejected_at_once(name):
    start = time.perf_counter()
    with pytest.raises(MemoryError, match=r"Expected data that fit in memory, got n = \d+, .* GiB here\. [A-Z]"):
        CALLS[name]()
    assert time.perf_counter() - start < 10.0


def test_the_least_limit_counts(tmp_path, monkeypatch):
    """Of the machine, the container in its two ways, and the process."""
    resource = pytest.importorskip("resource")
    machine = runtime.available_memory(tmp_path)
    for name in ("sys/fs/cgroup/memory", "proc/self"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("max\n")
    assert runtime.available_memory(tmp_path) == machine
    (tmp_path / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text("7000000\n")
    assert runtime.available_memory(tmp_path) == 7_000_000
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("5000000\n")
    assert runtime.available_memory(tmp_path) == 5_000_000
    (tmp_path / "proc/self/statm").write_text("1000000 2 3 4 5 6 7\n")
    limit = 10**6 * resource.getpagesize() + 4_000_000
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert runtime.available_memory(tmp_path) == 4_000_000


def test_matrices_in_blocks_need_little_memory(monkeypatch):
    """Tests of two samples and of independence go through the matrix a block at a time."""
    shown = []

    def bar(total, description, show=None):
        shown.append((total, description, show))
        return progress_bar(total, description, False)

    progress_bar = checks.progress_bar
    monkeypatch.setattr(checks, "progress_bar", bar)
    monkeypatch.setattr(independence, "MEMORY", 2**20)
    assert ke.two_sample_test(X[::2], X[1::2], _kernel(), 20, seed=0).pvalue > 0.01
    assert ke.independence_test(X[:, 0], Z, _kernel(), 20, seed=0, kernel_y=_kernel()).pvalue > 0.01
    assert [show for _, _, show in shown] == [False, False]  # of 3000 points nobody needs to see a bar
    monkeypatch.setattr(checks, "LARGE_TEST", N)
    ke.two_sample_test(X[::2], X[1::2], _kernel(), 20, seed=0)
    ke.two_sample_test(X[::2], X[1::2], _kernel(), 20, seed=0, progress=False)
    assert shown[2:] == [(N, "test", None), (N, "test", False)]


def test_a_bar_moves_with_the_rows(capsys):
    ke.two_sample_test(X[:300], X[300:600], _kernel(), 20, seed=0, progress=True)
    ke.independence_test(X[:300, 0], Z[:300], _kernel(), 20, seed=0, kernel_y=_kernel(), progress=True)
    output = capsys.readouterr().err
    assert "test:   0%|" in output
    assert "600" in output
    assert "151" in output


def test_device_memory_is_not_checked():
    validation.check_memory(10**9, torch.empty(1, device="meta"), 1, "")
    with pytest.raises(MemoryError, match="10 × 10000000 matrices"):
        validation.check_memory(10, None, 1, "Take less.", columns=10**7, matrices=1)
