"""Files and commands."""

from __future__ import annotations

import contextlib
import io
import pathlib
import tempfile

import kernel_embed as ke
from kernel_embed.cli import main

from .entries import multiclass
from .inference import draws
from .inputs import Inputs, M


def damaged(i: Inputs, path: pathlib.Path) -> pathlib.Path:
    """The file as it is, or spoiled."""
    whole = path.read_bytes()
    if i.is_broken("settings"):
        path.write_bytes(i.pick("bytes", (whole, b"", whole[:50], whole[:-30], b"PK" + whole[2:40], b"pickle")))
    return path


def save_and_load(i: Inputs) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model"
        i.call(ke.save, i.call(ke.MulticlassEmbedding, i.kernel(), num_classes=M), path=path)
        return len(list(ke.load(damaged(i, path)).parameters()))  # NaN that was saved is loaded


def save_posterior(i: Inputs) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "posterior"
        i.call(draws().save, path=path)
        embedding = i.call(ke.MulticlassEmbedding, i.kernel(), num_classes=M)
        return list(ke.load_posterior(damaged(i, path), embedding, ke.ConditionalEvidence()).samples.values())


def load_posterior(i: Inputs) -> object:
    content = i.pick("content", (b"", b"PK\x03\x04", b"\x80\x04N.", b"{}", b"\x93NUMPY\x01\x00", None))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "posterior"
        if content is not None:
            path.write_bytes(content)
        return ke.load_posterior(i.setting("path", path), multiclass(i), ke.ConditionalEvidence())


def run(arguments: list[str]) -> None:
    """One line on the error stream and 2, argparse's own words and 2, or a table and 0."""
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream), contextlib.redirect_stdout(io.StringIO()):
        try:
            code = main(arguments)
        except SystemExit as left:  # argparse, which has said why
            if left.code != 2:
                raise AssertionError(f"left with {left.code}") from left
            return
    words = stream.getvalue().strip()
    assert (code == 0) == (words == ""), f"Expected words with code 2 and none with 0, got {code} and {words!r}."
    assert code in (0, 2)
    assert "\n" not in words, words


CELLS = ("1", "nan", "inf", "-1.7e308", "9e30", "", "?", "x" * 200, '"a,b"', "<b>", "é", "1e-320", "2020-01-01", "3,5")


def command_line(i: Inputs) -> object:
    """Whatever stands in the file."""
    odd, other = i.pick("odd", CELLS), i.pick("other", CELLS)
    label = i.pick("label", ("yes", "1", "9e30", "", "<script>", "0.5"))
    rows = [
        f"{odd if t == 3 else t % 7},{other if t % 5 == 0 else t * t % 11},{label if t % 2 else 'no'}"
        for t in range(24)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "table.csv"
        head = i.pick("head", ("a,b,target", "a,a,target", ",,", "a;b;target", "a,b", ""))
        path.write_text("\n".join([head, *rows, ""]), encoding="utf-8")
        arguments = ["compare", "--data", str(path), "--out", f"{folder}/out", "--folds", "2", "--no-report"]
        run([*arguments, "--methods", "logistic", "median heuristic"])


def settings_of_commands(i: Inputs) -> object:
    number = str(i.pick("number", (2, 0, -1, 1.5, "nan", "", 10**20, "x")))
    cell = i.pick("cell", ("0.5", "1e9", "-3", "1e-300", "7"))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "table.csv"
        cells = [f"{t % 7},{t * t % 11},{cell if t == 5 else t / 3}\n" for t in range(24)]
        path.write_text("a,b,target\n" + "".join(cells), encoding="utf-8")
        compare = ["compare", "--data", str(path), "--no-report", "--methods", "ridge", "--folds"]
        settings = [[name, number] for name in ("--seed", "--budget", "--task", "--target", "--drop")]
        commands = [
            *([*compare, number], *([*compare, "2", *setting] for setting in settings)),
            *([*compare, "2", "--test", f"{folder}/{number}"], ["reproduce", number]),
            *(["reproduce", "iris", "--quick", name, "-1"] for name in ("--folds", "--seed")),
            ["benchmark", "--parts", number],
            ["benchmark", "--parts", "classifier", "--quick", "--sizes", "0"],
        ]
        run([*i.pick("arguments", commands), "--out", f"{folder}/out"])
