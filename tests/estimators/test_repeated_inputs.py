"""Predictions at inputs that occur in training."""

import numpy as np
import pytest

import kernel_embed as ke


def simulated(num_rows=150, share=0.3, num_new=400, agree=True, seed=0):
    """Rows of a noisy problem of which a share are copies of others; new rows, and which of them are copies."""
    generator = np.random.default_rng(seed)

    def draw(n):
        X = generator.normal(size=(n, 2))
        return X, (X[:, 0] + generator.normal(size=n) > 0).astype(int)

    X, y = draw(num_rows)
    again = generator.choice(num_rows, int(share * num_rows), replace=False)
    new_labels = y[again] if agree else generator.permutation(y[again])
    X, y = np.r_[X, X[again]], np.r_[y, new_labels]
    X_new, y_new = draw(num_new)
    copied = generator.random(num_new) < share
    of = generator.integers(num_rows, size=num_new)
    X_new[copied], y_new[copied] = X[of[copied]], y[of[copied]]
    return X, y, X_new, y_new, copied


def fitted(X, y, **options):
    return ke.MulticlassEmbeddingClassifier(random_state=0).fit(X, y, **options)


def nll(p, y):
    return -np.log(p[np.arange(len(y)), y]).mean()


@pytest.fixture(scope="module")
def copies():
    data = simulated()
    return data, fitted(*data[:2])


def test_copies_of_training_rows_are_predicted_better_and_other_rows_as_before(copies):
    (_, _, X_new, y_new, copied), classifier = copies
    p = classifier.predict_proba(X_new)
    repeats, classifier.conditioned_.repeats = classifier.conditioned_.repeats, None
    plain = classifier.predict_proba(X_new)
    classifier.conditioned_.repeats = repeats
    np.testing.assert_array_equal(p[~copied], plain[~copied])
    assert nll(p[copied], y_new[copied]) < 0.3 * nll(plain[copied], y_new[copied])
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)


def test_the_weight_maximizes_the_likelihood_of_the_repeated_rows(copies):
    (X, y, *_), classifier = copies
    pooled, table = classifier.conditioned_, classifier._table
    left_out = dict(zip(pooled.left_out_rows.tolist(), pooled.left_out.exp().tolist(), strict=True))
    by_inputs: dict[bytes, list[int]] = {}
    for row, label in zip(X, y, strict=True):
        by_inputs.setdefault(row.tobytes(), []).append(int(label))
    p_of = {
        classifier.encoder_.transform(np.frombuffer(key).reshape(1, -1)).tobytes(): labels
        for key, labels in by_inputs.items()
        if len(labels) > 1
    }

    def log_likelihood(rho):
        value = np.log1p(-rho)
        for i, x in enumerate(table.x.numpy()):
            labels = p_of.get(x.tobytes(), [])
            own, m = labels.count(int(table.labels[i])), len(labels)
            if m > 1:
                p = (1 - rho) * left_out[i][int(table.labels[i])] + rho * (own - 1) / (m - 1)
                value += (m - 1) / m * own * np.log(p)
        return value

    rho = pooled.repeats.weight
    best = max(np.linspace(0.0, 0.999, 1000), key=log_likelihood)
    assert rho == pytest.approx(best, abs=2e-3)
    assert rho > 0.8


def test_without_information_nothing_is_looked_up():
    X, y, *_ = simulated(share=0.0)
    assert fitted(X, y).conditioned_.repeats is None
    assert fitted(np.r_[X, X], np.r_[y, y]).conditioned_.repeats is None, "every row is there twice"
    balanced = ke.MulticlassEmbeddingClassifier(random_state=0, class_weight={0: 1, 1: 2}).fit(X, y)
    assert balanced.conditioned_.repeats is None, "a weight of a class is no count of copies"
    X, y, *_ = simulated(agree=False)
    repeats = fitted(X, y).conditioned_.repeats
    assert repeats is None or repeats.weight < 0.2, "labels of copies are independent"
    X, y, *_ = simulated()
    assert fitted(X, y, groups=np.arange(len(y)) // 2).conditioned_.repeats is None


def test_weights_count_as_copies_and_files_keep_them(copies, tmp_path):
    (X, y, X_new, *_), classifier = copies
    rows, counts = np.unique(np.c_[X, y], axis=0, return_counts=True)
    weighted = fitted(rows[:, :2], rows[:, 2].astype(int), sample_weight=counts)
    np.testing.assert_allclose(weighted.predict_proba(X_new), classifier.predict_proba(X_new), atol=1e-8)
    ke.save(classifier, tmp_path / "model.ke")
    np.testing.assert_array_equal(ke.load(tmp_path / "model.ke").predict_proba(X_new), classifier.predict_proba(X_new))
