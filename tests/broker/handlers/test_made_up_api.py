"""Follows CONTRIBUTING.md, "Adding an API", with a made-up one: a message, a handler, and two lines in protocol/."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

MESSAGE = '''
"""Greet: greets a group of consumers."""

from protocol.api_key import ApiKey
from protocol.schema import int16, message, string


@message(ApiKey.GREET, versions=range(0, 1), flexible=0)
class GreetRequest:
    group_id: string


@message(ApiKey.GREET, versions=range(0, 1), flexible=0)
class GreetResponse:
    error_code: int16 = 0
    text: string = ""
'''

HANDLER = '''
"""Greet a group of consumers, whose members have to be allowed to read from it."""

from broker.handlers.declaration import Declaration, Names, Permissions
from broker.handlers.request_context import RequestContext
from broker.security.acls import Operation
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.greet import GreetRequest, GreetResponse

API = Declaration(
    ApiKey.GREET, permissions=Permissions(group=Operation.READ), names=Names(group="group_id")
)


def handle(services: object, request: GreetRequest, context: RequestContext) -> GreetResponse:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    return GreetResponse(text=f"Hello {request.group_id}")
'''

USE = """
import asyncio, json, sys
from pathlib import Path

from protocol.api_key import ApiKey
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.greet import GreetRequest
from tests.support.in_process import running_broker

LOGGED_IN_NOBODY = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}

async def main():
    found = {}
    async with running_broker(Path(sys.argv[1]) / "open") as broker:
        versions = await broker.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"))
        found["advertised"] = [
            (one.min_version, one.max_version) for one in versions.api_keys if one.api_key == ApiKey.GREET
        ]
        found["text"] = (await broker.ask(GreetRequest(group_id="readers"))).text
        found["refused"] = (await broker.ask(GreetRequest(group_id=""))).error_code
        found["counted"] = broker.dispatcher.metrics["Greet"].counts
    async with running_broker(Path(sys.argv[1]) / "closed", LOGGED_IN_NOBODY) as broker:
        found["denied"] = (await broker.ask(GreetRequest(group_id="readers"))).error_code
    print(json.dumps(found))

asyncio.run(main())
"""


def insert(path: Path, text: str, before: str) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count(before) == 1
    path.write_text(source.replace(before, text + before), encoding="utf-8")


def test_an_api_is_a_message_a_handler_and_two_lines(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for package in ("broker", "protocol"):
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    for package in ("base", "storage", "controller", "config", "tests", "tools", "milena_broker"):
        (tree / package).symlink_to(ROOT / package)
    (tree / "protocol/messages/greet.py").write_text(MESSAGE, encoding="utf-8")
    (tree / "broker/handlers/greet.py").write_text(HANDLER, encoding="utf-8")
    insert(tree / "protocol/api_key.py", "    GREET = 70\n", "    CONSUMER_GROUP_DESCRIBE = 69\n")
    insert(
        tree / "protocol/api.py",
        "    _api(ApiKey.GREET, range(0, 1), 0),\n",
        "    _api(ApiKey.CONSUMER_GROUP_DESCRIBE, range(0, 2), 0),\n",
    )
    used = subprocess.run(
        [sys.executable, "-P", "-c", USE, str(tmp_path / "data")],
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert used.returncode == 0, used.stderr
    found = json.loads(used.stdout.splitlines()[-1])
    assert found["advertised"] == [[0, 0]]
    assert found["text"] == "Hello readers"
    assert found["refused"] == 24, "INVALID_GROUP_ID"
    assert found["denied"] == 30, "GROUP_AUTHORIZATION_FAILED"
    assert found["counted"] == {"0": 2}, "requests by version"
