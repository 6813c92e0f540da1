"""The clients that push metrics: what each is asked for, when it may send what, and the latest values that it sent.

Owns the rules of KIP-714 and the bounds on what clients can make the broker keep. Pure: times are arguments. Must not
know requests, or how values are shown.

A client asks for its subscription, waits for the interval, and pushes the metrics of that subscription. Its
subscription is the union of those that match it. The id of a subscription changes with its content, so that a push of
an outdated one is told from the others. A client that stays away for three intervals is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from base.dataclass import dataclass
from protocol.crc import crc32c
from protocol.errors import ErrorCode, KafkaError
from protocol.ids import id_text
from protocol.records.compression import Compression

if TYPE_CHECKING:
    from broker.telemetry.subscriptions import Subscription

ALL_METRICS: Final = "*"
INSTANCES_MAX: Final = 16_384
"""Beyond it the client that was heard of longest ago is forgotten."""
INSTANCE_VALUES_MAX: Final = 1_000
VALUES_MAX: Final = 20_000
TEXT_LENGTH_MAX: Final = 200
"""In characters. Of a longer text of a client the beginning is kept."""
KEPT_MS_MIN: Final = 60_000
KEPT_INTERVALS: Final = 3
RESERVED_IDS: Final = frozenset({UUID(int=0), UUID(int=1)})
RETRIED: Final = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""Codes after which a client asks for its subscription again, and need not wait."""
_NEVER_MS: Final = -(1 << 62)


class ClientAttributes(NamedTuple):
    """What a client's connection shows of it. Of long texts only the beginning is kept and matched."""

    client_id: str | None
    software_name: str
    software_version: str
    host: str
    port: int


class Point(NamedTuple):
    """One value of a metric of a client."""

    name: str
    attributes: str
    """What it is a value of, as `key=value,key=value` in the order of the keys."""
    value: float
    is_delta: bool
    """Whether the value is what was added since the last push."""


@dataclass(slots=True)
class Instance:
    """One client that asks for subscriptions and pushes metrics."""

    id: UUID
    client: ClientAttributes
    version: int
    """The version of all subscriptions that its own was made from."""
    metrics: tuple[str, ...]
    interval_ms: int
    subscription_id: int
    asked_ms: int = _NEVER_MS
    pushed_ms: int = _NEVER_MS
    expires_ms: int = 0
    is_terminating: bool = False
    last_code: ErrorCode = ErrorCode.NONE
    values: dict[tuple[str, str], float] = field(default_factory=dict)
    """By the name and the attributes of a metric."""


class ClientInstances:
    """All clients that this broker knows by their metrics."""

    def __init__(self, max_bytes: int, new_id: Callable[[], UUID]) -> None:
        """`max_bytes` is the largest push (`telemetry.max.bytes`)."""
        self.max_bytes = max_bytes
        self.subscriptions: dict[str, Subscription] = {}
        self.unknown_subscription_count = 0
        """Pushes of a subscription that the client does not have."""
        self.dropped_count = 0
        """Values of metrics that were not kept, because a client or all clients have too many."""
        self._new_id = new_id
        self._version = 0
        self._instances: OrderedDict[UUID, Instance] = OrderedDict()
        """In the order of their last requests."""
        self._value_count = 0
        self._swept_ms = _NEVER_MS

    @property
    def count(self) -> int:
        return len(self._instances)

    def subscribe(self, name: str, subscription: Subscription | None) -> None:
        """Add or replace a subscription; None removes it. Clients notice it at their next request.

        The same settings again, as when the store reports its own change, do not end the intervals of clients.
        """
        before = self.subscriptions.pop(name, None)
        if subscription is not None:
            self.subscriptions[name] = subscription
        if (before and before.settings) != (subscription and subscription.settings):
            self._version += 1

    def ask(self, instance_id: UUID, client: ClientAttributes, now_ms: int) -> Instance:
        """Return the client with its subscription. A client without an id gets one.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED if it asks before its interval is over.
        """
        instance = self._instance(instance_id if instance_id.int else self._unused_id(), client, now_ms)
        since_ms = now_ms - max(instance.asked_ms, instance.pushed_ms)
        if since_ms < instance.interval_ms and instance.last_code not in RETRIED:
            raise _too_early(instance)
        instance.asked_ms = now_ms
        instance.last_code = ErrorCode.NONE
        return instance

    def check_push(
        self,
        instance_id: UUID,
        client: ClientAttributes,
        now_ms: int,
        *,
        subscription_id: int,
        codec: int,
        size: int,
        is_terminating: bool,
    ) -> None:
        """Check whether a client may push so many bytes now.

        Raises:
            KafkaError: INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID,
                UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE.
        """
        if instance_id in RESERVED_IDS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"client instance id {id_text(instance_id)} is reserved")
        instance = self._instance(instance_id, client, now_ms)
        try:
            self._check_push(instance, now_ms, subscription_id, codec, size, is_terminating=is_terminating)
            instance.last_code = ErrorCode.NONE
        except KafkaError as error:
            instance.last_code = error.code
            raise
        finally:
            instance.is_terminating |= is_terminating

    def _check_push(
        self, instance: Instance, now_ms: int, subscription_id: int, codec: int, size: int, *, is_terminating: bool
    ) -> None:
        shown = id_text(instance.id)
        if instance.is_terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"client instance {shown} has sent its last push")
        # The first push after a request for the subscription may come at once: clients spread it over the interval.
        if instance.asked_ms <= instance.pushed_ms and now_ms - instance.pushed_ms < instance.interval_ms:
            if not is_terminating:
                raise _too_early(instance)
        else:
            instance.pushed_ms = now_ms
        if subscription_id != instance.subscription_id:
            self.unknown_subscription_count += 1
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID, f"client instance {shown} has another subscription")
        if codec not in set(Compression):
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression type {codec}")
        if size > self.max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"{size} bytes, expected at most {self.max_bytes}")

    def keep(self, instance_id: UUID, points: Iterable[Point]) -> None:
        """Keep the values of a push. A value that is a delta is added to the one before."""
        instance = self._instances.get(instance_id)
        if instance is None:
            return  # it expired while its push was read
        for name, attributes, value, is_delta in points:
            key = name, attributes
            before = instance.values.get(key)
            if before is None:
                if len(instance.values) == INSTANCE_VALUES_MAX or self._value_count == VALUES_MAX:
                    self.dropped_count += 1
                    continue
                self._value_count += 1
            instance.values[key] = before + value if is_delta and before is not None else value

    def values(self, now_ms: int) -> Iterator[tuple[tuple[str, str, str, str], float]]:
        """Yield the latest value of each metric of each client, by client id, instance id, name and attributes.

        A client whose turn has not come may push before the next value is read.
        """
        self._sweep(now_ms)
        for instance in list(self._instances.values()):
            client_id = instance.client.client_id or ""
            for (name, attributes), value in list(instance.values.items()):
                yield (client_id, id_text(instance.id), name, attributes), value

    # -- instances -------------------------------------------------------------------------------------------------

    def _instance(self, instance_id: UUID, client: ClientAttributes, now_ms: int) -> Instance:
        """Return the client of an id, with the subscription that it has now."""
        if now_ms - self._swept_ms >= KEPT_MS_MIN:
            self._sweep(now_ms)
        instance = self._instances.get(instance_id)
        if instance is None:
            if len(self._instances) == INSTANCES_MAX:
                self._forget(next(iter(self._instances)))
            instance = self._instances[instance_id] = Instance(instance_id, _shortened(client), -1, (), 0, 0)
        if instance.version != self._version:
            self._evaluate(instance)
        self._instances.move_to_end(instance_id)
        instance.expires_ms = now_ms + max(KEPT_MS_MIN, KEPT_INTERVALS * instance.interval_ms)
        return instance

    def _evaluate(self, instance: Instance) -> None:
        """Determine the subscription of a client. It may ask for it, and push, without waiting."""
        from config.client_metrics import INTERVAL_MS_DEFAULT  # on demand: no start needs it

        attributes = _attributes(instance.id, instance.client)
        matching = [each for each in self.subscriptions.values() if each.matches(attributes)]
        metrics = {name for each in matching for name in each.metrics}
        instance.metrics = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        instance.interval_ms = min([INTERVAL_MS_DEFAULT, *(each.interval_ms for each in matching)])
        instance.subscription_id = _subscription_id(instance)
        instance.version = self._version
        instance.asked_ms = instance.pushed_ms = _NEVER_MS

    def _unused_id(self) -> UUID:
        while (instance_id := self._new_id()) in self._instances or instance_id in RESERVED_IDS:
            pass
        return instance_id

    def _sweep(self, now_ms: int) -> None:
        """Forget the clients that were not heard of for too long."""
        self._swept_ms = now_ms
        for instance_id in [each.id for each in self._instances.values() if each.expires_ms <= now_ms]:
            self._forget(instance_id)

    def _forget(self, instance_id: UUID) -> None:
        self._value_count -= len(self._instances.pop(instance_id).values)


def _shortened(client: ClientAttributes) -> ClientAttributes:
    client_id = None if client.client_id is None else client.client_id[:TEXT_LENGTH_MAX]
    return client._replace(
        client_id=client_id,
        software_name=client.software_name[:TEXT_LENGTH_MAX],
        software_version=client.software_version[:TEXT_LENGTH_MAX],
    )


def _attributes(instance_id: UUID, client: ClientAttributes) -> Mapping[str, str | None]:
    return {
        "client_instance_id": id_text(instance_id),
        "client_id": client.client_id,
        "client_software_name": client.software_name,
        "client_software_version": client.software_version,
        "client_source_address": client.host,
        "client_source_port": str(client.port),
    }


def _subscription_id(instance: Instance) -> int:
    """Return a signed number of 32 bits that depends on the subscription's content and the client."""
    content: int = crc32c(f"{instance.metrics}{instance.interval_ms}".encode())
    client = instance.id.int
    folded = content ^ (client ^ client >> 32 ^ client >> 64 ^ client >> 96) & 0xFFFF_FFFF
    return folded - (1 << 32) if folded >= 1 << 31 else folded


def _too_early(instance: Instance) -> KafkaError:
    return KafkaError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        f"client instance {id_text(instance.id)} may send one request in {instance.interval_ms} ms",
    )
