"""An object as plain JSON: classes by name, what they hold, arrays by number; what is shared is described once."""

from __future__ import annotations

import collections
import enum
import functools
import types
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .names import Attribute, function_name, name_of

Node = Any
"""JSON: a value as it is, or a dictionary with one key that says what it describes."""


class Describer:
    """Describes objects; ``arrays`` holds the arrays that the descriptions number, ``kinds`` the classes."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []
        self.kinds: set[type] = set()
        self._seen: dict[int, int] = {}
        self._alive: list[object] = []  # so that no id is used twice

    def describe(self, value: object, where: str = "model") -> Node:
        """The node of ``value``; ``where`` is its place, for errors."""
        if value is None or isinstance(value, str | bool) or type(value) is int:
            return value
        if type(value) is float:
            return value if np.isfinite(value) else {"float": str(value)}
        plain = self._plain(value, where)
        if plain is not None:
            return plain
        if id(value) in self._seen:
            return {"ref": self._seen[id(value)]}
        number = self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        return {**self._shared(value, where), "id": number}

    def _plain(self, value: Any, where: str) -> Node | None:
        """Values without identity."""
        if isinstance(value, enum.Enum):
            return {"enum": name_of(type(value), where), "name": value.name}
        if isinstance(value, torch.dtype | torch.device):
            return {"torch": type(value).__name__, "text": str(value).removeprefix("torch.")}
        if isinstance(value, torch.Size):
            return {"size": list(value)}
        if isinstance(value, np.dtype):
            return {"dtype": value.str}
        if isinstance(value, np.generic):
            return {"scalar": self._array(np.asarray(value), where)}
        if isinstance(value, slice | range):
            parts = [value.start, value.stop, value.step]
            return {type(value).__name__: [self.describe(part, where) for part in parts]}
        if isinstance(value, type):
            return {"class": name_of(value, where)}
        if isinstance(value, types.MethodType):
            return {"method": value.__name__, "of": self.describe(value.__self__, where)}
        if isinstance(value, functools.partial):
            parts = [value.func, list(value.args), dict(value.keywords)]
            return {"partial": [self.describe(part, where) for part in parts]}
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | np.ufunc):
            return {"function": function_name(value, where)}
        return None

    def _shared(self, value: Any, where: str) -> dict[str, Node]:
        """Values that may be held in several places."""
        if isinstance(value, Tensor):
            kind = "parameter" if isinstance(value, nn.Parameter) else "tensor"
            data = self._array(value.detach().cpu().numpy(), where)
            return {kind: data, "requires_grad": value.requires_grad, "device": str(value.device)}
        if isinstance(value, np.ndarray):
            if value.dtype.kind == "O":
                cells = [self.describe(cell, f"{where}[{i}]") for i, cell in enumerate(value.ravel())]
                return {"objects": cells, "shape": list(value.shape)}
            return {"array": self._array(value, where)}
        if type(value) in (list, set, frozenset) or isinstance(value, tuple):
            cells = [self.describe(cell, f"{where}[{i}]") for i, cell in enumerate(value)]
            if isinstance(value, tuple) and type(value) is not tuple:
                return {"tuple": cells, "of": name_of(type(value), where)}
            return {type(value).__name__: cells}
        if type(value) in (dict, collections.OrderedDict, collections.defaultdict):
            pairs = [[self.describe(k, where), self.describe(v, f"{where}[{k!r}]")] for k, v in value.items()]
            return {"dict": pairs, "ordered": type(value) is collections.OrderedDict}
        self.kinds.add(type(value))
        return {"object": name_of(type(value), where), "state": self._state(value, where)}

    def _state(self, value: Any, where: str) -> list[Node]:
        """Attributes and slots; what is not there is not described."""
        state = dict(getattr(value, "__dict__", {}))
        for kind in type(value).__mro__:
            slots = kind.__dict__.get("__slots__", ())
            for slot in (slots,) if isinstance(slots, str) else slots:
                if slot not in ("__dict__", "__weakref__") and hasattr(value, slot):
                    state[slot] = getattr(value, slot)
        if not hasattr(value, "__dict__") and not state:
            raise ValueError(
                f"Expected parts that can be described in {where}, got a {type(value).__module__}."
                f"{type(value).__qualname__}. Save its parameters in another way."
            )
        if "_priors" in state:
            state["_priors"] = _named_priors(value)
        return [[name, self.describe(part, f"{where}.{name}")] for name, part in state.items()]

    def _array(self, array: NDArray[Any], where: str) -> int:
        if array.dtype.kind not in "biufcUSmM":
            raise ValueError(
                f"Expected numbers, text or dates in the array {where}, got {array.dtype}. Convert it first."
            )
        self.arrays.append(array)
        return len(self.arrays) - 1


def _named_priors(module: Any) -> dict[str, tuple[Any, Any, Any]]:
    """GPyTorch's priors with the parameter's name in place of the nameless functions that read and set it."""
    named = {}
    for name, (prior, read, write) in module._priors.items():
        attribute = name.removesuffix("_prior").rpartition(".")[-1]
        if isinstance(read, types.FunctionType) and hasattr(module, attribute):
            read, write = Attribute(attribute), None if write is None else Attribute(attribute)
        named[name] = (prior, read, write)
    return named
