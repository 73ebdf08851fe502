"""Commands that are killed go on where they were, and two at once do not mix: ``--kills 50`` is the long form."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_commands_resume_and_two_at_once_do_not_mix(tmp_path, pytestconfig):
    kills = pytestconfig.getoption("--kills") or 3
    command = [sys.executable, "-m", "tests.killing", str(tmp_path), str(kills)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    print(f"of {kills} kills of each, so many met it at work: {done.stdout}")  # shown with -s
