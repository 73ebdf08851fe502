"""Files: kills (``--kills 50`` is the long form), full disks and planted pickles."""

import contextlib
import functools
import io
import operator
import os
import pathlib
import pickle
import re
import subprocess
import sys

import gpytorch
import numpy as np
import pytest
import torch

import kernel_embed as ke
from kernel_embed.archive import load_checkpoint, save_checkpoint
from kernel_embed.files import write_whole
from kernel_embed.lab.compare.comparison import Settings, compare_tables
from kernel_embed.lab.compare.report import cache_path, read_cache
from kernel_embed.lab.compare.tables import read_user_table, table_of
from kernel_embed.lab.papers.hsu2018_pixels import draw as draw_pixels
from kernel_embed.results import Results

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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_searches_and_commands_resume_and_two_at_once_do_not_mix(tmp_path, pytestconfig):
    command = [sys.executable, "-m", "tests.killing", str(tmp_path), str(pytestconfig.getoption("--kills") or 0)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    print(f"so many kills met each at work: {done.stdout}")  # shown with -s
