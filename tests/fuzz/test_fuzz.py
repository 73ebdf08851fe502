"""Every entry point with generated calls. ``--fuzz 10000`` for about so many in all."""

from __future__ import annotations

import inspect
import math
import re

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ..test_reference import ENTRIES as REFERENCE
from . import applications, entries, files, inference, kernels
from .entries import ENTRIES, collect
from .inputs import Inputs
from .verdict import FINE, REFUSED, outcome_of

MODULES = (kernels, entries, inference, files, applications)
for module in MODULES:
    collect(module)

SHORT = 4
"""Cases of each entry point where nobody asks for more."""
NEEDS = {"register_causal_test": "causallearn", "nutpie": "nutpie"}
"""Packages that an entry needs and that are not always there."""


LONG = {
    "choose_power", "choose_temperature", "classifier", "classifier_of_tables", "further_classifier", "nutpie",
    "regressor", "regressor_of_tables", "rows_in_parts",
}  # fmt: skip
"""Entries whose calls take a second and not milliseconds: they get a quarter of the cases of the others."""


PIECES = {"column_type", "fold", "frozen", "plain_profile", "register_column_type", "styled"}
"""Functions for classes of one's own, which the contract suites try, and one without arguments."""


def cases_of(name: str, total: int) -> int:
    """The cases of one entry, of ``total`` in all."""
    shares = {entry: 0.25 if entry in LONG else 1.0 for entry in ENTRIES}
    return math.ceil(total * shares[name] / sum(shares.values()))


@pytest.mark.parametrize("name", ENTRIES)
def test_answers_or_refuses(name: str, request: pytest.FixtureRequest) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    total = request.config.getoption("--fuzz")
    cases = SHORT if total is None else cases_of(name, total)

    @settings(
        max_examples=cases,
        derandomize=total is None,
        database=None,
        deadline=None,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        inputs = Inputs(lambda options: data.draw(st.sampled_from(list(options))))
        outcome = outcome_of(ENTRIES[name], inputs)
        assert outcome in (FINE, REFUSED), f"{name}{inputs.chosen}: {outcome}"

    run()


def test_every_function_of_the_reference_is_called():
    """By an entry, which takes it from its module or imports it."""
    text = "".join(map(inspect.getsource, MODULES))
    names = {entry.name.rpartition(".")[2] for entry in REFERENCE if inspect.isfunction(entry.value)}
    assert {name for name in names - PIECES if not re.search(rf"\b{name}\b", text)} == set()
