"""The plans that kafka-reassign-partitions makes: what they start from, and how they are printed.

Owns the reading of a cluster and the text. Must not know how a plan is made (`plan_maker`), and starts nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from base.topic_partition import TopicPartition
from tools.admin.log_dirs import log_dirs_of
from tools.admin.plan_maker import Cluster, batches, copied_size, loads
from tools.admin.reassignment_plans import Replicas, format_plan, require_all_racks_or_none
from tools.client.admin_client import AdminClient

BATCH_SIZE: Final = 50
LARGE_PLAN_SIZE: Final = 50 * 10**9
"""A plan that copies more bytes at once gets a warning."""
_UNITS: Final = ("B", "KB", "MB", "GB", "TB")


def read_cluster(admin: AdminClient, targets: Replicas, *, uses_racks: bool) -> Cluster:
    """Return the live brokers and all partitions with the sizes of their largest replicas.

    `targets` are the replicas of partitions that are being moved: until then, Metadata has the old ones as well.

    Raises InvalidPlanError: only some brokers have a rack.
    """
    metadata = admin.metadata()
    racks = {broker.node_id: broker.rack if uses_racks else None for broker in metadata.brokers}
    require_all_racks_or_none(racks)
    replicas = {
        (topic.name or "", partition.partition_index): list(partition.replica_nodes)
        for topic in metadata.topics
        for partition in topic.partitions
    }
    return Cluster(racks, {**replicas, **targets}, sizes_of(admin, racks))


def sizes_of(admin: AdminClient, broker_ids: Collection[int]) -> dict[TopicPartition, int]:
    """Return the bytes of the largest replica of each partition. Raises KafkaError."""
    found: dict[TopicPartition, int] = {}
    for broker_id in broker_ids:
        for result in log_dirs_of(admin, broker_id).values():
            for topic in result.topics:
                for partition in topic.partitions:
                    key = (topic.name, partition.partition_index)
                    found[key] = max(found.get(key, 0), partition.partition_size)
    return found


def plan_lines(cluster: Cluster, changed: Replicas, batch_size: int) -> Iterator[str]:
    """Yield the text of a plan: each broker before and after, the way back, and the batches with what they copy."""
    if not changed:
        yield "Nothing has to be moved."
        return
    before, after = loads(cluster, {}), loads(cluster, changed)
    rows = [("broker", "rack", "replicas", "leaders", "size")]
    for broker, load in after.items():
        was, rack = before[broker], cluster.racks.get(broker) or "-"
        sizes = f"{in_units(was.size)} -> {in_units(load.size)}"
        rows.append(
            (str(broker), rack, f"{was.replicas} -> {load.replicas}", f"{was.leaders} -> {load.leaders}", sizes)
        )
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    parts = list(batches(changed, batch_size))
    current = {partition: cluster.replicas[partition] for partition in changed}
    yield f"\nCurrent partition replica assignment\n{format_plan(current)}"
    for number, part in enumerate(parts, 1):
        size = in_units(copied_size(cluster, part))
        yield (
            f"\nProposed partition reassignment configuration, batch {number} of {len(parts)}: {len(part)} partitions, "
            f"{size} to copy\n{format_plan(part)}"
        )


def warning_about(cluster: Cluster, planned: Replicas) -> str | None:
    """Return a warning if a plan moves much at once."""
    moving = {partition: it for partition, it in planned.items() if set(it) - set(cluster.replicas.get(partition, it))}
    size = copied_size(cluster, moving)
    if len(moving) <= BATCH_SIZE and size <= LARGE_PLAN_SIZE:
        return None
    return (
        f"Warning: this plan moves {len(moving)} partitions with {in_units(size)} at once. Batches of at most "
        f"{BATCH_SIZE} partitions and {in_units(LARGE_PLAN_SIZE)}, and --throttle, disturb clients less."
    )


def in_units(size: int) -> str:
    """Return a number of bytes as people read it."""
    amount, unit = float(size), _UNITS[0]
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if amount >= 100 or unit == _UNITS[0] else f"{amount:.1f} {unit}"
