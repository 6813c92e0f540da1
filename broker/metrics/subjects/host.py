"""Metrics of the machine and of the process, with the names that dashboards for a JVM expect.

Owns their names and texts. Must not know how the figures come about, or how they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from broker.metrics.host import FileSystem, GarbageCollections, Host, HostSample, Interface
from broker.metrics.metric import Distribution, Kind, Metric, Sample, Shown, Value, alone

COLLECTORS = (("G1 Young Generation", (0, 1)), ("G1 Old Generation", (2,)))
"""Names that Java gives its collectors, and the generations of Python's collector that they stand for."""
MEMORY = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
MS_PER_S = 1000


def host_metrics(host: Host) -> Iterator[Metric]:
    """Return the metrics of the machine."""
    yield _own(Kind.GAUGE, "host_load", "Load average of the machine.", ("minutes",), lambda: _load(host.last))
    yield _own(
        Kind.METER,
        "host_cpu_seconds",
        "Processor time of the machine by mode, over all processors.",
        ("mode",),
        lambda: [((mode,), seconds) for mode, seconds in host.last.cpu_s.items()],
    )
    yield _own(
        Kind.GAUGE,
        "host_memory_bytes",
        "Memory and swap space of the machine, under the names of /proc/meminfo.",
        ("kind",),
        lambda: [((kind,), host.last.memory[kind]) for kind in MEMORY if kind in host.last.memory],
    )
    file_systems: tuple[tuple[str, str, Callable[[FileSystem], int]], ...] = (
        ("size_bytes", "Size of the file system of a log directory.", lambda it: it.size),
        ("free_bytes", "Bytes that the broker may still write to the file system.", lambda it: it.free_size),
        ("inodes", "Inodes of the file system of a log directory.", lambda it: it.inode_count),
        ("free_inodes", "Inodes that are left.", lambda it: it.free_inode_count),
    )
    for name, text, fact in file_systems:
        yield _own(Kind.GAUGE, f"host_log_directory_{name}", text, ("logDirectory",), _of_file_systems(host, fact))
    yield from _disk_metrics(host)
    interfaces: tuple[tuple[str, str, Callable[[Interface], int], Callable[[Interface], int]], ...] = (
        ("bytes", "Bytes through a network interface.", lambda it: it.received_size, lambda it: it.sent_size),
        ("errors", "Errors of a network interface.", lambda it: it.receive_error_count, lambda it: it.send_error_count),
    )
    for name, text, received, sent in interfaces:
        tags = ("interface", "direction")
        yield _own(Kind.METER, f"host_network_{name}", text, tags, _of_interfaces(host, received, sent))


def process_metrics(
    host: Host, collections: GarbageCollections, started_ms: int, now_ms: Callable[[], int]
) -> Iterator[Metric]:
    """Return the metrics of the process; Prometheus gets most of them from prometheus_client."""
    system = "java.lang:type=OperatingSystem"
    facts: tuple[tuple[str, str, str, Callable[[], Value]], ...] = (
        (
            system,
            "MaxFileDescriptorCount",
            "File descriptors that the process may open.",
            lambda: host.last.descriptor_count_max,
        ),
        (system, "OpenFileDescriptorCount", "Open file descriptors.", lambda: host.last.open_descriptor_count),
        (
            system,
            "ProcessCpuLoad",
            "Share of all processors that the process uses, from 0 to 1.",
            lambda: host.last.process_cpu_load,
        ),
        (
            system,
            "ProcessCpuTime",
            "Processor time of the process in nanoseconds.",
            lambda: int(host.last.process_cpu_s * 1e9),
        ),
        (
            "java.lang:type=Memory",
            "HeapMemoryUsage",
            "Resident memory of the process, as `used`.",
            lambda: {"used": host.last.resident_size},
        ),
        (
            "java.lang:type=Runtime",
            "Uptime",
            "Milliseconds since the start of the broker.",
            lambda: now_ms() - started_ms,
        ),
        (
            "java.lang:type=Runtime",
            "StartTime",
            "When the broker was started, in milliseconds since the epoch.",
            lambda: started_ms,
        ),
        ("java.lang:type=Threading", "ThreadCount", "Threads of Python.", lambda: host.last.thread_count),
    )
    for bean, attribute, text, fact in facts:
        yield Metric(Kind.GAUGE, bean, text, alone(fact), attribute=attribute, shown=Shown.JSON)
    for name, generations in COLLECTORS:
        bean = f"java.lang:type=GarbageCollector,name={name}"
        yield Metric(
            Kind.GAUGE,
            bean,
            "Collections by Python's garbage collector.",
            alone(_collection_count(collections, generations)),
            attribute="CollectionCount",
            shown=Shown.JSON,
        )
        yield Metric(
            Kind.GAUGE,
            bean,
            "Their duration in milliseconds.",
            alone(_collection_ms(collections, generations)),
            attribute="CollectionTime",
            shown=Shown.JSON,
        )
    yield _own(
        Kind.GAUGE,
        "jvm_memory_bytes_used",
        "Resident memory of the process, under the name that dashboards for a JVM use.",
        ("area",),
        lambda: [(("heap",), host.last.resident_size)],
    )
    yield _own(
        Kind.HISTOGRAM,
        "jvm_gc_collection_seconds",
        "Collections by Python's garbage collector: generations 0 and 1 are Java's young one, 2 is the old one.",
        ("gc",),
        lambda: [((name,), _durations(collections, generations)) for name, generations in COLLECTORS],
    )


def _disk_metrics(host: Host) -> Iterator[Metric]:
    yield _own(
        Kind.METER,
        "host_disk_bytes",
        "Bytes of the disks that hold log directories.",
        ("device", "direction"),
        lambda: [
            ((device, direction), size)
            for device, disk in host.last.disks.items()
            for direction, size in (("read", disk.read_size), ("write", disk.written_size))
        ],
    )
    yield _own(
        Kind.METER,
        "host_disk_busy_seconds",
        "Time in which a disk had requests; its rate is the utilisation.",
        ("device",),
        lambda: [((device,), disk.busy_s) for device, disk in host.last.disks.items()],
    )
    yield _own(
        Kind.METER,
        "host_disk_wait_seconds",
        "Sum of the durations of a disk's requests; divided by host_disk_requests_total it is the mean wait.",
        ("device",),
        lambda: [((device,), disk.waited_s) for device, disk in host.last.disks.items()],
    )
    yield _own(
        Kind.METER,
        "host_disk_requests",
        "Completed requests of a disk.",
        ("device",),
        lambda: [((device,), disk.request_count) for device, disk in host.last.disks.items()],
    )


def _own(kind: Kind, name: str, text: str, tags: tuple[str, ...], read: Callable[[], list[Sample]]) -> Metric:
    return Metric(kind, "", text, read, tags, own_name=name)


def _load(sample: HostSample) -> list[Sample]:
    return [((minutes,), load) for minutes, load in zip(("1", "5", "15"), sample.load, strict=False)]


def _of_file_systems(host: Host, fact: Callable[[FileSystem], int]) -> Callable[[], list[Sample]]:
    return lambda: [((path,), fact(found)) for path, found in host.last.file_systems.items()]


def _of_interfaces(
    host: Host, received: Callable[[Interface], int], sent: Callable[[Interface], int]
) -> Callable[[], list[Sample]]:
    return lambda: [
        ((name, direction), fact(one))
        for name, one in host.last.interfaces.items()
        for direction, fact in (("received", received), ("sent", sent))
    ]


def _durations(collections: GarbageCollections, generations: tuple[int, ...]) -> Distribution:
    count, total_ms = _collection_count(collections, generations), _collection_ms(collections, generations)
    return Distribution(count(), total_ms() / MS_PER_S, {})


def _collection_count(collections: GarbageCollections, generations: tuple[int, ...]) -> Callable[[], int]:
    return lambda: sum(collections.count[generation] for generation in generations)


def _collection_ms(collections: GarbageCollections, generations: tuple[int, ...]) -> Callable[[], float]:
    return lambda: MS_PER_S * sum(collections.total_s[generation] for generation in generations)
