"""Milena and Apache Kafka in one cluster: each side in every role, with the other side in the roles beside it.

`docs/cluster.md` has the table of the pairings, whose cells are the tests of this file.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.admin import AdminClient as ConfluentAdmin

from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from protocol.messages.end_txn import EndTxnRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.builder import RecordData, build_batch
from tests.cluster.copier import BATCH, Copier
from tests.cluster.group_reader import GroupReader
from tests.cluster.load import (
    CONSUMER_SETTINGS,
    PRODUCER_SETTINGS,
    NumberedLoad,
    assert_exactly_once,
    numbers_of,
    read_topic,
)
from tests.docs.console_blocks import ROOT, blocks, run
from tests.interop.mixed import INTERNAL_TOPICS, KAFKA, MILENA, SIDE_OF, MixedCluster
from tests.support.apache_kafka import jars
from tests.support.coordination import coordination_in_memory
from tests.support.parts import skip_when_unavailable
from tests.support.wire_client import WireClient
from tools.client.admin_client import GROUP, TRANSACTION, raise_for

SIDES = (MILENA, KAFKA)
OTHER = {MILENA: KAFKA, KAFKA: MILENA}
LEADING = {MILENA: 1, KAFKA: 3}
"""The broker of each side that leads, coordinates or is moved to. Milena's second one is the controller meanwhile."""
CONTROLLING = {MILENA: 2, KAFKA: 3}
INTERNAL_REPLICAS = ([1, 3, 2], [3, 1, 2], [2, 3, 1])
"""Of three partitions each: every broker coordinates, and the other side succeeds it."""
IN_ORDER = {"max.in.flight": 1}
"""More requests in flight, and a record may exist twice after the election of a leader of Apache Kafka ("Batches behind
a refused one" in docs/replication.md)."""
RECORDS = 30
TIMEOUT_S = 30.0

PROTOCOLS = ("3.9", pytest.param("2.6", marks=pytest.mark.soak))
"""With 2.6, leaders write the ISR into ZooKeeper, and brokers know no topic ids."""
NO_TOPIC_ID, FOREIGN_TOPIC_ID = "A" * 22, "Zm9yZWlnbi10b3BpYy1pZA"
HANDOVER, PAGE = ROOT / "docs" / "handover.md", ROOT / "docs" / "cluster.md"

_numbers = itertools.count()


@pytest.fixture(scope="module", params=PROTOCOLS)
def shared_cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    with skip_when_unavailable():
        jars()
        with (
            coordination_in_memory() as coordination,
            MixedCluster(tmp_path_factory.mktemp("mixed"), coordination, protocol=request.param) as running,
        ):
            create_internal_topics(running)
            yield running


def create_internal_topics(cluster: MixedCluster) -> None:
    """Create them before a broker does, with replicas that are known."""
    for internal in INTERNAL_TOPICS:
        cluster.create(internal, *2 * INTERNAL_REPLICAS, cleanup_policy="compact", min_insync_replicas="1")


@pytest.fixture
def cluster(shared_cluster: MixedCluster) -> Iterator[MixedCluster]:
    """All brokers run, and no broker logs during the test that it does not understand another."""
    shared_cluster.heal(*INTERNAL_TOPICS)
    shared_cluster.elect_preferred(*INTERNAL_TOPICS)
    yield shared_cluster
    assert shared_cluster.new_complaints() == []


@pytest.fixture
def topic() -> str:
    """The name of a topic that does not exist."""
    return f"numbers-{next(_numbers)}"


def test_every_row_of_the_documented_table_has_its_test() -> None:
    section = PAGE.read_text().split("\n## Brokers of Apache Kafka in the same cluster\n")[1].split("\n## ")[0]
    rows = re.findall(r"`(test_\w+)` \|$", section, re.MULTILINE)
    assert len(rows) > 10
    assert set(rows) <= globals().keys()


@pytest.mark.parametrize(
    ("leader", "controller"),
    [
        (MILENA, KAFKA),
        (KAFKA, MILENA),
        pytest.param(MILENA, MILENA, marks=pytest.mark.soak),
        pytest.param(KAFKA, KAFKA, marks=pytest.mark.soak),
    ],
)
def test_leader_changes_its_isr(cluster: MixedCluster, topic: str, leader: str, controller: str) -> None:
    """The follower is of the other side, or where that one is the controller too, a second one."""
    leading = LEADING[leader]
    cluster.make_controller(CONTROLLING[controller])
    following = next(it for it in (3, 1, 2) if it not in (leading, CONTROLLING[controller]))
    cluster.create(topic, [leading, following], min_insync_replicas="1")
    before = cluster.state(topic, 0)
    with NumberedLoad(cluster.bootstrap, topic, 1) as load:
        with cluster.halted(following):
            cluster.wait_until(lambda: cluster.partitions(topic)[0][2] == [leading], "the ISR has shrunk")
            shrunk = cluster.state(topic, 0)
            load.wait_for(20)
        cluster.wait_until_in_sync(topic)
    assert shrunk == {**before, "isr": [leading]}
    assert cluster.state(topic, 0) == before
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, 1))
    cluster.wait_until_replicas_are_equal(topic)


@pytest.mark.parametrize("controller", SIDES)
def test_controller_administers_topics_of_both_sides(cluster: MixedCluster, topic: str, controller: str) -> None:
    cluster.make_controller(CONTROLLING[controller])
    cluster.create(topic, [1, 3], [3, 1])
    with cluster.nodes() as client:
        node = json.loads(client.get(f"/brokers/topics/{topic}")[0])
        epoch = int(client.get("/controller_epoch")[0])
    ids = {broker_id: cluster.topic_id(topic, broker_id) for broker_id in cluster.brokers}
    assert ids == dict.fromkeys(ids, node["topic_id"] if cluster.has_topic_ids else NO_TOPIC_ID)
    assert all(cluster.racks(it) == {number: f"rack-{number}" for number in (1, 2, 3)} for it in cluster.brokers)
    state = {"version": 1, "leader_epoch": 0, "controller_epoch": epoch}
    assert cluster.state(topic, 0) == {**state, "leader": 1, "isr": [1, 3]}
    assert cluster.state(topic, 1) == {**state, "leader": 3, "isr": [3, 1]}

    cluster.add_partition(topic, [3, 2])
    write(cluster, topic, range(RECORDS))
    cluster.reassign(topic, [3, 1], [1, 3], [2, 3])  # the same replicas in another order
    cluster.elect_preferred(topic)
    assert [cluster.state(topic, partition)["leader"] for partition in range(3)] == [3, 1, 2]
    write(cluster, topic, range(RECORDS, 2 * RECORDS))
    assert numbers_of(read_topic(cluster.bootstrap, topic, 3)) == list(range(2 * RECORDS))
    cluster.wait_until_replicas_are_equal(topic)

    cluster.delete(topic)
    cluster.wait_until(lambda: not cluster.exists(f"/brokers/topics/{topic}"), "the topic is deleted")
    assert not cluster.exists(f"/config/topics/{topic}")
    assert not cluster.exists(f"/admin/delete_topics/{topic}")
    cluster.wait_until(lambda: not cluster.folders(topic), "no broker has a folder of the topic")


@pytest.mark.parametrize("controller", SIDES)
def test_controller_gives_every_broker_producer_ids_of_its_own(cluster: MixedCluster, controller: str) -> None:
    cluster.make_controller(CONTROLLING[controller])
    found = [cluster.new_producer_id(broker_id) for broker_id in 2 * [*cluster.brokers]]
    assert len(set(found)) == len(found)
    blocks = sorted(found)
    assert [it + 1 for it in blocks[::2]] == blocks[1::2], "each broker has a block"


@pytest.mark.parametrize("controller", SIDES)
def test_partitions_move_between_the_sides(cluster: MixedCluster, topic: str, controller: str) -> None:
    """Each side is source and target."""
    cluster.make_controller(CONTROLLING[controller])
    cluster.create(topic, [1], [3], min_insync_replicas="1", segment_bytes="16384")
    with NumberedLoad(cluster.bootstrap, topic, 2) as load:
        cluster.reassign(topic, [3, 1], [1, 3])
        cluster.wait_until_in_sync(topic)
        load.wait_for(20)
        cluster.elect_preferred(topic)
        cluster.reassign(topic, [3], [1])
        load.wait_for(20)
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, 2))
    cluster.wait_until(
        lambda: cluster.folders(topic) == {1: [f"{topic}-1"], 3: [f"{topic}-0"]}, "the sources are deleted"
    )
    cluster.reassign(topic, [3, 1], [1, 3])
    cluster.wait_until_replicas_are_equal(topic)


@pytest.mark.parametrize("coordinator", SIDES)
def test_group_is_coordinated_for_partitions_of_the_other_side(
    cluster: MixedCluster, topic: str, coordinator: str
) -> None:
    group = cluster.key_coordinated_by(LEADING[coordinator], f"group-of-{topic}", GROUP)
    leading = LEADING[OTHER[coordinator]]
    cluster.create(topic, [leading, LEADING[coordinator]])
    write(cluster, topic, range(2 * RECORDS), partitions=1)
    assert [*consume(cluster, topic, group, RECORDS), *consume(cluster, topic, group, RECORDS)] == list(
        range(2 * RECORDS)
    )
    assert committed_offsets(cluster, group, topic, 1) == {0: 2 * RECORDS}
    cluster.wait_until_replicas_are_equal(topic, INTERNAL_TOPICS[0])


@pytest.mark.parametrize("coordinator", SIDES)
def test_coordinator_writes_markers_to_leaders_of_both_sides(
    cluster: MixedCluster, topic: str, coordinator: str
) -> None:
    """And to the offsets of a group that the other side coordinates."""
    transactional_id = cluster.key_coordinated_by(LEADING[coordinator], f"copy-of-{topic}")
    group = cluster.key_coordinated_by(LEADING[OTHER[coordinator]], f"group-of-{topic}", GROUP)
    cluster.create(topic, [1, 3], [3, 1])
    producer = transactional(cluster, transactional_id)
    for first, offset, end in ((0, 7, producer.abort_transaction), (RECORDS, 8, producer.commit_transaction)):
        producer.begin_transaction()
        write_with(producer, topic, range(first, first + RECORDS), partitions=2)
        reader = Consumer({**CONSUMER_SETTINGS, "bootstrap.servers": cluster.bootstrap, "group.id": group})
        producer.send_offsets_to_transaction(
            [TopicPartition(topic, 0, offset)], reader.consumer_group_metadata(), TIMEOUT_S
        )
        reader.close()
        end(TIMEOUT_S)
    committed = read_topic(cluster.bootstrap, topic, 2, isolation="read_committed")
    assert numbers_of(committed) == list(range(RECORDS, 2 * RECORDS))
    assert numbers_of(read_topic(cluster.bootstrap, topic, 2)) == list(range(2 * RECORDS))
    assert committed_offsets(cluster, group, topic, 1) == {0: 8}
    cluster.wait_until_replicas_are_equal(topic, *INTERNAL_TOPICS)
    for partition in (0, 1):
        folders = [cluster.brokers[broker_id].log_dir / f"{topic}-{partition}" for broker_id in (1, 3)]
        one, other = ([path.read_bytes() for path in sorted(folder.glob("*.txnindex"))] for folder in folders)
        assert one == other != [b""], "the aborted transaction is in both indexes"


@pytest.mark.parametrize("leader", SIDES)
def test_leader_verifies_a_transaction_with_its_coordinator(cluster: MixedCluster, topic: str, leader: str) -> None:
    """The coordinator is of the other side; it does not know the partition at first."""
    transactional_id = cluster.key_coordinated_by(LEADING[OTHER[leader]], f"copy-of-{topic}")
    cluster.create(topic, [LEADING[leader]], min_insync_replicas="1")
    with (
        WireClient(cluster.brokers[LEADING[OTHER[leader]]].port) as coordinator,
        WireClient(cluster.brokers[LEADING[leader]].port) as leading,
    ):
        begun = coordinator.ask(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 4
        )
        assert begun.error_code == ErrorCode.NONE
        batch = build_batch(
            [RecordData(int(time.time() * 1000), None, b"0")],
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
        produce = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=data)

        def produced() -> ErrorCode:
            ((answer,),) = (it.partition_responses for it in leading.ask(produce, 11).responses)
            return ErrorCode(answer.error_code)

        cluster.wait_until(
            lambda: produced() in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
            "the coordinator has said that the partition is in no transaction",
        )
        added = coordinator.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=begun.producer_id,
                v3_and_below_producer_epoch=begun.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            ),
            3,
        )
        ((result,),) = (it.results_by_partition for it in added.results_by_topic_v3_and_below)
        assert result.partition_error_code == ErrorCode.NONE
        assert produced() == ErrorCode.NONE
        end = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=begun.producer_id,
            producer_epoch=begun.producer_epoch,
            committed=True,
        )
        assert coordinator.ask(end, 3).error_code == ErrorCode.NONE
    cluster.wait_until(
        lambda: numbers_of(read_topic(cluster.bootstrap, topic, 1, isolation="read_committed")) == [0],
        "the record is committed",
    )


@pytest.mark.soak  # brokers that are replaced ask for their shutdown too; here a topic is deleted meanwhile
@pytest.mark.parametrize("controller", SIDES)
def test_broker_asks_the_controller_of_the_other_side_for_its_shutdown(
    cluster: MixedCluster, topic: str, controller: str
) -> None:
    """Topics that are deleted while it is down are gone when it is back."""
    cluster.make_controller(CONTROLLING[controller])
    stopping = LEADING[OTHER[controller]]
    others = [it for it in (3, 1, 2) if it != stopping]
    deleted = f"{topic}-deleted"
    cluster.create(topic, [stopping, *others])
    cluster.create(deleted, [stopping, *others])
    with NumberedLoad(cluster.bootstrap, topic, 1) as load:
        cluster.brokers[stopping].stop()
        load.wait_for(20)
        state = cluster.state(topic, 0)
        assert (state["leader"], state["isr"], state["leader_epoch"]) == (others[0], others, 1)
        cluster.delete(deleted)
        cluster.wait_until(lambda: list(cluster.folders(deleted)) == [stopping], "those that run have deleted it")
        assert cluster.exists(f"/admin/delete_topics/{deleted}")
        cluster.start(stopping)
        cluster.wait_until_in_sync(topic)
        load.wait_for(20)
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, 1))
    cluster.wait_until(lambda: not cluster.exists(f"/brokers/topics/{deleted}"), "the topic is deleted")
    cluster.wait_until(lambda: not cluster.folders(deleted), "its last folder is deleted")
    cluster.wait_until_replicas_are_equal(topic, *INTERNAL_TOPICS)


@pytest.mark.parametrize("killed", [MILENA, pytest.param(KAFKA, marks=pytest.mark.soak)])
def test_other_side_succeeds_a_killed_broker_in_every_role(cluster: MixedCluster, topic: str, killed: str) -> None:
    """A broker is controller, leader and coordinator of a group and of an open transaction when it is killed."""
    broker_id, successor = LEADING[killed], LEADING[OTHER[killed]]
    group = cluster.key_coordinated_by(broker_id, f"group-of-{topic}", GROUP)
    transactional_id = cluster.key_coordinated_by(broker_id, f"copy-of-{topic}")
    copied = f"{topic}-copied"
    cluster.make_controller(broker_id)
    cluster.create(topic, [broker_id, successor, 2], segment_bytes="16384")
    cluster.create(copied, [broker_id, successor, 2])
    producer = transactional(cluster, transactional_id)
    with NumberedLoad(cluster.bootstrap, topic, 1) as load:
        assert consume(cluster, topic, group, RECORDS) == list(range(RECORDS))
        producer.begin_transaction()
        write_with(producer, copied, range(RECORDS), partitions=1)
        with cluster.halted(2):  # so that it is not elected
            cluster.kill(broker_id)
            cluster.end_session(broker_id)
            cluster.wait_until(lambda: cluster.controller() == successor, "the other side is the controller")
        assert (cluster.leader(topic), cluster.leader(copied)) == (successor, successor)
        load.wait_for(20)
        write_with(producer, copied, range(RECORDS, 2 * RECORDS), partitions=1)
        producer.commit_transaction(TIMEOUT_S)
        assert consume(cluster, topic, group, RECORDS) == list(range(RECORDS, 2 * RECORDS))
        with cluster.admin() as client:
            assert client.coordinator(group) == client.coordinator(transactional_id, TRANSACTION) == successor
        cluster.start(broker_id)
        cluster.wait_until_in_sync(topic, copied)
        load.wait_for(20)
    assert_exactly_once(load, read_topic(cluster.bootstrap, topic, 1))
    committed = read_topic(cluster.bootstrap, copied, 1, isolation="read_committed")
    assert [number for _, number in committed[0]] == list(range(2 * RECORDS))
    cluster.wait_until_replicas_are_equal(topic, copied, *INTERNAL_TOPICS)


@pytest.mark.soak  # tests/broker/replica/test_manager.py has the rule
@pytest.mark.parametrize("side", SIDES)
def test_replica_of_another_topic_id_is_not_served(shared_cluster: MixedCluster, topic: str, side: str) -> None:
    """The brokers disagree on the id of a topic. Kafka refuses it, Milena keeps the replica under another name."""
    cluster, broker_id, leader = shared_cluster, LEADING[side], LEADING[OTHER[side]]
    if not cluster.has_topic_ids:
        pytest.skip("brokers learn no topic ids by the protocol of 2.6")
    cluster.heal(*INTERNAL_TOPICS)
    cluster.create(topic, [leader, broker_id], min_insync_replicas="1")
    broker, own = cluster.brokers[broker_id], cluster.topic_id(topic, leader)
    metadata = broker.log_dir / f"{topic}-0" / "partition.metadata"
    broker.stop()
    metadata.write_text(metadata.read_text().replace(own, FOREIGN_TOPIC_ID))
    cluster.start(broker_id)
    named = {KAFKA: FOREIGN_TOPIC_ID, MILENA: str(UUID(bytes=urlsafe_b64decode(f"{FOREIGN_TOPIC_ID}==")))}
    cluster.wait_until(
        lambda: any(topic in it and named[side] in it for it in cluster.new_lines(broker_id)), "the id is named"
    )
    write(cluster, topic, range(RECORDS), partitions=1)
    if side == MILENA:
        assert len(list(broker.log_dir.glob(f"{topic}-0.*-stray"))) == 1
    else:
        assert cluster.partitions(topic)[0][2] == [leader]
        broker.stop()
        metadata.write_text(metadata.read_text().replace(FOREIGN_TOPIC_ID, own))
        cluster.start(broker_id)
    cluster.wait_until_replicas_are_equal(topic)
    cluster.new_complaints()


@pytest.mark.parametrize("controller", SIDES)
def test_settings_that_one_side_changes_hold_at_the_other(cluster: MixedCluster, topic: str, controller: str) -> None:
    """A topic's configuration, a client's quota, a user with a password, a permission and a token of the user."""
    cluster.make_controller(CONTROLLING[controller])
    leading = LEADING[OTHER[controller]]
    user, password = f"user-of-{topic}", "of a user"
    cluster.create(topic, [leading], min_insync_replicas="1")
    admin = ConfluentAdmin({"bootstrap.servers": cluster.brokers[CONTROLLING[controller]].bootstrap, "log_level": 2})
    limit = ConfigEntry("max.message.bytes", "500", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[limit])
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    known = UserScramCredentialUpsertion(user, credential, password.encode())
    allowed = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    login = {
        **PRODUCER_SETTINGS,
        "bootstrap.servers": cluster.login_address(leading),
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
    }
    for changes in (
        admin.incremental_alter_configs([resource]),
        admin.alter_user_scram_credentials([known]),
    ):
        for change in changes.values():
            change.result(TIMEOUT_S)
    cluster.set_quota("wire-client", producer_byte_rate=1.0)

    cluster.wait_until(lambda: refusal(login, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED, "the user may log in")
    for change in admin.create_acls([allowed]).values():
        change.result(TIMEOUT_S)
    cluster.wait_until(lambda: refusal(login, topic) is None, "the user may write")
    cluster.wait_until(
        lambda: cluster.has_login(CONTROLLING[controller], user, password), "the controller knows the user"
    )
    with cluster.user(CONTROLLING[controller], user, password) as client:
        token = client.call(
            CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), CreateDelegationTokenResponse
        )
        raise_for(token.error_code)
    hmac = b64encode(token.hmac).decode()
    cluster.wait_until(
        lambda: cluster.has_login(leading, token.token_id, hmac, is_token=True), "the token of the user logs in"
    )
    cluster.wait_until(
        lambda: refusal(login, topic, bytes(1000)) == KafkaError.MSG_SIZE_TOO_LARGE, "the topic refuses large records"
    )
    batch = build_batch([RecordData(int(time.time() * 1000), None, bytes(200))])
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    with WireClient(cluster.brokers[leading].port) as client:
        cluster.wait_until(
            lambda: client.ask(ProduceRequest(acks=1, timeout_ms=10_000, topic_data=data), 9).throttle_time_ms > 0,
            "the client is throttled",
        )
    cluster.set_quota("wire-client")


def refusal(settings: Mapping[str, object], topic: str, value: bytes = b"0") -> int | None:
    """Return the code of the error with which a record is refused, None if it is written."""
    codes: list[int] = []
    producer = Producer(dict(settings))
    producer.produce(topic, value, on_delivery=lambda error, _: codes.append(error.code()) if error else None)
    if producer.flush(TIMEOUT_S):
        return KafkaError._TIMED_OUT
    return codes[0] if codes else None


def test_brokers_are_replaced_by_those_of_the_other_side_and_back(cluster: MixedCluster, topic: str) -> None:
    """Under load, on its data directory and port: killed there, and stopped on the way back.

    The test below replaces all brokers.
    """
    with Load(cluster, topic) as load:
        load.replace(1, kill=True)
        assert cluster.side_of == {1: KAFKA, 2: MILENA, 3: KAFKA}
        cluster.make_controller(3)
        load.replace(1)
    assert cluster.side_of == SIDE_OF
    load.check()


@pytest.mark.soak
def test_three_brokers_of_kafka_are_replaced_and_return(tmp_path: Path, topic: str) -> None:
    """One by one, and each broker that has been replaced or not is killed in between."""
    with (
        skip_when_unavailable(),
        coordination_in_memory() as coordination,
        MixedCluster(tmp_path, coordination, dict.fromkeys((1, 2, 3), KAFKA)) as cluster,
    ):
        create_internal_topics(cluster)
        with Load(cluster, topic) as load:
            for direction in range(4):
                for broker_id in cluster.brokers:
                    load.replace(broker_id, kill=direction >= 2)
                    load.kill_and_restart(broker_id % 3 + 1)
        assert set(cluster.side_of.values()) == {KAFKA}
        load.check()


class Load:
    """An idempotent producer, a group and a program that copies in transactions, during the block."""

    def __init__(self, cluster: MixedCluster, topic: str) -> None:
        self._cluster = cluster
        self._topic, self._copied = topic, f"{topic}-copied"
        for name in (self._topic, self._copied):
            cluster.create(name, [1, 2, 3], [2, 3, 1], [3, 1, 2], segment_bytes="65536")
        self._producer = NumberedLoad(cluster.bootstrap, topic, 3, rate=25, settings=IN_ORDER)
        self._group = GroupReader(cluster.bootstrap, f"group-of-{topic}", topic)
        self._copier = Copier(cluster.bootstrap, topic, self._copied, f"copy-of-{topic}", 3)

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            entered.enter_context(self._copier)
            entered.enter_context(self._group)
            entered.enter_context(self._producer)
            self.show_progress()
            self._undo = entered.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        with ExitStack() as last:
            last.push(self._undo)
            if kind is None:
                self._producer.stop()
                self._copier.run(self._producer.sent)
                self._group.wait_for_all(self._producer.acknowledged)

    def show_progress(self) -> None:
        """Wait until each of the three has done something more."""
        self._producer.wait_for(20)
        self._copier.run(self._copier.copied + BATCH)
        self._group.wait_for(20)

    def replace(self, broker_id: int, *, kill: bool = False) -> None:
        """Replace a broker while the load goes on, and wait until everything is in sync.

        Without `kill` by the commands of the documentation.
        """
        if kill:
            self._cluster.kill(broker_id)
            self._cluster.end_session(broker_id)
            self._cluster.replace(broker_id)
        else:
            ((*commands,),) = blocks(HANDOVER.read_text().split("\n## Broker by broker\n")[1].split("\n## ")[0])
            for command, _ in commands:
                if command.startswith("bin/kafka-server-stop"):
                    self._cluster.brokers[broker_id].stop()
                elif command.startswith("bin/kafka-server-start"):
                    self._cluster.replace(broker_id)
                else:
                    printed = run(command.replace("localhost:9092", self._cluster.bootstrap), ROOT, {})
                    assert "--describe" not in command or printed == ""
        self._settle()

    def kill_and_restart(self, broker_id: int) -> None:
        """Kill a broker while the load goes on, start it again, and wait until everything is in sync."""
        self._cluster.kill(broker_id)
        self._cluster.end_session(broker_id)
        self.show_progress()
        self._cluster.start(broker_id)
        self._settle()

    def _settle(self) -> None:
        self._cluster.wait_until_in_sync(self._topic, self._copied, *INTERNAL_TOPICS)
        self._cluster.elect_preferred(self._topic, self._copied, *INTERNAL_TOPICS)
        self.show_progress()

    def check(self) -> None:
        """After the block: nothing is lost or repeated, and the replicas are equal."""
        bootstrap = self._cluster.bootstrap
        assert_exactly_once(self._producer, read_topic(bootstrap, self._topic, 3))
        committed = read_topic(bootstrap, self._copied, 3, isolation="read_committed")
        assert numbers_of(committed) == list(range(self._producer.sent))
        assert self._group.went_back == []
        self._cluster.wait_until_replicas_are_equal(self._topic, self._copied, *INTERNAL_TOPICS)


def transactional(cluster: MixedCluster, transactional_id: str) -> Producer:
    """Return a producer that is ready for its first transaction."""
    producer = Producer(
        {**PRODUCER_SETTINGS, "bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(cluster: MixedCluster, topic: str, numbers: Iterable[int], *, partitions: int = 3) -> None:
    write_with(Producer({**PRODUCER_SETTINGS, "bootstrap.servers": cluster.bootstrap}), topic, numbers, partitions)


def write_with(producer: Producer, topic: str, numbers: Iterable[int], partitions: int) -> None:
    """Write number `n` to partition `n % partitions`, and wait for the acknowledgements."""
    failed: list[object] = []
    for number in numbers:
        producer.produce(
            topic,
            str(number),
            partition=number % partitions,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []


def consume(cluster: MixedCluster, topic: str, group: str, count: int) -> list[int]:
    """Return so many records that a new member of a group reads, and commit their end."""
    consumer = Consumer(
        {
            **CONSUMER_SETTINGS,
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        messages: list[Message] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(messages) < count:
            assert time.monotonic() < deadline, f"only {len(messages)} of {count} records were read"
            messages += [it for it in consumer.consume(count - len(messages), 0.1) if it.error() is None]
        consumer.commit(message=messages[-1], asynchronous=False)
        return [int(message.value()) for message in messages]
    finally:
        consumer.close()


def committed_offsets(cluster: MixedCluster, group: str, topic: str, partitions: int) -> dict[int, int]:
    consumer = Consumer({**CONSUMER_SETTINGS, "bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
        return {found.partition: found.offset for found in consumer.committed(wanted, timeout=TIMEOUT_S)}
    finally:
        consumer.close()
