"""Optimizers are values: ours, those of torch.optim, and one written outside the package."""

import dataclasses

import numpy as np
import pytest
import torch
from linear_operator.utils.errors import NanError

import kernel_embed as ke
from kernel_embed.lab.papers.hsu2018_uci import STARTS, iris_split, start
from kernel_embed.learning import LBFGS, Adam, Optimizer, Outcome, TorchOptimizer, Visit

from ..conftest import make_problem, rbf
from . import NotFinite, NotPSD, learn, state


@pytest.mark.parametrize(
    ("short", "optimizer"),
    [
        ({}, LBFGS()),
        ({"max_evaluations": 7, "num_restarts": 1}, LBFGS(7, num_restarts=1)),
        ({"tolerance": 1e-2}, LBFGS(tolerance=1e-2)),
        ({"num_epochs": 7}, Adam(7)),
        ({"num_epochs": 4, "learning_rate": 0.01, "batch_size": 8}, Adam(4, 0.01, 8)),
        ({"num_epochs": 6, "learning_rate": 0.05}, TorchOptimizer(lambda p: torch.optim.Adam(p, lr=0.05), 6)),
    ],
)
def test_short_options_are_the_optimizer_they_belong_to(short, optimizer, problem):
    one, by_short = learn(problem, **short)
    other, by_value = learn(problem, optimizer=optimizer)
    assert by_short.history == by_value.history
    assert (by_short.converged, by_short.message) == (by_value.converged, by_value.message)
    assert torch.equal(state(one), state(other))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LBFGS(max_evaluations=0), r"Expected max_evaluations of at least 1, got 0"),
        (lambda: LBFGS(tolerance=float("nan")), r"Expected tolerance of at least 0, got nan"),
        (lambda: LBFGS(num_restarts=-1), r"Expected num_restarts of at least 0, got -1"),
        (lambda: Adam(num_epochs=0), r"Expected num_epochs of at least 1, got 0"),
        (lambda: Adam(learning_rate=-0.1), r"Expected learning_rate of at least 0, got -0.1"),
        (lambda: TorchOptimizer(torch.optim.SGD, num_epochs=-1), r"Expected num_epochs of at least 1, got -1"),
    ],
)
def test_settings_are_checked_where_they_are_given(make, message):
    with pytest.raises(ValueError, match=message):
        make()


EITHER = " cannot be combined with optimizer"
REFUSED = [
    *[({"optimizer": optimizer, "batch_size": 5}, "batch_size" + EITHER) for optimizer in (LBFGS(), torch.optim.SGD)],
    *[({"optimizer": Adam(), name: 5}, name + EITHER) for name in ("max_evaluations", "batch_size", "learning_rate")],
    ({"num_restarts": 1, "batch_size": 8}, "Options of L-BFGS.*num_restarts.*batch_size, for Adam"),
    ({"optimizer": "adam"}, r"optimizer='adam' is not supported\. Pass LBFGS\(\).*torch\.optim\.SGD\(p, lr=0\.1\)"),
    ({"optimizer": LBFGS}, r"must be an instance, not a class\. Write optimizer=LBFGS\(\)"),
    ({"optimizer": torch.optim.SGD([torch.zeros(1)])}, "optimizer=SGD is not supported.*a factory that makes one"),
    ({"optimizer": lambda p: p}, "factory must return a torch.optim.Optimizer, not a list"),
]


@pytest.mark.parametrize(("how", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_no_optimizer_or_more_than_one_is_refused(how, message, problem):
    with pytest.raises((TypeError, ValueError), match=message):
        learn(problem, **how)


@pytest.mark.parametrize(
    "optimizer",
    [
        TorchOptimizer(lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.5), 30),
        TorchOptimizer(lambda p: torch.optim.RMSprop(p, lr=0.05), 10, batch_size=12),
        TorchOptimizer(lambda p: torch.optim.LBFGS(p, max_iter=5, line_search_fn="strong_wolfe"), 4),
        torch.optim.Adagrad,
        lambda p: torch.optim.AdamW(p, lr=0.05),
    ],
    ids=["sgd", "rmsprop in batches", "lbfgs with a closure", "a bare class", "a bare function"],
)
def test_any_torch_optimizer_learns(optimizer, problem):
    embedding, result = learn(problem, optimizer=optimizer)
    assert result.value < result.history[0]["value"]
    assert result.message.startswith("ran all")
    if getattr(optimizer, "batch_size", None) is None:
        assert ke.LeaveOneOutRisk()(embedding, problem.x, problem.y).item() == pytest.approx(result.value, rel=1e-12)


def test_a_step_that_ignores_its_closure_is_refused(problem):
    class Deaf(torch.optim.SGD):
        def step(self, closure=None):
            return super().step()

    with pytest.raises(TypeError, match=r"Deaf\.step\(closure\) did not call its closure"):
        learn(problem, optimizer=Deaf)


@dataclasses.dataclass(frozen=True)
class GradientDescent(Optimizer):
    """Steps against the gradient, longer after one that falls, halved where none does or there is no value."""

    num_steps: int = 25
    first_step: float = 4.0

    def minimize(self, problem):
        here, step = problem.evaluate(problem.best_point), float(problem.saved_state.get("step", self.first_step))
        lower, upper = np.array(
            [[-np.inf if a is None else a, np.inf if b is None else b] for a, b in problem.bounds]
        ).T
        for _ in range(self.num_steps):
            problem.record(here, state=lambda: {"step": step})  # noqa: B023 - called at once
            try:
                there = problem.evaluate(np.clip(here.point - step * here.gradient, lower, upper))
            except NanError:
                there = None
            if there is None or there.value >= here.value:
                step /= 2.0
            else:
                here, step = there, 1.5 * step
        problem.record(here, state=lambda: {"step": step})
        return Outcome(bool(np.abs(here.gradient).max() < 1e-2), f"made all {self.num_steps} steps")


def test_an_optimizer_of_ones_own_learns(problem):
    embedding, result = learn(problem, optimizer=GradientDescent())
    assert result.message == "made all 25 steps"
    assert result.value < result.history[0]["value"] - 1e-3
    assert result.num_evaluations == 26
    assert ke.LeaveOneOutRisk()(embedding, problem.x, problem.y).item() == pytest.approx(result.value, rel=1e-12)
    objective = ke.CalibratedLeaveOneOutRisk() + ke.RademacherComplexity("4e/n")  # has a minimum inside
    _, best = learn(problem, objective)
    _, own = learn(problem, objective, optimizer=GradientDescent(200))
    assert own.value == pytest.approx(best.value, abs=1e-3)


def test_an_optimizer_of_ones_own_has_everything_of_fit(problem, tmp_path):
    file, told = tmp_path / "fit.pt", []
    _, half = learn(problem, optimizer=GradientDescent(5), checkpoint=file, callback=told.append)
    assert [p.number for p in told] == [1, 2, 3, 4, 5, 6]
    _, whole = learn(problem, optimizer=GradientDescent(5), checkpoint=file)
    assert whole.history[:6] == half.history
    assert whole.value < half.value
    embedding, result = learn(problem, NotFinite([3, 4]), optimizer=GradientDescent())
    assert result.value < result.history[0]["value"]
    assert torch.isfinite(state(embedding)).all()
    with pytest.raises(NanError, match="at the starting parameters"):
        learn(problem, NotFinite([1]), optimizer=GradientDescent())


def test_the_state_of_another_optimizer_is_not_given_back(problem, tmp_path):
    file = tmp_path / "fit.pt"
    values = []
    for optimizer in (Adam(5), LBFGS(20), GradientDescent(3), TorchOptimizer(torch.optim.SGD, 3), Adam(3)):
        embedding, result = learn(problem, optimizer=optimizer, checkpoint=file)
        values.append(result.value)
        assert ke.LeaveOneOutRisk()(embedding, problem.x, problem.y).item() == pytest.approx(result.value, rel=1e-12)
    assert values == sorted(values, reverse=True)


def test_what_is_recorded_is_what_is_kept(problem):
    @dataclasses.dataclass(frozen=True)
    class Claiming(Optimizer):
        def minimize(self, task):
            task.record(Visit(task.start, 1.0, {"claim": 1.0}))
            task.record(Visit(task.start + 1.0, 0.5, {"claim": 0.5}), start=1)
            task.record(Visit(task.start - 1.0, 0.7, {"claim": 0.7}), start=2)
            return Outcome(True, "done")

    before = state(ke.MulticlassEmbedding(rbf(), problem.m))
    embedding, result = learn(problem, optimizer=Claiming())
    assert (result.value, result.terms, result.converged) == (0.5, {"claim": 0.5}, True)
    assert [record["start"] for record in result.history] == [0.0, 1.0, 2.0]
    torch.testing.assert_close(state(embedding), before + 1.0)


def test_the_problem_hands_out_copies(problem):
    @dataclasses.dataclass(frozen=True)
    class Vandal(Optimizer):
        def minimize(self, task):
            point = task.start
            found = task.evaluate(point)
            task.record(found)
            point += 7.0
            task.start[:] = 9.0
            task.best_point[:] = 9.0
            return Outcome(False, "out of spite")

    before = state(ke.MulticlassEmbedding(rbf(), problem.m))
    embedding, _ = learn(problem, optimizer=Vandal())
    assert torch.equal(state(embedding), before)


def test_what_minimize_returns_is_checked(problem):
    class Silent(Optimizer):
        def minimize(self, task):
            task.record(task.evaluate(task.start))

    with pytest.raises(TypeError, match=r"Silent.minimize must return an Outcome\(converged, message\), not NoneType"):
        learn(problem, optimizer=Silent())


def test_a_search_refused_at_its_start_writes_no_checkpoint(problem, tmp_path):
    with pytest.raises(Exception, match="Expected a positive definite"):
        learn(problem, NotPSD([1]), checkpoint=tmp_path / "fit.pt")
    assert not (tmp_path / "fit.pt").exists()


def test_mini_batches_of_ones_own(problem):
    """The other half of the contract: parameters in place, batch after batch."""

    @dataclasses.dataclass(frozen=True)
    class SignDescent(Optimizer):
        num_epochs: int = 8

        def minimize(self, task):
            for batches in map(task.batches(12, self.num_epochs).epoch, range(self.num_epochs)):
                values = []
                for batch in batches:
                    for parameter in task.parameters:
                        parameter.grad = None
                    values.append(task.backpropagate(batch)[0])
                    with torch.no_grad():
                        for parameter in task.parameters:
                            parameter -= 0.05 * parameter.grad.sign()
                    task.project()
                mean = sum(values) / len(values)
                task.record(Visit(task.snapshot().point, mean, {"risk": mean}))
            return Outcome(False, "done")

    large = make_problem(n=60)
    embedding, result = learn(large, optimizer=SignDescent())
    assert result.num_evaluations == 40
    assert result.value < result.history[0]["value"]
    assert problem.m == large.m
    assert all(p.grad is None for p in embedding.parameters())


@pytest.mark.parametrize("name", STARTS)
def test_where_lbfgs_says_it_converged_no_slope_is_left(name):
    """From far away a line search may step over a valley; the descent goes on from the lowest point it has seen."""
    x, y, _, _ = iris_split(seed=0)
    embedding, objective = start(name), ke.EmpiricalRisk() + ke.RademacherComplexity("e/sqrt(n)")
    result = ke.fit(embedding, objective, x, y, progress=False)
    assert result.converged
    objective(embedding, x, y).backward()
    assert max(float(p.grad.abs().max()) for p in embedding.parameters() if p.grad is not None) < 1e-3
    assert result.value == pytest.approx(0.87849, abs=1e-4)
