"""Data sets come from the named directory, or an error says where they were looked for."""

from __future__ import annotations

import os

import numpy as np
import pytest

from kernel_embed.lab.compare.reading import ENVIRONMENT_VARIABLE, load_table


def test_csv_with_a_missing_cell(tmp_path):
    (tmp_path / "toy.csv").write_text("a,b,target\n1,2,x\n3,,y\n5,6,x\n")
    x, y = load_table("toy", tmp_path)
    np.testing.assert_array_equal(x, [[1.0, 2.0], [5.0, 6.0]])
    assert list(y) == ["x", "x"]


def test_an_unknown_name_lists_the_known_ones(tmp_path):
    (tmp_path / "toy.csv").write_text("a,target\n1,x\n")
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv.*Data sets there: toy"):
        load_table("nothing", tmp_path)


@pytest.mark.parametrize("name", ["../secret", "a/b", "/etc/passwd", "..\\secret", "", ".."])
def test_a_name_does_not_leave_its_directory(name, tmp_path):
    (tmp_path / "secret.csv").write_text("a,target\n1,x\n")
    (tmp_path / "inner").mkdir()
    with pytest.raises((ValueError, FileNotFoundError), match=r"not the name of a data set|File not found"):
        load_table(name, tmp_path / "inner")


def test_without_a_directory_an_unknown_name_says_how_to_give_one(monkeypatch):
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    with pytest.raises(ValueError, match=ENVIRONMENT_VARIABLE):
        load_table("no such data")


@pytest.mark.data
@pytest.mark.skipif(ENVIRONMENT_VARIABLE not in os.environ, reason=f"{ENVIRONMENT_VARIABLE} is not set")
@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [("wine", (178, 13), 3), ("ecoli", (336, 7), 8), ("yeast", (1484, 8), 10), ("breastcancer", (683, 9), 2)],
)
def test_the_papers_data(name, shape, classes):
    x, y = load_table(name)
    assert x.shape == shape
    assert len(np.unique(y)) == classes
