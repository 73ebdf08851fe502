"""Column types: which columns belong to a type, and how they are encoded as numbers.

A column is encoded by the first registered type that accepts it. To add a type, write a subclass of
:class:`ColumnEncoder` and decorate it with :func:`register_column_type`; the estimators and the comparison then use it.
"""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Objects = NDArray[np.object_]

MAX_CATEGORIES = 40  # categories of a column that are encoded separately, at most; the others share one code


@dataclasses.dataclass(frozen=True)
class EncodedColumn:
    """One column of the encoded matrix."""

    name: str
    source: int  # the index of the table column that it encodes
    source_name: str
    part: str  # the aspect that it encodes; columns with the same source and part share a lengthscale
    is_number: bool  # whether it is a quantity, which an input transform may change, and not an indicator


class ColumnEncoder(abc.ABC):
    """Encodes one column of a table as numbers. Subclasses are column types.

    Args:
        name: the name of the column.
        index: its position in the table.
        max_categories: the largest number of categories that are encoded separately.

    Example:
        >>> @register_column_type
        ... class LatitudeEncoder(ColumnEncoder):
        ...     "Texts such as '48.2 N', as degrees."
        ...     @classmethod
        ...     def accepts(cls, column):
        ...         return column.dtype == object and all(str(cell).endswith((" N", " S")) for cell in column)
        ...     def fit(self, column, weights=None):
        ...         return None
        ...     def outputs(self):
        ...         return [self.output(self.name, "", True)]
        ...     @classmethod
        ...     def values(cls, column, name):
        ...         return np.array([float(cell[:-2]) * (1 if cell[-1] == "N" else -1) for cell in column])
        ...     def transform(self, column):
        ...         return self.values(column, self.name)[:, None]
        >>> column_type(np.array(["48.2 N", "10.0 S"], dtype=object)).__name__
        'LatitudeEncoder'
        >>> COLUMN_TYPES.remove(LatitudeEncoder)
    """

    is_category: ClassVar[bool] = False
    """Whether cells are categories; other learners then get one-hot or ordinal codes of :meth:`values`."""

    def __init__(self, name: str, index: int, max_categories: int = MAX_CATEGORIES) -> None:
        self.name, self.index, self.max_categories = name, index, max_categories

    @classmethod
    @abc.abstractmethod
    def accepts(cls, column: NDArray[Any]) -> bool:
        """Whether the column is of this type."""

    @classmethod
    @abc.abstractmethod
    def values(cls, column: NDArray[Any], name: str) -> NDArray[Any]:
        """One value per cell: floats with NaN where a cell is missing; texts for categories."""

    @abc.abstractmethod
    def fit(self, column: NDArray[Any], weights: Floats | None = None) -> str | None:
        """Fit to a training column; returns why the column is useless, or ``None`` if it is not."""

    @abc.abstractmethod
    def outputs(self) -> list[EncodedColumn]:
        """The columns of :meth:`transform`."""

    @abc.abstractmethod
    def transform(self, column: NDArray[Any]) -> Floats:
        """The encoded column, ``(n, D)``."""

    def output(self, name: str, part: str, is_number: bool) -> EncodedColumn:
        """One of the :meth:`outputs`."""
        return EncodedColumn(name, self.index, self.name, part, is_number)


E = TypeVar("E", bound=ColumnEncoder)
COLUMN_TYPES: list[type[ColumnEncoder]] = []
"""The registered column types, in the order in which they are tried."""


def register_column_type(encoder: type[E]) -> type[E]:
    """Try ``encoder`` before the column types registered so far; usable as a class decorator.

    Args:
        encoder: a subclass of :class:`ColumnEncoder`.

    Raises:
        TypeError: if it is not a subclass of :class:`ColumnEncoder`.

    Example:
        >>> register_column_type(COLUMN_TYPES.pop(0)) is COLUMN_TYPES[0]  # remove and register again
        True
    """
    if not (isinstance(encoder, type) and issubclass(encoder, ColumnEncoder)):
        raise TypeError(f"A column type is a subclass of ColumnEncoder, got {encoder!r}. Register the class itself.")
    COLUMN_TYPES.insert(0, encoder)
    return encoder


def column_type(column: NDArray[Any]) -> type[ColumnEncoder]:
    """The type of a column: the first registered one that accepts it.

    Args:
        column: the cells of the column.

    Example:
        >>> column_type(np.array([1, None, True], dtype=object)).__name__
        'NumberEncoder'
    """
    return next(encoder for encoder in COLUMN_TYPES if encoder.accepts(column))


def is_missing(cell: object) -> bool:
    """Whether a cell is None, NaN, NaT, or pandas' NA."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(cell, np.datetime64 | np.timedelta64):
        return bool(np.isnat(cell))
    return isinstance(cell, float | np.floating) and bool(np.isnan(cell))
