"""The figures of a machine that the console shows: rates between two samples, and shares."""

from broker.console.machine import machine
from broker.metrics.host import Disk, FileSystem, HostSample, Interface

BEFORE = HostSample(
    cpu_s={"user": 10.0, "system": 5.0, "idle": 85.0},
    disks={"sda": Disk(1_000, 2_000, 1.0, 3.0, 10)},
    interfaces={"eth0": Interface(100, 200, 1, 0), "lo": Interface(9, 9, 0, 0)},
    taken_s=100.0,
)
LAST = HostSample(
    load=(0.5, 0.25, 0.125),
    cpu_s={"user": 14.0, "system": 6.0, "idle": 90.0},
    memory={"MemTotal": 1000, "MemAvailable": 400, "SwapTotal": 50, "SwapFree": 20},
    disks={"sda": Disk(6_000, 12_000, 3.5, 3.5, 110)},
    interfaces={"eth0": Interface(1_100, 5_200, 1, 2), "lo": Interface(900, 900, 0, 0)},
    file_systems={"/data": FileSystem(size=200, free_size=50, inode_count=10, free_inode_count=9)},
    process_cpu_load=0.125,
    taken_s=110.0,
)


def test_rates_are_those_between_the_last_two_samples() -> None:
    shown = machine(BEFORE, LAST)
    assert shown["cpu_percent"] == {"user": 40.0, "system": 10.0, "iowait": 0.0, "irq": 0.0, "steal": 0.0}
    assert (shown["network_in_bytes"], shown["network_out_bytes"], shown["network_errors"]) == (100.0, 500.0, 3)
    assert shown["disks"] == [
        {"name": "sda", "busy_percent": 25.0, "wait_ms": 5.0, "read_bytes": 500.0, "written_bytes": 1000.0}
    ]
    assert shown["volumes"] == [{"path": "/data", "free_percent": 25.0, "free_inodes_percent": 90.0}]
    assert (shown["swap_used_bytes"], shown["broker_cpu_percent"]) == (30, 12.5)


def test_before_the_second_sample_there_are_no_rates() -> None:
    shown = machine(HostSample(), LAST)
    assert shown["cpu_percent"]["user"] == 0.0
    assert shown["network_in_bytes"] == 0.0
    assert shown["disks"][0]["read_bytes"] == 0.0
