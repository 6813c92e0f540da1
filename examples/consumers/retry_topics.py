"""Sets records that cannot be processed aside: to a topic for retries, and after some attempts to one for dead letters.

    python retry_topics.py BOOTSTRAP GROUP TOPIC [--attempts 3] [--delay-s 1] [--idle-exit-s 5]

The topics are TOPIC-retry and TOPIC-dead-letters. A record keeps key, value and headers; further headers name its
place, its number of attempts and the last error. Offsets are committed after the records that were set aside are
stored, so a crash repeats records and loses none. Needs confluent-kafka.
"""

import argparse
import json
import time

from confluent_kafka import Consumer, Message, Producer, TopicPartition

ATTEMPTS, PLACE, ERROR = "retry.attempts", "retry.place", "retry.error"


def process(message: Message) -> None:
    """The work of the application. Raises ValueError for a record that cannot be processed."""
    order = json.loads(message.value() or b"")
    if not isinstance(order, dict) or "amount" not in order:
        raise ValueError("expected an object with an amount")
    print(f"processed {order['amount']}", flush=True)


class RetryConsumer:
    """Processes a topic and its retries in one consumer group."""

    def __init__(self, bootstrap: str, group: str, topic: str, attempts: int, delay_s: float) -> None:
        self._retries, self._dead_letters = f"{topic}-retry", f"{topic}-dead-letters"
        self._attempts, self._delay_s = attempts, delay_s
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self._consumer.subscribe([topic, self._retries])
        self._paused: dict[tuple[str, int], float] = {}  # until when, in seconds of the epoch

    def run(self, idle_exit_s: float | None) -> None:
        last = time.monotonic()
        while idle_exit_s is None or time.monotonic() - last < idle_exit_s or self._paused:
            self._resume()
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if message.error():
                print(message.error().str(), flush=True)
                continue
            last = time.monotonic()
            self._handle(message)
        self._consumer.close()

    def _handle(self, message: Message) -> None:
        due = message.timestamp()[1] / 1000 + self._delay_s
        if message.topic() == self._retries and due > time.time():
            place = TopicPartition(message.topic(), message.partition(), message.offset())
            self._consumer.seek(place)
            self._consumer.pause([place])
            self._paused[message.topic(), message.partition()] = due
            return
        try:
            process(message)
        except ValueError as error:
            self._set_aside(message, error)
        self._consumer.commit(message, asynchronous=False)

    def _set_aside(self, message: Message, error: ValueError) -> None:
        kept = message.headers() or []
        headers = dict(kept)
        attempts = int(headers.get(ATTEMPTS, b"0")) + 1
        place = headers.get(PLACE, f"{message.topic()}/{message.partition()}/{message.offset()}".encode())
        own = {ATTEMPTS: str(attempts).encode(), PLACE: place, ERROR: str(error).encode()}
        topic = self._retries if attempts < self._attempts else self._dead_letters
        failures: list[object] = []
        self._producer.produce(
            topic,
            message.value(),
            message.key(),
            headers=[*(each for each in kept if each[0] not in own), *own.items()],
            on_delivery=lambda failure, _: failures.append(failure) if failure else None,
        )
        if self._producer.flush(30) or failures:
            raise SystemExit(f"{topic}: {failures or 'no response in 30 s'}")

    def _resume(self) -> None:
        for place in [place for place, due in self._paused.items() if due <= time.time()]:
            del self._paused[place]
            self._consumer.resume([TopicPartition(*place)])


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "topic"):
        parser.add_argument(name)
    parser.add_argument("--attempts", type=int, default=3)
    parser.add_argument("--delay-s", type=float, default=1)
    parser.add_argument("--idle-exit-s", type=float)
    flags = parser.parse_args()
    RetryConsumer(flags.bootstrap, flags.group, flags.topic, flags.attempts, flags.delay_s).run(flags.idle_exit_s)


if __name__ == "__main__":
    main()
