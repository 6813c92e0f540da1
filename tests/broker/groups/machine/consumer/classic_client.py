"""A member of the classic protocol in a group of the consumer protocol, with cooperative rebalances.

Owns: what such a client does in turn: join, sync, heartbeat, and join again when it is asked to. Must not know: tests.
"""

from __future__ import annotations

from broker.groups.machine.consumer.partitions import NOTHING, Partitions, common, partitions, without
from broker.groups.machine.events import JoinRequest, JoinResult, MemberProtocol, SyncRequest, SyncResult
from protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    ConsumerProtocolSubscription,
    TopicPartitions,
    read_assignment,
    subscription_bytes,
)
from protocol.errors import ErrorCode
from tests.broker.groups.machine.consumer.cluster import REBALANCE_MS, SESSION_MS, Cluster, Ticket

NAME = "cooperative-sticky"


class ClassicClient:
    """One member."""

    def __init__(self, cluster: Cluster, member_id: str, *topics: str) -> None:
        self.cluster = cluster
        self.topics = topics
        self._generated_id = member_id
        self.member_id = ""
        self.generation = -1
        self.has: Partitions = NOTHING

    @property
    def numbers(self) -> list[int]:
        return sorted(number for numbers in self.has.values() for number in numbers)

    def heartbeat(self) -> ErrorCode:
        """Send a heartbeat, and do what it asks for; return the error that is left."""
        if self.generation < 0:
            return self._join()
        code = self.cluster.group.heartbeat(self.member_id, None, self.generation, self.cluster.moment)
        self.cluster.settle()
        return self._reacted(code)

    def leave(self) -> ErrorCode:
        code = self.cluster.group.leave(self.member_id, None, self.cluster.moment)
        self.cluster.settle()
        self.has = NOTHING
        return code

    def _reacted(self, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return self._join()
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.generation, self.has = "", -1, NOTHING
            return self._join()
        if code is ErrorCode.ILLEGAL_GENERATION:
            self.generation, self.has = -1, NOTHING
            return self._join()
        return code

    def _join(self) -> ErrorCode:
        ticket = Ticket()
        self.cluster.group.join(
            JoinRequest(
                member_id=self.member_id,
                group_instance_id=None,
                client_id="client",
                client_host="/127.0.0.1",
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type=PROTOCOL_TYPE,
                protocols=(MemberProtocol(NAME, self._subscription()),),
                generated_member_id=self._generated_id,
                requires_known_member_id=False,
                supports_skipping_assignment=True,
            ),
            ticket,
            self.cluster.moment,
        )
        self.cluster.settle()
        result = ticket.result
        if not isinstance(result, JoinResult):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if result.error:
            if result.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
                self.member_id, self.generation, self.has = "", -1, NOTHING
            return result.error
        self.member_id, self.generation = result.member_id, result.generation_id
        return self._sync()

    def _sync(self) -> ErrorCode:
        ticket = Ticket()
        request = SyncRequest(self.member_id, None, self.generation, PROTOCOL_TYPE, NAME, {})
        self.cluster.group.sync(request, ticket, self.cluster.moment)
        self.cluster.settle()
        result = ticket.result
        assert isinstance(result, SyncResult), result
        if result.error:
            return result.error
        _, assignment = read_assignment(result.assignment)
        found = [(self.cluster.topics.find(each.topic), each.partitions) for each in assignment.assigned_partitions]
        wanted = partitions((topic.topic_id, numbers) for topic, numbers in found if topic is not None)
        has_to_revoke = bool(without(self.has, wanted))
        self.has = common(self.has, wanted) if has_to_revoke else wanted
        # A cooperative client that has given something up joins again at once.
        return self._join() if has_to_revoke else ErrorCode.NONE

    def _subscription(self) -> bytes:
        owned = [
            TopicPartitions(topic=name, partitions=sorted(numbers))
            for topic_id, numbers in self.has.items()
            if (name := self.cluster.topics.name_of(topic_id)) is not None
        ]
        return subscription_bytes(
            3,
            ConsumerProtocolSubscription(
                topics=list(self.topics), user_data=None, owned_partitions=owned, generation_id=self.generation
            ),
        )
