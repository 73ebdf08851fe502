"""Every entry point with generated calls. ``--fuzz 10000`` for about so many in all."""

from __future__ import annotations

import collections
import math

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from . import applications, entries, files, inference, kernels
from .entries import ENTRIES, collect
from .inputs import Inputs
from .verdict import FINE, REFUSED, outcome_of

for module in (kernels, entries, inference, files, applications):
    collect(module)

SHORT = 4
"""Cases of each entry point where nobody asks for more."""
CASES, FAULT = "fuzz cases", "fault"
"""What a test reports; fewer than were asked for where an entry point has not so many different ones."""


NEEDS = {"register_causal_test": "causallearn", "nutpie": "nutpie"}
"""Packages that an entry needs and that are not always there."""


LONG = {
    "choose_power", "choose_temperature", "classifier", "classifier_of_tables", "further_classifier", "nutpie",
    "regressor", "regressor_of_tables", "rows_in_parts",
}  # fmt: skip
"""Entries whose calls take a second and not milliseconds: they get a quarter of the cases of the others."""


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
    done: collections.Counter[str] = collections.Counter()

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
        done[outcome if outcome in (FINE, REFUSED) else FAULT] += 1
        assert outcome in (FINE, REFUSED), f"{name}{inputs.chosen}: {outcome}"

    try:
        run()
    finally:
        request.node.user_properties.append((CASES, dict(done)))
