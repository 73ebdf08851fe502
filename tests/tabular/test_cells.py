"""Cells and labels of every type: the estimators and the comparison read them alike, through one encoder."""

from __future__ import annotations

import datetime as dt
import decimal
import uuid

import numpy as np
import pandas as pd
import pytest

import kernel_embed as ke
from kernel_embed.lab.compare.tables import read_user_table, table_of
from kernel_embed.tabular import TableEncoder

N = 40
U = np.random.default_rng(0).normal(size=N)
LABELS = np.where(U > 0, "yes", "no")
NUMBERS = (7 * np.arange(N)) % 24


def date(i):
    return dt.date(2024, 1, 1) + dt.timedelta(days=int(i))


ARROW = {
    "time32": ("time32('s')", [dt.time(int(i), 30) for i in NUMBERS], ["c"]),
    "time64": ("time64('us')", [dt.time(int(i), 30) for i in NUMBERS], ["c"]),
    "duration": ("duration('s')", [dt.timedelta(hours=int(i)) for i in NUMBERS], ["c"]),
    "date32": ("date32()", list(map(date, NUMBERS)), ["c", "c in year, sine"]),
    "date64": ("date64()", list(map(date, NUMBERS)), ["c", "c in year, sine"]),
    "zoned": ("timestamp('us', 'Asia/Tokyo')", [dt.datetime(2024, 1, 1 + int(i)) for i in NUMBERS], ["c"]),
    "dictionary": ("dictionary(pyarrow.int8(), pyarrow.string())", list("abc" * 13 + "a"), ["c=a", "c=b", "c=c"]),
    "missing text": ("dictionary(pyarrow.int8(), pyarrow.string())", [None, *"abc" * 13], ["c=(missing)", "c=a"]),
    "decimal": ("decimal128(10, 3)", [decimal.Decimal(int(i)) / 8 for i in NUMBERS], ["c"]),
    "missing number": ("int64()", [None, *map(int, NUMBERS[1:])], ["c", "c is missing"]),
    "missing boolean": ("bool_()", [None, *(bool(i % 2) for i in range(1, N))], ["c", "c is missing"]),
}
SEVERAL = {
    "list": ("list_(pyarrow.float64())", [[1.0, 2.0]] * N),
    "struct": ("struct({'a': pyarrow.int64()})", [{"a": 1}] * N),
    "map": ("map_(pyarrow.string(), pyarrow.int64())", [[("k", 1)]] * N),
}


@pytest.fixture
def parquet(tmp_path):
    """Writes u, a column c and the target; returns pyarrow's table, two data frames, and the path."""
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    from pyarrow import parquet

    def write(kind, cells):
        column = pyarrow.array(cells, eval(f"pyarrow.{kind}", {"pyarrow": pyarrow}))
        table = pyarrow.table({"u": U, "c": column, "target": LABELS})
        parquet.write_table(table, tmp_path / "a.parquet")
        features = table.select(["u", "c"])
        return features, features.to_pandas(), features.to_pandas(types_mapper=pd.ArrowDtype), tmp_path / "a.parquet"

    return write


@pytest.mark.parametrize("name", ARROW)
def test_parquet_columns_are_the_same_numbers_everywhere(name, parquet):
    kind, cells, names = ARROW[name]
    *tables, path = parquet(kind, cells)
    expected = TableEncoder().fit(tables[0])
    assert set(names) <= set(expected.get_feature_names_out())
    numbers = expected.transform(tables[0])
    read = [read_user_table(path).x, table_of(tables[2], LABELS).x]
    for table in (*tables[1:], *read):
        np.testing.assert_allclose(TableEncoder().fit_transform(table), numbers, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("name", SEVERAL)
def test_several_values_in_a_cell_are_refused_by_the_name_of_the_column(name, parquet):
    *tables, path = parquet(*SEVERAL[name])
    for table in tables:
        with pytest.raises(ValueError, match=r"Column 'c' has several values in a cell .*drop the column"):
            ke.MulticlassEmbeddingClassifier(progress=False).fit(table, LABELS)
    with pytest.raises(ValueError, match="Column 'c' has several values in a cell"):
        read_user_table(path)
    assert read_user_table(path, drop=["c"]).features == ("u",)


def test_a_table_of_pyarrow_is_a_table(parquet):
    table, frame, *_ = parquet("dictionary(pyarrow.int8(), pyarrow.string())", list("abc" * 13 + "a"))
    models = [ke.MulticlassEmbeddingClassifier(progress=False).fit(X, LABELS) for X in (table, frame)]
    np.testing.assert_array_equal(models[0].predict_proba(table), models[1].predict_proba(frame))
    assert models[0].feature_names_in_.tolist() == ["u", "c"]
    numbers = ke.ConditionalEmbeddingRegressor(progress=False, random_state=0).fit(table, U)
    assert numbers.predict(table).shape == (N,)


@pytest.mark.parametrize("cell", [10**400, -(10**400), float("inf")])
def test_a_number_beyond_floats_is_infinite(cell):
    frame = pd.DataFrame({"u": U, "c": pd.Series([cell, *map(int, NUMBERS[1:])], dtype=object)})
    with pytest.raises(ValueError, match="infinity, in row 0 of column 'c'"):
        ke.MulticlassEmbeddingClassifier(progress=False).fit(frame, LABELS)
    assert "beyond 1e150, treated as missing: c" in table_of(frame, LABELS).notes[0]
    targets = [cell, *U[1:]]
    with pytest.raises(ValueError, match="infinite in some rows"):
        table_of(frame[["u"]], targets, task="regression")
    with pytest.raises(ValueError, match=r"beyond the range of float64|Input y contains infinity"):
        ke.ConditionalEmbeddingRegressor(progress=False).fit(frame[["u"]], targets)


def test_other_objects_are_texts():
    names = [uuid.UUID(int=i % 3) for i in range(N)]
    frame = pd.DataFrame({"u": U, "c": pd.Series(names, dtype=object)})
    assert table_of(frame, LABELS).x["c"].iloc[1] == str(names[1])
    assert len(TableEncoder().fit(frame).encoded_) == 4


B = U > 0
KINDS = {
    "boolean": (pd.Series(B, dtype="boolean"), "b"),
    "Int64": (pd.Series(B.astype(int) + 1, dtype="Int64"), "i"),
    "string": (pd.Series(LABELS, dtype="string"), "U"),
    "objects": (pd.Series([int(b) for b in B], dtype=object), "i"),
    "categories": (pd.Series(B.astype(int)).astype("category"), "i"),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("make", [ke.MulticlassEmbeddingClassifier, ke.VotedKernelClassifier])
def test_labels_come_back_in_their_kind(make, name):
    y, kind = KINDS[name]
    model = make().fit(U[:, None], y)
    assert model.classes_.dtype.kind == model.predict(U[:3, None]).dtype.kind == kind
    assert model.classes_.tolist() == sorted(set(y.tolist()))


@pytest.mark.parametrize("kind", ["boolean", "Int64", "float64", "object"])
def test_rows_without_a_label_are_counted(kind):
    y = pd.Series([None, None, *map(int, B[2:])], dtype=object).astype(kind)
    classifier = ke.MulticlassEmbeddingClassifier(progress=False)
    with pytest.warns(UserWarning, match="2 of 40 rows have no label: they are skipped"):
        classifier.fit(U[:, None], y)
    assert classifier.classes_.dtype.kind == {"boolean": "b", "float64": "f"}.get(kind, "i")
    assert table_of(U[:, None], y).notes == ("2 of 40 rows dropped: no label in target",)
    with pytest.raises(ValueError, match=r"2 of 40 rows have no label, the first is row 0.*Leave those rows out"):
        ke.VotedKernelClassifier().fit(U[:, None], y)


@pytest.mark.parametrize("categorical", ["a", ["a"], [0.5], [True, False]])
def test_categorical_columns_of_arrays_are_named_by_index(categorical):
    with pytest.raises(TypeError, match="categorical must be True, False or indices of columns"):
        ke.two_sample_test(U[:, None], U[:, None], categorical=categorical)
