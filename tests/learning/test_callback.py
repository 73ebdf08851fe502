"""The callback of ``fit``: told of every record in order, unable to change it, able to end the search."""

import dataclasses

import pytest
import torch

import kernel_embed as ke
from kernel_embed.archive import load_checkpoint
from kernel_embed.learning import TorchOptimizer

from ..conftest import rbf
from . import learn, state

WAYS = {
    "lbfgs": {"optimizer": ke.LBFGS(20)},
    "restarts": {"optimizer": ke.LBFGS(6, num_restarts=2)},
    "adam": {"optimizer": ke.Adam(9)},
    "batches": {"optimizer": ke.Adam(9, batch_size=8)},
    "torch": {"optimizer": TorchOptimizer(torch.optim.SGD, 9)},
    "short": {"num_epochs": 9},
}
OBJECTIVE = ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n")


@pytest.mark.parametrize("way", WAYS)
def test_it_hears_of_every_record_in_order_and_changes_nothing(way, problem):
    told = []
    embedding, result = learn(problem, OBJECTIVE, callback=told.append, **WAYS[way])
    assert [p.number for p in told] == list(range(1, len(result.history) + 1))
    assert [{"start": float(p.start), "value": p.value, **p.terms} for p in told] == result.history
    assert [p.best_value for p in told] == [min(q.value for q in told[: i + 1]) for i in range(len(told))]
    assert told[-1].best_value == result.value
    seconds = [p.seconds for p in told]
    assert seconds == sorted(seconds)
    assert 0 < seconds[0] <= seconds[-1] <= result.seconds
    assert all(p.embedding is embedding for p in told)
    other, alone = learn(problem, OBJECTIVE, **WAYS[way])
    assert (alone.history, alone.message) == (result.history, result.message)
    assert torch.equal(state(embedding), state(other))


@pytest.mark.parametrize("way", WAYS)
def test_true_ends_the_search_at_the_best_point_so_far(way, problem):
    embedding, result = learn(problem, OBJECTIVE, callback=lambda p: p.number == 4, **WAYS[way])
    assert result.message == "stopped by the callback after record 4"
    assert not result.converged
    assert not result.interrupted
    assert len(result.history) == 4
    assert result.value == min(record["value"] for record in result.history)
    if way != "batches":
        assert OBJECTIVE(embedding, problem.x, problem.y).item() == pytest.approx(result.value, rel=1e-12)
    assert all(p.grad is None for p in embedding.parameters())


def test_records_are_immutable(problem):
    told = []
    learn(problem, OBJECTIVE, callback=told.append, max_evaluations=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        told[0].value = 0.0
    with pytest.raises(TypeError, match="does not support item assignment"):
        told[0].terms["priors"] = 0.0
    assert "embedding" not in repr(told[0])


def test_the_embedding_is_at_the_point_that_was_evaluated(problem):
    def check(p):
        with torch.no_grad():
            assert OBJECTIVE(p.embedding, problem.x, problem.y).item() == pytest.approx(p.value, rel=1e-12)

    learn(problem, OBJECTIVE, callback=check, max_evaluations=8)


def test_patience(problem):
    """Early stopping in three lines, as the guide has it."""
    values = []

    def patience(p):
        values.append(p.value)
        return len(values) > 5 and min(values[-5:]) > min(values) - 1e-4

    _, result = learn(problem, OBJECTIVE, optimizer=ke.Adam(500), callback=patience)
    assert "stopped by the callback" in result.message
    assert len(result.history) < 500


def test_an_error_in_the_callback_passes_and_leaves_the_best_point(problem, tmp_path):
    def broken(p):
        if p.number == 5:
            raise ZeroDivisionError

    embedding = ke.MulticlassEmbedding(rbf(), problem.m)
    with pytest.raises(ZeroDivisionError):
        ke.fit(embedding, OBJECTIVE, problem.x, problem.y, callback=broken, checkpoint=tmp_path / "fit.pt")
    content = load_checkpoint(tmp_path / "fit.pt")
    assert len(content["history"]) == 5
    assert OBJECTIVE(embedding, problem.x, problem.y).item() == pytest.approx(content["best_value"], rel=1e-12)
