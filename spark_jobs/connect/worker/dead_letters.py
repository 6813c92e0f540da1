"""Sends the records that a sink refuses to its topic of dead letters. Must not know why a record is refused."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException

from spark_jobs.connect.base.connector_settings import (
    DEAD_LETTERS,
    DEAD_LETTERS_HEADERS,
    DEAD_LETTERS_REPLICATION,
)
from spark_jobs.connect.base.errors import ConnectError
from spark_jobs.connect.base.states import TaskId
from spark_jobs.connect.worker.failures import Failure, dead_letter_headers
from spark_jobs.connect.worker.topic_creation import create_topic
from tools.client import client_library as library

TIMEOUT_S: Final = 30.0
FULL_QUEUE_S: Final = 0.1


class DeadLetters:
    """The topic of dead letters of one task."""

    def __init__(
        self, producer: library.Producer, client: Mapping[str, Any], parsed: Mapping[str, Any], task: TaskId
    ) -> None:
        self._producer = producer
        self._client = client
        self._topic: str = parsed[DEAD_LETTERS]
        self._has_headers: bool = parsed[DEAD_LETTERS_HEADERS]
        self._replication_factor: int = parsed[DEAD_LETTERS_REPLICATION]
        self._task = task
        self._failure: str | None = None

    def prepare(self) -> None:
        """Create the topic if it is missing. Raises ConnectError."""
        create_topic(self._client, self._topic, 1, self._replication_factor, {})

    def send(self, failure: Failure) -> None:
        """Send a record as it was read.

        Raises ConnectError if the topic does not accept it, or an earlier one, or if nobody knows how it was read.
        """
        self._raise_failure()
        message = failure.message
        if message is None:
            raise ConnectError(
                f"task {self._task}: the connector reports a record at {failure.origin} that it has made"
            )
        headers = list(message.headers() or [])
        if self._has_headers:
            headers += dead_letter_headers(failure, self._task.connector, self._task.task)
        deadline_s = time.monotonic() + TIMEOUT_S
        while not self._has_sent(message, headers):
            self._producer.poll(FULL_QUEUE_S)
            if time.monotonic() >= deadline_s:
                raise ConnectError(f"the topic {self._topic} of dead letters acknowledges nothing")
        self._producer.poll(0)

    def _has_sent(self, message: library.Message, headers: list[tuple[str, Any]]) -> bool:
        """Return False if the producer's queue is full. Raises ConnectError for a record that it refuses."""
        try:
            self._producer.produce(
                self._topic, message.value(), message.key(), headers=headers, on_delivery=self._delivered
            )
        except BufferError:
            return False
        except KafkaException as error:
            raise ConnectError(f"the dead letter for {self._topic} cannot be sent: {error.args[0].str()}") from error
        return True

    def flush(self) -> bool:
        """Wait for acknowledgements: offsets behind a dead letter are committed after it. Return False without all.

        Raises ConnectError if one was refused.
        """
        is_done = bool(self._producer.flush(TIMEOUT_S) == 0)
        self._raise_failure()
        return is_done

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise ConnectError(self._failure)

    def _delivered(self, error: library.KafkaError | None, _message: library.Message) -> None:
        if error is not None:
            self._failure = f"a dead letter for topic {self._topic} was not acknowledged: {error.str()}"
