"""Comparisons resume, survive learners that fail, and end in a page that a browser shows."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import kernel_embed as ke
from kernel_embed.archive import names
from kernel_embed.lab import runner
from kernel_embed.lab.compare import ComparisonResult, figures, report, tasks
from kernel_embed.lab.compare import comparison as module
from kernel_embed.lab.compare import embedding_classifiers as models
from kernel_embed.lab.compare.comparison import KEY, Comparison, Settings
from kernel_embed.lab.compare.learners import CLASSIFIERS, LEARNERS, Learner, Structure, learners
from kernel_embed.lab.compare.ranking import rows_of
from kernel_embed.lab.compare.result import printed, summary
from kernel_embed.lab.compare.tables import table_of
from kernel_embed.lab.compare.tasks import CLASSIFICATION, log_losses
from kernel_embed.lab.datasets import scaled
from kernel_embed.lab.runner import run_cases
from kernel_embed.results import Results
from kernel_embed.splits import cross_validation_folds

SKLEARN = ("sklearn.pipeline", "sklearn.ensemble", "sklearn.preprocessing")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def blobs(n=60, d=2, m=3, seed=0, name="blobs"):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % m
    x = rng.normal(size=(m, d))[y] * 2 + rng.normal(size=(n, d))
    return table_of(x, np.array(["red", "green", "<b>bold", "gray"])[y], name)


def comparison(table, out=None, methods=("default",), default=None):
    """Two folds; ``default`` replaces the class of the learner of that name."""
    results = Results(None if out is None else out / "results.json", KEY)
    c = Comparison(table, None, Settings(tuple(methods), folds=2), results, out)
    if default is not None:
        c.learners["default"] = SimpleNamespace(for_tables=default)
    return c


def run(table, *args, **settings):
    c = comparison(table, *args, **settings)
    run_cases(c.cases(), c.results, progress=False)
    return c


class Failing:
    def fit(self, x, y):
        raise FloatingPointError("a number is too large\nand more")


class Counting:
    """Predicts shares, and counts how often it was fitted."""

    fits = 0

    def fit(self, x, y):
        Counting.fits += 1
        self.classes_, counts = np.unique(y, return_counts=True)
        self.shares = counts / counts.sum()
        return self

    def predict_proba(self, x):
        return np.tile(self.shares, (len(x), 1))

    def predict(self, x):
        return np.full(len(x), self.classes_[0])


def test_a_learner_that_fails_is_a_row_and_does_not_stop_the_others():
    c = run(blobs(), methods=("default", "svc grid"), default=Failing)
    rows = rows_of(c.records(), c.arrays)
    assert [row.method for row in rows] == ["svc grid", "default"]
    assert rows[1].note == "left out: FloatingPointError: a number is too large"
    assert "a number is too large" in summary(c.table, rows)


def test_finished_folds_are_not_computed_again_after_an_interruption(tmp_path):
    table = blobs()

    class Interrupted(Counting):
        def fit(self, x, y):
            if Counting.fits == 1:
                raise KeyboardInterrupt
            return super().fit(x, y)

    Counting.fits = 0
    with pytest.raises(KeyboardInterrupt):
        run(table, tmp_path, default=Interrupted)
    assert len(json.loads((tmp_path / "results.json").read_text())) == 1

    again = run(table, tmp_path, default=Counting)
    assert Counting.fits == 2, "one fold before, the other after"
    assert all(len(again.arrays(record)["truth"]) == 30 for record in again.records())
    assert comparison(blobs(seed=1), tmp_path).records() == [], "other data under the same name are other data"
    for leftover in (tmp_path / ".results.json.1.part", tmp_path / "folds" / ".a.npz.1.part"):
        leftover.write_text('[{"experiment": "comp')
    assert len(comparison(table, tmp_path).records()) == 2, "a half-written file is not read"


def test_a_fit_that_ended_early_on_ctrl_c_is_not_a_result(tmp_path):
    class Early(Counting):
        def fit(self, x, y):
            self.result_ = SimpleNamespace(interrupted=True)
            return super().fit(x, y)

    with pytest.raises(KeyboardInterrupt):
        run(blobs(), tmp_path, default=Early)
    assert not (tmp_path / "results.json").exists()


@pytest.mark.parametrize(("limit", "words"), [(40, "of 100 rows"), (0, "left out: takes far more than")])
def test_a_slow_learner_has_fewer_rows_or_is_left_out(monkeypatch, limit, words):
    monkeypatch.setattr(module, "affordable_rows", lambda *args: limit)
    c = run(blobs(n=200), default=Counting)
    (row,) = rows_of(c.records(), c.arrays)
    assert row.num_train == pytest.approx(limit, abs=3)
    assert words in row.note


def test_probabilities_that_are_kept_give_the_recorded_figures():
    c = run(blobs(), methods=["rademacher 4e/n"])
    for record in c.records():
        arrays = c.arrays(record)
        p = arrays["probabilities"][np.arange(30), arrays["truth"]]
        assert record["nll"] == pytest.approx(-np.log(np.clip(p, 1e-15, 1)).mean())
        assert arrays["lengthscale"].shape == (2,)
        assert len(arrays["history"]) == record["num_evaluations"]


def separate(n=40):
    """Two groups, in the unit square."""
    table = blobs(n=n, m=2, seed=2)
    return scaled(table.x.to_numpy(), table.y, table.x.to_numpy(), table.y)[:2]


@pytest.mark.parametrize("name", [n for n in learners() if not n.startswith(("cen", "nuts"))])
def test_every_learner_learns_two_separate_groups(name):
    x, y = separate(100 if name == "lightgbm" else 40)  # its leaves hold twenty rows
    learner = learners()[name].make().fit(x, y)
    np.testing.assert_allclose(learner.predict_proba(x).sum(axis=1), 1.0, atol=1e-8)
    assert (learner.predict(x) == y).mean() > 0.75


def mixed(n=48):
    """A table with a gap, text and a date, and two classes that depend on all of it."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"u": rng.normal(size=n), "v": 1e4 * rng.exponential(size=n), "t": np.array(["a", "b", "c"])[np.arange(n) % 3]}
    )
    frame["when"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 90, n), unit="D")
    y = np.where(frame["u"] + (frame["t"] == "a") + 1e-4 * frame["v"] + rng.normal(size=n) > 1.0, "yes", "no")
    frame.loc[3, "u"] = np.nan
    frame.loc[5, "t"] = None
    return table_of(frame, y, "mixed")


@pytest.mark.filterwarnings("ignore::kernel_embed.posteriors.PosteriorWarning")
@pytest.mark.filterwarnings("ignore:Points lie up to")  # without a prior, a lengthscale collapses on 36 rows
@pytest.mark.filterwarnings("ignore:K . ηI was not numerically positive definite", "ignore:The fit is degenerate")
@pytest.mark.parametrize("name", list(learners()))
def test_the_snippet_of_the_report_gives_the_row_from_public_places(name):
    learner, table = learners()[name], mixed()
    code = learner.code()
    modules = re.findall(r"^(?:from|import) (\S+)", code, flags=re.MULTILINE)
    assert set(modules) <= {"kernel_embed", "kernel_embed.lab.compare", "kernel_embed.tabular", *SKLEARN}
    train, test = next(iter(cross_validation_folds(table.y, 4, 0)))
    split = (table.x.iloc[train], table.y[train], table.x.iloc[test], table.y[test])
    measured = CLASSIFICATION.measure(learner.for_tables, split, table.y)
    head, _, last = code.rpartition("\n")
    names = {"X": split[0], "y": split[1], "X_new": split[2]}
    exec(head, names)
    probabilities = eval(last, names)
    np.testing.assert_allclose(probabilities, measured.arrays["probabilities"], atol=1e-10)


def test_the_posterior_average_is_an_average_over_its_draws():
    x, y = separate()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # eight draws are too few, and are said to be
        learner = models.PosteriorAverageClassifier(num_samples=8, warmup_steps=8).fit(x, y)
    each = learner.posterior_.probabilities_of_draws(torch.as_tensor(x[:5]), calibrated=True)
    np.testing.assert_allclose(learner.predict_proba(x[:5]), each.mean(dim=0).numpy(), atol=1e-10)
    assert learner.draws_["draws lengthscale"].shape == (8, 2)
    assert learner.num_evaluations_ > 16


@pytest.mark.parametrize("name", ["one kernel", "rademacher 4e/n", "median heuristic", "evidence of inputs"])
def test_another_kernel_reaches_the_learner_and_its_snippet(name):
    table = blobs(n=40, m=2)
    names = {"X": table.x, "y": table.y, "X_new": table.x}
    exec(learners(kernel="matern12")[name].code(), names)
    kernel = names["classifier"][-1].embedding_.kernel
    assert (type(kernel).__name__, kernel.nu) == ("MaternKernel", 0.5)
    with pytest.raises(ValueError, match=r"no kernel 'none'\. Choose among rbf"):
        learners(kernel="none")


def test_a_network_starts_as_in_the_paper_and_learns(problem):
    network = models.perceptron(5, models.CEN_2)
    models.paper_initialization(network, torch.Generator().manual_seed(0))
    assert (network[0].bias == 0.1).all()
    assert network[2].weight.abs().max() <= 0.2
    assert network[2].weight.std().item() == pytest.approx(0.088, abs=0.005)  # 0.1, cut off at two deviations
    classifier = models.PaperClassifier(models.CEN_1, num_steps=60, learning_rate=0.02)
    classifier.fit(problem.x.numpy(), np.array(["a", "b", "c"])[problem.y.numpy()])
    assert classifier.predict_proba(problem.query.numpy()).sum(axis=1) == pytest.approx(np.ones(7))
    assert set(classifier.predict(problem.x.numpy())) <= {"a", "b", "c"}
    assert classifier.result_.value < classifier.result_.history[0]["value"]


def test_every_learner_is_complete_and_named_once():
    names = [(learner.task, learner.name) for learner in LEARNERS]
    assert len(names) == len(set(names))
    with pytest.raises(TypeError, match="constructor"):
        Learner("mine", Structure.KERNEL, "a kernel")
    with pytest.raises(ValueError, match="'mine' has no encoding in none, unit range"):
        Learner("mine", Structure.KERNEL, "", "", encoding="raw")
    structures = {learner.name: learner.structure for learner in CLASSIFIERS}
    with pytest.raises(ValueError, match=r"no method 'no such' for classification\. Choose among default"):
        comparison(blobs(), methods=["no such"])
    single = [s for s in structures.values() if s.value.startswith("one kernel")]
    assert structures["default"].rank > max(s.rank for s in single), "a pool is more complex than one kernel"
    assert Structure.LENGTHSCALE.rank == min(s.rank for s in single), "one lengthscale is simpler than a relevance"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report of three tables: two features with three classes, and five features with two classes, twice."""
    out, methods = tmp_path_factory.mktemp("report"), ("median heuristic", "rademacher 4e/n", "default")
    tables = blobs(name="two <features>"), blobs(n=50, d=5, m=2, seed=3, name="five")
    found = [ComparisonResult(run(table, out, methods)) for table in tables]
    assert "rademacher 4e/n" in printed([*found, found[1]]).partition("NLL over 3 tables")[2]
    return report.write_report(found, out / "report.html", progress=False), found


def test_the_report_stands_alone_and_says_what_to_use(page):
    path, found = page
    text = path.read_text()
    assert not re.search(r"""(src|href)=["'](?!data:)""", text), "nothing is fetched"
    assert "<script" not in text
    assert "<features>" not in text
    assert "two &lt;features&gt;" in text
    assert "&lt;b&gt;bold" in text, "a class"
    assert re.findall(r"not a guarantee|guarantee", text) == ["not a guarantee"], "kernel and norm are learned"
    for one in found:
        assert f"Use “{one.recommendation.method}”" in text
        assert one.code().splitlines()[0] in text
    titles = ("Who predicts best", "What the labels depend on", "How learning converges", "Lengthscale by evidence")
    for title in (*titles, "differ", "Would more rows help", " confuses"):
        assert len(re.findall(title, text)) >= 2, title
    assert text.count("data:image/png;base64,") >= 2 * (1 + 3 + 3 + 4)
    assert path.stat().st_size < 3_000_000


def test_pictures_of_finished_tables_are_kept(page, monkeypatch):
    path, found = page
    before = path.read_text()
    monkeypatch.setattr(report, "_drawn", lambda *args: pytest.fail("drawn again"))
    assert report.write_report(found, path, progress=False).read_text() == before


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("width", [1200, 390])
def test_the_report_in_a_browser(page, tmp_path, width):
    """The page fits the window: nothing is wider than it, and no tenth of it is empty."""
    image = pytest.importorskip("matplotlib.image")
    path, _ = page
    probe = tmp_path / "probe.html"
    script = "<script>document.title = document.documentElement.scrollWidth + ' ' + document.body.scrollHeight</script>"
    probe.write_text(path.read_text().replace("</body>", f"{script}</body>"))
    options = ("headless", "no-sandbox", "disable-gpu", "hide-scrollbars", f"user-data-dir={tmp_path}/u")
    base = [BROWSER, *(f"--{option}" for option in options)]
    size = f"--window-size={width},1000"
    dom = subprocess.run([*base, size, "--dump-dom", probe.as_uri()], capture_output=True, text=True, timeout=120)
    wide, high = map(int, re.search(r"<title>(\d+) (\d+)</title>", dom.stdout).groups())
    # Headless windows have a least width of about 500 points on some systems.
    assert wide <= max(width, 500)
    picture = tmp_path / "page.png"
    subprocess.run(
        [*base, f"--window-size={width},{min(high, 6000)}", f"--screenshot={picture}", path.as_uri()],
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    rows = image.imread(picture)
    assert all(part.std() > 0.0 for part in np.array_split(rows, 10)), "no tenth of the page is empty"


# --- the result in Python ---------------------------------------------------------------------------------------------


METHODS = ["median heuristic", "logistic"]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"u": rng.normal(size=60), "t": np.array(["a", "b"])[np.arange(60) % 2], "name": "x"})
    made["label"] = np.where(made["u"] + (made["t"] == "a") + 0.5 * rng.normal(size=60) > 0.5, "yes", "no")
    return made


@pytest.fixture(scope="module")
def compared(frame):
    return ke.compare(frame, "label", methods=METHODS, folds=3, name="people", progress=False)


def test_it_prints_within_80_columns_and_says_what_to_use(compared):
    text = str(compared)
    assert max(map(len, text.splitlines())) <= 80
    assert "people: 60 rows, 2 features, 2 classes" in text
    assert "constant: name" in text
    assert f"Use '{compared.recommendation.method}' on these data." in text
    assert repr(compared) == "<ComparisonResult people: 2 learners>"


def test_it_ranks_and_hands_over_models(compared, frame):
    ranking = compared.ranking
    assert ranking["nll"].is_monotonic_increasing
    assert compared.recommendation.method in set(ranking.loc[ranking["tied"], "learner"])
    model = compared.fitted()
    assert model.predict(frame[["u", "t"]].assign(t="new")).shape == (60,), "a new category is no error"


def test_held_out_predictions_give_the_figures(compared):
    truth, p = compared.predictions("logistic")
    nll = log_losses(p, np.unique(truth, return_inverse=True)[1]).mean()
    row = next(row for row in compared.rows if row.method == "logistic")
    assert nll == pytest.approx(row.loss.mean)  # folds of equal size
    with pytest.raises(ValueError, match="no finished folds"):
        compared.predictions("gpc")
    pytest.importorskip("matplotlib")
    assert len(compared.plot().get_yticklabels()) == 2


def test_paths_matrices_and_test_rows(frame, tmp_path):
    frame.to_csv(tmp_path / "people.csv", index=False)
    settings = {"methods": ["logistic"], "progress": False}
    by_path = ke.compare(tmp_path / "people.csv", "label", folds=2, out=tmp_path / "out", **settings)
    by_frame = ke.compare(frame, "label", folds=2, **settings)
    assert by_path.table.fingerprint == by_frame.table.fingerprint
    assert (tmp_path / "out" / "results.json").exists()
    assert "among the others" not in str(by_path)
    assert "no other" not in str(by_path), "with one learner no sentence about others"
    x, y = frame[["u"]].to_numpy(), frame["label"].to_numpy()
    tested = ke.compare(x[:40], y[:40], test=(x[40:], y[40:]), **settings)
    assert len(tested.predictions("logistic")[0]) == 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.eye(20),), "There are no labels"),
        ((pd.DataFrame({"a": range(20)}), "b"), "X has no column 'b'. Its columns are a"),
        (("file.csv", [1, 2]), "must be the name of the target column"),
        ((np.eye(20), ["a"] * 20), "only one class"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_words(arguments, words):
    with pytest.raises(ValueError, match=words):
        ke.compare(*arguments)


def test_a_model_that_load_would_refuse_is_not_promised(compared, tmp_path, monkeypatch):
    monkeypatch.setitem(names.OWN, "lab", "")
    with pytest.raises(ValueError, match=r"would refuse 'logistic'.*ReferenceClassifier"):
        compared.save(tmp_path, "logistic")
    assert not list(tmp_path.iterdir())


def test_a_finished_comparison_is_not_fitted_or_drawn_again(frame, tmp_path, monkeypatch):
    """Neither what was drawn nor what failed is tried again: a figure, or a model that cannot be saved."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(report, "SECTIONS", [figures.importance])
    monkeypatch.setitem(names.OWN, "lab", "")

    @report.section()
    def shares(result, method):
        yield str(float("<few>"))

    def run():
        result = ke.compare(frame, "label", methods=["logistic"], folds=2, out=tmp_path, progress=False)
        return result.report(tmp_path / "report.html", progress=False).read_text()

    before = run()
    assert "No shares: could not convert string to float: &#x27;&lt;few&gt;&#x27;" in before
    assert "it could not be saved" in before
    monkeypatch.setattr(report, "_drawn", lambda *_: pytest.fail("drawn again"))
    monkeypatch.setattr(runner, "fit_model", lambda *_: pytest.fail("fitted again"))
    monkeypatch.setattr(ke.lab.compare.ComparisonResult, "fitted", lambda *_: pytest.fail("fitted again"))
    assert run() == before


def test_a_target_type_is_one_task_with_results_of_its_own(tmp_path, monkeypatch):
    counts = dataclasses.replace(tasks.REGRESSION, name="counts", describe=lambda y: "counts of something")
    monkeypatch.setitem(tasks.TASKS, "counts", counts)
    x = np.random.default_rng(0).normal(size=(30, 2))
    y = np.round(np.exp(x[:, 0]))
    for task in ("regression", "counts"):
        result = ke.compare(x, y, methods=["ridge"], folds=2, task=task, out=tmp_path, progress=False)
    assert "counts of something" in str(result)
    assert {(r["task"], r["fold"]) for r in result.comparison.results.records} == {
        (task, fold) for task in ("regression", "counts") for fold in (0, 1)
    }
