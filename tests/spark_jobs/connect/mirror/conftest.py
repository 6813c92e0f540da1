"""Two brokers with authorizers, of which everyone is a superuser. Each test uses its own topics and groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.spark_jobs.connect.mirror.flows import Flow
from tests.support.broker import BrokerProcess

SETTINGS: Mapping[str, str] = {
    "offsets.topic.num.partitions": "1",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("mirror-source"), SETTINGS) as process:
        yield process


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("mirror-target"), SETTINGS) as process:
        yield process


@pytest.fixture
def flow(source: BrokerProcess, target: BrokerProcess) -> Iterator[Flow]:
    """A flow with aliases and topics of its own."""
    with Flow(source.bootstrap, target.bootstrap) as found:
        yield found
