"""Requests that newer clients send, one after another, and what a server answers, in a form that two servers share.

Owns: sending the requests of a case, repeating one until the server is ready, and the normal form of a response. Must
not know which server answers, nor what the answers should be.

In the normal form fields with their default value are left out, topic ids have the names of their topics, batches are
offsets, and of texts only their presence counts. What no server promises (addresses, times, numbers that it makes up)
becomes a word. Lists are sorted, as neither protocol nor server promises an order.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final, Self
from uuid import UUID

from protocol.api import APIS
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import batches
from protocol.records.builder import RecordData, build_batch
from protocol.schema import ZERO_UUID, Field, Struct, message_info
from tests.support.wire_client import WireClient

Answer = dict[str, Any]
"""A response in its normal form."""

PATIENCE_S: Final = 20.0
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
LEAVES: Final = -1
TEXT: Final = "error_message"
LEFT_OUT: Final = frozenset(("throttle_time_ms", "node_endpoints"))
MADE_UP: Final = frozenset(("producer_id", "subscription_id", "client_instance_id"))
"""Numbers and ids that a server makes up: only whether it did counts."""


class Talk:
    """The requests of one case to one server, and its answers under a label each."""

    def __init__(self, port: int) -> None:
        self.answers: list[tuple[str, Answer]] = []
        self._port = port
        self._connections: dict[str, WireClient] = {}
        self._closing = ExitStack()
        self._topics: dict[UUID, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def ask(
        self,
        label: str,
        request: Struct,
        version: int | None = None,
        *,
        until: Callable[[Any], object] | None = None,
        connection: str = "",
    ) -> Any:
        """Send a request, keep the answer under `label`, and return the response; None if the connection was closed.

        Args:
            version: the newest one that Milena serves, by default.
            until: send it again until this is true of the response.
            connection: the name of the one to send it on.
        """
        if version is None:
            version = APIS[message_info(type(request)).api_key].versions[-1]
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            response = self._exchange(request, version, connection)
            if until is None or until(response) or time.monotonic() > give_up_s:
                break
            time.sleep(0.01)
        assert until is None or until(response), f"{label}: {response}"
        self._keep(label, response, version)
        return response

    def set_up(self, request: Struct, version: int | None = None, **how: Any) -> Any:
        """Do as `ask` does, without an answer to compare."""
        response = self.ask("", request, version, **how)
        self.answers.pop()
        return response

    def keep(self, label: str, response: Struct) -> None:
        """Keep the answer of `set_up` under a label, after the case has removed what is of other cases."""
        self._keep(label, response, APIS[message_info(type(response)).api_key].versions[-1])

    def topic(self, name: str, partitions: int = 1) -> UUID:
        """Create a topic; return its id when the group coordinator knows it."""
        created = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        result = self.set_up(CreateTopicsRequest(topics=[created], timeout_ms=10_000))
        assert result.topics[0].error_code == 0, result
        joins = ConsumerGroupHeartbeatRequest(
            group_id=f"{name}-probe",
            member_id="probe",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[name],
            topic_partitions=[],
        )
        self.set_up(joins, until=lambda response: response.assignment and response.assignment.topic_partitions)
        joins.member_epoch = LEAVES
        self.set_up(joins)
        topic_id: UUID = result.topics[0].topic_id
        self._topics[topic_id] = name
        return topic_id

    def fill(self, topic: str, count: int, partition: int = 0) -> None:
        """Produce so many records, in one batch each."""
        for number in range(count):
            batch = build_batch([RecordData(timestamp=1, key=None, value=b"%d" % number)])
            data = PartitionProduceData(index=partition, records=batch)
            request = ProduceRequest(
                acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
            )
            self.set_up(request, until=lambda response: not response.responses[0].partition_responses[0].error_code)

    def configure(self, resource_type: int, resource_name: str, **settings: str) -> None:
        """Set dynamic settings; names have underscores for dots."""
        configs = [
            AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in settings.items()
        ]
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=resource_name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        assert self.set_up(request).responses[0].error_code == 0

    def _keep(self, label: str, response: Struct | None, version: int) -> None:
        self.answers.append((label, {"closed": True} if response is None else self._normal(response, version)))

    def _exchange(self, request: Struct, version: int, name: str) -> Any:
        connection = self._connections.get(name)
        if connection is None:
            connection = self._connections[name] = self._closing.enter_context(WireClient(self._port))
        try:
            return connection.ask(request, version)
        except ConnectionError:
            del self._connections[name]
            return None

    def _normal(self, message: Struct, version: int) -> Answer:
        found = {}
        for field in message.__fields__:
            value = getattr(message, field.name)
            if field.is_in(version) and field.name not in LEFT_OUT and value != field.default:
                shown = self._shown(field, value, version)
                if shown not in (None, {}):
                    found[field.name] = shown
        return found

    def _shown(self, field: Field, value: Any, version: int) -> Any:
        if field.name in MADE_UP:
            return "made up"
        if field.name.endswith(TEXT):
            return "a text"
        if field.name == "records":
            return [[header.base_offset, header.last_offset] for _, header in batches(bytes(value or b""))]
        if isinstance(value, list):
            shown = [self._value(each, version) for each in value]
            return sorted(shown, key=lambda each: json.dumps(_without_texts(each)))
        return self._value(value, version)

    def _value(self, value: Any, version: int) -> Any:
        if isinstance(value, UUID):
            return self._topics.get(value, "none" if value == ZERO_UUID else "an id")
        return self._normal(value, version) if isinstance(value, Struct) else value


Case = Callable[[Talk], None]


def answers(port: int, cases: Iterable[Case]) -> dict[str, dict[str, Answer]]:
    """Return the answers of a server to all cases, by the names of case and label."""
    found = {}
    for case in cases:
        with Talk(port) as talk:
            case(talk)
        labels = [label for label, _ in talk.answers]
        assert len(labels) == len(set(labels)), f"{case.__name__}: {labels}"
        found[case.__name__] = dict(talk.answers)
    return found


def differences(theirs: Mapping[str, Mapping[str, Answer]], ours: Mapping[str, Mapping[str, Answer]]) -> dict[str, str]:
    """Return both answers where they differ, by "case: label". Milena may explain errors that Kafka does not."""
    return {
        f"{case}: {label}": f"Kafka {json.dumps(answered.get(label))}, Milena {json.dumps(ours[case].get(label))}"
        for case, answered in theirs.items()
        for label in answered | ours[case]
        if not _fits(answered.get(label), ours[case].get(label))
    }


def _fits(theirs: Any, ours: Any) -> bool:
    return _without_texts(theirs) == _without_texts(ours) and _count_texts(theirs) <= _count_texts(ours)


def _without_texts(shown: Any) -> Any:
    match shown:
        case dict():
            return {name: _without_texts(value) for name, value in shown.items() if not name.endswith(TEXT)}
        case list():
            return [_without_texts(each) for each in shown]
    return shown


def _count_texts(shown: Any) -> int:
    match shown:
        case dict():
            return sum(1 if name.endswith(TEXT) else _count_texts(value) for name, value in shown.items())
        case list():
            return sum(map(_count_texts, shown))
    return 0
