"""Mutated frames before, during and after a login: nothing but a failed login or a closed connection may follow."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from broker.loop.promise import Promise
from broker.network.channel import Authentication, Channel
from broker.network.connection import Outcome
from broker.network.sasl.dispatcher import SaslDispatcher
from broker.network.sasl.scram import Digest
from broker.network.sasl.session import SaslListener, SaslSession
from broker.requests.routes import TABLE
from broker.settings.listener_security import sasl_listeners
from broker.settings.sasl_settings import LOGIN_MODULES
from broker.settings.security_sources import Sources
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
from tests.protocol.random_messages import random_message
from tests.support.in_process import InProcessBroker, running_broker

ROUNDS, ROUNDS_SOAKED = 2_500, 62_500
"""Mutated frames of one test, in `bin/test` and with `--soak`: 20,000 and 1,000,000 in all."""
SEEDS, SEEDS_SOAKED = range(4), range(100, 108)
STEP_S_MAX = 0.05
"""Processor time of one frame on the event loop, for which all other connections wait."""
GROWTH_MAX_BYTES = 60 << 20
PASSWORD = b"secret"
TOKENS = {
    "PLAIN": [b"\0alice\0secret"],
    "OAUTHBEARER": [b"n,,\x01auth=Bearer e30.e30.e30\x01\x01", b"\x01"],
    "SCRAM-SHA-256": [b"n,,n=alice,r=abc", b"c=biws,r=abc,p=AAAA"],
    "SCRAM-SHA-512": [b"n,,n=alice,r=abc,tokenauth=true", b"c=biws,r=abc,p=AAAA"],
}


def listener(*, has_right_password: bool = False) -> SaslListener:
    password = PASSWORD.decode() if has_right_password else "x"
    config = BrokerConfig.from_properties(
        {
            "listeners": "SASL_PLAINTEXT://:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(TOKENS),
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{LOGIN_MODULES["PLAIN"]} required user_alice="{password}";'
            ),
            "sasl.oauthbearer.jwks.endpoint.url": "file:///none",
            "connection.failed.authentication.delay.ms": "0",
        }
    )
    known = credential("secret", Digest.SCRAM_SHA_256)
    return sasl_listeners(config, Sources(lambda *_: known, random.Random(1), lambda: 0, lambda *_: None))[
        "SASL_PLAINTEXT"
    ]


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


def requests(rng: random.Random, count: int) -> list[bytes]:
    """Return valid frames of any served API and version, with random content."""
    found = []
    for _ in range(count):
        api = APIS[rng.choice(sorted(TABLE))]
        version = rng.choice(api.versions)
        found.append(frame(random_message(api.request, version, rng), version))
    return found


class Conversation:
    """One connection of a listener with SASL. `longest_s` is the processor time of its longest frame."""

    def __init__(self, broker: InProcessBroker, sasl: SaslListener) -> None:
        self.channel = Channel("127.0.0.1", 1, "SASL_PLAINTEXT")
        self.channel.authenticate_by(SaslSession(sasl), lambda: None)
        self.longest_s = 0.0
        self._dispatcher = SaslDispatcher(broker.dispatcher, broker.services.clock)

    async def send(self, data: bytes, *, patience_s: float | None = None) -> bool:
        """Serve a frame; return whether the connection stays open. After `patience_s` the client is gone."""
        begin_s = time.thread_time()
        try:
            response = self._dispatcher.dispatch(memoryview(bytearray(data)), self.channel)
            self.longest_s = max(self.longest_s, time.thread_time() - begin_s)
            if isinstance(response, Promise):
                try:
                    async with asyncio.timeout(patience_s):
                        response = await response
                except TimeoutError:
                    return False
        except Malformed:
            return False
        return not (isinstance(response, Outcome) and response.is_last)


async def fuzz_logins(folder: Path, seed: int, rounds: int) -> float:
    """Mutate one frame of each of many failing logins; return the processor time of the longest frame."""
    rng = random.Random(seed)
    sasl = listener()
    longest_s = 0.0
    async with running_broker(folder) as broker:
        for _ in range(rounds):
            sent = frames(rng)
            position = rng.randrange(len(sent))
            sent[position] = mutated(sent[position], rng)
            conversation = Conversation(broker, sasl)
            for each in sent:
                if not await conversation.send(each):
                    break
            assert conversation.channel.authentication is Authentication.PENDING, sent
            assert conversation.channel.principal == "User:ANONYMOUS"
            longest_s = max(longest_s, conversation.longest_s)
        assert broker.dispatcher.unexpected_error_count == 0
        assert sasl.counts.successes == 0
        assert sasl.counts.failures > 0
    return longest_s


async def fuzz_requests(folder: Path, seed: int, rounds: int) -> float:
    """Send mutated requests after logins; return the processor time of the longest frame."""
    rng = random.Random(seed)
    sasl = listener(has_right_password=True)
    valid = requests(rng, 400)
    login = [
        frame(SaslHandshakeRequest(mechanism="PLAIN"), 1),
        frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + PASSWORD), 2),
    ]
    longest_s = 0.0
    async with running_broker(folder) as broker:
        conversation = None
        for number in range(rounds):
            if conversation is None:
                conversation = Conversation(broker, sasl)
                for each in login:
                    assert await conversation.send(each)
                assert conversation.channel.principal == "User:alice"
            if not await conversation.send(mutated(rng.choice(valid), rng), patience_s=0.002):
                conversation.channel.closed(0.0)
                longest_s = max(longest_s, conversation.longest_s)
                conversation = None
            if number % 100 == 0:
                await asyncio.sleep(0)
        assert broker.dispatcher.unexpected_error_count == 0
        assert sasl.counts.failures == 0
    return longest_s


Fuzz = Callable[[Path, int, int], Awaitable[float]]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fuzz", [fuzz_logins, fuzz_requests])
async def test_mutated_frames_have_no_effect_but_the_end_of_their_connection(
    tmp_path: Path, fuzz: Fuzz, seed: int
) -> None:
    """No login succeeds but that with the right password, and no frame meets a bug of the broker."""
    await fuzz(tmp_path, seed, ROUNDS)


@pytest.mark.soak
@pytest.mark.parametrize("seed", SEEDS_SOAKED)
@pytest.mark.parametrize("fuzz", [fuzz_logins, fuzz_requests])
async def test_a_million_mutated_frames_stall_and_leak_nothing(tmp_path: Path, fuzz: Fuzz, seed: int) -> None:
    await fuzz(tmp_path / "first", seed, ROUNDS)  # compiles the codecs
    memory, descriptors = resident_bytes(), len(os.listdir("/proc/self/fd"))
    longest_s = await fuzz(tmp_path / "second", seed, ROUNDS_SOAKED)
    assert longest_s < STEP_S_MAX
    assert resident_bytes() - memory < GROWTH_MAX_BYTES
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
