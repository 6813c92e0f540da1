"""Captured conversations of many clients with Apache Kafka 3.9.1: Milena's responses have the same fields and codes.

The capture holds at most three examples of every request a client made, so some responses depend on what was left out
of it: those are listed. A sample without them must agree whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from confluent_kafka.admin import AdminClient, NewTopic

from broker.requests.routes import TABLE
from protocol.api import APIS
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest
from tests.replay.exchange import Exchange, captured_exchanges, topic_names
from tests.replay.replay import Replay
from tests.replay.translation import Translation
from tests.support.broker import BrokerProcess
from tests.support.wire_client import WireClient

LATEST = -1
COMPACTED = {"cleanup.policy": "compact"}
# Topic -> partitions and configs. The capture's cluster had them before, or made them with three replicas.
TOPICS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "wire": (2, {}),
    "wirekp": (2, {}),
    "golden": (2, {}),
    "orders": (2, {}),
    "events": (3, {}),
    "assigned": (4, {}),
    "bigt": (1, {}),
    "cf1": (3, {}),
    "golden-compact": (1, COMPACTED),
    "golden-compact-nodelete": (1, COMPACTED),
}
SETTINGS = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.coordinator.rebalance.protocols": "classic",
}

THREE_BROKERS = "speaks of brokers or replicas that one broker does not have"
NO_AUTHORIZER = "needs an authorizer"
LEFT_OUT = "goes by requests that the capture left out"
ORDER = "goes by a request of another connection; the order between connections was not captured"
LOADING = "Kafka was still making its transaction log, or writing markers, and asked clients to retry"
SETTING = "their cluster, or the topic that ours has instead, had settings of its own"
EXPLAINED: Mapping[str, str] = {
    identity: reason
    for reason, identities in {
        THREE_BROKERS: "23.2 112.8 124.2 146.3 187.2 260.2 264.2 801.3 801.4",
        NO_AUTHORIZER: "59.2 65.2 246.2 248.2 250.2 801.13 801.14 801.15",
        LEFT_OUT: "133.8 200.2 341.8 352.8 387.2 395.3 414.5 425.5 438.3 824.2 887.20 921.2 997.2",
        ORDER: "137.2 137.3 429.4 554.2 555.2 570.2 571.2 585.2 586.2 600.2 601.2 616.2 795.2",
        LOADING: "276.2 406.10 417.10 427.8 564.2",
        SETTING: "206.3 365.2 367.2 593.2 608.2 622.3 801.5",
    }.items()
    for identity in identities.split()
}
# Of the sampled clients: requests whose ids or offsets come from requests that the capture left out.
SAMPLED_CLIENTS = (
    "java-0.8.2.2", "java-0.9.0.1", "java-0.10.2.2", "java-1.1.1", "java-2.8.2", "java-3.9.1",
    "kafka-python-3.0.12-api0.8.2", "kafka-python-3.0.12-apiauto", "aiokafka-0.14.0", "kcat-1.7",
)  # fmt: skip
NOT_SAMPLED = {
    "429.2", "439.5", "528.2", "614.5", "619.4", "622.5", "777.4", "778.2", "781.7", "782.3", "782.6", "782.8",
    "782.15", "782.16", "792.4", "793.2", "793.3", "793.4",
}  # fmt: skip
# Responses that list everything that ever happened: only what stands beside the lists is compared.
# fmt: off
INVENTORIES = {
    "DescribeClientQuotas", "DescribeGroups", "DescribeLogDirs", "DescribeProducers", "DescribeUserScramCredentials",
    "ListGroups", "ListTransactions",
}
# fmt: on


class OurWorld:
    """What the broker at `port` has, asked when it is needed."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._topic_ids: dict[str, UUID] = {}

    def log_end(self, topic: str, partition: int) -> int:
        asked = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
        end: int = self._client.ask(request, 2).topics[0].partitions[0].offset
        return end

    def topic_id(self, topic: str) -> UUID:
        if topic not in self._topic_ids:
            response = self._client.ask(MetadataRequest(topics=None), 12)
            self._topic_ids.update((described.name, described.topic_id) for described in response.topics)
        return self._topic_ids[topic]


@contextmanager
def replay(folder: Path, exchanges: list[Exchange]) -> Iterator[Replay]:
    with (
        BrokerProcess(folder, SETTINGS, broker_id=1) as broker,
        WireClient(broker.port) as client,
        Replay(broker.port, Translation(topic_names(exchanges), OurWorld(client))) as running,
    ):
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        wanted = [NewTopic(name, partitions, 1, config=dict(configs)) for name, (partitions, configs) in TOPICS.items()]
        for created in admin.create_topics(wanted).values():
            created.result()
        yield running


def unexplained(exchange: Exchange, differences: Iterable[str]) -> list[str]:
    if exchange.identity in EXPLAINED:
        return []
    return [f"{exchange.label}: {line}" for line in differences if not _goes_by_history(exchange, line)]


def _goes_by_history(exchange: Exchange, line: str) -> bool:
    """Only in a list of everything that exists, which is not compared, or of what is newer than Kafka 3.9."""
    path = line.partition(": ")[0]
    name = exchange.api.name
    if name == "ApiVersions" and path.startswith(("supported_features", "finalized_features")):
        return True
    if name == "ApiVersions":
        position, _, field = path.removeprefix("api_keys[").partition("]")
        listed = exchange.response().api_keys
        if int(position) >= len(listed):
            return True  # Kafka does not list it
        api = APIS[listed[int(position)].api_key]
        return field == ".max_version" and bool(api.newer)
    is_inventory = name in INVENTORIES or (name == "Metadata" and not exchange.request().topics)
    return is_inventory and "[" in path


def test_sample_of_every_client_gets_valid_responses(tmp_path: Path) -> None:
    exchanges = captured_exchanges()
    sample = [
        exchange
        for exchange in exchanges
        if exchange.client in SAMPLED_CLIENTS and exchange.identity not in EXPLAINED.keys() | NOT_SAMPLED
    ]
    with replay(tmp_path, sample) as running:
        results = list(running.run(sample))
    assert not [line for exchange, found in results for line in unexplained(exchange, found)]
    assert not running.untold
    assert len(results) == len(sample) == 150


def test_whole_capture_gets_valid_responses(tmp_path: Path) -> None:
    exchanges = captured_exchanges()
    served = [exchange for exchange in exchanges if exchange.header.api_key in TABLE]
    with replay(tmp_path, exchanges) as running:
        results = list(running.run(served))
    assert not [line for exchange, found in results for line in unexplained(exchange, found)]
    assert len(results) > 600
