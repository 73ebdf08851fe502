"""Tables as people have them: what each column becomes, and what is refused."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from kernel_embed.lab.compare import Categories
from kernel_embed.lab.compare.tables import table_of
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
