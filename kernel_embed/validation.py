"""Checks of data and settings at public functions; the rest of the package trusts its input."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from .runtime import available_memory, device_memory

ALWAYS_THERE = 2**24
"""Bytes below which the available memory is not queried, which takes longer than a small matrix."""


def check_features(
    x: Tensor, name: str = "x", width: int | None = None, integers_as: torch.dtype | None = None, fewest: int = 1
) -> Tensor:
    """``x`` as finite floats ``(n, d)``, n ≥ ``fewest``; a vector becomes one column, integers ``integers_as``."""
    check_tensor(x, name)
    if not x.is_floating_point():
        x = x.to(integers_as or torch.get_default_dtype())
    if x.is_inference():
        x = x.clone()  # may be saved for a gradient
    if x.dim() == 0:
        raise ValueError(f"Expected {name} of shape (n, d), got a single number. Give a row for each point.")
    if x.dim() == 1:
        x = x.unsqueeze(-1)
    if x.dim() > 2:
        raise ValueError(
            f"Expected {name} of shape (n, d), got {tuple(x.shape)}. Flatten images and series into one row each; "
            "batches belong to the kernel (batch_shape)."
        )
    if x.shape[-1] == 0 or x.shape[-2] < fewest:
        raise ValueError(f"Expected at least one row and one column in {name}, got shape {tuple(x.shape)}.")
    if width is not None and x.shape[-1] != width:
        raise ValueError(f"Expected {name} with {width} features, as in training, got {x.shape[-1]}. Give the same.")
    check_finite(x, name)
    return x


def check_sample(x: Tensor, parameters: Iterable[Tensor]) -> Tensor:
    """``x`` of shape ``(n, d)``, finite, in the dtype of a kernel's ``parameters`` if that is wider."""
    dtype = next((parameter.dtype for parameter in parameters), None)
    x = check_features(x, integers_as=dtype)
    largest = float(x.detach().abs().max())
    if 0.0 < largest < torch.finfo(x.dtype).tiny:
        raise ValueError(f"Expected values that {x.dtype} holds with all digits, got at most {largest:g}. Rescale x.")
    return x if dtype is None else x.to(torch.promote_types(x.dtype, dtype))


def check_query_points(x: Tensor, data: Tensor) -> Tensor:
    """New points ``x`` ``(t, d)``, t ≥ 0, in the dtype and on the device of the ``data`` ``(n, d)``."""
    return check_features(x, width=data.shape[-1], integers_as=data.dtype, fewest=0).to(data)


def check_tensor(x: Tensor, name: str) -> None:
    """Raise unless ``x`` is a tensor of a supported real dtype: not half precision, not complex."""
    if not isinstance(x, Tensor):
        kind = type(x).__name__
        raise TypeError(f"Expected {name} to be a torch.Tensor, got {kind}. Convert it with torch.as_tensor({name}).")
    if x.dtype in (torch.float16, torch.bfloat16) or x.is_complex():
        raise TypeError(f"Expected {name} in float32 or float64, got {x.dtype}. Convert it with {name}.float().")
    check_dense(x, name)


def check_dense(x: Tensor, name: str) -> None:
    """Raise unless ``x`` is a dense tensor with values: not sparse, nested, quantized or on ``meta``."""
    if x.is_nested or x.layout is not torch.strided:
        kind = "a nested tensor" if x.is_nested else f"layout {x.layout}"
        remedy = f"Pad it with {name}.to_padded_tensor(0.0)" if x.is_nested else f"Convert it with {name}.to_dense()"
        raise TypeError(f"Expected {name} as a dense tensor, got {kind}. {remedy}.")
    if x.device.type == "meta":
        raise TypeError(f"{name} is on the device meta and has no values. Load the data.")
    if x.is_quantized:
        raise TypeError(f"Expected {name} in float32 or float64, got {x.dtype}. Convert it with {name}.dequantize().")


def check_number(name: str, value: object) -> float:
    """``value`` as a real number; NaN and infinities pass."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real | Tensor):
        raise TypeError(f"Expected {name} as a number, got {value!r}. Give an int or a float.")
    if isinstance(value, Tensor) and value.numel() != 1:
        raise TypeError(f"Expected {name} as one number, got shape {tuple(value.shape)}. Give one of them.")
    return float(value)


def check_array(values: ArrayLike | Tensor, name: str, dim: int | None = None) -> NDArray[np.float64]:
    """``values``, a tensor or anything that NumPy accepts, as an array of real numbers with ``dim`` dimensions."""
    if isinstance(values, Tensor):
        check_tensor(values, name)
        values = values.detach().cpu().numpy()
    if np.iscomplexobj(values):
        raise TypeError(f"Expected {name} as real numbers, got complex ones. Give real and imaginary parts apart.")
    try:
        if np.asarray(values).dtype.kind in "US":  # NumPy would read some texts as numbers
            raise TypeError("Text is not a number.")
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"Expected {name} as numbers, got {type(values).__name__}. Give an array.") from error
    if dim is not None and array.ndim != dim:
        raise ValueError(f"Expected {name} with {dim} dimension(s), got shape {array.shape}. Reshape it.")
    return array


def check_count(name: str, value: object, least: int = 1, most: int = 2**31 - 1) -> int:
    """``value`` as a whole number from ``least`` to ``most``."""
    try:
        number = operator.index(None if isinstance(value, bool) else value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"Expected {name} as a whole number, got {value!r}. Give an int.") from None
    if not least <= number <= most:
        limit = f"least {least}" if number < least else f"most {most}"
        raise ValueError(f"Expected {name} of at {limit}, got {number}.")
    return number


def check_setting(name: str, value: float, fits: bool, expected: str) -> None:
    """Raise unless the setting ``name`` ``fits``; ``expected`` describes valid values."""
    if not fits:
        raise ValueError(f"Expected {name} {expected}, got {value!r}.")


def check_share(name: str, value: float, remedy: str = "Both ends are excluded.") -> None:
    """Raise unless ``value`` is a number between 0 and 1, both excluded."""
    if not 0.0 < check_number(name, value) < 1.0:
        raise ValueError(f"Expected {name} between 0 and 1, got {value!r}. {remedy}")


def check_seed(seed: int | None) -> None:
    """Raise unless ``seed`` is ``None`` or an integer that every generator accepts."""
    if seed is not None:
        check_count("seed", seed, 0, 2**64 - 1)


def generator_of(seed: int | None, device: torch.device | str = "cpu") -> torch.Generator:
    """A new generator, so that the global random state does not change; ``None`` for a random seed."""
    check_seed(seed)
    generator = torch.Generator(device=device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(int(seed))
    return generator


def check_memory(
    n: int, x: Tensor | None, batch: int, remedy: str, columns: int | None = None, matrices: int = 4
) -> None:
    """Raise if ``matrices`` n × ``columns`` (by default n) do not fit in memory; ``x=None`` is float64 on the CPU."""
    columns = n if columns is None else columns
    needed = matrices * n * columns * (8 if x is None else x.element_size()) * batch
    if needed < ALWAYS_THERE:
        return
    available = available_memory() if x is None or x.device.type == "cpu" else device_memory(x.device)
    if available is not None and needed > available:
        raise MemoryError(
            f"Expected data that fit in memory, got n = {n}, whose {n} × {columns} matrices need "
            f"{needed / 2**30:.3g} GiB of the {available / 2**30:.3g} GiB here. {remedy}"
        )


def all_finite(x: Tensor) -> bool:
    """Whether ``x`` has no NaN or infinite values; usually by one sum, since finite numbers seldom overflow."""
    x = x.detach()
    return bool(torch.isfinite(x.sum())) or bool(torch.isfinite(x).all())


def check_finite(x: Tensor, name: str) -> None:
    """Raise if ``x`` has NaN or infinite values, saying how many and where the first one is."""
    if all_finite(x):
        return
    bad = (~torch.isfinite(x)).nonzero().tolist()
    where = f"the first at index {tuple(bad[0])}"
    raise ValueError(f"Expected finite values in {name}, got {len(bad)} NaN or infinite, {where}. Remove those rows.")


def check_lengths(x: Tensor, y: Tensor | None) -> Tensor:
    """``y``, which must have one entry for each row of ``x``."""
    if not isinstance(y, Tensor):
        remedy = "Convert it with torch.as_tensor(y)"
        if np.ndim(y) == 1 and isinstance(next(iter(y), None), str):  # type: ignore[call-overload,arg-type]
            remedy = "Number the classes from 0, or use MulticlassEmbeddingClassifier, which takes any labels"
        raise TypeError(f"Expected y to be a torch.Tensor, got {type(y).__name__}. {remedy}.")
    check_dense(y, "y")
    if y.shape[:1] != x.shape[-2:-1]:
        got = "a single number" if y.dim() == 0 else f"{y.shape[0]}"
        raise ValueError(f"Expected one target for each of the {x.shape[-2]} rows of x, got {got}.")
    return y.clone() if y.is_inference() else y


def check_weights(x: Tensor, weights: Tensor | None) -> Tensor | None:
    """``weights`` of the rows of ``x`` in its dtype, ``(n,)``, finite and positive; ``None`` if all are 1."""
    if weights is None:
        return None
    check_tensor(weights, "weights")
    if weights.shape != x.shape[-2:-1]:
        raise ValueError(f"Expected a weight for each of the {x.shape[-2]} rows of x, got {tuple(weights.shape)}.")
    check_finite(weights, "weights")
    if wrong := int((weights <= 0).sum()):
        raise ValueError(f"Expected positive weights, got {wrong} that are not. Leave out rows of weight 0.")
    return weights.to(x)


def check_groups(x: Tensor, groups: Tensor) -> Tensor:
    """``groups`` of the rows of ``x``, one whole number for each, on its device."""
    if groups.shape != x.shape[-2:-1] or groups.is_floating_point() or groups.is_complex():
        raise ValueError(
            f"groups must be one whole number for each of the {x.shape[-2]} rows of x, got shape "
            f"{tuple(groups.shape)} in {groups.dtype}. Number them with torch.unique(..., return_inverse=True)."
        )
    return groups.to(x.device)


def check_at_least(lowest: float, **settings: float) -> None:
    """Raise unless every setting is at least ``lowest``; NaN is not."""
    for name, value in settings.items():
        if not check_number(name, value) >= lowest:
            raise ValueError(f"Expected {name} of at least {lowest:g}, got {value}.")


def broadcast_shapes(*shapes: Sequence[int]) -> torch.Size:
    """:func:`torch.broadcast_shapes` without SymPy, whose import takes longer than a small fit."""
    try:
        return torch.Size(np.broadcast_shapes(*(tuple(shape) for shape in shapes)))
    except ValueError as error:
        text = ", ".join(str(tuple(shape)) for shape in shapes)
        raise RuntimeError(f"Expected shapes that broadcast, got {text}. Give equal sizes, or 1.") from error
