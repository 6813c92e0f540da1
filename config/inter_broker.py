"""What the brokers of each release send to each other, by `inter.broker.protocol.version`.

Owns these facts: the versions of the requests, and what a broker writes itself that later ones ask the controller for.
The setting is about what a broker sends; every broker accepts what any of them sends. So all brokers of a cluster may
be replaced while the setting stays that of the old release, and it is raised in a second round of restarts.

Must not know how requests are sent.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from base.dataclass import dataclass
from config.versions import RELEASED_VERSIONS, versions_until

NEWEST: Final = "3.9-IV0"


@dataclass(frozen=True, slots=True)
class InterBrokerProtocol:
    """The protocol of one release. Fields that name a request are its version."""

    leader_and_isr: int
    update_metadata: int
    stop_replica: int
    controlled_shutdown: int
    fetch: int
    list_offsets: int
    offset_for_leader_epoch: int | None
    """None: followers do not compare leader epochs, but truncate to their high watermark."""
    write_txn_markers: int
    alter_partition: int | None
    """None: leaders write the states of their partitions themselves, and notify the controller."""
    allocate_producer_ids: int | None
    """None: brokers reserve blocks of producer ids in the metadata store themselves."""
    compares_epochs_by_fetch: bool
    """Whether a leader tells followers in the response to a fetch where the logs diverge (KIP-595)."""
    registration: int
    """The version of a broker's registration."""
    feature_node: int
    """The version of the node of finalized features."""
    has_features: bool
    """Whether there are finalized features at all (KIP-584)."""
    has_topic_ids: bool
    """Whether brokers tell each other the ids of topics (KIP-516)."""
    has_leader_recovery: bool
    """Whether a leader that was elected uncleanly is marked as recovering (KIP-704)."""
    group_value: int
    """The version of the stored value of a group."""
    offset_value: int
    """The version of the stored value of a committed offset."""


@cache
def inter_broker_protocol(text: str = NEWEST) -> InterBrokerProtocol:
    """Return the protocol of a known version or release, such as 2.6-IV0 or 2.6; a release means its last version."""

    reached = versions_until(text)

    def since(version: str) -> bool:
        assert version in RELEASED_VERSIONS, version
        return version in reached

    def newest(steps: str) -> int:
        """Return the last of the numbers whose version the protocol has reached; `steps` is `version:number ...`."""
        numbers = [int(number) for version, number in (step.split(":") for step in steps.split()) if since(version)]
        return numbers[-1]

    return InterBrokerProtocol(
        leader_and_isr=newest("0.8.0:0 1.0-IV0:1 2.2-IV0:2 2.4-IV0:3 2.4-IV1:4 2.8-IV1:5 3.2-IV0:6 3.4-IV0:7"),
        update_metadata=newest(
            "0.8.0:0 0.9.0:1 0.10.0-IV1:2 0.10.2-IV0:3 1.0-IV0:4 2.2-IV0:5 2.4-IV1:6 2.8-IV1:7 3.4-IV0:8"
        ),
        stop_replica=newest("0.8.0:0 2.2-IV0:1 2.4-IV1:2 2.6-IV0:3 3.4-IV0:4"),
        controlled_shutdown=newest("0.8.0:0 0.9.0:1 2.2-IV0:2 2.4-IV1:3"),
        fetch=newest(
            "0.8.0:0 0.9.0:1 0.10.0-IV0:2 0.10.1-IV1:3 0.11.0-IV0:4 0.11.0-IV1:5 1.1-IV0:7 2.0-IV1:8 2.1-IV2:10 "
            "2.3-IV1:11 2.7-IV1:12 3.1-IV0:13 3.5-IV0:14 3.5-IV1:15 3.7-IV4:16 3.9-IV0:17"
        ),
        list_offsets=newest(
            "0.8.0:0 0.10.1-IV2:1 0.11.0-IV0:2 2.0-IV1:3 2.1-IV1:4 2.2-IV1:5 2.8-IV0:6 3.0-IV1:7 3.5-IV0:8 3.9-IV0:9"
        ),
        offset_for_leader_epoch=newest("0.8.0:0 2.0-IV0:1 2.1-IV1:2 2.3-IV1:3 2.8-IV0:4")
        if since("0.11.0-IV2")
        else None,
        write_txn_markers=newest("0.8.0:0 2.8-IV0:1"),
        alter_partition=newest("0.8.0:1 2.8-IV0:3") if since("2.7-IV2") else None,
        allocate_producer_ids=0 if since("3.0-IV0") else None,
        compares_epochs_by_fetch=since("2.7-IV1"),
        registration=newest("0.8.0:2 0.10.0-IV1:4 2.7-IV0:5"),
        feature_node=newest("0.8.0:1 3.3-IV0:2"),
        has_features=since("2.7-IV0"),
        has_topic_ids=since("2.8-IV0"),
        has_leader_recovery=since("3.2-IV0"),
        group_value=newest("0.8.0:0 0.10.1-IV0:1 2.1-IV0:2 2.3-IV0:3"),
        offset_value=newest("0.8.0:1 2.1-IV0:2 2.1-IV1:3"),
    )
