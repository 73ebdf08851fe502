"""Tables of all kinds are read; what cannot be used is rejected with a clear message."""

from __future__ import annotations

import datetime
import json
import os

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import kernel_embed as ke
from kernel_embed.cli import main
from kernel_embed.lab.compare.learners import learners
from kernel_embed.lab.compare.tables import read_user_table, table_of
from kernel_embed.lab.compare.tasks import TASKS
from kernel_embed.lab.datasets import ENVIRONMENT_VARIABLE, load_table, scaled
from kernel_embed.lab.runner import fit_model, groups_parameter


def write(path, text):
    path.write_text(text)
    return path


def rows(labels, extra=""):
    return "".join(f"{i},{i * i % 7},{label}\n" for i, label in enumerate(labels)) + extra


LABELS = ["yes", "no"] * 6
LARGE = "".join(f"{i},{'9e30' if i % 2 else '8e30'}\n" for i in (5, 3, 8, 1, 9, 2, 7, 4, 6, 0) * 2)


@pytest.mark.parametrize(
    ("text", "features", "labels"),
    [
        ("u,v,w\n" + rows(LABELS), ("u", "v"), {"yes", "no"}),
        ("target;u\n" + "".join(f"{i % 2}.0;{i}\n" for i in range(12)), ("u",), {0, 1}),
        ("u,w\n" + LARGE, ("u",), {"8e+30", "9e+30"}),
        ('\ufeff"u,1",w\n' + "".join(f'"{i}","a\nb{i % 2}"\n' for i in range(12)), ("u,1",), {"a\nb0", "a\nb1"}),
    ],
    ids=["last column", "column called target", "large labels are text", "quotes and a byte order mark"],
)
def test_features_and_labels(tmp_path, text, features, labels):
    table = read_user_table(write(tmp_path / "a.csv", text))
    assert (table.features, set(table.y.tolist()), table.notes) == (features, labels, ())


def test_missing_cells_are_kept_and_noted(tmp_path):
    table = read_user_table(write(tmp_path / "a.csv", "u,v,w\n" + rows(LABELS, "1,?,yes\n2,,no\n3,4,\ninf,1,no\n")))
    assert len(table.y) == 15, "only the row without a label is left out"
    assert table.x["v"].isna().sum() == 2
    assert table.notes == (
        "1 of 16 rows dropped: no label in w",
        "infinite cells, and numbers beyond 1e150, treated as missing: u",
        "missing cells in 3 rows, in u, v",
    )


def test_the_largest_numbers_count_as_missing(tmp_path):
    text = "u,v,w\n" + rows(LABELS, "1.7e308,1,yes\n-1.7e308,2,no\n1e150,3,no\n")
    table = read_user_table(write(tmp_path / "a.csv", text))
    assert table.x["u"].isna().sum() == 2
    again = read_user_table(write(tmp_path / "b.csv", text), like=table)
    assert again.x["u"].isna().sum() == 2


@pytest.mark.parametrize("suffix", [".parquet", ".pq"])
def test_parquet_is_the_same_table_and_one_cell_changes_its_fingerprint(tmp_path, suffix):
    pytest.importorskip("pyarrow")
    csv = write(tmp_path / "a.csv", "u,v,w\n" + rows(LABELS, "1,,yes\n"))
    pd.read_csv(csv).to_parquet(tmp_path / f"a{suffix}")
    one, two = read_user_table(csv), read_user_table(tmp_path / f"a{suffix}")
    assert (one.fingerprint, one.notes) == (two.fingerprint, two.notes)
    changed = read_user_table(write(tmp_path / "b.csv", "u,v,w\n" + rows(["no", *LABELS[1:]], "1,,yes\n")))
    assert one.fingerprint != changed.fingerprint


@pytest.mark.parametrize(
    ("text", "target", "words"),
    [
        ("u,v,w\n" + rows(LABELS), "z", "no column 'z'.*u, v, w"),
        ("u,v,w\n" + rows(["yes"] * 12), None, "only one class: yes"),
        ("u,v,w\n" + rows([f"name {i}" for i in range(12)]), None, "12 classes in 12 rows.*--task regression"),
        ("u,v,w\n" + "1,,yes\n1,,no\n" * 6, None, "no useful column: .*constant: u; .*no values: v"),
        ("u,w\n1," + "x" * 140_000 + "\n", None, "A cell in row 2 of .* is too long: .* Shorten"),
        ("u,v,w\n1,2\n", None, "Row 2 .*has 2 cells, but the header has 3"),
        ("u,u,w\n" + rows(LABELS), None, "same name: u"),
        ("u,v,w\n", None, "a header and rows"),
        ("w\n" + "a\nb\n" * 6, None, "no column besides the target"),
        ("u,v,w\n" + rows(["a", "b"]), None, "2 rows with a label, but 10 are needed"),
    ],
)
def test_bad_tables_are_rejected(tmp_path, text, target, words):
    with pytest.raises(ValueError, match=words):
        read_user_table(write(tmp_path / "a.csv", text), target)


def test_binary_and_missing_files(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xff\xfe\x00\x01" * 10)
    with pytest.raises(ValueError, match="UTF-8"):
        read_user_table(tmp_path / "a.csv")
    (tmp_path / "a.parquet").write_bytes(b"not parquet")
    pytest.importorskip("pyarrow")
    with pytest.raises(ValueError, match="not a Parquet file"):
        read_user_table(tmp_path / "a.parquet")
    with pytest.raises(FileNotFoundError, match="File not found"):
        read_user_table(tmp_path / "none.csv")


def test_a_test_table_takes_columns_and_types_of_the_training_table(tmp_path):
    train = read_user_table(write(tmp_path / "a.csv", "u,v,t,target\n" + mixed(LABELS)))
    text = "v,u,more,t,target\n" + "".join(f"{i * i % 7},{i},9,{i % 3},{label}\n" for i, label in enumerate(LABELS))
    test = read_user_table(write(tmp_path / "b.csv", text), like=train)
    np.testing.assert_array_equal(test.x[["u", "v"]], train.x[["u", "v"]])
    assert test.x["t"].dtype == object, "numbers here, but text in the training table"
    assert (test.y == train.y).all()
    with pytest.raises(ValueError, match="does not have: perhaps"):
        read_user_table(write(tmp_path / "b.csv", text + "1,2,3,4,perhaps\n"), like=train)
    with pytest.raises(ValueError, match=r"lacks columns .*: u"):
        read_user_table(write(tmp_path / "b.csv", text.replace("v,u,", "v,z,")), like=train)


def mixed(labels):
    return "".join(f"{i},{i * i % 7},{'abc'[i % 3]},{label}\n" for i, label in enumerate(labels))


def column(cells, delimiter=";"):
    """One column of a table of 40 rows, read from text."""
    frame = pd.DataFrame({"c": list(cells), "n": np.arange(40) % 7 * 1.5})
    frame.attrs["delimiter"] = delimiter
    return table_of(frame, ["yes", "no"] * 20)


@pytest.mark.parametrize(
    ("cells", "kind", "first", "words"),
    [
        (["1,5", "2"] * 20, "f", 1.5, "decimal commas read as points: c"),
        (["1.234,5", "2,25"] * 20, "f", 1234.5, "decimal commas read as points: c"),
        (["True", "false"] * 20, "f", 1.0, ""),
        ([True, False] * 20, "f", 1.0, ""),
        (["2024-03-01", "2024-03-02 10:00", None, "2024-01-05"] * 10, "M", pd.Timestamp("2024-03-01"), ""),
        (["01.03.2024", "02.04.2024"] * 20, "M", pd.Timestamp("2024-03-01"), ""),
        ([datetime.date(2024, 3, 1), datetime.date(2024, 3, 2)] * 20, "M", pd.Timestamp("2024-03-01"), ""),
        ([*map(str, range(38)), "unknown", "old"], "f", 0.0, "not numbers treated as missing: c (such as 'unknown')"),
        (["1", "2", "x", "y"] * 10, "O", "1", ""),
        ([" a <b>", 'say "hi", you'] * 20, "O", "a <b>", ""),
    ],
)
def test_kinds_of_columns(cells, kind, first, words):
    table = column(cells)
    assert table.x["c"].dtype.kind == kind
    assert table.x["c"].iloc[0] == first
    assert words in "; ".join(table.notes)


def test_commas_between_thousands_where_cells_are_divided_by_commas(tmp_path):
    text = "u,v,w\n" + "".join(f'"{i + 1},000",{i % 5},{label}\n' for i, label in enumerate(LABELS))
    table = read_user_table(write(tmp_path / "a.csv", text))
    assert table.x["u"].iloc[0] == 1000.0
    assert table.notes == ("commas between thousands removed: u",)


def test_all_useless_columns_are_noted():
    n = 40
    useless = {"name": [f"person {i}" for i in range(n)], "id": range(n), "gone": np.nan, "same": 1.0, "also": "x"}
    frame = pd.DataFrame({**useless, "good": np.arange(n) % 7})
    table = table_of(frame, ["yes", "no"] * 20)
    assert table.features == ("good",)
    words = "; ".join(table.notes)
    for part in ("in every row): name", "row numbers: id", "no values: gone", "constant: same, also"):
        assert part in words, part


def test_columns_are_dropped_by_name():
    frame = {"u": np.arange(12) % 5, "v": np.arange(12) % 3}
    assert table_of(frame, LABELS, drop=["u"]).features == ("v",)
    with pytest.raises(ValueError, match="no columns z to drop"):
        table_of(frame, LABELS, drop=["z"])
    with pytest.raises(ValueError, match="12 rows, but y has 11 labels"):
        table_of(frame, LABELS[1:])
    twice = pd.DataFrame(np.eye(12)[:, :2], columns=["u", "u"])
    with pytest.raises(ValueError, match="same name: u"):
        table_of(twice, LABELS)


def test_polars_and_matrices_are_tables_too():
    polars = pytest.importorskip("polars")
    frame = {"u": [1.0, 2.0, None, 4.0] * 3, "t": ["a", "b", "c"] * 4}
    one, two = table_of(pd.DataFrame(frame), LABELS), table_of(polars.DataFrame(frame), LABELS)
    assert one.fingerprint == two.fingerprint
    assert table_of(np.eye(12)[:, :3], LABELS).features == ("x0", "x1", "x2")
    many = np.random.default_rng(0).normal(size=(20, 10_000))
    assert table_of(many, ["yes", "no"] * 10).x.shape == (20, 10_000)


def test_csv_with_a_missing_cell(tmp_path):
    (tmp_path / "toy.csv").write_text("a,b,target\n1,2,x\n3,,y\n5,6,x\n")
    x, y = load_table("toy", tmp_path)
    np.testing.assert_array_equal(x, [[1.0, 2.0], [5.0, 6.0]])
    assert list(y) == ["x", "x"]
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


def test_features_are_scaled_by_the_training_rows():
    x, y = np.array([[0.0, 5.0], [10.0, 5.0]]), np.zeros(2)
    train, _, test, _ = scaled(x, y, np.array([[20.0, 6.0]]), y[:1])
    np.testing.assert_array_equal(train, [[0, 0], [1, 0]])
    np.testing.assert_array_equal(test, [[2, 1]])


# --- groups -----------------------------------------------------------------------------------------------------------


SETTINGS = {"methods": ["logistic"], "folds": 3, "progress": False}


@pytest.fixture(scope="module")
def frame():
    """Twelve patients of five visits each; the measurements of a patient are close to each other."""
    rng = np.random.default_rng(0)
    patient = rng.permutation(np.repeat(np.arange(12), 5))
    u, v = (rng.normal(size=12)[patient] + 0.1 * rng.normal(size=60) for _ in range(2))
    label = np.where(u + 0.5 * rng.normal(size=60) > 0, "yes", "no")
    return pd.DataFrame({"u": u, "v": v, "patient": [f"p{k}" for k in patient], "label": label})


@pytest.mark.parametrize("target", ["label", "v"])
def test_folds_keep_groups_together_however_they_are_given(frame, target, tmp_path):
    frame.to_csv(tmp_path / "visits.csv", index=False)
    settings = {**SETTINGS, "methods": ["logistic" if target == "label" else "ridge"]}
    X, groups = frame.drop(columns=[target, "patient"]), frame["patient"]
    results = [
        ke.compare(frame, target, groups="patient", **settings),
        ke.compare(X, frame[target], groups=groups, **settings),
        ke.compare(tmp_path / "visits.csv", target, groups="patient", **settings),
        ke.compare(tmp_path / "visits.csv", target, groups=list(groups), drop=["patient"], **settings),
    ]
    assert len({result.table.fingerprint for result in results}) == 1
    first = results[0]
    assert "patient" not in first.table.features
    for result in results:
        np.testing.assert_array_equal(result.ranking["seconds"].notna(), [True])
    numbers = first.table.groups
    held_out = []
    for fold in range(3):
        split = first.comparison.split(fold)
        test = numbers[split.x_test.index]
        assert not set(test) & set(split.groups)
        np.testing.assert_array_equal(split.groups, numbers[split.x.index])
        held_out.append(len(set(test)))
    assert held_out == [4, 4, 4]


class Remembering:
    """Takes groups and remembers them."""

    def fit(self, X, y, groups=None):
        self.groups_ = groups
        return self


def test_learners_that_take_groups_get_those_of_their_rows(frame):
    groups = np.arange(60)
    for model in (Remembering(), make_pipeline(StandardScaler(), Remembering())):
        fitted = fit_model(model, frame[["u", "v"]], frame["label"].to_numpy(), groups)
        np.testing.assert_array_equal(getattr(fitted, "steps", [("", fitted)])[-1][1].groups_, groups)
    assert groups_parameter(StandardScaler()) is None
    takes = {name for name, one in learners().items() if groups_parameter(one.for_tables())}
    assert {"default", "one kernel", "evidence", "rademacher 4e/n", "median heuristic"} <= takes
    assert "logistic" not in takes


@pytest.mark.parametrize(("target", "methods"), [("label", ["default", "one kernel"]), ("v", ["default"])])
def test_fitted_models_and_their_code_use_the_groups(frame, target, methods):
    compared = ke.compare(frame, target, groups="patient", **{**SETTINGS, "methods": methods, "folds": 2})
    plain = ke.compare(frame.drop(columns="patient"), target, **{**SETTINGS, "methods": methods, "folds": 2})
    assert compared.comparison.task is TASKS["classification" if target == "label" else "regression"]
    assert not compared.ranking["note"].any()
    X = compared.table.x
    names = {"X": X, "y": compared.table.y, "groups": compared.table.groups, "X_new": X[:3]}
    for method in methods:
        assert "groups=groups" in compared.code(method)
        assert "groups" not in plain.code(method)
        exec(compared.code(method), names)
        model = names["classifier" if target == "label" else "regressor"]
        expected = compared.fitted(method)
        predict = "predict_proba" if target == "label" else "predict"
        np.testing.assert_allclose(getattr(model, predict)(X), getattr(expected, predict)(X), atol=1e-10)
        other = plain.fitted(method)
        assert np.abs(getattr(other, predict)(X) - getattr(expected, predict)(X)).max() > 1e-6


def test_report_and_records_name_the_groups_and_others_are_not_reused(frame, tmp_path, capsys):
    frame.to_csv(tmp_path / "visits.csv", index=False)
    arguments = ["compare", "--data", str(tmp_path / "visits.csv"), "--out", str(tmp_path / "out"), "--folds", "3"]
    arguments += ["--methods", "logistic"]
    assert main([*arguments, "--groups", "patient"]) == 0
    assert "12 groups of rows by patient" in capsys.readouterr().out
    page = (tmp_path / "out" / "report.html").read_text()
    assert "12 groups of rows by patient" in page
    assert "3 folds of whole groups" in page

    def records():
        return json.loads((tmp_path / "out" / "results.json").read_text())

    assert [record["groups"] for record in records()] == [12] * 3
    assert main([*arguments, "--groups", "patient", "--no-report"]) == 0
    assert len(records()) == 3, "nothing is computed twice"
    X, y = frame[["u", "v"]], frame["label"]
    ke.compare(X, y, name="visits", out=tmp_path / "out", **SETTINGS)
    assert [record.get("groups") for record in records()] == [12] * 3 + [None] * 3
    ke.compare(X, y, groups=np.arange(60) // 5, name="visits", out=tmp_path / "out", **SETTINGS)
    assert len(records()) == 9, "other groups are another comparison"


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([1, 2, 3], r"one label for each of the 60 rows.*\(3,\)"),
        (np.zeros((60, 2)), "one label for each of the 60 rows"),
        (["a", None, "b", np.nan] * 15, "30 of 60 rows of table have no group in groups"),
        ("doctor", r"no column 'doctor' of groups\. Its columns: u, v, patient"),
        ([1, 2] * 30, "2 groups in groups, too few for 3 folds"),
    ],
)
def test_bad_groups_are_refused(frame, groups, words):
    with pytest.raises(ValueError, match=words):
        ke.compare(frame, "label", groups=groups, **SETTINGS)


def test_the_column_of_groups_cannot_be_dropped(frame):
    with pytest.raises(ValueError, match="groups 'v' are among the columns to drop"):
        ke.compare(frame, "label", groups="v", drop=["v"], **SETTINGS)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--data visits.csv --groups doctor", "no column 'doctor' of groups"),
        ("--data visits.csv --groups label", "cannot be the groups as well"),
        ("--data visits.csv --groups patient --folds 13", "12 groups in patient, too few for 13 folds"),
        ("--data . --groups patient --folds 13", "too few for 13 folds"),
        ("--groups patient", "Give --data FILE"),
    ],
)
def test_bad_groups_of_the_command_are_one_line(frame, options, words, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame.to_csv("visits.csv", index=False)
    assert main(["compare", *options.split(), "--methods", "logistic"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
