"""Calibrated embeddings give the probabilities of the classifier, with a band."""

import gpytorch
import numpy as np
import pytest
import torch

import kernel_embed as ke
from kernel_embed.objectives import calibrate


@pytest.fixture
def conditioned():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 2, dtype=torch.float64, generator=generator)
    y = (x[:, 0] + 0.5 * torch.randn(60, dtype=torch.float64, generator=generator) > 0).long() + (x[:, 1] > 1).long()
    return ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel().double(), 3, 0.01).condition(x, y)


def test_probabilities_are_those_of_the_calibration(conditioned):
    calibrated = conditioned.calibrated()
    calibration = calibrate(conditioned.leave_one_out(), conditioned.Y)
    x = conditioned.x[:7] + 0.1
    torch.testing.assert_close(calibrated.probabilities(x), calibration.probabilities(conditioned.mean(x)))
    torch.testing.assert_close(calibrated.leave_one_out(), calibration.probabilities(conditioned.leave_one_out()))
    assert torch.equal(calibrated.predict(x), calibrated.probabilities(x).argmax(-1))


def test_probabilities_are_those_of_the_classifier(conditioned):
    x, y = conditioned.x.numpy(), conditioned.y.numpy()
    classifier = ke.MulticlassEmbeddingClassifier(gpytorch.kernels.RBFKernel().double(), max_evaluations=5).fit(x, y)
    calibrated = classifier.conditioned_.calibrated()
    np.testing.assert_allclose(
        calibrated.probabilities(torch.as_tensor(x[:5])).numpy(), classifier.predict_proba(x[:5]), rtol=1e-8
    )


def test_the_band_is_that_of_a_gaussian_process_by_loops(conditioned):
    """20,000 draws each way: limits agree to 0.02, about four standard errors of a quantile."""
    calibrated = conditioned.calibrated()
    points = torch.tensor([[0.3, -0.2], [2.5, 2.5]], dtype=torch.float64)
    lower, upper = calibrated.band(points, coverage=0.8, num_draws=20_000)
    K = conditioned.K.numpy()
    A = K + 60 * 0.01 * np.eye(60)
    Y, rng = conditioned.Y.numpy(), np.random.default_rng(5)
    for i, point in enumerate(points.numpy()):
        squared = ((conditioned.x.numpy() - point) ** 2).sum(1)
        k = np.exp(-0.5 * squared / conditioned.embedding.kernel.lengthscale.item() ** 2)
        v = 1.0 - k @ np.linalg.solve(A, k)
        s = np.sqrt(v * np.array([Y[:, c] @ np.linalg.solve(A, Y[:, c]) / 60 for c in range(3)]))
        draws = k @ np.linalg.solve(A, Y) + s * rng.standard_normal((20_000, 3))
        p = calibrated.calibration.probabilities(torch.as_tensor(draws)).numpy()
        np.testing.assert_allclose(lower[i], np.quantile(p, 0.1, axis=0), atol=0.02)
        np.testing.assert_allclose(upper[i], np.quantile(p, 0.9, axis=0), atol=0.02)


def test_a_band_is_wider_where_no_data_are(conditioned):
    lower, upper = conditioned.calibrated().band(torch.tensor([[0.0, 0.0], [4.0, -4.0]], dtype=torch.float64))
    near, far = (upper - lower).amax(-1)
    assert far > 2 * near
    assert float(lower.min()) >= 0.0
    assert float(upper.max()) <= 1.0


def test_the_spread_through_features_is_the_dense_one():
    x = torch.linspace(-1, 1, 30, dtype=torch.float64).unsqueeze(-1)
    conditioned = ke.MulticlassEmbedding(gpytorch.kernels.LinearKernel().double(), 2).condition(x, (x[:, 0] > 0).long())
    assert conditioned.system.num_features is not None
    A = conditioned.K + conditioned.system.ridge * torch.eye(30, dtype=torch.float64)
    k = conditioned.K[:, :3]
    v = conditioned.K.diagonal()[:3] - (k * torch.linalg.solve(A, k)).sum(0)
    scale = (conditioned.Y * torch.linalg.solve(A, conditioned.Y)).sum(0) / 30
    spread = conditioned.calibrated()._spread(x[:3])
    torch.testing.assert_close(spread, (v.unsqueeze(-1) * scale).sqrt(), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(
    "setting", [{"coverage": 1.0}, {"coverage": 0.0}, {"coverage": "0.9"}, {"num_draws": 0}, {"seed": 1.5}]
)
def test_wrong_settings_are_named(conditioned, setting):
    with pytest.raises((ValueError, TypeError), match="Expected"):
        conditioned.calibrated().band(conditioned.x[:2], **setting)
