"""The study of rejections, the registered test, and the pictures."""

from __future__ import annotations

import json
import os

import matplotlib.pyplot
import numpy as np
import pytest
import torch

import kernel_embed as ke
from kernel_embed.cli import main
from kernel_embed.lab.papers.flaxman2016 import graphs, levels, ozone, type_two

matplotlib.use("Agg")
needs_data = pytest.mark.skipif("KERNEL_EMBED_DATA" not in os.environ, reason="KERNEL_EMBED_DATA is not set")


def simulator(repetition):
    x, y = torch.randn(2, 20, 1, generator=torch.Generator().manual_seed(repetition), dtype=torch.float64)
    return x, y


def median(x, y, seed):
    return ke.two_sample_test(x, y, "median", 19, seed)


def test_level_of_the_learned_kernel():
    """200 null data sets of three clusters: a rate outside 99.99 % of the binomial distribution is a fault."""
    study = ke.hypothesis.rejection_study(
        {"learned": lambda x, y, seed: ke.two_sample_test(x, y, None, 39, seed)},
        {"null": lambda repetition: levels.samples(repetition, 2, n=12, d=1)},
        200,
    )
    low, high = study.interval("null", "learned", 0.9999)
    assert low <= study.rate("null", "learned") <= high
    assert study.uniformity("null", "learned", 39) > 1e-4


def test_level_of_learned_pairs():
    study = ke.hypothesis.rejection_study(
        {"learned": lambda x, y, seed: ke.independence_test(x, y, None, 39, seed)}, {"null": levels.independent}, 100
    )
    low, high = study.interval("null", "learned", 0.9999)
    assert low <= study.rate("null", "learned") <= high


def test_an_interrupted_study_goes_on(tmp_path):
    calls = []

    def counted(x, y, seed):
        calls.append(seed)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return median(x, y, seed)

    path = tmp_path / "results.json"
    with pytest.raises(KeyboardInterrupt):
        ke.hypothesis.rejection_study({"median": counted}, {"null": simulator}, 6, path=path)
    assert len(json.loads(path.read_text())) == 3, "what was finished is kept"
    study = ke.hypothesis.rejection_study({"median": counted}, {"null": simulator}, 6, path=path)
    assert calls == [0, 1, 2, 3, 3, 4, 5]
    whole = ke.hypothesis.rejection_study({"median": median}, {"null": simulator}, 6)
    assert np.array_equal(study.pvalues("null", "median"), whole.pvalues("null", "median"))
    assert "median" in study.table()
    with pytest.raises(KeyError, match="No test 'mean'"):
        study.pvalues("null", "mean")
    with pytest.raises(ValueError, match="Expected num_repetitions"):
        ke.hypothesis.rejection_study({"median": median}, {"null": simulator}, 0)


def test_differences_are_paired():
    tests = {"always": lambda x, y, seed: 0.01, "even": lambda x, y, seed: 0.01 if seed % 2 == 0 else 0.5}
    study = ke.hypothesis.rejection_study(tests, {"null": simulator}, 10)
    gap, error = study.difference("null", "always", "even")
    assert gap == 0.5
    assert error == pytest.approx(np.std([0, 1] * 5, ddof=1) / np.sqrt(10))
    assert study.standard_error("null", "always") == 0.0


def test_the_registered_test_finds_the_chain():
    """x → y → z: x and z are separated by y, and by nothing else."""
    cit = pytest.importorskip("causallearn.utils.cit")
    generator = torch.Generator().manual_seed(0)
    e = torch.randn(150, 3, generator=generator, dtype=torch.float64)
    y = e[:, 0] + 0.5 * e[:, 1]
    data = torch.stack([e[:, 0], y, torch.tanh(2 * y) + 0.5 * e[:, 2]], dim=1).numpy()
    name = ke.hypothesis.register_causal_test(seed=0, num_permutations=200)
    test = cit.CIT(data, name)
    assert test(0, 2) < 0.05
    assert test(0, 2, [1]) > 0.05
    assert test(0, 1, [2]) < 0.05
    assert test(2, 0, [1]) == test(0, 2, [1])
    own = ke.conditional_independence_test(*(torch.as_tensor(data[:, [j]]) for j in (0, 2, 1)), seed=0)
    assert own.pvalue == pytest.approx(test(0, 2, [1]), abs=0.1)


def test_pictures():
    x, y = simulator(0)
    result = ke.two_sample_test(x, y + 2, seed=0)
    ax = result.plot()
    assert any("p = " in text.get_text() for text in ax.get_legend().get_texts())
    witness = result.witness()(torch.tensor([[0.0], [2.0]], dtype=torch.float64)).mean
    assert witness[0] > 0 > witness[1]
    assert repr(result).startswith("<two-sample test (n = 20, 20): p = ")
    assert ke.independence_test(x, y, seed=0).plot() is not None
    matplotlib.pyplot.close("all")


def test_commands(tmp_path, capsys):
    assert main(["reproduce", "type-two", "--quick", "--out", str(tmp_path)]) == 0
    assert "ratio ε" in capsys.readouterr().out
    assert (tmp_path / "figure2c.png").stat().st_size > 1000
    records = json.loads((tmp_path / "results.json").read_text())
    assert len(records) == 2 * 2 * len(type_two.RATIOS)
    assert matplotlib.pyplot.get_fignums() == []


@pytest.mark.data
@needs_data
def test_ozone(tmp_path, capsys):
    pytest.importorskip("causallearn")
    assert main(["reproduce", "ozone", "--quick", "--out", str(tmp_path)]) == 0
    assert "residuals, median" in capsys.readouterr().out
    assert (tmp_path / "ozone.png").stat().st_size > 1000


def test_simulated_graphs(tmp_path, capsys):
    pytest.importorskip("causallearn")
    assert main(["reproduce", "causal-graphs", "--quick", "--out", str(tmp_path)]) == 0
    assert "fisherz" in capsys.readouterr().out
    records = json.loads((tmp_path / "results.json").read_text())
    assert len(records) == 2 * 3
    assert main(["reproduce", "causal-graphs", "--methods", "none", "--out", str(tmp_path)]) == 2


def test_the_class_of_a_graph_keeps_colliders_alone():
    """1 → 3 ← 2 is told from data; 1 → 2 is not."""
    pytest.importorskip("causallearn")
    arrows = np.zeros((3, 3), dtype=int)
    arrows[0, 2] = arrows[1, 2] = 1
    collider = graphs.equivalence_class(arrows)
    assert collider.tolist() == [[0, 0, -1], [0, 0, -1], [1, 1, 0]]
    chain = graphs.equivalence_class(np.array([[0, 1], [0, 0]]))
    assert chain.tolist() == [[0, -1], [-1, 0]]
    assert graphs.distances(collider, collider)["shd"] == 0


def test_marks_of_a_graph():
    graph = np.zeros((9, 9), dtype=int)
    graph[3, 8], graph[8, 3] = -1, 1
    graph[1, 2] = graph[2, 1] = -1
    assert ozone.edges(graph) == [("Wind", "–", "Hum"), ("Temp", "→", "Ozone")]
