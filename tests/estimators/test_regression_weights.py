"""Sample weights, repeated rows and groups of the regressor."""

import numpy as np
import pytest
import torch

import kernel_embed as ke
from kernel_embed.estimators import output


def sample(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 3))
    return X, np.sin(5 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)


X, Y = sample(60, 0)
X_NEW, Y_NEW = sample(500, 1)


def fit(X, y, settings=(), **rows):
    regressor = ke.ConditionalEmbeddingRegressor(max_evaluations=15, random_state=0, progress=False, **dict(settings))
    return regressor.fit(X, y, **rows)


def crps(regressor):
    (distribution,) = regressor.distribution(X_NEW)
    return float(distribution.crps(torch.as_tensor(Y_NEW)).mean())


def predictions(regressor):
    return np.c_[regressor.predict(X_NEW[:50]), regressor.predict_interval(X_NEW[:50])]


@pytest.fixture(scope="module")
def plain():
    return fit(X, Y)


def test_only_ratios_of_weights_matter_and_copies_are_weights(plain):
    heavy = fit(X, Y, sample_weight=np.full(60, 2.0))
    np.testing.assert_allclose(predictions(heavy), predictions(plain), atol=1e-10)
    twice = fit(np.r_[X, X], np.r_[Y, Y])
    np.testing.assert_allclose(predictions(twice), predictions(plain), atol=1e-10)
    w = np.random.default_rng(0).integers(1, 4, 60)
    rows = np.repeat(np.arange(60), w)
    np.testing.assert_allclose(
        predictions(fit(X, Y, sample_weight=0.3 * w)), predictions(fit(X[rows], Y[rows])), atol=1e-10
    )


def test_near_copies_in_groups_hardly_change_the_score(plain):
    near = np.repeat(X, 4, axis=0) + 1e-4 * np.random.default_rng(4).normal(size=(240, 3))
    y = np.repeat(Y, 4) + 1e-4 * np.random.default_rng(5).normal(size=240)
    alone, grouped = fit(near, y), fit(near, y, groups=np.repeat(np.arange(60), 4))
    assert crps(grouped) < crps(plain) + 0.02
    assert crps(grouped) < crps(alone) - 0.01


def test_repeated_doses_are_learned_from():
    rng = np.random.default_rng(2)
    dose = np.repeat(np.arange(4.0), 15)
    y = np.array([0.0, 3.0, 1.0, 5.0])[dose.astype(int)] + 0.3 * rng.normal(size=60)
    kinds = np.array([f"dose {value:.0f}" for value in dose], dtype=object)[:, None]
    means = [y[dose == value].mean() for value in range(4)]
    new = np.array([f"dose {value}" for value in range(4)], dtype=object)[:, None]
    np.testing.assert_allclose(fit(kinds, y).predict(new), means, atol=0.4)


@pytest.mark.parametrize("kind", ["copies", "groups"])
def test_a_split_divides_neither_copies_nor_groups(kind, monkeypatch):
    held_out_rows, seen = output.held_out_rows, []

    def recorded(n, settings, places):
        seen.append((places, *held_out_rows(n, settings, places)))
        return seen[-1][1:]

    monkeypatch.setattr(output, "held_out_rows", recorded)
    split, number = {"conformal": "split"}, np.arange(120) % 60
    twice = (np.r_[X, X], np.r_[Y, Y]) if kind == "copies" else (np.r_[X, X + 0.01], np.r_[Y, Y])
    regressor = fit(*twice, split, groups=None if kind == "copies" else number)
    (places, held_out, training) = seen[0]
    assert len(held_out) == 30
    assert not set(places[held_out]) & set(places[training])
    assert not regressor.outputs_[0].certified


def test_beyond_exact_sizes_groups_are_left_out_through_features():
    number = np.random.default_rng(0).integers(0, 20, 60)
    settings = {"max_rows": 40, "num_features": 20, "conformal": "leave-one-out"}
    regressor = fit(X, Y, settings, groups=number)
    assert np.isfinite(predictions(regressor)).all()
    assert crps(regressor) < 0.3
