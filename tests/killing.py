"""kill -9 at random moments: ``python -m tests.killing FOLDER KILLS``, from the tests and by hand; 0 for a few.

One process loads everything, then forks a child for each run, which is killed after a random while. What was finished
stays finished: records never change and never go. The last run is left alone, and ends as one that was never killed.
Prints how many kills met each command at work, and how many records two runs at once left, or raises.
"""

import contextlib
import functools
import json
import os
import pathlib
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence

import torch
from gpytorch.kernels import RBFKernel

import kernel_embed as ke
import kernel_embed.lab.compare.report
import kernel_embed.lab.papers
import kernel_embed.lab.studies
from kernel_embed.cli import main
from kernel_embed.files import write_whole
from kernel_embed.learning import problem

METHODS = ("logistic", "median heuristic")
COMPARE = ("compare", "--no-report", "--folds", "3", "--all-rows", "--methods")
VARYING = ("seconds", "megabytes", "checksum")
"""How fields of a record end that two runs do not share."""

Record = dict[str, object]


def run(out: pathlib.Path, arguments: Sequence[str]) -> int:
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        return main([*arguments, "--out", str(out)])


def search(out: pathlib.Path) -> int:
    """A fit with a checkpoint, and its result as a record."""
    x = torch.rand(60, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    embedding = ke.MulticlassEmbedding(RBFKernel(), 4)
    settings = {"batch_size": 20, "num_epochs": 60, "seed": 0, "progress": False, "checkpoint": out / "checkpoint"}
    result = ke.fit(embedding, ke.EmpiricalRisk(), x, (x.sum(-1) * 2).long(), **settings)
    record = {"value": result.value, "n": len(result.history), "lengthscale": embedding.kernel.lengthscale.item()}
    write_whole(out / "results.json", lambda file: json.dump([record], file), "w")
    return 0


TASKS: dict[str, tuple[Callable[[pathlib.Path], int], int]] = {
    "fit": (search, 50),
    "compare": (functools.partial(run, arguments=[*COMPARE, *METHODS]), 3),
    "reproduce": (functools.partial(run, arguments=["reproduce", "coverage", "--repetitions", "3"]), 3),
}
"""What is run, and how often it is killed unless told otherwise."""


def child(work: Callable[[], int]) -> int:
    """The number of a process that does ``work``."""
    number = os.fork()
    if number == 0:
        code = 1
        try:
            code = work()
        finally:
            os._exit(code)
    return number


def ended(number: int) -> int:
    """The exit code of a child."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def records(out: pathlib.Path) -> list[Record]:
    path = out / "results.json"
    return json.loads(path.read_text()) if path.exists() else []  # raises where half a file was left


def stable(record: Record) -> Record:
    return {key: value for key, value in record.items() if not key.endswith(VARYING)}


def kill(task: str, folder: pathlib.Path, kills: int, seed: int = 0) -> int:
    """Kill the run of a command ``kills`` times; how many of them were at work then."""
    work, out, whole = TASKS[task][0], folder / "killed", folder / "whole"
    started = time.monotonic()
    assert ended(child(lambda: work(whole))) == 0
    duration = time.monotonic() - started
    generator, met, before = random.Random(seed), 0, []
    for _ in range(kills):
        number = child(lambda: work(out))
        time.sleep(generator.uniform(0.0, duration * min(0.9, 4.0 / kills)))
        os.kill(number, signal.SIGKILL)
        met += ended(number) == -signal.SIGKILL
        after = records(out)
        assert after[: len(before)] == before, "a record that was finished has changed or gone"
        before = after
    assert ended(child(lambda: work(out))) == 0
    found, expected = records(out), records(whole)
    assert found[: len(before)] == before
    assert sorted(map(str, map(stable, found))) == sorted(map(str, map(stable, expected)))
    left = [path for path in out.rglob("*.part") if not _rewritten(path)]
    assert not left, left
    return met


def _rewritten(part: pathlib.Path) -> bool:
    """Whether a part belongs to a file that was never written again: of those nobody looks for what was left."""
    return not part.with_name(part.name[1:].split(".part")[0].rsplit(".", 1)[0]).exists()


def together(folder: pathlib.Path) -> int:
    """Two runs with other methods into one directory at once: every record of both, once."""
    numbers = [child(lambda m=methods: run(folder / "out", [*COMPARE, *m])) for methods in (METHODS[:1], METHODS)]
    assert [ended(number) for number in numbers] == [0, 0]
    names = [(r["dataset"], r["method"], r["fold"]) for r in records(folder / "out")]
    assert len(names) == len(set(names)) == 2 * len(METHODS) * 3, sorted(names)
    return len(names)


if __name__ == "__main__":
    torch.set_num_threads(1)
    problem.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    place, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    print({task: kill(task, place / task, number or TASKS[task][1]) for task in TASKS}, together(place / "together"))
