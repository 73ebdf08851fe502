"""Slow reference implementations in NumPy, written as loops from the paper's formulas and from nothing else.

Every function takes plain arrays. A kernel is a Python function of two points.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from scipy import optimize, stats
from torch import Tensor

Array = NDArray[np.float64]
KernelFunction = Callable[[Array, Array], float]


def distance(a: Array, b: Array, lengthscale: float | Array) -> float:
    """‖(a − b) / ℓ‖."""
    scales = np.broadcast_to(np.asarray(lengthscale, dtype=float).reshape(-1), a.shape)
    total = 0.0
    for i in range(len(a)):
        total += ((a[i] - b[i]) / scales[i]) ** 2
    return math.sqrt(total)


def rbf(lengthscale: float | Array) -> KernelFunction:
    return lambda a, b: math.exp(-0.5 * distance(a, b, lengthscale) ** 2)


def matern(nu: float, lengthscale: float | Array) -> KernelFunction:
    def k(a: Array, b: Array) -> float:
        r = math.sqrt(2.0 * nu) * distance(a, b, lengthscale)
        polynomial = {0.5: 1.0, 1.5: 1.0 + r, 2.5: 1.0 + r + r * r / 3.0}[nu]
        return polynomial * math.exp(-r)

    return k


def delta(a: Array, b: Array) -> float:
    """The Kronecker delta."""
    return float(np.array_equal(a, b))


def gram(k: KernelFunction, x1: Array, x2: Array | None = None) -> Array:
    """K_ij = k(x1_i, x2_j)."""
    x2 = x1 if x2 is None else x2
    K = np.empty((len(x1), len(x2)))
    for i in range(len(x1)):
        for j in range(len(x2)):
            K[i, j] = k(x1[i], x2[j])
    return K


def median_distance(x: Array) -> float:
    """median_{i<j} ‖x_i − x_j‖."""
    return float(np.median([distance(x[i], x[j], 1.0) for i in range(len(x)) for j in range(i)]))


def one_hot(y: NDArray[np.int64], m: int) -> Array:
    Y = np.zeros((len(y), m))
    for i in range(len(y)):
        Y[i, y[i]] = 1.0
    return Y


def ridge_matrix(K: Array, lam: float) -> Array:
    """A = K + nλI."""
    return K + len(K) * lam * np.eye(len(K))


def coefficients(K: Array, Y: Array, lam: float) -> Array:
    """V = A⁻¹Y, column by column."""
    A = ridge_matrix(K, lam)
    return np.column_stack([np.linalg.solve(A, Y[:, c]) for c in range(Y.shape[1])])


def expectation(K: Array, k_x: Array, g: Array, lam: float) -> float:
    """Eq. (2): gᵀ(K + nλI)⁻¹k(x) for one point and values g at the training targets."""
    return float(g @ np.linalg.inv(ridge_matrix(K, lam)) @ k_x)


def decision_probabilities(K: Array, K_x: Array, y: NDArray[np.int64], m: int, lam: float) -> Array:
    """Eqs. (4), (5): one expectation of an indicator for each point and class. ``K_x`` has rows k(x_t, x_i)."""
    F = np.empty((len(K_x), m))
    for t in range(len(K_x)):
        for c in range(m):
            F[t, c] = expectation(K, K_x[t], np.array([1.0 if label == c else 0.0 for label in y]), lam)
    return F


def clip_normalized(F: Array) -> Array:
    """Eq. (6)."""
    P = np.empty_like(F)
    for t in range(len(F)):
        total = sum(max(f, 0.0) for f in F[t])
        for c in range(F.shape[1]):
            P[t, c] = max(F[t, c], 0.0) / total
    return P


def clip_normalized_entropy(F: Array) -> Array:
    """Eq. (33)."""
    return np.array([-sum(p * math.log(p) for p in row if p > 0.0) for row in clip_normalized(F)])


def expected_information(K: Array, K_x: Array, y: NDArray[np.int64], m: int, lam: float) -> Array:
    """Eqs. (36), (37): û_xᵀ(K + nλI)⁻¹k(x), with û_x at the training labels."""
    F = decision_probabilities(K, K_x, y, m, lam)
    h = np.empty(len(K_x))
    for t in range(len(K_x)):
        u = np.array([-math.log(F[t, label]) if F[t, label] > 0.0 else 0.0 for label in y])
        h[t] = expectation(K, K_x[t], u, lam)
    return h


def leave_one_out(K: Array, Y: Array, lam: float) -> Array:
    """n refits, each without row i and with the ridge nλ of the whole data."""
    n = len(K)
    F = np.empty_like(Y)
    for i in range(n):
        rest = [j for j in range(n) if j != i]
        A = K[np.ix_(rest, rest)] + n * lam * np.eye(n - 1)
        F[i] = K[i, rest] @ np.linalg.solve(A, Y[rest])
    return F


def clipped_cross_entropy(F: Array, y: NDArray[np.int64], epsilon: float) -> float:
    """The mean over data of eq. (7)."""
    return sum(-math.log(min(max(F[i, y[i]], epsilon), 1.0)) for i in range(len(y))) / len(y)


def rademacher_complexity(K: Array, Y: Array, lam: float, sup: float) -> float:
    """r of Theorem 4: √(trace(VᵀKV) sup k(x, x))."""
    V = coefficients(K, Y, lam)
    trace = sum(V[:, c] @ K @ V[:, c] for c in range(Y.shape[1]))
    return math.sqrt(trace * sup)


def batch_validation(
    K: Array,
    y: NDArray[np.int64],
    m: int,
    lam: float,
    training: NDArray[np.int64],
    validation: NDArray[np.int64],
    tau: float,
    sup: float,
    epsilon: float,
) -> float:
    """Eq. (13)."""
    K_T = K[np.ix_(training, training)]
    F = decision_probabilities(K_T, K[np.ix_(validation, training)], y[training], m, lam)
    complexity = rademacher_complexity(K_T, one_hot(y[training], m), lam, sup)
    return clipped_cross_entropy(F, y[validation], epsilon) + tau * complexity


def validation_objective(
    K: Array, L: Array, lam: float, folds: list[tuple[NDArray[np.int64], NDArray[np.int64]]], norm_penalty: bool
) -> float:
    """(1/J) Σ_j ‖l(y_j, ·) − Û k(x_j, ·)‖² over held-out points j, with Song's λ‖Û‖²_HS or without.

    ``L`` is the Gram matrix of the target kernel; ``folds`` holds (training, held-out) pairs. With the penalty each
    held-out point is charged that of the operator which predicts it.
    """
    total = 0.0
    for training, held_out in folds:
        A_inverse = np.linalg.inv(ridge_matrix(K[np.ix_(training, training)], lam))
        squared_norm = 0.0
        # Û = Σ_ab [A⁻¹]_ab l(y_a, ·) ⊗ k(x_b, ·), so ‖Û‖² = Σ_abcd [A⁻¹]_ab [A⁻¹]_cd l(y_a, y_c) k(x_b, x_d)
        L_T, K_T = L[np.ix_(training, training)], K[np.ix_(training, training)]
        for a in range(len(training)):
            for c in range(len(training)):
                squared_norm += L_T[a, c] * (A_inverse[a] @ K_T @ A_inverse[c])
        for j in held_out:
            w = A_inverse @ K[training, j]
            total += L[j, j]
            for a, i in enumerate(training):
                total -= 2.0 * w[a] * L[i, j]
                for c, k in enumerate(training):
                    total += w[a] * w[c] * L[i, k]
            if norm_penalty:
                total += lam * squared_norm
    return total / sum(len(held_out) for _, held_out in folds)


def negative_log_evidence(K: Array, Y: Array, lam: float) -> float:
    """−Σ_c log N(Y_c; 0, K + nλI)."""
    A = ridge_matrix(K, lam)
    return -sum(stats.multivariate_normal.logpdf(Y[:, c], np.zeros(len(K)), A) for c in range(Y.shape[1]))


def bound(empirical_risk: float, r: float, n: int, beta: float, tight: bool) -> float:
    """The right-hand side of eq. (11); the tight form has 1/√n with the complexity."""
    rate = 4.0 * math.e / (math.sqrt(n) if tight else 1.0)
    return empirical_risk + rate * r + math.sqrt(8.0 / n * math.log(2.0 / beta))


def calibrated_risk(F: Array, Y: Array, penalty: float) -> tuple[float, Array]:
    """min over a, a' ≥ 0 and b of −(1/n) Σ T log softmax(aH + a'g(H) + b) + κ/(2n) ‖b‖², and the minimizer.

    H = ½ + tanh(F − ½), g(h) = log log(1 + exp(h/0.1)), T = (nY + 1/m)/(n + 1).
    """
    F = np.array([[0.5 + math.tanh(f - 0.5) for f in row] for row in F])
    n, m = F.shape
    T = (n * Y + 1.0 / m) / (n + 1.0)
    G = np.array([[math.log(math.log1p(math.exp(f / 0.1))) for f in row] for row in F])

    def q(u: Array) -> tuple[float, Array]:
        value = 0.5 * penalty / n * float(u[2:] @ u[2:])
        gradient = np.concatenate([[0.0, 0.0], penalty / n * u[2:]])
        for i in range(n):
            score = u[0] * F[i] + u[1] * G[i] + u[2:]
            log_p = score - score.max() - math.log(np.exp(score - score.max()).sum())
            value -= float(T[i] @ log_p) / n
            residual = (np.exp(log_p) - T[i]) / n
            gradient += np.concatenate([[residual @ F[i], residual @ G[i]], residual])
        return value, gradient

    bounds = [(0.0, None)] * 2 + [(None, None)] * m
    options = {"ftol": 1e-16, "gtol": 1e-11, "maxiter": 5000, "maxfun": 20000}
    answer = optimize.minimize(q, np.zeros(m + 2), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return float(answer.fun), answer.x


def evidence(x: Array, lengthscale: Array, noise: float) -> float:
    """log p(x | θ) of eq. (13) for the squared exponential, by loops."""
    (n, D), k, wide = x.shape, rbf(lengthscale), rbf(math.sqrt(2.0) * lengthscale)
    mu = np.array([sum(k(x[j], x[i]) for j in range(n)) / n for i in range(n)])
    size = math.pi ** (D / 2) * float(np.prod(lengthscale))
    R = np.array([[size * wide(a, b) for b in x] for a in x])  # eq. (25)
    A = R + noise * np.eye(n)
    value = -0.5 * mu @ np.linalg.solve(A, mu) - 0.5 * np.linalg.slogdet(A)[1] - 0.5 * n * math.log(2 * math.pi)
    for i in range(n):  # eq. (12)
        slope = sum(k(x[j], x[i]) * (x[j] - x[i]) / lengthscale**2 for j in range(n)) / n
        value += 0.5 * math.log(float((slope**2).sum()))
    return float(value)


def evidence_gradient(x: Array, lengthscale: Array, noise: float) -> Array:
    """∂ log p / ∂ℓ by appendix A.5.1, its θ^(q) = ℓ_q², term by term."""
    n, D = x.shape
    theta = lengthscale**2
    k = np.array([[rbf(lengthscale)(a, b) for b in x] for a in x])
    r = math.pi ** (D / 2) * math.sqrt(float(np.prod(theta))) * np.sqrt(k)
    mu, A = k.mean(axis=0), r + noise * np.eye(n)
    inverse = np.linalg.inv(A)
    gradient = np.zeros(D)
    for q in range(D):
        square = (x[:, None, q] - x[None, :, q]) ** 2
        dR = 0.5 * r * (square / (2 * theta[q] ** 2) + 1 / theta[q])
        dmu = (k * square / theta[q] ** 2).sum(axis=0) / (2 * n)
        normal = -dmu @ inverse @ mu + 0.5 * mu @ inverse @ dR @ inverse @ mu - 0.5 * np.trace(inverse @ dR)
        jacobian = 0.0
        for j in range(n):
            slopes = np.array([(k[:, j] * (x[:, d] - x[j, d]) / theta[d]).sum() / n for d in range(D)])
            changes = []
            for d in range(D):
                difference = (x[:, d] - x[j, d]) / theta[d]
                change = (k[:, j] * difference * (x[:, q] - x[j, q]) ** 2 / (2 * theta[q] ** 2)).sum() / n
                if d == q:
                    change -= (k[:, j] * (x[:, d] - x[j, d]) / theta[d] ** 2).sum() / n
                changes.append(change)
            jacobian += float(slopes @ np.array(changes) / (slopes @ slopes))
        gradient[q] = (normal + jacobian) * 2 * lengthscale[q]
    return gradient


def smoothed(kernel: Kernel, x: Tensor, precision: float = 0.0, half: float = 30.0, num_points: int = 6001) -> Tensor:
    """r(x_i, x_j) by the trapezoidal rule in one or two dimensions; ν(du) = exp(−½·precision·‖u‖²) du."""
    D = x.shape[-1]
    side = torch.linspace(-half, half, num_points, dtype=x.dtype)
    u = side.unsqueeze(-1) if D == 1 else torch.cartesian_prod(*[side] * D)
    weight = torch.exp(-0.5 * precision * u.square().sum(-1)) * (2 * half / (num_points - 1)) ** D
    K = kernel(x, u).to_dense().detach()
    return (K * weight) @ K.mT
