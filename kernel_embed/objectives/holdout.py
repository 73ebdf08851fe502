r"""Bounds from held-out rows: for one model, for the best of J, and for a Gibbs posterior over J.

For m losses in [0, 1] of a function chosen without their rows, with mean :math:`\hat R` and sample variance
:math:`\hat V`, each with probability at least :math:`1 - \delta`,

.. math::
    R &\le \hat R + \sqrt{\tfrac{1}{2m} \log \tfrac1\delta}                                    & \text{(Hoeffding)} \\
    R &\le \hat R + \sqrt{\tfrac{2 \hat V}{m} \log \tfrac2\delta} + \frac{7}{3(m - 1)} \log \tfrac2\delta
                                                                       & \text{(empirical Bernstein)} \\
    \operatorname{kl}\big(\mathbb E_Q \hat R \,\Vert\, \mathbb E_Q R\big) &\le
        \frac{\operatorname{KL}(Q \Vert P) + \log \frac{2 \sqrt m}\delta}{m} \quad\text{for all } Q
                                                                                          & \text{(PAC-Bayes-kl)}

(Maurer and Pontil 2009; Maurer 2004). In the third P is fixed without the rows, and a function drawn from Q has risk R.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..bounds import Bound, check_confidence
from ..validation import check_at_least, check_count, check_finite, check_tensor

LOSS = "the one whose values were given, in [0, 1]"
HELD_OUT = (
    "independent rows that neither learning nor conditioning has seen; one of the candidates, if these rows chose"
)
FIXED_BEFORE = (
    "independent rows that none of the functions and not the prior has seen; the posterior may depend on them"
)


def holdout_bound(losses: Tensor, confidence: float = 0.95, candidates: int = 1) -> Bound:
    """The smaller of Hoeffding's and the empirical Bernstein bound, both in ``details`` with ``num_data``.

    Args:
        losses: ``(m,)`` in [0, 1], of a function chosen without these rows, or of one of J ``candidates`` that were.
        confidence: 1 − β.
        candidates: J, from which these rows chose; the price is log J.

    Raises:
        ValueError: if ``losses`` is not a finite vector, or ``confidence`` or ``candidates`` is out of its range.

    Example:
        >>> bound = holdout_bound(torch.zeros(300))
        >>> round(bound.hoeffding, 3), round(bound.bernstein, 3)
        (0.078, 0.034)
    """
    check_confidence(confidence)
    _check_losses(losses, 1)
    m, delta = len(losses), (1.0 - confidence) / (2.0 * check_count("candidates", candidates))
    mean = losses.cpu().double().mean().item()
    hoeffding = mean + math.sqrt(math.log(1.0 / delta) / (2.0 * m))
    bernstein = math.inf
    if m >= 2:
        variance, log = losses.cpu().double().var().item(), math.log(2.0 / delta)
        bernstein = mean + math.sqrt(2.0 * variance * log / m) + 7.0 * log / (3.0 * (m - 1))
    details = {"hoeffding": hoeffding, "bernstein": bernstein, "num_data": m}
    last = min(hoeffding, bernstein) - mean
    return Bound(mean, 0.0, last, confidence, "holdout", LOSS, HELD_OUT, details=details)


def pac_bayes_bound(
    losses: Tensor, confidence: float = 0.95, *, temperature: float = 1.0, prior: Tensor | None = None
) -> Bound:
    """The PAC-Bayes-kl bound of the Gibbs posterior Q ∝ P exp(−temperature·m·R̂) over J functions.

    ``details`` has ``divergence``, KL(Q‖P) in nats, and ``weights``, Q.

    Args:
        losses: of J functions at m held-out rows, ``(J, m)``, in [0, 1]; the functions are fixed without these rows.
        confidence: 1 − β.
        temperature: of the Gibbs posterior, chosen without the rows.
        prior: P, ``(J,)``; equal by default.

    Raises:
        ValueError: if ``losses`` is not ``(J, m)`` and finite, or a number is out of its range.

    Example:
        >>> bound = pac_bayes_bound(torch.stack([torch.full((200,), 0.1), torch.full((200,), 0.6)]).double())
        >>> round(bound.empirical_risk, 3), round(bound.divergence, 3), bound.value < 0.2
        (0.1, 0.693, True)
    """
    check_confidence(confidence)
    _check_losses(losses, 2)
    check_at_least(0.0, temperature=temperature)
    m = losses.shape[-1]
    R = losses.double().mean(-1)
    P = torch.full_like(R, 1.0) if prior is None else prior.to(R)
    P = P / P.sum()
    Q = (P.log() - float(temperature) * m * R).softmax(-1)
    divergence = max(0.0, float(torch.special.xlogy(Q, Q).sum() - torch.special.xlogy(Q, P).sum()))
    risk = float(Q @ R)
    value = kl_inverse(risk, (divergence + math.log(2.0 * math.sqrt(m) / (1.0 - confidence))) / m)
    details = {"divergence": divergence, "weights": Q}
    return Bound(risk, 0.0, value - risk, confidence, "PAC-Bayes-kl", LOSS, FIXED_BEFORE, details=details)


def kl_inverse(q: float, c: float) -> float:
    """The largest p with kl(q‖p) = q log(q/p) + (1 − q) log((1 − q)/(1 − p)) ≤ c, by bisection."""
    from scipy.special import rel_entr

    check_at_least(0.0, q=q, c=c)
    low, high = min(q, 1.0), 1.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        inside = rel_entr(q, middle) + rel_entr(1.0 - q, 1.0 - middle) <= c
        low, high = (middle, high) if inside else (low, middle)
    return high


def _check_losses(losses: Tensor, dim: int) -> None:
    check_tensor(losses, "losses")
    check_finite(losses, "losses")
    if losses.dim() != dim or losses.numel() == 0:
        shape = "(m,)" if dim == 1 else "(J, m)"
        raise ValueError(f"losses must have shape {shape}, one loss per row; got {tuple(losses.shape)}.")
    if float(losses.min()) < 0.0 or float(losses.max()) > 1.0 + 1e-6:
        got = f"{float(losses.min()):g} to {float(losses.max()):g}"
        raise ValueError(f"losses must lie in [0, 1]; got {got}. Divide them by their largest possible value.")
