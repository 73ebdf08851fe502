"""Training rows drawn by what they count in an answer."""

from __future__ import annotations

import torch
from torch import Tensor

from ..validation import check_count, check_seed
from .predictors import clip_normalize


def resampled_rows(w: Tensor, k: int, seed: int | None = None, row_weights: Tensor | None = None) -> Tensor:
    """k rows for each point, ``(t, k)``, by the weights v = w + (1 − Σw) p, clipped at 0 and normalized.

    Args:
        w: the weights of the rows in the answer at each point, ``(n, t)``.
        k: how many.
        seed: of the draws.
        row_weights: how many rows each row stands for; p is their share, 1/n without.

    Raises:
        TypeError: if ``k`` or ``seed`` is not a whole number.
        ValueError: if ``k`` is less than 1, or ``seed`` negative or too large.

    Example:
        >>> from kernel_embed.embeddings.resampling import resampled_rows
        >>> resampled_rows(torch.tensor([[1.0], [0.0], [0.0]]), 4, seed=0)
        tensor([[0, 0, 0, 0]])
    """
    check_count("k", k)
    check_seed(seed)
    w = w.mT
    p = torch.ones_like(w[0]) if row_weights is None else row_weights
    v = clip_normalize(w + (1.0 - w.sum(-1, keepdim=True)) * (p / p.sum()))
    generator = torch.Generator(device=v.device)
    generator.seed() if seed is None else generator.manual_seed(seed)
    return torch.multinomial(v, k, replacement=True, generator=generator)
