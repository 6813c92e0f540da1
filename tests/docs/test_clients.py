"""docs/clients.md says of every request of Kafka 4.x which versions a broker of its own serves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

from protocol.api import APIS
from tests.support import apache_kafka
from tests.support.parts import skip_when_unavailable

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"


def requests_of_kafka() -> Iterator[tuple[int, str, int]]:
    """Yield key, name and newest version of each request that brokers of the newest Kafka serve."""
    version = apache_kafka.CLIENT_VERSIONS[-1]
    with skip_when_unavailable():
        jars = apache_kafka.client_jars(version)
    with ZipFile(jars / f"kafka-clients-{version}.jar") as files:
        for path in files.namelist():
            if re.fullmatch(r"common/message/\w+Request\.json", path):
                schema = json.loads(re.sub(r'(?m)^\s*//.*$|\s//[^"\n]*$', "", files.read(path).decode()))
                if "broker" in schema.get("listeners", ()):
                    newest = int(schema["validVersions"].rpartition("-")[2])
                    yield schema["apiKey"], schema["name"].removesuffix("Request"), newest


def test_every_request_of_kafka_4_is_in_the_table() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Requests of Kafka 4.x\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([A-Z][A-Za-z, ]+) \| (all|none|to \d+) \| (.*)\|$", section, re.MULTILINE)
    shown = {name: versions for names, versions, _ in rows for name in names.split(", ")}
    assert shown == {name: served(key, newest) for key, name, newest in requests_of_kafka()}
    assert all(why for _, versions, why in rows if versions != "all")


def served(key: int, newest: int) -> str:
    if key not in APIS:
        return "none"
    ours = APIS[key].versions[-1]
    return "all" if ours >= newest else f"to {ours}"
