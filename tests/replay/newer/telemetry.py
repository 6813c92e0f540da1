"""Cases of metrics that clients push (KIP-714). Each has a client instance of its own."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from protocol.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from protocol.messages.push_telemetry import PushTelemetryRequest
from protocol.records.compression import Compression
from protocol.schema import ZERO_UUID
from tests.replay.newer.conversation import CLIENT_METRICS_RESOURCE, Case, Talk

UNKNOWN: Final = UUID(int=77)
INTERVAL_MS: Final = "60000"


def get(instance: UUID = ZERO_UUID) -> GetTelemetrySubscriptionsRequest:
    return GetTelemetrySubscriptionsRequest(client_instance_id=instance)


def push(instance: UUID, subscription: int, **fields: Any) -> PushTelemetryRequest:
    return PushTelemetryRequest(
        **{
            "client_instance_id": instance,
            "subscription_id": subscription,
            "terminating": False,
            "compression_type": Compression.NONE,
            "metrics": b"",
            **fields,
        }
    )


def metrics_that_clients_push(talk: Talk) -> None:
    talk.configure(
        CLIENT_METRICS_RESOURCE, "ct", metrics="org.apache.kafka.", interval_ms=INTERVAL_MS, match="client_id=wire-.*"
    )

    def begin() -> tuple[UUID, int]:
        response = talk.set_up(get(), until=lambda found: found.requested_metrics)
        return response.client_instance_id, response.subscription_id

    begin()
    talk.ask("begins", get())
    instance, subscription = begin()
    talk.ask("asks too early", get(instance))
    talk.ask("an instance that the broker does not know asks", get(UNKNOWN))
    for label, changes in {
        "pushes": {},
        "another subscription": {"subscription_id": 5},
        "an unknown codec": {"compression_type": 9},
        "an instance of zeros": {"client_instance_id": ZERO_UUID},
        "too much": {"metrics": b"x" * 2_000_000},
        "garbage that says to be zstd": {"compression_type": Compression.ZSTD, "metrics": b"garbage"},
        "the last": {"terminating": True},
    }.items():
        instance, subscription = begin()
        talk.ask(label, push(instance, subscription, **changes))
        talk.ask(f"{label}, and once more", push(instance, subscription))
    instance, subscription = begin()
    talk.set_up(push(instance, subscription))
    talk.ask("the last, early", push(instance, subscription, terminating=True))
    talk.ask("after the last", push(instance, subscription, terminating=True))
    talk.ask("asks after the last", get(instance))
    unknown = UUID(int=78)
    talk.ask("an instance that the broker does not know pushes", push(unknown, 0))


CASES: Final[tuple[Case, ...]] = (metrics_that_clients_push,)
