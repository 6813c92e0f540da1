"""The pages of the console in headless Chromium: each feature as a person uses it.

One broker process and one browser serve all tests of this file; each test has topics of its own.
"""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from tests.broker.console.connect_worker import JAVA_TRACE, FakeWorker, fake_worker
from tests.broker.console.site import SETTINGS, Site
from tests.support.broker import BrokerProcess
from tests.support.browser import Browser
from tests.support.loop_thread import loop_thread

HTML = "<img src=x onerror=alert(1)>"
NONE = "\N{EN DASH}"
AWAY = "http://127.0.0.1:1"
"""Where no worker of Kafka Connect listens."""


@pytest.fixture(scope="module")
def worker() -> Iterator[FakeWorker]:
    with loop_thread() as thread, thread.entered(fake_worker()) as started:
        started.add("orders", "sink", "RUNNING", ("RUNNING", None), ("FAILED", JAVA_TRACE))
        started.offsets["orders"] = [{"partition": {"kafka_topic": "t"}, "offset": {"kafka_offset": 7}}]
        yield started


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, browser: Browser, worker: FakeWorker) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("console")
    settings = {
        **SETTINGS,
        "console.write.enable": "true",
        "console.connect.url": f"{AWAY},{worker.url}",
        "log.cleaner.backoff.ms": "200",
    }
    with BrokerProcess(folder, settings) as broker:
        try:
            yield Site(browser, broker.bootstrap, f"http://127.0.0.1:{broker.metrics_port}")
        finally:
            browser.leave()


@pytest.fixture(autouse=True)
def no_errors(site: Site) -> Iterator[None]:
    """Scripts must not fail, and nothing may violate the Content-Security-Policy."""
    site.browser.size(1280, 900)
    site.browser.errors()
    yield
    assert site.browser.errors() == []


def test_1_newest_records_come_first_over_all_partitions(site: Site) -> None:
    site.create("newest", 3)
    for number in range(12):
        site.produce("newest", f"value {number}", partition=number % 3)
        time.sleep(0.002)
    browser = site.open("topics/newest")
    values = browser.texts("tbody td:nth-child(5)")
    assert values == [f"value {number}" for number in range(11, -1, -1)]
    browser.script("document.querySelector('#limit').value = '25'")
    browser.enter("#partition", "1\n")
    browser.wait(lambda: browser.count("tbody tr") == 4, "the records of partition 1")


def test_2_true_counts_leave_out_markers_and_aborted_records(site: Site) -> None:
    site.create("counted")
    producer = Producer({"bootstrap.servers": site.bootstrap, "transactional.id": "counting"})
    producer.init_transactions(10)
    for is_committed in (True, False, True):
        producer.begin_transaction()
        for _ in range(5):
            producer.produce("counted", b"x")
        producer.flush(10)
        producer.commit_transaction(10) if is_committed else producer.abort_transaction(10)
    site.commit("counting-group", "counted", {0: 5})
    browser = site.open("topics/counted")
    browser.click("#count-records")
    browser.sees("10 records in 18 offsets: without markers")
    browser.click("#isolation option[value=read_committed]")
    browser.wait(lambda: browser.count("tbody tr") == 10, "the committed records")
    browser = site.open("groups/counting-group")
    browser.sees("oldest unread record")
    assert "13" in browser.text("tbody")


def test_2_true_counts_leave_out_compacted_offsets(site: Site) -> None:
    site.create("compacted", cleanup_policy="compact", segment_bytes="2000", min_cleanable_dirty_ratio="0.01")
    for _ in range(10):
        site.produce("compacted", *(["x" * 100] * 5))  # keys 0 to 4
    site.commit("compacted-group", "compacted", {0: 0})
    browser = site.browser

    def counted() -> int:
        browser.script("document.querySelector('#count [role=status]').textContent = ''")
        browser.click("#count-records")
        browser.sees("records in 50 offsets: without markers, compacted offsets", "#count")
        return int(browser.text("#count [role=status]").split()[0])

    def shown() -> int:
        browser.script("document.querySelector('tbody').replaceChildren()")
        browser.click("#reload")
        browser.wait(lambda: browser.count("tbody tr"), "the records")
        return browser.count("tbody tr")

    site.open("topics/compacted")
    browser.wait(lambda: counted() < 50, "the count after the compaction")
    browser.wait(lambda: counted() == shown(), "the records that are left")  # the cleaner may be at work
    assert counted() >= 5
    site.open("groups/compacted-group")
    assert browser.text("tbody td:nth-child(5)") == "50"
    browser.click("#count-unread")
    browser.sees(" unread records at", "#unread-state")
    assert 5 <= int(browser.text("#unread-state").split()[0]) < 50


def test_3_search_by_key_header_offsets_and_times(site: Site) -> None:
    site.create("ranged", 2)
    began_ms = 1_700_000_000_000
    producer = Producer({"bootstrap.servers": site.bootstrap})
    for number in range(100):
        producer.produce(
            "ranged",
            f"value {number}",
            key=f"user-{number % 10}",
            partition=number % 2,
            timestamp=began_ms + 1_000 * number,
            headers=[("source", b"web" if number % 4 else b"batch")],
        )
    assert producer.flush(10) == 0
    browser = site.open("topics/ranged/search")

    def found(**fields: str) -> list[int]:
        for name in ("filter", "partition", "from-offset", "to-offset", "from-time", "to-time"):
            value = fields.get(name.replace("-", "_"), "")
            browser.script("document.getElementById(arguments[0]).value = arguments[1]", name, value)
        browser.script("document.getElementById('search-state').textContent = ''")
        browser.click("#run")
        browser.wait(lambda: ": " in browser.text("#search-state") and browser.text("#run") == "Search", "the end")
        return sorted(int(each.split()[1]) for each in browser.texts("tbody td:nth-child(5)"))

    def local(number: int) -> str:
        """Return the time of a record as the browser's field has it."""
        text: str = browser.script(
            "const at = new Date(arguments[0]); at.setMinutes(at.getMinutes() - at.getTimezoneOffset());"
            "return at.toISOString().slice(0, 19)",
            began_ms + 1_000 * number,
        )
        return text

    assert found(filter="key = user-7") == list(range(7, 100, 10))
    assert found(filter="USER-7") == list(range(7, 100, 10))
    assert found(filter="header.source = batch and not key = user-0") == [n for n in range(0, 100, 4) if n % 10]
    assert found(filter='"value 42"') == [42]
    assert found(partition="1", from_offset="10", to_offset="12") == [21, 23]
    assert "2 of 2 offsets" in browser.text("#search-state")
    # The time index narrows the offsets; batches that cross the bound are read, and the filter is exact.
    assert found(from_time=local(90), filter="timestamp >= 2023-11-14T22:14:50Z") == list(range(90, 100))
    assert found(to_time=local(5), filter="timestamp < 2023-11-14T22:13:26Z") == list(range(6))
    browser.click("#limit option[value='50']")
    assert len(found(filter="value")) == 50
    assert "stopped at 50 matches" in browser.text("#search-state")


def test_3_search_shows_matches_progress_and_cancels(site: Site) -> None:
    site.create("searched", 2)
    site.produce("searched", *(json.dumps({"order": {"total": number}}) for number in range(500)))
    browser = site.open("topics/searched/search")
    browser.enter("#filter", 'value.order.total >= 498 and header.source = "test"')
    browser.click("#run")
    browser.sees("2 matches in 500 of 500 offsets")
    browser.sees('{"order": {"total": 499}}')
    browser.enter("#filter", "nonsense = (")
    browser.click("#run")
    browser.sees("'nonsense' is no field")
    # A search that takes long: every record of a large topic is parsed.
    site.create("endless", 1)
    value = json.dumps({"text": "x" * 400, "number": 1})
    site.produce("endless", *[value] * 60_000, **{"linger.ms": 50, "queue.buffering.max.messages": 100_000})
    browser = site.open("topics/endless/search")
    browser.enter("#filter", "value.number = 2")
    browser.click("#run")
    browser.wait(lambda: browser.text("#run") == "Cancel", "the button to cancel")
    browser.click("#run")
    browser.sees("Cancelled.")
    assert browser.text("#run") == "Search"


def test_4_topics_have_sizes_and_groups_with_lag(site: Site) -> None:
    site.create("listed", 2, retention_ms="60000")
    site.produce("listed", *["x" * 100] * 30)
    site.commit("listing", "listed", {0: 10})
    browser = site.open("topics")
    browser.enter("#search", "liste")
    browser.wait(lambda: browser.count("tbody tr") == 1, "one topic")

    def row() -> str:
        return str(browser.text("tbody tr"))

    browser.wait(lambda: "listing" in row() and "20 behind" in row(), "the group and its lag")
    assert "KiB" in row()
    browser = site.open("groups")
    browser.enter("#search", "listing")
    browser.wait(lambda: "20" in browser.text("tbody tr"), "the lag of the group")
    browser.click("tbody a")
    browser.sees("STOP", ".stat")
    consumer = site.consumer("listing", **{"session.timeout.ms": 10_000})
    consumer.subscribe(["listed"])
    consumer.poll(5)
    browser = site.open("groups/listing")
    browser.sees("Stable")
    browser.sees("listed: 0, 1")
    browser = site.open("groups")
    browser.enter("#search", "listing")
    browser.wait(lambda: browser.count("tbody tr") == 1, "one group")
    assert browser.texts("tbody td")[3:] == ["Stable", "consumer", "0", "1", "1"]
    consumer.close()


def confirm(browser: Browser, row: str) -> None:
    """Preview the change of a dialog, which must be one row, and make it."""
    browser.click("#show-preview")
    browser.sees("Preview: nothing was changed yet", "#preview")
    assert browser.texts("#preview tbody tr") == [row]
    browser.click("#apply")
    browser.wait(lambda: browser.count("dialog") == 0, "the end of the dialog")


def test_5_offsets_are_reset_with_a_preview(site: Site) -> None:
    for topic in ("reset-a", "reset-b"):
        site.create(topic)
        site.produce(topic, *["x"] * 20)
        site.commit("resetting", topic, {0: 15})
    browser = site.open("groups/resetting")
    browser.click("#reset")
    browser.click("#strategy option[value=shift]")
    for topic in ("reset-a", "reset-b"):
        browser.click(f"dialog input[value={topic}]")
    browser.click("#show-preview")
    browser.sees("Choose at least one topic.", "#preview")
    for topic in ("reset-a", "reset-b"):
        browser.click(f"dialog input[value={topic}]")
    browser.enter("#reset-value", "")
    browser.click("#show-preview")
    browser.sees("Write a whole number.", "#preview")
    browser.enter("#reset-value", "-5")
    assert browser.count("#apply:enabled") == 0
    browser.click("#show-preview")
    browser.sees("Preview: nothing was changed yet", "#preview")
    assert browser.texts("#preview td:nth-child(4)") == ["10", "10"]
    browser.click("#apply")
    browser.sees("The offsets were reset.", "#preview")
    committed = site.consumer("resetting").committed([TopicPartition("reset-a", 0), TopicPartition("reset-b", 0)], 10)
    assert [each.offset for each in committed] == [10, 10]
    browser = site.open("groups/resetting")
    browser.click("#delete-offsets")
    confirm(browser, "reset-a-0\toffset 10\tdeleted")
    browser.wait(lambda: "reset-a" not in browser.text("main"), "the deleted offsets")
    browser.click("#delete-group")
    confirm(browser, "group resetting\toffsets of 1 partitions of 1 topics\tdeleted")
    browser.wait(lambda: browser.script("return location.hash") == "#/groups", "the list of groups")


def test_5_offsets_are_reset_to_a_time_also_in_further_topics(site: Site) -> None:
    producer = Producer({"bootstrap.servers": site.bootstrap})
    for topic in ("timed-a", "timed-b", "timed-c"):
        site.create(topic, 2, retention_ms="-1")  # on a busy machine the first look for old records may come
        for number in range(20):
            at_ms = 1_700_000_000_000 + 1_000 * number
            producer.produce(topic, b"x", partition=number % 2, timestamp=at_ms)
            producer.flush(10)  # a batch each, so that the time index can tell them apart
    site.commit("timing", "timed-a", {0: 10, 1: 10})
    site.commit("timing", "timed-b", {0: 3})
    browser = site.open("groups/timing")
    browser.click("#reset")
    assert browser.count("dialog input[type=checkbox]:checked") == 2  # prefilled
    browser.click("dialog input[value=timed-b]")
    browser.enter("#other-topics", "timed-c")
    browser.click("#strategy option[value=time]")
    browser.click("#show-preview")
    browser.sees("Choose a time.", "#preview")
    browser.script(
        "const at = new Date(1_700_000_008_000); at.setMinutes(at.getMinutes() - at.getTimezoneOffset());"
        "document.querySelector('#reset-time').value = at.toISOString().slice(0, 19)"
    )
    browser.click("#show-preview")
    browser.sees("Preview: nothing was changed yet", "#preview")
    rows = [row.split("\t") for row in browser.texts("#preview tbody tr")]
    assert [row[:5] for row in rows] == [
        ["timed-a", "0", "10", "4", "-6"],
        ["timed-a", "1", "10", "4", "-6"],
        ["timed-c", "0", NONE, "4", NONE],
        ["timed-c", "1", NONE, "4", NONE],
    ]
    browser.click("#apply")
    browser.sees("The offsets were reset.", "#preview")
    partitions = [TopicPartition(topic, each) for topic in ("timed-a", "timed-b", "timed-c") for each in (0, 1)]
    committed = [each.offset for each in site.consumer("timing").committed(partitions, 10)]
    assert committed == [4, 4, 3, -1001, 4, 4]
    member = site.consumer("timing", **{"session.timeout.ms": 10_000})
    member.subscribe(["timed-a"])
    member.poll(5)
    browser = site.open("groups/timing")
    browser.sees("Stable")
    browser.click("#reset")
    browser.click("#show-preview")
    browser.sees("stop its members first", "#preview")
    assert browser.count("#apply:enabled") == 0
    member.close()


def test_7_rates_and_latencies_are_charts(site: Site) -> None:
    site.create("rated")
    browser = site.open("requests")
    browser.wait(lambda: browser.script("return document.querySelectorAll('svg.chart path').length") > 0, "a line")
    titles = browser.text("main")
    assert "console.brokers names the HTTP ports" in titles
    assert all(each in titles for each in ("Records in per second", "Latency, 99th percentile", "Event loop lag"))
    assert browser.script("return document.querySelector('svg.chart').getAttribute('aria-label')").startswith("Records")
    browser.click("#window option[value=day]")
    browser.sees("Requests of broker 0")
    browser.sees("Metadata")


def test_8_records_are_produced_resent_and_sent_back(site: Site) -> None:
    for topic in ("produced", "dead-letters"):
        site.create(topic)
    browser = site.open("topics/produced/produce")
    browser.enter("#key", "k1")
    browser.enter("#value", '{"a": 1}')
    browser.enter("#headers", "origin: console")
    browser.click("#send")
    browser.sees("Produced to partition 0 at offset 0.")
    browser = site.open("topics/produced")
    browser.click("tbody td:nth-child(3) a")
    browser.sees("origin", "dialog")
    browser.click("#resend")
    browser.sees("Produced to produced, partition 0, offset 1.", "#toast")
    producer = Producer({"bootstrap.servers": site.bootstrap})
    producer.produce("dead-letters", b"late", headers=[("x-original-topic", b"produced")])
    producer.flush(10)
    browser = site.open("topics/dead-letters/produce")
    browser.enter("#dead-records", "0")
    browser.click("#redrive")
    browser.sees('"0": expected a partition and an offset.')
    browser.enter("#dead-records", "0 0")
    browser.click("#redrive")
    browser.sees("produced, partition 0, offset 2")
    browser = site.open("topics/dead-letters/records/0/0")
    browser.click("#send-back")
    browser.sees("Produced to produced, partition 0, offset 3.", "#toast")


def test_9_the_tail_shows_every_record(site: Site) -> None:
    site.create("tailed", 2)
    browser = site.open("topics/tailed/tail")
    browser.click("#follow")
    browser.sees("Up to date.")
    site.produce("tailed", *(f"new {number}" for number in range(700)))
    browser.sees("700 records received, the newest 500 are shown. Up to date.")
    browser.sees("new 699")  # the rows are drawn after the line that counts them
    assert browser.text("tbody tr").count("new 699") == 1
    browser.click("#follow")
    browser.sees("Stopped.")


def test_10_values_as_text_json_and_hexadecimal(site: Site) -> None:
    site.create("formed")
    site.produce("formed", '{"big":12345678901234567890,"list":[1,2]}', b"\x00\x01\xff", "plain")
    browser = site.open("topics/formed")
    browser.click("tbody tr:last-child td:nth-child(3) a")
    browser.sees('{\n  "big": 12345678901234567890,\n  "list": [\n    1,\n    2\n  ]\n}', "dialog")
    browser.click("dialog button[data-key=hex]")
    browser.sees("7b 22 62 69 67", "dialog")
    assert "00 01 ff" in browser.text("tbody")


def test_11_what_is_shown_is_exported(site: Site) -> None:
    site.create("exported")
    site.produce("exported", "a,b", '=cmd()|"x"')
    browser = site.open("topics/exported")

    browser.click("#export-csv")
    rows = list(csv.DictReader(browser.downloaded("exported.csv").splitlines()))
    assert [each["value"] for each in rows] == ['\'=cmd()|"x"', "a,b"]
    browser.click("#export-json")
    lines = [json.loads(line) for line in browser.downloaded("exported.jsonl").splitlines()]
    assert [each["value"]["text"] for each in lines] == ['=cmd()|"x"', "a,b"]
    site.commit("exported-group", "exported", {0: 1})
    browser = site.open("groups/exported-group")
    browser.click("#export")
    (row,) = csv.DictReader(browser.downloaded("exported-group.csv").splitlines())
    assert row | {"topic": "exported", "committed": "1", "end": "2", "lag": "1"} == row
    browser = site.open("topics/exported/search")
    browser.enter("#filter", "cmd\n")
    browser.sees("1 matches in")
    browser.click("#export-json")
    assert len(browser.downloaded("exported.jsonl").splitlines()) == 1
    browser = site.open("topics")
    browser.enter("#search", "exported")
    browser.wait(lambda: browser.count("tbody tr") == 1, "one topic")
    browser.click("#export")
    (row,) = csv.DictReader(browser.downloaded("topics.csv").splitlines())
    assert row | {"name": "exported", "partitions": "1", "offsets": "2"} == row


def test_11_a_time_that_is_no_date_is_shown_and_exported_as_its_number(site: Site) -> None:
    site.create("nanoseconds", retention_ms="-1")
    producer = Producer({"bootstrap.servers": site.bootstrap})
    for timestamp_ms in (1_795_228_739_867, 1_795_228_739_867_000_001):
        producer.produce("nanoseconds", b"v", timestamp=timestamp_ms)
        assert producer.flush(10) == 0
    browser = site.open("topics/nanoseconds")
    browser.sees("1795228739867000001 ms", "tbody")
    browser.sees("2026-11-", "tbody")
    browser.click("#export-csv")
    rows = csv.DictReader(browser.downloaded("nanoseconds.csv").splitlines())
    found = sorted(each["timestamp"] for each in rows)
    assert found == ["1795228739867000001", "2026-11-21T02:38:59.867Z"]
    browser.click("tbody tr:first-child td:nth-child(3) a")
    browser.sees("1795228739867000001 ms (CreateTime)", "dialog")


def test_12_settings_show_their_source_and_change(site: Site) -> None:
    site.create("configured", retention_ms="60000")
    browser = site.open("topics/configured/config")
    assert browser.text("tbody tr").startswith("retention.ms")
    assert browser.texts("tbody tr:first-child td")[1:4] == ["60000\n60 s", "topic", "604800000\n7 d"]
    assert browser.count("tbody tr") > 20
    browser.click("#differing")
    browser.wait(lambda: browser.count("tbody tr") == 1, "what differs")
    browser.click("button[aria-label='Change retention.ms']")
    browser.enter("#new-value", "nonsense")
    browser.click("#show-preview")
    browser.sees("nonsense", "dialog .notice")
    browser.enter("#new-value", "120000")
    confirm(browser, "retention.ms\t60000 (topic)\t120000")
    browser.wait(lambda: "120000" in browser.text("tbody tr"), "the new value")
    resource = ConfigResource(ResourceType.TOPIC, "configured")
    (future,) = site.admin.describe_configs([resource]).values()
    assert future.result()["retention.ms"].value == "120000"


def test_12_topics_are_created_grown_emptied_and_deleted(site: Site) -> None:
    browser = site.open("topics")
    browser.click("#create-topic")
    browser.enter("#topic-name", "managed/")
    browser.click("#show-preview")
    browser.sees("INVALID_TOPIC_EXCEPTION", "#preview")
    browser.enter("#topic-name", "managed")
    browser.enter("#topic-partitions", "2")
    browser.enter("#topic-configs", "nonsense")
    browser.click("#show-preview")
    browser.sees('Setting "nonsense": expected name=value.', "#preview")
    browser.enter("#topic-configs", "retention.ms=60000\n")
    browser.click("#show-preview")
    browser.sees("2 partitions, replication factor 1", "#preview")
    browser.enter("#topic-partitions", "3")
    assert browser.count("#apply:enabled") == 0, "a change of the form takes another preview"
    browser.click("#show-preview")
    browser.sees("3 partitions, replication factor 1", "#preview")
    browser.click("#apply")
    browser.sees("3 partitions, replication factor 1, topic id")
    browser.click("#add-partitions")
    browser.enter("#partition-count", "4")
    confirm(browser, "topic managed\t3 partitions\t4 partitions")
    site.produce("managed", "a", "b")
    browser = site.open("topics/managed")
    assert browser.texts("tbody td:nth-child(5)") == ["b", "a"]
    browser.click("#empty-topic")
    browser.enter("#empty-partition", "0")
    confirm(browser, "managed-0\t2 offsets from 0 on\tbegins at offset 2")
    browser.sees("No records")
    browser.click("#delete-topic")
    browser.wait(lambda: browser.count("#apply:enabled"), "the preview, which needs no field")
    site.admin.delete_topics(["managed"])["managed"].result()
    browser.click("#apply")
    browser.sees("does not exist", "#preview")
    browser.press("Escape")


def test_13_brokers_have_directories_and_controller_events(site: Site) -> None:
    site.create("event")
    site.open("partitions")  # asks the controller for reassignments, which is no event worth a line
    browser = site.open("brokers")
    browser.sees("controller")
    for text in ("free", "Event loop idle", "Waiting requests", "Produce", "Heartbeat", "Rebalance", "CreateTopics"):
        browser.sees(text)
    assert "ListReassignments" not in browser.text()
    assert re.search(r"Event loop lag\s+p50: [\d.]+ m?s, p99: [\d.]+ m?s, p99.9: [\d.]+ m?s", browser.text())
    assert re.search(r"[\d.]+ \w+ in \d+ logs; [\d.]+ GiB of [\d.]+ GiB free", browser.text())
    browser.click("a[href='#/brokers/0']")
    browser.sees("metrics.http.listener")
    browser = site.open("overview")
    assert re.search(r"Controller\s+broker 0, epoch \d+", browser.text())
    browser = site.open("requests")
    parts = "return document.querySelector('tbody .stack svg').getAttribute('aria-label')"
    assert re.fullmatch(
        r"queue .*, local .*, remote .*, throttled .*, response queue .*, send .*", browser.script(parts)
    )


def test_13_the_overview_shows_the_machine(site: Site) -> None:
    browser = site.load("overview")
    sent = browser.script("return performance.getEntriesByType('resource').map((each) => each.name)")
    assert len(sent) <= 5, f"beside the document: {sent}"
    for text in ("Machine of this broker", "Load", "Processors", "available", "% of the inodes", "Open files"):
        browser.sees(text)


def test_14_partitions_show_their_spread(site: Site) -> None:
    site.create("spread", 4)
    browser = site.open("partitions")
    for text in ("Leader skew", "No partition moves", "Every partition is in order"):
        browser.sees(text)
    browser = site.open("topics/spread/partitions")
    assert browser.count("tbody tr") == 4


def test_15_transactions_and_permissions(site: Site) -> None:
    site.create("transacted")
    producer = Producer({"bootstrap.servers": site.bootstrap, "transactional.id": "open-one"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("transacted", b"x")
    producer.flush(10)
    browser = site.open("transactions")
    browser.sees("open-one")
    browser.sees("Ongoing")
    browser.sees("No hanging transactions")
    producer.abort_transaction(10)
    browser = site.open("security")
    browser.sees("no authorizer")
    browser.enter("#principal", "User:alice")
    browser.enter("#resource", "transacted")
    browser.click("#ask")
    browser.sees("allowed", "#verdict")
    browser.click("#set-user")
    browser.enter("#user", "alice")
    browser.enter("#password", "wonderland")
    confirm(browser, "user alice, SCRAM-SHA-256\tdoes not exist\t4096 iterations, new password")
    browser.sees("SCRAM-SHA-256, 4096 iterations")
    browser.click("#set-quotas")
    browser.enter("#quota-user", "<default>")
    browser.enter("#producer_byte_rate", "1000")
    confirm(browser, "user <default>: producer_byte_rate\tdoes not exist\t1,000")
    browser.click("[aria-label='Change quotas of <default>']")
    browser.enter("#producer_byte_rate", "")
    confirm(browser, "user <default>: producer_byte_rate\t1,000\tdeleted")
    browser.sees("No quotas")
    browser.click("[data-key^='Delete SCRAM-SHA-256']")
    confirm(browser, "user alice, SCRAM-SHA-256\t4096 iterations\tdeleted")
    browser.sees("No users")


def test_16_connectors_show_their_errors_and_are_restarted(site: Site, worker: FakeWorker) -> None:
    browser = site.open("connect")
    browser.sees(f"Worker {AWAY} did not respond: cannot connect")
    browser.sees("task 1: java.sql.SQLException: table <b>orders</b> is missing")
    browser.click("tbody a")
    browser.sees('{"kafka_offset": 7}', "#offsets")
    browser.click("tbody [data-key^=trace]")
    browser.sees("Caused by: java.sql.SQLException", "dialog")
    browser.click("dialog .head button")
    for button, request in (
        ("[data-key=restart-1]", "POST /connectors/orders/tasks/1/restart"),
        ("#pause", "PUT /connectors/orders/pause"),
    ):
        browser.click(button)
        browser.wait(lambda: browser.count("#confirm"), "the question")
        assert request not in worker.requests, "a change is confirmed first"
        browser.click("#confirm")
        browser.wait(lambda wanted=request: wanted in worker.requests, request)
        browser.wait(lambda: browser.count("dialog") == 0, "the end of the dialog")
    browser.wait(lambda: browser.count("#resume"), "the state after the change")
    assert browser.count("#pause") == 0


def send_change(site: Site, path: str, body: dict[str, object]) -> None:
    """Make a change as a program does: the preview's request again, with its token."""
    for _ in ("the preview", "the change"):
        request = Request(
            f"{site.address}/api/v1{path}",
            json.dumps({"confirm": "", **body}).encode(),
            {"Content-Type": "application/json"},
        )
        with urlopen(request) as response:
            change = json.load(response)
        body = {**body, "confirm": change["confirm"]}
    assert change["is_done"], change


def test_hostile_texts_stay_texts(site: Site) -> None:
    """A topic name cannot be HTML, but a group, a key, a value, a header, a client and an address of the page can."""
    site.create("hostile")
    producer = Producer({"bootstrap.servers": site.bootstrap, "client.id": HTML, "transactional.id": HTML})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("hostile", f"<script>alert(1)</script>{HTML}", key=HTML, headers=[(HTML, HTML.encode())])
    producer.commit_transaction(10)
    consumer = site.consumer(HTML, **{"client.id": HTML})
    consumer.subscribe(["hostile"])
    consumer.poll(5)
    consumer.commit(asynchronous=False) if consumer.assignment() else None
    quotas = [(HTML, None), (None, HTML)]
    for name, default in quotas:
        entity = {"user": name} if name else {"client-id": default}
        send_change(site, "/security/quotas", {"entity": entity, "quotas": {"producer_byte_rate": 1_000_000}})
    send_change(site, "/security/users", {
        "action": "set", "user": HTML, "mechanism": "SCRAM-SHA-512", "iterations": 4096, "password": HTML,
    })  # fmt: skip
    browser = site.open("security")
    assert browser.text().count(HTML) == 3
    browser.click("[data-key^='Delete SCRAM-SHA-512']")
    browser.sees(f"user {HTML}, SCRAM-SHA-512", "#preview")
    browser = site.open("topics/hostile")
    assert "<script>alert(1)</script>" in browser.text("tbody")
    browser.click("tbody td:nth-child(3) a")
    browser.sees(HTML, "dialog")
    for page in ("topics", "groups", "transactions", "topics/hostile/groups"):
        site.open(page)
    browser = site.open("groups")
    browser.enter("#search", "<img")
    browser.wait(lambda: HTML in browser.text("tbody"), "the group")
    browser.click("tbody a")
    browser.sees("hostile: 0")
    assert browser.script("return document.querySelectorAll('main img, main script').length") == 0
    assert browser.count("dialog") == 0, "a dialog does not outlive its page"
    consumer.close()
    browser.go(f"{site.address}/#/topics/{'%3Cscript%3E'}")
    browser.sees("topic '<script>' does not exist")


def test_an_address_keeps_what_a_page_shows(site: Site) -> None:
    site.create("kept")
    site.produce("kept", *(str(number) for number in range(30)))
    browser = site.open("topics")
    browser.enter("#search", "kept")
    browser.wait(lambda: "search=kept" in browser.script("return location.hash"), "the search")
    browser.click("[data-key=sort-size]")
    browser.wait(lambda: browser.count("th[aria-sort=descending]"), "the order")
    browser.click("tbody a")
    browser.sees("Newest records first")
    browser.script("history.back()")
    browser.wait(lambda: browser.count("th[aria-sort=descending]") and browser.count("tbody tr") == 1, "the way back")
    assert browser.script("return document.querySelector('#search').value") == "kept"
    browser = site.open("topics/kept/records?start=offset&offset=3&limit=25")
    assert browser.texts("tbody td:nth-child(5)") == [str(number) for number in range(3, 28)]
    browser.click("#after")
    browser.wait(lambda: browser.texts("tbody td:nth-child(5)") == ["28", "29"], "the next page")
    browser = site.open("groups")
    browser.script(
        "const search = document.querySelector('#search'); search.value = 'left';"
        "search.dispatchEvent(new Event('input')); location.hash = arguments[0];",
        "#/topics/kept/records?start=offset&offset=28",
    )
    browser.wait(lambda: browser.texts("tbody td:nth-child(5)") == ["28", "29"], "the next page")
    browser.script("return new Promise((resolve) => setTimeout(resolve, 250))")
    address = browser.script("return location.hash").removeprefix("#/")
    assert address.endswith("offset=28"), "a search of the page before has changed the address"
    site.open("overview")
    assert site.open(address).texts("tbody td:nth-child(5)") == ["28", "29"]
    browser = site.open("topics/kept/search?filter=offset+%3E+27")
    browser.sees("2 matches in 30 of 30 offsets")
    browser.enter("#filter", "nonsense = (")
    browser.click("#run")
    browser.sees("'nonsense' is no field")
    assert browser.text("#search-state") == ""


def test_a_record_has_an_address_and_neighbours(site: Site) -> None:
    site.create("linked")
    site.produce("linked", "one", "t\u202ewo\u200b", "")
    browser = site.open("topics/linked")
    assert browser.texts("tbody td:nth-child(5)") == ["empty", "tU+202EwoU+200B", "one"]
    browser.click("tbody tr:last-child td:nth-child(3) a")
    browser.sees("partition 0, offset 0", "dialog")
    browser.click("#next-record")
    browser.sees("partition 0, offset 1", "dialog")
    assert browser.text("dialog h2") == "Record 0-1"
    browser.click("#record-link")
    browser.wait(lambda: browser.count("dialog") == 0, "the end of the dialog")
    browser.sees("partition 0, offset 1")
    browser.script("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    browser.click("[data-key='copy-value']")
    browser.wait(lambda: browser.script("return window.copied") == "t\u202ewo\u200b", "the copy")
    browser.click("#next-record")
    browser.sees("partition 0, offset 2")
    assert browser.count("#next-record:enabled") == 0
    assert browser.script("return location.hash") == "#/topics/linked/records/0/2"


def test_a_broker_that_does_not_respond_and_what_does_not_exist_are_named(site: Site) -> None:
    browser = site.open("topics/missing")
    browser.sees("topic 'missing' does not exist")
    assert not browser.script("return document.querySelector('.skeleton').checkVisibility()")
    browser = site.open("overview")
    browser.script("window.fetched = window.fetch; window.fetch = () => Promise.reject(new TypeError('offline'));")
    browser = site.open("groups")
    browser.sees("The broker does not respond.")
    assert browser.text("#live") == "not current"
    browser.script("window.fetch = window.fetched")
    browser = site.open("topics")
    browser.click("#create-topic")
    browser.enter("#topic-name", "never-created")
    browser.click("#show-preview")
    browser.wait(lambda: browser.count("#apply:enabled"), "the preview")
    browser.script("window.fetch = () => Promise.reject(new TypeError('offline'))")
    browser.click("#apply")
    browser.sees("It may have made the change, or a part of it: look before you repeat it.", "#preview")
    assert browser.count("#apply:enabled") == 0
    browser.script("window.fetch = window.fetched")
    site.open("overview").sees("brokers alive")
    assert re.fullmatch(r"\d\d:\d\d:\d\d", browser.text("#live"))


def test_a_page_whose_refresh_takes_long_is_marked_until_it_is_read(site: Site) -> None:
    """The page's clock runs a hundred times as fast."""
    browser = site.open("overview")
    browser.script(
        "window.inTime = window.setTimeout; window.setTimeout = (run, ms) => window.inTime(run, ms / 100);"
        "window.fetched = window.fetch; window.held = [];"
        "window.fetch = (...request) => new Promise((resolve) => window.held.push(() => resolve(fetched(...request))));"
        "location.hash = '#/brokers';"
    )
    browser.wait(lambda: browser.text("#live") == "not current", "the mark")
    assert browser.count("#live.late") == 1
    browser.script("window.fetch = window.fetched; window.held.forEach((release) => release());")
    browser.wait(lambda: re.fullmatch(r"\d\d:\d\d:\d\d", browser.text("#live")), "the time of the refresh")
    assert browser.count("#live.late") == 0
    browser.script("window.setTimeout = window.inTime")
    site.open("overview")


LISTS = ("overview", "topics", "groups", "brokers", "partitions", "requests", "transactions", "security")
TABS = ("records", "search", "tail", "partitions", "groups", "config", "produce")


@pytest.fixture(scope="module")
def all_pages(site: Site) -> list[str]:
    """All pages, with content."""
    site.create("paged", 2)
    site.produce("paged", '{"a": "' + "long " * 40 + '"}', "text", b"\x00\xff")
    site.commit("paging", "paged", {0: 1})
    return [*LISTS, "groups/paging", "brokers/0", "connect/orders", *(f"topics/paged/{tab}" for tab in TABS)]


def test_pages_fit_have_contrast_and_are_reached_by_tab(site: Site, all_pages: list[str]) -> None:
    browser = site.browser
    for page in all_pages:
        browser.size(390, 844)  # charts are drawn for the width at which a page opens
        is_first = page == all_pages[0]
        site.load(page) if is_first else site.open(page)  # loaded, it has no focus yet
        assert browser.script(CURRENT_IN_VIEW), f"{page}: its link is out of view"
        check_looks(browser, page, "document.documentElement")
        check_tabs(browser, page, is_first=is_first)
    site.open("topics/paged")
    browser.click("tbody td:nth-child(3) a")
    browser.sees("Position", "dialog")
    check_looks(browser, "a record", "document.querySelector('dialog')")


def check_looks(browser: Browser, page: str, root: str) -> None:
    """At 390 and 1280 px, light and dark: no colour depends on the width."""
    for width, is_dark in ((390, False), (1280, True)):
        browser.size(width, 844, is_dark=is_dark)
        what = f"{page} at {width} px, {'dark' if is_dark else 'light'}"
        # Not innerWidth: a browser of a phone zooms out until the widest element fits, and innerWidth grows.
        assert browser.script(f"return {root}.scrollWidth") <= width, f"{what} is too wide"
        assert browser.script(TOO_FAINT) == [], what


def check_tabs(browser: Browser, page: str, *, is_first: bool) -> None:
    """Tab reaches every control in order, with a name and a visible focus."""
    wanted = browser.script(CONTROLS, TABS_MAX)
    assert [each for each in wanted if not each["name"]] == [], page
    first = 0
    if not is_first:  # the head is the same on all pages
        theme = next(at for at, each in enumerate(wanted) if each["id"] == "theme")
        browser.script("window.controls[arguments[0]].focus()", theme)
        first = theme + 1
    browser.script(NOTE_FOCUS)
    times = browser.count("input[type=datetime-local]")
    browser.press(*["Tab"] * (len(wanted) - first + PARTS_OF_A_TIME * times))
    focused = browser.script("return window.focused")
    for at, found in enumerate(focused[: len(wanted) - first], first):
        assert found["at"] == at, f"{page}: {found}, expected {wanted[at]}"
        assert found["isVisible"], f"{page}: {found}"
    assert len(focused) >= len(wanted) - first, f"{page}: expected {wanted[first + len(focused) :]}"


def test_pages_are_used_by_keyboard_alone(site: Site) -> None:
    site.create("keyed")
    site.produce("keyed", "one", "two")
    browser = site.open("topics")
    focus = "document.querySelector(arguments[0]).focus()"
    browser.script(focus, "#search")
    browser.type("keyed")
    browser.wait(lambda: browser.count("tbody tr") == 1, "one topic")
    browser.script(focus, "[data-key=sort-size]")
    browser.press("Enter")
    browser.wait(lambda: browser.count("th[aria-sort=descending]"), "the order")
    assert browser.script("return document.activeElement.dataset.key") == "sort-size", "the focus stays"
    browser.script(focus, "tbody a")
    browser.press("Enter")
    browser.sees("Newest records first")
    assert browser.script("return document.activeElement.id") == "main", "the focus moves to the new page"
    browser.script(focus, "tbody td:nth-child(3) a")
    browser.press("Enter")
    browser.sees("Position", "dialog")
    assert browser.script("return document.querySelector('dialog').contains(document.activeElement)")
    browser.press("Escape")
    browser.wait(lambda: browser.count("dialog") == 0, "the end of the dialog")
    assert browser.script("return document.activeElement.textContent") == "1", "the focus returns to the offset"
    browser.script(focus, ".skip")
    assert browser.script("return document.querySelector('.skip').getBoundingClientRect().left >= 0")
    browser.press("Enter")
    assert browser.script("return document.activeElement.id") == "main"


CURRENT_IN_VIEW = """
return [...document.querySelectorAll("nav [aria-current], .tabs [aria-current]")].every((each) => {
  const box = each.getBoundingClientRect();
  return box.left >= 0 && box.right <= innerWidth;
});
"""

TABS_MAX = 40
"""A page of settings has hundreds of buttons, which are all alike."""

CONTROLS = """
const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")];
window.controls = all.filter((each) => each.checkVisibility() && !each.disabled).slice(0, arguments[0]);
return window.controls.map((each) => ({ id: each.id, name: (each.ariaLabel ?? each.getAttribute("aria-label") ?? "") || (each.labels?.[0]?.textContent ?? "") || each.textContent.trim() }));
"""  # noqa: E501 - a script

PARTS_OF_A_TIME = 7
"""The stops in a field of a time beyond the first."""

NOTE_FOCUS = """
window.focused = [];
let last = document.activeElement;
document.removeEventListener("focusin", window.noteFocus);
window.noteFocus = ({ target }) => {
  if (target === last) return;
  last = target;
  const style = getComputedStyle(target);
  const isVisible = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  window.focused.push({ at: window.controls.indexOf(target), what: target.outerHTML.slice(0, 80), isVisible });
};
document.addEventListener("focusin", window.noteFocus);
"""

TOO_FAINT = """
const parsed = (text) => { const parts = text.match(/[\\d.]+/g).map(Number); return parts.length > 3 && parts[3] === 0 ? null : parts; };
const luminance = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const ground = (element) => { for (let each = element; each; each = each.parentElement) { const found = parsed(getComputedStyle(each).backgroundColor); if (found) return found; } return [255, 255, 255]; };
const faint = [];
const texts = [...document.querySelectorAll("body *")].map((element) => [element, null]);
for (const element of document.querySelectorAll(":placeholder-shown")) texts.push([element, "::placeholder"]);
for (const [element, part] of texts) {
  const isText = part ||  [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!isText || element.closest("noscript, tbody tr:nth-child(n + 10)") || !element.checkVisibility()) continue;
  const style = getComputedStyle(element, part);
  const [a, b] = [luminance(parsed(element instanceof SVGElement ? style.fill : style.color)), luminance(ground(element))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < 4.5) faint.push([element.tagName, element.className?.baseVal ?? element.className, element.textContent.slice(0, 30), contrast.toFixed(2)]);
}
return faint;
"""  # noqa: E501 - a script
