"""Files: kills, full disks and planted pickles."""

import contextlib
import functools
import io
import json
import operator
import os
import pathlib
import pickle
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import gpytorch
import numpy as np
import pytest
import torch

import kernel_embed as ke
from kernel_embed import __version__
from kernel_embed.archive import load_checkpoint, save_checkpoint
from kernel_embed.files import write_whole
from kernel_embed.lab.compare.comparison import Settings, compare_tables
from kernel_embed.lab.compare.report import cache_path, read_cache
from kernel_embed.lab.compare.tables import read_user_table, table_of
from kernel_embed.lab.compare.tasks import CLASSIFICATION, calibration_error
from kernel_embed.lab.datasets import paper_folds
from kernel_embed.lab.papers.hsu2018_pixels import draw as draw_pixels
from kernel_embed.lab.runner import Case, Skip, finished, run_cases
from kernel_embed.results import Results, column, decimal, standard_error, table

from .conftest import make_problem

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture
def no_room():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_is_named_and_leaves_the_old_file(tmp_path: pathlib.Path, no_room) -> None:
    path = tmp_path / "file"
    write_whole(path, lambda file: file.write(b"old"))
    no_room()
    with pytest.raises(OSError, match=r"No space left to write .*file .*Free some"):
        write_whole(path, lambda file: file.write(b"new" * 1000))
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_parts_of_processes_that_are_gone_are_removed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "file"
    write = (
        "import sys, os; from kernel_embed.files import write_whole; write_whole(sys.argv[1], lambda f: os._exit(9))"
    )
    subprocess.run([sys.executable, "-c", write, str(path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    write_whole(path, lambda file: file.write(b"whole"))
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


class Bomb:
    """Unpickling it would leave a file behind."""

    def __init__(self, target: pathlib.Path) -> None:
        self.target = target

    def __reduce__(self):
        return pathlib.Path.touch, (self.target,)


def test_no_reader_runs_a_pickle(tmp_path: pathlib.Path) -> None:
    problem, target, path = make_problem(), tmp_path / "exploded", tmp_path / "planted"
    embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), problem.m)
    objective = ke.ConditionalEvidence()
    readers = [
        lambda: ke.load_posterior(path, embedding, objective),
        lambda: ke.fit(embedding, objective, problem.x, problem.y, checkpoint=path, max_evaluations=1),
        lambda: Results(path, ("name",)),
        lambda: ke.load(path),
        lambda: read_user_table(path),
    ]
    for reader in readers:
        for write in (_pickled, _saved_by_torch, _array, _archive):
            path.write_bytes(write(Bomb(target)))
            with pytest.raises(ValueError, match=str(path)):
                reader()
            assert not target.exists()


def test_no_command_runs_a_pickle(tmp_path: pathlib.Path) -> None:
    """A run that is resumed reads what lies in its directory: records, arrays of folds, pictures, lengthscales."""
    target, out = tmp_path / "exploded", tmp_path / "out"
    toy = table_of(np.random.RandomState(0).randn(40, 2), np.arange(40) % 2, "toy")
    (result,) = compare_tables([(toy, None)], Settings(("logistic",), folds=2), out, progress=False)
    study, record = result.comparison, result.records[0]
    (kept,) = {path.suffix for path in (out / "folds").iterdir()}
    assert kept == ".npz"
    drawn = cache_path(out, "a", [1])
    drawn.parent.mkdir()
    pixels = out / "pixels_svc_500.npz"
    readers = [
        *((path, lambda: study.arrays(record)) for path in (out / "folds").iterdir()),
        (drawn, lambda: read_cache(drawn)),
        (pixels, lambda: draw_pixels([{"method": "svc", "n": 500}], out)),
    ]
    for path, reader in readers:
        for write in (_pickled, _saved_by_torch, _array, _archive):
            path.write_bytes(write(Bomb(target)))
            with contextlib.suppress(ValueError):  # one of the two folds is not read
                reader()
            assert not target.exists()
    with pytest.raises(ValueError, match="is not a folds file"):
        study.arrays(record)


def test_every_reader_is_known() -> None:
    """Whoever reads a new kind of file finds this list, and adds it to the two tests above."""
    calls = re.compile(r"\b(torch\.load|np\.load|numpy\.load|joblib\.load|pickle\.loads?|read_pickle|shelve|marshal)\(")
    root = pathlib.Path(ke.__file__).parent
    found = {
        (str(path.relative_to(root)), call)
        for path in sorted(root.rglob("*.py"))
        for line in path.read_text().splitlines()
        for call in calls.findall(line)
        if "allow_pickle=False" not in line
    }
    assert found == {("testing/embedding.py", "pickle.loads")}  # of a pickle that it has just made


def _array(content: object) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([content], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def _archive(content: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, settings=np.array([content], dtype=object), truth=np.array([content], dtype=object))
    return buffer.getvalue()


def _pickled(content: object) -> bytes:
    return pickle.dumps(content, protocol=2)  # the one that torch.load takes without a word


def _saved_by_torch(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save({"best": content}, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("place", [("best",), ("best_value",), ("origin",), ("optimizer_state", "point")])
def test_a_checkpoint_with_nan_is_refused(tmp_path: pathlib.Path, place: tuple[str, ...]) -> None:
    problem, path = make_problem(), tmp_path / "checkpoint"
    embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), problem.m)
    ke.fit(embedding, ke.EmpiricalRisk(), problem.x, problem.y, checkpoint=path, max_evaluations=2)
    content = load_checkpoint(path)
    *holders, name = place
    holder = functools.reduce(operator.getitem, holders, content)
    holder[name] = holder[name] * float("nan")
    save_checkpoint(path, content)
    with pytest.raises(ValueError, match=r"contains NaN|not finite"):
        ke.fit(embedding, ke.EmpiricalRisk(), problem.x, problem.y, checkpoint=path, max_evaluations=2)


def test_a_link_stays_a_link_and_permissions_stay(tmp_path: pathlib.Path) -> None:
    target, link = tmp_path / "folder" / "real", tmp_path / "link"
    write_whole(target, lambda file: file.write(b"old"))
    target.chmod(0o600)
    link.symlink_to(target)
    write_whole(link, lambda file: file.write(b"new"))
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o600
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "later")
    write_whole(dangling, lambda file: file.write(b"made"))
    assert dangling.is_symlink()
    assert (tmp_path / "later").read_bytes() == b"made"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["dangling", "folder", "later", "link", "real"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_pipes_devices_and_directories_are_not_replaced(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to(os.devnull)
    for name in ("pipe", "null"):
        with pytest.raises(ValueError, match=f"{name} is a device, a pipe or a socket"):
            ke.save({}, tmp_path / name)
    with pytest.raises(IsADirectoryError, match="Add a file name"):
        ke.save({}, tmp_path)
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["null", "pipe"]


def test_a_directory_that_cannot_be_written_is_named_with_the_file(tmp_path: pathlib.Path, monkeypatch) -> None:
    path = tmp_path / "model.ke"

    def refuse(name: str, *_: object) -> int:
        raise PermissionError(13, "Permission denied", name)

    monkeypatch.setattr(os, "open", refuse)  # a test may run as root, for whom every directory can be written
    with pytest.raises(PermissionError, match=r"Cannot write .*/model\.ke: Permission denied") as caught:
        ke.save({}, path)
    assert ".part" not in str(caught.value)
    monkeypatch.undo()
    path.write_bytes(b"kept")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match=r"model\.ke: the file is read-only"):
        ke.save({}, path)
    assert path.read_bytes() == b"kept"


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root can write to every directory")
def test_a_directory_that_is_really_read_only_is_named_with_the_file(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    with pytest.raises(PermissionError, match=r"Cannot write .*/read-only/model\.ke: Permission denied") as caught:
        ke.save({}, folder / "model.ke")
    assert ".part" not in str(caught.value)


def test_real_obstacles_are_named_with_the_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"Cannot write .*/file/model\.ke"):
        ke.save({}, tmp_path / "file" / "model.ke")
    with pytest.raises(OSError, match="File name too long") as caught:
        ke.save({}, tmp_path / ("x" * 300))
    assert ".part" not in str(caught.value)
    longest = tmp_path / ("x" * 252 + ".ke")  # as long as a name can be: temporary files must not be longer
    assert ke.load(ke.save({"a": 1}, longest)) == {"a": 1}


def compare(out: pathlib.Path, *methods: str) -> subprocess.Popen:
    options = ["--no-report", "--folds", "3", "--all-rows", "--out", str(out), "--methods", *methods]
    command, environment = [sys.executable, "-m", "kernel_embed", "compare", *options], {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)


def records_in(out: pathlib.Path) -> list[dict[str, object]]:
    """Without what two runs do not share."""
    path, varying = out / "results.json", ("seconds", "megabytes", "checksum")
    records = json.loads(path.read_text()) if path.exists() else []  # raises where half a file was left
    return [{name: value for name, value in one.items() if not name.endswith(varying)} for one in records]


def test_a_killed_command_resumes_as_if_it_had_never_been_killed(tmp_path: pathlib.Path) -> None:
    """``kill -9`` when the first record is there, and a few records later."""
    out, methods, before = tmp_path / "killed", ("logistic", "median heuristic"), []
    for count in (1, 4):
        process = compare(out, *methods)
        while len(records_in(out)) < count and process.poll() is None:
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert records_in(out)[: len(before)] == before, "a record that was finished has changed or gone"
        before = records_in(out)
    assert [compare(folder, *methods).wait() for folder in (out, tmp_path / "whole")] == [0, 0]
    assert records_in(out)[: len(before)] == before
    assert sorted(map(str, records_in(out))) == sorted(map(str, records_in(tmp_path / "whole")))
    assert not list(out.glob(".results.json*.part"))


def test_two_commands_at_once_leave_each_record_once(tmp_path: pathlib.Path) -> None:
    runs = [compare(tmp_path, *methods) for methods in (["logistic"], ["logistic", "median heuristic"])]
    assert [run.wait() for run in runs] == [0, 0]
    names = [(record["dataset"], record["method"], record["fold"]) for record in records_in(tmp_path)]
    assert len(names) == len(set(names)) > 0
    assert {name for _, name, _ in names} == {"logistic", "median heuristic"}


# --- records of results -----------------------------------------------------------------------------------------------


def test_records_are_found_again(tmp_path):
    path = tmp_path / "deep" / "results.json"
    results = Results(path, ("name", "fold"))
    results.add({"name": "a", "fold": 0, "value": 1.5})
    again = Results(path, ("name", "fold"))
    assert not again.find({"name": "a", "fold": 1})
    (written,) = json.loads(path.read_text())
    assert written.pop("checksum")
    assert written == {"name": "a", "fold": 0, "value": 1.5, "version": __version__}
    assert again.find({"name": "a", "fold": 0})[0]["value"] == 1.5
    assert [p.name for p in path.parent.iterdir()] == ["results.json"], "no half-written file is left"


HOSTILE = {
    "text": "{not json",
    "no list": '{"a": 1}',
    "no records": "[1, 2]",
    "nested": '[{"name": {"a": 1}}]',
    "a list as a value": '[{"version": [1]}]',
    "deep": "[" * 200_000,
    "deep objects": '{"a":' * 200_000,
    "a name twice": '[{"name": "a", "name": "b"}]',
    "many digits": '[{"name": ' + "9" * 10_000 + "}]",
    "half": '[{"name": "a", "val',
    "not UTF-8": b"[\xff\xfe]",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_holds_no_records_is_refused_with_its_name(tmp_path, name):
    path, content = tmp_path / "results.json", HOSTILE[name]
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=r"results\.json is not (JSON|a list of records)"):
        Results(path, ("name",))


def test_a_changed_byte_of_a_record_is_found(tmp_path):
    path = tmp_path / "results.json"
    Results(path, ("name",)).extend([{"name": "a", "value": 1.5}, {"name": "b", "value": 2.5}])
    text = path.read_text()
    path.write_text(text.replace("2.5", "2.9"))
    with pytest.raises(ValueError, match=r"Record 1 of .*results\.json is damaged: its checksum"):
        Results(path, ("name",))
    path.write_text(text.replace('"checksum"', '"old"').replace("2.5", "2.9"))
    assert Results(path, ("name",)).records[1]["value"] == 2.9, "records of one's own have no checksum"


def test_the_file_is_json_for_every_tool_and_pipes_are_not_read(tmp_path):
    path = tmp_path / "results.json"
    Results(path, ("name",)).add({"name": "a", "value": float("nan"), "other": float("-inf")})
    assert json.loads(path.read_text(), parse_constant=pytest.fail)[0]["value"] is None
    assert np.isnan(column(Results(path, ("name",)).records, "value")).all()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ValueError, match="pipe is not a file"):
            Results(tmp_path / "pipe", ("name",))


def test_another_version_is_refused_and_an_interrupted_write_leaves_the_old_file(tmp_path):
    path, old = tmp_path / "results.json", '[{"name": "a", "version": "0.0.1"}]'
    path.write_text(old)
    with pytest.raises(ValueError, match=r"0\.0\.1.*another --out"):
        Results(path, ("name",))

    def interrupted(file):
        file.write("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(path, interrupted, "w")
    assert path.read_text() == old
    assert [p.name for p in tmp_path.iterdir()] == ["results.json"]


def test_runs_that_share_a_file_keep_each_others_records(tmp_path):
    path = tmp_path / "results.json"
    path.write_text("[]")

    def run(name):
        results = Results(path, ("name", "fold"))
        for fold in range(20):
            results.add({"name": name, "fold": fold})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, "abcd"))
    kept = {(record["name"], record["fold"]) for record in json.loads(path.read_text())}
    assert kept == {(name, fold) for name in "abcd" for fold in range(20)}
    assert len(json.loads(path.read_text())) == 80, "each once"


def test_table_aligns_columns():
    lines = table(["a", "b"], [["long", "1"], ["x", "22"]]).splitlines()
    assert lines == ["a      b", "----  --", "long   1", "x     22"]


def test_standard_and_calibration_errors_by_hand():
    values = np.array([1.0, 2.0, 4.0, 7.0])
    assert standard_error(values) == pytest.approx(np.std(values, ddof=1) / 2)
    assert standard_error(values[:1]) == 0.0
    confidence, correct = np.array([0.55, 0.65, 0.95, 0.95]), np.array([True, False, True, True])
    expected = (abs(0.55 - 1) + abs(0.65 - 0) + 2 * abs(0.95 - 1)) / 4
    assert calibration_error(confidence, correct) == pytest.approx(expected)


class _Constant:
    """Predicts class 'a' with probability 0.8, and has never seen class 'c'."""

    def fit(self, x, y):
        self.classes_ = np.array(["a", "b"])
        return self

    def predict(self, x):
        return np.full(len(x), "a")

    def predict_proba(self, x):
        return np.tile([0.8, 0.2], (len(x), 1))


def test_scores_of_classes_by_hand():
    x = np.zeros((4, 1))
    split = x, np.array(["a", "b", "a", "b"]), x[:3], np.array(["a", "b", "c"])
    record = CLASSIFICATION.measure(_Constant, split, np.array(["a", "b", "c"])).record
    assert record["accuracy"] == pytest.approx(1 / 3)
    assert record["nll"] == pytest.approx(-(np.log(0.8) + np.log(0.2) + np.log(1e-15)) / 3)
    assert record["brier"] == pytest.approx((0.04 + 0.04 + 2 * 0.64 + 0.64 + 0.04 + 1.0) / 3)


def test_paper_folds_scale_and_cover_every_row_once():
    x = np.arange(40.0).reshape(20, 2)
    x[:, 1] = 3.0
    folds = list(paper_folds(x, np.arange(20)))
    assert sorted(np.concatenate([y_test for *_, y_test in folds])) == list(range(20))
    for x_train, *_ in folds:
        assert x_train.min() >= 0.0
        assert x_train.max() <= 1.0
        assert (x_train[:, 1] == 0.0).all(), "a constant column becomes zero, not NaN"


@pytest.mark.parametrize("value", [1.0, -2.0, 54321.7, 999999.0, 0.05, -0.000123456, 99995.0, 1.5e-7, 3e12, 0.0, 1 / 3])
def test_numbers_for_readers_keep_four_digits(value):
    text = decimal(value)
    assert float(text.replace(",", "")) == float(f"{value:.4g}")
    assert ("e" in text) == (value != 0.0 and not 1e-4 <= abs(value) < 1e9)
    assert not text.endswith(".")


def power(base, exponent):
    if base == 0:
        raise ZeroDivisionError("no\nmore")
    return [{"exponent": e, "value": base**e} for e in range(exponent)]


def cases(bases, calls=None):
    def run(base):
        calls.append(base)
        return power(base, 2)

    return [Case({"base": base}, partial(power, base, 2) if calls is None else partial(run, base)) for base in bases]


def test_cases_with_records_are_not_run_again_and_failures_are_records(tmp_path):
    path, calls = tmp_path / "results.json", []
    outcome = run_cases(cases([2, 0, 3], calls), Results(path, ("base", "exponent")))
    assert outcome == ([], ["0: ZeroDivisionError: no"])
    before = path.read_bytes()
    results = Results(path, ("base", "exponent"))
    assert [r["value"] for r in finished(results.records)] == [1, 2, 1, 3]
    assert run_cases(iter(cases([3, 0, 2], calls)), results, total=3) == ([], [])
    assert calls == [2, 0, 3]
    assert path.read_bytes() == before


def test_other_exceptions_stop_a_run_and_keep_what_was_finished(tmp_path):
    path = tmp_path / "results.json"
    with pytest.raises(ZeroDivisionError):
        run_cases(cases([2, 0, 3]), Results(path, ("base",)), failures=(ValueError,))
    assert {r["base"] for r in json.loads(path.read_text())} == {2}


def test_jobs_give_the_records_of_one_process():
    one, two = Results(None, ("base",)), Results(None, ("base",))
    assert run_cases(cases([2, 0, 3]), one) == run_cases(cases([2, 0, 3]), two, jobs=2)
    assert one.records == two.records


def test_skipped_cases_and_those_after_the_time_run_next_time():
    def missing():
        raise Skip("not installed")

    results = Results(None, ("base",))
    assert run_cases([Case({"base": 1}, missing, label="one")], results).skipped == ["one: not installed"]
    run_cases(cases([2, 3]), results, seconds=0.0)
    assert {r["base"] for r in results.records} == {2}


def test_cases_that_another_run_finished_meanwhile_are_not_run(tmp_path):
    path, calls = tmp_path / "results.json", []
    results = Results(path, ("base", "exponent"))

    def during():
        run_cases(cases([2]), Results(path, ("base", "exponent")))
        return power(1, 2)

    run_cases([Case({"base": 1}, during), *cases([2, 3], calls)], results)
    assert calls == [3]
    assert [r["base"] for r in json.loads(path.read_text())] == [1, 1, 2, 2, 3, 3]
