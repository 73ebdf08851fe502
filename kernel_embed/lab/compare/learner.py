"""What a learner of the comparison is: name, group, structure, description and constructor.

The constructor is Python code. The comparison runs it and the report prints it, so what the report shows is what ran.
"""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Features = Any
"""A matrix of numbers (n, d), or a pandas data frame with columns of any type."""

GROUPS = ("frequentist", "bayesian", "combined", "reference")
FORMS = ("unit_range", "standardized", "ordinal", "Categories")
"""Transformers of :mod:`kernel_embed.lab.compare.preprocessing`."""
MODULES = {
    "partial": "functools",
    "make_pipeline": "sklearn.pipeline",
    "RandomForestClassifier": "sklearn.ensemble",
}
"""Where constructors find their names, if neither in ``ke`` nor in :mod:`kernel_embed.lab.compare`."""


class Structure(Enum):
    """What a fitted learner consists of, from simple to complex: among tied learners the simplest is recommended."""

    COEFFICIENTS = "one coefficient for each column"
    LENGTHSCALE = "one kernel with one lengthscale"
    KERNEL_OF_ALL_ROWS = "one kernel, with a relevance for each column, and no validation set"
    KERNEL = "one kernel, with a relevance for each column"
    SUPPORT_VECTORS = "one kernel and its support vectors"
    KERNEL_PER_CLASS = "one kernel for each class"
    POOL = "a pool of kernels, with a relevance for each column, and no validation set"
    VOTES = "a few votes"
    FOREST = "independent trees"
    BOOSTED_TREES = "a sum of trees"
    AVERAGE = "an average over draws"
    NETWORK = "a network"

    @property
    def rank(self) -> int:
        """Its place in the order."""
        return list(Structure).index(self)


@dataclass(frozen=True)
class Learner:
    """A way to learn.

    Attributes:
        name: as in ``--methods``.
        group: one of :data:`GROUPS`.
        structure: what it consists of.
        description: what it does, in one sentence.
        constructor: code of the model.
        form: the transformer that prepares a table for it; ``None`` if it takes tables as they are.
        task: ``"classification"`` or ``"regression"``.
        default: whether it runs if no learners are named; ``quick`` with ``--quick``.
        package: what must be installed beside our own requirements (extra ``bench``).
        call: code that predicts new rows; by default probabilities or means.
    """

    name: str
    group: str
    structure: Structure
    description: str
    constructor: str
    form: str | None = "unit_range"
    task: str = "classification"
    default: bool = True
    quick: bool = False
    package: str = ""
    call: str = ""

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            raise ValueError(
                f"Learner {self.name!r} has the unknown group {self.group!r}. Groups: {', '.join(GROUPS)}."
            )
        if self.form not in (None, *FORMS):
            raise ValueError(f"Learner {self.name!r} has the unknown form {self.form!r}. Forms: {', '.join(FORMS)}.")

    @property
    def is_installed(self) -> bool:
        """Whether the package that it needs is here."""
        return not self.package or importlib.util.find_spec(self.package) is not None

    def make(self) -> Any:
        """A new model for features that are in the right form already."""
        return _silent(_run(self.constructor))

    def for_tables(self) -> Any:
        """A new model, with its form, that takes a data frame."""
        return _silent(_run(self._pipeline))

    @property
    def prediction(self) -> str:
        """The code that predicts ``X_new``."""
        return self.call or ("predict_proba(X_new)" if self.task == "classification" else "predict(X_new)")

    @property
    def code(self) -> str:
        """The lines that fit a data frame ``X`` with targets ``y`` as the comparison does, and predict ``X_new``."""
        name = "classifier" if self.task == "classification" else "regressor"
        lines = [*_imports(self._pipeline), "", f"{name} = {self._pipeline}", f"{name}.fit(X, y)"]
        return "\n".join([*lines, f"{name}.{self.prediction}"])

    @property
    def _pipeline(self) -> str:
        return self.constructor if self.form is None else f"make_pipeline({self.form}(), {self.constructor})"


def _imports(expression: str) -> list[str]:
    """The import lines of the names in an expression."""
    names = {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)}
    lines = ["import kernel_embed as ke"] if "ke" in names else []
    modules: dict[str, list[str]] = {}
    for name in sorted(names - {"ke"}):
        modules.setdefault(MODULES.get(name, "kernel_embed.lab.compare"), []).append(name)
    return sorted([*lines, *(f"from {module} import {', '.join(used)}" for module, used in modules.items())])


def _run(expression: str) -> Any:
    names: dict[str, Any] = {}
    exec("\n".join([*_imports(expression), f"model = {expression}"]), names)
    return names["model"]


def _silent(model: Any) -> Any:
    """Without progress bars: the comparison has its own."""
    if "progress" in last_step(model).get_params(deep=False):
        last_step(model).set_params(progress=False)
    return model


def last_step(model: Any) -> Any:
    """The last step of a pipeline, or the model itself."""
    return model[-1] if hasattr(model, "steps") else model


def fit_model(model: Any, x: Features, y: NDArray[Any]) -> Any:
    """Fit, and leave NumPy's global generator, which some libraries draw from, as it was.

    A model that ends early on Ctrl-C and keeps what it has is not fitted: the interruption is raised.
    """
    state = np.random.get_state()  # noqa: NPY002
    try:
        model = model.fit(x, y)
    finally:
        np.random.set_state(state)  # noqa: NPY002
    for part in ("result_", "posterior_"):
        if getattr(getattr(last_step(model), part, None), "interrupted", False):
            raise KeyboardInterrupt
    return model
