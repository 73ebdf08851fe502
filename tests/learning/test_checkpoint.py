"""Checkpoints: written whole, resumed where left, refused where they belong to something else."""

import contextlib
import copy
import pathlib
import shutil

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel
from linear_operator.utils.errors import NanError
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import kernel_embed as ke
from kernel_embed.archive import load_checkpoint, save_checkpoint
from kernel_embed.kernels.classes import FeatureKernel

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

    def __repr__(self):
        return "Counting()"


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


# --- data loaders -----------------------------------------------------------------------------------------------------


OBJECTIVE = ke.EmpiricalRisk(below="linear") + ke.RademacherComplexity("4e/n")


def embedding(p, network=None):
    network = network or nn.Sequential(nn.Linear(3, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 4))
    return ke.MulticlassEmbedding(FeatureKernel(network).double(), p.m, 0.1)


def loader(p, batch_size=10, seed=0, **settings):
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(TensorDataset(p.x, p.y), batch_size, shuffle=True, generator=generator, **settings)


class Failing(Dataset):
    """Raises when the row ``at`` has been asked for ``times`` times."""

    def __init__(self, p, at, times=1):
        self.p, self.at, self.left = p, at, times

    def __len__(self):
        return len(self.p.y)

    def __getitem__(self, i):
        if i == self.at:
            self.left -= 1
            if self.left < 0:
                raise OSError("disk on fire")
        return self.p.x[i], self.p.y[i]


class Stream(IterableDataset):
    """Rows without a length."""

    def __init__(self, p):
        self.p = p

    def __iter__(self):
        return iter(zip(self.p.x, self.p.y, strict=True))


def test_one_batch_of_everything_is_the_full_batch(problem):
    one = embedding(problem)
    other = copy.deepcopy(one)
    everything = DataLoader(TensorDataset(problem.x, problem.y), batch_size=24)
    by_loader = ke.fit(one, OBJECTIVE, everything, num_epochs=5, learning_rate=0.01)
    by_tensor = ke.fit(other, OBJECTIVE, problem.x, problem.y, optimizer=ke.Adam(5, 0.01))
    assert [r["value"] for r in by_loader.history] == pytest.approx([r["value"] for r in by_tensor.history], rel=1e-9)
    torch.testing.assert_close(state(one), state(other))


@pytest.mark.parametrize(
    "objective",
    [OBJECTIVE, ke.BatchValidationRisk(0.4, ke.RademacherComplexity(0.01), below="linear"), ke.LeaveOneOutRisk()],
    ids=["algorithm 1", "eq. 13", "leave one out"],
)
def test_learning_lowers_the_objective_on_batches(objective):
    p = make_problem(n=90)
    learned = embedding(p)
    result = ke.fit(learned, objective, loader(p, 30), num_epochs=25, learning_rate=0.02)
    assert result.value < result.history[0]["value"]
    assert result.num_evaluations == 75
    learned.eval()
    accuracy = (learned.condition(p.x, p.y).predict(p.x) == p.y).double().mean()
    assert accuracy > 0.5


def test_the_best_epoch_is_kept_with_its_running_statistics(problem):
    learned = embedding(problem)
    seen = []

    class Watching(ke.EmpiricalRisk):
        def evaluate(self, conditioned):
            seen.append({name: b.clone() for name, b in learned.named_buffers()})
            return super().evaluate(conditioned)

    result = ke.fit(learned, Watching(below="linear"), loader(problem, 12), num_epochs=6, learning_rate=0.5)
    best = min(range(6), key=lambda epoch: result.history[epoch]["value"])
    name = "kernel.feature_map.1.running_mean"
    torch.testing.assert_close(dict(learned.named_buffers())[name], seen[2 * best + 1][name])


def test_a_loader_that_raises_leaves_a_checkpoint_that_resumes(tmp_path, problem):
    start = embedding(problem)
    whole, again, last = (copy.deepcopy(start) for _ in range(3))
    settings = {"num_epochs": 5, "learning_rate": 0.02}

    def failing(times):
        generator = torch.Generator().manual_seed(0)
        return DataLoader(Failing(problem, 7, times), 10, shuffle=True, generator=generator)

    uninterrupted = ke.fit(whole, OBJECTIVE, failing(100), **settings)
    file = tmp_path / "fit.pt"
    with pytest.raises(OSError, match="disk on fire"):
        ke.fit(again, OBJECTIVE, failing(3), checkpoint=file, **settings)
    content = load_checkpoint(file)
    assert len(content["history"]) == 3
    assert all(w.grad is None for w in again.parameters())
    resumed = ke.fit(last, OBJECTIVE, failing(100), checkpoint=file, **settings)
    assert [r["value"] for r in resumed.history] == pytest.approx([r["value"] for r in uninterrupted.history], rel=1e-9)
    torch.testing.assert_close(state(last), state(whole))
    for one, other in zip(last.buffers(), whole.buffers(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_network_that_becomes_nan_leaves_the_best_point(tmp_path, problem):
    class Poisoned(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.calls = nn.Linear(3, 4), 0

        def forward(self, x):
            self.calls += 1
            return self.inner(x) * (float("nan") if self.calls > 7 else 1.0)

    learned = embedding(problem, Poisoned())
    with pytest.raises(NanError, match="Expected finite features"):
        ke.fit(learned, OBJECTIVE, loader(problem), num_epochs=9, learning_rate=0.02, checkpoint=tmp_path / "fit.pt")
    assert torch.isfinite(state(learned)).all()
    assert len(load_checkpoint(tmp_path / "fit.pt")["history"]) == 2


def test_batches_go_to_the_dtype_of_the_embedding(problem):
    p = make_problem(n=30, dtype=torch.float32)
    learned = embedding(p)
    ke.fit(learned, OBJECTIVE, loader(p), num_epochs=1)
    assert learned.regularization.dtype == torch.float64
    pixels = DataLoader(TensorDataset((p.x * 50 + 100).to(torch.uint8), p.y), 10)
    ke.fit(learned, OBJECTIVE, pixels, num_epochs=1, learning_rate=1e-4)


def test_a_batch_with_a_missing_class_is_a_batch():
    p = make_problem(n=30)
    order = p.y.argsort()
    sorted_rows = DataLoader(TensorDataset(p.x[order], p.y[order]), 10)  # one class in each batch
    result = ke.fit(embedding(p), OBJECTIVE, sorted_rows, num_epochs=2, learning_rate=0.01)
    assert result.num_evaluations == 6


def test_priors_need_a_length(problem):
    prior = gpytorch.priors.LogNormalPrior(0.0, 1.0)
    stream = DataLoader(Stream(problem), 8)
    plain = ke.MulticlassEmbedding(RBFKernel().double(), problem.m)
    assert ke.fit(plain, OBJECTIVE, stream, num_epochs=1).num_evaluations == 3
    weighed = ke.MulticlassEmbedding(RBFKernel(lengthscale_prior=prior).double(), problem.m)
    with pytest.raises(ValueError, match=r"the dataset of the loader has no length"):
        ke.fit(weighed, OBJECTIVE, stream, num_epochs=1)
    both = [
        ke.fit(copy.deepcopy(weighed), OBJECTIVE, data, y, optimizer=ke.Adam(1)).value
        for data, y in ((DataLoader(TensorDataset(problem.x, problem.y), 24), None), (problem.x, problem.y))
    ]
    assert both[0] == pytest.approx(both[1])


@pytest.mark.parametrize(
    "settings",
    [{"optimizer": ke.LBFGS()}, {"batch_size": 5}, {"optimizer": ke.Adam(batch_size=5)}, {"y": torch.zeros(24)}],
)
def test_a_loader_stands_alone(settings, problem):
    with pytest.raises(ValueError, match="loader"):
        ke.fit(embedding(problem), OBJECTIVE, loader(problem), **settings)


def test_what_is_no_pair_is_refused(problem):
    triple = DataLoader(TensorDataset(problem.x, problem.y, problem.y), 8)
    with pytest.raises(TypeError, match=r"must yield pairs \(x, y\) of tensors, not list"):
        ke.fit(embedding(problem), OBJECTIVE, triple, num_epochs=1)
    empty = DataLoader(TensorDataset(problem.x[:0], problem.y[:0]), 8)
    with pytest.raises(ValueError, match="yielded no batch"):
        ke.fit(embedding(problem), OBJECTIVE, empty, num_epochs=1)


def test_a_checkpoint_of_another_loader_is_refused(tmp_path, problem):
    ke.fit(embedding(problem), OBJECTIVE, loader(problem), num_epochs=1, checkpoint=tmp_path / "fit.pt")
    with pytest.raises(ValueError, match="belongs to another problem"):
        ke.fit(embedding(problem), OBJECTIVE, loader(problem, 12), num_epochs=1, checkpoint=tmp_path / "fit.pt")
