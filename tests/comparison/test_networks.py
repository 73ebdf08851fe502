"""The networks of the paper: shapes, the two heads, and short runs of the experiments."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from kernel_embed.comparison.networks import CEN_1, CEN_2, NetworkClassifier, paper_initialization, perceptron
from kernel_embed.papers.hsu2018 import mnist, pixels
from kernel_embed.results import Results


@pytest.fixture
def tiny_mnist(tmp_path):
    """Digits of scikit-learn, blown up to 28 × 28, in the files of MNIST."""
    images, labels = load_digits(return_X_y=True)
    images = np.kron(images.reshape(-1, 8, 8), np.ones((1, 3, 3)))
    images = np.pad(images, ((0, 0), (2, 2), (2, 2))) * 15.9
    (tmp_path / "mnist").mkdir()
    for name, rows in (("train", slice(0, 240)), ("t10k", slice(240, 340))):
        for kind, header, content in (("images-idx3", 16, images[rows]), ("labels-idx1", 8, labels[rows])):
            raw = bytes(header) + content.astype(np.uint8).tobytes()
            (tmp_path / "mnist" / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(raw))
    return tmp_path


def test_initialization_is_the_papers():
    network = perceptron(5, CEN_2)
    paper_initialization(network, torch.Generator().manual_seed(0))
    assert (network[0].bias == 0.1).all()
    assert network[2].weight.abs().max() <= 0.2
    assert network[2].weight.std().item() == pytest.approx(0.088, abs=0.005)  # 0.1, cut off at two deviations


def test_both_heads_start_from_the_same_network():
    cen, softmax = (mnist.make_head(name, 3, 0.01) for name in ("cen", "softmax"))
    for one, other in zip(cen.embedding.kernel.feature_map.parameters(), softmax.module[0].parameters(), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(ValueError, match="Expected head"):
        mnist.make_head("svm", 0, 0.01)


def test_mnist_runs_resumes_and_draws(tiny_mnist, tmp_path):
    out = tmp_path / "out"
    settings = {"out": out, "batch_size": 120, "minutes": 5, "progress": False}
    whole = Results(None, mnist.KEY)
    mnist.run(whole, tiny_mnist, epochs=2, **{**settings, "out": None})
    for epochs in (1, 2):
        parts = Results(out / "results.json", mnist.KEY)
        mnist.run(parts, tiny_mnist, epochs=epochs, **settings)
    assert len(parts.records) == len(whole.records) == 4
    for one, other in zip(parts.records, whole.records, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    assert (out / "figure2_right.png").stat().st_size > 1000
    assert "of 2 epochs" in mnist.summary(parts.records)


def test_pixels_run_and_draw(tiny_mnist, tmp_path):
    results = Results(None, pixels.KEY)
    pixels.run(results, tiny_mnist, out=tmp_path / "out", quick=True, progress=False)
    assert [record["method"] for record in results.records] == ["ard + rademacher", "svc"]
    assert results.records[0]["test_accuracy"] > 50
    assert (tmp_path / "out" / "pixels_ard_+_rademacher_100.png").exists()
    assert "svc" in pixels.summary(results.records)


def test_missing_images_are_explained(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="train-images"):
        mnist.load_mnist(tmp_path)
    monkeypatch.delenv("KERNEL_EMBED_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="Expected the directory that holds mnist/"):
        mnist.load_mnist()


@pytest.mark.parametrize("objective", ["leave-one-out", "paper"])
def test_a_network_classifier_learns(objective, problem):
    classifier = NetworkClassifier(CEN_1, objective, num_epochs=60, learning_rate=0.02)
    labels = np.array(["a", "b", "c"])[problem.y.numpy()]
    classifier.fit(problem.x.numpy(), labels)
    assert classifier.predict_proba(problem.query.numpy()).sum(axis=1) == pytest.approx(np.ones(7))
    assert set(classifier.predict(problem.x.numpy())) <= {"a", "b", "c"}
    assert classifier.result_.value < classifier.result_.history[0]["value"]
