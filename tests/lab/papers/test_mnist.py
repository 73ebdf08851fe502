"""MNIST: the two heads, and short runs of both experiments on images of its shape."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from kernel_embed.lab.papers import EXPERIMENTS, Settings, reproduce
from kernel_embed.lab.papers import hsu2018_mnist as mnist
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


def test_both_heads_start_from_the_same_network():
    cen, softmax = (mnist.Head(name, 3, 0.01) for name in ("cen", "softmax"))
    for one, other in zip(cen.module.kernel.feature_map.parameters(), softmax.module[0].parameters(), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(ValueError, match="Unknown head"):
        mnist.Head("svm", 0, 0.01)


def test_mnist_runs_resumes_and_draws(tiny_mnist, tmp_path):
    out = tmp_path / "out"
    experiment = EXPERIMENTS["mnist-cen"].variant(batch_size=120)
    whole = Results(None, experiment.key)
    reproduce(experiment, Settings(data=tiny_mnist, epochs=2), whole)
    for epochs in (1, 2):
        text = reproduce(experiment, Settings(data=tiny_mnist, out=out, epochs=epochs))
    parts = Results(out / "results.json", experiment.key)
    assert len(parts.records) == len(whole.records) == 4
    for one, other in zip(parts.records, whole.records, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-4)
    assert (out / "figure2_right.png").stat().st_size > 1000
    assert "of 2 epochs" in text


def test_pixels_run_and_draw(tiny_mnist, tmp_path):
    text = reproduce(EXPERIMENTS["mnist-pixels"], Settings(data=tiny_mnist, out=tmp_path / "out", quick=True))
    records = Results(tmp_path / "out" / "results.json", EXPERIMENTS["mnist-pixels"].key).records
    assert [record["method"] for record in records] == ["ard + rademacher", "svc"]
    assert records[0]["test_accuracy"] > 50
    assert (tmp_path / "out" / "pixels_ard_+_rademacher_100.png").exists()
    assert "svc" in text


def test_missing_images_are_explained(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="train-images"):
        mnist.load_mnist(tmp_path)
    monkeypatch.delenv("KERNEL_EMBED_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="Give the directory that holds mnist/"):
        mnist.load_mnist()
