"""Models, posteriors and checkpoints as files: one format, plain data, and no code.

Loading creates objects of listed classes only and fills in their state. No constructor, method or property of these
objects runs. Files that are damaged or too large, or name an unknown class, are rejected.
"""

from __future__ import annotations

import importlib.metadata
import math
import os
import pathlib
import sys
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ..version import __version__
from . import container
from .container import MAX_BYTES, MAX_ELEMENTS
from .decode import Decoder
from .encode import Encoder

__all__ = ["MAX_BYTES", "load", "load_checkpoint", "read_plain", "save", "save_checkpoint", "write_plain"]

PACKAGE = __name__.partition(".")[0]
BOOSTERS = {"catboost", "lightgbm", "xgboost"}
LIBRARIES = ("torch", "gpytorch", "linear_operator", "scikit-learn", "numpy")


def save(model: object, path: str | os.PathLike[str]) -> pathlib.Path:
    """Write a fitted estimator, an embedding or a conditioned embedding to ``path``, whole or not at all.

    A part that cannot be saved, such as a function defined inside another one, is named in the error.

    Args:
        model: what to write.
        path: the file. A symbolic link is followed, and a file that is there keeps its permissions.

    Returns:
        ``path``.

    Raises:
        ValueError: if a part of the model cannot be saved, which the message names, or it is a posterior.

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
        raise ValueError(
            f"Models are estimators or embeddings, not a {type(model).__name__}. Use posterior.save(path), and "
            "load_posterior to read it."
        )
    encoder = Encoder()
    node = encoder.node(model)
    if foreign := sorted({kind.__module__.partition(".")[0] for kind in encoder.kinds} & BOOSTERS):
        raise ValueError(
            f"The model holds a model of {', '.join(foreign)}, which ke.load would refuse. Save that part with its own "
            "library, such as booster_.save_model(path)."
        )
    content = {
        "kernel_embed": __version__,
        "libraries": versions(),
        "sources": checksums(encoder.kinds),
        "content": node,
    }
    container.write(path, "model", content, encoder.arrays)
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
    content, arrays = container.read(path, "model", max_bytes)
    if content.get("kernel_embed") != __version__:
        raise ValueError(
            f"{path} was written by kernel_embed {content.get('kernel_embed')!s:.40}; this is {__version__}. "
            "Load it with that version, or fit and save it again."
        )
    model = _decoded(Decoder(arrays, [classes] if isinstance(classes, type) else list(classes)), content, path)
    ours, theirs = versions(), _mapping(content.get("libraries"))
    other = [f"{name} {theirs.get(name)!s:.20} (here {v})" for name, v in ours.items() if theirs.get(name) != v]
    if other:
        warnings.warn(f"The model in {path} was saved with {', '.join(other)}.", stacklevel=2)
    differ = changed(_mapping(content.get("sources")))
    if differ:
        warnings.warn(
            f"The model in {path} was saved by another state of kernel_embed {__version__}, with other code in "
            f"{', '.join(differ)[:1000]}. If its answers are wrong or missing, fit and save it again.",
            stacklevel=2,
        )
    return model


def write_plain(path: str | os.PathLike[str], kind: str, value: object) -> None:
    """Write numbers, text, tensors, arrays, and dicts and lists of them, as a file of this ``kind``."""
    encoder = Encoder()
    node = encoder.node(value)
    if encoder.kinds:
        raise TypeError(f"A {kind} holds plain data only, not {', '.join(kind.__name__ for kind in encoder.kinds)}.")
    container.write(path, kind, {"content": node}, encoder.arrays)


def read_plain(path: str | os.PathLike[str], kind: str, max_bytes: int | None = MAX_BYTES) -> Any:
    """What :func:`write_plain` wrote; classes and functions are refused.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_plain(f"{folder}/file", "checkpoint", {"a": 1.5, 2: torch.zeros(2)})
        ...     read_plain(f"{folder}/file", "checkpoint")
        {'a': 1.5, 2: tensor([0., 0.])}
    """
    content, arrays = container.read(path, kind, max_bytes, None if max_bytes is None else MAX_ELEMENTS)
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
    for key, value in expected.items():
        if content.get(key) != value:
            raise ValueError(
                f"The checkpoint {path} belongs to another problem: its {key} is {content.get(key)!r}, not {value!r}. "
                "Name another file or delete this one."
            )
    if _has_nan(content):
        raise ValueError(f"The checkpoint {path} is damaged: it contains NaN. Name another file or delete this one.")
    return content


def _has_nan(content: object) -> bool:
    """Whether a number in ``content`` is NaN: no value is ever better than NaN."""
    if isinstance(content, Mapping):
        return any(map(_has_nan, content.values()))
    if isinstance(content, list | tuple):
        return any(map(_has_nan, content))
    if isinstance(content, Tensor):
        return bool(content.isnan().any())
    return isinstance(content, float) and math.isnan(content)


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def versions() -> dict[str, str]:
    """The versions of the libraries below this package.

    Example:
        >>> sorted(versions())[:2]
        ['gpytorch', 'linear_operator']
    """
    return {name: importlib.metadata.version(name).partition("+")[0] for name in LIBRARIES}


def checksums(kinds: Iterable[type]) -> dict[str, int]:
    """A checksum of the source of every module of this package that ``kinds`` and their bases are defined in.

    Between two releases the version does not show whether a class has changed.

    Example:
        >>> from kernel_embed import EmpiricalRisk
        >>> sorted(checksums([EmpiricalRisk, dict]))
        ['kernel_embed.objectives.base', 'kernel_embed.objectives.risk']
    """
    names = {base.__module__ for kind in kinds for base in kind.__mro__}
    return {name: value for name in sorted(names) if (value := _checksum(name)) is not None}


def changed(saved: Mapping[str, object]) -> list[str]:
    """The modules of ``saved``, a result of :func:`checksums`, whose source is different now, or that are gone.

    Example:
        >>> from kernel_embed import EmpiricalRisk
        >>> changed(checksums([EmpiricalRisk])), changed({"kernel_embed.objectives.risk": 0})
        ([], ['kernel_embed.objectives.risk'])
    """
    return [name for name, checksum in saved.items() if _checksum(name) != checksum]


def _checksum(name: str) -> int | None:
    if not name.startswith(f"{PACKAGE}."):
        return None
    loader: Any = getattr(getattr(sys.modules.get(name), "__spec__", None), "loader", None)
    source = loader.get_source(name) if hasattr(loader, "get_source") else None
    return None if source is None else zlib.crc32(source.encode())
