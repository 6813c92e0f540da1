"""One broker for all client tests; each test uses its own topics and groups."""

import itertools
import resource
import time
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.broker import BrokerProcess

REFUSAL_WAIT_S = 30.0

_numbers = itertools.count()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker"), {"num.partitions": "4"}, is_measured=True) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A new topic name."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A new group id."""
    return f"group-{next(_numbers)}"


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """As many connections as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def assert_not_served(settings: Mapping[str, object]) -> None:
    """Let a client of librdkafka connect until it reports that no broker serves it."""
    errors: list[KafkaError] = []
    client = AdminClient({**settings, "error_cb": errors.append})
    give_up_s = time.monotonic() + REFUSAL_WAIT_S
    while KafkaError._ALL_BROKERS_DOWN not in [error.code() for error in errors]:
        assert time.monotonic() < give_up_s, errors
        with pytest.raises(KafkaException):
            client.list_topics(timeout=0.1)
        client.poll(0)
