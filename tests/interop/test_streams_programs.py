"""The books' Kafka Streams programs have the results of the Spark jobs on the same input.

Both are compared with the same plain computations: see `tests/spark_jobs/plain_results.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.interop.conftest import Server
from tests.interop.streams import StreamsHost
from tests.interop.streams_results import (
    OUTPUTS,
    PARTITIONS,
    PROGRAMS,
    WORDS,
    create_topics,
    has_all,
    read,
    send,
    settings,
)

GUARANTEES = {"once-or-more-": "at_least_once", "once-": "exactly_once_v2"}
DAY_MS = 86_400_000


class Ran(NamedTuple):
    """The programs with each guarantee, which still run, and the records of their outputs."""

    bootstrap: str
    host: StreamsHost
    messages: dict[str, list[Message]]


@pytest.fixture(scope="module")
def ran(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    for prefix in GUARANTEES:
        create_topics(server.bootstrap, prefix)
        send(server.bootstrap, prefix)
    with StreamsHost(tmp_path_factory.mktemp("programs"), *PROGRAMS) as host:
        applications = {f"{prefix}{program}": (prefix, program) for prefix in GUARANTEES for program in PROGRAMS}
        for application, (prefix, program) in applications.items():
            host.start(application, program, server.bootstrap, prefix, settings(GUARANTEES[prefix]))
        host.running(*applications)
        yield Ran(server.bootstrap, host, read(server.bootstrap, GUARANTEES, OUTPUTS, is_enough=has_all))
        host.end()


@pytest.mark.parametrize("prefix", GUARANTEES, ids=GUARANTEES.values())
@pytest.mark.parametrize("topic", OUTPUTS)
def test_the_results_equal_those_of_the_spark_job(topic: str, prefix: str, ran: Ran) -> None:
    messages = ran.messages[f"{prefix}{topic}"]
    OUTPUTS[topic].check(messages)
    assert len(messages) == OUTPUTS[topic].records, "each record counts once"


def test_a_query_returns_the_count_of_a_word_that_the_application_has_here(ran: Ran) -> None:
    application = "once-WordCount"
    assert ran.host.count(application, "counts", "municipal") == int(WORDS["municipal"])
    assert ran.host.count(application, "counts", "the") is None


def test_state_that_is_lost_is_restored_from_the_changelog(ran: Ran) -> None:
    application, prefix = "once-WordCount", "once-"
    ran.host.stop(application)
    ran.host.forget(application)
    ran.host.start(application, "WordCount", ran.bootstrap, prefix, settings(GUARANTEES[prefix]))
    ran.host.running(application)
    assert {word: ran.host.count(application, "counts", word) for word in WORDS} == {
        word: int(count) for word, count in WORDS.items()
    }


def test_internal_topics_have_the_settings_of_their_kind(ran: Ran) -> None:
    admin = AdminClient({"bootstrap.servers": ran.bootstrap})
    expected = {
        "once-WordCount-counts-repartition": ("delete", -1),
        "once-WordCount-counts-changelog": ("compact", None),
        # Records of windows leave after the window, its grace period and a day.
        "once-StockStatistics-KSTREAM-AGGREGATE-STATE-STORE-0000000002-changelog": (
            "compact,delete",
            DAY_MS + 15_000,
        ),
        "once-ClickEnrichment-once-profiles-STATE-STORE-0000000001-changelog": ("compact", None),
        # Twice the second between the two sides, their grace period and a day.
        "once-ClickEnrichment-KSTREAM-JOINTHIS-0000000010-store-changelog": ("delete", DAY_MS + 12_000),
        "once-ClickEnrichment-KSTREAM-OUTERSHARED-0000000010-store-changelog": ("compact", None),
    }
    known = admin.list_topics().topics
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in expected]
    for resource, described in admin.describe_configs(resources).items():
        found = described.result()
        policy, retention_ms = expected[resource.name]
        assert found["cleanup.policy"].value == policy, resource.name
        assert retention_ms is None or int(found["retention.ms"].value) == retention_ms, resource.name
        assert len(known[resource.name].partitions) == PARTITIONS
