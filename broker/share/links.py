"""Access to the share coordinators: the one of this broker by a direct call, the others by requests.

Owns: which broker coordinates a state, and the repetition of calls while a coordinator moves, loads or does not
respond. Must not know: why a call is made, or what follows from its result.

A call may be served more than once, if a response is lost; `broker.share.machine.stored_states` says why that does no
harm.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

from base.clock import Clock
from base.line_limit import LineLimit
from base.pause import Pause
from broker.coordination.batched_requests import BatchedRequests
from broker.coordination.partitioner import Leaders, other_coordinator, partition_for
from broker.loop.driver import going_on
from broker.loop.promise import Promise, resolved
from broker.network.outgoing import Peer, PeerUnavailable
from broker.share.machine.records import ShareKey, text_of
from broker.share.machine.state_calls import Call, Read, Write
from broker.share.machine.stored_states import ShareState
from broker.share.state_messages import request_of, results_of
from broker.share.states import ShareStates
from protocol.errors import ErrorCode, KafkaError
from protocol.internal_topics import SHARE_GROUP_STATE_TOPIC

VERSION: Final = 0
"""Of all requests to share coordinators."""
REPEATED: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""The errors after which the coordinator is looked up and called again."""
FIRST_PAUSE_MS, PAUSE_MS_MAX = 20, 1000
READ_SIZE: Final = 20
"""What a read counts in a request: its response may have many batches."""
LINE_INTERVAL_S: Final = 10.0

logger = logging.getLogger("kafka.server.share.PersisterStateManager")


class StateLinks:
    """All share coordinators."""

    def __init__(
        self,
        broker_id: int,
        own: ShareStates,
        leaders: Leaders,
        connect: Callable[[int], Peer],
        clock: Clock,
        sleep_ms: Callable[[int], Awaitable[None]],
        pause: Pause,
        timeout_ms: int,
    ) -> None:
        """`own` is the coordinator of this broker. `timeout_ms` limits one request."""
        self._broker_id = broker_id
        self._own = own
        self._leaders = leaders
        self._connect = connect
        self._clock = clock
        self._sleep_ms = sleep_ms
        self._pause = pause
        self._timeout_ms = timeout_ms
        self._remote: dict[int, RemoteStates] = {}

    def call(self, call: Call, patience_ms: int) -> Promise[ShareState]:
        """Return a promise of the result, which fails with KafkaError. The call is made also if it is cancelled.

        Within `patience_ms`, the call is repeated after one of the errors `REPEATED`.
        """
        try:
            outcome = going_on(self._repeated(call, patience_ms))
        except KafkaError as error:
            failed: Promise[ShareState] = Promise()
            failed.set_exception(error)
            return failed
        return outcome if isinstance(outcome, Promise) else resolved(outcome)

    def brokers_changed(self, live: Collection[int]) -> None:
        """Close the connections to brokers that are not alive; what they were asked fails with NETWORK_EXCEPTION."""
        for broker_id in self._remote.keys() - set(live):
            self._remote.pop(broker_id).close()

    async def _repeated(self, call: Call, patience_ms: int) -> ShareState:
        give_up_ms = self._clock.monotonic_ms() + patience_ms
        pause_ms = FIRST_PAUSE_MS
        while True:
            try:
                return await self._once(call)
            except KafkaError as error:
                if error.code not in REPEATED or self._clock.monotonic_ms() + pause_ms > give_up_ms:
                    raise
            await self._sleep_ms(pause_ms)
            pause_ms = min(2 * pause_ms, PAUSE_MS_MAX)

    async def _once(self, call: Call) -> ShareState:
        try:
            served = self._own.serve(call)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_COORDINATOR:
                raise
        else:
            return await served
        text = text_of(call.key)
        broker_id = other_coordinator(text, SHARE_GROUP_STATE_TOPIC, self._leaders, self._broker_id)
        count = self._leaders.partition_count(SHARE_GROUP_STATE_TOPIC)
        assert count, "a topic with a leader has partitions"
        return await self._other(broker_id).serve(call, partition_for(text, count))

    def _other(self, broker_id: int) -> RemoteStates:
        """Return the coordinator on another broker."""
        remote = self._remote.get(broker_id)
        if remote is None:
            remote = self._remote[broker_id] = RemoteStates(
                broker_id, partial(self._connect, broker_id), self._timeout_ms, self._clock, self._pause
            )
        return remote


class _Question(NamedTuple):
    call: Call

    @property
    def key(self) -> ShareKey:
        return self.call.key

    @property
    def size(self) -> int:
        match self.call:
            case Write():
                return 1 + len(self.call.batches)
            case Read():
                return READ_SIZE
            case _:
                return 1


_Result = ShareState | KafkaError


class RemoteStates:
    """The share coordinator of another broker."""

    def __init__(
        self, broker_id: int, connect: Callable[[], Peer], timeout_ms: int, clock: Clock, pause: Pause
    ) -> None:
        self._broker_id = broker_id
        self._connect = connect
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._pause = pause
        self._lines = LineLimit(LINE_INTERVAL_S)
        self._peers: list[Peer] = []
        self._batches: dict[tuple[type[Call], int], BatchedRequests[_Question, _Result]] = {}
        """By kind of call and partition of the topic, each with its own connection: a call waits for the replicas of
        its partition, and calls of other partitions need not wait for these."""

    async def serve(self, call: Call, number: int) -> ShareState:
        """Return the result of a call; `number` is the partition that keeps the state. Raises KafkaError."""
        batches = self._batches.get((type(call), number))
        if batches is None:
            peer = self._connect()
            self._peers.append(peer)
            batches = self._batches[type(call), number] = BatchedRequests(
                f"calls to share coordinator {self._broker_id}", partial(self._send, peer), _lost
            )
        result = await batches.put(_Question(call))
        if isinstance(result, KafkaError):
            raise result
        return result

    def close(self) -> None:
        for peer in self._peers:
            peer.close()

    async def _send(self, peer: Peer, questions: Sequence[_Question]) -> Sequence[_Result]:
        """Send the calls of each group in a request of its own. After one without a response the others are lost too.

        So the calls of a batch wait for a peer that does not respond no longer than for one request.
        """
        by_group: dict[str, list[Call]] = {}
        for question in questions:
            by_group.setdefault(question.key.group_id, []).append(question.call)
        found: dict[ShareKey, _Result] = {}
        try:
            for calls in by_group.values():
                for call, result in zip(calls, await self._results(peer, calls), strict=True):
                    found[call.key] = result
        except PeerUnavailable as error:
            self._log("is asked again for states of share groups", error)
        return [found.get(question.key, _lost(question)) for question in questions]

    async def _results(self, peer: Peer, calls: Sequence[Call]) -> Sequence[_Result]:
        """Send calls of one group, and return their results. Raises PeerUnavailable."""
        try:
            response = await peer.ask(request_of(calls), VERSION, timeout_ms=self._timeout_ms)
        except KafkaError as error:
            self._log(
                "keeps no states of share groups, expected share in its group.coordinator.rebalance.protocols", error
            )
            return [KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)] * len(calls)
        return await results_of(calls, response, self._pause)

    def _log(self, event: str, cause: Exception) -> None:
        if self._lines.admit(self._clock.monotonic_s()) is not None:
            logger.warning("Broker %d %s: %s", self._broker_id, event, cause)


def _lost(question: _Question) -> _Result:
    return KafkaError(ErrorCode.NETWORK_EXCEPTION)
