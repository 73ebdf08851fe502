"""A checkpoint on disk: written whole or not at all, read as plain data with a checksum."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ..archive import read_plain, write_plain


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
