"""From objects to plain JSON: classes by name, their state, arrays by name; shared objects are written once."""

from __future__ import annotations

import collections
import functools
import re
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..files import ARRAY_KINDS
from .names import TYPES, function_name, name_of
from .state import state_of

Node = Any
"""JSON: a plain value, or a dictionary whose first key is the kind of the value."""


class Encoder:
    """Turns values into nodes; ``arrays`` holds the arrays that nodes name, ``kinds`` the classes of objects.

    Example:
        >>> encoder = Encoder()
        >>> encoder.node({"a": np.zeros(2), "b": [1, float("inf")]})
        {'dict': {'a': {'array': 'a'}, 'b': {'list': [1, {'float': 'inf'}]}}}
        >>> encoder.arrays
        {'a': array([0., 0.])}
    """

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self.kinds: set[type] = set()
        self._seen: dict[int, int] = {}
        self._alive: list[object] = []  # so that no id is used twice

    def node(self, value: object, where: str = "") -> Node:
        """The node of ``value``; ``where`` is its place, for names of arrays and for errors."""
        if value is None or type(value) in (str, bool, int):
            return value
        if type(value) is float:
            return value if np.isfinite(value) else {"float": str(value)}
        plain = self._plain(value, where)
        if plain is not None:
            return plain
        if id(value) in self._seen:
            return {"ref": self._seen[id(value)]}
        self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        return self._shared(value, where)

    def _plain(self, value: Any, where: str) -> Node | None:
        """Values without identity."""
        if isinstance(value, torch.dtype | torch.device):
            return {type(value).__name__: str(value).removeprefix("torch.")}
        if isinstance(value, torch.Size):
            return {"size": list(value)}
        if isinstance(value, np.dtype):
            return {"numpy": value.str}
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value), where)}
        if isinstance(value, slice):
            return {"slice": [self.node(part, where) for part in (value.start, value.stop, value.step)]}
        if isinstance(value, type):
            name = next((name for name, kind in TYPES.items() if kind is value), None)
            return {"class": name or self._name(value, where)}
        if isinstance(value, functools.partial):
            keywords = {str(k): self.node(v, f"{where}.{k}") for k, v in value.keywords.items()}
            return {"partial": self.node(value.func, where), "arguments": [*map(self.node, value.args)], **keywords}
        if callable(value) and (name := function_name(value)) is not None:
            return {"function": name}
        return None

    def _shared(self, value: Any, where: str) -> dict[str, Node]:
        """Values that may be held in several places."""
        if isinstance(value, Tensor):
            kind = "parameter" if isinstance(value, nn.Parameter) else "tensor"
            node = {kind: self._array(value.detach().cpu().numpy(), where), "gradient": value.requires_grad}
            return node if value.device.type == "cpu" else {**node, "device": str(value.device)}
        if isinstance(value, np.ndarray):
            if value.dtype.kind == "O":
                return {"objects": self._cells(value.ravel(), where), "shape": list(value.shape)}
            return {"array": self._array(value, where)}
        if type(value) in (list, set, frozenset, tuple):
            return {type(value).__name__: self._cells(value, where)}
        if isinstance(value, tuple):
            return {"tuple": self._cells(value, where), "of": self._name(type(value), where)}
        if type(value) in (dict, collections.OrderedDict, collections.defaultdict):
            kind = "ordered" if type(value) is collections.OrderedDict else "dict"
            if all(type(key) is str for key in value):
                return {kind: {key: self.node(cell, f"{where}.{key}") for key, cell in value.items()}}
            return {kind: [[self.node(key, where), self.node(cell, f"{where}.{key}")] for key, cell in value.items()]}
        if type(value).__module__ == "builtins":
            raise _unsaved(where, f"a {type(value).__name__}: {getattr(value, '__qualname__', value)!s:.200}", FUNCTION)
        name = self._name(type(value), where)
        self.kinds.add(type(value))
        try:
            state = state_of(value)
        except ValueError as error:
            raise _unsaved(where, name, str(error)) from error
        return {"object": name, "state": {key: self.node(part, f"{where}.{key}") for key, part in state.items()}}

    def _cells(self, values: Any, where: str) -> list[Node]:
        return [self.node(cell, f"{where}.{i}") for i, cell in enumerate(values)]

    def _name(self, kind: type, where: str) -> str:
        if "<locals>" in kind.__qualname__ or kind.__module__ == "__main__":
            raise _unsaved(where, name_of(kind), "Define the class in a module of its own.")
        return name_of(kind)

    def _array(self, array: NDArray[Any], where: str) -> str:
        if array.dtype.kind not in ARRAY_KINDS:
            raise _unsaved(where, f"an array of {array.dtype}", "Convert it to numbers, text or dates.")
        name = stem = re.sub(r"[^A-Za-z0-9_.]+", "_", where.lstrip("."))[-150:].lstrip(".") or "value"
        while name in self.arrays:
            name = f"{stem}-{len(self.arrays)}"
        self.arrays[name] = array
        return name


FUNCTION = "Functions of your own, and those inside others, cannot be saved: give the kernel itself in their place."


def _unsaved(where: str, what: str, remedy: str) -> ValueError:
    return ValueError(f"{'model' + where if where else 'The model'} cannot be saved: {what}. {remedy}")
