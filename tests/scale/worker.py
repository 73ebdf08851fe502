"""What one rank does; started by torchrun from the tests: ``worker.py TASK FILE``."""

import datetime
import os
import pathlib
import sys

import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
from torch import nn

import kernel_embed as ke
from kernel_embed.estimators import conditioning, default, distributed
from kernel_embed.estimators.member_models import LogisticPredictor
from kernel_embed.kernels.classes import FeatureKernel
from kernel_embed.scale import FeatureStatistics, ShardedEmbedding, accumulate, reduce_statistics
from tests.conftest import make_problem

OBJECTIVES = {
    "empirical": ke.EmpiricalRisk(below="linear") + ke.RademacherComplexity("4e/n"),
    "leave one out": ke.LeaveOneOutRisk() + ke.RademacherComplexity("e/sqrt(n)"),
    "calibrated": ke.CalibratedLeaveOneOutRisk(),
    "evidence": ke.ConditionalEvidence(),
}


def problem():
    return make_problem(n=61, d=3, m=3)


def embedding(seed: int = 0) -> ke.MulticlassEmbedding:
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4)).double()
    return ke.MulticlassEmbedding(FeatureKernel(network), 3, 0.05)


def gradient(module):
    return torch.cat([p.grad.reshape(-1) for p in module.parameters()])


def parameters(module):
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def steps(conditionable, module, x, y, reduce) -> dict[str, torch.Tensor]:
    """Value and gradient of every objective, then a fit by L-BFGS and one by Adam, and predictions."""
    found = {}
    for name, objective in OBJECTIVES.items():
        module.zero_grad()
        value = objective(conditionable, x, y)
        value.backward()
        reduce()
        found[f"{name}, value"], found[f"{name}, gradient"] = value.detach(), gradient(module)
    result = ke.fit(conditionable, OBJECTIVES["leave one out"], x, y, max_evaluations=12, early_stopping=False)
    found["lbfgs, value"] = torch.tensor(result.value)
    found["lbfgs, parameters"] = parameters(module)
    ke.fit(conditionable, OBJECTIVES["empirical"], x, y, optimizer=ke.Adam(4, 0.01), early_stopping=False)
    found["adam, parameters"] = parameters(module)
    with torch.no_grad():
        found["predictions"] = conditionable.condition(x, y).decision_probabilities(problem().query)
    return found


def compare(file: str) -> None:
    p, rank = problem(), dist.get_rank()
    mine = slice(0, 20) if rank == 0 else slice(20, 61)
    sharded = ShardedEmbedding(embedding(seed=rank))  # other weights on every rank: those of rank 0 count
    found = steps(sharded, sharded.module, p.x[mine], p.y[mine], sharded.reduce_gradients)

    module = sharded.module
    total = reduce_statistics(accumulate(module, p.x[mine], p.y[mine]))
    found["statistics"] = total.condition().decision_probabilities(p.query).detach()
    empty = FeatureStatistics(module) if rank == 1 else accumulate(module, p.x, p.y)
    found["empty shard"] = reduce_statistics(empty).condition().decision_probabilities(p.query).detach()

    # a checkpoint of some steps, resumed
    again = ShardedEmbedding(embedding())
    for epochs in (2, 5):
        ke.fit(
            again, OBJECTIVES["empirical"], p.x[mine], p.y[mine],
            num_epochs=epochs, learning_rate=0.01, checkpoint=f"{file}.checkpoint",
        )  # fmt: skip
    found["resumed"] = parameters(again.module)
    stop = {"num_epochs": 5, "callback": lambda p: rank == 0 and p.number == 2}  # the other rank would go on
    result = ke.fit(again, OBJECTIVES["empirical"], p.x[mine], p.y[mine], **stop)
    found["records until the leader stops"] = torch.tensor(len(result.history))

    refusals = []
    for x, y in ((p.x[mine][: 20 * (1 - rank)], p.y[mine][: 20 * (1 - rank)]), (p.x[mine] / (1 - rank), p.y[mine])):
        try:
            sharded.condition(x, y)
        except ValueError as error:
            refusals.append(str(error))
    try:
        reduce_statistics(accumulate(embedding(seed=rank), p.x, p.y))
    except ValueError as error:
        refusals.append(str(error))
    found["refusals"] = refusals
    torch.save(found, f"{file}.{rank}")


def table() -> tuple[pd.DataFrame, np.ndarray]:
    generator = np.random.default_rng(0)
    X = pd.DataFrame({"a": generator.standard_normal(300), "kind": generator.choice(["u", "v"], 300)})
    return X, np.where((X["a"] > 0) ^ (X["kind"] == "u"), "yes", "no")


def classifier(file: str) -> None:
    """The default classifier with all rows gathered, with a sample gathered, and with rows that one rank refuses."""
    (X, y), rank = table(), dist.get_rank()
    mine = slice(0, 120) if rank == 0 else slice(120, 300)
    learner = ke.MulticlassEmbeddingClassifier(random_state=0, distributed=True)
    found = {"gathered": torch.tensor(learner.fit(X[mine], y[mine]).predict_proba(X))}
    distributed.GATHERED, conditioning.EXACT, default.CROSS_FITTED = 150, 200, 200
    learner.fit(X[mine], y[mine])
    found["sampled"] = torch.tensor(learner.predict_proba(X))
    for k, member in enumerate(learner.conditioned_.members):
        (answers,) = member.predictors
        x = torch.tensor(learner.encoder_.transform(X))
        if isinstance(answers, LogisticPredictor):
            found["logits"], found["rows of logits"] = answers.mean(x), torch.tensor(answers.logits.num_data)
            found["validation rows"] = learner.conditioned_.left_out_rows
            continue
        labels = torch.tensor(np.searchsorted(learner.classes_, y))
        whole = FeatureStatistics(answers.embedding).update(x, labels).condition()
        found[f"values {k}"], found[f"of all rows {k}"] = answers.mean(x), whole.mean(x)
    try:
        learner.fit(X[mine], y[mine] if rank == 0 else y[:3])
    except ValueError as error:
        found["refusal"] = str(error)
    torch.save(found, f"{file}.{rank}")


def dying(file: str) -> None:
    p, rank = problem(), dist.get_rank()
    sharded = ShardedEmbedding(embedding())
    objective = OBJECTIVES["empirical"]
    ke.fit(sharded, objective, p.x, p.y, num_epochs=2, learning_rate=0.01, checkpoint=f"{file}.checkpoint")
    if rank == 1:
        pathlib.Path(f"{file}.dead").touch()
        os._exit(3)
    ke.fit(sharded, objective, p.x, p.y, num_epochs=9, learning_rate=0.01, checkpoint=f"{file}.checkpoint")


def endless(file: str) -> None:
    """Learn until somebody kills a rank; the file says when this one is at work."""
    p, rank = problem(), dist.get_rank()
    sharded = ShardedEmbedding(embedding())
    tell = pathlib.Path(f"{file}.{rank}").touch
    ke.fit(sharded, OBJECTIVES["empirical"], p.x, p.y, num_epochs=10**6, callback=lambda progress: tell())


if __name__ == "__main__":
    patience = datetime.timedelta(seconds=1800 if sys.argv[1] == "endless" else 20)
    dist.init_process_group("gloo", timeout=patience)
    tasks = {"compare": compare, "classifier": classifier, "dying": dying, "endless": endless}
    tasks[sys.argv[1]](sys.argv[2])
    dist.barrier()  # a rank that leaves first can abort the others
    dist.destroy_process_group()
    os._exit(0)  # all is done; threads of torch that still run can abort the interpreter while it shuts down
