"""One leapfrog step: a potential and its gradient through modules and autograd, and in closed form."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from ...objectives import ConditionalEvidence, EmbeddingEvidence
from ...posteriors.potential import Potential
from ..papers.flaxman2016.mixtures import mixture_samples, model
from . import posterior
from .cases import OURS, Call, Case, Scope

LABELS = "one leapfrog step, evidence of labels"
SAMPLE = "one leapfrog step, evidence of a sample"
GENERAL = "through modules and autograd"


def _potential(part: str, n: int) -> Potential:
    if part == LABELS:
        embedding, x, y = posterior.problem(n)
        return Potential(embedding, ConditionalEvidence(), x, y)
    return Potential(model(), EmbeddingEvidence(), torch.cat(mixture_samples(n // 6)), None)


def general_and_closed(part: str, n: int, closed: bool) -> Call:
    """One evaluation, in closed form or through modules."""
    potential = _potential(part, n)
    u = potential.vector.get()
    return lambda: potential.value_and_gradient(u) if closed else potential.general(u)


def cases(scope: Scope) -> Iterator[Case]:
    """A potential with its gradient, in closed form and by autograd."""
    for part in (LABELS, SAMPLE):
        for n in (30,) if scope.quick else (48, 102, 198, 600):
            yield Case(part, OURS, n, partial(general_and_closed, part, n, True), repeats=100)
            yield Case(part, GENERAL, n, partial(general_and_closed, part, n, False), repeats=100)
