"""A way to learn: how it is made, the form in which it takes a table, and the lines of code that do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from sklearn.pipeline import make_pipeline

from .evaluate import Classifier
from .preprocessing import Categories, ordinal, standardized, unit_range

MakeClassifier = Callable[[], Classifier]

FORMS: dict[str, Callable[[], Any]] = {
    "unit_range": unit_range,
    "standardized": standardized,
    "ordinal": ordinal,
    "Categories": Categories,
}
"""The transformers of :mod:`kernel_embed.lab.compare.preprocessing` by name."""


class Learner(NamedTuple):
    """A way to learn.

    Attributes:
        make: builds a new classifier for features that are in their form already.
        words: what it does, in one sentence for a reader who has not met it.
        expression: what ``make`` does, as code.
        imports: the lines that the expression needs.
        form: the name of the transformer that brings a table into the form that suits the learner; ``None`` where it
            takes the table as it is.
        is_reference: whether it comes from another library.
        answers: the line that asks it.
    """

    make: MakeClassifier
    words: str
    expression: str = ""
    imports: tuple[str, ...] = ()
    form: str | None = "unit_range"
    is_reference: bool = False
    answers: str = "classifier.predict_proba(X_new)"

    def for_tables(self) -> Classifier:
        """A new learner that takes a data frame."""
        model: Classifier = self.make()
        return model if self.form is None else make_pipeline(FORMS[self.form](), model)

    @property
    def code(self) -> str:
        """The lines that learn on a data frame ``X`` with labels ``y`` as the comparison does, and answer for
        ``X_new``."""
        imports, model = list(self.imports), self.expression
        if self.form is not None:
            imports += [
                f"from kernel_embed.lab.compare import {self.form}",
                "from sklearn.pipeline import make_pipeline",
            ]
            model = f"make_pipeline({self.form}(), {model})"
        name = self.answers.partition(".")[0]
        lines = [*sorted(_joined(imports)), "", f"{name} = {model}"]
        return "\n".join([*lines, f"{name}.fit(X, y)", self.answers])


def _joined(imports: list[str]) -> list[str]:
    """One line for each module: ``from m import a`` and ``from m import b`` become ``from m import a, b``."""
    names: dict[str, set[str]] = {}
    for line in imports:
        module, _, name = line.partition(" import ")
        names.setdefault(module, set()).update([name] if name else [])
    return [f"{module} import {', '.join(sorted(found))}" if found else module for module, found in names.items()]
