"""Labels of any kind as the votes take them: −1 and +1, one vote for two classes, one per class for more."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..validation import check_dense
from .families import Array


def one_against_rest(codes: NDArray[np.int64], num_classes: int) -> list[Array]:
    """Labels ±1, one array per vote: a single vote for two classes, one per class against the rest for more.

    Example:
        >>> import numpy as np
        >>> [y.tolist() for y in one_against_rest(np.array([0, 1, 1]), 2)]
        [[-1.0, 1.0, 1.0]]
    """
    targets = [1] if num_classes == 2 else range(num_classes)
    return [np.where(codes == target, 1.0, -1.0) for target in targets]


def winners(f: Array) -> NDArray[np.int64]:
    """The class with the most votes along the last dimension; a single vote is for class 1 where it is positive.

    Example:
        >>> import numpy as np
        >>> winners(np.array([[-0.5], [2.0]])).tolist(), winners(np.array([[0.1, -0.3, 0.2]])).tolist()
        ([0, 1], [2])
    """
    return (f[..., 0] > 0).astype(np.int64) if f.shape[-1] == 1 else f.argmax(axis=-1)


def check_classes(y: ArrayLike, num_points: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The classes of labels ``y`` of any kind, at least two, and their numbers for each point."""
    if isinstance(y, Tensor):
        check_dense(y, "y")
        y = y.detach().cpu().numpy()
    labels = np.asarray(y)
    if labels.ndim != 1 or len(labels) != num_points:
        raise ValueError(
            f"Expected one label per point, {num_points} in all, got labels of shape {labels.shape}. "
            "Give a vector as long as x."
        )
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"Expected labels of at least two classes, got one class: {classes.tolist()}. Give rows of another class."
        )
    return classes, codes
