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
from kernel_embed.learning.checkpoint import load_checkpoint
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
    ke.fit(again, worker.OBJECTIVES["empirical"], p.x, p.y, optimizer=ke.Adam(5, 0.01))
    exact = module.condition(p.x, p.y).decision_probabilities(p.query).detach()
    return {**found, "resumed": worker.parameters(again), "statistics": exact, "empty shard": exact}


def test_two_ranks_find_what_one_process_finds(ranks, alone):
    assert set(alone) <= set(ranks[0])
    for name, expected in alone.items():
        for found in ranks:
            torch.testing.assert_close(found[name].double(), expected.double(), rtol=1e-6, atol=1e-6, msg=name)


def test_ranks_agree_to_the_bit(ranks):
    for name in ranks[0]:
        if name != "refusals":
            assert torch.equal(ranks[0][name], ranks[1][name]), name


def test_ranks_stop_together_when_the_callback_of_the_leader_says_so(ranks):
    assert [int(found["records until the leader stops"]) for found in ranks] == [2, 2]


def test_rows_refused_on_one_rank_are_an_error_on_all(ranks):
    assert "Expected rows on every rank" in ranks[0]["refusals"][0]
    assert "Expected at least one row" in ranks[1]["refusals"][0]
    assert "Expected rows on every rank" in ranks[0]["refusals"][1]
    assert "Expected finite values in x" in ranks[1]["refusals"][1]


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory):
    return found_by_two_ranks("classifier", tmp_path_factory.mktemp("classifiers"))


def test_rows_that_are_gathered_whole_teach_what_one_process_learns(classifiers):
    X, y = worker.table()
    alone = ke.MulticlassEmbeddingClassifier(random_state=0).fit(X, y).predict_proba(X)
    for found in classifiers:
        torch.testing.assert_close(found["gathered"], torch.tensor(alone), rtol=1e-8, atol=1e-10)


def test_a_sample_teaches_the_kernels_and_all_rows_the_coefficients(classifiers):
    _, y = worker.table()
    right = torch.tensor(y == "yes")
    for found in classifiers:
        assert float(((found["sampled"][:, 1] > 0.5) == right).double().mean()) > 0.93
        for k in range(5):
            torch.testing.assert_close(found[f"values {k}"], found[f"of all rows {k}"], rtol=1e-6, atol=1e-7)
        # logistic regression leaves the rows out that judge it
        assert int(found["rows of logits"]) == len(y) - len(found["judged"])
        assert torch.equal(found["logits"], classifiers[0]["logits"])


def test_a_refusal_on_one_rank_reaches_all(classifiers):
    assert "got refusals: {1: " in classifiers[0]["refusal"]
    assert "Expected one label for each of the 180 rows" in classifiers[1]["refusal"]


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

    with pytest.raises(
        RuntimeError, match=r"Expected all ranks to take part in a sum, .*peer \[127.0.0.1\]:1 Another rank"
    ):
        collective("a sum", lost)


def test_different_kernels_are_refused(ranks):
    for found in ranks:
        assert "Expected the same kernel on every rank" in found["refusals"][2]


def test_without_a_process_group():
    with pytest.raises(RuntimeError, match=r"Expected a process group for distributed=True"):
        ke.MulticlassEmbeddingClassifier(distributed=True).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(RuntimeError, match=r"Expected a process group, got none. Start the ranks with torchrun"):
        ShardedEmbedding(ke.MulticlassEmbedding(RBFKernel(), 2))
