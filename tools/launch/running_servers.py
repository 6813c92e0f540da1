"""The servers that run from this installation: one file each, locked while its server runs.

The files are in `var/run` of a clone, or in the user's state folder if the clone belongs to another user or the package
is installed. A file has the process id, a number, and the addresses of a broker that serves clients.

The lock, not the process id in the file, shows that a server is running: the kernel releases it when the process ends.
So a reused process id is never signalled. Names and command lines of processes are not used.

Owns these files. Must not know what is done with a server.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TextIO

from tools.log_output.state_folder import state_folder

_ROOT = Path(__file__).resolve().parents[2]

# The folder of a package may belong to another user, too.
_IS_OF_ANOTHER_USER = not os.access(_ROOT, os.W_OK)
RUN_FOLDER = state_folder() / "run" if _ROOT.name == "_modules" or _IS_OF_ANOTHER_USER else _ROOT / "var" / "run"
POLL_S = 0.02
_BROKER = "broker"
_ZOOKEEPER = "zookeeper"


class RunningBroker(NamedTuple):
    """One running broker."""

    pid: int
    broker_id: int
    addresses: tuple[str, ...] = ()
    """Where it serves clients; empty before it does."""


Announce = Callable[[Iterable[str]], None]
"""Adds the addresses of a broker to its file, if there is space for them."""


@contextmanager
def registered(broker_id: int, run_folder: Path = RUN_FOLDER) -> Iterator[Announce]:
    """Register this process as a running broker during the block.

    Raises OSError if the folder cannot be written.
    """
    path = _path(_BROKER, run_folder)
    with _locked(path, broker_id) as file:

        def announce(addresses: Iterable[str]) -> None:
            with suppress(OSError):
                file.writelines(f"{address}\n" for address in addresses)
                file.flush()

        try:
            yield announce
        finally:
            path.unlink(missing_ok=True)


def register_zookeeper(run_folder: Path = RUN_FOLDER) -> None:
    """Register this process as a ZooKeeper server until it ends, also if it runs another program by then.

    Raises OSError if the folder cannot be written.
    """
    file = _locked(_path(_ZOOKEEPER, run_folder), 0)
    # Neither Python nor the next program closes this copy, so the lock lasts as long as the process.
    os.set_inheritable(os.dup(file.fileno()), True)


def running_brokers(run_folder: Path = RUN_FOLDER) -> list[RunningBroker]:
    """Return the running brokers of this installation; removes the files of others."""
    return [RunningBroker(found.pid, found.number, found.addresses) for found in _running(_BROKER, run_folder)]


def wait_for_end(pids: AbstractSet[int], timeout_s: float, run_folder: Path = RUN_FOLDER) -> set[int]:
    """Wait until these brokers have ended; return those that still run after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while left := {broker.pid for broker in running_brokers(run_folder)} & pids:
        if time.monotonic() > deadline_s:
            return left
        time.sleep(POLL_S)
    return set()


def running_zookeepers(run_folder: Path = RUN_FOLDER) -> list[int]:
    """Return the process ids of the running ZooKeeper servers of this installation; removes the files of others."""
    return [found.pid for found in _running(_ZOOKEEPER, run_folder)]


class _Content(NamedTuple):
    """What the file of a running server has."""

    pid: int
    number: int
    addresses: tuple[str, ...]


def _path(kind: str, run_folder: Path) -> Path:
    run_folder.mkdir(parents=True, exist_ok=True)
    _running(kind, run_folder)  # removes the files of killed servers
    return run_folder / f"{kind}-{os.getpid()}"


def _locked(path: Path, number: int) -> TextIO:
    """Return the new file of this process, locked until it is closed.

    It gets its name when it is locked: others remove a file that has the name and no lock.
    """
    unnamed = path.with_name(f".{path.name}")
    file = unnamed.open("w", encoding="ascii")
    fcntl.flock(file, fcntl.LOCK_EX)
    file.write(f"{os.getpid()} {number}\n")
    file.flush()
    unnamed.rename(path)
    return file


def _running(kind: str, run_folder: Path) -> list[_Content]:
    """Return the content of the file of each running server of a kind."""
    found = (_read(path) for path in sorted(run_folder.glob(f"{kind}-*")))
    return [server for server in found if server is not None]


def _read(path: Path) -> _Content | None:
    try:
        with path.open(encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid, number, *addresses = file.read().split()
                return _Content(int(pid), int(number), tuple(addresses))
            path.unlink(missing_ok=True)
    except (OSError, ValueError):
        # Another process removed the file, or it is none of a server.
        return None
    return None
