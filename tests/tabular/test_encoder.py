"""Tables as people have them: what each column becomes, and what is refused."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import kernel_embed as ke
from kernel_embed.lab.compare import Categories
from kernel_embed.lab.compare.tables import read_user_table, table_of
from kernel_embed.tabular import ColumnEncoder, TableEncoder, register_column_type
from kernel_embed.tabular.column_encoders import COLUMN_TYPES, MAX_CATEGORIES
from kernel_embed.tabular.column_types import IDENTIFIER, encode_numbers


@pytest.fixture
def people():
    return pd.DataFrame(
        {
            "age": [31.0, np.nan, 55.0, 20.0],
            "city": ["Rome", "Oslo", None, "Oslo"],
            "member": [True, False, True, True],
            "since": pd.to_datetime(["2020-01-01", "2021-07-01", None, "2020-01-08"]),
            "country": ["x"] * 4,
            "empty": [None] * 4,
        }
    )


def test_columns_of_all_kinds(people):
    encoder = TableEncoder().fit(people)
    names = list(encoder.get_feature_names_out())
    assert names[:5] == ["age", "age is missing", "city=(missing)", "city=Oslo", "city=Rome"]
    Z = dict(zip(names, encoder.transform(people).T, strict=True))
    np.testing.assert_array_equal(Z["age"], [31.0, 31.0, 55.0, 20.0])
    np.testing.assert_array_equal(Z["age is missing"], [0, 1, 0, 0])
    np.testing.assert_allclose(Z["city=Oslo"], np.array([0, 1, 0, 1]) * math.sqrt(0.5))
    np.testing.assert_array_equal(Z["member"], [1, 0, 1, 1])
    assert Z["since"][0] == 18262.0
    # A week apart: the same place in the week.
    assert Z["since in week, sine"][0] == pytest.approx(Z["since in week, sine"][3])
    np.testing.assert_array_equal(Z["since is missing"], [0, 0, 1, 0])
    assert encoder.dropped_ == {"country": "constant", "empty": "no values"}
    assert np.isfinite(encoder.transform(people)).all()


def test_a_category_has_one_group_and_numbers_are_told_from_choices(people):
    encoder = TableEncoder().fit(people)
    groups = dict(zip(encoder.get_feature_names_out(), encoder.groups_, strict=True))
    assert groups["city=Oslo"] == groups["city=Rome"] == groups["city=(missing)"]
    assert groups["age"] != groups["age is missing"]
    numbers = dict(zip(encoder.get_feature_names_out(), encoder.numbers_, strict=True))
    assert numbers["age"]
    assert not numbers["member"]
    shares = encoder.by_column(np.ones(encoder.groups_.max() + 1))
    assert set(shares) == {"age", "city", "member", "since"}
    assert shares["age"] == 2.0


def test_two_different_categories_are_at_distance_one():
    encoder = TableEncoder().fit(pd.DataFrame({"c": ["a", "b", "c", "d"] * 3}))
    Z = encoder.transform(pd.DataFrame({"c": ["a", "b", "unknown"]}))
    assert np.linalg.norm(Z[0] - Z[1]) == pytest.approx(1.0)
    np.testing.assert_array_equal(Z[2], 0.0)


def test_rare_categories_share_a_place_and_names_are_left_out():
    n = 200
    table = pd.DataFrame({"zip": [f"z{i % 60}" for i in range(n)], "name": [f"n{i}" for i in range(n)]})
    encoder = TableEncoder().fit(table)
    assert len(encoder.encoded_) == MAX_CATEGORIES + 1
    assert encoder.encoded_[-1].name == "zip=(other)"
    assert encoder.dropped_ == {"name": IDENTIFIER}


def test_new_cells_at_prediction(people):
    encoder = TableEncoder().fit(people)
    new = people.iloc[:1].assign(age=np.nan, city="Paris", member=None, since=pd.NaT)
    assert np.isfinite(encoder.transform(new)).all()


def test_polars_and_nullable_columns_are_the_same_table(people):
    polars = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    plain = people[["age", "city", "member"]]
    expected = TableEncoder().fit_transform(plain)
    nullable = plain.astype({"age": "Float64", "city": "string", "member": "boolean"})
    np.testing.assert_array_equal(TableEncoder().fit_transform(nullable), expected)
    np.testing.assert_array_equal(TableEncoder().fit_transform(polars.from_pandas(plain)), expected)


def test_what_is_refused(people):
    encoder = TableEncoder().fit(people)
    with pytest.raises(ValueError, match=r"infinity, in row 1 of column .age."):
        encoder.transform(people.assign(age=[1.0, np.inf, 2.0, 3.0]))
    with pytest.raises(ValueError, match=r"Column .age. held numbers in training"):
        encoder.transform(people.assign(age=["old", "old", "old", "old"]))
    with pytest.raises(ValueError, match=r"seen at fit time, yet now missing: \['age'\]"):
        encoder.transform(people.drop(columns="age"))
    with pytest.raises(ValueError, match=r"same name: \[.a.\]"):
        TableEncoder().fit(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_a_table_that_says_nothing_is_one_column_of_zeros():
    np.testing.assert_array_equal(TableEncoder().fit_transform(np.ones((3, 2))), np.zeros((3, 1)))
    assert clone(TableEncoder(max_categories=5)).max_categories == 5


def test_encode_numbers_are_those_one_by_one():
    generator = np.random.default_rng(0)
    X = np.column_stack([generator.normal(size=30), generator.integers(0, 2, 30) * 3.0 + 1.0, np.arange(30) ** 3])
    encoder = TableEncoder().fit(X)
    new = X[:5].copy()
    new[1, 0] = np.nan
    for table in (X, new, X.astype(int)):
        one_by_one = np.concatenate([one.transform(table[:, one.index]) for one in encoder._encoders], axis=1)
        assert np.array_equal(encode_numbers(encoder._encoders, list(table.T)), one_by_one)
        assert np.array_equal(encoder.transform(table), one_by_one)
    assert encode_numbers(encoder._encoders, list(X.astype(object).T)) is None
    new[2, 2] = np.inf
    with pytest.raises(ValueError, match=r"infinity, in row 2 of column .x2."):
        encoder.transform(new)
    X[0, 0] = np.nan
    assert encode_numbers(TableEncoder().fit(X)._encoders, list(X.T)) is None


class VersionEncoder(ColumnEncoder):
    """Texts such as 'v1.2', by the number of the version."""

    @classmethod
    def accepts(cls, column):
        return column.dtype == object and all(isinstance(cell, str) and cell.startswith("v") for cell in column)

    @classmethod
    def values(cls, column, name):
        return np.array([float(cell[1:]) for cell in column])

    def fit(self, column, weights=None):
        return None

    def outputs(self):
        return [self.output(self.name, "", True)]

    def transform(self, column):
        return self.values(column, self.name)[:, None]


def test_a_registered_column_type_is_used_by_the_encoder_and_the_comparison(monkeypatch):
    monkeypatch.setattr("kernel_embed.tabular.column_encoders.COLUMN_TYPES", list(COLUMN_TYPES))
    register_column_type(VersionEncoder)
    frame = pd.DataFrame({"version": [f"v1.{i % 9}" for i in range(40)], "city": ["Rome", "Oslo"] * 20})
    encoder = TableEncoder().fit(frame)
    assert list(encoder.get_feature_names_out()) == ["version", "city=Rome"]
    assert encoder.numbers_.tolist() == [True, False]
    table = table_of(frame, ["yes", "no"] * 20)
    assert table.features == ("version", "city")
    assert Categories().fit_transform(table.x).version.iloc[1] == 1.1
    with pytest.raises(TypeError, match="subclass of ColumnEncoder"):
        register_column_type(VersionEncoder("version", 0))


def test_estimators_and_comparison_agree_on_identifiers():
    n = 40
    almost = [f"n{i}" for i in range(n - 1)] + ["n0"]
    frame = pd.DataFrame(
        {"id": range(1, n + 1), "name": [f"n{i}" for i in range(n)], "almost": almost, "x": np.arange(n) % 7}
    )
    assert TableEncoder().fit(frame).dropped_ == {"id": "row numbers", "name": IDENTIFIER}
    assert TableEncoder().fit(frame[["id"]]).dropped_ == {}, "alone it may be time"
    assert table_of(frame, ["yes", "no"] * 20).features == ("almost", "x")


# --- cells of every type ----------------------------------------------------------------------------------------------


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
