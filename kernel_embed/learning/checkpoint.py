"""A checkpoint on disk: written whole or not at all, read as plain data with a checksum."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from typing import Any, TypedDict, cast

import torch
from torch import Tensor

from ..archive import read_plain, write_plain
from ..objectives.base import Attached
from .loss import ProcessGroup, by_leader

SECONDS_BETWEEN_CHECKPOINTS = 5.0

OptimizerState = Mapping[str, object]
"""What an optimizer needs to go on where it was: tensors, numbers, text, and dicts and lists of them."""


class CheckpointContent(TypedDict):
    """A checkpoint, besides what tells its problem from others."""

    best_value: float
    best: Tensor
    best_buffers: dict[str, Tensor]
    origin: Tensor
    history: list[dict[str, float]]
    num_evaluations: int
    optimizer: str
    optimizer_state: OptimizerState


class Checkpoint:
    """Where a search is written, and for whom.

    Args:
        path: the file.
        identity: what a checkpoint must agree on to belong to this problem.
        optimizer: the name of the optimizer, to which alone its state is given back.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, object], optimizer: str) -> None:
        self._path, self._identity, self.optimizer = path, identity, optimizer
        self._saved = time.perf_counter()

    def read(self, together: ProcessGroup[Attached]) -> CheckpointContent | None:
        """What the leader reads, on all processes; ``None`` where there is no file."""
        content = by_leader(together, lambda: load_checkpoint(self._path, **self._identity))
        if content is None:
            return None
        if not content.keys() >= CheckpointContent.__required_keys__:
            raise ValueError(f"The checkpoint {self._path} lacks some of its content. Delete it, or name another.")
        finite = all(
            bool(torch.isfinite(torch.as_tensor(content[name], device="cpu")).all()) for name in ("best", "best_value")
        )
        if not finite:
            raise ValueError(
                f"Expected finite parameters in the checkpoint {self._path}, got NaN or infinite ones. Delete it, "
                "or name another."
            )
        if not isinstance(content["num_evaluations"], int) or content["num_evaluations"] < len(content["history"]):
            raise ValueError(
                f"Expected at least as many evaluations as records in the checkpoint {self._path}, got "
                f"{content['num_evaluations']!r} and {len(content['history'])}. Delete it, or name another."
            )
        return cast(CheckpointContent, content)

    def is_due(self) -> bool:
        """Whether the last writing was long enough ago."""
        return time.perf_counter() - self._saved > SECONDS_BETWEEN_CHECKPOINTS

    def write(self, content: CheckpointContent) -> None:
        """Write it whole."""
        self._saved = time.perf_counter()
        save_checkpoint(self._path, {**self._identity, **content})


def save_checkpoint(path: str | os.PathLike[str], content: Mapping[str, object]) -> None:
    """Write ``content`` (tensors, numbers, text, dicts and lists of them) so that a reader never sees half of it."""
    write_plain(path, "checkpoint", dict(content))


def load_checkpoint(path: str | os.PathLike[str], **expected: object) -> dict[str, Any] | None:
    """Read a checkpoint, or ``None`` where there is none; entries named in ``expected`` must have those values."""
    if not os.path.exists(path):
        return None
    try:
        content: dict[str, Any] = read_plain(path, "checkpoint", None)
        if not isinstance(content, dict):
            raise ValueError(f"{path} does not hold the content of a checkpoint.")
    except ValueError as error:
        raise ValueError(f"{error} Or name another checkpoint file, or delete this one.") from error
    for key, value in expected.items():
        if content.get(key) != value:
            raise ValueError(
                f"Expected a checkpoint with {key} = {value!r} in {path}, got {content.get(key)!r}. "
                "It belongs to another problem: name another file or delete this one."
            )
    if has_nan(content):
        raise ValueError(
            f"Expected numbers in the checkpoint {path}, got NaN among them. "
            "It is damaged: name another file or delete this one."
        )
    return content


def has_nan(content: object) -> bool:
    """Whether a number of ``content`` is none, in dicts and lists too. Against NaN no value is ever the best.

    Example:
        >>> import torch
        >>> has_nan({"history": [{"value": 0.5}], "best": torch.zeros(2)}), has_nan([{"value": float("nan")}])
        (False, True)
    """
    if isinstance(content, Mapping):
        return any(map(has_nan, content.values()))
    if isinstance(content, list | tuple):
        return any(map(has_nan, content))
    if isinstance(content, Tensor):
        return bool(content.isnan().any())
    return isinstance(content, float) and math.isnan(content)
