"""Chains that were interrupted go on where they stopped, with the draws of a run that never did."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior

import kernel_embed as ke
from kernel_embed.posteriors import sampler as module

X = torch.as_tensor(np.random.RandomState(0).randn(12, 2))
Y = (X[:, 0] > 0).long()
SETTINGS = {"num_samples": 6, "warmup_steps": 20, "num_chains": 2, "seed": 3, "progress": False}

pytestmark = pytest.mark.filterwarnings("ignore::kernel_embed.posteriors.PosteriorWarning")


def sample(objective=None, **settings):
    kernel = RBFKernel(ard_num_dims=2, lengthscale_prior=LogNormalPrior(0.0, 1.0))
    embedding = ke.MulticlassEmbedding(kernel, 2).double()
    objective = ke.ConditionalEvidence() if objective is None else objective
    return ke.sample_posterior(embedding, objective, X, Y, **{**SETTINGS, **settings})


class Interrupted(ke.ConditionalEvidence):
    """Ctrl-C after so many evaluations; with its own name, so that the closed form steps aside."""

    left = 0

    def evaluate(self, conditioned):
        Interrupted.left -= 1
        if Interrupted.left == 0:
            raise KeyboardInterrupt
        return super().evaluate(conditioned)


@pytest.mark.parametrize("stop", [120, 260])
def test_an_interrupted_run_goes_on(tmp_path, monkeypatch, stop):
    """Stopped in the warm-up, and among the draws; written after every draw."""
    monkeypatch.setattr(module, "SECONDS_BETWEEN", 0.0)
    path = tmp_path / "chains.pt"
    Interrupted.left = 0
    whole = sample(Interrupted())
    Interrupted.left = stop
    with contextlib.suppress(KeyboardInterrupt):
        assert sample(Interrupted(), checkpoint=path).interrupted
    assert (tmp_path / "chains.pt.0").exists()
    Interrupted.left = 0
    resumed = sample(Interrupted(), checkpoint=path)
    assert torch.equal(resumed.draws.u, whole.draws.u)
    assert torch.equal(resumed.draws.energy, whole.draws.energy)
    assert resumed.num_evaluations < whole.num_evaluations


def test_more_draws_go_on_where_chains_ended(tmp_path):
    longer = sample(num_samples=9)
    sample(checkpoint=tmp_path / "chains.pt")
    more = sample(num_samples=9, checkpoint=tmp_path / "chains.pt")
    assert torch.equal(more.draws.u, longer.draws.u)
    fewer = sample(num_samples=4, checkpoint=tmp_path / "chains.pt")
    assert torch.equal(fewer.draws.u, longer.draws.u[:, :4])


def test_chains_in_processes_go_on_too(tmp_path):
    sample(num_samples=3, checkpoint=tmp_path / "chains.pt")
    resumed = sample(checkpoint=tmp_path / "chains.pt", sampler=ke.NUTS(parallel=True))
    assert torch.equal(resumed.draws.u, sample().draws.u)


PROGRAM = """
import sys
from kernel_embed.posteriors import sampler
from tests.posteriors.test_checkpoint import sample
sampler.SECONDS_BETWEEN = 0.0
sample(num_samples=100000, checkpoint=sys.argv[1])
"""


@pytest.mark.skipif(os.name != "posix", reason="kills a process")
def test_a_killed_process_loses_nothing_that_was_written(tmp_path):
    path = tmp_path / "chains.pt"
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)])
    try:
        until = time.monotonic() + 120
        while time.monotonic() < until and not (path.with_name("chains.pt.1")).exists():
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert path.with_name("chains.pt.0").exists()
    resumed = sample(checkpoint=path)
    assert torch.equal(resumed.draws.u, sample().draws.u)


@pytest.mark.parametrize("settings", [{"sampler": ke.Laplace()}, {"seed": None}])
def test_what_cannot_be_resumed_is_refused(tmp_path, settings):
    with pytest.raises(ValueError, match=r"checkpoint= needs NUTS\(\) and a seed"):
        sample(checkpoint=tmp_path / "chains.pt", **settings)


@pytest.mark.parametrize(
    ("settings", "name"), [({"seed": 4}, "seed"), ({"warmup_steps": 26}, "warmup_steps"), ({"temperature": 0.5}, "obj")]
)
def test_chains_of_another_posterior_are_refused(tmp_path, settings, name):
    sample(checkpoint=tmp_path / "chains.pt", num_samples=2)
    with pytest.raises(ValueError, match=f"another problem: its {name}"):
        sample(checkpoint=tmp_path / "chains.pt", **settings)


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "chains.pt.0").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is not a checkpoint file of kernel_embed"):
        sample(checkpoint=tmp_path / "chains.pt")
