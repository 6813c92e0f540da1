"""Which brokers run from this installation: a file each in `var/run`, locked as long as its broker lives.

The lock, not the number in the file, says that a broker is alive: it ends with the process however that dies, and a
process id that was given to another program since is never signalled. Names and command lines are not looked at.

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
    """One live broker."""

    pid: int
    broker_id: int


@contextmanager
def registered(broker_id: int, run_folder: Path = RUN_FOLDER) -> Iterator[None]:
    """Lists this process as a running broker for the time of the block.

    Raises OSError when the folder cannot be written.
    """
    run_folder.mkdir(parents=True, exist_ok=True)
    running_brokers(run_folder)  # sweeps out what killed ones have left
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
    """The live brokers of this installation; files of dead ones are removed."""
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
        # Another stop removed the file, or its broker has not written it yet.
        return None
    return None
