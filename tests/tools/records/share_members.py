"""A member of a share group that returns scripted messages, in place of the client library's consumer."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from confluent_kafka import AcknowledgeType, KafkaError, Message


class ShareMember:
    """Returns one batch a poll, and then none. Checks that all records of a poll are acknowledged before the next."""

    def __init__(self, *batches: Sequence[Message]) -> None:
        self.settings: dict[str, Any] = {}
        self.topics: list[str] = []
        self.acknowledged: list[tuple[int, AcknowledgeType]] = []
        self.is_committed = self.is_closed = False
        self._batches = list(batches)
        self._open: set[int] = set()

    def __call__(self, settings: dict[str, Any], *, logger: logging.Logger) -> ShareMember:
        """Return itself, as the new consumer."""
        self.settings = settings
        return self

    def subscribe(self, topics: list[str]) -> None:
        self.topics = topics

    def poll(self, timeout: float) -> Sequence[Message]:
        assert not self._open, f"not acknowledged: {self._open}"
        batch = self._batches.pop(0) if self._batches else []
        if self.settings.get("share.acknowledgement.mode") == "explicit":
            self._open = {message.offset() for message in batch if message.error() is None}
        return batch

    def acknowledge(self, message: Message, ack_type: AcknowledgeType) -> None:
        self._open.remove(message.offset())
        self.acknowledged.append((message.offset(), ack_type))

    def commit_sync(self) -> None:
        self.is_committed = True

    def close(self) -> None:
        self.is_closed = True


def record(offset: int, value: bytes) -> Message:
    """Return a record of the topic `orders`, delivered the first time."""
    return Message(topic="orders", partition=0, offset=offset, value=value, key=b"k", delivery_count=1)


def failure(code: int) -> Message:
    """Return a message that reports an error."""
    return Message(topic="orders", error=KafkaError(code))
