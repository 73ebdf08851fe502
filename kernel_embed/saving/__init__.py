"""Fitted things as files, without pickle: a description that is read, arrays, and nothing that is run.

A file is a zip of ``description.json``, which names classes and what they hold, and one ``.npy`` for each array.
Loading makes objects of classes that are known (this package, GPyTorch, linear_operator, torch's modules and
distributions, scikit-learn, and those the caller names) and fills in what they hold: no constructor and no function of
the file is called.
"""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import pathlib
import warnings
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..files import write_whole
from ..version import __version__
from .describe import Describer
from .rebuild import Rebuilder
from .sources import changed, checksums, modules_of

__all__ = ["load", "save"]

FORMAT = 1
PACKAGES = ("torch", "gpytorch", "linear_operator", "scikit-learn", "numpy")
"""Their versions are kept in the file; another one is said when it is loaded."""


def save(model: object, path: str | os.PathLike[str]) -> pathlib.Path:
    """Write a fitted estimator, an embedding or a conditioned embedding to ``path``, whole or not at all.

    A part that cannot be described, such as a function defined inside another one, is named in the error.

    Args:
        model: what to write.
        path: the file.

    Returns:
        ``path``.

    Raises:
        ValueError: if a part of the model cannot be described, which the message names, or it is a posterior.

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
            f"Expected an estimator or an embedding, got {type(model).__name__}. Use posterior.save(path), and "
            "load_posterior to read it."
        )
    describer = Describer()
    description = describer.describe(model)
    content = {
        "format": FORMAT,
        "kernel_embed": __version__,
        "sources": checksums(modules_of(describer.kinds)),
        "packages": _versions(),
        "model": description,
    }
    text = json.dumps(content, allow_nan=False)

    def write(file: Any) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("description.json", text)
            for number, array in enumerate(describer.arrays):
                buffer = io.BytesIO()
                np.save(buffer, array, allow_pickle=False)
                archive.writestr(f"{number}.npy", buffer.getvalue())

    write_whole(path, write)
    return pathlib.Path(path)


def load(path: str | os.PathLike[str], *, classes: Sequence[type] | type = ()) -> Any:
    """What :func:`save` wrote.

    Args:
        path: the file.
        classes: classes of your own that the model holds, such as a kernel, or one such class. A class that is neither
            one of these nor of a known library is refused by name.

    A file of another version of kernel_embed is refused; another version of a library below it, or other code of the
    classes in the same version, is said in a warning.

    Returns:
        The model.

    Raises:
        ValueError: if the file is damaged, of another version, or holds a class that is not named.

    Example:
        >>> import tempfile, gpytorch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = ke.load(ke.save(embedding, f"{folder}/embedding.ke"))
        >>> torch.equal(again.kernel.lengthscale, embedding.kernel.lengthscale)
        True
    """
    if isinstance(classes, type):
        classes = [classes]
    place = pathlib.Path(path)
    try:
        with zipfile.ZipFile(place) as archive:
            content = json.loads(archive.read("description.json"))
            arrays = [_array(archive, number) for number in range(len(archive.namelist()) - 1)]
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"Expected a file written by ke.save in {place}, got something else ({error}). Look at the path; a "
            "posterior is read by load_posterior."
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"Expected a file of format {FORMAT} in {place}, got another. Save the model again.")
    if content["kernel_embed"] != __version__:
        raise ValueError(
            f"Expected a model of kernel_embed {__version__} in {place}, got one of version {content['kernel_embed']}. "
            "Load it with that version, or fit and save it again."
        )
    ours = _versions()
    other = [f"{name} {v} (here {ours.get(name)})" for name, v in content["packages"].items() if ours.get(name) != v]
    if other:
        warnings.warn(f"The model in {place} was saved with {', '.join(other)}.", stacklevel=2)
    model = Rebuilder(arrays, classes).rebuild(content["model"])
    differ = changed(content.get("sources", {}))
    if differ:
        warnings.warn(
            f"The model in {place} was saved by another state of kernel_embed {__version__}, with other code in "
            f"{', '.join(differ)}. Where its answers are wrong or missing, fit and save it again.",
            stacklevel=2,
        )
    return model


def _array(archive: zipfile.ZipFile, number: int) -> NDArray[Any]:
    try:
        return np.asarray(np.load(io.BytesIO(archive.read(f"{number}.npy")), allow_pickle=False))
    except ValueError as error:
        raise ValueError(
            f"Expected plain arrays in the file, got one that is not ({error}). Save the model again with ke.save."
        ) from error


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:  # pragma: no cover
            continue
    return found
