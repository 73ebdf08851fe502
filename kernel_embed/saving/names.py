"""Names of classes and functions in a file, and which of them are known."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

KNOWN_CLASSES = (
    *("kernel_embed", "gpytorch", "linear_operator", "sklearn", "torch.nn", "torch.distributions"),
    *("collections", "numpy.random"),
)
"""Classes of these packages are made when a file names them: made empty, and filled."""
KNOWN_FUNCTIONS = (
    *("kernel_embed.kernels", "kernel_embed.embeddings", "kernel_embed.objectives", "kernel_embed.estimators"),
    *("kernel_embed.lab.compare", "gpytorch", "torch.nn.functional", "torch.functional", "linear_operator"),
)
"""Functions of these are found again when a file names them. None of them is called."""
TYPES = {f"builtins:{kind.__name__}": kind for kind in (bool, int, float, str, object)}
"""Types of cells that transformers remember; those of NumPy's scalars are known too."""
FUNCTIONS_OF_TORCH = ("exp", "log", "sigmoid", "tanh", "relu", "logit")
UFUNCS = ("log", "log1p", "exp", "expm1", "sqrt", "abs")


class Attribute:
    """Reads, and sets, one parameter of a GPyTorch module: what priors are given in place of a nameless function."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Any, value: Any = None) -> Any:
        """The parameter; with ``value``, it is set."""
        return getattr(module, self.name) if value is None else module.initialize(**{self.name: value})


def name_of(kind: type, where: str) -> str:
    """``module:qualname``; a class inside a function has none."""
    if "<locals>" in kind.__qualname__ or kind.__module__ == "__main__":
        raise ValueError(
            f"Expected a class that can be imported in {where}, got {kind.__qualname__} of {kind.__module__}. Define "
            "it in a module of its own."
        )
    return f"{kind.__module__}:{kind.__qualname__}"


def function_name(function: Any, where: str) -> str:
    """The name under which a function is found again, wherever it is defined."""
    for module, names in (("torch", FUNCTIONS_OF_TORCH), ("numpy", UFUNCS), ("torch.nn.functional", None)):
        holder = importlib.import_module(module)
        for name in names if names is not None else dir(holder):
            if getattr(holder, name, None) is function:
                return f"{module}:{name}"
    qualname = getattr(function, "__qualname__", "")
    module_name = getattr(function, "__module__", None) or ""
    if "<" in qualname or not module_name.startswith(KNOWN_FUNCTIONS):
        raise ValueError(
            f"Expected a function that can be found again in {where}, got {qualname or function!r} of {module_name}. "
            "Functions of your own, and those inside others, cannot be saved: give the kernel itself in their place."
        )
    return f"{module_name}:{qualname}"


def find_class(name: str, extra: Sequence[type]) -> type:
    """The class of that name, if it is known."""
    for kind in extra:
        if f"{kind.__module__}:{kind.__qualname__}" == name:
            return kind
    if name in TYPES:
        return TYPES[name]
    module, _, qualname = name.partition(":")
    scalar = getattr(np, qualname, None) if module == "numpy" else None
    if isinstance(scalar, type) and issubclass(scalar, np.generic):
        return scalar
    found = _found(name, KNOWN_CLASSES)
    if not isinstance(found, type):
        raise ValueError(f"Expected the name of a class in the file, got {name!r}. Save the model again with ke.save.")
    return found


def find_function(name: str) -> Any:
    """The function of that name, if it is known."""
    module, _, qualname = name.partition(":")
    if (module, qualname) in {("torch", f) for f in FUNCTIONS_OF_TORCH}:
        return getattr(torch, qualname)
    if module == "numpy" and qualname in UFUNCS:
        return getattr(np, qualname)
    return _found(name, KNOWN_FUNCTIONS)


def _found(name: str, known: Sequence[str]) -> Any:
    module, _, qualname = name.partition(":")
    if not any(module == package or module.startswith(f"{package}.") for package in known):
        raise ValueError(
            f"Expected classes and functions of known libraries in the file, got {name.replace(':', '.')}. If it is a "
            "class of yours and you trust the file, give it: ke.load(path, classes=[…])."
        )
    if any(part.startswith("__") for part in qualname.split(".")):
        raise ValueError(
            f"Expected the name of a class or function in the file, got {name!r}. Save the model again with ke.save."
        )
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"Expected {name.replace(':', '.')}, which the model needs, got none ({error}). Install what defines it."
        ) from error
    if getattr(found, "__module__", module).partition(".")[0] not in {package.partition(".")[0] for package in known}:
        raise ValueError(
            f"Expected a name of {module} itself in the file, got {qualname}, which it imports. "
            "Save the model again with ke.save."
        )
    return found
