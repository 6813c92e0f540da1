"""The assignors of `group.consumer.assignors`: Kafka's, which the broker has itself, and Python classes.

Owns how the setting becomes objects, and what a class of somebody else may return. Must not know groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from base.pause import Pause
from broker.groups.machine.consumer.assignors import (
    Assignor,
    Counts,
    RangeAssignor,
    Subscribers,
    Targets,
    UniformAssignor,
)
from broker.groups.machine.consumer.partitions import partitions
from broker.settings.plug_ins import configured_plug_in
from config import broker_properties as rows
from config.broker import BrokerConfig

_OWN: Final[Mapping[str, type[Assignor]]] = {
    rows.UNIFORM_ASSIGNOR: UniformAssignor,
    UniformAssignor.name: UniformAssignor,
    rows.RANGE_ASSIGNOR: RangeAssignor,
    RangeAssignor.name: RangeAssignor,
}


def assignors(config: BrokerConfig) -> Mapping[str, Assignor]:
    """Return the assignors by name, in the order of the setting. Raises InvalidPlugInError."""
    row = rows.GROUP_CONSUMER_ASSIGNORS
    made = [
        _OWN[name]() if name in _OWN else PlugInAssignor(configured_plug_in(config, row, name, "assign"))
        for name in config[row]
    ]
    return {each.name: each for each in made}


class PlugInAssignor:
    """Runs the assignor of a Python class: see docs/plug-ins.md for its interface."""

    def __init__(self, plug_in: Any) -> None:
        self._plug_in = plug_in
        self.name = str(getattr(plug_in, "name", type(plug_in).__name__))

    async def assign(self, subscribers: Subscribers, counts: Counts, pause: Pause) -> Targets:
        """Raises ValueError for an assignment that no group may have."""
        found: Mapping[str, Mapping[UUID, Any]] = self._plug_in.assign(subscribers, counts)
        given: set[tuple[UUID, int]] = set()
        for member_id, of_topics in found.items():
            if member_id not in subscribers:
                raise ValueError(f"{self.name} assigns to {member_id}, which is not a member")
            for topic_id, numbers in of_topics.items():
                if topic_id not in subscribers[member_id].topic_ids:
                    raise ValueError(f"{self.name} assigns a topic to {member_id} that it does not subscribe to")
                for number in numbers:
                    if not 0 <= number < counts.get(topic_id, 0) or (topic_id, number) in given:
                        raise ValueError(
                            f"{self.name} assigns partition {number} of {topic_id} twice, or it is not there"
                        )
                    given.add((topic_id, number))
            await pause()
        return {member_id: partitions(of_topics.items()) for member_id, of_topics in found.items()}
