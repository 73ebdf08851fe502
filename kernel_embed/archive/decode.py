"""From plain JSON back to objects: created empty, then filled, without calling anything that the file names."""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from .names import find_class, find_function, find_type
from .state import restore

MAX_DEPTH = 120
DTYPE = re.compile(r"[<>|=]?([biufc](1|2|4|8|16)|[US]\d{1,6}|[mM]8(\[\w{1,10}\])?|O)")
DEVICE = re.compile(r"(cpu|cuda|mps|meta)(:\d{1,3})?")
MAX_INTEGER = 2**63


class Decoder:
    """Rebuilds what an :class:`kernel_embed.archive.encode.Encoder` wrote.

    Args:
        arrays: by name; each is used once.
        classes: of the user's own.
        plain: refuse objects, classes and functions.

    Example:
        >>> Decoder({"a": np.zeros(2)}).value({"dict": {"a": {"array": "a"}, "b": {"tuple": [1, 2]}}})
        {'a': array([0., 0.]), 'b': (1, 2)}
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], classes: Sequence[type] = (), plain: bool = False) -> None:
        self._arrays, self._classes = dict(arrays), classes
        self._instances: dict[int, Any] = {}
        self._count = self._depth = 0
        self._makers: dict[str, Callable[[dict[str, Any], int], Any]] = {
            "tensor": self._tensor,
            "parameter": self._tensor,
            "array": lambda node, number: self._array(node["array"]),
            "objects": self._objects,
            "list": self._list,
            "tuple": self._tuple,
            "set": lambda node, number: set(map(self._key, node["set"])),
            "frozenset": lambda node, number: frozenset(map(self._key, node["frozenset"])),
            "dict": self._dict,
            "ordered": self._dict,
        }
        self._values: dict[str, Callable[[dict[str, Any]], Any]] = {
            "float": lambda node: float(_one_of(node["float"], ("nan", "inf", "-inf"))),
            "ref": self._ref,
            "size": lambda node: torch.Size([_integer(n, 0) for n in node["size"]]),
            "scalar": lambda node: self._array(node["scalar"])[()],
            "slice": lambda node: slice(*(None if n is None else _integer(n) for n in node["slice"])),
            "numpy": lambda node: np.dtype(_matching(DTYPE, node["numpy"])),
            "device": lambda node: torch.device(_matching(DEVICE, node["device"])),
            "dtype": _dtype,
        }
        if not plain:
            self._makers["object"] = self._object
            self._values["class"] = lambda node: find_type(node["class"], self._classes)
            self._values["function"] = lambda node: find_function(node["function"])
            self._values["partial"] = self._partial

    def whole(self, node: Any) -> Any:
        """The value of a node that uses all arrays."""
        value = self.value(node)
        if self._arrays:
            raise ValueError(f"The array {next(iter(self._arrays))} is not used by any value.")
        return value

    def value(self, node: Any) -> Any:
        """The value of a node."""
        if not isinstance(node, dict):
            if isinstance(node, list):
                raise ValueError("A value is a bare list.")
            return node
        kind = next(iter(node), None)
        if kind in self._values:
            return self._values[kind](node)
        if kind not in self._makers:
            raise ValueError(f"It contains a value of unknown kind: {str(kind)[:80]}.")
        number, self._count, self._depth = self._count, self._count + 1, self._depth + 1
        if self._depth > MAX_DEPTH:
            raise ValueError("It is nested too deeply.")
        self._instances[number] = instance = self._makers[kind](node, number)
        self._depth -= 1
        return instance

    def _ref(self, node: dict[str, Any]) -> Any:
        number = node["ref"]
        if type(number) is not int or number not in self._instances:
            raise ValueError(f"It refers to the part {str(number)[:40]}, which is missing.")
        return self._instances[number]

    def _key(self, node: Any) -> Any:
        """A key of a dictionary or a member of a set: plain values, whose hash runs no code of a class."""
        if isinstance(node, dict) and next(iter(node), None) == "tuple" and "of" not in node:
            self._count += 1
            if any(isinstance(cell, dict) and "tuple" in cell for cell in node["tuple"]):
                raise ValueError("A key is nested too deeply.")
            return tuple(map(self._key, node["tuple"]))
        key = self.value(node) if not isinstance(node, dict) or next(iter(node)) in ("float", "scalar") else node
        if not isinstance(key, str | int | float | np.generic | None):
            raise ValueError("A key is not plain.")
        return key

    def _array(self, name: object) -> NDArray[Any]:
        if not isinstance(name, str) or name not in self._arrays:
            raise ValueError(f"The array {str(name)[:80]} is missing or used twice.")
        return self._arrays.pop(name)

    def _tensor(self, node: dict[str, Any], number: int) -> Tensor:
        kind = next(iter(node))
        tensor = torch.from_numpy(self._array(node[kind]))
        device = torch.device(_matching(DEVICE, node.get("device", "cpu")))
        if device.type == "cuda" and (device.index or 0) < torch.cuda.device_count():
            tensor = tensor.to(device)
        gradient = node["gradient"] is True
        return nn.Parameter(tensor, requires_grad=gradient) if kind == "parameter" else tensor.requires_grad_(gradient)

    def _objects(self, node: dict[str, Any], number: int) -> NDArray[Any]:
        cells = np.empty(len(node["objects"]), dtype=object)
        for i, cell in enumerate(node["objects"]):
            cells[i] = self.value(cell)
        return np.asarray(cells.reshape([_integer(n, 0) for n in node["shape"]]))

    def _list(self, node: dict[str, Any], number: int) -> list[Any]:
        instance = self._instances[number] = list[Any]()
        instance.extend(map(self.value, _one(list, node["list"])))
        return instance

    def _tuple(self, node: dict[str, Any], number: int) -> Any:
        cells = tuple(map(self.value, _one(list, node["tuple"])))
        if "of" not in node:
            return cells
        kind: Any = find_class(node["of"], self._classes)
        if not issubclass(kind, tuple) or len(getattr(kind, "_fields", ())) != len(cells):
            raise ValueError(f"A {kind.__name__} does not have {len(cells)} fields.")
        return tuple.__new__(kind, cells)

    def _dict(self, node: dict[str, Any], number: int) -> dict[Any, Any]:
        kind = next(iter(node))
        instance: dict[Any, Any] = collections.OrderedDict() if kind == "ordered" else {}
        self._instances[number] = instance
        if isinstance(node[kind], dict):
            for key, cell in node[kind].items():
                instance[key] = self.value(cell)
            return instance
        for key, cell in _one(list, node[kind]):
            name = self._key(key)
            instance[name] = self.value(cell)
        return instance

    def _partial(self, node: dict[str, Any]) -> Any:
        function = self.value(node["partial"])
        if not callable(function) or isinstance(function, nn.Module):
            raise ValueError("A function with arguments is not one that a file may use.")
        arguments = list(map(self.value, _one(list, node["arguments"])))
        keywords = {key: self.value(cell) for key, cell in node.items() if key not in ("partial", "arguments")}
        return functools.partial(function, *arguments, **keywords)

    def _object(self, node: dict[str, Any], number: int) -> Any:
        kind = find_class(node["object"], self._classes)
        instance: Any = object.__new__(kind)
        self._instances[number] = instance
        state = {name: self.value(part) for name, part in _one(dict, node["state"]).items()}
        restore(instance, state)
        return instance


def _one(kind: type, node: Any) -> Any:
    if type(node) is not kind:
        raise ValueError(f"The file has a {type(node).__name__} in place of a {kind.__name__}.")
    return node


def _one_of(value: object, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise ValueError(f"It holds {str(value)[:80]!r}; only {', '.join(allowed)} are allowed.")
    return str(value)


def _matching(pattern: re.Pattern[str], value: object) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"It names the type or device {str(value)[:80]!r}, which is unknown.")
    return value


def _integer(value: object, least: int = 1 - MAX_INTEGER) -> int:
    if type(value) is not int or not least <= value < MAX_INTEGER:
        raise ValueError(f"It holds {str(value)[:80]!r} in place of an integer.")
    return value


def _dtype(node: dict[str, Any]) -> torch.dtype:
    dtype = vars(torch).get(node["dtype"]) if isinstance(node["dtype"], str) else None
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"It names the type {str(node['dtype'])[:80]!r}, which is unknown.")
    return dtype
