"""Values as plain JSON and back: classes by name, their state, arrays by name; shared objects are written once.

A node is a plain value, or a dictionary whose first key is the kind of the value. The decoder creates objects empty and
fills them, without calling anything that the file names.
"""

from __future__ import annotations

import collections
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..files import ARRAY_KINDS
from . import names
from .state import restore, state_of

Node = Any
MAX_DEPTH = 120
MAX_INTEGER = 2**63
FUNCTION = "Functions of your own, and those inside others, cannot be saved: give the kernel itself in their place."


class Encoder:
    """Turns values into nodes of JSON, and collects in ``arrays`` the arrays that nodes refer to by name.

    ``kinds`` has the classes of all objects that were encoded.

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
            return value if math.isfinite(value) else {"float": str(value)}
        node = self._plain(value, where)
        if node is None and id(value) in self._seen:
            node = {"ref": self._seen[id(value)]}
        elif node is None:
            self._seen[id(value)] = len(self._seen)
            self._alive.append(value)
            node = self._shared(value, where)
        return node

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
            name = next((name for name, kind in names.TYPES.items() if kind is value), None)
            return {"class": name or self._name(value, where)}
        if isinstance(value, functools.partial):
            keywords = {str(k): self.node(v, f"{where}.{k}") for k, v in value.keywords.items()}
            return {"partial": self.node(value.func, where), "arguments": [*map(self.node, value.args)], **keywords}
        if callable(value) and (name := names.function_name(value)) is not None:
            return {"function": name}
        return None

    def _shared(self, value: Any, where: str) -> dict[str, Node]:
        """Values that may be held in several places."""

        def cells(values: Any) -> list[Node]:
            return [self.node(cell, f"{where}.{i}") for i, cell in enumerate(values)]

        if isinstance(value, Tensor):
            kind = "parameter" if isinstance(value, nn.Parameter) else "tensor"
            node = {kind: self._array(value.detach().cpu().numpy(), where), "gradient": value.requires_grad}
            return node if value.device.type == "cpu" else {**node, "device": str(value.device)}
        if isinstance(value, np.ndarray):
            if value.dtype.kind == "O":
                return {"objects": cells(value.ravel()), "shape": list(value.shape)}
            return {"array": self._array(value, where)}
        if type(value) in (list, set, frozenset, tuple):
            return {type(value).__name__: cells(value)}
        if type(value) in (dict, collections.OrderedDict, collections.defaultdict):
            kind = "ordered" if type(value) is collections.OrderedDict else "dict"
            if all(type(key) is str for key in value):
                return {kind: {key: self.node(cell, f"{where}.{key}") for key, cell in value.items()}}
            return {kind: [[self.node(key, where), self.node(cell, f"{where}.{key}")] for key, cell in value.items()]}
        if type(value).__module__ == "builtins":
            raise _unsaved(where, f"a {type(value).__name__}: {getattr(value, '__qualname__', value)!s:.200}", FUNCTION)
        name = self._name(type(value), where)
        self.kinds.add(type(value))
        if isinstance(value, tuple):
            return {"tuple": cells(value), "of": name}
        try:
            state = state_of(value)
        except ValueError as error:
            raise _unsaved(where, name, str(error)) from error
        return {"object": name, "state": {key: self.node(part, f"{where}.{key}") for key, part in state.items()}}

    def _name(self, kind: type, where: str) -> str:
        if "<locals>" in kind.__qualname__ or kind.__module__ == "__main__":
            raise _unsaved(where, names.name_of(kind), "Define the class in a module of its own.")
        return names.name_of(kind)

    def _array(self, array: NDArray[Any], where: str) -> str:
        if array.dtype.kind not in ARRAY_KINDS:
            raise _unsaved(where, f"an array of {array.dtype}", "Convert it to numbers, text or dates.")
        name = stem = re.sub(r"[^A-Za-z0-9_.]+", "_", where.lstrip("."))[-150:].lstrip(".") or "value"
        while name in self.arrays:
            name = f"{stem}-{len(self.arrays)}"
        self.arrays[name] = array
        return name


def _unsaved(where: str, what: str, remedy: str) -> ValueError:
    return ValueError(f"{'model' + where if where else 'The model'} cannot be saved: {what}. {remedy}")


class Decoder:
    """Rebuilds what an :class:`Encoder` wrote; each array is used once, and ``plain`` refuses classes and functions.

    Example:
        >>> Decoder({"a": np.zeros(2)}).whole({"dict": {"a": {"array": "a"}, "b": {"tuple": [1, 2]}}})
        {'a': array([0., 0.]), 'b': (1, 2)}
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], classes: Sequence[type] = (), plain: bool = False) -> None:
        self._arrays, self._classes, self._is_plain = dict(arrays), classes, plain
        self._instances: dict[int, Any] = {}
        self._count = self._depth = 0
        self._values: dict[str, Callable[[dict[str, Any]], Any]] = {
            "float": lambda node: float(names.matching(names.NOT_FINITE, node["float"])),
            "size": lambda node: torch.Size([_integer(n, 0) for n in node["size"]]),
            "scalar": lambda node: self._array(node["scalar"])[()],
            "slice": lambda node: slice(*(None if n is None else _integer(n) for n in node["slice"])),
            "numpy": lambda node: np.dtype(names.matching(names.DTYPE, node["numpy"])),
            "device": lambda node: torch.device(names.matching(names.DEVICE, node["device"])),
            "dtype": lambda node: _one(torch.dtype, vars(torch).get(str(node["dtype"]))),
            "class": lambda node: self._listed(names.find_type, node["class"], self._classes),
            "function": lambda node: self._listed(names.find_function, node["function"]),
            "partial": self._partial,
            "ref": self._ref,
        }
        self._shared: dict[str, Callable[[dict[str, Any]], Any]] = {  # numbered in the order in which they begin
            "tensor": self._tensor,
            "parameter": self._tensor,
            "array": lambda node: self._array(node["array"]),
            "objects": self._objects,
            "list": self._list,
            "tuple": self._tuple,
            "set": lambda node: set(map(self._key, node["set"])),
            "frozenset": lambda node: frozenset(map(self._key, node["frozenset"])),
            "dict": self._dict,
            "ordered": self._dict,
            "object": self._object,
        }

    def whole(self, node: Node) -> Any:
        """The value of a node that uses all arrays."""
        value = self._value(node)
        if self._arrays:
            raise ValueError(f"The array {next(iter(self._arrays))} is not used by any value.")
        return value

    def _value(self, node: Node) -> Any:
        if not isinstance(node, dict):
            if isinstance(node, list):
                raise ValueError("A value is a bare list.")
            return node
        kind = next(iter(node), None)
        if kind in self._values:
            return self._values[kind](node)
        if kind not in self._shared:
            raise ValueError(f"It contains a value of unknown kind: {str(kind)[:80]}.")
        number, self._count, self._depth = self._count, self._count + 1, self._depth + 1
        if self._depth > MAX_DEPTH:
            raise ValueError("It is nested too deeply.")
        self._instances[number] = instance = self._shared[kind](node)
        self._depth -= 1
        return instance

    def _new(self, instance: Any) -> Any:
        """An empty container or object, to which its own parts may refer."""
        self._instances[self._count - 1] = instance
        return instance

    def _listed(self, find: Callable[..., Any], *arguments: Any) -> Any:
        """A class or function by name, which plain data do not hold."""
        if self._is_plain:
            raise ValueError("It names a class or a function in place of plain data.")
        return find(*arguments)

    def _ref(self, node: dict[str, Any]) -> Any:
        if _integer(node["ref"]) not in self._instances:
            raise ValueError(f"It refers to the part {node['ref']}, which is missing.")
        return self._instances[node["ref"]]

    def _key(self, node: Node) -> Any:
        """A key of a dictionary or a member of a set: plain values, whose hash runs no code of a class."""
        if isinstance(node, dict) and next(iter(node), None) == "tuple" and "of" not in node:
            self._count += 1
            if any(isinstance(cell, dict) and "tuple" in cell for cell in node["tuple"]):
                raise ValueError("A key is nested too deeply.")
            return tuple(map(self._key, node["tuple"]))
        key = self._value(node) if not isinstance(node, dict) or next(iter(node)) in ("float", "scalar") else node
        if not isinstance(key, str | int | float | np.generic | None):
            raise ValueError("A key is not plain.")
        return key

    def _array(self, name: object) -> NDArray[Any]:
        if not isinstance(name, str) or name not in self._arrays:
            raise ValueError(f"The array {str(name)[:80]} is missing or used twice.")
        return self._arrays.pop(name)

    def _tensor(self, node: dict[str, Any]) -> Tensor:
        kind = next(iter(node))
        tensor = torch.from_numpy(self._array(node[kind]))
        device = torch.device(names.matching(names.DEVICE, node.get("device", "cpu")))
        if device.type == "cuda" and (device.index or 0) < torch.cuda.device_count():
            tensor = tensor.to(device)
        gradient = node["gradient"] is True
        return nn.Parameter(tensor, requires_grad=gradient) if kind == "parameter" else tensor.requires_grad_(gradient)

    def _objects(self, node: dict[str, Any]) -> NDArray[Any]:
        cells = np.empty(len(node["objects"]), dtype=object)
        for i, cell in enumerate(node["objects"]):
            cells[i] = self._value(cell)
        return np.asarray(cells.reshape([_integer(n, 0) for n in node["shape"]]))

    def _list(self, node: dict[str, Any]) -> list[Any]:
        instance: list[Any] = self._new([])
        instance.extend(map(self._value, _one(list, node["list"])))
        return instance

    def _tuple(self, node: dict[str, Any]) -> Any:
        cells = tuple(map(self._value, _one(list, node["tuple"])))
        if "of" not in node:
            return cells
        kind: Any = self._listed(names.find_class, node["of"], self._classes)
        if not issubclass(kind, tuple) or len(getattr(kind, "_fields", ())) != len(cells):
            raise ValueError(f"A {kind.__name__} does not have {len(cells)} fields.")
        return tuple.__new__(kind, cells)

    def _dict(self, node: dict[str, Any]) -> dict[Any, Any]:
        kind, cells = next(iter(node.items()))
        instance: dict[Any, Any] = self._new(collections.OrderedDict() if kind == "ordered" else {})
        pairs = cells.items() if isinstance(cells, dict) else ((self._key(k), v) for k, v in _one(list, cells))
        for key, cell in pairs:
            instance[key] = self._value(cell)
        return instance

    def _partial(self, node: dict[str, Any]) -> Any:
        function = self._value(node["partial"])
        if not callable(function) or isinstance(function, nn.Module):
            raise ValueError("A function with arguments is not one that a file may use.")
        arguments = list(map(self._value, _one(list, node["arguments"])))
        keywords = {key: self._value(cell) for key, cell in node.items() if key not in ("partial", "arguments")}
        return functools.partial(function, *arguments, **keywords)

    def _object(self, node: dict[str, Any]) -> Any:
        instance = self._new(object.__new__(self._listed(names.find_class, node["object"], self._classes)))
        restore(instance, {name: self._value(part) for name, part in _one(dict, node["state"]).items()})
        return instance


def _one(kind: type, node: Any) -> Any:
    if type(node) is not kind:
        raise ValueError(f"The file has a {type(node).__name__} in place of a {kind.__name__}.")
    return node


def _integer(value: object, least: int = 1 - MAX_INTEGER) -> int:
    if type(value) is not int or not least <= value < MAX_INTEGER:
        raise ValueError(f"It holds {str(value)[:80]!r} in place of an integer.")
    return value
