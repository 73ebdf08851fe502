"""The images of MNIST, read from the files in which they are handed around."""

from __future__ import annotations

import gzip
import os
import pathlib

import numpy as np
import torch
from torch import Tensor

from ...compare.data import ENVIRONMENT_VARIABLE, data_directory

Images = tuple[Tensor, Tensor, Tensor, Tensor]


def load_mnist(directory: str | os.PathLike[str] | None = None) -> Images:
    """(x, y, x_test, y_test): 60000 and 10000 images as rows of 784 numbers in [0, 1], float32, and their digits."""
    place = data_directory(directory)
    if place is None:
        raise FileNotFoundError(
            f"Expected the directory that holds mnist/, in --data or in {ENVIRONMENT_VARIABLE}, got none. Name it."
        )
    parts = []
    for name in ("train", "t10k"):
        images = _read_idx(place / "mnist" / f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 784)
        labels = _read_idx(place / "mnist" / f"{name}-labels-idx1-ubyte.gz", 8)
        parts += [torch.tensor(images, dtype=torch.float32) / 255.0, torch.tensor(labels, dtype=torch.int64)]
    return parts[0], parts[1], parts[2], parts[3]


def _read_idx(path: pathlib.Path, header: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    if not path.exists():
        raise FileNotFoundError(f"Expected {path}, got no such file. Download MNIST into that directory.")
    return np.frombuffer(gzip.decompress(path.read_bytes()), dtype=np.uint8, offset=header)
