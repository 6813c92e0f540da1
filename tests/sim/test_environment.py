"""A broker gets clocks, randomness, threads, processes and sockets from its environment alone."""

from __future__ import annotations

import multiprocessing.context
import os
import random
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sim.network import SimulatedNetwork
from tests.sim.test_broker import MINUTE_US, run, scenario, started
from tests.sim.world import World

OURS = ("base", "broker", "storage", "controller", "protocol", "config")
STORE = ("controller.embedded.sqlite_store", "controller.embedded.sqlite_file", "controller.embedded.store_copies")
"""The embedded store, which a simulation can replace. It names temporary files at random."""

MEANS: list[tuple[object, str]] = [
    *(
        (time, name)
        for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "thread_time", "sleep")
    ),
    *((random, name) for name in ("random", "randrange", "getrandbits")),
    (random.Random, "__init__"),
    (os, "urandom"),
    (uuid, "uuid4"),
    (threading.Thread, "start"),
    (multiprocessing.context.SpawnProcess, "start"),
    (socket.socket, "__init__"),
    (socket, "getfqdn"),
]


def refuse_to_our_modules(means: Callable[..., Any], used: list[str]) -> Callable[..., Any]:
    """Return `means` for all other callers. Uses of a broker are noted, and raise.

    A broker that is simulated runs in this thread, and starts no other: `MEANS` has that. Servers of other tests of
    this process may run in threads of their own.
    """
    simulated = threading.get_ident()

    def guarded(*args: Any, **kwargs: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        is_ours = caller.partition(".")[0] in OURS and caller not in STORE
        if is_ours and threading.get_ident() == simulated:
            used.append(f"{caller}: {means}")
            raise AssertionError(used[-1])
        return means(*args, **kwargs)

    return guarded


def test_whole_broker_uses_nothing_but_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    for owner, name in MEANS:
        monkeypatch.setattr(owner, name, refuse_to_our_modules(getattr(owner, name), used))
    with World(1) as world:
        network = SimulatedNetwork(world)
        broker = started(network, tmp_path)
        loop = world.new_loop("client")
        run(world, loop, scenario(network.host("client", loop), 3))
        world.run_until(lambda: False, limit_us=world.now_us + 5 * MINUTE_US)
        broker.stop()
        assert world.run_until(broker.stopped.done, limit_us=world.now_us + MINUTE_US)
        assert not broker.loop.failures
    assert not used
