"""The state of objects as plain data: which attributes are written, and which a file may set."""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Mapping
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import Interval
from gpytorch.priors import Prior
from torch import Tensor, nn

CHILDREN = {"_parameters": nn.Parameter, "_buffers": Tensor, "_modules": nn.Module, "_constraints": Interval}
"""The allowed types of the children of a torch module, by attribute."""
HOOKS = frozenset(name for name in vars(nn.Module()) if "_hook" in name)
"""Attributes in which torch modules store hooks. They are not written to files."""
ATTRIBUTE = re.compile(r"(?!__|_doc_link|_compiled_call_impl)[^\W\d]\w*")


class Attribute:
    """Reads and sets one parameter of a GPyTorch module; it replaces the closures of a loaded prior."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Any, value: Any = None) -> Any:
        return getattr(module, self.name) if value is None else module.initialize(**{self.name: value})


def state_of(thing: object) -> dict[str, Any]:
    """The attributes and slots of an object; without hooks, and with priors by the name of their parameter."""
    slots = [name for kind in type(thing).__mro__ for name in vars(kind) if _slot(kind, name) is not None]
    state = {**getattr(thing, "__dict__", {}), **{name: getattr(thing, name) for name in slots if hasattr(thing, name)}}
    if not hasattr(thing, "__dict__") and not state:
        name = type(thing).__qualname__
        raise ValueError(f"The state of a {name} is not visible from Python. Save that part with its own library.")
    if isinstance(thing, nn.Module):
        for name in HOOKS & state.keys():
            for hook in (state.pop(name) or {}).values():
                if not (getattr(getattr(hook, "hook", hook), "__module__", None) or "").startswith("gpytorch."):
                    raise ValueError(f"{name} holds hooks, which cannot be saved. Remove them first.")
    if isinstance(thing, gpytorch.Module):
        state["_priors"] = {
            name: [prior, _parameter_of(thing, name, read), write is not None]
            for name, (prior, read, write) in state["_priors"].items()
        }
    return state


def restore(instance: object, state: dict[str, Any]) -> None:
    """Give ``instance``, a new and empty object, its state, without any code of its class.

    Raises:
        ValueError: if the state is not one that such an object can have.
    """
    kind = type(instance)
    for name in state:
        if not ATTRIBUTE.fullmatch(name) or _is_reserved(kind, name):
            raise ValueError(f"A {kind.__name__} cannot have its {name[:80]!r} set.")
    if isinstance(instance, nn.Module):
        state = _module_state(instance, state)
    if any(base.__module__.startswith("sklearn.") for base in kind.__mro__):
        _check_sklearn(kind, state)
    for name in [name for name in state if _slot(kind, name) is not None]:
        _slot(kind, name).__set__(instance, state.pop(name))
    if state and not hasattr(instance, "__dict__"):
        raise ValueError(f"A {kind.__name__} has no attribute {next(iter(state))!r}.")
    if state:
        object.__getattribute__(instance, "__dict__").update(state)
    if isinstance(instance, gpytorch.Module):
        gpytorch.Module._register_load_state_dict_pre_hook(
            instance, types.MethodType(gpytorch.Module._load_state_hook_ignore_shapes, instance)
        )


def _slot(kind: type, name: str) -> Any:
    member = inspect.getattr_static(kind, name, None)
    return member if isinstance(member, types.MemberDescriptorType) else None


def _is_reserved(kind: type, name: str) -> bool:
    """Whether the class itself defines the name, so that it cannot be part of an object's state."""
    member = inspect.getattr_static(kind, name, None)
    if isinstance(member, types.MemberDescriptorType | functools.cached_property):
        return False
    return callable(member) or isinstance(member, classmethod | staticmethod) or hasattr(type(member), "__set__")


def _parameter_of(module: gpytorch.Module, name: str, read: Any) -> str:
    """The name of the parameter that a prior reads."""
    owner = getattr(read, "__self__", None)
    parameter = getattr(owner, "name", None) if not isinstance(owner, nn.Module) else None
    parameter = parameter or getattr(read, "name", None) or name.removesuffix("_prior").rpartition(".")[-1]
    if not (
        _has_parameter(type(module), vars(module), parameter) and torch.equal(read(module), getattr(module, parameter))
    ):
        raise ValueError(f"Its prior {name} is on a function of the parameters, which cannot be saved.")
    return str(parameter)


def _has_parameter(kind: type, state: Mapping[str, Any], name: str) -> bool:
    """Whether such a module has a parameter of that name, or an attribute that is read and set as one."""
    member = type(inspect.getattr_static(kind, name, None))
    is_set = hasattr(member, "__get__") and hasattr(member, "__set__")
    return bool(ATTRIBUTE.fullmatch(name)) and (name in state["_parameters"] or is_set)


def _module_state(instance: nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """The state of a torch module: hooks as in a new one, parameters, buffers and parts of the right kind."""
    kind = type(instance).__name__
    if HOOKS & state.keys():
        raise ValueError(f"The file gives a {kind} hooks, which it cannot have.")
    state = vars(nn.Module()) | state
    for name, type_ in CHILDREN.items():
        children = state.get(name, {})
        if not isinstance(children, dict) or not all(
            isinstance(key, str) and (value is None or isinstance(value, type_)) for key, value in children.items()
        ):
            raise ValueError(f"{name} of a {kind} must hold only objects of type {type_.__name__}.")
    if type(state["training"]) is not bool or not isinstance(state["_non_persistent_buffers_set"], set):
        raise ValueError(f"A {kind} has a wrong mode or wrong names of buffers.")
    if isinstance(instance, gpytorch.Module):
        state["_priors"] = {name: _prior(type(instance), state, *entry) for name, entry in state["_priors"].items()}
    if isinstance(instance, Interval):
        transforms = [{**state, **state["_modules"]}.get(name) for name in ("_transform", "_inv_transform")]
        allowed = (types.FunctionType, types.BuiltinFunctionType, nn.Softplus, types.NoneType)
        if not all(isinstance(transform, allowed) for transform in transforms):
            raise ValueError("The transform of a constraint is not one of the functions that a file may use.")
    return state


def _prior(
    kind: type, state: Mapping[str, Any], prior: object, name: object, is_set: object
) -> tuple[Prior, Attribute, Attribute | None]:
    if not isinstance(prior, Prior) or not isinstance(name, str) or not _has_parameter(kind, state, name):
        raise ValueError(f"A prior is on {name!s:.80}, which is not a parameter.")
    return prior, Attribute(name), Attribute(name) if is_set else None


def _check_sklearn(kind: type, state: Mapping[str, Any]) -> None:
    if state.get("memory") is not None:  # a directory that joblib would read pickles from
        raise ValueError(f"A {kind.__name__} has memory={state['memory']!s:.80}. Set it to None before saving.")
    if kind.__name__ != "SVC" or "support_vectors_" not in state:
        return
    try:  # libsvm itself does not check that shapes agree
        arrays = [state[name] for name in ("support_vectors_", "_n_support", "support_", "_dual_coef_", "_intercept_")]
        vectors, counts, support, coefficients, intercept = arrays
        m, pairs = len(counts), len(counts) * (len(counts) - 1) // 2
        is_right = (
            all(isinstance(array, np.ndarray) for array in arrays)
            and state["_sparse"] is False
            and isinstance(state["kernel"], str)
            and state["kernel"] != "precomputed"
            and vectors.ndim == 2
            and int(counts.min()) >= 0
            and int(counts.sum()) == len(vectors)
            and (support.shape, coefficients.shape) == ((len(vectors),), (m - 1, len(vectors)))
            and intercept.shape == (pairs,)
            and state["n_features_in_"] == state["shape_fit_"][1] == vectors.shape[1]
            and all(len(state[name]) in (0, pairs) for name in ("_probA", "_probB"))
        )
    except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(f"The state of an SVC is incomplete ({error}).") from error
    if not is_right:
        raise ValueError("The arrays of an SVC have inconsistent shapes.")
