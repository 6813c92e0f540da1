"""Whether a host is fit for a broker: what Kafka's documentation and practice expect of the operating system.

Owns the table of checks. Pure: the facts come from `tools.launch.host_facts`. Must not know how facts are read or
printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

DESCRIPTORS_MIN: Final = 100_000
DESCRIPTORS_PER_SEGMENT: Final = 3
CONNECTIONS_EXPECTED: Final = 10_000
"""The connections that a broker without `max.connections` is expected to serve."""
MAPS_MIN: Final = 262_144
MAPS_PER_SEGMENT: Final = 4
"""Twice the two indexes of a segment."""
SOCKET_DEFAULT_MIN: Final = 131_072
SOCKET_MAX_MIN: Final = 2_097_152
TCP_BUFFER_MIN: Final = (4_096, 65_536, 2_048_000)
OPTION_MEMORY_DEFAULT: Final = 20_480
FREE_SHARE_MIN: Final = 0.1
PAGE_CACHE_S: Final = 30
"""The page cache should hold what is written in this time."""

GOOD_FILE_SYSTEMS: Final = frozenset({"xfs", "ext4"})
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.sshfs", "glusterfs", "lustre", "nfs", "nfs4", "smb3"}
)


class Directory(NamedTuple):
    """A log directory. Values that could not be read are None."""

    path: str
    file_system: str | None
    """Its type, for example `xfs`."""
    mount_options: frozenset[str]
    free_share: float | None
    free_inode_share: float | None
    """None also for a file system without a fixed number of inodes."""
    is_shared_with_application_logs: bool


@dataclass(frozen=True)
class HostFacts:
    """What was read from the operating system. Values that could not be read are None, or missing in `kernel`."""

    descriptors_max: int | None
    """The hard limit, to which a broker raises its own."""
    kernel: Mapping[str, tuple[int, ...]]
    """Numbers of kernel parameters, under the names of sysctl(8)."""
    swap_size: int | None
    swap_used_size: int | None
    available_memory_size: int | None
    """Bytes that programs and the page cache can use."""
    clock_is_synchronised: bool | None
    directories: Sequence[Directory]
    segment_count: int | None
    """The segments in the log directories; None if these are not known."""


class Load(NamedTuple):
    """What the host is to carry."""

    connections: int = CONNECTIONS_EXPECTED
    write_rate: float | None = None
    """Bytes a second that producers and other brokers write; None if unknown."""
    is_mirroring: bool = False
    """Whether the host copies records over long distances."""


class Level(Enum):
    """How bad it is to miss what a check expects."""

    MUST = "must"
    SHOULD = "should"


class Verdict(Enum):
    """The result of a check."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"
    UNKNOWN = "-"


class Finding(NamedTuple):
    """One check with its result."""

    name: str
    level: Level
    found: str
    expected: str
    verdict: Verdict

    def __str__(self) -> str:
        return f"{self.name} is {self.found}, expected {self.expected}"


class KernelRule(NamedTuple):
    """What is expected of a kernel parameter. `is_met` gets the numbers of the parameter."""

    parameter: str
    expected: str
    is_met: Callable[[HostFacts, tuple[int, ...]], bool]


def _at_least(limit: int) -> Callable[[HostFacts, tuple[int, ...]], bool]:
    return lambda facts, values: values[0] >= limit


def _more_than(limit: int) -> Callable[[HostFacts, tuple[int, ...]], bool]:
    return lambda facts, values: values[0] > limit


def _within(low: int, high: int, *, or_set: str) -> Callable[[HostFacts, tuple[int, ...]], bool]:
    """Return a rule for a ratio, which is 0 while the parameter `or_set` has a number of bytes instead."""
    return lambda facts, values: low <= values[0] <= high or any(facts.kernel.get(or_set, ()))


def _tcp_buffer(limit: str) -> Callable[[HostFacts, tuple[int, ...]], bool]:
    """Return a rule for minimum, default and maximum of a buffer, whose maximum must not exceed `limit`."""

    def is_met(facts: HostFacts, values: tuple[int, ...]) -> bool:
        is_large = len(values) == 3 and all(map(int.__ge__, values, TCP_BUFFER_MIN))
        return is_large and values[2] <= facts.kernel.get(limit, (values[2],))[0]

    return is_met


def _swappiness(facts: HostFacts, values: tuple[int, ...]) -> bool:
    return values[0] == 1 or facts.swap_size == 0


_TCP_BUFFER_TEXT: Final = f"at least {' '.join(map(str, TCP_BUFFER_MIN))}, the last at most net.core."
KERNEL_RULES: Final = (
    KernelRule("vm.swappiness", "1, or no swap", _swappiness),
    KernelRule(
        "vm.dirty_background_ratio",
        "1 to 5, or vm.dirty_background_bytes",
        _within(1, 5, or_set="vm.dirty_background_bytes"),
    ),
    KernelRule("vm.dirty_ratio", "60 to 80, or vm.dirty_bytes", _within(60, 80, or_set="vm.dirty_bytes")),
    KernelRule("net.core.wmem_default", f"at least {SOCKET_DEFAULT_MIN}", _at_least(SOCKET_DEFAULT_MIN)),
    KernelRule("net.core.rmem_default", f"at least {SOCKET_DEFAULT_MIN}", _at_least(SOCKET_DEFAULT_MIN)),
    KernelRule("net.core.wmem_max", f"at least {SOCKET_MAX_MIN}", _at_least(SOCKET_MAX_MIN)),
    KernelRule("net.core.rmem_max", f"at least {SOCKET_MAX_MIN}", _at_least(SOCKET_MAX_MIN)),
    KernelRule("net.ipv4.tcp_wmem", f"{_TCP_BUFFER_TEXT}wmem_max", _tcp_buffer("net.core.wmem_max")),
    KernelRule("net.ipv4.tcp_rmem", f"{_TCP_BUFFER_TEXT}rmem_max", _tcp_buffer("net.core.rmem_max")),
    KernelRule("net.ipv4.tcp_window_scaling", "1", _at_least(1)),
    KernelRule("net.ipv4.tcp_max_syn_backlog", "more than 1024", _more_than(1024)),
    KernelRule("net.core.netdev_max_backlog", "more than 1000", _more_than(1000)),
)
MIRRORING_RULES: Final = (
    KernelRule("net.core.optmem_max", f"more than {OPTION_MEMORY_DEFAULT}", _more_than(OPTION_MEMORY_DEFAULT)),
    KernelRule("net.ipv4.tcp_slow_start_after_idle", "0", lambda facts, values: values[0] == 0),
)
"""What is expected of hosts that mirror over long distances."""
PARAMETERS: Final = (
    "vm.max_map_count",
    "vm.dirty_background_bytes",
    "vm.dirty_bytes",
    *(rule.parameter for rule in (*KERNEL_RULES, *MIRRORING_RULES)),
)
"""The kernel parameters that the checks read."""


def check_host(facts: HostFacts, load: Load) -> list[Finding]:
    """Return the results of all checks, those that a host must pass first."""
    return [
        _descriptors(facts, load),
        _memory_maps(facts),
        _swap(facts),
        *(_kernel(facts, rule) for rule in (*KERNEL_RULES, *(MIRRORING_RULES if load.is_mirroring else ()))),
        *(finding for directory in facts.directories for finding in _directory(directory)),
        _clock(facts),
        *(() if load.write_rate is None else (_page_cache(facts, load.write_rate),)),
    ]


def has_failed(findings: Sequence[Finding]) -> bool:
    """Return whether the host misses something that a broker must have."""
    return any(finding.verdict is Verdict.FAIL for finding in findings)


def problems(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that are not as expected."""
    return [finding for finding in findings if finding.verdict in (Verdict.WARN, Verdict.FAIL)]


def _finding(name: str, level: Level, found: str | None, expected: str, is_met: bool) -> Finding:
    """Return the result of a check; without a found value its verdict is UNKNOWN, whatever `is_met` is."""
    if found is None:
        return Finding(name, level, "unknown", expected, Verdict.UNKNOWN)
    missed = Verdict.FAIL if level is Level.MUST else Verdict.WARN
    return Finding(name, level, found, expected, Verdict.OK if is_met else missed)


def _descriptors(facts: HostFacts, load: Load) -> Finding:
    limit, segments = facts.descriptors_max, facts.segment_count
    expected = f"at least {DESCRIPTORS_MIN}"
    needed = DESCRIPTORS_MIN
    if segments is not None:
        enough = DESCRIPTORS_PER_SEGMENT * segments + load.connections
        expected += f", or more than {enough} for {segments} segments and {load.connections} connections"
        needed = min(needed, enough + 1)
    found = None if limit is None else str(limit)
    return _finding("descriptor limit", Level.MUST, found, expected, limit is not None and limit >= needed)


def _memory_maps(facts: HostFacts) -> Finding:
    values, segments = facts.kernel.get("vm.max_map_count"), facts.segment_count
    expected = f"at least {MAPS_MIN}"
    needed = MAPS_MIN
    if segments is not None:
        enough = MAPS_PER_SEGMENT * segments
        expected += f", or more than {enough} for {segments} segments"
        needed = min(needed, enough + 1)
    found = None if values is None else str(values[0])
    return _finding("vm.max_map_count", Level.MUST, found, expected, values is not None and values[0] >= needed)


def _swap(facts: HostFacts) -> Finding:
    used = facts.swap_used_size
    found = None if used is None else f"{_mebibytes(used)} in use"
    return _finding("swap", Level.SHOULD, found, "none in use", used == 0)


def _kernel(facts: HostFacts, rule: KernelRule) -> Finding:
    values = facts.kernel.get(rule.parameter)
    found = None if values is None else " ".join(map(str, values))
    return _finding(
        rule.parameter, Level.SHOULD, found, rule.expected, values is not None and rule.is_met(facts, values)
    )


def _directory(directory: Directory) -> Iterator[Finding]:
    path, kind = directory.path, directory.file_system
    found = f"{kind}, a network" if kind in NETWORK_FILE_SYSTEMS else kind
    yield _finding(
        f"file system of {path}", Level.SHOULD, found, "xfs or ext4 on a local disk", kind in GOOD_FILE_SYSTEMS
    )
    times = [option for option in ("noatime", "relatime", "strictatime") if option in directory.mount_options]
    shown = None if kind is None else (times or ["strictatime"])[0]
    yield _finding(f"mount option of {path}", Level.SHOULD, shown, "noatime", "noatime" in times)
    for name, share in (("free space", directory.free_share), ("free inodes", directory.free_inode_share)):
        text = None if share is None else f"{share:.0%}"
        expected = f"more than {FREE_SHARE_MIN:.0%}"
        yield _finding(f"{name} of {path}", Level.SHOULD, text, expected, share is not None and share > FREE_SHARE_MIN)
    if directory.is_shared_with_application_logs:
        yield _finding(f"file system of {path}", Level.SHOULD, "that of LOG_DIR", "not that of application logs", False)


def _clock(facts: HostFacts) -> Finding:
    is_synchronised = facts.clock_is_synchronised
    found = None if is_synchronised is None else "synchronised" if is_synchronised else "not synchronised"
    return _finding("clock", Level.SHOULD, found, "synchronised", bool(is_synchronised))


def _page_cache(facts: HostFacts, write_rate: float) -> Finding:
    size, needed = facts.available_memory_size, write_rate * PAGE_CACHE_S
    return _finding(
        "memory for the page cache",
        Level.SHOULD,
        None if size is None else _mebibytes(size),
        f"at least {_mebibytes(needed)}, the writes of {PAGE_CACHE_S} s",
        size is not None and size >= needed,
    )


def _mebibytes(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"
