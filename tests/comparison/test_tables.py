"""Any table is read, and what cannot be used is refused in words."""

from __future__ import annotations

import numpy as np
import pytest

from kernel_embed.comparison.tables import like, read_user_table


def write(path, text):
    path.write_text(text)
    return path


def rows(labels, extra=""):
    return "".join(f"{i},{i * i % 7},{label}\n" for i, label in enumerate(labels)) + extra


LABELS = ["yes", "no"] * 6


def test_text_labels_and_the_last_column(tmp_path):
    table = read_user_table(write(tmp_path / "a.csv", "u,v,w\n" + rows(LABELS)))
    assert table.features == ("u", "v")
    assert table.x.shape == (12, 2)
    assert set(table.y) == {"yes", "no"}
    assert table.notes == ()


def test_a_column_called_target_and_whole_numbers(tmp_path):
    text = "target;u\n" + "".join(f"{i % 2}.0;{i}\n" for i in range(12))
    table = read_user_table(write(tmp_path / "a.csv", text))
    assert table.features == ("u",)
    assert set(table.y.tolist()) == {0, 1}


def test_missing_cells_are_told(tmp_path):
    table = read_user_table(write(tmp_path / "a.csv", "u,v,w\n" + rows(LABELS, "1,?,yes\n2,,no\n3,4,\ninf,1,no\n")))
    assert len(table.y) == 12
    assert table.notes == (
        "3 of 16 rows left out: no finite number in u, v",
        "1 of 16 rows left out: no label in w",
    )


@pytest.mark.parametrize("suffix", [".parquet", ".pq"])
def test_parquet_is_the_same_table(tmp_path, suffix):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    csv = write(tmp_path / "a.csv", "u,v,w\n" + rows(LABELS, "1,,yes\n"))
    pandas.read_csv(csv).to_parquet(tmp_path / f"a{suffix}")
    one, two = read_user_table(csv), read_user_table(tmp_path / f"a{suffix}")
    assert one.fingerprint == two.fingerprint
    assert one.notes == two.notes


def test_the_fingerprint_sees_one_cell(tmp_path):
    one = read_user_table(write(tmp_path / "a.csv", "u,v,w\n" + rows(LABELS)))
    two = read_user_table(write(tmp_path / "b.csv", "u,v,w\n" + rows(["no", *LABELS[1:]])))
    assert one.fingerprint != two.fingerprint


def test_quoted_cells_and_a_mark_of_byte_order(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeff"u,1",w\n'.encode() + "".join(f'"{i}","a\nb{i % 2}"\n' for i in range(12)).encode())
    table = read_user_table(path)
    assert table.features == ("u,1",)
    assert set(table.y) == {"a\nb0", "a\nb1"}


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        ("u,v,w\n" + rows(LABELS), "z", "Expected a column 'z'.*u, v, w"),
        ("u,v,w\n" + rows(["yes"] * 12), None, "two classes.*got one: yes"),
        ("u,v,w\n" + rows(range(12)), None, "12 of them in 12 rows"),
        ("u,v,w\n" + rows(LABELS), "u", "Expected numbers in the column 'w'.*'yes'"),
        ("u,v,w\n1,2\n", None, "Expected 3 cells in every row.*got 2 in row 2"),
        ("u,u,w\n" + rows(LABELS), None, "different column names.*u more than once"),
        ("u,v,w\n", None, "a header and rows"),
        ("w\n" + "a\nb\n" * 6, None, "columns beside the target"),
        ("u,v,w\n" + rows(["a", "b"]), None, "at least 10 complete rows.*got 2"),
    ],
)
def test_bad_tables_are_refused_in_words(tmp_path, text, target, words):
    with pytest.raises(ValueError, match=words):
        read_user_table(write(tmp_path / "a.csv", text), target)


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00\x01" * 10)
    with pytest.raises(ValueError, match="UTF-8"):
        read_user_table(tmp_path / "a.csv")
    (tmp_path / "a.parquet").write_bytes(b"not parquet")
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="Expected a Parquet file"):
        read_user_table(tmp_path / "a.parquet")
    with pytest.raises(FileNotFoundError, match="not a file"):
        read_user_table(tmp_path / "none.csv")


def test_a_test_table_is_brought_into_the_same_order(tmp_path):
    train = read_user_table(write(tmp_path / "a.csv", "u,v,target\n" + rows(LABELS)))
    text = "v,u,target\n" + "".join(f"{i * i % 7},{i},{label}\n" for i, label in enumerate(LABELS))
    test = like(read_user_table(write(tmp_path / "b.csv", text)), train)
    np.testing.assert_array_equal(test.x, train.x)
    with pytest.raises(ValueError, match="got also perhaps"):
        like(test._replace(y=np.array([*LABELS[:-1], "perhaps"])), train)
    with pytest.raises(ValueError, match="difference in u, z"):
        like(test._replace(features=("z", "v")), train)
