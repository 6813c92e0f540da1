"""The first code of a job's process: it runs a module, and ends the process when the worker has ended.

    python -P -m spark_jobs.connect.connectors.spark_program MODULE [ARGUMENT...]

The standard input is a pipe that only the worker has. The kernel closes it when the worker ends, even by SIGKILL. The
process then gets SIGTERM, and a little later its group gets SIGKILL: another worker may start the same job as soon as
it misses the heartbeats of the first one.

Owns the end with the worker. Must not know what the module does.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time
from typing import Final

GRACE_S: Final = 4.0
"""How long the job may take to end after its worker: less than a session of a worker."""
_STANDARD_INPUT: Final = 0
_CHUNK_BYTES: Final = 4096


def main() -> None:
    """Run the module that the command line names as `__main__`."""
    del sys.argv[0]
    threading.Thread(target=_end_with_the_worker, name="end with the worker", daemon=True).start()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def _end_with_the_worker() -> None:
    while os.read(_STANDARD_INPUT, _CHUNK_BYTES):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
