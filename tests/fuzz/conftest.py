"""How many calls were generated, in one line at the end."""

from __future__ import annotations

import collections

import pytest

from .test_fuzz import CASES, FAULT
from .verdict import FINE, REFUSED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """``fuzz: 10000 cases over 100 entry points (6000 fine, 4000 refused, 0 faults), 0 entry points with a fault``."""
    counts: collections.Counter[str] = collections.Counter()
    entries, failed = 0, 0
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for name, value in report.user_properties:
                if name == CASES:
                    counts.update(value)
                    entries, failed = entries + 1, failed + (outcome == "failed")
    if entries:
        terminalreporter.write_line(
            f"fuzz: {counts.total()} cases over {entries} entry points ({counts[FINE]} fine, {counts[REFUSED]} refused,"
            f" {counts[FAULT]} faults), {failed} entry points with a fault"
        )
