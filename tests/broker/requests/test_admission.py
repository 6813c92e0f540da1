"""Requests of clients wait while a broker starts; those of the controller do not."""

import asyncio

import pytest

from broker.loop.promise import Promise
from broker.network.channel import Channel
from broker.network.connection import Buffers, Outcome, Response
from broker.requests.admission import Admission
from protocol.api import APIS
from protocol.api_key import ApiKey
from protocol.headers import request_header

CHANNEL = Channel("127.0.0.1", 5, "TEST")
METADATA = 3


class _Recorder:
    def __init__(self, response: Response) -> None:
        self.served: list[bytes] = []
        self.response = response

    def dispatch(self, frame: memoryview, channel: Channel) -> Response:
        self.served.append(bytes(frame))
        return self.response


def _frame(key: int) -> memoryview:
    return memoryview(bytearray(request_header(key, APIS[key].versions[-1], 7, "client") + b"body"))


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.API_VERSIONS,
        ApiKey.SASL_AUTHENTICATE,
    ],
)
async def test_request_of_the_controller_is_served_while_clients_wait(key: int) -> None:
    recorder = _Recorder([b"response"])
    assert Admission(recorder).dispatch(_frame(key), CHANNEL) == [b"response"]
    assert recorder.served == [bytes(_frame(key))]


@pytest.mark.parametrize("kind", ["buffers", "bytes", "outcome", "none", "promise"])
async def test_request_of_a_client_is_served_once_clients_are_admitted(kind: str) -> None:
    outcome = Outcome([b"outcome"], 5)
    promise: Promise[Buffers | Outcome | None] = Promise()
    promise.set_result([b"awaited"])
    responses: dict[str, tuple[Response, object]] = {
        "buffers": ([b"buffers"], [b"buffers"]),
        "bytes": (b"bytes", [b"bytes"]),
        "outcome": (outcome, outcome),
        "none": (None, None),
        "promise": (promise, [b"awaited"]),
    }
    response, expected = responses[kind]
    recorder = _Recorder(response)
    admission = Admission(recorder)
    frame = _frame(METADATA)
    waiting = admission.dispatch(frame, CHANNEL)
    frame[:] = bytes(len(frame))  # the connection receives its next bytes into the same buffer
    await asyncio.sleep(0)
    assert not recorder.served
    admission.admit_clients()
    assert await waiting == expected  # type: ignore[misc]
    assert recorder.served == [bytes(_frame(METADATA))]


async def test_admitted_client_reaches_the_dispatcher_itself() -> None:
    recorder = _Recorder(None)
    admission = Admission(recorder)
    admission.admit_clients()
    assert admission.dispatch == recorder.dispatch
