"""Pages in states that take hours, thousands of topics or a misfortune to come about, in headless Chromium.

The broker runs in the test's process, so that a test can put it, or the history of its console, into such a state.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from base.pause import never, whole
from broker.console.rates import HOUR_SAMPLES, Counts, GroupHistory, Progress, RatesHistory
from broker.console.records import reads
from protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.create_acls import AclCreation, CreateAclsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.broker.console.many_topics import add_topics, commit_all
from tests.broker.console.site import SETTINGS, Hosted, Site, built_consoles, hosted
from tests.broker.console.test_values import AVRO, PROTO
from tests.broker.handlers.test_produce_and_fetch import produce
from tests.support.browser import Browser
from tests.support.in_process_cluster import running_cluster, until
from tests.support.loop_thread import loop_thread

AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
ANY, TOPIC, LITERAL, PREFIXED, ALLOW, DENY, READ, WRITE = 1, 2, 3, 4, 3, 2, 3, 4
MINUTE_MS = 60_000
PIECE_SIZE = 32 << 10


@pytest.fixture(autouse=True)
def no_errors(browser: Browser) -> Iterator[None]:
    """Scripts must not fail, and nothing may violate the Content-Security-Policy."""
    browser.size(1280, 900)
    browser.errors()
    yield
    assert browser.errors() == []


@pytest.fixture(scope="module")
def shared_site(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Hosted]:
    with hosted(browser, tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.fixture
def site(shared_site: Hosted, monkeypatch: pytest.MonkeyPatch) -> Hosted:
    """A broker whose console may not change anything, as by default, and remembers nothing of other tests."""
    monkeypatch.setattr(shared_site.console, "rates", RatesHistory())
    monkeypatch.setattr(shared_site.console, "group_history", GroupHistory())
    return shared_site


def watch(browser: Browser, selector: str, name: str) -> None:
    """Note every text, or value, that an element shows from now on, also those that it shows for a moment."""
    browser.script(
        """
        const element = document.querySelector(arguments[0]);
        const seen = (window[arguments[1]] = []);
        const note = () => seen.push(element.value ?? element.textContent);
        new MutationObserver(note).observe(element, { attributes: true, childList: true, characterData: true, subtree: true });
        """,  # noqa: E501 - a script
        selector,
        name,
    )


def watched(browser: Browser, name: str) -> list[object]:
    seen: list[object] = browser.script("return window[arguments[0]]", name)
    return seen


# 1


def test_1_the_newest_100_records_of_100_partitions_take_one_round_of_requests(site: Hosted) -> None:
    site.create("wide", 100)

    async def fill() -> None:
        for number in range(3):
            batches = {
                partition: build_batch(
                    [RecordData(1_000 * number + partition, None, b"%d" % (100 * number + partition))]
                )
                for partition in range(100)
            }
            await produce(site.broker, "wide", batches)

    site.run(fill())
    served = site.console.measures.requests

    def counts() -> dict[str, int]:
        return {name: served[name].count for name in ("FetchConsumer", "ListOffsets")}

    before = counts()
    browser = site.open("topics/wide")
    assert browser.texts("tbody td:nth-child(5)") == [str(number) for number in range(299, 199, -1)]
    after = counts()
    # Each Fetch request reads 25 partitions; start and end offsets take one request each.
    assert {name: after[name] - before[name] for name in before} == {"FetchConsumer": 4, "ListOffsets": 2}
    browser.click("#after")
    browser.wait(lambda: browser.text("tbody td:nth-child(5)") == "199", "the next page")


# 3


def test_3_a_search_shows_its_progress(site: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "PROGRESS_MS", 0)
    read = site.console.reader.read

    async def read_slowly(*arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(0.2)  # so that the page shows what it gets
        return await read(*arguments, **options)

    monkeypatch.setattr(site.console.reader, "read", read_slowly)
    site.create("progressing")
    site.produce("progressing", *(["x" * 10_000] * 300))
    browser = site.open("topics/progressing/search")
    watch(browser, "#progress", "shares")
    watch(browser, "#search-state", "states")
    browser.enter("#filter", "key = key-299")
    browser.click("#run")
    browser.sees("1 matches in 300 of 300 offsets, 2.87 MiB read: complete", "#search-state")
    shares = [float(str(each)) for each in watched(browser, "shares")]
    assert len({each for each in shares if 0 < each < 1}) > 1, shares
    assert shares[-1] == 1
    states = [str(each) for each in watched(browser, "states")]
    assert any(re.fullmatch(r"0 matches in \d+ of 300 offsets, [\d.]+ \w+ read", each) for each in states), states


def test_3_a_search_ends_at_its_bounds_and_says_which(site: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    site.create("bounded")
    site.produce("bounded", *(["x" * 1_000] * 2_000))
    browser = site.open("topics/bounded/search")
    monkeypatch.setattr(reads, "SEARCH_BYTES_MAX", 1 << 19)
    browser.enter("#filter", "key = none")
    browser.click("#run")
    browser.sees("GiB: narrow the search", "#search-state")
    browser.sees("Search", "#run")  # until the stream has ended, a click cancels it
    monkeypatch.setattr(reads, "SEARCH_TIME_MAX_MS", -1)
    browser.click("#run")
    browser.sees("s: narrow the search", "#search-state")


# 4 and 7


def test_4_lags_of_the_last_hour_and_rates_of_topics(site: Hosted) -> None:
    site.create("lagging", 2)
    site.produce("lagging", *["x"] * 80)
    site.produce("lagging", *["x"] * 10, partition=1)
    site.commit("readers", "lagging", {0: 20, 1: 10})
    consumer = site.consumer("readers", **{"session.timeout.ms": 10_000})
    consumer.subscribe(["lagging"])
    consumer.poll(5)

    def remember() -> None:
        for minute in range(60):
            samples = {
                ("readers", "lagging", 0): Progress(minute + 1, 120 * minute),
                ("readers", "lagging", 1): Progress(0, 10),
            }
            site.console.group_history.record(samples, MINUTE_MS * minute)
        rates = site.console.rates
        whole(rates.record({"lagging": Counts(0, 0, 0)}, {}, {}, 0, never))
        whole(rates.record({"lagging": Counts(5_000, 70_000, 9_000)}, {}, {}, 10_000, never))

    site.call(remember)
    browser = site.open("groups/readers")
    drawn = "return [...document.querySelectorAll('svg.spark path')].map((each) => each.getAttribute('d'))"
    lines = [path.count("L") + 1 for path in browser.script(drawn)]
    assert lines == [60, 59, 60, 59]  # a rate needs two samples
    named = "return [...document.querySelectorAll('svg.spark')].map((each) => each.getAttribute('aria-label'))"
    assert browser.script(named)[:2] == [
        "Lag of lagging-0 over the last hour: now 60, at most 60",
        "Offsets per second of lagging-0 over the last hour: now 2/s, at most 2/s",
    ]
    assert browser.texts("tbody td:nth-child(9)")[:2] == [" 2/s", " 0/s"]
    assert browser.texts("tbody td:nth-child(10)")[:2] == ["WARN", "OK"]
    browser = site.open("topics")
    browser.enter("#search", "lagging")
    browser.wait(lambda: browser.count("tbody tr") == 1, "one topic")
    row = browser.text("tbody tr")
    assert all(each in row for each in ("500/s", "6.84 KiB/s", "900 B/s", "readers", "60 behind")), row
    consumer.close()


def test_7_charts_have_an_hour_and_a_day_and_are_read_by_keyboard(site: Hosted) -> None:
    def remember() -> None:
        rates = site.console.rates
        total = 0
        for sample in range(24 * HOUR_SAMPLES):
            total += 10 * (sample % 1_000)
            whole(rates.record({}, {"messages_in": total}, {"Produce_p99_us": 1_500}, sample * 10_000, never))

    site.call(remember)
    browser = site.open("requests")
    points = "return document.querySelector('svg.chart path.series').getAttribute('d').split('L').length"
    assert browser.script(points) == 360
    browser.click("#window option[value=day]")
    browser.wait(lambda: browser.script(points) == 720, "the day")
    assert "1.50 ms" in browser.text("main")
    browser.click("#window option[value=hour]")
    browser.wait(lambda: browser.script(points) == 360, "the hour")
    # The sample number 8639 is the last one: 639 records in 10 ms units, one a hundredth of a second apart.
    legend = "section.card:first-child .legend"
    assert "records 639" in browser.text(legend)
    browser.script("document.querySelector('svg.chart').focus()")
    browser.press("ArrowLeft", "ArrowLeft")
    browser.sees("records 637", legend)
    browser.press("Home")
    browser.sees("records 280", legend)
    browser.press("End")
    browser.sees("records 639", legend)


# 5, 8 and 12 while writing is not enabled


def test_nothing_can_be_changed_by_default(site: Hosted) -> None:
    site.create("fixed")
    site.produce("fixed", "x")
    site.commit("fixed-group", "fixed", {0: 0})
    browser = site.open("groups/fixed-group")
    browser.sees("fixed")
    assert browser.count("#reset, #delete-offsets, #delete-group") == 0
    browser = site.open("topics/fixed/produce")
    browser.sees("read-only")
    assert browser.count("#send, #redrive") == 0
    browser = site.open("topics/fixed/config")
    assert browser.count("tbody button") == 0
    browser = site.open("topics/fixed")
    assert browser.count("#add-partitions, #empty-topic, #delete-topic") == 0
    browser.click("tbody td:nth-child(3) a")
    browser.sees("Position", "dialog")
    assert browser.count("#resend") == 0
    assert site.open("topics").count("#create-topic") == 0
    assert site.open("security").count("#set-user, #set-quotas, #create-rule") == 0
    browser = site.open("overview")
    browser.sees("read-only")
    assert "Connect" not in browser.text("nav"), "no setting names workers of Kafka Connect"


# 6


def test_6_long_lists_have_pages(site: Hosted) -> None:
    site.create("first")
    site.produce("first", "x")
    later = [f"later-{number:05}" for number in range(60)]
    with metadata_of(site, later, larger="later-00030"):
        site.run(commit_all(site.broker, "wide", ["first", *later]))
        browser = site.open("topics")
        browser.enter("#search", "later-")
        browser.wait(lambda: browser.text("tbody td").strip() == "later-00000", "the first page")
        assert browser.count("tbody tr") == 50
        browser.click("button[data-key=next]")
        browser.wait(lambda: browser.text("tbody td").strip() == "later-00050", "the next page")
        browser.click("button[data-key=sort-partitions]")
        browser.wait(lambda: browser.text("tbody td").strip() == "later-00030", "the topic with nine partitions")
        browser = site.open("groups/wide")
        assert "246 partitions" in browser.text()
        assert browser.count("tbody tr") == 100
        browser.click("button[data-key=next]")
        browser.wait(lambda: browser.text("tbody td").strip() == "later-00024", "the next page")
        browser.click("button[data-key=sort-lag]")
        browser.wait(lambda: browser.texts("tbody tr:first-child td")[:2] == ["first", "0"], "the largest lag")
        assert browser.texts("tbody tr:first-child td")[4] == "1"


@contextmanager
def metadata_of(site: Hosted, names: list[str], *, larger: str) -> Iterator[None]:
    """Let topics that no broker hosts exist for some time."""
    site.call(lambda: add_topics(site.broker, names, larger=larger))
    yield
    topics = site.broker.services.metadata_cache.topics
    site.call(lambda: [topics.pop(name) for name in names])


# 9


def test_9_the_tail_says_when_it_cannot_keep_up_and_drops_nothing(
    site: Hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "TAIL_PAUSE_S", 1.0)  # the records arrive between two reads
    read = site.console.reader.read

    async def read_slowly(*arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(0.05)  # so that the page shows what it gets
        return await read(*arguments, **{"piece_size": PIECE_SIZE, **options})

    monkeypatch.setattr(site.console.reader, "read", read_slowly)
    site.create("flooded", 2)
    browser = site.open("topics/flooded/tail")
    browser.click("#follow")
    browser.sees("Up to date.")
    watch(browser, "#tail-state", "states")
    value = "x" * 400
    for partition in (0, 1):
        values = (f"{number} {value}" for number in range(300))
        site.produce("flooded", *values, partition=partition, **{"batch.num.messages": 50})
    browser.sees("600 records received, the newest 500 are shown. Up to date.", "#tail-state")
    behind = [each for each in watched(browser, "states") if "offsets behind" in str(each)]
    assert behind, "120 KB of each partition arrive faster than they are read in pieces of 32 KiB"
    assert "records arrive faster than they are read, none is left out" in str(behind[0])
    assert browser.text(".notice.bad") == ""


def test_9_the_tail_names_what_was_deleted_before_it_was_read(site: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "TAIL_PAUSE_S", 1.0)  # so that all of it happens between two reads
    site.create("trimmed")
    browser = site.open("topics/trimmed/tail")
    browser.click("#follow")
    browser.sees("Up to date.")

    async def produce_and_delete() -> None:
        batch = build_batch([RecordData(1, None, b"%d" % number) for number in range(10)])
        appended = asyncio.ensure_future(produce(site.broker, "trimmed", {0: batch}))
        deletion = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(name="trimmed", partitions=[DeleteRecordsPartition(partition_index=0, offset=7)])
            ],
            timeout_ms=1_000,
        )
        await appended
        response = await site.broker.ask(deletion)
        assert not response.topics[0].partitions[0].error_code, response

    site.run(produce_and_delete())
    browser.sees("partition 0: offsets 0 to 6 were deleted unread")
    browser.sees("3 records received")


# 10


@contextmanager
def schema_registry(schemas: Mapping[int, Mapping[str, str]]) -> Iterator[str]:
    """Serve schemas by their ids, as Confluent's registry does; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = re.fullmatch(r"/(?:schemas/ids|subjects/typed-value/versions)/(\d+)", self.path)
            schema: Any = (
                schemas.get(int(found[1])) | {"id": int(found[1])} if found and int(found[1]) in schemas else None
            )
            lists = {"/subjects": ["typed-value"], "/subjects/typed-value/versions": list(schemas)}
            schema = lists.get(self.path, schema)
            body = json.dumps(schema or {"error_code": 40403}).encode()
            self.send_response(200 if schema else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_10_values_with_a_schema_of_the_registry_or_their_own(tmp_path: Path, browser: Browser) -> None:
    schemas = {1: {"schema": json.dumps(AVRO)}, 2: {"schema": PROTO, "schemaType": "PROTOBUF"}}
    body, file = io.BytesIO(), io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(AVRO), {"id": 5, "who": "<b>"})
    fastavro.writer(file, fastavro.parse_schema(AVRO), [{"id": 6, "who": "own"}])
    with (
        schema_registry(schemas) as address,
        hosted(
            browser,
            tmp_path,
            {"console.schema.registry.url": address, "console.clusters": "staging=http://127.0.0.1:1"},
        ) as site,
    ):
        site.create("typed")
        site.produce(
            "typed",
            b"\x00\x00\x00\x00\x01" + body.getvalue(),
            b"\x00\x00\x00\x00\x02\x00\x12\x03ada",
            b"\x00\x00\x00\x00\x07unknown",
            file.getvalue(),
        )
        browser = site.open("topics/typed")
        assert browser.texts("tbody td:nth-child(5)") == [
            '[{"id": 6, "who": "own"}]',
            "00 00 00 00 07 75 6e 6b 6e 6f 77 6e",
            '{"who": "ada"}',
            '{"id": 5, "who": "<b>"}',
        ]
        browser.click("tbody tr:last-child td:nth-child(3) a")
        browser.sees('{\n  "id": 5,\n  "who": "<b>"\n}', "dialog")
        browser.sees("AVRO schema 1", "dialog")
        browser = site.open("schemas")
        browser.click("tbody a")
        browser.sees("Schemas of the topic typed. 2 versions")
        browser.sees("Version 2 PROTOBUF, schema 2")
        assert browser.texts("pre")[1].startswith('{\n  "type": "record"')
        assert browser.texts("#cluster option") == ["This cluster", "staging"]


# 13


def test_13_the_overview_does_not_wait_for_log_directories(site: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    responded = asyncio.Event()
    ask_all = site.console.client.ask_all

    async def ask_slowly(request: object) -> Any:
        await responded.wait()
        return await ask_all(request)

    monkeypatch.setattr(site.console.client, "ask_all", ask_slowly)
    monkeypatch.setattr(site.console.log_dirs, "_value", None)
    site.console.log_dirs.forget()
    browser = site.open("overview")
    assert browser.text("section tbody td:last-child").strip() == "\N{HORIZONTAL ELLIPSIS}"
    site.call(responded.set)
    browser = site.open("overview")
    assert "free" in browser.text("section tbody td:last-child")


# 14


def test_14_moves_have_progress_and_missing_replicas_are_named(tmp_path: Path, browser: Browser) -> None:
    with built_consoles(), loop_thread() as thread:
        settings = {**SETTINGS, "replica.lag.time.max.ms": "1500"}
        with thread.entered(running_cluster(tmp_path, (1, 2, 3), settings)) as cluster:
            address = cluster.brokers[1].metrics_port
            endpoints = cluster.services(1).metadata_cache.brokers[1].endpoints
            host, port = endpoints["PLAINTEXT"]
            site = Site(browser, f"{host}:{port}", f"http://127.0.0.1:{address}")
            create_on(site, "moving", [[1, 2]])
            create_on(site, "skewed", [[1]] * 4)
            site.produce("moving", *["x" * 10_000] * 300)
            thread.run(cluster.services(3).fetchers.stop())  # it stays alive, and copies nothing

            async def move(replicas: list[int] | None) -> None:
                request = AlterPartitionReassignmentsRequest(
                    timeout_ms=5_000,
                    topics=[
                        ReassignableTopic(
                            name="moving", partitions=[ReassignablePartition(partition_index=0, replicas=replicas)]
                        )
                    ],
                )
                response = await cluster.controller.ask(request)
                assert not response.error_code, response

            thread.run(move([1, 3]))
            browser = site.open("partitions")
            browser.wait(lambda: "0 B of 2.87 MiB copied, 0 of 1 in sync" in browser.text("main"), "the progress")
            row = next(row for row in browser.texts("tbody tr") if row.startswith("moving-0"))
            assert re.search(r"moving-0\s+1, 3, 2\s+3\s+2\s+", row), row
            assert browser.script("return document.querySelector('main section:nth-of-type(2) progress').value") == 0
            skew = {row.split("\t")[0]: row.split("\t") for row in browser.texts("section:first-of-type tbody tr")}
            assert skew["1"][1:5] == ["5", "+200 %", "5", "+114.3 %"], skew
            assert skew["2"][1:3] == ["0", "-100 %"]
            thread.run(move(None))
            site.open("partitions").sees("No partition moves")
            thread.run(cluster.stop(2))
            thread.run(until(lambda: cluster.services(1).metadata_cache.topics["moving"].partitions[0].isr == [1]))
            browser = site.open("partitions")
            browser.wait(lambda: "Not as they should be: 1" in browser.text("main"), "the partition")
            browser.sees("under-replicated")


def create_on(site: Site, name: str, assignment: list[list[int]]) -> None:
    topic = NewTopic(name, len(assignment), replica_assignment=assignment)
    for future in site.admin.create_topics([topic]).values():
        future.result()


# 15


def test_15_rules_of_a_principal_and_hanging_transactions(tmp_path: Path, browser: Browser) -> None:
    settings = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "transaction.partition.verification.enable": "false",
        "console.write.enable": "true",
    }
    with hosted(browser, tmp_path, settings) as site:
        site.create("orders")
        rules = [
            AclCreation(
                resource_type=TOPIC,
                resource_name=resource,
                resource_pattern_type=pattern,
                principal=principal,
                host="*",
                operation=operation,
                permission_type=permission,
            )
            for resource, pattern, principal, operation, permission in (
                ("ord", PREFIXED, "User:alice", READ, ALLOW),
                ("orders", LITERAL, "User:bob", READ, ALLOW),
                ("orders", LITERAL, "User:bob", READ, DENY),
            )
        ]
        response = site.run(site.broker.ask(CreateAclsRequest(creations=rules)))
        assert not any(each.error_code for each in response.results), response
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        (created,) = site.admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("alice", scram, b"wonderland")]
        ).values()
        created.result()
        quota = EntryData(
            entity=[EntityData(entity_type="user", entity_name="alice")],
            ops=[OpData(key="producer_byte_rate", value=1_048_576.0, remove=False)],
        )
        altered = site.run(site.broker.ask(AlterClientQuotasRequest(entries=[quota], validate_only=False)))
        assert not altered.entries[0].error_code, altered
        browser = site.open("security")
        browser.sees("3 rules. The console acts as User:ANONYMOUS.")
        assert re.search(r"alice\s+SCRAM-SHA-256, 4096 iterations", browser.text())
        assert re.search(r"user: alice\s+producer_byte_rate: 1,048,576", browser.text())

        def verdict(principal: str, operation: str, resource: str = "orders") -> str:
            browser.enter("#principal", principal)
            browser.click(f"#operation option[value={operation}]")
            browser.enter("#resource", resource)
            browser.script("document.querySelector('#verdict').replaceChildren()")
            browser.click("#ask")
            browser.wait(lambda: browser.text("#verdict"), "the verdict")
            return browser.text("#verdict")

        assert verdict("User:alice", "READ").startswith("allowed")
        assert "prefixed" in verdict("User:alice", "READ", "ordinary")
        assert verdict("User:alice", "WRITE").startswith("denied")
        denied = verdict("User:bob", "READ")
        assert denied.startswith("denied")
        assert "a rule that denies wins" in denied
        assert verdict("User:carol", "READ") == "denied No rule allows it."
        browser.click("#create-rule")
        browser.enter("#rule-principal", "User:carol")
        browser.enter("#rule-resource", "orders")
        browser.click("#show-preview")
        browser.sees("Allow User:carol from *: Read on Topic orders (literal)", "#preview")
        browser.click("#apply")
        browser.wait(lambda: browser.count("dialog") == 0, "the end of the dialog")
        browser.sees("4 rules.")
        assert verdict("User:carol", "READ").startswith("allowed")
        browser.enter("#search", "carol")
        browser.wait(lambda: browser.count("section.card tbody tr") == 4, "one rule, a user and a quota, and a verdict")
        browser.click("[aria-label^='Delete the rule']")
        browser.click("#apply")
        browser.sees("No rules")
        assert verdict("User:ANONYMOUS", "DELETE").startswith("allowed No rule concerns it: it is a super user")

        # A transactional batch whose producer is gone, and of which the coordinator knows nothing.
        batch = build_batch(
            [RecordData(1_700_000_000_000, None, b"x")],
            producer_id=4_711,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        request = ProduceRequest(
            transactional_id="gone",
            acks=1,
            timeout_ms=1_000,
            topic_data=[TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=batch)])],
        )
        produced = site.run(site.broker.ask(request))
        assert not produced.responses[0].partition_responses[0].error_code, produced
        browser = site.open("transactions")
        browser.sees("orders-0")
        section = browser.text("section.card:nth-of-type(1)")
        assert re.search(r"orders-0\s+4711\s+0\s+2023-11-1", section), section
        assert browser.text(".stat.bad").split() == ["1", "partitions", "with", "a", "hanging", "transaction"]


def test_unread_records_are_counted_without_what_offsets_count_too(site: Hosted) -> None:
    """Lag in offsets counts markers, aborted and compacted records; the count of unread records does not."""
    site.create("counted", 2)
    site.produce("counted", *["x"] * 10)
    producer = Producer({"bootstrap.servers": site.bootstrap, "transactional.id": "counting"})
    producer.init_transactions(10)
    for is_committed in (True, False):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce("counted", b"x", partition=1)
        producer.flush(10)
        producer.commit_transaction(10) if is_committed else producer.abort_transaction(10)
    site.commit("counting", "counted", {0: 4, 1: 2})
    browser = site.open("groups/counting")
    assert browser.texts("tbody td:nth-child(5)")[:2] == ["6", "10"]
    assert browser.texts("tbody td:nth-child(6)")[:2] == ["\N{EN DASH}"] * 2
    browser.click("#count-unread")
    browser.sees("9 unread records at", "#unread-state")
    assert browser.texts("tbody td:nth-child(6)")[:2] == ["6", "3"]
    committed = site.consumer("counting").committed([TopicPartition("counted", 0)], 10)
    assert committed[0].offset == 4
