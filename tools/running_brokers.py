"""The brokers that run from this installation: one file each in `var/run`, locked while its broker runs.

The lock, not the process id in the file, shows that a broker is running: the kernel releases it when the process ends.
So a reused process id is never signalled. Names and command lines of processes are not used.

Owns these files. Must not know what is done with a broker.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

RUN_FOLDER = Path(__file__).resolve().parents[1] / "var" / "run"


class RunningBroker(NamedTuple):
    """One running broker."""

    pid: int
    broker_id: int


@contextmanager
def registered(broker_id: int, run_folder: Path = RUN_FOLDER) -> Iterator[None]:
    """Register this process as a running broker during the block.

    Raises OSError if the folder cannot be written.
    """
    run_folder.mkdir(parents=True, exist_ok=True)
    running_brokers(run_folder)  # removes the files of killed brokers
    path = run_folder / f"broker-{os.getpid()}"
    with path.open("w", encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{os.getpid()} {broker_id}\n")
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def running_brokers(run_folder: Path = RUN_FOLDER) -> list[RunningBroker]:
    """Return the running brokers of this installation; removes the files of others."""
    found = (_read(path) for path in sorted(run_folder.glob("broker-*")))
    return [broker for broker in found if broker is not None]


def _read(path: Path) -> RunningBroker | None:
    try:
        with path.open(encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid, broker_id = file.read().split()
                return RunningBroker(int(pid), int(broker_id))
            path.unlink(missing_ok=True)
    except (OSError, ValueError):
        # Another process removed the file, or its broker has not written it yet.
        return None
    return None
