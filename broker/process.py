"""What the process of a broker tunes: garbage collection, freed memory, the switch of threads, the event loop.

Owns these settings; they hold for all brokers of the process. Must not know what runs in the loop.
"""

import asyncio
import ctypes
import gc
import sys
from collections.abc import Callable, Coroutine

import uvloop

from broker.network.descriptors import raise_limit
from protocol.frame import MAPPED_FROM_SIZE

# Objects built at start-up are never freed. Scanning them repeatedly would take a fifth of a start with thousands of
# partitions, and would block the event loop afterwards. A garbage collection stops all threads for some 100 ns per
# scanned object. The first two thresholds limit a scan of the objects of large requests to 110,000; a request of 64,000
# elements may have half a million. All objects since the start are scanned after 50 million new ones.
GC_THRESHOLDS = (10_000, 10, 500)
# The longest time that the event loop waits for a computing thread. Python's default of 5 ms would add latency.
SWITCH_INTERVAL_S = 0.001
# glibc keeps freed memory up to this size at the end of its heap. From MAPPED_FROM_SIZE on requests have own mappings.
FREED_SIZE_MAX = 8 << 20
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def run_in_loop(
    main: Coroutine[None, None, int], new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
) -> int:
    """Run a coroutine that hosts brokers, in a process and an event loop set up for them; return its result."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.freeze()  # modules and classes live as long as the process
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    raise_limit()
    _keep_freed_memory()
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def _keep_freed_memory() -> None:
    """Have glibc keep freed memory for the next large requests, instead of giving it back to the kernel.

    By its defaults it returns each block of 128 KiB or more. The kernel then clears the pages again, and a page fault
    precedes each: a third of the CPU time of a broker that receives batches of a megabyte.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # other C libraries have none
        mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_SIZE)
        mallopt(_M_TRIM_THRESHOLD, FREED_SIZE_MAX)


def freeze_started() -> None:
    """Exempt all objects of a start from later garbage collections: they live as long as the broker."""
    gc.collect()
    gc.freeze()
