"""Peak memory of a block of work."""

from __future__ import annotations

import os
import platform

import numpy as np
import pytest

from kernel_embed.lab.compare.memory import RESET, peak_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives free memory back when asked")
@pytest.mark.skipif(not os.access(RESET, os.W_OK), reason="the system does not tell the peak")
def test_memory_that_earlier_work_gave_back_is_counted_again():
    megabytes = []
    for _ in range(2):
        with peak_memory() as peak:
            # 32 MB in pieces that the allocator keeps when they are freed
            pieces = [np.ones(8_000) for _ in range(500)]
            del pieces
        megabytes.append(peak.megabytes)
    assert all(25.0 < value < 60.0 for value in megabytes)
