"""Makes the pictures of docs/console.md: pages of a broker that looks as after an hour of work.

    PYTHONPATH=. python -m tests.broker.console.pictures [--output docs/images | --all FOLDER]

Owns that state. With `--all` it writes every page and the dialogs at 1280 and 390 pixels, light and dark, for a person
to inspect.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import random
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from urllib.request import Request, urlopen

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from PIL import Image

from base.pause import never, whole
from broker.console.rates import HOUR_SAMPLES, INTERVAL_MS, Counts, Progress
from broker.metrics.metric import Distribution
from milena_broker.testing import SchemaRegistry
from tests.broker.console.connect_worker import JAVA_TRACE, fake_worker
from tests.broker.console.site import Hosted, hosted
from tests.support.browser import Browser, open_browser
from tests.support.loop_thread import loop_thread

MINUTE_MS = 60_000
COLOURS = 128
LOOP_LAG_S = {"0.50": 0.0003, "0.75": 0.0005, "0.95": 0.0009, "0.98": 0.0012, "0.99": 0.0014, "0.999": 0.0061}
TOPICS = {"orders": 6, "payments": 3, "page-views": 12, "customers": 1, "shipments": 3}
PICTURES = {"console-overview": "overview", "console-records": "topics/orders", "console-group": "groups/billing"}
PAGES = (
    "overview", "topics", "topics/orders", "topics/orders/records/0/5", "topics/orders/search", "topics/orders/tail",
    "topics/orders/partitions", "topics/orders/groups", "topics/orders/config", "topics/orders/produce", "groups",
    "groups/billing", "brokers", "brokers/0", "partitions", "requests", "transactions", "connect",
    "connect/orders-sink", "schemas", "schemas/orders-value", "security",
)  # fmt: skip
DIALOGS = {
    "topics": ("create-topic",),
    "topics/orders": ("add-partitions", "empty-topic", "delete-topic"),
    "groups/billing": ("reset", "delete-group"),
    "security": ("set-user", "set-quotas"),
}
"""Buttons that open a dialog, by page."""
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "order", "type": "long"}, {"name": "amount", "type": "double"}],
    }
)
SIZES = ((1280, False), (1280, True), (390, False), (390, True))


def fill(site: Hosted) -> None:
    """Create topics, records, groups, transactions and an hour of history."""
    chance = random.Random(7)
    for name, partitions in TOPICS.items():
        site.create(name, partitions)
    producer = Producer({"bootstrap.servers": site.bootstrap, "linger.ms": 50})
    now_ms = int(time.time() * 1000)
    for name in TOPICS:
        for number in range(400):
            order = {
                "order": 10_000 + number,
                "customer": f"c-{chance.randrange(900)}",
                "amount": chance.randrange(5_000) / 100,
            }
            producer.produce(
                name,
                json.dumps(order),
                key=f"{name[:-1]}-{10_000 + number}",
                timestamp=now_ms - 300 * (400 - number),
                headers=[("source", chance.choice((b"web", b"shop", b"mobile")))],
            )
    assert producer.flush(30) == 0
    lags = {("billing", name, part): 25 + 7 * part for name in ("orders", "payments") for part in range(TOPICS[name])}
    site.commit("billing", "orders", dict.fromkeys(range(TOPICS["orders"]), 20))
    site.commit("billing", "payments", dict.fromkeys(range(TOPICS["payments"]), 100))
    site.commit("reports", "page-views", {0: 10})
    transactional = Producer({"bootstrap.servers": site.bootstrap, "transactional.id": "payments-writer-1"})
    transactional.init_transactions(10)
    transactional.begin_transaction()
    transactional.produce("payments", b"pending")
    transactional.flush(10)
    site.call(lambda: remember(site, lags, chance, now_ms))
    site.console.measures = replace(
        site.console.measures,
        started_ms=now_ms - 61 * MINUTE_MS,
        loop_lag=lambda: Distribution(40_000, 20.0, LOOP_LAG_S),
        loop_idle_percent=lambda: 83.0,
    )


def remember(site: Hosted, lags: dict[tuple[str, str, int], int], chance: random.Random, now_ms: int) -> None:
    """Give the console the history of an hour."""
    committed = dict.fromkeys(lags, 0)
    for minute in range(60):
        progress = {}
        for key, lag in lags.items():
            wave = 1 + math.sin(minute / 9 + key[2])
            committed[key] += round(400 * (1.2 - 0.4 * wave)) + chance.randrange(60)
            progress[key] = Progress(max(0, round(lag * wave) + chance.randrange(4)), committed[key])
        site.console.group_history.record(progress, now_ms - MINUTE_MS * (59 - minute))
    counts = dict.fromkeys(TOPICS, Counts(0, 0, 0))
    requests = 0
    for sample in range(HOUR_SAMPLES + 1):
        wave = 1 + 0.5 * math.sin(sample / 40) + 0.2 * chance.random()
        for place, (name, before) in enumerate(list(counts.items())):
            new = round(2_000 * wave / (place + 1))
            counts[name] = Counts(before.messages_in + new, before.bytes_in + 180 * new, before.bytes_out + 210 * new)
        requests += round(3_000 * wave)
        totals = {
            "messages_in": sum(each.messages_in for each in counts.values()),
            "bytes_in": sum(each.bytes_in for each in counts.values()),
            "bytes_out": sum(each.bytes_out for each in counts.values()),
            "requests": requests,
            "Produce_requests": requests // 3,
            "FetchConsumer_requests": requests // 2,
        }
        latencies = {
            "Produce_p99_us": round(900 * wave + 400 * chance.random()),
            "Metadata_p99_us": round(300 * wave),
            "OffsetCommit_p99_us": round(700 * wave),
            "loop_lag_p99_us": round(500 * wave + 300 * chance.random()),
        }
        at_ms = now_ms - INTERVAL_MS * (HOUR_SAMPLES - sample)
        whole(site.console.rates.record(counts, totals, latencies, at_ms, never))


def save(browser: Browser, path: Path, *, height_max: int = 4_000) -> None:
    """Save the whole page as it is."""
    picture = Image.open(io.BytesIO(browser.picture(height_max))).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def make(browser: Browser, folder: Path) -> None:
    """Write the pictures of docs/console.md to a folder."""
    with (
        tempfile.TemporaryDirectory() as data,
        hosted(browser, Path(data, "data"), {"console.write.enable": "true"}) as site,
    ):
        fill(site)
        browser.size(1280, 900)
        for name, page in PICTURES.items():
            site.open(page)
            save(browser, folder / f"{name}.png", height_max=900)
        browser.size(1280, 560)
        site.open("topics/payments")
        browser.click("#delete-topic")
        browser.wait(lambda: browser.count("#apply:enabled"), "the preview")
        save(browser, folder / "console-change.png", height_max=560)


def make_all(browser: Browser, folder: Path) -> None:
    """Write every page and the dialogs, in all sizes and schemes, to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        SchemaRegistry() as registry,
        loop_thread() as thread,
        thread.entered(fake_worker()) as worker,
    ):
        worker.add("orders-sink", "sink", "RUNNING", ("RUNNING", None), ("FAILED", JAVA_TRACE))
        post = Request(f"{registry.url}/subjects/orders-value/versions", json.dumps({"schema": SCHEMA}).encode())
        urlopen(post).close()
        settings = {
            "console.write.enable": "true",
            "console.connect.url": worker.url,
            "console.schema.registry.url": registry.url,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        with hosted(browser, Path(data, "data"), settings) as site:
            fill(site)
            secure(site)
            for width, is_dark in SIZES:
                end = f"{width}-{'dark' if is_dark else 'light'}.png"
                browser.size(width, 900, is_dark=is_dark)
                for page in PAGES:
                    site.open(page)
                    save(browser, folder / f"{page.replace('/', '-')}-{end}")
                for page, buttons in DIALOGS.items():
                    for button in buttons:
                        site.load(page)
                        browser.click(f"#{button}")
                        browser.wait(lambda: browser.count("dialog"), "the dialog")
                        save(browser, folder / f"dialog-{button}-{end}", height_max=900)


def secure(site: Hosted) -> None:
    """Create access rules, a user and quotas."""
    rule = AclBinding(
        ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:billing", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    user = UserScramCredentialUpsertion("billing", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"secret")
    for future in (*site.admin.create_acls([rule]).values(), *site.admin.alter_user_scram_credentials([user]).values()):
        future.result()


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the pictures of docs/console.md.")
    parser.add_argument("--output", type=Path, default=Path("docs/images"))
    parser.add_argument("--all", type=Path, help="write every page in all sizes and schemes to this folder instead")
    options = parser.parse_args()
    with open_browser() as browser:
        if options.all:
            make_all(browser, options.all)
        else:
            make(browser, options.output)


if __name__ == "__main__":
    main()
