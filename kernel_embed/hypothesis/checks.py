"""Checks of the input that all tests share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from torch import Tensor

from ..kernels import FeatureKernel
from ..progress import ProgressBar, progress_bar
from ..validation import check_dense, check_features, check_seed

Categorical = bool | Sequence[int] | None
"""Which columns are categories: none or all of them, or their numbers; ``None``: all of integer or bool samples."""

KINDS: dict[str, type[np.generic]] = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
"""What NumPy's kinds of numbers become: integers and bools stay what they are, for they may be categories."""


def as_tensor(x: Tensor | ArrayLike, name: str) -> Tensor:
    """``x`` as a tensor: a NumPy array, a data frame of numbers and nested lists are converted without loss.

    Example:
        >>> as_tensor([[0.1, 1], [0.2, 2]], "x").dtype, as_tensor([1, 2, 3], "x").dtype
        (torch.float64, torch.int64)
    """
    if isinstance(x, Tensor):
        return x
    try:
        # Masked entries are missing values, which the check for finite ones names.
        array = np.ma.filled(x.astype(float), np.nan) if isinstance(x, np.ma.MaskedArray) else np.asarray(x)
    except (ValueError, TypeError) as error:  # rows of different lengths, or what is no array
        raise ValueError(f"Expected {name} as rows of numbers, got {error}. Give rows of one length.") from error
    if array.dtype.kind not in KINDS:
        raise TypeError(
            f"Expected {name} as a tensor, an array or lists of numbers, got {type(x).__name__} of {array.dtype}. "
            "Convert it to numbers, categories to integers."
        )
    return torch.from_numpy(array.astype(KINDS[array.dtype.kind], order="C", copy=True))


def check_sample(x: Tensor | ArrayLike, name: str, minimum: int = 2) -> Tensor:
    """``x`` as a float64 tensor of shape ``(n, d)`` with at least ``minimum`` rows."""
    x = check_features(as_tensor(x, name), name, integers_as=torch.float64).double()
    if x.shape[0] < minimum:
        raise ValueError(
            f"Expected at least {minimum} points in {name}, got {x.shape[0]}. "
            f"A {'single' if minimum == 2 else 'smaller'} sample says nothing about its distribution."
        )
    return x


def check_pairs(*samples: Tensor, names: str = "xyz") -> None:
    """Raise unless all samples have one row for each observation."""
    sizes = [sample.shape[0] for sample in samples]
    if len(set(sizes)) > 1:
        got = ", ".join(f"{size} in {name}" for size, name in zip(sizes, names, strict=False))
        raise ValueError(
            f"Expected the same number of rows, one for each observation, got {got}. "
            "Give each argument one row for each observation."
        )


def categorical_columns(samples: Sequence[Tensor], categorical: Categorical) -> tuple[int, ...]:
    """The numbers of the columns that hold categories, for samples of one kind."""
    for sample in samples:
        check_dense(sample, "a sample")
    width = 1 if samples[0].dim() <= 1 else samples[0].shape[-1]
    if categorical is None:
        categorical = all(not s.is_floating_point() for s in samples)
    if isinstance(categorical, bool):
        return tuple(range(width)) if categorical else ()
    columns = tuple(sorted({int(column) % width if -width <= column < 0 else int(column) for column in categorical}))
    if any(not 0 <= column < width for column in columns):
        raise ValueError(
            f"Expected categorical columns from 0 to {width - 1}, got {list(categorical)}. Number the columns from 0."
        )
    return columns


def check_real(kernel: Kernel, columns: tuple[int, ...], name: str = "x") -> None:
    """Raise where categories would reach a kernel that measures distances between their codes."""
    if not columns:
        return
    for part in kernel.modules():
        if isinstance(part, Kernel) and part.has_lengthscale and not _is_inside_features(kernel, part):
            own = columns if part.active_dims is None else [c for c in columns if c in part.active_dims.tolist()]
            if own:
                raise TypeError(
                    f"Expected real numbers for {type(part).__name__}, got categories in columns {list(own)} of {name} "
                    "(integer or bool samples are taken for categories). Leave kernel=None or give a DeltaKernel for "
                    "those columns; if they are numbers, give floats or categorical=False."
                )


def _is_inside_features(kernel: Kernel, part: Kernel) -> bool:
    return any(isinstance(m, FeatureKernel) and part in set(m.modules()) for m in kernel.modules())


def check_permutations(num_permutations: int) -> None:
    """Raise unless there is at least one permutation."""
    if isinstance(num_permutations, bool) or not isinstance(num_permutations, int) or num_permutations < 1:
        raise ValueError(
            f"Expected num_permutations of at least 1, got {num_permutations}. With none there is no p-value; "
            "null='gamma' needs no permutations."
        )


def check_choice(value: str, known: Sequence[str], name: str) -> None:
    """Raise unless ``value`` is one of the ``known`` words."""
    if value not in known:
        raise ValueError(
            f"Expected {name} to be one of {', '.join(map(repr, known))}, got {value!r}. Choose one of these."
        )


def check_gram(K: Tensor, kernel: Kernel) -> Tensor:
    """``K`` in float64, raising where the kernel returned values that are not finite."""
    if not bool(torch.isfinite(K).all()):
        raise ValueError(
            f"Expected finite kernel values, got {int((~torch.isfinite(K)).sum())} NaN or infinite ones from "
            f"{type(kernel).__name__}. Look at its hyperparameters, and for features on very different scales."
        )
    return K.detach().double()


def generator_of(seed: int | None) -> torch.Generator:
    """A generator of its own: the host's random numbers stay what they were."""
    check_seed(seed)
    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(int(seed))
    return generator


LARGE_TEST = 10_000
"""Points from which a test takes long enough to show how far it is."""


def bar_of_test(steps: int, num_points: int, show: bool | None) -> ProgressBar:
    """A progress bar of a test; ``None`` shows one on a terminal or in a notebook, for large samples."""
    return progress_bar(steps, "test", False if show is None and num_points < LARGE_TEST else show)
