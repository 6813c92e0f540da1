"""Which error codes each API returns to principals with one permission each, for topics that exist and that do not.

Owns the principals, the requests, and what is compared: only codes of authorization and of unknown topics, everything
else counts as served. Must not know which server responds: `tests/fixtures/acl-codes.json` has the codes of Apache
Kafka 3.9.1 with its AclAuthorizer (`python -m tests.support.acl_codes` records them), a test compares Milena with them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from broker.security.acls import OPERATIONS, Operation, ResourceType
from protocol.api import APIS, Api
from protocol.errors import ErrorCode
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from tests.fuzz.valid_requests import READ_TOPIC, TOPIC, Known, build, valid_requests

RECORDED = Path(__file__).resolve().parents[1] / "fixtures" / "acl-codes.json"
ADMIN, PASSWORD = "admin", "secret"
UNKNOWN = "unknown-topic"
READY_TIMEOUT_S, POLL_S = 60, 0.05
NOT_SENT = {4, 5, 6, 7, 17, 18, 27, 36, 38, 39, 40, 41, 56, 57, 58, 67, 68, 69}
"""Requests of brokers, whose effects would outlive the test, of logins, and of tokens, which ask for no ACL."""
VERSIONS = {1: (12, 16), 3: (8, 12), 9: (7, 9), 20: (5, 6), 24: (3,), 0: (9, 11)}
"""Versions that differ in how they name topics; of other APIs the usual one is sent."""
COMPARED = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.SECURITY_DISABLED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}

Ask = Callable[[str, object, int], Awaitable[Any]]
"""Returns the response to a request (an object and its version) of a user; None if the connection closed."""


def users() -> dict[str, tuple[ResourceType, Operation] | None]:
    """Return the users with their one permission, on all resources of a type; one has none."""
    single = {
        f"{resource.title}-{operation.title}": (resource, operation)
        for resource in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)
        for operation in (*OPERATIONS[resource], Operation.ALL)
    }
    return {"Nothing": None, **single}


async def prepare(ask: Ask) -> UUID:
    """Create topics and ACLs; return the id of the topic that requests with ids name."""
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in (TOPIC, READ_TOPIC, *(f"own-{user}" for user in users()), f"own-{ADMIN}")
    ]
    await ask(ADMIN, CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5)
    creations = [
        AclCreation(
            resource_type=resource,
            resource_name="kafka-cluster" if resource is ResourceType.CLUSTER else "*",
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission_type=3,
        )
        for user, (resource, operation) in ((user, it) for user, it in users().items() if it is not None)
    ]
    response = await ask(ADMIN, CreateAclsRequest(creations=creations), 3)
    assert not any(result.error_code for result in response.results)
    await _wait_for_coordinators(ask)
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=UUID(int=0), name=READ_TOPIC)])
    return (await ask(ADMIN, request, 12)).topics[0].topic_id


async def _wait_for_coordinators(ask: Ask) -> None:
    """Commit an offset of the group and begin the transactional id, so that both coordinators have loaded."""
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]}]
    commit = {"group_id": "group", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    begin = {"transactional_id": "transactional-id", "transaction_timeout_ms": 60_000}
    for key, values, version in ((8, commit, 8), (22, begin, 4)):
        for key_type in (0, 1):
            keys = {"key_type": key_type, "coordinator_keys": ["group" if key_type == 0 else "transactional-id"]}
            await ask(ADMIN, build(APIS[10].request, keys, 4), 4)
        request = build(APIS[key].request, values, version)
        for _ in range(int(READY_TIMEOUT_S / POLL_S)):
            if not any(code for _, code in _all_codes(await ask(ADMIN, request, version), version)):
                break
            await asyncio.sleep(POLL_S)
        else:
            raise RuntimeError(f"the coordinator does not serve {request}")


def sent_apis() -> list[Api]:
    """Return the APIs that are sent, ordered by key: those of Kafka 3.9."""
    return [api for key, api in sorted(APIS.items()) if key not in NOT_SENT and api.with_zookeeper]


async def codes(ask: Ask, topic_id: UUID) -> dict[str, dict[str, list[str]]]:
    """Return the codes by request and user: `Produce v11 of unknown-topic` -> `Topic-Read` -> `responses...=29`."""
    found: dict[str, dict[str, list[str]]] = {}
    for api in sent_apis():
        key = api.key
        for version in VERSIONS.get(key, (api.usual_version,)):
            for topic in (TOPIC, UNKNOWN):
                by_user = found[f"{api.name} v{version} of {topic}"] = {}
                for user in (ADMIN, *users()):
                    values = _values(api.name, user, topic, topic_id)
                    response = await ask(user, build(api.request, values, version), version)
                    by_user[user] = ["closed"] if response is None else sorted(set(_codes(response, version)))
    return found


def _values(api: str, user: str, topic: str, topic_id: UUID) -> dict[str, Any]:
    is_unknown = topic == UNKNOWN
    known = Known(
        topic_id=UUID(int=5) if is_unknown else topic_id,
        member_id="member",
        group="group",
        transactional_id="transactional-id",
        producer_id=1,
        log_dir="/none",
        new_topic="new-topic",
        own_topic=UNKNOWN if is_unknown else f"own-{user}",
        broker_epoch=1,
    )
    values = valid_requests(known)[api]
    renamed = _renamed(values, {TOPIC: UNKNOWN, READ_TOPIC: UNKNOWN}) if is_unknown else values
    assert isinstance(renamed, dict)
    return renamed


def _renamed(value: Any, names: dict[str, str]) -> Any:
    match value:
        case dict():
            return {key: _renamed(each, names) for key, each in value.items()}
        case list():
            return [_renamed(each, names) for each in value]
        case str():
            return names.get(value, value)
        case _:
            return value


def _codes(response: Any, version: int) -> Iterator[str]:
    for field, code in _all_codes(response, version):
        yield f"{field}={code if code in COMPARED else 'served'}"


def _all_codes(value: Any, version: int, path: str = "") -> Iterator[tuple[str, int]]:
    """Yield the name of each field with an error code that the version has, and the code."""
    for field in type(value).__fields__:
        if not field.is_in(version):
            continue
        found = getattr(value, field.name, None)
        where = f"{path}{field.name}"
        if field.name == "error_code":
            yield where, int(found)
        elif field.struct is not None and found is not None:
            for one in found if field.is_array else [found]:
                yield from _all_codes(one, version, f"{where}.")


class _SaslConnection:
    """A connection of one user, by PLAIN."""

    def __init__(self, port: int, user: str) -> None:
        from tests.support.wire_client import WireClient

        self._port, self._user = port, user
        self._new = WireClient
        self._client: WireClient | None = None

    def ask(self, request: object, version: int) -> Any:
        try:
            if self._client is None:
                self._client = self._new(self._port)
                self._client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
                token = f"\0{self._user}\0{PASSWORD}".encode()
                response = self._client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
                assert not response.error_code, response
            return self._client.ask(request, version)
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            self._client = None
            return None


async def _record() -> None:
    from tests.support.apache_kafka import apache_kafka
    from tests.support.processes import listening_ports

    table = " ".join(f'user_{user}="{PASSWORD}"' for user in (ADMIN, *users()))
    overrides = {
        "listeners": "PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {table};"
        ),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
        "auto.create.topics.enable": "false",
    }
    with tempfile.TemporaryDirectory() as folder, apache_kafka(Path(folder), overrides=overrides) as (server,):
        (port,) = [port for port in listening_ports(server.pid) if port != server.port]
        connections: dict[str, _SaslConnection] = {}

        async def ask(user: str, request: object, version: int) -> Any:
            return connections.setdefault(user, _SaslConnection(port, user)).ask(request, version)

        topic_id = await prepare(ask)
        recorded = await codes(ask, topic_id)
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    print(f"{sum(map(len, recorded.values()))} responses in {RECORDED}", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(_record())
