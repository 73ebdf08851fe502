"""Mini-batches from a DataLoader: the same as from tensors, resumable, and safe when the loader fails."""

import copy

import gpytorch
import pytest
import torch
from gpytorch.kernels import RBFKernel
from linear_operator.utils.errors import NanError
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import kernel_embed as ke
from kernel_embed.archive import load_checkpoint
from kernel_embed.kernels.classes import FeatureKernel

from ..conftest import make_problem
from . import state

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
