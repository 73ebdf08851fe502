"""``fit``: what it minimizes, what it keeps, what it survives, and what it leaves alone."""

import dataclasses
import math
import subprocess
import sys

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval, Positive
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior, LogNormalPrior, NormalPrior
from linear_operator.utils.errors import NanError, NotPSDError
from scipy.optimize import minimize

import kernel_embed as ke
from kernel_embed.archive import load_checkpoint
from kernel_embed.learning import TorchOptimizer
from kernel_embed.learning.priors import prior_loss
from kernel_embed.learning.problem import NO_VALUE

from ..conftest import make_problem, named_kernels, rbf
from ..objectives import OBJECTIVES
from . import NotFinite, NotPSD, Raising, learn, state

LONG_STEPS = TorchOptimizer(lambda parameters: torch.optim.SGD(parameters, lr=5.0), 10)


@pytest.fixture
def embedding(problem):
    return ke.MulticlassEmbedding(rbf(), problem.m)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_objective_falls_and_the_embedding_holds_the_best_point(name, problem):
    objective = OBJECTIVES[name]()
    embedding, result = learn(problem, objective, max_evaluations=40)
    assert result.value < result.history[0]["value"]
    assert result.value == min(record["value"] for record in result.history)
    assert objective(embedding, problem.x, problem.y).item() == pytest.approx(result.value, rel=1e-12)
    assert result.num_evaluations == len(result.history)
    assert all(p.grad is None for p in embedding.parameters())
    assert result.seconds > 0
    assert result.message


def test_evidence_reaches_what_gpytorch_reaches(problem):
    """The same model as m independent exact Gaussian processes with noise nλ, learned by GPyTorch."""
    embedding = ke.MulticlassEmbedding(ScaleKernel(RBFKernel()).double(), problem.m)
    result = ke.fit(embedding, ke.ConditionalEvidence(), problem.x, problem.y, tolerance=1e-8, max_evaluations=500)
    Y = torch.nn.functional.one_hot(problem.y, problem.m).double()

    def value(theta):
        lengthscale, outputscale, noise = np.exp(theta)
        K = outputscale * np.exp(
            -0.5 * (np.linalg.norm(problem.x[:, None] - problem.x[None], axis=-1) / lengthscale) ** 2
        )
        covariance = torch.as_tensor(K + noise * np.eye(24))
        normal = gpytorch.distributions.MultivariateNormal(torch.zeros(24).double(), covariance)
        return -sum(normal.log_prob(Y[:, c]).item() for c in range(problem.m))

    best = minimize(value, np.log([0.7, 0.7, 0.24]), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8})
    assert result.value == pytest.approx(best.fun, rel=1e-5)
    assert result.fixed == ()


def test_history_holds_every_term(problem):
    kernel = RBFKernel(lengthscale_prior=GammaPrior(2.0, 2.0)).double()
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    objective = ke.LeaveOneOutRisk() + 0.5 * ke.RademacherComplexity("4e/n")
    result = ke.fit(embedding, objective, problem.x, problem.y, max_evaluations=10)
    names = {"LeaveOneOutRisk(epsilon=0.001)", "RademacherComplexity(rate='4e/n')", "priors"}
    for record in result.history:
        assert set(record) == names | {"start", "value"}
        assert sum(record[name] for name in names) == pytest.approx(record["value"], rel=1e-12)
    assert set(result.terms) == names
    assert sum(result.terms.values()) == pytest.approx(result.value, rel=1e-12)
    expected = 0.5 * ke.RademacherComplexity("4e/n")(embedding, problem.x, problem.y).item()
    assert result.terms["RademacherComplexity(rate='4e/n')"] == pytest.approx(expected)
    twice = ke.fit(
        embedding, ke.LeaveOneOutRisk() + 0.5 * ke.LeaveOneOutRisk(), problem.x, problem.y, max_evaluations=3
    )
    assert sum(twice.terms.values()) == pytest.approx(twice.value, rel=1e-9)  # two terms of one kind


def test_a_batch_of_embeddings_is_learned_at_once(problem):
    kernel = RBFKernel(batch_shape=torch.Size([2])).double()
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    embedding.kernel.lengthscale = torch.tensor([0.3, 2.0], dtype=torch.float64)[:, None, None]
    objective = ke.ConditionalEvidence()
    result = ke.fit(embedding, objective, problem.x, problem.y, tolerance=1e-8)
    values = objective(embedding, problem.x, problem.y)
    assert values.shape == (2,)
    assert values.sum().item() == pytest.approx(result.value)
    # convex enough here: both find the same optimum
    assert values[0].item() == pytest.approx(values[1].item(), rel=1e-4)


@pytest.mark.parametrize("options", [{}, {"transform": None, "initial_value": 0.6}], ids=["transformed", "bound"])
@pytest.mark.parametrize(
    "how", [{}, {"num_restarts": 2}, {"batch_size": 12, "num_epochs": 15}, {"optimizer": LONG_STEPS}]
)
def test_constraints_hold(options, how, problem):
    constraint = Interval(0.5, 0.8, **options)
    kernel = RBFKernel(lengthscale_constraint=constraint).double()
    embedding = ke.MulticlassEmbedding(kernel, problem.m, regularization_constraint=GreaterThan(1e-3))
    ke.fit(embedding, ke.EmpiricalRisk(), problem.x, problem.y, seed=0, **how)
    assert 0.5 <= kernel.lengthscale.item() <= 0.8
    assert embedding.regularization.item() >= 1e-3
    if options and not how:  # the objective wants less
        assert kernel.lengthscale.item() == pytest.approx(0.5)


@pytest.mark.parametrize("objective", [ke.CalibratedLeaveOneOutRisk(), ke.ConditionalEvidence()], ids=repr)
def test_map_minimises_objective_and_prior(objective, problem):
    """objective + (−log prior)/n for means over data, objective − log prior for sums."""
    kernel = RBFKernel(
        lengthscale_prior=LogNormalPrior(1.0, 0.2),
        lengthscale_constraint=Positive(transform=torch.exp, inv_transform=torch.log),
    ).double()
    prior = LogNormalPrior(-2.0, 0.3)
    embedding = ke.MulticlassEmbedding(kernel, problem.m, regularization_prior=prior).double()
    result = ke.fit(embedding, objective, problem.x, problem.y, tolerance=1e-9, max_evaluations=300)

    def value(theta):
        fixed = ke.MulticlassEmbedding(RBFKernel().double(), problem.m, float(np.exp(theta[1])))
        fixed.kernel.lengthscale = torch.tensor(np.exp(theta[0]))
        log_prior = sum(
            -0.5 * ((t - mean) / scale) ** 2 - t - math.log(scale) - 0.5 * math.log(2 * math.pi)
            for t, mean, scale in [(theta[0], 1.0, 0.2), (theta[1], -2.0, 0.3)]
        )
        with torch.no_grad():
            q = objective(fixed, problem.x, problem.y).item()
        return q - (log_prior / 24 if objective.per_datum else log_prior)

    best = minimize(value, np.array([0.5, -2.0]), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-10})
    assert result.value == pytest.approx(best.fun, rel=1e-6)
    assert math.log(kernel.lengthscale.item()) == pytest.approx(best.x[0], abs=1e-3)
    assert math.log(embedding.regularization.item()) == pytest.approx(best.x[1], abs=2e-3)


@pytest.mark.parametrize("objective", [ke.LeaveOneOutRisk(), ke.ConditionalEvidence()], ids=repr)
def test_priors_weigh_the_same_in_mini_batches(objective):
    """A prior belongs to all n data: q + prior/n, whatever the batch; a batch's sum estimates its share of it."""
    problem = make_problem(n=40)
    kernel = RBFKernel(lengthscale_prior=NormalPrior(1.0, 0.1)).double()
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    prior = -kernel.lengthscale_prior.log_prob(kernel.lengthscale).item()
    result = ke.fit(
        embedding, objective, problem.x, problem.y, batch_size=10, num_epochs=1, learning_rate=1e-12, seed=0
    )
    share = 1 / 40 if objective.per_datum else 10 / 40
    assert result.history[0]["priors"] == pytest.approx(prior * share, rel=1e-6)


@pytest.mark.parametrize("bound", [None, 1.0])
def test_a_lone_outputscale_is_held_and_reported(bound, problem):
    """With α given and σ_f² free, r = α‖W‖ would fall to zero as σ_f² grows, and the bound with it would be false."""
    embedding = ke.MulticlassEmbedding(ScaleKernel(rbf()).double(), problem.m, sup_diagonal=bound)
    before = embedding.kernel.outputscale.item()
    result = ke.fit(embedding, ke.LeaveOneOutRisk() + ke.RademacherComplexity("4e/n"), problem.x, problem.y)
    assert result.fixed == ("kernel.raw_outputscale",)
    assert embedding.kernel.outputscale.item() == before
    assert embedding.kernel.raw_outputscale.requires_grad


def identified_cases():
    with_prior = ScaleKernel(rbf(), outputscale_prior=GammaPrior(2.0, 1.0)).double()
    return {
        "evidence": (ScaleKernel(rbf()).double(), ke.ConditionalEvidence()),
        "a sum": (named_kernels()["sum"], ke.LeaveOneOutRisk()),
        "a prior": (with_prior, ke.LeaveOneOutRisk()),
    }


@pytest.mark.parametrize("case", identified_cases())
def test_an_outputscale_that_is_identified_is_learned(case, problem):
    kernel, objective = identified_cases()[case]
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    before = {n: p.detach().clone() for n, p in embedding.named_parameters() if "outputscale" in n}
    result = ke.fit(embedding, objective, problem.x, problem.y, max_evaluations=10)
    assert result.fixed == ()
    assert before
    assert all(not torch.equal(dict(embedding.named_parameters())[n], value) for n, value in before.items())


def test_a_search_that_runs_into_a_given_bound_turns_back(problem):
    kernel = gpytorch.kernels.LinearKernel().double()
    highest = kernel(problem.x, diag=True).amax().item()
    embedding = ke.MulticlassEmbedding(kernel, problem.m, sup_diagonal=1.5 * highest)
    ke.fit(embedding, ke.EmpiricalRisk() + ke.RademacherComplexity("4e/n"), problem.x, problem.y)
    assert kernel(problem.x, diag=True).amax().item() <= 1.5 * highest * (1 + 1e-6)


def test_the_outputscale_is_learned_where_the_regularization_is_held(problem):
    embedding = ke.MulticlassEmbedding(ScaleKernel(rbf()).double(), problem.m)
    embedding.raw_regularization.requires_grad_(False)
    before = embedding.regularization.item()
    result = ke.fit(embedding, ke.LeaveOneOutRisk(), problem.x, problem.y, max_evaluations=10)
    assert result.fixed == ()
    assert embedding.regularization.item() == before


def test_restarts_are_counted_and_never_worse(problem):
    one = learn(problem, ke.LeaveOneOutRisk(), max_evaluations=30)[1]
    embedding = ke.MulticlassEmbedding(rbf(), 3)
    many = ke.fit(embedding, ke.LeaveOneOutRisk(), problem.x, problem.y, max_evaluations=30, num_restarts=3, seed=1)
    assert {record["start"] for record in many.history} == {0.0, 1.0, 2.0, 3.0}
    assert many.value <= one.value
    assert ke.LeaveOneOutRisk()(embedding, problem.x, problem.y).item() == pytest.approx(many.value)


def test_converged_and_message_are_those_of_the_best_start(problem):
    """The restart is refused at its first point; that must not count as convergence of the first start."""
    objective = NotPSD(range(4, 1000))
    result = ke.fit(
        ke.MulticlassEmbedding(rbf(), 3), objective, problem.x, problem.y, max_evaluations=3, num_restarts=1, seed=0
    )
    assert not result.converged


@pytest.mark.parametrize(("n", "batch_size"), [(24, 6), (25, 10), (24, 20)])
def test_an_epoch_sees_every_row_once_in_batches_of_at_most_the_size_asked_for(n, batch_size):
    problem, batches = make_problem(n=n), []

    class Rows(ke.LeaveOneOutRisk):
        def evaluate(self, conditioned):
            batches.append(conditioned.x[:, 0].tolist())
            return super().evaluate(conditioned)

    embedding = ke.MulticlassEmbedding(rbf(), 3)
    ke.fit(embedding, Rows(), problem.x, problem.y, batch_size=batch_size, num_epochs=2, seed=0)
    rows = [row for batch in batches for row in batch]
    assert max(map(len, batches)) <= batch_size
    assert sorted(rows[:n]) == sorted(rows[n:]) == sorted(problem.x[:, 0].tolist())
    assert rows[:n] != rows[n:]


def test_adam_stops_with_an_explanation_at_nan(problem):
    embedding = ke.MulticlassEmbedding(rbf(), 3)
    with pytest.raises(NanError, match=r"objective is nan in epoch 2.*learning_rate"):
        ke.fit(embedding, NotFinite([3]), problem.x, problem.y, optimizer=ke.Adam(5))
    assert torch.isfinite(state(embedding)).all()


@pytest.mark.parametrize("how", [{}, {"num_epochs": 20}, {"batch_size": 12, "num_epochs": 20}])
def test_interruption_keeps_the_best_so_far(how, problem):
    embedding, result = learn(problem, Raising(KeyboardInterrupt(), [6]), **how)
    assert not result.converged
    assert "interrupted" in result.message
    assert result.value == min(record["value"] for record in result.history)
    if "batch_size" not in how:
        assert len(result.history) == 5
        assert ke.LeaveOneOutRisk()(embedding, problem.x, problem.y).item() == pytest.approx(result.value, rel=1e-12)
    assert all(p.grad is None for p in embedding.parameters())


def test_interruption_before_the_first_evaluation(problem):
    embedding = ke.MulticlassEmbedding(rbf(), problem.m)
    before = state(embedding)
    result = ke.fit(embedding, Raising(KeyboardInterrupt(), [1]), problem.x, problem.y)
    assert torch.equal(state(embedding), before)
    assert result.history == []
    assert result.terms == {}
    assert not result.converged


@pytest.mark.parametrize("kind", [NotPSD, NotFinite])
@pytest.mark.parametrize("at", [[2], [3, 4], [5, 7, 9]])
def test_refused_points_in_a_line_search_are_survived(kind, at, problem):
    embedding, result = learn(problem, kind(at), max_evaluations=60)
    assert result.value < result.history[0]["value"]
    assert math.isfinite(result.value)
    assert ke.LeaveOneOutRisk()(embedding, problem.x, problem.y).item() == pytest.approx(result.value, rel=1e-12)


def test_a_step_out_of_the_support_of_a_prior_is_refused(problem):
    """A step so long that exp underflows to 0, which LogNormal refuses with a ValueError, is one to turn back from."""
    constraint = GreaterThan(0.0, transform=torch.exp, inv_transform=torch.log)
    kernel = RBFKernel(lengthscale_prior=LogNormalPrior(0.0, 1.0), lengthscale_constraint=constraint)
    assert prior_loss(kernel) is not None
    kernel.raw_lengthscale.data.fill_(-1e4)
    with pytest.raises(NO_VALUE, match=r"LogNormalPrior, does not allow values from 0 to 0\. Set"):
        prior_loss(kernel)


def test_a_start_that_does_not_exist_is_an_error(embedding, problem):
    before = state(embedding)
    with pytest.raises(NotPSDError, match="Expected a positive definite"):
        ke.fit(embedding, NotPSD([1]), problem.x, problem.y)
    with pytest.raises(NanError, match=r"not finite at the starting parameters; its value is nan"):
        ke.fit(embedding, NotFinite([1]), problem.x, problem.y)
    assert torch.equal(state(embedding), before)


def test_other_errors_pass_and_leave_the_best_point(embedding, problem):
    with pytest.raises(ZeroDivisionError):
        ke.fit(embedding, Raising(ZeroDivisionError(), [8]), problem.x, problem.y)
    start = ke.LeaveOneOutRisk()(ke.MulticlassEmbedding(rbf(), problem.m), problem.x, problem.y)
    assert ke.LeaveOneOutRisk()(embedding, problem.x, problem.y) < start


def test_arguments_are_checked(embedding, problem):
    data = (embedding, ke.LeaveOneOutRisk(), problem.x, problem.y)
    with pytest.raises(TypeError, match=r"objective must be one such as EmpiricalRisk\(\), not str"):
        ke.fit(embedding, "loo", problem.x, problem.y)
    for size in (1, 25):
        with pytest.raises(ValueError, match=rf"batch_size must be from 2 to 24, the number of rows of x, not {size}"):
            ke.fit(*data, batch_size=size)
    embedding.requires_grad_(False)
    with pytest.raises(ValueError, match=r"has no parameters that require a gradient"):
        ke.fit(*data)


SCRIPT = """
import torch, gpytorch, linear_operator, sklearn
def settings():
    return torch.get_default_dtype(), torch.get_num_threads(), torch.get_rng_state().tolist(), torch.is_grad_enabled()
before = settings()
import kernel_embed as ke
assert settings() == before, "importing kernel_embed changed a setting"
x = torch.linspace(0, 1, 30, dtype=torch.float64)[:, None]
y = (x[:, 0] > 0.5).long()
for how in ({}, dict(batch_size=10, num_epochs=3)):
    ke.fit(ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), 2), ke.LeaveOneOutRisk(), x, y, **how)
ke.MulticlassEmbeddingClassifier(max_evaluations=5).fit(x.numpy(), y.numpy()).predict(x.numpy())
"""


def test_importing_changes_nothing_and_nothing_is_printed_in_a_pipe():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_progress_bar_is_shown_on_request(embedding, problem, capsys):
    ke.fit(embedding, ke.LeaveOneOutRisk(), problem.x, problem.y, max_evaluations=5, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "fit" in shown.err


@pytest.mark.parametrize(
    ("seed", "error"), [(2**64, ValueError), (-1, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_what_is_no_seed(seed, error, problem):
    embedding = ke.MulticlassEmbedding(rbf(), 3)
    for ask in (
        lambda: ke.fit(embedding, ke.EmpiricalRisk(), problem.x, problem.y, seed=seed),
        lambda: ke.sample_posterior(embedding, ke.ConditionalEvidence(), problem.x, problem.y, seed=seed),
        lambda: ke.CrossValidationRisk(seed=seed),
        lambda: ke.BatchValidationRisk(seed=seed),
        lambda: ke.EmbeddingEvidence(seed=seed),
    ):
        with pytest.raises(error, match=rf"Expected seed .* got {seed}\."):
            ask()


# --- the callback -----------------------------------------------------------------------------------------------------


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
