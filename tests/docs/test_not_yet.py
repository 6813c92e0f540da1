"""docs/not-yet.md lists exactly the APIs that are not served."""

import re
from pathlib import Path

from broker.requests.routes import TABLE
from protocol.api import APIS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "not-yet.md"
# Listed and refused, as by Kafka in ZooKeeper mode.
REFUSED = {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "Envelope"}


def test_every_api_that_is_not_served_is_named_with_a_reason() -> None:
    section = PAGE.read_text().split("## Requests")[1].split("##")[0]
    rows = re.findall(r"^\| ([A-Z][A-Za-z, ]+) \| (.+) \|$", section, re.MULTILINE)
    named = {name.strip() for names, _ in rows for name in names.split(",")} - {"API"}
    missing = {api.name for key, api in APIS.items() if key not in TABLE}
    assert named - REFUSED == missing
    assert all(reason.strip() for _, reason in rows)
