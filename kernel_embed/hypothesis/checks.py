r"""Reading and checking the input of tests, and encoding columns of any kind for a squared exponential kernel.

A real column is divided by its spread. A categorical one becomes one coordinate for each category, divided by
:math:`(1 - \sum_c p_c^2)^{1/2}`, the root of their total variance, so that every column weighs the same. A squared
exponential of these points is a product over columns: of real numbers the usual one, of categories
:math:`\rho^{[a \neq b]}`, 1 where they agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..kernels import FeatureKernel, gram
from ..kernels.gram import cross_evaluation, finite_values
from ..runtime import ProgressBar, progress_bar
from ..validation import check_dense, check_features

Categorical = bool | Sequence[int] | None
"""The categorical columns: all or none, or their indices; ``None``: all columns of integer or bool samples."""

DTYPES: dict[str, type[np.generic]] = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
"""Dtypes by NumPy's kind: integers and bools keep their type, because they may be categories."""
LARGE_TEST = 10_000  # the number of points from which a test shows a progress bar
NORMAL_QUARTILES = 1.349  # between the quartiles of a standard normal variable


def read_samples(
    samples: Mapping[str, Tensor | ArrayLike], categorical: Categorical, minimum: int = 2
) -> tuple[list[Tensor], tuple[int, ...]]:
    """Samples of the same columns as float64 tensors ``(n, d)`` on one device, and their categorical columns.

    Columns of text are categorical; their categories are numbered in sorted order.
    """
    tables = {name: _table(sample, name) for name, sample in samples.items()}
    text = _number_text(tables)
    raw = {name: table if isinstance(table, Tensor) else torch.from_numpy(table) for name, table in tables.items()}
    checked = {name: check_features(x, name, integers_as=torch.float64).double() for name, x in raw.items()}
    for name, x in checked.items():
        if len(x) < minimum:
            raise ValueError(f"The test needs at least {minimum} rows in {name}, but it has {len(x)}.")
    if len({x.shape[1] for x in checked.values()}) > 1:
        counts = ", ".join(f"{x.shape[1]} in {name}" for name, x in checked.items())
        raise ValueError(f"The samples have different numbers of columns: {counts}. Give all the same features.")
    columns = categorical_columns(list(raw.values()), categorical)
    if text and categorical is False:
        raise TypeError(f"Columns {text} hold text, which is categorical. Leave categorical=False out.")
    device = next(iter(checked.values())).device
    return [x.to(device) for x in checked.values()], tuple(sorted({*columns, *text}))


def _table(x: Tensor | ArrayLike, name: str) -> Tensor | NDArray[Any]:
    """Numbers without loss of precision; a table ``(n, d)`` with text as objects, which NumPy would all make text."""
    if isinstance(x, Tensor):
        check_dense(x, name)
        return x
    try:
        # Masked entries become NaN, which check_features rejects with their position.
        array = np.ma.filled(x.astype(float), np.nan) if isinstance(x, np.ma.MaskedArray) else np.asarray(x)
        objects = array if array.dtype.kind in DTYPES else np.array(x, dtype=object)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} is not a table of numbers: {error}. Give rows of equal length.") from error
    if array.dtype.kind in DTYPES:
        return array.astype(DTYPES[array.dtype.kind], order="C", copy=True)
    if objects.ndim in (1, 2) and any(isinstance(value, str) for value in objects.flat):
        return objects.reshape(len(objects), -1)
    kind = f"{type(x).__name__} of {array.dtype}"
    raise TypeError(f"{name} must be a tensor, an array or lists of numbers, not {kind}. Convert it to numbers.")


def _number_text(tables: dict[str, Any]) -> list[int]:
    """Replace text by the numbers of its categories in all tables, in place; returns the columns of text."""
    objects = [table for table in tables.values() if isinstance(table, np.ndarray) and table.dtype == object]
    if not objects:
        return []
    text = [[j for j, column in enumerate(table.T) if any(isinstance(v, str) for v in column)] for table in objects]
    if len(objects) < len(tables) or any(columns != text[0] for columns in text):
        raise TypeError(f"{' and '.join(tables)} must have text in the same columns. Convert them to the same types.")
    for j in text[0]:
        values = [value for table in objects for value in table[:, j]]
        if other := [value for value in values if not isinstance(value, str)]:
            raise TypeError(f"Column {j} mixes text and {other[0]!r}. Fill or drop missing values, convert numbers.")
        if all(value.strip().lstrip("+-").replace(".", "", 1).isdigit() for value in set(values)):
            raise TypeError(f"Column {j} holds numbers as text. Convert it to float, or to int if it is categorical.")
        numbers = {category: number for number, category in enumerate(sorted(set(values)))}
        for table in objects:
            table[:, j] = [numbers[value] for value in table[:, j]]
    try:
        dtype = np.int64 if len(text[0]) == objects[0].shape[1] else np.float64
        tables.update({name: table.astype(dtype) for name, table in tables.items()})
    except (ValueError, TypeError) as error:
        raise TypeError(f"A column is neither text nor numbers: {error}. Convert it.") from error
    return text[0]


def check_pairs(**samples: Tensor) -> None:
    """Raise unless all samples have the same number of rows."""
    if len({len(sample) for sample in samples.values()}) > 1:
        counts = ", ".join(f"{len(sample)} in {name}" for name, sample in samples.items())
        raise ValueError(f"The arguments need one row for each observation, but there are {counts}.")


def categorical_columns(samples: Sequence[Tensor], categorical: Categorical) -> tuple[int, ...]:
    """The indices of the categorical columns of samples with the same columns."""
    width = 1 if samples[0].dim() <= 1 else samples[0].shape[-1]
    if categorical is None:
        categorical = all(not s.is_floating_point() for s in samples)
    if isinstance(categorical, bool):
        return tuple(range(width)) if categorical else ()
    if isinstance(categorical, str) or not all(
        isinstance(c, Integral) and not isinstance(c, bool) for c in categorical
    ):
        raise TypeError(f"categorical must be True, False or indices of columns, such as [0], not {categorical!r}.")
    columns = tuple(sorted({int(column) % width if -width <= column < 0 else int(column) for column in categorical}))
    if any(not 0 <= column < width for column in columns):
        raise ValueError(f"Categorical columns must be between 0 and {width - 1}, not {list(categorical)}.")
    return columns


def column_names(sample: Tensor | ArrayLike) -> tuple[str, ...]:
    """The column names of a data frame or series, or "column 0", "column 1", …."""
    names, name = getattr(sample, "columns", None), getattr(sample, "name", None)
    if names is not None:
        return tuple(map(str, names))
    if isinstance(name, str):
        return (name,)
    shape = np.shape(sample)
    return tuple(f"column {j}" for j in range(shape[1] if len(shape) > 1 else 1))


def check_real(kernel: Kernel, columns: tuple[int, ...], name: str = "x") -> None:
    """Raise if a kernel would measure distances between the codes of categories."""
    inside = {part for module in kernel.modules() if isinstance(module, FeatureKernel) for part in module.modules()}
    for part in kernel.modules() if columns else ():
        if isinstance(part, Kernel) and part.has_lengthscale and part not in inside:
            own = columns if part.active_dims is None else [c for c in columns if c in part.active_dims.tolist()]
            if own:
                raise TypeError(
                    f"{type(part).__name__} needs real numbers, but columns {list(own)} of {name} are categorical, as "
                    "integer and bool samples are. Use kernel=None or a DeltaKernel, or pass categorical=False."
                )


def check_choice(value: str, choices: Sequence[str], name: str) -> None:
    """Raise unless ``value`` is one of the ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}.")


def finite_gram(kernel: Kernel, x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """The Gram matrix in float64, without a gradient; raises if it is not finite."""
    return finite_values(gram(kernel, x1, x2).detach().double(), kernel)


def paired_values(kernel: Kernel, x1: Tensor, x2: Tensor) -> Tensor:
    """k(x1_i, x2_i) in float64, without a gradient; raises if a value is not finite."""
    with cross_evaluation(kernel):
        return finite_values(kernel(x1, x2, diag=True).detach().double(), kernel)


def bar_of_test(steps: int, num_points: int, show: bool | None) -> ProgressBar:
    """A progress bar; ``None`` shows one on a terminal or in a notebook, for large samples."""
    return progress_bar(steps, "test", False if show is None and num_points < LARGE_TEST else show)


class Encoding(torch.nn.Module):
    """The map of the module docstring from columns to points, fitted to ``x`` ``(n, d)`` with ``categorical`` columns.

    Unlike in the encoder of tables, the scale of a category depends on its frequency.
    """

    spread: Tensor
    categories: Tensor
    scales: Tensor

    def __init__(self, x: Tensor, categorical: Sequence[int] = ()) -> None:
        super().__init__()
        self.real = [j for j in range(x.shape[-1]) if j not in categorical]
        self.columns: list[int] = []  # the column of each category
        categories, scales = [x.new_zeros(0)], [x.new_zeros(0)]
        for j in categorical:
            values, counts = x[:, j].unique(return_counts=True)
            deviation = (1.0 - (counts.to(x) / len(x)).square().sum()).sqrt()
            self.columns += [j] * len(values)
            categories.append(values)
            scales.append(torch.where(deviation > 0, deviation, 1.0).expand(len(values)))
        real = x[:, self.real]
        # A robust standard deviation from the interquartile range; the usual one if that is zero.
        low, high = torch.from_numpy(np.quantile(real.numpy(force=True), [0.25, 0.75], axis=0)).to(x)
        spread = (high - low) / NORMAL_QUARTILES
        spread = torch.where(spread > 0, spread, real.std(dim=0)) if self.real else spread
        self.register_buffer("spread", torch.where(spread > 0, spread, 1.0))
        self.register_buffer("categories", torch.cat(categories))
        self.register_buffer("scales", torch.cat(scales))

    def forward(self, x: Tensor) -> Tensor:
        """The points of the rows of ``x``."""
        equal = (x[:, self.columns] == self.categories).to(x)
        return torch.cat([x[:, self.real] / self.spread, equal / self.scales], dim=-1)

    def kernel(self, lengthscale: float) -> Kernel:
        """The squared exponential of this lengthscale there, as a kernel on the columns themselves."""
        d = len(self.real) if not self.columns else 1
        kernel = RBFKernel(ard_num_dims=d if d > 1 else None).double().to(self.spread.device)
        kernel.lengthscale = self.spread.new_tensor(lengthscale) if self.columns else lengthscale * self.spread
        return FeatureKernel(self, kernel) if self.columns else kernel
