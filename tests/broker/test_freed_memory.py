"""Memory of large requests is used again without a page fault for each of its pages."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys

import pytest

ROUNDS = 16
CONNECTIONS = 4
REQUEST_SIZE = 1 << 20
PROGRAM = f"""
import resource
from broker.process import run_in_loop

async def main():
    faults = []
    for _ in range({ROUNDS}):
        requests = [bytearray({REQUEST_SIZE}) for _ in range({CONNECTIONS})]
        del requests
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
    print(faults[-1] - faults[0])
    return 0

run_in_loop(main())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_memory_of_large_requests_is_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    pages = (ROUNDS - 1) * CONNECTIONS * REQUEST_SIZE // resource.getpagesize()
    assert int(done.stdout) < pages / 20
