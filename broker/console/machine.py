"""The machine of the broker that was asked, for the console: load, processors, memory, disks and network.

Owns which figures of the host are shown, and their rates between the last two samples. Must not know HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from broker.metrics.host import HostSample

SHOWN_MODES = ("user", "system", "iowait", "irq", "steal")


class MachineDisk(TypedDict):
    """A block device of the log directories, between the last two samples."""

    name: str
    busy_percent: float
    wait_ms: float
    """Mean time of a request."""
    read_bytes: float
    written_bytes: float
    """Per second."""


class MachineVolume(TypedDict):
    """The file system of a log directory."""

    path: str
    free_percent: float
    free_inodes_percent: float


class Machine(TypedDict):
    """The machine of the broker that was asked. Rates are per second, between the last two samples."""

    load: list[float]
    cpu_percent: dict[str, float]
    broker_cpu_percent: float
    broker_memory_bytes: int
    open_files: int
    open_files_max: int
    memory_bytes: int
    memory_available_bytes: int
    swap_bytes: int
    swap_used_bytes: int
    network_in_bytes: float
    network_out_bytes: float
    network_errors: int
    disks: list[MachineDisk]
    volumes: list[MachineVolume]


def machine(before: HostSample, last: HostSample) -> Machine:
    """Return what is shown of two samples. What the system does not report is 0."""
    seconds = max(last.taken_s - before.taken_s, 0.001) if before.taken_s else 0.0

    def rate(now: float, earlier: float) -> float:
        return round(max(now - earlier, 0.0) / seconds, 1) if seconds else 0.0

    memory = last.memory
    network = [(name, one, before.interfaces.get(name, one)) for name, one in last.interfaces.items() if name != "lo"]
    return Machine(
        load=[round(one, 2) for one in last.load],
        cpu_percent=_cpu_percent(before.cpu_s, last.cpu_s),
        broker_cpu_percent=round(100 * last.process_cpu_load, 1),
        broker_memory_bytes=last.resident_size,
        open_files=last.open_descriptor_count,
        open_files_max=last.descriptor_count_max,
        memory_bytes=memory.get("MemTotal", 0),
        memory_available_bytes=memory.get("MemAvailable", 0),
        swap_bytes=memory.get("SwapTotal", 0),
        swap_used_bytes=memory.get("SwapTotal", 0) - memory.get("SwapFree", 0),
        network_in_bytes=sum(rate(one.received_size, earlier.received_size) for _, one, earlier in network),
        network_out_bytes=sum(rate(one.sent_size, earlier.sent_size) for _, one, earlier in network),
        network_errors=sum(one.receive_error_count + one.send_error_count for _, one, _ in network),
        disks=[
            MachineDisk(
                name=name,
                busy_percent=min(100.0, rate(100 * one.busy_s, 100 * before.disks.get(name, one).busy_s)),
                wait_ms=_wait_ms(
                    one.waited_s - before.disks.get(name, one).waited_s,
                    one.request_count - before.disks.get(name, one).request_count,
                ),
                read_bytes=rate(one.read_size, before.disks.get(name, one).read_size),
                written_bytes=rate(one.written_size, before.disks.get(name, one).written_size),
            )
            for name, one in last.disks.items()
        ],
        volumes=[
            MachineVolume(
                path=path,
                free_percent=_percent(one.free_size, one.size),
                free_inodes_percent=_percent(one.free_inode_count, one.inode_count),
            )
            for path, one in last.file_systems.items()
        ],
    )


def _cpu_percent(before: Mapping[str, float], last: Mapping[str, float]) -> dict[str, float]:
    """Return the share of each mode since the sample before; all 0 without one."""
    spent = {mode: max(seconds - before.get(mode, seconds), 0.0) for mode, seconds in last.items()}
    total = sum(spent.values())
    return {mode: round(100 * spent.get(mode, 0.0) / total, 1) if total else 0.0 for mode in SHOWN_MODES}


def _wait_ms(waited_s: float, request_count: int) -> float:
    return round(1000 * waited_s / request_count, 2) if request_count > 0 else 0.0


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 1) if whole else 0.0
