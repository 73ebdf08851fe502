"""One calling convention: every experiment is named and described, and rejects what it would ignore."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import re
import urllib.error

import matplotlib.pyplot
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from sklearn.datasets import load_iris

from kernel_embed.cli import experiments, main
from kernel_embed.embeddings.bayesian import BayesianMeanEmbedding
from kernel_embed.kernels import median_distance
from kernel_embed.lab.compare import PaperClassifier
from kernel_embed.lab.papers import Settings, reproduce
from kernel_embed.lab.papers import flaxman2016_grid as grid
from kernel_embed.lab.papers import flaxman2016_mixtures as mixtures
from kernel_embed.lab.papers.hsu2018_uci import LEARNERS, PUBLISHED
from kernel_embed.learning.maxima import local_maxima
from kernel_embed.objectives.evidence import EmbeddingEvidence

NAMES = [
    *("iris", "uci", "mnist-cen", "mnist-pixels", "two-sample", "witness", "type-two", "ozone", "voted"),
    *("averaged", "test-level", "test-power", "coverage", "posterior-ranks", "repeats", "intervals", "importances"),
]
EXPERIMENTS = experiments()
IRIS = EXPERIMENTS["iris"]


def test_every_experiment_is_registered_and_described():
    assert list(EXPERIMENTS) == NAMES
    settings = {field.name for field in dataclasses.fields(Settings)}
    for experiment in EXPERIMENTS.values():
        assert set(experiment.options.split()) <= settings - {"out", "quick"}
        assert experiment.key
        assert experiment.duration
        assert "\n" not in experiment.title


def test_the_help_lists_them_all(capsys):
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    text = capsys.readouterr().out
    assert all(f"  {name} " in text and EXPERIMENTS[name].duration in " ".join(text.split()) for name in NAMES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("iris --folds 3", "'iris' does not support --folds. It supports --out, --quick."),
        ("coverage --jobs 2 --data .", "support --data, --jobs. It supports --out, --quick, --repetitions, --seed."),
        ("coverage --repetitions 0", "--repetitions"),
        ("uci --data . --methods none", "Unknown methods: none. Choose among: default"),
        ("averaged --methods none", "Unknown methods: none. Choose among: evidence: point"),
        ("averaged --datasets none", "Unknown datasets: none. Choose among: iris; wine; digits; cancer"),
        ("type-two --methods none", "No test matches --methods and --datasets. Choose among: evidence"),
        ("voted --data . --methods none", "Unknown methods: none. Choose among: L2-SVM"),
    ],
)
def test_what_an_experiment_does_not_support_is_rejected(arguments, words, tmp_path, capsys):
    assert main(["reproduce", *arguments.split(), "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "results.json").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("uci", "that holds banknote.csv with --data or in KERNEL_EMBED_DATA"),
        ("voted --datasets wine", "that holds wine.csv with --data or in KERNEL_EMBED_DATA"),
        ("ozone", "ozone.csv with --data"),
        ("mnist-cen", "mnist/train-images-idx3-ubyte.gz, mnist/train-labels-idx1-ubyte.gz"),
    ],
)
def test_without_a_network_the_error_names_the_files(arguments, words, tmp_path, capsys, monkeypatch):
    def fetch(*_, **__):
        raise urllib.error.URLError("no network")

    monkeypatch.delenv("KERNEL_EMBED_DATA", raising=False)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    assert main(["reproduce", *arguments.split(), "--out", str(tmp_path)]) == 2
    assert words in capsys.readouterr().err
    assert main(["reproduce", "--list"]) == 0
    listed = " ".join(capsys.readouterr().out.split())
    assert all(", ".join(one.files) in listed for one in EXPERIMENTS.values())


def test_a_variant_is_another_value(tmp_path):
    text = reproduce(IRIS.variant(rate="4e", num_epochs=3), Settings(out=tmp_path))
    assert text.count(" 4e ") == 4
    records = json.loads((tmp_path / "results.json").read_text())
    assert {record["rate"] for record in records} == {"4e"}
    with pytest.raises(TypeError, match="'iris' has no parameter speed"):
        IRIS.variant(speed=1)


def test_experiments_share_a_directory(tmp_path, capsys):
    assert main(["reproduce", "coverage", "--repetitions", "1", "--out", str(tmp_path)]) == 0
    assert "coverage of 80 %" in capsys.readouterr().out
    text = reproduce(IRIS.variant(num_epochs=2), Settings(out=tmp_path))
    assert text.count("\n") == 5, "a header, a line and four models: the records of the other are not its own"


# --- UCI tables -------------------------------------------------------------------------------------------------------


def by_hand(x, y, num_steps):
    """Eq. (12) with 4e/n in place of 4e, from ones, by torch.optim.Adam on the logarithms."""
    x, n = torch.as_tensor(x), len(x)
    Y = torch.nn.functional.one_hot(torch.as_tensor(y)).double()
    log = torch.zeros(x.shape[1] + 1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([log], lr=0.1)

    def coefficients():
        z = x / log[1:].exp()
        K = torch.exp(-0.5 * torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist").square())
        return K, torch.linalg.solve(K + n * log[0].exp() * torch.eye(n, dtype=x.dtype), Y)

    for _ in range(num_steps - 1):  # the last evaluation is that of the result
        K, V = coefficients()
        risk = -((K @ V) * Y).sum(1).clamp(1e-15, 1.0).log().mean()
        loss = risk + 4 * np.e / n * (V * (K @ V)).sum().sqrt()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    K, V = coefficients()
    P = (K @ V).clamp_min(0.0).detach()
    return (P / P.sum(1, keepdim=True)).numpy()


def test_all_rows_by_hand():
    x, y = load_iris(return_X_y=True)
    x = ((x - x.min(0)) / np.ptp(x, axis=0) + 1e-3 * np.random.default_rng(0).normal(size=x.shape))[::3]
    model = PaperClassifier(num_steps=20).fit(x, y[::3])
    np.testing.assert_allclose(model.predict_proba(x), by_hand(x, y[::3], 20), atol=1e-6)


def test_batches_take_as_many_steps_and_published_rows_have_six_cells():
    x, y = load_iris(return_X_y=True)
    x = (x - x.min(0)) / np.ptp(x, axis=0)
    model = PaperClassifier(batches=10, num_steps=100).fit(x, y)
    assert model.result_.num_evaluations == 100
    assert model.score(x, y) > 0.9
    assert {len(cells) for cells in PUBLISHED.values()} == {6}
    assert PUBLISHED["paper, batches"]["yeast"] == pytest.approx((60.3, 4.4))


# --- Bayesian embeddings ----------------------------------------------------------------------------------------------


matplotlib.use("Agg")


def test_grid_of_gaussians():
    """Maximum at 1.5 ± 0.2, a local one near the median heuristic; 900 points of each, as in the paper."""
    x = torch.cat(grid.grid_samples(ratio=2.0))
    embedding = BayesianMeanEmbedding(RBFKernel())
    maxima = local_maxima(embedding, EmbeddingEvidence(), x, num_points=9, span=(0.5, 40.0), max_evaluations=15)
    lengthscales = [m.parameters["kernel.lengthscale"].item() for m in maxima]
    assert lengthscales[0] == pytest.approx(1.5, abs=0.2)
    assert lengthscales[1] == pytest.approx(float(median_distance(x)), rel=0.25)
    assert float(median_distance(x)) == pytest.approx(20.0, rel=0.1)


def test_points_of_a_component_are_exactly_or_on_average_as_many():
    for random_components in (False, True):
        p, q = grid.grid_samples(2.0, 100, 0, random_components)
        counts = [((sample / grid.SPACING).round().unique(dim=0, return_counts=True)[1]) for sample in (p, q)]
        assert len(p) == len(q) == 900
        assert all((own == 100).all() != random_components for own in counts)


def test_permutations_within_blobs_reject_what_others_do_not():
    """ε = 2, exactly 100 points in each blob of each sample."""
    p, q = grid.grid_samples(2.0)
    assert grid.permuted_within(p, q, seed=0) <= 0.05
    assert grid.TESTS["lengthscale 1.5"](p, q, seed=0).pvalue > 0.05


@pytest.mark.parametrize(("ratio", "lengthscale"), [(2.0, 1.5), (15.0, 20.0)])
def test_the_highest_maximum_of_the_evidence_is_the_long_one_where_blobs_differ_much(ratio, lengthscale):
    kernel = grid.highest_maximum(torch.cat(grid.grid_samples(ratio, seed=1)))
    assert kernel.lengthscale.item() == pytest.approx(lengthscale, rel=0.15)


def test_normal_against_laplace():
    x = torch.cat(mixtures.mixture_samples())
    maxima = local_maxima(mixtures.model(), EmbeddingEvidence(), x, num_points=30, span=(0.2, 8.0))
    modes = sorted((m.parameters["kernel.lengthscale"].item(), m.value) for m in maxima)
    assert [lengthscale for lengthscale, _ in modes] == pytest.approx([0.5, 2.9], rel=0.05)
    assert modes[1][1] - modes[0][1] == pytest.approx(211, abs=5)


def test_mixtures_have_equal_moments():
    points = torch.linspace(-12, 12, 24001, dtype=torch.float64)
    step = points[1] - points[0]
    for density in mixtures.densities(points):
        assert (density.sum() * step).item() == pytest.approx(1.0, abs=1e-3)
        assert ((density * points.square()).sum() * step).item() == pytest.approx(7.0, abs=1e-2)


def test_every_picture_is_drawn(tmp_path, capsys):
    before = matplotlib.pyplot.get_fignums()
    for name in ("two-sample", "witness"):
        assert main(["reproduce", name, "--quick", "--out", str(tmp_path)]) == 0
    for name in ("figure1", "figure2", "figure3", "figure4", "figure5", "figure5_posterior"):
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
    assert "grid of Gaussians" in capsys.readouterr().out
    records = json.loads((tmp_path / "results.json").read_text())
    assert {record["experiment"] for record in records} == {"grid", "mixtures", "chains"}
    assert matplotlib.pyplot.get_fignums() == before


def test_the_page_of_results_lists_every_part_of_the_papers_with_a_command_that_exists():
    page = (pathlib.Path(__file__).parents[3] / "docs" / "replication" / "results.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith(("| Figure", "| Table"))]
    parts = " ".join(row[0].split(",")[0] for row in rows)
    for part in [*(f"Figure {i}" for i in range(1, 7)), "Table 1", "Table 2"]:
        assert part in parts
    commands = re.findall(r"`kernel-embed reproduce ([\w-]+)", page)
    assert set(commands) == {name for name, experiment in EXPERIMENTS.items() if experiment.paper}
    methods = re.findall(r'"([^"]+)"', " ".join(row[1] for row in rows))
    assert set(methods) <= set(LEARNERS)
