"""Batches of idempotent producers that were refused for a reason that passes, and the batches sent behind them.

A producer sends up to five batches of a partition without waiting for responses. If the first is refused because this
broker does not lead the partition yet, and the broker becomes its leader then, the others reach a log that lacks the
first. Apache Kafka decides on each batch for itself, with two bad ends:

- The log knows the producer: OUT_OF_ORDER_SEQUENCE_NUMBER. librdkafka then begins a new epoch and sends its batches
  again, also those that an earlier leader had stored. If they survive the election, they exist twice.
- The log does not know the producer: the second batch is appended. librdkafka concludes that the first was stored too,
  and reports it as delivered.

Here the batches behind a refused one get its error until it has arrived. Producers send all of them again, in order.

The header of a batch with a wrong CRC proves nothing: its producer may be any. So it holds back each batch that does
not follow the last one of its own producer in the log.

Pure. Must not know logs or requests. What is forgotten, after `REMEMBERED_MS`, is decided as in Kafka.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from protocol.errors import ERRORS, ErrorCode
from protocol.records.batch import NO_PRODUCER_ID, BatchHeader
from storage.producers.producer_state import BATCHES_KEPT, NONE, SEQUENCE_MAX

REMEMBERED_MS: Final = 10_000
"""For how long after the last refusal batches are compared with refused ones. They follow within milliseconds."""

REFUSED_MAX: Final = 10_000
"""The most batches that are remembered, one for each producer and partition."""


class _Refused(NamedTuple):
    epoch: int
    base_sequence: int
    code: ErrorCode
    followers_left: int


class RefusedBatches:
    """The refused batches that one broker remembers.

    Until `until_ms`, ask `code_for` before each append; after that nothing is remembered.

    In all methods `last_sequence` is that of the last batch of the producer's epoch in the log, NONE without one.
    """

    def __init__(self) -> None:
        self.until_ms = 0
        self._by_producer: dict[tuple[str, int, int], _Refused] = {}

    def __len__(self) -> int:
        return len(self._by_producer)

    def add(
        self, topic: str, partition: int, header: BatchHeader, last_sequence: int, code: ErrorCode, now_ms: int
    ) -> None:
        """Note that a batch was refused with `code`. No effect if the code is final, or no producer numbered it."""
        if header.producer_id <= NO_PRODUCER_ID or header.base_sequence < 0 or not ERRORS[code].retriable:
            return
        self._forget_old(now_ms)
        key = topic, partition, header.producer_id
        earlier = self._by_producer.get(key)
        if earlier is None or not _follows_missing(earlier, header, last_sequence):
            self._by_producer[key] = _Refused(header.producer_epoch, header.base_sequence, code, BATCHES_KEPT - 1)

    def add_corrupt(self, topic: str, partition: int, code: ErrorCode, now_ms: int) -> None:
        """Note that a batch with a wrong CRC was refused with `code`. No effect if the code is final."""
        if ERRORS[code].retriable:
            self._forget_old(now_ms)
            key = topic, partition, NO_PRODUCER_ID
            self._by_producer[key] = _Refused(NONE, NONE, code, BATCHES_KEPT - 1)

    def code_for(self, topic: str, partition: int, header: BatchHeader, last_sequence: int) -> ErrorCode | None:
        """Return the code of the refused batch that has to precede this one; None if this one may be appended.

        At most four batches get the code, so a producer that has given the refused batch up learns of the gap.
        """
        code = self._code_behind(
            (topic, partition, header.producer_id),
            lambda refused: _follows_missing(refused, header, last_sequence),
        )
        if code is None and _leaves_gap(header, last_sequence):
            code = self._code_behind((topic, partition, NO_PRODUCER_ID), lambda _: True)
        return code

    def _code_behind(self, key: tuple[str, int, int], is_behind: Callable[[_Refused], bool]) -> ErrorCode | None:
        refused = self._by_producer.get(key)
        if refused is None:
            return None
        if not refused.followers_left or not is_behind(refused):
            del self._by_producer[key]
            return None
        self._by_producer[key] = refused._replace(followers_left=refused.followers_left - 1)
        return refused.code

    def _forget_old(self, now_ms: int) -> None:
        """Make room for a batch that is refused now."""
        if now_ms >= self.until_ms or len(self._by_producer) >= REFUSED_MAX:
            self._by_producer.clear()
        self.until_ms = now_ms + REMEMBERED_MS


def _follows_missing(refused: _Refused, header: BatchHeader, last_sequence: int) -> bool:
    """Return whether a batch comes after a refused one of the same epoch that the log does not hold."""
    return (
        refused.epoch == header.producer_epoch
        and _is_before(refused.base_sequence, header.base_sequence)
        and (last_sequence == NONE or _is_before(last_sequence, refused.base_sequence))
    )


def _leaves_gap(header: BatchHeader, last_sequence: int) -> bool:
    """Return whether batches of the same producer and epoch are missing between the log and this one.

    A batch without a sequence number leaves none: validation says what is wrong with it.
    """
    if header.base_sequence < 0:
        return False
    following = 0 if last_sequence == NONE else (last_sequence + 1) & SEQUENCE_MAX
    return header.base_sequence != following and (
        last_sequence == NONE or _is_before(last_sequence, header.base_sequence)
    )


def _is_before(earlier: int, later: int) -> bool:
    """Return whether a sequence number comes before another one; they wrap around."""
    return 0 < (later - earlier) & SEQUENCE_MAX <= SEQUENCE_MAX // 2
