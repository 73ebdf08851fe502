r"""Reading and checking the input of tests, and encoding columns of any kind for a squared exponential kernel.

A real column is divided by its spread. A categorical one becomes one coordinate for each category, divided by
:math:`(1 - \sum_c p_c^2)^{1/2}`, the root of their total variance, so that every column weighs the same. A squared
exponential of these points is a product over columns: of real numbers the usual one, of categories
:math:`\rho^{[a \neq b]}`, 1 where they agree and a constant below 1 where they do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..kernels import FeatureKernel
from ..progress import ProgressBar, progress_bar
from ..validation import check_dense, check_features

Categorical = bool | Sequence[int] | None
"""The categorical columns: all or none, or their indices; ``None``: all columns of integer or bool samples."""

DTYPES: dict[str, type[np.generic]] = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
"""Dtypes by NumPy's kind: integers and bools keep their type, because they may be categories."""
LARGE_TEST = 10_000
"""The number of points from which a test shows a progress bar."""


def read_samples(
    samples: Mapping[str, Tensor | ArrayLike], categorical: Categorical, minimum: int = 2
) -> tuple[list[Tensor], tuple[int, ...]]:
    """Samples of the same columns as float64 tensors ``(n, d)`` on one device, and their categorical columns.

    Args:
        samples: tensors, NumPy arrays, data frames or nested lists, by the names used in errors. Columns of text are
            categorical; their categories are numbered in sorted order.
        categorical: the categorical columns.
        minimum: rows that each sample needs.
    """
    samples, text = _number_text(samples)
    raw = {name: as_tensor(sample, name) for name, sample in samples.items()}
    checked = []
    for name, tensor in raw.items():
        x = check_features(tensor, name, integers_as=torch.float64).double()
        if x.shape[0] < minimum:
            raise ValueError(f"The test needs at least {minimum} rows in {name}, but it has {x.shape[0]}.")
        checked.append(x)
    widths = [x.shape[1] for x in checked]
    if len(set(widths)) > 1:
        counts = ", ".join(f"{width} in {name}" for width, name in zip(widths, raw, strict=True))
        raise ValueError(
            f"The samples have different numbers of columns: {counts}. Give all of them the same features."
        )
    columns = categorical_columns(list(raw.values()), categorical)
    if text and categorical is False:
        raise TypeError(f"Columns {text} hold text, which is categorical. Leave categorical=False out.")
    columns = tuple(sorted({*columns, *text}))
    return [x.to(checked[0].device) for x in checked], columns


def _number_text(samples: Mapping[str, Tensor | ArrayLike]) -> tuple[Mapping[str, Tensor | ArrayLike], list[int]]:
    """The samples with text replaced by the numbers of its categories in all samples, and the columns of text."""
    tables = {name: table for name, sample in samples.items() if (table := _table_with_text(sample)) is not None}
    if not tables:
        return samples, []
    is_text = {name: [any(isinstance(v, str) for v in column) for column in table.T] for name, table in tables.items()}
    first = next(iter(is_text.values()))
    if len(tables) < len(samples) or any(other != first for other in is_text.values()):
        raise TypeError(f"{' and '.join(samples)} must have text in the same columns. Convert them to the same types.")
    text = [j for j, column_is_text in enumerate(first) if column_is_text]
    for j in text:
        values = [value for table in tables.values() for value in table[:, j]]
        if other := [value for value in values if not isinstance(value, str)]:
            raise TypeError(f"Column {j} mixes text and {other[0]!r}. Fill or drop missing values, convert numbers.")
        if all(value.strip().lstrip("+-").replace(".", "", 1).isdigit() for value in set(values)):
            raise TypeError(f"Column {j} holds numbers as text. Convert it to float, or to int if it is categorical.")
        numbers = {category: number for number, category in enumerate(sorted(set(values)))}
        for table in tables.values():
            table[:, j] = [numbers[value] for value in table[:, j]]
    dtype = np.int64 if all(first) else np.float64
    try:
        return {name: table.astype(dtype) for name, table in tables.items()}, text
    except (ValueError, TypeError) as error:
        raise TypeError(f"A column is neither text nor numbers: {error}. Convert it.") from error


def _table_with_text(sample: Tensor | ArrayLike) -> NDArray[np.object_] | None:
    """A copy ``(n, d)`` of a sample that contains text; lists as objects, because NumPy makes text of all numbers."""
    if isinstance(sample, Tensor | np.ma.MaskedArray):
        return None
    try:
        if np.asarray(sample).dtype.kind in DTYPES:
            return None
        table = np.array(sample, dtype=object)
    except (ValueError, TypeError):  # rows of different lengths, which as_tensor refuses
        return None
    has_text = table.ndim in (1, 2) and any(isinstance(value, str) for value in table.flat)
    return table.reshape(len(table), -1) if has_text else None


def as_tensor(x: Tensor | ArrayLike, name: str) -> Tensor:
    """``x`` as a tensor, without loss of precision.

    Example:
        >>> as_tensor([[0.1, 1], [0.2, 2]], "x").dtype, as_tensor([1, 2, 3], "x").dtype
        (torch.float64, torch.int64)
    """
    if isinstance(x, Tensor):
        check_dense(x, name)
        return x
    try:
        # Masked entries become NaN, which check_features rejects with their position.
        array = np.ma.filled(x.astype(float), np.nan) if isinstance(x, np.ma.MaskedArray) else np.asarray(x)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name} is not a table of numbers: {error}. Give rows of equal length.") from error
    if array.dtype.kind not in DTYPES:
        raise TypeError(
            f"{name} must be a tensor, an array or lists of numbers, not {type(x).__name__} of {array.dtype}. "
            "Convert it to numbers, categories to integers."
        )
    return torch.from_numpy(array.astype(DTYPES[array.dtype.kind], order="C", copy=True))


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
    features = [module for module in kernel.modules() if isinstance(module, FeatureKernel)]
    for part in kernel.modules() if columns else ():
        inside = any(part in set(module.modules()) for module in features)
        if isinstance(part, Kernel) and part.has_lengthscale and not inside:
            own = columns if part.active_dims is None else [c for c in columns if c in part.active_dims.tolist()]
            if own:
                raise TypeError(
                    f"{type(part).__name__} needs real numbers, but columns {list(own)} of {name} are categorical "
                    "(integer and bool samples are taken as categories). Use kernel=None, or a DeltaKernel for these "
                    "columns; if they are numbers, convert them to float or pass categorical=False."
                )


def check_choice(value: str, choices: Sequence[str], name: str) -> None:
    """Raise unless ``value`` is one of the ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}.")


def check_gram(K: Tensor, kernel: Kernel) -> Tensor:
    """``K`` in float64; raise where the kernel returned values that are not finite."""
    if not bool(torch.isfinite(K).all()):
        raise ValueError(
            f"{type(kernel).__name__} returned {int((~torch.isfinite(K)).sum())} NaN or infinite values. "
            "Check its hyperparameters and the scales of the features."
        )
    return K.detach().double()


def bar_of_test(steps: int, num_points: int, show: bool | None) -> ProgressBar:
    """A progress bar; ``None`` shows one on a terminal or in a notebook, for large samples."""
    return progress_bar(steps, "test", False if show is None and num_points < LARGE_TEST else show)


NORMAL_QUARTILES = 1.349
"""Between the quartiles of a standard normal variable."""


class Encoding(torch.nn.Module):
    """From columns to that space, for the pooled sample ``x`` (``(n, d)``) and its ``categorical`` columns.

    It is not the encoder of tables, which keeps the units of numbers and puts all categories at the same distance: here
    the scale of a category depends on its frequency, and a kernel on the columns contains the map as a module.

    Example:
        >>> x = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 7.0], [6.0, 7.0]], dtype=torch.float64)
        >>> Encoding(x, categorical=[1])(x).shape            # one real column and two categories
        torch.Size([4, 3])
    """

    spread: Tensor
    categories: Tensor
    scales: Tensor

    def __init__(self, x: Tensor, categorical: Sequence[int] = ()) -> None:
        super().__init__()
        self.real = [j for j in range(x.shape[-1]) if j not in categorical]
        self.columns: list[int] = []
        """The column of each category."""
        categories, scales = [x.new_zeros(0)], [x.new_zeros(0)]
        for j in categorical:
            values, counts = x[:, j].unique(return_counts=True)
            deviation = (1.0 - (counts.to(x) / len(x)).square().sum()).sqrt()
            self.columns += [j] * len(values)
            categories.append(values)
            scales.append(torch.where(deviation > 0, deviation, 1.0).expand(len(values)))
        self.register_buffer("spread", _spread(x[:, self.real]))
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


def _spread(x: Tensor) -> Tensor:
    """A robust standard deviation from the interquartile range; the usual one if that is zero."""
    if x.shape[1] == 0:
        return x.new_ones(0)
    low, high = torch.from_numpy(np.quantile(x.numpy(force=True), [0.25, 0.75], axis=0)).to(x)
    spread = (high - low) / NORMAL_QUARTILES
    spread = torch.where(spread > 0, spread, x.std(dim=0))
    return torch.where(spread > 0, spread, 1.0)
