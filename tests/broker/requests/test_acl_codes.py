"""Every API, with each permission alone, on known and unknown topics: the codes are those of Apache Kafka 3.9.1."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from config.broker_properties import AUTHORIZERS
from protocol.errors import Malformed
from tests.support import acl_codes
from tests.support.in_process import running_broker

RECORDED: dict[str, dict[str, list[str]]] = json.loads(acl_codes.RECORDED.read_text())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def found(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, dict[str, list[str]]]]:
    settings = {
        "authorizer.class.name": AUTHORIZERS[0],
        "super.users": f"User:{acl_codes.ADMIN}",
        "auto.create.topics.enable": "false",
    }
    folder: Path = tmp_path_factory.mktemp("acl-codes")
    async with running_broker(folder, settings) as broker:

        async def ask(user: str, request: object, version: int) -> Any:
            broker.channel.principal = f"User:{user}"
            try:
                return await broker.ask(request, version)
            except Malformed:
                return None

        topic_id = await acl_codes.prepare(ask)
        yield await acl_codes.codes(ask, topic_id)


def test_every_api_with_a_permission_was_recorded() -> None:
    names = {api.name for api in acl_codes.sent_apis()}
    assert {request.partition(" ")[0] for request in RECORDED} == names


@pytest.mark.parametrize("request_name", sorted(RECORDED))
@pytest.mark.asyncio(loop_scope="module")
async def test_codes_are_those_of_kafka(found: dict[str, dict[str, list[str]]], request_name: str) -> None:
    assert found[request_name] == RECORDED[request_name]
