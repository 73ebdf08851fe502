"""Peak memory of a block of work."""

from __future__ import annotations

import platform

import numpy as np
import pytest

from kernel_embed.experiments.memory import peak_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives free memory back when asked")
def test_memory_that_earlier_work_gave_back_is_counted_again():
    megabytes = []
    for _ in range(2):
        with peak_memory() as peak:
            pieces = [
                np.ones(8_000) for _ in range(500)
            ]  # 32 MB in pieces that the allocator keeps when they are freed
            del pieces
        megabytes.append(peak.megabytes)
    if megabytes[0] is None:
        pytest.skip("the system does not tell the peak")
    assert all(25.0 < value < 60.0 for value in megabytes)
