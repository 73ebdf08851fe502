"""How many calls were generated, in one line at the end."""

from __future__ import annotations

import pytest

from .test_fuzz import CASES


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """``fuzz: 10000 cases over 100 entry points, 0 of them with a fault``."""
    counts = {outcome: [] for outcome in ("passed", "failed")}
    for outcome, found in counts.items():
        for report in terminalreporter.stats.get(outcome, []):
            found += [value for name, value in report.user_properties if name == CASES]
    total, entries = sum(map(sum, counts.values())), sum(map(len, counts.values()))
    if entries:
        terminalreporter.write_line(
            f"fuzz: {total} cases over {entries} entry points, {len(counts['failed'])} of them with a fault"
        )
