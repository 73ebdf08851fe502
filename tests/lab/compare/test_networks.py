"""The networks of the paper: their first weights, and a classifier that learns them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernel_embed.lab.compare.embedding_classifiers import (
    CEN_1,
    CEN_2,
    NetworkClassifier,
    paper_initialization,
    perceptron,
)


def test_initialization_is_the_papers():
    network = perceptron(5, CEN_2)
    paper_initialization(network, torch.Generator().manual_seed(0))
    assert (network[0].bias == 0.1).all()
    assert network[2].weight.abs().max() <= 0.2
    assert network[2].weight.std().item() == pytest.approx(0.088, abs=0.005)  # 0.1, cut off at two deviations


@pytest.mark.parametrize("objective", ["leave-one-out", "paper"])
def test_a_network_classifier_learns(objective, problem):
    classifier = NetworkClassifier(CEN_1, objective, num_epochs=60, learning_rate=0.02)
    labels = np.array(["a", "b", "c"])[problem.y.numpy()]
    classifier.fit(problem.x.numpy(), labels)
    assert classifier.predict_proba(problem.query.numpy()).sum(axis=1) == pytest.approx(np.ones(7))
    assert set(classifier.predict(problem.x.numpy())) <= {"a", "b", "c"}
    assert classifier.result_.value < classifier.result_.history[0]["value"]
