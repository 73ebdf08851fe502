r"""Predictions at inputs that the training rows already have.

Rows with equal inputs are left out together, so leave-one-out values do not say how well a row predicts its copies. But
where some training rows repeat, a new row may be the copy of another too. Then, at inputs x that occur in training,

.. math::  p(c \mid x) = (1 - \rho)\, p_0(c \mid x) + \rho\, \frac{m_c(x)}{m(x)}

with p₀ the prediction of the pool and m_c(x) the number of training rows with these inputs and class c. The weight ρ
maximizes the likelihood of the repeated rows, each predicted by its copies and by a pool without any of them,

.. math::
    \sum_{x :\, m(x) > 1} \frac{m(x) - 1}{m(x)} \sum_c m_c(x)
    \log\Big( (1 - \rho)\, p_0^{(-x)}(c \mid x) + \rho\, \frac{m_c(x) - 1}{m(x) - 1} \Big) + \log(1 - \rho) .

The last term is a prior with the weight of one row. Tables without repeated rows have ρ = 0.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from ..splits import common_divisor
from .conditioning import Table

SMALLEST_WEIGHT = 0.01  # of ρ, below which inputs are not looked up


@dataclasses.dataclass(frozen=True)
class RepeatedInputs:
    """The classes of the training rows by their inputs, and ρ."""

    keys: Tensor  # hashes of the distinct inputs, sorted, (P,)
    shares: Tensor  # m_c(x) / m(x), (P, m)
    weight: float  # ρ

    def mixed(self, x: Tensor, p: Tensor) -> Tensor:
        """p(x) from the predictions ``p`` of the pool, ``(t, m)``."""
        known, keys = self.keys.cpu().numpy(), hashes(x)
        places = np.searchsorted(known, keys).clip(max=len(known) - 1)
        at, matches = (torch.as_tensor(array, device=p.device) for array in (places, known[places] == keys))
        return torch.where(matches[:, None], (1.0 - self.weight) * p + self.weight * self.shares[at].to(p), p)


def repeated_inputs(table: Table, rows: Tensor, left_out: Tensor) -> RepeatedInputs | None:
    """ρ from the log probabilities ``left_out`` of some ``rows`` of the ``table``, whose rows are distinct.

    ``None`` if no inputs repeat, ρ is negligible, or rows have groups, soft labels, or weights that are no counts.
    """
    if table.weights is None or table.y.dim() == 2 or table.units.labels is not None:
        return None
    weights, labels = table.weights.cpu().numpy(), table.labels
    keys, place = np.unique(hashes(table.x), return_inverse=True)
    counts, sums = np.zeros((2, len(keys), table.num_classes))
    for c in np.unique(labels):
        of_class = labels == c
        unit = common_divisor(weights[of_class])  # by class: a class may have a weight of its own
        if unit is None:
            return None
        np.add.at(counts[:, c], place[of_class], np.rint(weights[of_class] / unit))
        np.add.at(sums[:, c], place[of_class], weights[of_class])
    total = counts.sum(axis=1)
    i = rows.cpu().numpy()
    i, p = i[total[place[i]] > 1], left_out.exp().cpu().numpy()[total[place[i]] > 1]
    if len(i) == 0:
        return None
    label, m = labels[i], total[place[i]]
    own = counts[place[i], label]
    factor, p = own * (m - 1.0) / m, p[np.arange(len(i)), label].clip(1e-15)
    copies = (own - 1.0) / (m - 1.0)

    def loss(rho: float) -> float:
        return -float(factor @ np.log((1.0 - rho) * p + rho * copies)) - float(np.log1p(-rho))

    rho = float(minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded").x)
    if rho < SMALLEST_WEIGHT:
        return None
    return RepeatedInputs(torch.from_numpy(keys), table.x.new_tensor(sums / sums.sum(axis=1, keepdims=True)), rho)


def hashes(x: Tensor) -> NDArray[np.int64]:
    """A number for each row of x that is the same for equal rows only, up to a chance of 2⁻⁶⁴."""
    bits = (x.detach().cpu().double().numpy() + 0.0).view(np.uint64)  # − 0 is 0
    h = np.zeros(len(bits), dtype=np.uint64)
    for column in bits.T:
        h = (h ^ column) * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(29)
        h *= np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> np.uint64(32)
    return h.view(np.int64)
