"""Two real processes against one; a rank that dies; what a single process can check."""

import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed.archive import load_checkpoint
from kernel_embed.scale import ShardedEmbedding
from kernel_embed.scale.distributed import collective

from . import worker

ROOT = pathlib.Path(__file__).parents[2]


ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def torchrun(task: str, file: pathlib.Path, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1"),
        *(f"--master-port={free_port()}", "-m", "tests.scale.worker", task, str(file)),
    ]
    environment = {**os.environ, **ENVIRONMENT}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout)


def found_by_two_ranks(task, directory):
    done = torchrun(task, directory / "found")
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(directory / f"found.{rank}") for rank in range(2)]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    return found_by_two_ranks("compare", tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def alone():
    p, module = worker.problem(), worker.embedding()
    found = worker.steps(module, module, p.x, p.y, lambda: None)
    again = worker.embedding()
    ke.fit(again, worker.OBJECTIVES["empirical"], p.x, p.y, optimizer=ke.Adam(5, 0.01), early_stopping=False)
    exact = module.condition(p.x, p.y).decision_probabilities(p.query).detach()
    return {**found, "resumed": worker.parameters(again), "statistics": exact, "empty shard": exact}


def test_two_ranks_find_what_one_process_finds_and_agree_to_the_bit(ranks, alone):
    assert set(alone) <= set(ranks[0])
    for name, expected in alone.items():
        for found in ranks:
            torch.testing.assert_close(found[name].double(), expected.double(), rtol=1e-6, atol=1e-6, msg=name)
    assert all(torch.equal(ranks[0][name], ranks[1][name]) for name in ranks[0] if name != "refusals")
    assert int(ranks[0]["records until the leader stops"]) == 2  # by its callback


def test_rows_refused_on_one_rank_and_different_kernels_are_an_error_on_all(ranks):
    assert "Expected at least one row" in ranks[1]["refusals"][0]
    assert "Expected finite values in x" in ranks[1]["refusals"][1]
    assert all("There are no rows, or invalid rows, on" in refusal for refusal in ranks[0]["refusals"][:2])
    assert all("Expected the same kernel on every rank" in found["refusals"][2] for found in ranks)


def test_classifiers_of_all_rows_and_of_a_sample(tmp_path):
    X, y = worker.table()
    alone = torch.tensor(ke.MulticlassEmbeddingClassifier(random_state=0).fit(X, y).predict_proba(X))
    ranks = found_by_two_ranks("classifier", tmp_path)
    for found in ranks:
        torch.testing.assert_close(found["gathered"], alone, rtol=1e-8, atol=1e-10)
        # a sample teaches the kernels, and all rows the coefficients
        assert float(((found["sampled"][:, 1] > 0.5) == torch.tensor(y == "yes")).double().mean()) > 0.93
        for k in range(5):
            torch.testing.assert_close(found[f"values {k}"], found[f"of all rows {k}"], rtol=1e-6, atol=1e-7)
        # logistic regression is not fitted to its validation rows
        assert int(found["rows of logits"]) == len(y) - len(found["validation rows"])
        assert torch.equal(found["logits"], ranks[0]["logits"])
    assert "some ranks are invalid: {1: " in ranks[0]["refusal"]
    assert "Expected one label for each of 180 rows" in ranks[1]["refusal"]


def test_a_rank_that_dies_ends_the_run_and_spares_the_checkpoint(tmp_path):
    done = torchrun("dying", tmp_path / "found")
    ended = time.time()
    assert done.returncode != 0
    # From the death on: how long two processes take to start says how busy the machine is, and nothing of ours.
    assert ended - (tmp_path / "found.dead").stat().st_mtime < 60
    assert "exitcode  : 3" in done.stderr or "exitcode: 3" in done.stderr
    content = load_checkpoint(tmp_path / "found.checkpoint")
    assert len(content["history"]) == 2


@pytest.mark.parametrize("dead", [0])  # the one that the others find each other by; 1 is as good
def test_a_killed_rank_ends_the_other_within_a_minute(dead, tmp_path):
    """Without torchrun, which would end it; the patience of the group is half an hour, and is not waited for."""
    environment = {**os.environ, **ENVIRONMENT, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", "tests.scale.worker", "endless", str(tmp_path / "at_work")]
    ranks = [
        subprocess.Popen(
            command, cwd=ROOT, env={**environment, "RANK": str(r), "WORLD_SIZE": "2"}, stderr=subprocess.PIPE, text=True
        )
        for r in range(2)
    ]
    try:
        deadline = time.monotonic() + 300
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        ranks[dead].kill()
        killed = time.monotonic()
        _, words = ranks[1 - dead].communicate(timeout=60)
        assert ranks[1 - dead].returncode != 0
        assert time.monotonic() - killed < 60
        assert "Expected all ranks to take part in" in words, words[-2000:]
        assert "Another rank ended or did not answer in time" in words
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


def test_a_lost_connection_is_explained():
    def lost():
        raise RuntimeError("Connection closed by peer [127.0.0.1]:1\nmore")

    with pytest.raises(RuntimeError, match=r"all ranks to take part in a sum, .*peer \[127.0.0.1\]:1 Another rank"):
        collective("a sum", lost)


def test_without_a_process_group():
    with pytest.raises(RuntimeError, match=r"distributed=True needs a process group"):
        ke.MulticlassEmbeddingClassifier(distributed=True).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(RuntimeError, match=r"There is no process group. Start the ranks with torchrun"):
        ShardedEmbedding(ke.MulticlassEmbedding(RBFKernel(), 2))
