"""The JSON of the console: what it says about topics, records, groups and changes, and which requests it refuses."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from yarl import URL

from broker.console.changes.murmur2 import murmur2
from broker.console.records import reader
from broker.console.routes import CURSOR_SIZE_MAX
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.records.builder import RecordData, build_batch
from protocol.records.compression import Compression
from tests.broker.console.conftest import ConsoleUser
from tests.broker.handlers.test_produce_and_fetch import produce

T0 = 1_700_000_000_000
NULL = {"partition": 0, "key": None, "value": None, "headers": [], "encoding": "hex"}


def records_of(first: int, count: int, *, step_ms: int = 1, **fields: Any) -> bytes:
    """Return a batch of records with the numbers from `first` on as JSON values, one every `step_ms`."""
    return build_batch(
        [
            RecordData(T0 + number * step_ms, b"key-%d" % number, b'{"number": %d}' % number, [("source", b"test")])
            for number in range(first, first + count)
        ],
        **fields,
    )


async def commit(console: ConsoleUser, group: str, topic: str, offsets: dict[int, int]) -> None:
    request = OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=each, committed_offset=offset, committed_metadata="")
                    for each, offset in offsets.items()
                ],
            )
        ],
    )
    for _ in range(200):
        response = await console.broker.ask(request)
        if all(not one.error_code for topic_ in response.topics for one in topic_.partitions):
            return
        await console.broker.services.topics.ensure_internal("__consumer_offsets")
        await asyncio.sleep(0.02)
    raise AssertionError(response)


def numbers(found: list[Any]) -> list[int]:
    return [json.loads(each["value"]["text"])["number"] for each in found]


# Reading


async def test_every_resource_without_a_body_matches_the_openapi_document(console: ConsoleUser) -> None:
    await console.broker.create_topic("t", 2)
    await produce(console.broker, "t", {0: records_of(0, 3), 1: records_of(3, 2)})
    await commit(console, "g", "t", {0: 1, 1: 2})
    for path, operations in console.document["paths"].items():
        operation = operations.get("get")
        if operation is None or "/tail" in path:
            continue
        query = {
            one["name"]: one["schema"]["enum"][0] if "enum" in one["schema"] else "User:a"
            for one in operation["parameters"]
            if one["required"] and one["in"] == "query"
        }
        if path.endswith("/may"):
            query |= {"operation": "READ", "resource_type": "TOPIC"}
        filled = path.removeprefix("/api/v1")
        for name, value in {"name": "t", "partition": "0", "offset": "1", "group": "g", "kind": "topic"}.items():
            filled = filled.replace("{" + name + "}", value)
        if "application/x-ndjson" in operation["responses"]["200"]["content"]:
            assert (await console.lines(filled, **query))[-1]["done"] == "complete"
        else:
            await console.get(filled, **query)


async def test_newest_records_come_first_over_all_partitions(console: ConsoleUser) -> None:
    await console.broker.create_topic("t", 3)
    for first in range(0, 90, 30):
        await produce(
            console.broker,
            "t",
            {each: records_of(first + 10 * each, 10, compression=Compression(first // 30)) for each in range(3)},
        )
    page = await console.get("/topics/t/records", limit=25)
    assert numbers(page["records"]) == list(range(89, 64, -1))
    found = numbers(page["records"])
    while page["cursor"] is not None:
        page = await console.get("/topics/t/records", limit=25, cursor=page["cursor"])
        found += numbers(page["records"])
    assert found == list(range(89, -1, -1))


async def test_a_cursor_may_name_thousands_of_partitions(console: ConsoleUser) -> None:
    await console.broker.create_topic("t")
    await produce(console.broker, "t", {0: records_of(0, 10)})
    cursor = ",".join(f"{partition}:{5 if not partition else 0}" for partition in range(8_700))
    assert 0.95 * CURSOR_SIZE_MAX < len(cursor) <= CURSOR_SIZE_MAX
    # A browser writes colons and commas as three characters each.
    address = URL(f"{console.address}/api/v1/topics/t/records?{urlencode({'cursor': cursor})}", encoded=True)
    async with console.session.get(address) as response:
        assert response.status == 200, await response.text()
        assert numbers((await response.json())["records"]) == [4, 3, 2, 1, 0]


async def test_pages_read_large_batches_of_any_partition(console: ConsoleUser) -> None:
    await console.broker.create_topic("t", 2)
    large = build_batch([RecordData(T0 + each, None, b"%06d" % each + b"x" * 900_000) for each in range(1)])
    for partition in (0, 1):
        await produce(console.broker, "t", {partition: large})
    page = await console.get("/topics/t/records", limit=10)
    assert [each["value"]["size"] for each in page["records"]] == [900_006, 900_006]
    assert all(each["value"]["is_truncated"] and len(each["value"]["text"]) == 2_000 for each in page["records"])
    whole = await console.get("/topics/t/partitions/1/records/0")
    assert len(whole["record"]["value"]["text"]) == 900_006


async def test_records_up_to_a_time(console: ConsoleUser) -> None:
    await console.broker.create_topic("t")
    for first in range(0, 50, 10):
        await produce(console.broker, "t", {0: records_of(first, 10, step_ms=1000)})
    page = await console.get("/topics/t/records", limit=3, until=T0 + 20_000)
    assert numbers(page["records"]) == [20, 19, 18]


async def test_the_oldest_records_come_from_the_start_an_offset_or_a_time(console: ConsoleUser) -> None:
    await console.broker.create_topic("t", 2)
    for first in range(0, 40, 10):
        batches = {each: records_of(first + 5 * each, 5, step_ms=1000) for each in range(2)}
        await produce(console.broker, "t", batches)
    oldest = {"order": "oldest", "limit": 15}
    page = await console.get("/topics/t/records", **oldest)
    found = numbers(page["records"])
    assert found == list(range(15))
    page = await console.get("/topics/t/records", **oldest, cursor=page["cursor"])
    page_found = numbers(page["records"])
    assert page_found == list(range(15, 30))
    page = await console.get("/topics/t/records", **oldest, cursor=page["cursor"])
    assert (numbers(page["records"]), page["cursor"]) == (list(range(30, 40)), None)
    assert numbers((await console.get("/topics/t/records", **oldest, from_offset=18))["records"]) == [33, 34, 38, 39]
    assert numbers((await console.get("/topics/t/records", **oldest, since=T0 + 37_000))["records"])[-3:] == [
        37,
        38,
        39,
    ]
    assert (await console.get("/topics/t/records", **oldest, since=T0 + 90_000))["records"] == []


async def test_a_record_has_the_offsets_of_its_neighbours(console: ConsoleUser) -> None:
    await console.broker.create_topic("t")
    await produce(console.broker, "t", {0: records_of(0, 3)})
    neighbours = [
        (page["previous"], page["next"])
        for page in [await console.get(f"/topics/t/partitions/0/records/{offset}") for offset in range(3)]
    ]
    assert neighbours == [(None, "1"), ("0", "2"), ("1", None)]


async def test_search_by_member_header_and_text(console: ConsoleUser) -> None:
    await console.broker.create_topic("t", 2)
    await produce(console.broker, "t", {0: records_of(0, 100), 1: records_of(100, 100)})
    for text, expected in (
        ("value.number >= 198", {198, 199}),
        ("header.source = test and value.number < 2", {0, 1}),
        ("key = key-17", {17}),
        ('"number\\": 55"', {55}),
        ("partition = 1 and offset = 3", {103}),
    ):
        lines = await console.lines("/topics/t/search", filter=text)
        assert {json.loads(each["record"]["value"]["text"])["number"] for each in lines if "record" in each} == expected
        assert lines[-1]["done"] == "complete"
        assert lines[-1]["progress"]["scanned"] == lines[-1]["progress"]["total"] == 200


async def test_search_is_bounded_by_offsets_times_and_matches(console: ConsoleUser) -> None:
    await console.broker.create_topic("t")
    for first in range(0, 100, 10):
        await produce(console.broker, "t", {0: records_of(first, 10, step_ms=1000)})
    lines = await console.lines("/topics/t/search", from_offset=20, to_offset=25)
    assert len(lines) == 6
    lines = await console.lines("/topics/t/search", from_time=T0 + 95_000)
    assert {json.loads(each["record"]["value"]["text"])["number"] for each in lines[:-1]} >= set(range(95, 100))
    lines = await console.lines("/topics/t/search", limit=7)
    assert lines[-1]["done"] == "stopped at 7 matches"
    assert lines[-1]["progress"] | {"scanned": 7, "total": 100} == lines[-1]["progress"]
    assert (await console.lines("/topics/t/search", limit=100))[-1]["done"] == "complete"


async def test_a_seventh_long_read_is_refused(console: ConsoleUser) -> None:
    await console.broker.create_topic("t")
    url = f"{console.address}/api/v1/topics/t/tail"
    tails = [await console.session.get(url) for _ in range(6)]
    status, message = await console.error("/topics/t/tail")
    assert (status, message) == (429, "6 searches and tails run already: end one of them")
    for tail in tails:
        tail.close()

    async def is_free() -> bool:
        async with console.session.get(url) as response:
            return response.status == 200

    for _ in range(200):
        if await is_free():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("closed connections do not end their reads")


async def test_tail_yields_every_new_record(console: ConsoleUser) -> None:
    await console.broker.create_topic("t", 2)
    await produce(console.broker, "t", {0: records_of(0, 5)})
    seen: list[int] = []
    async with console.session.get(f"{console.address}/api/v1/topics/t/tail") as response:
        assert json.loads(await response.content.readline()) == {"behind": 0}
        for first in range(100, 400, 100):
            await produce(console.broker, "t", {first // 100 % 2: records_of(first, 100)})
        while len(seen) < 300:
            line = json.loads(await response.content.readline())
            console.validate("GET", "/topics/t/tail", 200, line)
            seen += numbers(line.get("records", []))
    assert sorted(seen) == list(range(100, 400))


async def test_count_leaves_out_what_offsets_count(console: ConsoleUser) -> None:
    await console.broker.create_topic("t")
    await produce(console.broker, "t", {0: records_of(0, 10)})
    await produce(console.broker, "t", {0: records_of(10, 5)})
    lines = await console.lines("/topics/t/count")
    assert lines[-1]["counts"] == {"0": 15}
    lines = await console.lines("/topics/t/count", from_offsets="0:12")
    assert lines[-1]["counts"] == {"0": 3}


async def test_groups_have_lag_in_offsets_and_in_time(console: ConsoleUser) -> None:
    await console.broker.create_topic("t", 2)
    now_ms = console.broker.services.clock.now_ms()
    batch = build_batch([RecordData(now_ms - 60_000 + 1000 * each, None, b"x") for each in range(10)])
    await produce(console.broker, "t", {0: batch, 1: batch})
    await commit(console, "g", "t", {0: 4, 1: 10})
    page = await console.get("/groups")
    assert [(each["group"], each["lag"], each["state"]) for each in page["groups"]] == [("g", 6, "Empty")]
    group = await console.get("/groups/g")
    assert [(each["partition"], each["lag"], each["status"]) for each in group["partitions"]] == [
        (0, 6, "STOP"),
        (1, 0, "OK"),
    ]
    assert 55_000 <= group["partitions"][0]["lag_ms"] <= 66_000
    assert group["partitions"][1]["lag_ms"] == 0
    assert await console.get("/topics/t/groups") == {"groups": [{"group": "g", "lag": 6}]}


async def test_groups_are_sorted_by_every_column(console: ConsoleUser) -> None:
    await console.broker.create_topic("t", 2)
    await produce(console.broker, "t", {0: records_of(0, 10)})
    for group, offset in (("a", 9), ("b", 2), ("c", 10)):
        await commit(console, group, "t", {0: offset})

    async def names(**query: object) -> list[str]:
        return [each["group"] for each in (await console.get("/groups", **query))["groups"]]

    assert await names() == ["a", "b", "c"]
    assert await names(sort="lag") == ["c", "a", "b"]
    assert await names(sort="lag", order="descending", limit=1) == ["b"]
    assert await names(sort="status", order="descending") == ["a", "b", "c"]
    assert await names(sort="group", order="descending", search="B") == ["b"]
    statuses = [each["status"] for each in (await console.get("/groups"))["groups"]]
    assert statuses == ["STOP", "STOP", "OK"]


async def test_timestamps_that_say_nothing_give_no_lag_in_time(console: ConsoleUser) -> None:
    await console.broker.create_topic("t", 2)
    for partition, timestamp in enumerate((1_795_228_739_867_000_001, -5)):
        await produce(console.broker, "t", {partition: build_batch([RecordData(timestamp, None, b"x")])})
    await commit(console, "g", "t", {0: 0, 1: 0})
    group = await console.get("/groups/g")
    assert [(each["lag"], each["lag_ms"]) for each in group["partitions"]] == [(1, None), (1, None)]
    page = await console.get("/topics/t/records")
    assert sorted(each["timestamp_ms"] for each in page["records"]) == ["-5", "1795228739867000001"]


async def test_topics_are_searched_sorted_and_paged(console: ConsoleUser) -> None:
    for name, partitions in (("apple", 1), ("pear", 3), ("Pineapple", 2)):
        await console.broker.create_topic(name, partitions)
    await produce(console.broker, "pear", {0: records_of(0, 50)})

    async def names(**query: object) -> list[str]:
        return [each["name"] for each in (await console.get("/topics", **query))["topics"]]

    assert await names() == ["Pineapple", "apple", "pear"]
    assert await names(search="APPLE") == ["Pineapple", "apple"]
    assert await names(sort="partitions", order="descending") == ["pear", "Pineapple", "apple"]
    assert (await names(sort="size", order="descending"))[0] == "pear"
    assert await names(offset=1, limit=1) == ["apple"]


async def test_rates_follow_what_is_produced(console: ConsoleUser) -> None:
    await console.broker.create_topic("t")
    for _ in range(200):
        if (await console.get("/rates"))["series"]:
            break
        await asyncio.sleep(0.02)
    assert set((await console.get("/rates"))["series"]) >= {"messages_in", "bytes_in", "bytes_out", "requests"}
    assert (await console.get("/rates", topic="t"))["series"] == {}


async def test_configs_name_sources_and_differences(console: ConsoleUser) -> None:
    await console.broker.create_topic("t", retention_ms="5000")
    configs = (await console.get("/configs/topic/t"))["configs"]
    assert configs[0]["name"] == "retention.ms"
    assert configs[0] | {"value": "5000", "source": "topic", "differs": True} == configs[0]
    broker = {each["name"]: each for each in (await console.get("/configs/broker/0"))["configs"]}
    own = broker["metrics.http.listener"]
    assert own | {"source": "server.properties", "default": None, "differs": True, "is_sensitive": False} == own
    assert own["value"].startswith("127.0.0.1:")
    assert own["doc"]
    sensitive = [each for each in broker.values() if each["is_sensitive"]]
    assert sensitive
    assert all(each["value"] is None and not any(one["value"] for one in each["sources"]) for each in sensitive)


# Requests that are refused


@pytest.mark.parametrize(
    ("path", "query", "status", "message"),
    [
        ("/topics/none", {}, 404, "topic 'none' does not exist"),
        ("/topics/none/records", {}, 404, "topic 'none' does not exist"),
        ("/topics/t/records", {"limit": "0"}, 400, "limit='0': expected a number from 1 to 500"),
        ("/topics/t/records", {"limit": "\u0661"}, 400, "limit='\u0661': expected a number from 1 to 500"),
        ("/topics/t/records", {"cursor": "0:x"}, 400, "cursor part '0:x': expected PARTITION:OFFSET, joined by commas"),
        ("/topics/t/records", {"partition": "9"}, 404, "topic 't' has no partition 9, expected 0 to 0"),
        ("/topics/t/records", {"form": "html"}, 400, "form='html': expected one of auto, hex"),
        ("/topics/t/partitions/0/records/7", {}, 404, "t-0 has no record at offset 7"),
        ("/topics", {"internal": "yes"}, 400, "internal='yes': expected true or false"),
        ("/topics/t/search", {"filter": "valu = 1"}, 400, "character 1: 'valu' is no field"),
        ("/topics/t/search", {"filter": "x" * 1001}, 400, "filter has 1001 characters, expected at most 1000"),
        ("/groups/none", {}, 404, "group 'none' does not exist: there are no groups yet"),
        ("/configs/broker/x", {}, 400, "broker 'x': expected a number"),
        (
            "/security/may",
            {"principal": "a", "operation": "READ", "resource_type": "TOPIC", "resource": "t"},
            400,
            "principal 'a': expected a type and a name, such as User:alice",
        ),
    ],
)  # fmt: skip
async def test_bad_requests_get_one_sentence(
    console: ConsoleUser, path: str, query: dict[str, str], status: int, message: str
) -> None:
    await console.broker.create_topic("t")
    found_status, found = await console.error(path, **query)
    assert found_status == status
    assert found.startswith(message)


async def test_the_console_is_read_only_by_default(console: ConsoleUser) -> None:
    await console.broker.create_topic("t")
    changes = [path for path, operations in console.document["paths"].items() if "post" in operations]
    assert len(changes) > 10
    for path in changes:
        filled = path.removeprefix("/api/v1").replace("{kind}", "topic")
        status, problem = await console.send("POST", filled.replace("{name}", "t").replace("{group}", "g"), {})
        assert (status, problem) == (403, {"error": "the console is read-only: console.write.enable is false"})
    assert (await console.get("/topics/t/records"))["records"] == []


# Changes


@pytest.mark.parametrize("overrides", [{"console.write.enable": "true"}])
async def test_produce_resend_and_dead_letters(console: ConsoleUser) -> None:
    await console.broker.create_topic("t", 4)
    await console.broker.create_topic("dead")
    body = {"partition": -1, "key": "k", "value": "<b>", "headers": [{"key": "h", "value": "1"}], "encoding": "text"}
    status, produced = await console.send("POST", "/topics/t/records", body)
    partition = (murmur2(b"k") & 0x7FFF_FFFF) % 4
    assert (status, produced) == (200, {"topic": "t", "partition": partition, "offset": "0"})
    reference = {"records": [{"partition": partition, "offset": 0}], "topic": "t", "header": ""}
    _, sent = await console.send("POST", "/topics/t/resend", reference)
    assert sent["records"][0]["produced_offset"] == "1"
    letter = build_batch([RecordData(T0, b"k", b"\x00\xff", [("kafka_dlt-original-topic", b"t"), ("n", None)])])
    lost = build_batch([RecordData(T0, None, b"x")])
    await produce(console.broker, "dead", {0: letter})
    await produce(console.broker, "dead", {0: lost})
    references = [{"partition": 0, "offset": offset} for offset in (0, 1, 2)]
    _, sent = await console.send("POST", "/topics/dead/resend", {"records": references, "topic": "", "header": ""})
    assert [each["topic"] for each in sent["records"]] == ["t", "", ""]
    assert [bool(each["problem"]) for each in sent["records"]] == [False, True, True]
    page = await console.get("/topics/t/records")
    newest = page["records"][0]
    assert newest["value"]["text"] == "00 ff"
    assert [each["key"] for each in newest["headers"]] == ["kafka_dlt-original-topic", "n"]


@pytest.mark.parametrize("overrides", [{"console.write.enable": "true"}])
async def test_a_reset_is_previewed_then_made(console: ConsoleUser) -> None:
    for topic in ("t", "u"):
        await console.broker.create_topic(topic, 2)
        await produce(console.broker, topic, {0: records_of(0, 10), 1: records_of(0, 20)})
    await commit(console, "g", "t", {0: 5, 1: 5})
    await commit(console, "g", "u", {0: 8})
    reset: dict[str, Any] = {"topics": [], "strategy": "shift", "value": -6, "confirm": []}
    _, preview = await console.send("POST", "/groups/g/offsets", reset)
    after = [(each["topic"], each["partition"], each["before"], each["after"]) for each in preview["offsets"]]
    assert after == [("t", 0, "5", "0"), ("t", 1, "5", "0"), ("u", 0, "8", "2")]
    assert not preview["is_done"]
    assert [each["committed"] for each in (await console.get("/groups/g"))["partitions"]] == ["5", "5", "8"]
    for strategy, value, expected in (
        ("latest", 0, ["10", "20", "10", "20"]),
        ("offset", 15, ["11", "15", "10", "15"]),
        ("time", T0 + 7, ["7", "7", "7", "7"]),
        ("earliest", 0, ["0", "0", "0", "0"]),
    ):
        reset = {"topics": ["u", "t"], "strategy": strategy, "value": value, "confirm": []}
        _, preview = await console.send("POST", "/groups/g/offsets", reset)
        if strategy == "latest":
            await produce(console.broker, "t", {0: records_of(10, 1)})  # only what was shown is set
        confirmed = {**reset, "confirm": preview["offsets"]}
        status, done = await console.send("POST", "/groups/g/offsets", confirmed)
        assert (status, done["is_done"]) == (200, True), done
        assert [each["committed"] for each in (await console.get("/groups/g"))["partitions"]] == expected
    stale = {**confirmed, "confirm": [row | {"before": "3"} for row in preview["offsets"]]}
    status, problem = await console.send("POST", "/groups/g/offsets", stale)
    assert (status, problem["error"].partition(":")[0]) == (409, "nothing was changed")
    for row, message in (
        ({"after": "-1"}, "after='-1': expected an offset of the preview"),
        ({"after": "9" * 19}, "after=9999999999999999999: expected a number"),
        ({"partition": 1 << 40}, "partition=1099511627776: expected a number"),
    ):
        wrong = {**confirmed, "confirm": [preview["offsets"][0] | row]}
        status, problem = await console.send("POST", "/groups/g/offsets", wrong)
        assert (status, message in problem["error"]) == (400, True), problem
    gone = {**preview["offsets"][0], "topic": "none", "before": None}
    _, done = await console.send("POST", "/groups/g/offsets", {**confirmed, "confirm": [gone]})
    assert [each["problem"] for each in done["offsets"]] == ["UNKNOWN_TOPIC_OR_PARTITION"]


@pytest.mark.parametrize("overrides", [{"console.write.enable": "true"}])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "the body is no JSON object"),
        ({}, " is missing"),
        (NULL | {"key": 1}, "the body.key: expected a text or null"),
        (NULL | {"key": "z"}, "the key is not hexadecimal: expected two digits a byte"),
        (NULL | {"partition": 9}, "partition 9: topic 't' has 0 to 0"),
        (NULL | {"partition": True}, "the body.partition: expected a whole number"),
        (NULL | {"encoding": "base64"}, "the body.encoding: expected one of text, hex"),
        (NULL | {"headers": [1]}, "the body.headers[0]: expected an object"),
        (NULL | {"x": 1}, "the body.x is not known"),
        (NULL | {"key": "\ud800"}, "the body has characters that are not Unicode"),
    ],
)
async def test_bad_bodies_get_one_sentence(console: ConsoleUser, body: object, message: str) -> None:
    await console.broker.create_topic("t")
    status, problem = await console.send("POST", "/topics/t/records", body)
    assert status == 400
    assert message in problem["error"]


async def test_batches_that_open_to_much_are_read_in_turns(
    console: ConsoleUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "OPENED_SIZE_MAX", 10 * reader.RECORD_COST)
    await console.broker.create_topic("t", 3)
    for first in range(0, 60, 20):
        await produce(console.broker, "t", {each: records_of(first + 5 * each, 5) for each in range(3)})
    found = numbers((await console.get("/topics/t/records", limit=50))["records"])
    assert found == sorted(found, reverse=True)
    assert len(found) == 45
    lines = await console.lines("/topics/t/search", filter="value.number >= 0")
    assert len([each for each in lines if "record" in each]) == 45
    assert lines[-1]["done"] == "complete"
