"""Markers to other brokers, and verification by other coordinators: the requests, and what comes of failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.network.outgoing import Peer, PeerUnavailable
from broker.transactions.links import RemoteCoordinator
from broker.transactions.marker_channels import MarkerChannels, RemoteMarkerChannel
from broker.transactions.markers import Marker, MarkerChannel
from protocol.codec import encode
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from storage.producers.producer_state import Producer
from tests.broker.transactions.fakes import FakeChannel

SECOND = ("t", 1)
PARTITIONS = [("t", 0), SECOND, ("u", 0)]


class FakePeer:
    """A `Peer` that responds as the test specifies."""

    def __init__(self, respond: Callable[[Any], object]) -> None:
        self.respond = respond
        self.asked: list[tuple[Any, int, int]] = []
        self.is_closed = False

    async def ask(self, request: Any, version: int, *, timeout_ms: int) -> Any:
        self.asked.append((request, version, timeout_ms))
        await asyncio.sleep(0)
        return self.respond(request)

    def close(self) -> None:
        self.is_closed = True


def unreachable(request: object) -> object:
    raise PeerUnavailable("broker 2 at b:1 is unavailable: refused")


def markers_response(request: Any, code: Callable[[str, int], int] = lambda topic, index: 0) -> object:
    markers = [
        {
            "producer_id": marker.producer_id,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": index, "error_code": code(topic.name, index)}
                        for index in topic.partition_indexes
                    ],
                }
                for topic in marker.topics
            ],
        }
        for marker in request.markers
    ]
    return _built(WriteTxnMarkersResponse, {"markers": markers})


def _built(cls: Any, values: dict[str, Any]) -> Any:
    given = {}
    for field in cls.__fields__:
        if field.name in values:
            value = values[field.name]
            given[field.name] = [_built(field.struct, each) for each in value] if field.struct is not None else value
    return cls(**given)


async def test_markers_of_many_transactions_share_a_request() -> None:
    peer = FakePeer(markers_response)
    channel = RemoteMarkerChannel(2, peer, 1, 500)
    writes = [channel.write(Marker(number, 3, number == 7, 9), PARTITIONS) for number in (7, 8)]
    assert await asyncio.gather(*writes) == [dict.fromkeys(PARTITIONS, 0)] * 2
    ((request, version, timeout_ms),) = peer.asked
    assert (version, timeout_ms) == (1, 500)
    assert [
        (it.producer_id, it.producer_epoch, it.transaction_result, it.coordinator_epoch) for it in request.markers
    ] == [
        (7, 3, True, 9),
        (8, 3, False, 9),
    ]
    assert [(topic.name, topic.partition_indexes) for topic in request.markers[0].topics] == [("t", [0, 1]), ("u", [0])]


async def test_code_of_each_partition_comes_from_the_response() -> None:
    peer = FakePeer(
        lambda request: markers_response(request, lambda topic, index: 6 if (topic, index) == SECOND else 0)
    )
    codes = await RemoteMarkerChannel(2, peer, 1, 500).write(Marker(7, 0, True, 0), PARTITIONS)
    assert codes == {("t", 0): 0, SECOND: ErrorCode.NOT_LEADER_OR_FOLLOWER, ("u", 0): 0}


@pytest.mark.parametrize(
    "respond", [unreachable, lambda request: WriteTxnMarkersResponse(markers=[])], ids=["unreachable", "says nothing"]
)
async def test_marker_without_a_response_is_to_be_sent_again(respond: Callable[[Any], object]) -> None:
    codes = await RemoteMarkerChannel(2, FakePeer(respond), 1, 500).write(Marker(7, 0, True, 0), PARTITIONS)
    assert codes == dict.fromkeys(PARTITIONS, ErrorCode.NETWORK_EXCEPTION)


def test_channels_exist_to_this_broker_and_to_live_ones() -> None:
    own: MarkerChannel = FakeChannel()
    peers: dict[int, FakePeer] = {}

    class FakePeers:
        def connect(self, broker_id: int, purpose: str) -> Peer:
            assert purpose == "txn-marker-sender"
            peers[broker_id] = FakePeer(unreachable)
            return peers[broker_id]

    channels = MarkerChannels(1, own, FakePeers(), 1, 500)
    assert channels.get(1) is own
    assert channels.get(2) is None
    channels.brokers_changed([1, 2])
    channel = channels.get(2)
    assert channel is not None
    assert channels.get(2) is channel
    channels.brokers_changed([1])
    assert peers[2].is_closed
    assert channels.get(2) is None


def verdicts(code: int = 0) -> Callable[[Any], object]:
    def respond(request: Any) -> object:
        results = [
            {
                "transactional_id": each.transactional_id,
                "topic_results": [
                    {
                        "name": topic.name,
                        "results_by_partition": [
                            {"partition_index": index, "partition_error_code": code} for index in topic.partitions
                        ],
                    }
                    for topic in each.topics
                ],
            }
            for each in request.transactions
        ]
        return _built(AddPartitionsToTxnResponse, {"results_by_transaction": results})

    return respond


async def test_verifications_share_a_request() -> None:
    peer = FakePeer(verdicts(ErrorCode.TRANSACTION_ABORTABLE))
    coordinator = RemoteCoordinator(2, peer, 500)
    asking = [coordinator.verify(name, Producer(7, 3), PARTITIONS) for name in ("a", "b")]
    assert await asyncio.gather(*asking) == [dict.fromkeys(PARTITIONS, ErrorCode.TRANSACTION_ABORTABLE)] * 2
    ((request, version, _),) = peer.asked
    assert version == 5
    assert [
        (it.transactional_id, it.producer_id, it.producer_epoch, it.verify_only) for it in request.transactions
    ] == [
        ("a", 7, 3, True),
        ("b", 7, 3, True),
    ]


async def test_additions_and_verifications_share_a_request() -> None:
    peer = FakePeer(verdicts())
    coordinator = RemoteCoordinator(2, peer, 500)
    asking = [
        coordinator.add("a", Producer(7, 3), PARTITIONS),
        coordinator.verify("b", Producer(8, 0), PARTITIONS),
        coordinator.add("a", Producer(7, 3), PARTITIONS[:1]),
    ]
    assert await asyncio.gather(*asking) == [
        dict.fromkeys(PARTITIONS, 0), dict.fromkeys(PARTITIONS, 0), dict.fromkeys(PARTITIONS[:1], 0)
    ]  # fmt: skip
    asked = [[(it.transactional_id, it.verify_only) for it in request.transactions] for request, _, _ in peer.asked]
    assert asked == [[("a", False), ("b", True)], [("a", False)]], "a request names each id once"


def too_old(request: object) -> object:
    return encode(request, 3)  # fails: the transactions are in the request since version 4


async def test_a_coordinator_that_is_too_old_verifies_nothing_and_extends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    coordinator = RemoteCoordinator(2, FakePeer(too_old), 500)
    for _ in range(2):
        asking = [coordinator.verify("a", Producer(7, 3), PARTITIONS), coordinator.add("b", Producer(8, 0), PARTITIONS)]
        assert await asyncio.gather(*asking) == [
            dict.fromkeys(PARTITIONS, ErrorCode.NONE),
            dict.fromkeys(PARTITIONS, ErrorCode.NETWORK_EXCEPTION),
        ]
    assert caplog.messages == [
        "Coordinator 2 serves no AddPartitionsToTxn v4: its transactions are neither verified nor extended"
    ]


@pytest.mark.parametrize(
    ("respond", "code"),
    [
        (unreachable, ErrorCode.NETWORK_EXCEPTION),
        (lambda _: AddPartitionsToTxnResponse(), ErrorCode.NETWORK_EXCEPTION),
        (
            lambda _: AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
    ],
    ids=["unreachable", "says nothing", "refuses"],
)
async def test_verification_that_fails_gives_each_partition_a_code(
    respond: Callable[[Any], object], code: ErrorCode
) -> None:
    coordinator = RemoteCoordinator(2, FakePeer(respond), 500)
    assert await coordinator.verify("a", Producer(7, 3), PARTITIONS) == dict.fromkeys(PARTITIONS, code)
