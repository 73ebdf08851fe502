"""What passes between an optimizer, the search it belongs to, and the one who watches: immutable records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import gpytorch
import torch
from torch import Tensor

from .parameters import ParameterVector, Vector


@dataclasses.dataclass(frozen=True)
class Visit:
    """A point, and the objective there.

    Attributes:
        point: the raw parameters as one vector.
        value: the objective there, priors included.
        terms: its summands by name.
    """

    point: Vector
    value: float
    terms: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Evaluation(Visit):
    """A visit with the gradient of the value in the raw parameters."""

    gradient: Vector


@dataclasses.dataclass(frozen=True)
class Progress:
    """What a callback of ``fit`` is told after every record: an evaluation of L-BFGS, an epoch of Adam.

    Attributes:
        number: of the record, from 1, counted over resumptions.
        start: 0, or the number of the restart.
        value: the objective, priors included.
        terms: its summands by name.
        best_value: the lowest value so far, this one included.
        seconds: since ``fit`` was called.
        embedding: as it is now; look at it, and leave its parameters as they are.
    """

    number: int
    start: int
    value: float
    terms: Mapping[str, float]
    best_value: float
    seconds: float
    embedding: gpytorch.Module = dataclasses.field(repr=False)


Callback = Callable[[Progress], "bool | None"]
"""Called with a :class:`~kernel_embed.learning.Progress`; ``True`` ends the search."""


class StopSearch(Exception):
    """Raised inside an optimizer when the callback ends the search; ``fit`` catches it."""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """Parameters and buffers (the running statistics of batch normalization) at one moment."""

    point: Vector
    buffers: Mapping[str, Tensor]

    @classmethod
    def take(cls, vector: ParameterVector, point: Vector | None = None) -> Snapshot:
        """Copies of the buffers, and of the parameters or of ``point``."""
        buffers = {name: buffer.detach().clone() for name, buffer in vector.module.named_buffers()}
        return cls(vector.get() if point is None else point.copy(), buffers)

    def restore(self, vector: ParameterVector) -> None:
        """Put parameters and buffers back."""
        vector.set(self.point)
        with torch.no_grad():
            for name, buffer in vector.module.named_buffers():
                if name in self.buffers:
                    buffer.copy_(self.buffers[name])
