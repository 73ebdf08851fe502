"""Slow, plain roads to the same numbers: whole linear programs and loops."""

import itertools
import math

import numpy as np
from scipy.optimize import linprog, minimize


def objective_by_loops(grams, y, kernel, point, weight, penalties):
    """F(α), eq. (1), written as published."""
    m = len(y)
    total = 0.0
    for i in range(m):
        f = sum(weight[t] * grams[kernel[t]][i, point[t]] for t in range(len(weight)))
        total += max(0.0, 1.0 - y[i] * f) / m
    return total + sum(penalties[kernel[t]] * abs(weight[t]) for t in range(len(weight)))


def whole_program(grams, y, penalties):
    """Section 5.1's linear program with all its columns, given to SciPy: optimum, α of shape (p, n)."""
    m, p = len(y), len(grams)
    columns = np.hstack(grams) * y[:, None]
    price = np.repeat(penalties, [K.shape[1] for K in grams])
    # Columns are measured in units of their penalty, as different degrees differ by many orders of magnitude.
    columns = columns / price
    n = columns.shape[1]
    cost = np.concatenate([np.ones(2 * n), np.full(m, 1.0 / m)])
    rows = np.hstack([-columns, columns, -np.eye(m)])
    found = linprog(cost, A_ub=rows, b_ub=-np.ones(m), bounds=(0, None), method="highs")
    assert found.status == 0, found.message
    alpha = (found.x[:n] - found.x[n : 2 * n]) / price
    return found.fun, alpha.reshape(p, -1)


def elastic_program(grams, y, penalties, elastic):
    """The dual of the elastic problem, a smooth maximum over a box, given to SciPy: its optimum."""
    m = len(y)
    columns = np.hstack([K / price for K, price in zip(grams, penalties, strict=True)]) * y[:, None]

    def negative(v):
        prices = columns.T @ v / m
        excess = np.maximum(np.abs(prices) - 1.0, 0.0)
        slope = 1.0 - columns @ (np.sign(prices) * excess) / elastic
        return (excess**2).sum() / (2.0 * elastic) - v.mean(), -slope / m

    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-12}
    found = minimize(negative, np.full(m, 0.5), jac=True, bounds=[(0, 1)] * m, method="L-BFGS-B", options=options)
    return -found.fun


def rademacher_by_enumeration(K):
    """The empirical complexity over all 2^m signs."""
    m = len(K)
    total = 0.0
    for signs in itertools.product((-1, 1), repeat=m):
        total += max(abs(sum(signs[i] * K[i, j] for i in range(m))) for j in range(K.shape[1]))
    return total / (m * 2**m)


def edit_distance(a, b):
    """Levenshtein's distance by the textbook table."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (letter != other))
    return row[-1]


def edit_kernel(x, z):
    """exp(−distance / 2) would be tamer; the distance itself is neither positive definite nor near it."""
    return np.array([[float(edit_distance(a, b)) for b in z] for a in x])


def binomial_by_product(n, k):
    return round(math.prod((n + i) / i for i in range(1, k + 1)))
