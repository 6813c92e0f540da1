"""SCRAM credentials: what is stored against what Kafka stored, bounds, and all or nothing of a user."""

import asyncio
import hashlib
from base64 import b64decode

import pytest

from broker.loop.slices import SLICE_MS, SlicedWork
from broker.security.scram_credentials import Deletion, Mechanism, ScramCredentials, Upsertion, stored_text
from controller.coordination.memory_store import MemoryStore, MemoryTree
from controller.tree import paths
from protocol.errors import ErrorCode, KafkaError
from tests.support.manual_clock import SteppingClock

SHA_256, SHA_512 = Mechanism.SCRAM_SHA_256.number, Mechanism.SCRAM_SHA_512.number

# A request as kafka-configs 3.9.1 sent it, and the text that a broker of 3.9.1 then stored.
STORED_BY_KAFKA = [
    (
        Upsertion(
            "alice",
            SHA_512,
            4096,
            b64decode("MmtteTM2cjZ0OHFzcTc5ZnBqY2h4cHpwbg=="),
            b64decode("QGzf5sd595rpVi4bmuaHQy8Mbvoquu2Z8vGXK202uPivz3ozOFjIp4uexUyFlXCtIrUXKayf9wi5BB4LL9J/2A=="),
        ),
        (
            "salt=MmtteTM2cjZ0OHFzcTc5ZnBqY2h4cHpwbg==,"
            "stored_key=TbIn8aml5zpmT1gPOsDBaC+XRISbTiaGgihGUZeMoUWq2HqO88Bvzb7mX37e8JFTzice/BlgkSe54w8QNReF2A==,"
            "server_key=F9Ps3Kv0u9pRsTll39kS2RIm7p8jQdJvgfiy1K2h8X16CVq7MGAEdBsBiJBb7aiW+lOfvU7CasPJ8tes1/lWeA==,"
            "iterations=4096"
        ),
    ),
    (
        Upsertion(
            "alice",
            SHA_256,
            4096,
            b64decode("NDQ2ZzlocGUwbmwyOWFsNmZoZ3dlMXd2cw=="),
            b64decode("bMbXpVavEwCWT2BDFzRWiDzfvOHveZvCf0Gaty/lxwg="),
        ),
        (
            "salt=NDQ2ZzlocGUwbmwyOWFsNmZoZ3dlMXd2cw==,"
            "stored_key=DcroayM2i4fKnOfwFGxS+DvYl7woPlUpQcSDDCpg7Tg=,"
            "server_key=7EdP532hfbBe0x9QyB7SjUej+tuoNrBQTA/ksW//lcI=,"
            "iterations=4096"
        ),
    ),
]


@pytest.fixture
def credentials(store: MemoryStore) -> ScramCredentials:
    return ScramCredentials(store, SlicedWork(SteppingClock(SLICE_MS).monotonic_ms))


def upsertion(user: str, mechanism: int = SHA_256, iterations: int = 4096, salt: bytes = b"salt") -> Upsertion:
    salted = hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 1)
    return Upsertion(user, mechanism, iterations, salt, salted)


async def outcome(credentials: ScramCredentials, *changes: Deletion | Upsertion) -> dict[str, tuple[ErrorCode, str]]:
    """The refusals of the changes by user."""
    results = await credentials.alter(
        [change for change in changes if isinstance(change, Deletion)],
        [change for change in changes if isinstance(change, Upsertion)],
    )
    return {user: (error.code, error.message) for user, error in results.items() if error is not None}


async def test_other_work_has_its_turn_while_many_users_are_refused(credentials: ScramCredentials) -> None:
    users = 50
    responding = asyncio.ensure_future(
        outcome(credentials, *(upsertion(f"u{it}", mechanism=99) for it in range(users)))
    )
    turns = 0
    while not responding.done():
        turns += 1
        await asyncio.sleep(0)
    assert len(await responding) == users
    assert turns >= users


@pytest.mark.parametrize(("request_of_kafka", "text"), STORED_BY_KAFKA)
def test_the_stored_text_is_that_of_kafka(request_of_kafka: Upsertion, text: str) -> None:
    assert stored_text(request_of_kafka) == text


async def test_credentials_come_and_go_beside_quotas(
    credentials: ScramCredentials, store: MemoryStore, tree: MemoryTree
) -> None:
    quota = paths.encode_config({"producer_byte_rate": "5"})
    await store.create("/config/users/al%20ice", quota)
    assert await outcome(credentials, upsertion("al ice"), upsertion("al ice", SHA_512, 8192), upsertion("bob")) == {}
    assert await credentials.describe([]) == {
        "al ice": {Mechanism.SCRAM_SHA_256: 4096, Mechanism.SCRAM_SHA_512: 8192},
        "bob": {Mechanism.SCRAM_SHA_256: 4096},
    }
    gone = [Deletion("al ice", SHA_256), Deletion("al ice", SHA_512), Deletion("bob", SHA_256)]
    assert await outcome(credentials, *gone) == {}
    assert await credentials.describe([]) == {}
    assert tree.dump()["/config/users/al%20ice"] == quota
    assert "/config/users/bob" not in tree.dump()


async def test_users_that_are_asked_for(credentials: ScramCredentials) -> None:
    await outcome(credentials, upsertion("alice"), upsertion("bob"))
    found = await credentials.describe(["alice", "nobody", "bob", "bob"])
    assert found["alice"] == {Mechanism.SCRAM_SHA_256: 4096}
    missing, twice = found["nobody"], found["bob"]
    assert isinstance(missing, KafkaError)
    assert isinstance(twice, KafkaError)
    assert (missing.code, missing.message) == (
        ErrorCode.RESOURCE_NOT_FOUND,
        "Attempt to describe a user credential that does not exist: nobody",
    )
    assert twice.code is ErrorCode.DUPLICATE_RESOURCE


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("u", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("u", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion("u", SHA_256, 4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("u", SHA_256, 16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("u", SHA_256, 4096, b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Deletion("", SHA_256), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Deletion("u", 7), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (Deletion("u", SHA_256), ErrorCode.RESOURCE_NOT_FOUND),
        (upsertion(".."), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (Deletion(".", SHA_256), ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
async def test_refusals_touch_one_user_as_a_whole(
    credentials: ScramCredentials, change: Deletion | Upsertion, code: ErrorCode
) -> None:
    refused = await outcome(credentials, upsertion(change.user, SHA_512), change, upsertion("other"))
    assert {user: code for user, (code, _) in refused.items()} == {change.user: code}
    assert set(await credentials.describe([])) == {"other"}


async def test_a_credential_is_changed_once_in_a_request(credentials: ScramCredentials) -> None:
    await outcome(credentials, upsertion("u"))
    for changes in ([upsertion("u"), upsertion("u")], [upsertion("u"), Deletion("u", SHA_256)]):
        assert (await outcome(credentials, *changes))["u"][0] is ErrorCode.DUPLICATE_RESOURCE
    assert await credentials.describe([]) == {"u": {Mechanism.SCRAM_SHA_256: 4096}}
