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

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.support.broker import BrokerProcess
from tests.support.browser import Browser, open_browser
from tests.support.parts import skip_when_unavailable

HTML = "<img src=x onerror=alert(1)>"


class Site:
    """A broker with a console, a browser that shows it, and clients that produce to it."""

    def __init__(self, browser: Browser, bootstrap: str, address: str) -> None:
        self.browser = browser
        self.address = address
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        for future in self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values():
            future.result()

    def produce(self, topic: str, *values: bytes | str, partition: int = 0, **settings: object) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, **settings})
        for number, value in enumerate(values):
            producer.produce(topic, value, key=f"key-{number}", partition=partition, headers=[("source", b"test")])
        assert producer.flush(10) == 0

    def consumer(self, group: str, **settings: object) -> Consumer:
        return Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                         "enable.auto.commit": False, **settings})  # fmt: skip

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        consumer = self.consumer(group)
        consumer.commit(offsets=[TopicPartition(topic, *each) for each in offsets.items()], asynchronous=False)
        consumer.close()

    def open(self, page: str) -> Browser:
        """Show a page, and wait until it is complete."""
        browser = self.browser
        browser.script("delete document.body?.dataset.ready")
        browser.driver.get("about:blank")
        browser.driver.get(f"{self.address}/#/{page}")
        browser.wait(lambda: browser.script("return document.body?.dataset.ready ?? ''") == f"#/{page}", page)
        return browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("console")
    settings = {
        "metrics.http.listener": "127.0.0.1:0",
        "console.write.enable": "true",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
    }
    with skip_when_unavailable(), open_browser() as browser, BrokerProcess(folder, settings) as broker:
        found = re.search(r"metrics are served on port (\d+)", (folder / "server.log").read_text())
        assert found is not None
        yield Site(browser, f"127.0.0.1:{broker.port}", f"http://127.0.0.1:{found[1]}")


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
    browser.wait(lambda: len(browser.all("tbody tr")) == 4, "the records of partition 1")


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
    browser.wait(lambda: len(browser.all("tbody tr")) == 10, "the committed records")
    browser = site.open("groups/counting-group")
    browser.sees("oldest unread record")
    assert "13" in browser.text("tbody")


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
    browser.wait(lambda: browser.find("#run").text == "Cancel", "the button to cancel")
    browser.click("#run")
    browser.sees("Cancelled.")


def test_4_topics_have_sizes_and_groups_with_lag(site: Site) -> None:
    site.create("listed", 2, retention_ms="60000")
    site.produce("listed", *["x" * 100] * 30)
    site.commit("listing", "listed", {0: 10})
    browser = site.open("topics")
    browser.enter("#search", "liste")
    browser.wait(lambda: len(browser.all("tbody tr")) == 1, "one topic")

    def row() -> str:
        return str(browser.text("tbody tr"))

    browser.wait(lambda: "listing" in row() and "20 behind" in row(), "the group and its lag")
    assert "KiB" in row()
    browser = site.open("groups")
    browser.enter("#search", "listing")
    browser.wait(lambda: "20" in browser.text("tbody tr"), "the lag of the group")
    browser.click("tbody a")
    browser.sees("STOP")
    consumer = site.consumer("listing", **{"session.timeout.ms": 10_000})
    consumer.subscribe(["listed"])
    consumer.poll(5)
    browser = site.open("groups/listing")
    browser.sees("Stable")
    browser.sees("listed: 0, 1")
    consumer.close()


def test_5_offsets_are_reset_with_a_preview(site: Site) -> None:
    for topic in ("reset-a", "reset-b"):
        site.create(topic)
        site.produce(topic, *["x"] * 20)
        site.commit("resetting", topic, {0: 15})
    browser = site.open("groups/resetting")
    browser.click("#reset")
    browser.click("#strategy option[value=shift]")
    browser.enter("#reset-value", "-5")
    assert not browser.find("#apply").is_enabled()
    browser.click("#show-preview")
    browser.sees("Preview: nothing was changed yet", "#preview")
    assert browser.texts("#preview td:nth-child(4)") == ["10", "10"]
    browser.click("#apply")
    browser.sees("The offsets were reset.", "#preview")
    committed = site.consumer("resetting").committed([TopicPartition("reset-a", 0), TopicPartition("reset-b", 0)], 10)
    assert [each.offset for each in committed] == [10, 10]
    browser = site.open("groups/resetting")
    browser.click("#delete-topic")
    browser.click("dialog button.danger")
    browser.wait(lambda: "reset-a" not in browser.text("main"), "the deleted offsets")


def test_7_rates_and_latencies_are_charts(site: Site) -> None:
    site.create("rated")
    browser = site.open("requests")
    browser.wait(lambda: browser.script("return document.querySelectorAll('svg.chart path').length") > 0, "a line")
    titles = browser.text("main")
    assert all(each in titles for each in ("Records in per second", "Latency, 99th percentile", "Event loop lag"))
    assert browser.script("return document.querySelector('svg.chart').getAttribute('aria-label')").startswith("Records")
    browser.click("#window option[value=day]")
    browser.sees("Requests of broker 0")
    assert "Metadata" in browser.text("tbody")


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
    browser.click("tbody button")
    browser.sees("origin", "dialog")
    browser.click("#resend")
    browser.sees("Produced to produced, partition 0, offset 1.", "#toast")
    producer = Producer({"bootstrap.servers": site.bootstrap})
    producer.produce("dead-letters", b"late", headers=[("x-original-topic", b"produced")])
    producer.flush(10)
    browser = site.open("topics/dead-letters/produce")
    browser.enter("#dead-records", "0 0")
    browser.click("#redrive")
    browser.sees("produced, partition 0, offset 2")


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
    browser.click("tbody tr:last-child button")
    browser.sees('{\n  "big": 12345678901234567890,\n  "list": [\n    1,\n    2\n  ]\n}', "dialog")
    browser.click("dialog button[data-key=hex]")
    browser.sees("7b 22 62 69 67", "dialog")
    assert "00 01 ff" in browser.text("tbody")


def test_11_what_is_shown_is_exported(site: Site) -> None:
    site.create("exported")
    site.produce("exported", "a,b", '=cmd()|"x"')
    browser = site.open("topics/exported")

    def downloaded(name: str) -> str:
        path = browser.downloads / name
        browser.wait(path.exists, name)
        return path.read_text()

    browser.click("#export-csv")
    rows = list(csv.DictReader(downloaded("exported.csv").splitlines()))
    assert [each["value"] for each in rows] == ['\'=cmd()|"x"', "a,b"]
    browser.click("#export-json")
    lines = [json.loads(line) for line in downloaded("exported.jsonl").splitlines()]
    assert [each["value"]["text"] for each in lines] == ['=cmd()|"x"', "a,b"]


def test_12_settings_show_their_source_and_change(site: Site) -> None:
    site.create("configured", retention_ms="60000")
    browser = site.open("topics/configured/config")
    assert browser.text("tbody tr").startswith("retention.ms")
    browser.click("button[aria-label='Change retention.ms']")
    browser.enter("#new-value", "nonsense")
    browser.click("#save-config")
    browser.sees("nonsense", "dialog .notice")
    browser.enter("#new-value", "120000")
    browser.click("#save-config")
    browser.wait(lambda: "120000" in browser.text("tbody tr"), "the new value")
    resource = ConfigResource(ResourceType.TOPIC, "configured")
    (future,) = site.admin.describe_configs([resource]).values()
    assert future.result()["retention.ms"].value == "120000"


def test_13_brokers_have_directories_and_controller_events(site: Site) -> None:
    site.create("event")
    browser = site.open("brokers")
    browser.sees("controller")
    for text in ("free", "Event loop idle", "Waiting requests", "Produce", "CreateTopics"):
        browser.sees(text)
    browser.click("a[href='#/brokers/0']")
    browser.sees("metrics.http.listener")


def test_13_the_overview_shows_the_machine(site: Site) -> None:
    browser = site.open("overview")
    for text in ("Machine of this broker", "Load", "Processors", "available", "% of the inodes", "Open files"):
        browser.sees(text)


def test_14_partitions_show_their_spread(site: Site) -> None:
    site.create("spread", 4)
    browser = site.open("partitions")
    for text in ("Leader skew", "No partition moves", "Every partition is in order"):
        browser.sees(text)
    browser = site.open("topics/spread/partitions")
    assert len(browser.all("tbody tr")) == 4


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
    browser = site.open("topics/hostile")
    assert "<script>alert(1)</script>" in browser.text("tbody")
    browser.click("tbody button")
    browser.sees(HTML, "dialog")
    for page in ("topics", "groups", "transactions", "topics/hostile/groups"):
        site.open(page)
    browser = site.open("groups")
    browser.enter("#search", "<img")
    browser.wait(lambda: HTML in browser.text("tbody"), "the group")
    browser.click("tbody a")
    browser.sees("hostile: 0")
    assert browser.script("return document.querySelectorAll('main img, main script').length") == 0
    consumer.close()
    browser.driver.get(f"{site.address}/#/topics/{'%3Cscript%3E'}")
    browser.sees("topic '<script>' does not exist")


@pytest.mark.parametrize(("width", "is_dark"), [(1280, False), (390, True)])
def test_pages_fit_and_have_contrast(site: Site, width: int, is_dark: bool) -> None:
    browser = site.browser
    browser.size(width, 844, is_dark=is_dark)
    for page in ("overview", "topics", "groups", "brokers", "partitions", "requests", "transactions", "security"):
        site.open(page)
        assert browser.script("return document.documentElement.scrollWidth <= innerWidth"), f"{page} is too wide"
        assert browser.script(TOO_FAINT) == [], page


def test_the_keyboard_reaches_everything(site: Site) -> None:
    site.create("keyed")
    browser = site.open("topics")
    reached = browser.script(
        "return [...document.querySelectorAll('a, button, input, select')].filter(each => each.tabIndex < 0).length"
    )
    assert reached == 0
    unnamed = browser.script(
        "return [...document.querySelectorAll('button, input, select')].filter(each => "
        "!(each.textContent.trim() || each.labels?.length || each.ariaLabel)).length"
    )
    assert unnamed == 0


TOO_FAINT = """
const parsed = (text) => { const parts = text.match(/[\\d.]+/g).map(Number); return parts.length > 3 && parts[3] === 0 ? null : parts; };
const luminance = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const ground = (element) => { for (let each = element; each; each = each.parentElement) { const found = parsed(getComputedStyle(each).backgroundColor); if (found) return found; } return [255, 255, 255]; };
const faint = [];
for (const element of document.querySelectorAll("body *")) {
  const isText = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!isText || !element.checkVisibility() || element.closest("noscript")) continue;
  const style = getComputedStyle(element);
  const [a, b] = [luminance(parsed(element instanceof SVGElement ? style.fill : style.color)), luminance(ground(element))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < 4.5) faint.push([element.tagName, element.className?.baseVal ?? element.className, element.textContent.slice(0, 30), contrast.toFixed(2)]);
}
return faint;
"""  # noqa: E501 - a script
