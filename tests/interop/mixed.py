"""A cluster in which brokers of Milena and of Apache Kafka share ZooKeeper, topics and data directories.

Owns: which broker is of which side, giving a role to a broker, replacing a broker by one of the other side, and the
comparison of what the replicas have on their disks. Must not know what tests do with the cluster.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.batch import batches
from protocol.schema import ZERO_UUID
from storage.disk.checkpoints import read_leader_epochs, read_offsets, read_partition_metadata
from storage.disk.files import OsFiles
from storage.disk.names import LEADER_EPOCH_CHECKPOINT
from tests.support.apache_kafka import ApacheKafkaProcess
from tests.support.broker import BrokerProcess
from tests.support.cluster import Broker, Cluster, Coordination, log_bytes, milena_broker
from tools.client.admin_client import TRANSACTION, AdminClient, raise_for
from tools.client.bootstrap import Endpoint
from tools.client.client_security import client_security

MILENA, KAFKA = "milena", "kafka"
SIDE_OF: Mapping[int, str] = {1: MILENA, 2: MILENA, 3: KAFKA}
"""Milena has two brokers, so that one of them can fail and the other has another role."""
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
HIGH_WATERMARKS = "replication-offset-checkpoint"
TIMEOUT_MS = 30_000
SETTINGS: Mapping[str, str] = {
    # A busy machine must end no session. Those of killed brokers are ended by `end_session`.
    "zookeeper.session.timeout.ms": "20000",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "100",
    # A leader of Kafka asks the controller that it knew last, which a test may have halted since.
    "controller.socket.timeout.ms": "3000",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.num.partitions": "6",
}
SECURED: Mapping[str, str] = {
    # Clients without a login, and the brokers, may do everything; users may do what ACLs allow.
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "delegation.token.secret.key": "of all brokers",
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}
_COMPLAINT = re.compile(
    r"traceback|unexpected|unhandled|uncaught|unsupported|malformed|corrupt|inconsistent|cannot be decoded"
    r"|schemaexception|\binvalid(?! credentials)|out of order|unclean shutdown|without a controlled shutdown",
    re.IGNORECASE,
)


class MixedCluster(Cluster):
    """Three brokers; a context manager that starts and stops all."""

    def __init__(
        self,
        folder: Path,
        coordination: Coordination,
        sides: Mapping[int, str] = SIDE_OF,
        protocol: str = "3.9",
    ) -> None:
        """`protocol` is the value of `inter.broker.protocol.version`."""
        self.side_of = dict(sides)
        self.has_topic_ids = tuple(map(int, protocol.split("."))) >= (2, 8)
        self._read: dict[Path, int] = {}
        super().__init__(
            folder,
            len(self.side_of),
            {**SETTINGS, "inter.broker.protocol.version": protocol},
            self._new_of_its_side,
            coordination=coordination,
        )

    def _new_of_its_side(self, broker_id: int, folder: Path, connect: str, settings: Mapping[str, str]) -> Broker:
        secured = {
            **settings,
            **SECURED,
            "listeners": "PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:0",
            "broker.rack": f"rack-{broker_id}",
        }
        if self.side_of[broker_id] == MILENA:
            return milena_broker(broker_id, folder, connect, secured)
        return ApacheKafkaProcess(folder, connect, broker_id=broker_id, overrides=secured, log_level="INFO")

    @contextmanager
    def nodes(self) -> Iterator[KazooClient]:
        """Yield a client of ZooKeeper."""
        client = KazooClient(self.zookeeper.connect)
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def admin(self) -> AbstractContextManager[AdminClient]:
        """Return a client of all brokers."""
        return self.admin_of(*self.running)

    @contextmanager
    def admin_of(self, *broker_ids: int) -> Iterator[AdminClient]:
        endpoints = [Endpoint("127.0.0.1", self.brokers[broker_id].port) for broker_id in broker_ids]
        with AdminClient(endpoints, timeout_ms=TIMEOUT_MS) as client:
            yield client

    def login_address(self, broker_id: int) -> str:
        """Return the address of a broker's listener for users, from its registration."""
        with self.nodes() as client:
            registration = json.loads(client.get(f"/brokers/ids/{broker_id}")[0])
        (url,) = (it for it in registration["endpoints"] if it.startswith("SASL_PLAINTEXT://"))
        return str(url.removeprefix("SASL_PLAINTEXT://"))

    def user(self, broker_id: int, name: str, password: str, *, is_token: bool = False) -> AdminClient:
        """Return a client that logs in at a broker, by a password or by a token's id and HMAC."""
        host, port = self.login_address(broker_id).split(":")
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        settings = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": (
                f'{module} required username="{name}" password="{password}" tokenauth="{str(is_token).lower()}";'
            ),
        }
        return AdminClient([Endpoint(host, int(port))], timeout_ms=TIMEOUT_MS, security=client_security(settings))

    def has_login(self, broker_id: int, name: str, password: str, *, is_token: bool = False) -> bool:
        """Return whether a broker lets a user in."""
        try:
            with self.user(broker_id, name, password, is_token=is_token) as client:
                client.metadata([])
        except KafkaError as error:
            if error.code != ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
            return False
        return True

    # -- roles ------------------------------------------------------------------------------------------------------

    def make_controller(self, broker_id: int) -> None:
        """Make a broker the controller: the others are halted while the election runs."""
        if self.controller() == broker_id:
            return
        with self.nodes() as client, ExitStack() as halted:
            for other in self.running:
                if other != broker_id:
                    halted.enter_context(self.halted(other))
            with suppress(NoNodeError):
                client.delete("/controller")

            def is_elected() -> bool:
                with suppress(NoNodeError):
                    return bool(json.loads(client.get("/controller")[0])["brokerid"] == broker_id)
                return False

            self.wait_until(is_elected, f"broker {broker_id} is elected")
        self.wait_until(self._is_known_everywhere, "every broker knows the controller")

    def create(self, topic: str, *replicas: Sequence[int], **configs: str) -> None:
        """Create a topic with the replicas of each partition, and wait until they are in sync.

        `configs` have underscores for dots.
        """
        new = CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in enumerate(replicas)
            ],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[new], timeout_ms=TIMEOUT_MS)
        with self.admin() as client:
            (created,) = client.call_controller(
                request, CreateTopicsResponse, lambda response: [response.topics[0].error_code]
            ).topics
        raise_for(created.error_code, created.error_message)
        self.wait_until_in_sync(topic)

    def end_session(self, broker_id: int) -> None:
        """Remove what a killed broker's session holds, as the server would when it times out."""
        assert not self.brokers[broker_id].is_running
        with self.nodes() as client:
            with suppress(NoNodeError):
                if json.loads(client.get("/controller")[0])["brokerid"] == broker_id:
                    client.delete("/controller")
            with suppress(NoNodeError):
                client.delete(f"/brokers/ids/{broker_id}")

    def set_quota(self, client_id: str, **rates: float) -> None:
        """Set the quotas of a client, or remove that of production."""
        operations = [OpData(key=key, value=rate, remove=False) for key, rate in rates.items()]
        entry = EntryData(
            entity=[EntityData(entity_type="client-id", entity_name=client_id)],
            ops=operations or [OpData(key="producer_byte_rate", value=0.0, remove=True)],
        )
        request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
        with self.admin() as client:
            (result,) = client.call_controller(
                request, AlterClientQuotasResponse, lambda response: [response.entries[0].error_code]
            ).entries
        raise_for(result.error_code, result.error_message)

    def add_partition(self, topic: str, replicas: Sequence[int]) -> None:
        """Add a partition with these replicas, and wait until they are in sync."""
        count = len(self.partitions(topic)) + 1
        wanted = CreatePartitionsTopic(
            name=topic, count=count, assignments=[CreatePartitionsAssignment(broker_ids=list(replicas))]
        )
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=False)
        with self.admin() as client:
            (result,) = client.call_controller(
                request, CreatePartitionsResponse, lambda response: [response.results[0].error_code]
            ).results
        raise_for(result.error_code, result.error_message)
        self.wait_until(
            lambda: all(len(self.partitions(topic, [it])) == count for it in self.running), "the partition exists"
        )
        self.wait_until_in_sync(topic)

    def delete(self, topic: str) -> None:
        """Ask for the deletion of a topic."""
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=topic, topic_id=ZERO_UUID)], topic_names=[], timeout_ms=1
        )
        with self.admin() as client:
            (result,) = client.call_controller(
                request, DeleteTopicsResponse, lambda response: [response.responses[0].error_code]
            ).responses
        # The controller has no time to wait for brokers that are down.
        assert result.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)

    def elect_preferred(self, *topics: str) -> None:
        """Make the first replica of each partition its leader."""
        wanted = [
            TopicPartitions(topic=topic, partitions=list(self.partitions(topic)))
            for topic in topics
        ]  # fmt: skip
        request = ElectLeadersRequest(election_type=0, topic_partitions=wanted, timeout_ms=TIMEOUT_MS)
        with self.admin() as client:
            raise_for(
                client.call_controller(request, ElectLeadersResponse, lambda response: [response.error_code]).error_code
            )
        self.wait_until(
            lambda: all(
                leader == replicas[0]
                for topic in topics
                for broker_id in self.running
                for leader, replicas, _ in self.partitions(topic, [broker_id]).values()
            ),
            "the preferred replicas lead",
        )

    def reassign(self, topic: str, *replicas: Sequence[int]) -> None:
        """Give each partition new replicas, and wait until it has them alone."""
        partitions = [ReassignablePartition(partition_index=it, replicas=list(to)) for it, to in enumerate(replicas)]
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=partitions)]
        )
        with self.admin() as client:
            response = client.call_controller(
                request, AlterPartitionReassignmentsResponse, lambda response: [response.error_code]
            )
        raise_for(response.error_code, response.error_message)
        for partition in response.responses[0].partitions:
            raise_for(partition.error_code, partition.error_message)
        self.wait_until(
            lambda: all(
                [list(replicas) for _, (_, replicas, _) in sorted(self.partitions(topic, [broker_id]).items())]
                == list(map(list, replicas))
                for broker_id in self.running
            ),
            f"{topic} has its new replicas",
        )

    def key_coordinated_by(self, broker_id: int, prefix: str, key_type: int = TRANSACTION) -> str:
        """Return a name with a prefix that a broker coordinates: a transactional id, or a group id."""
        with self.admin() as client:
            for number in range(200):
                if client.coordinator(f"{prefix}-{number}", key_type) == broker_id:
                    return f"{prefix}-{number}"
        raise AssertionError(f"broker {broker_id} coordinates no name of 200 that begin with {prefix}")

    def new_producer_id(self, broker_id: int) -> int:
        """Return a producer id that a broker gives. It asks the controller for a block before it gives the first."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
        given: list[int] = []

        def is_given() -> bool:
            with self.admin_of(broker_id) as client:
                response = client.call(request, InitProducerIdResponse)
            given.append(response.producer_id)
            return response.error_code == ErrorCode.NONE

        self.wait_until(is_given, f"broker {broker_id} gives a producer id")
        return given[-1]

    def replace(self, broker_id: int) -> None:
        """Replace a broker that does not run by one of the other side, on its port and its data, and start it."""
        before = self.brokers[broker_id]
        assert not before.is_running
        self.side_of[broker_id] = KAFKA if self.side_of[broker_id] == MILENA else MILENA
        self.add_broker(broker_id).port = before.port
        self.start(broker_id)

    # -- what is stored ---------------------------------------------------------------------------------------------

    def state(self, topic: str, partition: int) -> dict[str, Any]:
        """Return the state node of a partition."""
        with self.nodes() as client:
            data, _ = client.get(f"/brokers/topics/{topic}/partitions/{partition}/state")
        return dict(json.loads(data))

    def exists(self, path: str) -> bool:
        """Return whether a node exists."""
        with self.nodes() as client:
            return client.exists(path) is not None

    def racks(self, broker_id: int) -> dict[int, str | None]:
        """Return the racks of all brokers as a broker knows them."""
        with self.admin_of(broker_id) as client:
            return {broker.node_id: broker.rack for broker in client.metadata([]).brokers}

    def topic_id(self, topic: str, broker_id: int) -> str:
        """Return the id of a topic as a broker knows it, in the form of its node."""
        with self.admin_of(broker_id) as client:
            (found,) = client.metadata([topic]).topics
        return base64.urlsafe_b64encode(found.topic_id.bytes).decode().rstrip("=")

    def folders(self, topic: str) -> dict[int, list[str]]:
        """Return the names of a topic's folders by broker, without those that are being deleted."""
        found = {
            broker_id: sorted(path.name for path in broker.log_dir.glob(f"{topic}-[0-9]*") if "." not in path.name)
            for broker_id, broker in self.brokers.items()
        }
        return {broker_id: names for broker_id, names in found.items() if names}

    def wait_until_replicas_are_equal(self, *topics: str) -> None:
        """Wait until all replicas of each partition have the same bytes and have stored their high watermarks.

        Then compare what the brokers store beside the records. Nothing may be written meanwhile.
        """
        self.wait_until_in_sync(*topics)
        for topic in topics:
            for partition, (_, replicas, _) in self.partitions(topic).items():
                self.wait_until(
                    lambda topic=topic, partition=partition, replicas=replicas: self._is_equal(  # type: ignore[misc]
                        topic, partition, replicas
                    ),
                    f"the replicas {replicas} of {topic}-{partition} are equal",
                )

    def _is_equal(self, topic: str, partition: int, replicas: Sequence[int]) -> bool:
        brokers = [self.brokers[broker_id] for broker_id in replicas]
        one, *others = log_bytes(brokers, topic, partition)
        if any(it != one for it in others):
            return False
        headers = [header for _, header in batches(one)]
        end = headers[-1].last_offset + 1 if headers else 0
        key = (topic, partition)
        for broker in brokers:
            if read_offsets(OsFiles(), str(broker.log_dir / HIGH_WATERMARKS)).get(key, 0) != end:
                return False
        folders = [broker.log_dir / f"{topic}-{partition}" for broker in brokers]
        assert len({read_partition_metadata(OsFiles(), str(folder / "partition.metadata")) for folder in folders}) == 1
        written = list(dict.fromkeys(header.partition_leader_epoch for header in headers))
        for folder in folders:
            starts = read_leader_epochs(OsFiles(), str(folder / LEADER_EPOCH_CHECKPOINT)) or []
            assert [epoch for epoch, _ in starts if epoch in written] == written, folder
            for header in headers:
                known = [epoch for epoch, start in starts if start <= header.base_offset]
                assert known[-1] == header.partition_leader_epoch, folder
        return True

    # -- logs -------------------------------------------------------------------------------------------------------

    def new_complaints(self) -> list[str]:
        """Return what the brokers have logged since the last call about requests, nodes or files of each other.

        That others are down, or know of an election earlier or later, is no complaint. It is one if a broker stops
        although the controller has not moved its leaders.
        """
        return [
            f"broker {broker_id}: {line}"
            for broker_id in self.brokers
            for line in self.new_lines(broker_id)
            if _COMPLAINT.search(line)
        ]

    def new_lines(self, broker_id: int) -> list[str]:
        """Return the lines that a broker has logged since the last call."""
        broker = self.brokers[broker_id]
        assert isinstance(broker, ApacheKafkaProcess | BrokerProcess)
        lines = broker.log.read_text(errors="replace").splitlines()
        read, self._read[broker.log] = self._read.get(broker.log, 0), len(lines)
        return lines[read:]
