"""Mutated frames before, during and after a login: nothing but a failed login or a closed connection may follow."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from broker.network.channel import Authentication, Channel
from broker.network.connection import Outcome
from broker.network.sasl.dispatcher import SaslDispatcher
from broker.network.sasl.scram import Digest
from broker.network.sasl.session import SaslListener, SaslSession
from broker.settings.listener_security import LOGIN_MODULES, Sources, sasl_listeners
from config.broker import BrokerConfig
from protocol.api import APIS
from protocol.codec import encode
from protocol.errors import Malformed
from protocol.headers import request_header
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.schema import message_info
from tests.broker.network.sasl.test_scram import credential
from tests.support.in_process import InProcessBroker, running_broker

ROUNDS = 5_000
"""Each sends up to four frames, one of which is mutated."""
TOKENS = {
    "PLAIN": [b"\0alice\0secret"],
    "OAUTHBEARER": [b"n,,\x01auth=Bearer e30.e30.e30\x01\x01", b"\x01"],
    "SCRAM-SHA-256": [b"n,,n=alice,r=abc", b"c=biws,r=abc,p=AAAA"],
    "SCRAM-SHA-512": [b"n,,n=alice,r=abc,tokenauth=true", b"c=biws,r=abc,p=AAAA"],
}


def listener() -> SaslListener:
    config = BrokerConfig.from_properties(
        {
            "listeners": "SASL_PLAINTEXT://:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(TOKENS),
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{LOGIN_MODULES["PLAIN"]} required user_alice="x";',
            "sasl.oauthbearer.jwks.endpoint.url": "file:///none",
            "connection.failed.authentication.delay.ms": "0",
        }
    )
    known = credential("secret", Digest.SCRAM_SHA_256)
    return sasl_listeners(config, Sources(lambda user, mechanism: known, random.Random(1), lambda: 0))["SASL_PLAINTEXT"]


def frame(request: object, version: int) -> bytes:
    api = APIS[message_info(type(request)).api_key]
    return request_header(api.key, version, 1, "c") + b"".join(bytes(piece) for piece in encode(request, version))


def frames(rng: random.Random) -> list[bytes]:
    """Return the frames of a login with a wrong password, and one more request."""
    mechanism = rng.choice(sorted(TOKENS))
    is_raw = rng.random() < 0.3
    sent = [frame(ApiVersionsRequest(client_software_name="x", client_software_version="1"), rng.choice((0, 3, 4)))]
    sent.append(frame(SaslHandshakeRequest(mechanism=mechanism), 0 if is_raw else 1))
    sent += [
        token if is_raw else frame(SaslAuthenticateRequest(auth_bytes=token), rng.choice((0, 1, 2)))
        for token in TOKENS[mechanism]
    ]
    return [*sent, frame(MetadataRequest(topics=None), 9)]


def mutated(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    match rng.randrange(4):
        case 0:
            return bytes(changed[: rng.randrange(len(changed) + 1)])
        case 1:
            return bytes(changed) + rng.randbytes(rng.randrange(1, 9))
        case 2:
            return rng.randbytes(rng.randrange(1, 60))
        case _:
            for _ in range(rng.randrange(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            return bytes(changed)


async def converse(broker: InProcessBroker, sasl: SaslListener, sent: list[bytes]) -> Channel:
    """Send the frames of one connection until it closes."""
    channel = Channel("127.0.0.1", 1, "SASL_PLAINTEXT")
    channel.authenticate_by(SaslSession(sasl))
    dispatcher = SaslDispatcher(broker.dispatcher, broker.services.clock)
    for each in sent:
        try:
            response = dispatcher.dispatch(memoryview(bytearray(each)), channel)
            if isinstance(response, asyncio.Future):
                response = await response
        except Malformed:
            break
        if isinstance(response, Outcome) and response.is_last:
            break
    return channel


@pytest.mark.parametrize("seed", range(4))
async def test_no_frame_but_a_right_password_leads_to_a_login(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    sasl = listener()
    async with running_broker(tmp_path) as broker:
        for _ in range(ROUNDS):
            sent = frames(rng)
            position = rng.randrange(len(sent))
            sent[position] = mutated(sent[position], rng)
            channel = await converse(broker, sasl, sent)
            assert channel.authentication is Authentication.PENDING, sent
            assert channel.principal == "User:ANONYMOUS"
        assert broker.dispatcher.unexpected_error_count == 0
        assert sasl.counts.successes == 0
        assert sasl.counts.failures > 0
