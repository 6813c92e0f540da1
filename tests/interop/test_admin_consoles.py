"""The calls of AKHQ and Kafbat UI, web consoles on Kafka's Java client, have the same results as on Kafka."""

from __future__ import annotations

from tests.interop.conftest import RunJava, Server

# As printed with Apache Kafka 3.9.1; the test runs there as well.
EXPECTED = """\
nodes: 1 0 [CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE]
version: 3.9-IV0
deletes: true
acls: SecurityDisabledException
features: none
log dirs: 1
quotas: none
listed: true
described: 2 false
retention: 3600000 DYNAMIC_TOPIC_CONFIG 1 true
offsets: {0=0, 1=0}
offsets: {0=3, 1=3}
ends: {0=3, 1=3}
browsed: 6
by time: 2
producers: true
groups: true
group: Empty 0 0
committed: 1 0
offsets deleted: none
group deleted: GroupIdNotFoundException
group deleted again: GroupIdNotFoundException
replaced: none
set: none
overrides: [cleanup.policy=compact, segment.ms=600000]
widened: none
moved: none
quota: none
quota again: {producer_byte_rate=1024.0}
quota removed: none
topic deleted: none
"""


def test_the_calls_of_web_consoles_return_what_kafka_returns(server: Server, run_java: RunJava) -> None:
    lines = run_java("AdminConsoles", server.bootstrap, "shown-in-a-console", version="3.9.1")
    assert "\n".join(lines) + "\n" == EXPECTED
