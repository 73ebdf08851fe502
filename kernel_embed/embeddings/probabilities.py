"""From decision probabilities and signed weights to probabilities: clipping, normalizing, entropy and draws."""

from __future__ import annotations

import torch
from torch import Tensor

from ..validation import all_finite, check_count, check_finite, check_tensor, generator_of


def clip_normalize(p: Tensor) -> Tensor:
    """eq. (6): max{p_c, 0} / Σ_j max{p_j, 0}; uniform where no entry is positive.

    Args:
        p: decision probabilities, ``(*batch, t, m)``.

    Returns:
        Probabilities of the same shape, with sums of one.

    Raises:
        TypeError: if ``p`` is not a tensor of real numbers.
        ValueError: if ``p`` has no rows, integers, or values that are not finite.

    Example:
        >>> from kernel_embed.embeddings import clip_normalize
        >>> clip_normalize(torch.tensor([[1.5, 0.5, -0.2]]))
        tensor([[0.7500, 0.2500, 0.0000]])
    """
    check_tensor(p, "p")
    check_finite(p, "p")
    if p.dim() == 0 or p.shape[-1] == 0 or not p.is_floating_point():
        raise ValueError(f"p must have rows of floating-point numbers, not shape {tuple(p.shape)} in {p.dtype}.")
    positive = p.clamp_min(0.0)
    total = positive.sum(dim=-1, keepdim=True)
    if not all_finite(total):  # the sum overflows, the shares do not
        positive = positive / positive.amax(dim=-1, keepdim=True).clamp_min(torch.finfo(p.dtype).tiny)
        total = positive.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, positive / total.clamp_min(torch.finfo(p.dtype).tiny), 1.0 / p.shape[-1])


def information(p: Tensor) -> Tensor:
    """−p log p where p > 0, else 0, with a finite derivative everywhere."""
    return torch.where(p > 0, -p * p.clamp_min(torch.finfo(p.dtype).tiny).log(), 0.0)


def resampled_rows(w: Tensor, k: int, seed: int | None = None, row_weights: Tensor | None = None) -> Tensor:
    """k rows for each point, ``(t, k)``, by the weights v = w + (1 − Σw) p, clipped at 0 and normalized.

    ``w`` ``(n, t)`` are the weights of the rows in the prediction at each point, and p the shares of ``row_weights``,
    1/n without.

    Example:
        >>> from kernel_embed.embeddings.probabilities import resampled_rows
        >>> resampled_rows(torch.tensor([[1.0], [0.0], [0.0]]), 4, seed=0)
        tensor([[0, 0, 0, 0]])
    """
    check_count("k", k)
    w = w.mT
    p = torch.ones_like(w[0]) if row_weights is None else row_weights
    v = clip_normalize(w + (1.0 - w.sum(-1, keepdim=True)) * (p / p.sum()))
    return torch.multinomial(v, k, replacement=True, generator=generator_of(seed, v.device))
