"""From a description back to objects: made empty and filled, without a call to anything the file names."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .names import find_class, find_function


class Rebuilder:
    """Rebuilds what a :class:`kernel_embed.saving.describe.Describer` described.

    Args:
        arrays: by number.
        classes: of the user's own.
    """

    def __init__(self, arrays: Sequence[NDArray[Any]], classes: Sequence[type] = ()) -> None:
        self._arrays, self._classes = arrays, classes
        self._made: dict[int, Any] = {}

    def rebuild(self, node: Any) -> Any:
        """The object of a node."""
        if not isinstance(node, dict):
            return node
        if "ref" in node:
            return self._made[node["ref"]]
        for kind, make in self._makers().items():
            if kind in node:
                made = make(node)
                if "id" in node:
                    self._made[node["id"]] = made
                return made
        raise ValueError(
            f"Expected a description that is known, got {', '.join(map(str, node))}. Save the model again with ke.save."
        )

    def _makers(self) -> dict[str, Callable[[dict[str, Any]], Any]]:
        return {
            "float": lambda n: float(n["float"]),
            "enum": lambda n: find_class(n["enum"], self._classes)[n["name"]],  # type: ignore[index]
            "torch": _torch,
            "size": lambda n: torch.Size(n["size"]),
            "dtype": lambda n: np.dtype(n["dtype"]),
            "scalar": lambda n: self._arrays[n["scalar"]][()],
            "slice": lambda n: slice(*map(self.rebuild, n["slice"])),
            "range": lambda n: range(*map(self.rebuild, n["range"])),
            "class": lambda n: find_class(n["class"], self._classes),
            "method": lambda n: getattr(self.rebuild(n["of"]), n["method"]),
            "partial": self._partial,
            "function": lambda n: find_function(n["function"]),
            "parameter": lambda n: nn.Parameter(self._tensor(n, "parameter"), requires_grad=n["requires_grad"]),
            "tensor": lambda n: self._tensor(n, "tensor").requires_grad_(n["requires_grad"]),
            "objects": self._objects,
            "array": lambda n: self._arrays[n["array"]],
            "list": self._list,
            "tuple": self._tuple,
            "set": lambda n: set(map(self.rebuild, n["set"])),
            "frozenset": lambda n: frozenset(map(self.rebuild, n["frozenset"])),
            "dict": self._dict,
            "object": self._object,
        }

    def _partial(self, node: dict[str, Any]) -> Any:
        function, arguments, keywords = map(self.rebuild, node["partial"])
        return functools.partial(function, *arguments, **keywords)

    def _tensor(self, node: dict[str, Any], kind: str) -> torch.Tensor:
        tensor = torch.as_tensor(np.array(self._arrays[node[kind]]))
        return tensor if node["device"] == "cpu" or not torch.cuda.is_available() else tensor.to(node["device"])

    def _objects(self, node: dict[str, Any]) -> NDArray[Any]:
        cells = np.empty(len(node["objects"]), dtype=object)
        for i, cell in enumerate(node["objects"]):
            cells[i] = self.rebuild(cell)
        return np.asarray(cells.reshape(node["shape"]))

    def _list(self, node: dict[str, Any]) -> list[Any]:
        made = self._made[node["id"]] = list[Any]()
        made.extend(map(self.rebuild, node["list"]))
        return made

    def _tuple(self, node: dict[str, Any]) -> Any:
        cells = tuple(map(self.rebuild, node["tuple"]))
        if "of" not in node:
            return cells
        kind = find_class(node["of"], self._classes)
        return tuple.__new__(kind, cells)

    def _dict(self, node: dict[str, Any]) -> dict[Any, Any]:
        made: dict[Any, Any] = collections.OrderedDict() if node["ordered"] else {}
        self._made[node["id"]] = made
        for key, value in node["dict"]:
            made[self.rebuild(key)] = self.rebuild(value)
        return made

    def _object(self, node: dict[str, Any]) -> Any:
        kind = find_class(node["object"], self._classes)
        made: Any = object.__new__(kind)
        self._made[node["id"]] = made
        for name, value in node["state"]:
            # not setattr of the class: that of a torch module looks at what is not there yet
            object.__setattr__(made, name, self.rebuild(value))
        return made


def _torch(node: dict[str, Any]) -> Any:
    if node["torch"] == "device":
        return torch.device(node["text"])
    found = getattr(torch, node["text"], None)
    if not isinstance(found, torch.dtype):
        raise ValueError(
            f"Expected a type of torch in the file, got {node['text']!r}. Save the model again with ke.save."
        )
    return found
