"""Every entry point with generated calls. ``--fuzz 10000`` for at least so many in all."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from . import front_doors  # noqa: F401 — which adds to the entries
from .entries import ENTRIES
from .inputs import Inputs
from .verdict import fault_of

SHORT = 6
"""Cases of each entry point where nobody asks for more."""


@pytest.mark.parametrize("name", ENTRIES)
def test_answers_or_refuses(name: str, request: pytest.FixtureRequest) -> None:
    total = request.config.getoption("--fuzz")
    cases = SHORT if total is None else math.ceil(total / len(ENTRIES))

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
        fault = fault_of(ENTRIES[name], inputs)
        assert fault is None, f"{name}{inputs.chosen}: {fault}"

    run()
