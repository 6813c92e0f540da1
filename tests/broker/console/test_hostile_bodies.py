"""Hostile values in every field of every change: one sentence each, no failure, and nothing is changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from broker.loop.cpu_pool import CpuPool
from tests.broker.console.conftest import ConsoleUser
from tests.broker.console.test_changes import AUTHORIZER, NEW, RULE, USER, WRITING
from tests.broker.console.test_resources import NULL, commit

TEXTS = (
    "",
    "\x00",
    "<img src=x onerror=alert(1)>",
    "\u202ex",
    "\ud800",
    "../../x",
    "%00",
    "a" * 5_000,
    "\U0001f600",
    "{}",
)
NUMBERS = (-1, 0, 1 << 31, 1 << 63, -(1 << 63), 10**30, 0.5, float("nan"), float("inf"))
OTHERS = (None, True, [], {}, [[]], {"": None})
HOSTILE = (*TEXTS, *NUMBERS, *OTHERS)

BODIES: dict[str, dict[str, Any]] = {
    "/topics": {**NEW, "configs": {"retention.ms": "1"}},
    "/topics/t/partitions": {"count": 1},
    "/topics/t/empty": {"partition": 0},
    "/topics/t/delete": {},
    "/configs/topic/t": {"changes": {"retention.ms": "soon"}},
    "/groups/g/delete": {},
    "/groups/g/offsets": {"topics": ["t"], "strategy": "earliest", "value": 0, "confirm": []},
    "/groups/g/offsets/t/delete": {},
    "/security/acls": {"action": "create", "rules": [RULE]},
    "/security/users": USER,
    "/security/quotas": {"entity": {"user": "a"}, "quotas": {"producer_byte_rate": -1}},
    "/topics/t/resend": {"records": [{"partition": 0, "offset": 0}], "topic": "none", "header": ""},
    "/topics/none/records": {**NULL, "headers": [{"key": "k", "value": "v"}]},
}
"""A body of each change, which is a preview or refers to what does not exist."""


@pytest.fixture
def overrides() -> dict[str, str]:
    return {**WRITING, **AUTHORIZER, "super.users": "User:ANONYMOUS"}


def mutated(value: Any) -> Iterator[Any]:
    """Yield a value with each of its parts, and each name of an object, replaced by each hostile value."""
    yield from HOSTILE
    if isinstance(value, dict):
        for name, each in value.items():
            yield from ({**value, name: other} for other in mutated(each))
            rest = {other: part for other, part in value.items() if other != name}
            yield from ({**rest, text: each} for text in TEXTS)
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in mutated(each))


async def test_hostile_values_get_one_sentence_and_change_nothing(console: ConsoleUser) -> None:
    await console.broker.create_topic("t")
    await commit(console, "g", "t", {0: 0})
    pages = ("/topics/t", "/configs/topic/t", "/security", "/topics/t/records")
    before = [await console.get(page) for page in pages]
    known = {path.removeprefix("/api/v1") for path, each in console.document["paths"].items() if "post" in each}
    assert len(BODIES) == len([path for path in known if "connectors" not in path]), known
    for path, body in BODIES.items():
        for hostile in mutated({"confirm": "", **body} if "records" not in path and "resend" not in path else body):
            status, response = await console.send("POST", path, hostile)
            assert status in (200, 400, 404, 409, 415), (path, hostile, response)
            assert status == 200 or len(response["error"]) < 6_000, (path, hostile)
    assert [await console.get(page) for page in pages] == before
    assert [each["group"] for each in (await console.get("/groups"))["groups"]] == ["g"]
    assert [each["name"] for each in (await console.get("/topics"))["topics"]] == ["t"]


async def test_large_bodies_are_read_beside_the_event_loop(
    console: ConsoleUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = console.broker.services.cpu_pool
    jobs = []
    run = type(pool).run

    def counted(self: CpuPool, job: Callable[[], Any]) -> Awaitable[Any]:
        jobs.append(job)
        return run(self, job)

    monkeypatch.setattr(type(pool), "run", counted)
    for count, is_large in ((10, False), (100_000, True)):
        jobs.clear()
        body = {"topics": [""] * count, "strategy": "earliest", "value": 0, "confirm": [{}]}
        status, problem = await console.send("POST", "/groups/g/offsets", body)
        assert (status, bool(jobs)) == (400, is_large), problem
