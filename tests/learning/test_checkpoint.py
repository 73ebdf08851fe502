"""Checkpoints: written whole, resumed where left, refused where they belong to something else."""

import contextlib
import pathlib
import shutil

import pytest
import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
from kernel_embed.archive import load_checkpoint, save_checkpoint

from ..conftest import make_problem, rbf
from . import state


@pytest.fixture
def path(tmp_path) -> pathlib.Path:
    return tmp_path / "deep" / "fit.pt"


class Counting(ke.LeaveOneOutRisk):
    """Fails at a chosen evaluation, but looks like its parent to a checkpoint."""

    def __init__(self, error=None, at=0):
        super().__init__()
        self.error, self.at, self.count = error, at, 0

    def evaluate(self, conditioned):
        self.count += 1
        if self.count == self.at:
            raise self.error
        return super().evaluate(conditioned)


def learn(path, problem, objective=None, **how):
    embedding = ke.MulticlassEmbedding(rbf(), problem.m)
    result = ke.fit(embedding, objective or Counting(), problem.x, problem.y, checkpoint=path, seed=0, **how)
    return embedding, result


def test_round_trip(path):
    content = {"a": 1.5, "b": [torch.ones(2)], "c": {"d": "text"}}
    save_checkpoint(path, content)
    again = load_checkpoint(path, a=1.5)
    assert again["c"] == {"d": "text"}
    assert torch.equal(again["b"][0], torch.ones(2))
    assert [p.name for p in path.parent.iterdir()] == ["fit.pt"]
    assert load_checkpoint(path.with_name("none.pt")) is None


@pytest.mark.parametrize("how", [{}, {"batch_size": 8}])
@pytest.mark.parametrize("killed_at", [4, 5, 7])
def test_a_kill_after_a_resumed_epoch_loses_nothing(how, killed_at, path, problem, monkeypatch):
    """The file as it lies after any record leads to the same end: no epoch twice, no moments of a later one."""
    monkeypatch.setattr("kernel_embed.learning.problem.SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    whole, expected = learn(None, problem, num_epochs=9, **how)
    learn(path, problem, num_epochs=3, **how)

    def kill(told):
        if told.number == killed_at:
            shutil.copy(path, path.with_name("as_it_lay.pt"))  # nothing is written in the end of a killed process
            return True
        return False

    learn(path, problem, num_epochs=9, callback=kill, **how)
    numbers, as_it_lay = [], path.with_name("as_it_lay.pt")
    watch = {"callback": lambda told: numbers.append(told.number)}
    embedding, result = learn(as_it_lay, problem, num_epochs=9, **how, **watch)
    assert numbers == list(range(10 - len(numbers), 10))
    assert result.history == expected.history
    assert torch.equal(state(embedding), state(whole))


def test_evaluations_are_counted_over_resumptions(path, problem):
    for at in (4, 4):
        learn(path, problem, Counting(KeyboardInterrupt(), at), max_evaluations=8)
    _, result = learn(path, problem, max_evaluations=8)
    assert len(result.history) <= 8
    objective = Counting()
    _, again = learn(path, problem, objective, max_evaluations=8)
    assert objective.count == 8 - len(result.history)
    assert again.value <= result.value


def restart_values(path, problem):
    """Of a restart that never stopped, and of one that was stopped after its third evaluation and resumed."""
    how = {"num_restarts": 1, "max_evaluations": 6, "tolerance": 1e-12}
    _, whole = learn(None, problem, **how)
    learn(path, problem, Counting(KeyboardInterrupt(), 6 + 4), **how)
    _, result = learn(path, problem, **how)
    return [[record["value"] for record in one.history if record["start"] == 1.0] for one in (whole, result)]


def test_a_resumed_restart_goes_on_as_if_nothing_had_happened(path, problem):
    own, resumed = restart_values(path, problem)
    assert resumed == pytest.approx(own, rel=1e-9)


@pytest.mark.parametrize(
    ("error", "at"), [(KeyboardInterrupt(), 1), (KeyboardInterrupt(), 4), (RuntimeError("power"), 9)]
)
def test_lbfgs_takes_the_way_of_a_search_that_never_stopped(error, at, path, problem):
    whole, expected = learn(None, problem, max_evaluations=40)
    with contextlib.suppress(RuntimeError):  # an interruption returns, a crash does not
        learn(path, problem, Counting(error, at + 1), max_evaluations=40)
    content, objective = load_checkpoint(path), Counting()
    embedding, result = learn(path, problem, objective, max_evaluations=40)
    assert len(content["history"]) == at
    assert result.history[:at] == content["history"]
    assert result.num_evaluations == content["num_evaluations"] + objective.count
    assert [r["value"] for r in result.history] == pytest.approx([r["value"] for r in expected.history], rel=1e-8)
    assert objective.count <= len(expected.history) - at, "nothing is evaluated twice"
    torch.testing.assert_close(state(embedding), state(whole), rtol=1e-6, atol=1e-8)


def test_a_search_too_long_to_tell_goes_on_from_its_own_best_point(path, problem, monkeypatch):
    """Not from the best point of an earlier start."""
    monkeypatch.setattr("kernel_embed.learning.lbfgs.MAX_RECORDED", 5)
    own, resumed = restart_values(path, problem)
    assert resumed[:3] == pytest.approx(own[:3], rel=1e-9)
    assert resumed[3] == pytest.approx(min(own[:3]), rel=1e-9)
    assert len(resumed) == 6


def test_fewer_evaluations_than_records_are_refused(path, problem):
    learn(path, problem, max_evaluations=4)
    content = load_checkpoint(path)
    save_checkpoint(path, {**content, "num_evaluations": -3})
    with pytest.raises(ValueError, match="fewer evaluations than records"):
        learn(path, problem, max_evaluations=4)


def test_a_search_broken_inside_an_epoch_repeats_that_epoch(path, problem):
    _, expected = learn(None, problem, num_epochs=6, batch_size=8)
    learn(path, problem, Counting(KeyboardInterrupt(), 8), num_epochs=6, batch_size=8)
    _, result = learn(path, problem, num_epochs=6, batch_size=8)
    assert [r["value"] for r in result.history] == pytest.approx([r["value"] for r in expected.history], rel=1e-12)


def test_a_finished_search_resumes_to_the_same_answer(path, problem):
    one, first = learn(path, problem)
    two, again = learn(path, problem)
    assert again.value <= first.value
    assert again.value == pytest.approx(first.value, abs=1e-5)
    torch.testing.assert_close(state(two), state(one), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("what", ["objective", "shapes", "rows", "values", "labels"])
def test_a_checkpoint_of_another_problem_is_refused(what, path, problem):
    learn(path, problem, max_evaluations=5)
    written, n = path.read_bytes(), len(problem.x) - (what == "rows")
    x = make_problem(seed=5).x if what == "values" else problem.x
    y = problem.y.flip(0) if what == "labels" else problem.y
    embedding = ke.MulticlassEmbedding(RBFKernel().double() if what == "shapes" else rbf(), problem.m)
    objective = ke.EmpiricalRisk() if what == "objective" else Counting()
    with pytest.raises(ValueError, match=r"(?s)another problem.*delete"):
        ke.fit(embedding, objective, x[:n], y[:n], checkpoint=path)
    assert path.read_bytes() == written


def test_a_damaged_file_is_explained(path, problem):
    path.parent.mkdir()
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match=r"fit\.pt is not a checkpoint file.*delete"):
        learn(path, problem)
    assert path.read_bytes() == b"not a checkpoint"


def test_errors_do_not_damage_the_checkpoint(path, problem):
    learn(path, problem, max_evaluations=8)
    best = load_checkpoint(path)["best_value"]
    with pytest.raises(ZeroDivisionError):
        learn(path, problem, Counting(ZeroDivisionError(), 1))
    assert load_checkpoint(path)["best_value"] == best
