"""Bytes as text for a browser: JSON, text, hexadecimal, and values with a schema."""

from __future__ import annotations

import io
import json
from typing import Any

import aiohttp
import fastavro
import pytest
from aiohttp import web

from broker.console.changes.murmur2 import murmur2
from broker.console.records.protobuf_wire import fields_of, parse
from broker.console.records.values import (
    HEADERS_MAX,
    HEADERS_SIZE_MAX,
    VALUE_SIZE_MAX,
    WHOLE_VALUE_SIZE_MAX,
    ShownHeader,
    indented,
    shown_record,
    shown_value,
)
from protocol.records.batch import Record, batches
from protocol.records.builder import RecordData, build_batch
from tests.broker.console.conftest import ConsoleUser
from tests.broker.handlers.test_produce_and_fetch import produce
from tests.support.in_process import running_broker

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}],
}
PROTO = """
syntax = "proto3"; package shop; // a comment
message Order {
  int64 id = 1; string who = 2; repeated int32 counts = 3; Kind kind = 4; Item item = 5;
  map<string, sint32> stock = 6; oneof choice { bool yes = 7; double price = 8; }
  enum Kind { NONE = 0; GIFT = 1; }
  message Item { bytes raw = 1; }
}
"""


@pytest.mark.parametrize(
    ("data", "form", "text"),
    [
        (None, "null", ""),
        (b"", "text", ""),
        (b"plain", "text", "plain"),
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b"{not json", "text", "{not json"),
        (b"\x00\xff", "hex", "00 ff"),
        (b"bell \x07", "hex", "62 65 6c 6c 20 07"),
        ("\N{SNOWMAN}".encode(), "text", "\N{SNOWMAN}"),
        (b"[" * 5000, "text", "[" * 2000),
    ],
)
def test_bytes_as_text(data: bytes | None, form: str, text: str) -> None:
    shown = shown_value(data)
    assert (shown["form"], shown["text"]) == (form, text)


def test_a_character_that_is_cut_at_the_limit_is_left_out() -> None:
    shown = shown_value("\N{SNOWMAN}".encode() * 10, 10)
    assert shown == {"form": "text", "text": "\N{SNOWMAN}" * 3, "size": 30, "is_truncated": True}


def shown_headers(headers: list[tuple[str, bytes | None]], size_max: int, form: str = "auto") -> list[ShownHeader]:
    ((_, header),) = batches(build_batch([RecordData(0, None, None)]))
    record = Record(0, 0, None, None, headers)
    shown = shown_record(0, record, header, size_max, is_hexadecimal=form == "hex")
    assert shown["header_count"] == len(headers)
    return shown["headers"]


@pytest.mark.parametrize("size_max", [VALUE_SIZE_MAX, WHOLE_VALUE_SIZE_MAX])
@pytest.mark.parametrize("form", ["auto", "hex"])
def test_headers_of_a_record_share_one_limit(size_max: int, form: str) -> None:
    shown = shown_headers([("k" * 100, b"x" * size_max)] * HEADERS_MAX, size_max, form)
    limit = max(HEADERS_SIZE_MAX, size_max)
    assert limit // 2 < sum(len(each["key"]) + len(each["value"]["text"]) for each in shown) <= 1.5 * limit
    assert shown[-1]["value"]["is_truncated"]
    assert len(shown_headers([("k" * size_max, b"")] * HEADERS_MAX, size_max, form)) <= limit // size_max


def test_small_headers_of_a_record_are_all_shown() -> None:
    shown = shown_headers([("trace", b"x" * 100), ("none", None)] * (HEADERS_MAX // 2), VALUE_SIZE_MAX)
    assert len(shown) == HEADERS_MAX
    assert not any(each["value"]["is_truncated"] for each in shown)


def test_indented_json_keeps_every_digit_and_text() -> None:
    text = '{"a":1.50,"b":[],"c":{ },"d":[12345678901234567890,"x,{\\"}"],"e":{"f":null}}'
    pretty = indented(text)
    assert json.loads(pretty) == json.loads(text)
    assert "1.50" in pretty
    assert '"b": []' in pretty
    assert pretty.splitlines()[1] == '  "a": 1.50,'


def test_protobuf_values_have_the_names_of_their_schema() -> None:
    item = b"\x0a\x02\xca\xfe"
    message = (
        b"\x08\x96\x01" + b"\x12\x03ada" + b"\x1a\x03\x01\x02\x03" + b"\x20\x01" + b"\x2a" + bytes([len(item)]) + item
        + b"\x32\x05\x0a\x01a\x10\x03" + b"\x38\x01" + b"\x51\x00\x00\x00\x00\x00\x00\xf0\x3f"
    )  # fmt: skip
    assert fields_of(b"\x00" + message, parse(PROTO)) == {
        "id": 150,
        "who": "ada",
        "counts": [1, 2, 3],
        "kind": "GIFT",
        "item": {"raw": "cafe"},
        "stock": {"a": -2},
        "yes": True,
        "10": 4607182418800017408,
    }
    assert fields_of(b"\x04\x00\x00\x0a\x01\x01", parse(PROTO)) == {"raw": "01"}
    for damaged in (b"", b"\x00\x12\x05ab", b"\x00" + b"\xff" * 20, b"\x00\x0b"):
        with pytest.raises(ValueError, match=r"cut off|wire type"):
            fields_of(damaged, parse(PROTO))


def test_murmur2_is_that_of_java_clients() -> None:
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536}
    known |= {b"a-little-bit-longer-string": -1486304829, b"abc": 479470107}
    assert {key: (murmur2(key) ^ 1 << 31) - (1 << 31) for key in known} == known


async def test_values_are_opened_with_schemas_of_the_registry(tmp_path: Any) -> None:
    schemas = {
        1: {"schema": json.dumps(AVRO)},
        2: {"schema": PROTO, "schemaType": "PROTOBUF"},
        3: {"schema": "{}", "schemaType": "JSON"},
        4: {"schema": "not avro"},
    }

    async def by_id(request: web.Request) -> web.Response:
        found = schemas.get(int(request.match_info["id"]))
        return web.json_response(found) if found else web.json_response({"error_code": 40403}, status=404)

    subjects = {"t-value": [1, 2], "a/b": [2], "empty": []}

    async def names(request: web.Request) -> web.Response:
        return web.json_response(list(subjects))

    async def versions(request: web.Request) -> web.Response:
        found = subjects.get(request.match_info["subject"])
        return web.json_response({"error_code": 40401}, status=404) if found is None else web.json_response(found)

    async def version(request: web.Request) -> web.Response:
        number = int(request.match_info["version"])
        return web.json_response({"id": number, "version": number, **schemas[number]})

    application = web.Application()
    application.router.add_get("/schemas/ids/{id}", by_id)
    application.router.add_get("/subjects", names)
    application.router.add_get("/subjects/{subject}/versions", versions)
    application.router.add_get("/subjects/{subject}/versions/{version}", version)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    body, file = io.BytesIO(), io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(AVRO), {"id": 5, "who": "<b>"})
    fastavro.writer(file, fastavro.parse_schema(AVRO), [{"id": 6, "who": "x"}])
    values = [
        b"\x00\x00\x00\x00\x01" + body.getvalue(),
        b"\x00\x00\x00\x00\x02\x00\x12\x03ada",
        b'\x00\x00\x00\x00\x03{"a": 1}',
        b"\x00\x00\x00\x00\x04\x01",
        b"\x00\x00\x00\x00\x09\x01",
        b"\x00\x00\x00\x00\x01\xff",
        file.getvalue(),
    ]
    settings = {
        "metrics.http.listener": "127.0.0.1:0",
        "console.schema.registry.url": f"http://127.0.0.1:{port}",
    }
    try:
        async with running_broker(tmp_path, settings) as broker, aiohttp.ClientSession() as session:
            user = ConsoleUser(broker, session)
            async with session.get(f"{user.address}/api/v1/openapi.json") as response:
                user.document = await response.json()
            await broker.create_topic("t")
            await produce(broker, "t", {0: build_batch([RecordData(1, None, value) for value in values])})
            page = await user.get("/topics/t/records")
            shown = [(each["value"]["form"], each["value"]["text"]) for each in reversed(page["records"])]
            assert shown[:3] == [
                ("avro", '{"id": 5, "who": "<b>"}'),
                ("protobuf", '{"who": "ada"}'),
                ("json", '{"a": 1}'),
            ]
            assert [form for form, _ in shown[3:6]] == ["hex"] * 3
            named = [(each["value"].get("schema"), each["value"].get("problem")) for each in reversed(page["records"])]
            assert named[:3] == [("AVRO schema 1", None), ("PROTOBUF schema 2", None), ("JSON schema 3", None)]
            assert [schema for schema, _ in named[3:]] == [
                "AVRO schema 4", "schema 9", "AVRO schema 1", "schema of the value itself",
            ]  # fmt: skip
            problems = [problem for _, problem in named[3:6]]
            for problem, text in zip(
                problems, ("it cannot be used", "no schema 9", "the value does not match it"), strict=True
            ):
                assert text in problem
            lines = await user.lines("/topics/t/search", filter="value.who = ada or value.id = 5")
            assert [each["record"]["value"]["form"] for each in lines[:-1]] == ["avro", "protobuf"]
            assert lines[-1]["progress"]["undecoded"] == 3
            page = await user.get("/subjects", search="E")
            assert page == {"total": 2, "subjects": ["empty", "t-value"]}
            subject = await user.get("/subjects/t-value")
            assert (subject["topic"], [each["version"] for each in subject["versions"]]) == ("t", [2, 1])
            assert subject["versions"][0] == {"version": 2, "id": 2, "kind": "PROTOBUF", "text": PROTO}
            assert json.loads(subject["versions"][1]["text"]) == AVRO
            assert await user.error("/subjects/none") == (404, "the registry has no /subjects/none/versions")
            await runner.cleanup()
            status, problem = await user.error("/subjects")
            assert status == 503
            assert problem == "the registry did not respond: cannot connect: connection refused"
            assert shown[6] == ("avro", '[{"id": 6, "who": "x"}]')
    finally:
        await runner.cleanup()


async def test_values_agree_with_metrics_and_jolokia(console: ConsoleUser) -> None:
    await console.broker.create_topic("t", 2)
    for _ in range(5):
        await produce(console.broker, "t", {0: build_batch([RecordData(1, None, b"x" * 100)] * 40)})
    topic = await console.get("/topics/t")
    size = sum(log["size_bytes"] for partition in topic["partitions"] for log in partition["logs"])
    row = (await console.get("/topics"))["topics"][0]
    assert row["size_bytes"] == size
    assert row["offsets"] == 200
    async with console.session.get(f"{console.address}/metrics") as response:
        text = await response.text()
    sizes = [
        float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("kafka_log_log_size{") and 'topic="t"' in line
    ]
    assert sum(sizes) == size
    bean = "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=t"
    async with console.session.get(f"{console.address}/jolokia/read/{bean}/Count") as response:
        assert (await response.json(content_type=None))["value"] == 200
    produced = next(each for each in (await console.get("/requests"))["requests"] if each["name"] == "Produce")
    assert produced["count"] == 5
