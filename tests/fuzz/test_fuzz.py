"""Every entry point with generated calls. ``--fuzz 10000`` for about so many in all."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from . import front_doors, rooms  # noqa: F401 — which add to the entries
from .entries import ENTRIES
from .inputs import Inputs
from .verdict import fault_of

SHORT = 4
"""Cases of each entry point where nobody asks for more."""
CASES = "fuzz cases"
"""What a test reports; fewer than were asked for where an entry point has not so many different ones."""


NEEDS = {"register_causal_test": "causallearn"}
"""Packages that an entry needs and that are not always there."""


@pytest.mark.parametrize("name", ENTRIES)
def test_answers_or_refuses(name: str, request: pytest.FixtureRequest) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    total = request.config.getoption("--fuzz")
    cases = SHORT if total is None else math.ceil(total / len(ENTRIES))
    done = 0

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
        nonlocal done
        inputs = Inputs(lambda options: data.draw(st.sampled_from(list(options))))
        fault = fault_of(ENTRIES[name], inputs)
        done += 1
        assert fault is None, f"{name}{inputs.chosen}: {fault}"

    try:
        run()
    finally:
        request.node.user_properties.append((CASES, done))
