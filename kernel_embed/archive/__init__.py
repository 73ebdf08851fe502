"""Models, posteriors and checkpoints as files: one format, plain data, and no code.

Loading creates objects of listed classes only and fills in their state. No constructor, method or property of these
objects runs. Files that are damaged or too large, or name an unknown class, are rejected.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ..files import MAX_BYTES, MAX_ELEMENTS, read_sealed, write_sealed
from ..version import __version__
from .codec import Decoder, Encoder
from .names import checksums

__all__ = ["MAX_BYTES", "load", "load_checkpoint", "read_plain", "save", "save_checkpoint", "write_plain"]

BOOSTERS = {"catboost", "lightgbm", "xgboost"}
LIBRARIES = ("torch", "gpytorch", "linear_operator", "scikit-learn", "numpy")


def save(model: object, path: str | os.PathLike[str]) -> pathlib.Path:
    """Write a fitted estimator, an embedding or a conditioned embedding to ``path``, whole or not at all.

    Args:
        model: what to write.
        path: the file. A symbolic link is followed, and a file that is there keeps its permissions.

    Returns:
        ``path``.

    Raises:
        ValueError: if a part of the model cannot be saved, such as a function defined inside another one, which the
            message names, or if it is a posterior.

    Example:
        >>> import tempfile, kernel_embed as ke
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = ke.MulticlassEmbeddingClassifier(max_evaluations=5, progress=False).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = load(save(classifier, f"{folder}/iris.ke"))
        >>> bool((again.predict_proba(X) == classifier.predict_proba(X)).all())
        True
    """
    if hasattr(model, "samples_by_chain"):
        words = f"Models are estimators or embeddings, not a {type(model).__name__}"
        raise ValueError(f"{words}. Use posterior.save(path), and load_posterior to read it.")
    encoder = Encoder()
    node = encoder.node(model)
    if foreign := sorted({kind.__module__.partition(".")[0] for kind in encoder.kinds} & BOOSTERS):
        words = f"The model holds a model of {', '.join(foreign)}, which ke.load would refuse"
        raise ValueError(f"{words}. Save that part with its own library, such as booster_.save_model(path).")
    sources = checksums({base.__module__ for kind in encoder.kinds for base in kind.__mro__})
    content = {"kernel_embed": __version__, "libraries": versions(), "sources": sources, "content": node}
    write_sealed(path, "model", content, encoder.arrays)
    return pathlib.Path(path)


def load(
    path: str | os.PathLike[str], *, classes: Sequence[type] | type = (), max_bytes: int | None = MAX_BYTES
) -> Any:
    """Read what :func:`save` wrote.

    A file of another version of kernel_embed is refused. Another version of a library below it, or different source
    code of the classes in the same version, gives a warning.

    Args:
        path: the file.
        classes: classes of your own that the model holds, such as a kernel, or one such class. All other classes that
            are not on the list of the package are refused by name.
        max_bytes: the largest file that is read, 4 GiB by default; ``None`` for any size.

    Returns:
        The model.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged, of another version, or needs a class that is not passed.

    Example:
        >>> import tempfile, gpytorch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = ke.load(ke.save(embedding, f"{folder}/embedding.ke"))
        >>> torch.equal(again.kernel.lengthscale, embedding.kernel.lengthscale)
        True
    """
    content, arrays = read_sealed(path, "model", max_bytes)
    if (version := content.get("kernel_embed")) != __version__:
        words = f"{path} was written by kernel_embed {version!s:.40}; this is {__version__}"
        raise ValueError(f"{words}. Load it with that version, or fit and save it again.")
    model = _decoded(Decoder(arrays, [classes] if isinstance(classes, type) else list(classes)), content, path)
    theirs, sources = (
        value if isinstance(value, dict) else {} for value in (content.get("libraries"), content.get("sources"))
    )
    if other := [f"{k} {theirs.get(k)!s:.20} (here {v})" for k, v in versions().items() if theirs.get(k) != v]:
        warnings.warn(f"The model in {path} was saved with {', '.join(other)}.", stacklevel=2)
    ours = checksums(sources)
    if differ := [name for name, checksum in sources.items() if ours.get(name) != checksum]:
        words = f"by another state of kernel_embed {__version__}, with other code in {', '.join(differ)[:1000]}"
        remedy = "If its answers are wrong or missing, fit and save it again."
        warnings.warn(f"The model in {path} was saved {words}. {remedy}", stacklevel=2)
    return model


def write_plain(path: str | os.PathLike[str], kind: str, value: object) -> None:
    """Write numbers, text, tensors, arrays, and dicts and lists of them, as a file of this ``kind``."""
    encoder = Encoder()
    node = encoder.node(value)
    if encoder.kinds:
        raise TypeError(f"A {kind} holds plain data only, not {', '.join(kind.__name__ for kind in encoder.kinds)}.")
    write_sealed(path, kind, {"content": node}, encoder.arrays)


def read_plain(path: str | os.PathLike[str], kind: str, max_bytes: int | None = MAX_BYTES) -> Any:
    """What :func:`write_plain` wrote; classes and functions are refused.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_plain(f"{folder}/file", "checkpoint", {"a": 1.5, 2: torch.zeros(2)})
        ...     read_plain(f"{folder}/file", "checkpoint")
        {'a': 1.5, 2: tensor([0., 0.])}
    """
    content, arrays = read_sealed(path, kind, max_bytes, None if max_bytes is None else MAX_ELEMENTS)
    return _decoded(Decoder(arrays, plain=True), content, path)


def _decoded(decoder: Decoder, content: dict[str, Any], path: str | os.PathLike[str]) -> Any:
    try:
        return decoder.whole(content["content"])
    except (
        *(ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError, MemoryError),
        *(ImportError, RuntimeError, StopIteration),
    ) as error:
        raise ValueError(f"{path} cannot be loaded. {error}") from error


def save_checkpoint(path: str | os.PathLike[str], content: Mapping[str, object]) -> None:
    """Write ``content`` (tensors, numbers, text, dicts and lists of them) atomically."""
    write_plain(path, "checkpoint", dict(content))


def load_checkpoint(path: str | os.PathLike[str], **expected: object) -> dict[str, Any] | None:
    """Read a checkpoint, or ``None`` if there is none; entries named in ``expected`` must have those values."""
    if not os.path.exists(path):
        return None
    try:
        content: dict[str, Any] = read_plain(path, "checkpoint", None)
        if not isinstance(content, dict):
            raise ValueError(f"{path} does not hold the content of a checkpoint.")
    except ValueError as error:
        raise ValueError(f"{error} Or name another checkpoint file, or delete this one.") from error
    remedy = "Name another file or delete this one."
    for key, value in expected.items():
        if content.get(key) != value:
            words = f"belongs to another problem: its {key} is {content.get(key)!r}, not {value!r}"
            raise ValueError(f"The checkpoint {path} {words}. {remedy}")
    if _has_nan(content):
        raise ValueError(f"The checkpoint {path} is damaged: it contains NaN. {remedy}")
    return content


def _has_nan(content: object) -> bool:
    """Whether a number in ``content`` is NaN: no value is ever better than NaN."""
    if isinstance(content, Mapping | list | tuple):
        return any(map(_has_nan, content.values() if isinstance(content, Mapping) else content))
    if isinstance(content, Tensor):
        return bool(content.isnan().any())
    return isinstance(content, float) and math.isnan(content)


def versions() -> dict[str, str]:
    """The versions of the libraries below this package."""
    return {name: importlib.metadata.version(name).partition("+")[0] for name in LIBRARIES}
