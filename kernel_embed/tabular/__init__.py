"""Tables of numbers, texts, dates and missing cells as matrices, and kernels for them."""

import importlib
from typing import TYPE_CHECKING

from .column_encoders import ColumnEncoder, EncodedColumn, column_type, register_column_type
from .column_types import DateEncoder, NumberEncoder, TextEncoder
from .input_transforms import InputTransform, cached_transforms, make_input_transform
from .partitions import Partitions, Tree
from .tied_kernels import TiedLaplaceKernel, TiedMaternKernel, TiedRBFKernel

if TYPE_CHECKING:
    from .encoder import TableEncoder

__all__ = [
    "ColumnEncoder",
    "DateEncoder",
    "EncodedColumn",
    "InputTransform",
    "NumberEncoder",
    "Partitions",
    "TableEncoder",
    "TextEncoder",
    "TiedLaplaceKernel",
    "TiedMaternKernel",
    "TiedRBFKernel",
    "Tree",
    "cached_transforms",
    "column_type",
    "make_input_transform",
    "register_column_type",
]


def __getattr__(name: str) -> object:
    if name == "TableEncoder":  # needs scikit-learn, which the kernels do without
        return importlib.import_module(".encoder", __name__).TableEncoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
